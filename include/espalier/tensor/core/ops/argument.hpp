// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/shard.hpp>

namespace espalier {

namespace detail {
constexpr void argument_gradient(gradient_context&) {}
}  // namespace detail

/// The ops at the border of a program.
namespace ops {
/// One of the program's arguments, laid out as `annotation` says if there is one.
inline constexpr op_info argument{.name = "argument",
                                  .spread = propagation::elementwise,
                                  .facts = {.part = structure::argument, .unique = true, .attributes = "number"},
                                  .factors = detail::same_dimensions,
                                  .gradient = detail::argument_gradient,
                                  .flops = detail::no_flops};
/// One of the program's results. With a second operand it takes the place of that argument: it is laid out like it, and
/// stored in its memory.
inline constexpr op_info result{
    .name = "result",
    .spread = propagation::elementwise,
    .linear = linearity::first,
    .facts = {.part = structure::result, .unique = true, .attributes = "number sums_travel_as:optional_type"},
    .factors = detail::same_dimensions,
    .evaluate = detail::evaluate_identity,
    .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int argument(builder& b, dtype type, const extents& shape, int index) {
  return b.append(with_attributes(builder::make(ops::argument, type, shape), border_attributes{index}));
}
constexpr int result(builder& b, int value, int index, int replaces = -1) {
  return b.append(with_attributes(builder::make(ops::result, b[value].type, b[value].shape, value, replaces),
                                  border_attributes{index, b.sums_travel_as}));
}
}  // namespace emit

/// Chooses what sums of floats travel in between devices, for the whole program that `like` is computed in: terms wider
/// than `Type` are rounded to it before they are sent, added up in its `accumulate` type, and rounded once more.
/// `send_sums_as<dtype::bf16>(x)` halves what all-reduces and reduce-scatters of f32 and bf16 gradients send. Nothing
/// else is changed by it: sums that are a single number, as a loss or the norm of a gradient, travel as they are.
template <dtype Type, Traced A> constexpr void send_sums_as(const A& like) {
  static_assert(is_floating(Type), "send_sums_as: the type that sums travel in is a float, such as dtype::bf16.");
  if constexpr (!Failed<A>) like.owner->sums_travel_as = static_cast<int>(Type) + 1;
}

}  // namespace espalier
