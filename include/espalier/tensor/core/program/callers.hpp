// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/called_places.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/trace.hpp>
#include <espalier/tensor/core/program/verify.hpp>

namespace espalier {

namespace detail {

/// The callers, from a trace of their own. A program that names none does not pay for them, nor does one whose callers
/// are not asked for.
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

/// The same of an instruction of a program.
template <class Program, int Id>
using place_and_calls =
    decltype(called_place<Program, place_of_instruction<Program::code, Id>, Program::code.code[Id].where.caller>());

}  // namespace detail

}  // namespace espalier
