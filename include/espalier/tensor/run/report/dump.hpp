// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/graph/text.hpp>
#include <espalier/tensor/core/program/check_graph.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

namespace espalier {

namespace detail {

/// A graph of a program, and the pass that returned it.
struct pass_graph {
  const char* pass = "";
  graph_stage stage = graph_stage::traced;
  /// The mesh of the user, its axes as the layouts name them, and the mesh of these axes.
  const mesh_shape& mesh;
  const axis_parts& parts;
  const mesh_shape& device_mesh;
  graph_view code;
};

/// The graph with a layout for every value.
[[nodiscard]] inline graph with_layouts(graph_view g, const sharding* of) {
  graph result;
  copy_tables(result, g);
  result.code.reserve(g.size);
  for (int id = 0; id < g.size; ++id) {
    result.code.push_back(g[id]);
    result.code[id].annotation = result.annotations.push_back({g[id].shape, of[id]});
  }
  return result;
}

/// Calls `f(pass_graph)` after tracing and after each pass of a program, in order. The graphs have the rules of their
/// operators, as `check` needs them.
template <class Program, class F> void for_each_pass(const F& f) {
  using mesh = typename Program::mesh;
  using device_mesh = typename Program::device_mesh;
  using trace_pass = typename Program::trace_pass;
  using partition_pass = typename Program::partition_pass;
  using device_program = typename Program::device_program;
  static constexpr axis_parts whole = axis_parts::whole(mesh::value);

  const auto on_tensors = [&](const char* pass, graph_stage stage, graph_view g) {
    f(pass_graph{pass, stage, mesh::value, whole, mesh::value, g});
  };
  const auto on_devices = [&](const char* pass, graph_stage stage, graph_view g) {
    f(pass_graph{pass, stage, mesh::value, Program::parts, device_mesh::value, g});
  };
  on_tensors("trace", graph_stage::traced, frozen<trace_pass>::value);
  [&]<int... N>(std::integer_sequence<int, N...> /*passes*/) {
    (on_tensors(passes_on_tensors[N].name, graph_stage::tensors,
                frozen<simplified_graph<mesh, trace_pass, N + 1>>::value),
     ...);
  }
  (std::make_integer_sequence<int, length_of(passes_on_tensors)>{});
  if constexpr (!std::is_same_v<device_mesh, mesh>) on_devices("cut_axes", graph_stage::tensors, Program::traced);
  on_devices("complete", graph_stage::tensors, with_layouts(Program::traced, &Program::completion_pass::value.of[0]));
  on_devices("partition", graph_stage::buffers, frozen<partition_pass>::value);
  [&]<int... N>(std::integer_sequence<int, N...> /*passes*/) {
    (on_devices(passes_on_buffers[N].name, graph_stage::buffers,
                frozen<device_graph<device_mesh, partition_pass, N + 1>>::value),
     ...);
  }
  (std::make_integer_sequence<int, length_of(passes_on_buffers)>{});
  if constexpr (!std::is_same_v<device_program, device_graph<device_mesh, partition_pass>>)
    on_devices("repeat_widened", graph_stage::buffers, Program::code);
}

inline void check_pass(const pass_graph& made) { check(made.device_mesh, made.code, made.stage, made.pass); }

/// Writes graphs under the names of their passes, those that a pass changed.
class graph_dump {
 public:
  explicit graph_dump(std::ostream& out) : out_(out) {}

  void write(const pass_graph& made) {
    std::string text = to_text(made.mesh, made.parts, made.code);
    const bool is_first = text_.empty();
    if (text == text_) {
      out_ << joined({"\nafter ", made.pass, ": unchanged\n"});
    } else {
      out_ << joined({is_first ? "" : "\n", "after ", made.pass, ":\n", text});
      text_ = std::move(text);
    }
    out_.flush();  // the graph that `check` refuses is the last one
  }

 private:
  std::ostream& out_;
  std::string text_;
};

/// Writes the instructions in the order in which a device executes them, each fused group on one line:
/// `%6 %7, fused`.
template <class Plan> void write_schedule(std::ostream& out, const Plan& plan) {
  out << "\nschedule:\n";
  for (const launch& group : plan.launches) {
    std::string text;
    for (int k = 0; k < group.count; ++k) append_text(text, {k == 0 ? "%" : " %", plan.order[group.first + k]});
    out << text << (group.fused ? ", fused\n" : "\n");
  }
}

}  // namespace detail

/// Writes the graph of a program after every pass, as text that `parse_graph` reads (docs/graph_text.md), and then the
/// order in which a device executes its instructions. Each graph is checked as by `check_passes` after it is written.
/// Example: `ep::dump<step>(std::cout)` writes "after trace:", the graph, "after normalise:", the next one, and so on;
/// of a pass that changed nothing, "after merge_all: unchanged".
/// Errors: `graph_error`.
template <class Program> void dump(std::ostream& out) {
  if constexpr (Program::is_sound) {  // otherwise its mistake has been reported
    detail::graph_dump graphs(out);
    detail::for_each_pass<Program>([&](const detail::pass_graph& made) {
      graphs.write(made);
      detail::check_pass(made);
    });
    detail::write_schedule(out, Program::plan);
  }
}
/// The same of a program that `compile` returned: `dump(std::cout, step)`.
template <class Program> void dump(std::ostream& out, const Program& /*program*/) { dump<Program>(out); }

/// Checks the graph of a program after every pass: operands come before their users, loops are closed, and types,
/// shapes and layouts agree. A graph that fails is a mistake of a pass, or of an operator's rule.
/// Errors: `graph_error`, whose message names the pass and the instruction.
template <class Program> void check_passes() {
  if constexpr (Program::is_sound) detail::for_each_pass<Program>(detail::check_pass);
}
/// The same of a program that `compile` returned: `check_passes(step)`.
template <class Program> void check_passes(const Program& /*program*/) { check_passes<Program>(); }

}  // namespace espalier
