// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/symbol.hpp>

#include <type_traits>

// Ops of any number of tensors. After a parameter pack there is no room for a default argument that would tell the
// caller's line. Up to four operands are therefore parameters of their own, of which those that a call leaves out are
// `no_operand`; of more, the first is copied, and copying an operand records the line (`symbol`).

namespace espalier::detail {

/// The type of an operand that a call leaves out: `concat<0>(a, b)` is `concat<0>(a, b, no_operand{}, no_operand{})`.
struct no_operand {};

template <class T>
concept OperandOrNone = Traced<T> || std::is_same_v<T, no_operand>;

/// `Op::of` of the operands before the first `no_operand`.
template <class Op, class A, class B, class C, class D>
constexpr auto of_present(source_line where, const A& a, const B& b, const C& c, const D& d) {
  if constexpr (std::is_same_v<B, no_operand>) {
    return Op::of(where, a);
  } else if constexpr (std::is_same_v<C, no_operand>) {
    return Op::of(where, a, b);
  } else if constexpr (std::is_same_v<D, no_operand>) {
    return Op::of(where, a, b, c);
  } else {
    return Op::of(where, a, b, c, d);
  }
}

/// `Op::of` of five operands or more, on the line on which the first was copied; if it is the result of a call, on the
/// line of that call.
template <class Op, class First, class... Rest> constexpr auto of_many(const First& first, const Rest&... rest) {
  if constexpr (Failed<First>) {
    return first;
  } else {
    return Op::of(first.seen, first, rest...);
  }
}

}  // namespace espalier::detail
