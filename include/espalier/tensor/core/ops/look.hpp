// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/softmax.hpp>

namespace espalier {

namespace ops {
/// Shows its operand while the program runs. The result is the operand's buffer, and nothing reads it.
inline constexpr op_info print{
    .name = "print",
    .facts = {.bound_to_region = true, .unique = true, .looks = true, .shares_operand = true},
    .factors = detail::same_dimensions,
    .evaluate = detail::evaluate_identity,
    .flops = detail::no_flops,
    .positional = true};
/// Ends the program if an element of its operand is infinite or no number.
inline constexpr op_info check_finite{
    .name = "check_finite",
    .facts = {.bound_to_region = true, .unique = true, .looks = true, .shares_operand = true},
    .factors = detail::same_dimensions,
    .evaluate = detail::evaluate_identity,
    .flops = detail::no_flops,
    .positional = true};
}  // namespace ops

namespace detail {
template <const op_info* Op, class A> constexpr auto look(const A& a, const char* name, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    a.owner->at(where);
    instruction made = builder::make(*Op, A::type, A::shape, a.id);
    made.label = name;
    a.owner->append(made);
    return symbol<typename A::mesh, typename A::tensor>(*a.owner, a.id);
  }
}
}  // namespace detail

/// Prints a tensor to stderr each time the program comes by, and returns it: `h = print(h, "h")`, or `print(h, "h");`
/// alone. Each device writes one piece of text: name, type, layout, line, iteration, which elements it holds, a few of
/// them, and minimum, maximum, mean and how many are not finite among those it holds. Of devices that hold equal copies
/// the first alone writes.
///
/// Nothing else changes: layouts, collectives, bytes and gradients are those of the program without it. Where a sum
/// over devices is carried out for a reader of the tensor, the sum is shown; if none is, as where only its transpose is
/// summed, each device shows its own term and says so.
template <Traced A>
constexpr auto print(const A& a, const char* name = "", source_line where = source_line::current()) {
  return detail::look<&ops::print>(a, name, where);
}

/// Ends the program with `not_finite`, which names line, iteration, device and element, where an element of a tensor is
/// infinite or no number; returns the tensor. `loss = check_finite(loss)`. Nothing else changes, as for `print`; where
/// a sum over devices is never carried out, its terms are checked. Tensors of integers and truth values are finite.
template <Traced A>
constexpr auto check_finite(const A& a, const char* name = "", source_line where = source_line::current()) {
  return detail::look<&ops::check_finite>(a, name, where);
}

}  // namespace espalier
