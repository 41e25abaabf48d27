// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/graph/text.hpp>
#include <espalier/tensor/core/program/check_passes.hpp>

#include <ostream>
#include <string>
#include <utility>

namespace espalier {

namespace detail {

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

}  // namespace espalier
