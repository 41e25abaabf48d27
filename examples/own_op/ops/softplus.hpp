// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/activation.hpp>

#include <cmath>

namespace mine {

inline double softplus_scalar(double a) { return std::log1p(std::exp(a)); }
constexpr void softplus_gradient(espalier::gradient_context& c) {
  const espalier::instruction from = c.emit[c.operand(0)];
  const int slope = c.emit.append(espalier::ops::sigmoid, from.type, from.shape, c.operand(0));
  c.give(0, espalier::emit::multiply(c.emit, c.cotangent, slope));
}

inline constexpr espalier::op_info softplus_op =
    espalier::detail::elementwise_op("softplus", espalier::detail::evaluate_unary<softplus_scalar>, softplus_gradient);

/// log(1 + exp(a)). Errors: `operand_is_not_floating`.
template <espalier::Traced A>
constexpr auto softplus(const A& a, espalier::source_line where = espalier::source_line::current()) {
  return espalier::detail::unary<&softplus_op>(a, where);
}

}  // namespace mine
