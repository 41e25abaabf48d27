// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/shard.hpp>

namespace espalier {

namespace ops {
/// The operand, where it is: but what is computed from this one is not the same as what is computed from the operand,
/// so that it is computed again.
inline constexpr op_info again{.name = "again",
                               .spread = propagation::elementwise,
                               .linear = linearity::first,
                               .facts = {.unique = true, .shares_operand = true},
                               .factors = detail::same_dimensions,
                               .gradient = detail::match_gradient,
                               .evaluate = detail::evaluate_identity,
                               .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int again(builder& b, int value) { return b.append(ops::again, b[value].type, b[value].shape, value); }
}  // namespace emit

}  // namespace espalier
