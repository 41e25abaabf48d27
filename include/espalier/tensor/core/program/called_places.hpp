// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/graph/graph.hpp>

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

/// The callers that the lines of a program name, `callers_of<Program>::value` (program/callers.hpp).
template <class Program> struct callers_of;

/// The line of an instruction in the user's source, with the calls of the helper functions that it is in
/// (`called_from`).
template <class Program, int Caller> struct line_of_caller {
  static constexpr source_line value = callers_of<Program>::value.of[Caller - 1];
};
template <class Program, class Place, int Caller, class... Calls> [[nodiscard]] constexpr auto called_place() {
  if constexpr (Caller > 0) {
    using line = line_of_caller<Program, Caller>;
    if constexpr (is_scope(line::value)) {
      return called_place<Program, Place, line::value.caller, Calls...>();
    } else {
      return called_place<Program, Place, line::value.caller, Calls..., spelled<line>>();
    }
  } else if constexpr (sizeof...(Calls) > 0) {
    return why::called_from<Place, Calls...>{};
  } else {
    return Place{};
  }
}

}  // namespace detail

}  // namespace espalier
