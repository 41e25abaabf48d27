// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/trace.hpp>
#include <espalier/tensor/core/program/verify.hpp>

namespace espalier {

namespace why {
/// The place is in a helper function, whose calls follow from the inside out: `called_from<at<line<9>, ...>,
/// at<line<31>, ...>>`.
template <class Place, class... Calls> struct called_from { static constexpr bool ok = false; };
}  // namespace why

namespace detail {

/// Returns the number of a trace's callers that the lines of a program may name.
[[nodiscard]] constexpr int count_callers(graph_view code, graph_view traced) {
  int count = 0;
  for (int id = 0; id < code.size; ++id) count = code[id].where.caller > count ? code[id].where.caller : count;
  for (int id = 0; id < traced.size; ++id) count = traced[id].where.caller > count ? traced[id].where.caller : count;
  return count;
}
template <int Count> struct caller_table { source_line of[Count > 0 ? Count : 1]{}; };

/// The callers, from a trace of their own. A program that names none does not pay for them, nor does one whose callers
/// are not asked for.
template <class Program> struct callers_of;
template <class Mesh, class Function, class... Arguments> struct callers_of<program<Mesh, Function, Arguments...>> {
  using of = program<Mesh, Function, Arguments...>;
  static constexpr int count = count_callers(of::code, of::traced);
  [[nodiscard]] static constexpr caller_table<count> make() {
    caller_table<count> table;
    if constexpr (count > 0) {
      const traced made = trace<Mesh, Function, Arguments...>();
      for (int n = 0; n < count; ++n) table.of[n] = made.callers[n];
    }
    return table;
  }
  static constexpr caller_table<count> value = make();
};

/// The line of an instruction in the user's source, with the calls of the helper functions that it is in
/// (`called_from`).
template <class Program, int Caller> struct line_of_caller {
  static constexpr source_line value = callers_of<Program>::value.of[Caller - 1];
};
template <class Program, class Place, int Caller, class... Calls> [[nodiscard]] constexpr auto called_place() {
  if constexpr (Caller > 0) {
    using line = line_of_caller<Program, Caller>;
    return called_place<Program, Place, line::value.caller, Calls..., spelled<line>>();
  } else if constexpr (sizeof...(Calls) > 0) {
    return why::called_from<Place, Calls...>{};
  } else {
    return Place{};
  }
}
template <class Program, int Id>
using place_and_calls =
    decltype(called_place<Program, place_of_instruction<Program::code, Id>, Program::code.code[Id].where.caller>());

}  // namespace detail

}  // namespace espalier
