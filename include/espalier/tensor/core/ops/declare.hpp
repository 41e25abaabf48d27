// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/reasons.hpp>
#include <espalier/tensor/core/graph/symbol.hpp>

namespace espalier::detail {

/// Every dimension of the result is the same dimension of each operand.
[[nodiscard]] constexpr factor_rule same_dimensions(op_view v) {
  factor_rule rule;
  const instruction& self = v.self();
  for (int d = 0; d < self.shape.rank; ++d) {
    const factor_list factor(rule.add(self.shape[d]));
    rule.result[d] = factor;
    for (int k = 0; k < self.operand_count && k < inline_operands; ++k) rule.operand[k][d] = factor;
  }
  return rule;
}

/// A rule for ops without operands: every dimension can be split.
[[nodiscard]] constexpr std::int64_t one_flop_per_element(op_view v) { return v.self().shape.elements(); }
[[nodiscard]] constexpr std::int64_t no_flops(op_view) { return 0; }

/// True if neither type nor shape changes: some ops then do nothing.
[[nodiscard]] constexpr bool has_type_and_shape_of_operand(op_view v) {
  return v.self().type == v.operand(0).type && v.self().shape == v.operand(0).shape;
}

/// Nothing flows back, by definition: the op is constant or piecewise constant in its operands.
constexpr void no_gradient(gradient_context&) {}

/// The table entry of an elementwise op.
[[nodiscard]] constexpr op_info elementwise_op(const char* name, void (*evaluate)(const evaluation&),
                                               void (*gradient)(gradient_context&), linearity linear = linearity::none,
                                               op_facts facts = {}) {
  return {.name = name,
          .spread = propagation::elementwise,
          .linear = linear,
          .fuse = fusion::elementwise,
          .facts = facts,
          .factors = same_dimensions,
          .gradient = gradient,
          .evaluate = evaluate,
          .flops = one_flop_per_element};
}

}  // namespace espalier::detail
