// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "settings.hpp"

#include <espalier/base/table.hpp>
#include <espalier/nn.hpp>
#include <espalier/runner.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <ostream>
#include <string>

namespace gpt {

namespace report = ep::report;

/// The model, the mesh, and where its parameters lie.
inline void describe_model(std::ostream& out, const ep::world& where) {
  out << "model     " << settings::layers << " layers of width " << settings::width << ", " << settings::heads
      << " heads, context " << settings::context << ", vocabulary " << settings::vocabulary << ": "
      << report::format_count(parameter_count()) << " parameters\n"
      << "batch     " << settings::batch << " windows of " << settings::context << " characters, "
      << report::format_count(tokens_per_step) << " tokens a step\n"
      << "mesh      data=" << data::size << ", model=" << model::size << ": " << mesh::devices
      << (where.uses_mpi() ? " MPI ranks" : " devices inside this process") << ", " << where.threads_per_device()
      << (where.threads_per_device() == 1 ? " thread" : " threads") << " each\n";
  int index = training_program::first_leaf<0>();
  const model_parameters<ep::spec> tree{};
  ep::for_each_named_leaf(tree, [&](const auto& leaf, const ep::leaf_path& path) {
    using tensor = ep::plain<std::remove_cvref_t<decltype(leaf)>>;
    const std::string name = path.str();
    const ep::layout& placed = training_program::argument_layout(index);
    if (index++ == 0)
      out << "layout    ";
    else if (name == "blocks.query.weight" || name == "blocks.up.weight" || name == "head")
      out << "          ";
    else
      return;
    out << name << std::string(name.size() < 20 ? 20 - name.size() : 1, ' ')
        << ep::to_string(mesh::value, training_program::parts, tensor::type, tensor::shape, placed.placement) << '\n';
  });
}

namespace detail {

template <ep::CollectiveKind Kind, class... Axes>
void add_row(report::table& table, const char* kind, const char* axes, std::int64_t joint) {
  // Queries with an axis count whatever communicates along it; what uses both axes at once has its own row.
  const std::int64_t count = training_program::collectives<Kind, Axes...>() - (sizeof...(Axes) == 1 ? joint : 0);
  if (count <= 0) return;
  std::int64_t bytes = training_program::bytes<Kind, Axes...>();
  if (sizeof...(Axes) == 1) bytes -= training_program::bytes<Kind, data, model>();
  table.row(kind, axes, count, report::format_bytes(bytes));
}
template <ep::CollectiveKind Kind> void add_rows(report::table& table, const char* kind) {
  const std::int64_t joint = training_program::collectives<Kind, data, model>();
  add_row<Kind, data>(table, kind, "data", joint);
  add_row<Kind, model>(table, kind, "model", joint);
  add_row<Kind, data, model>(table, kind, "data, model", joint);
}

}  // namespace detail

/// Prints the communication and memory of a training step: constants of the program, known before it ran.
inline void describe_step(std::ostream& out) {
  report::table collectives({{"collective", ""}, {"axes", ""}, {"per step", ""}, {"sent per device", ""}});
  detail::add_rows<ep::all_reduce>(collectives, "all_reduce");
  detail::add_rows<ep::reduce_scatter>(collectives, "reduce_scatter");
  detail::add_rows<ep::all_gather>(collectives, "all_gather");
  detail::add_rows<ep::all_to_all>(collectives, "all_to_all");
  detail::add_rows<ep::collective_permute>(collectives, "collective_permute");
  detail::add_rows<ep::exchange>(collectives, "exchange");
  if (collectives.rows() == 0) collectives.row("none", "", 0, "0 B");
  collectives.print(out);
  out << '\n';
  report::table memory({{"memory per device", ""}, {"size", ""}});
  memory.row("arguments: state and batch", report::format_bytes(training_program::argument_bytes()));
  memory.row("results", report::format_bytes(training_program::result_bytes()));
  memory.row("arena: everything between", report::format_bytes(training_program::arena_bytes()));
  memory.row("together", report::format_bytes(training_program::peak_bytes_per_device()));
  memory.print(out);
}

}  // namespace gpt
