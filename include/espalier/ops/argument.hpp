// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/shard.hpp>

namespace espalier {

namespace detail {
constexpr void argument_gradient(gradient_context&) {}
}  // namespace detail

/// What crosses the border of a program.
namespace ops {
/// One of the program's arguments, laid out as `annotation` says if there is one.
inline constexpr op_info argument{.name = "argument",
                                  .spread = propagation::elementwise,
                                  .facts = {.part = structure::argument, .unique = true},
                                  .factors = detail::same_dimensions,
                                  .gradient = detail::argument_gradient,
                                  .flops = detail::no_flops};
/// One of the program's results. With a second operand it takes the place of that argument: it is laid out like it, and
/// stored in its memory.
inline constexpr op_info result{.name = "result",
                                .spread = propagation::elementwise,
                                .linear = linearity::first,
                                .facts = {.part = structure::result, .unique = true},
                                .factors = detail::same_dimensions,
                                .evaluate = detail::evaluate_identity,
                                .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int argument(builder& b, dtype type, const extents& shape, int index) {
  instruction made = builder::make(ops::argument, type, shape);
  set_attributes(made, border_attributes{index});
  return b.append(made);
}
constexpr int result(builder& b, int value, int index, int replaces = -1) {
  instruction made = builder::make(ops::result, b[value].type, b[value].shape, value, replaces);
  set_attributes(made, border_attributes{index});
  return b.append(made);
}
}  // namespace emit

}  // namespace espalier
