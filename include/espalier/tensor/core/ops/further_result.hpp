// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/graph/builder.hpp>

// An op with several results, as the largest elements of a tensor and where they are, is one instruction, whose own
// value is result 0, and one `further_result` for each of the others, directly after it. They are made together: by one
// kernel, which is told where all of them go. All passes keep them together.

namespace espalier {

/// Attributes of a `further_result`.
struct further_result_attributes {
  /// The number among the results of its op: 1 or more.
  int number = 1;
};

namespace detail {

/// Its dimensions are related to those of result 0 as its op says.
[[nodiscard]] constexpr factor_rule further_result_factors(op_view v) {
  op_view made_by = v;
  made_by.id = v.self().operand[0];
  const factor_rule all = made_by.self().op->factors(made_by);
  const factor_list* const dims = all.dims_of_result(attributes_of<further_result_attributes>(v).number);
  factor_rule rule;
  rule.count = all.count;
  for (int f = 0; f < all.count; ++f) {
    rule.size[f] = all.size[f];
    rule.kind[f] = all.kind[f] == factor_kind::reduce ? factor_kind::blocked : all.kind[f];
  }
  for (int d = 0; d < v.operand(0).shape.rank; ++d) rule.operand[0][d] = all.result[d];
  for (int d = 0; d < v.self().shape.rank; ++d) rule.result[d] = dims[d];
  return rule;
}
[[nodiscard]] constexpr std::int64_t no_work(op_view) { return 0; }

}  // namespace detail

namespace ops {
inline constexpr op_info further_result{.name = "further_result",
                                        .spread = propagation::elementwise,
                                        .facts = {.is_further_result = true, .attributes = "number"},
                                        .factors = detail::further_result_factors,
                                        .flops = detail::no_work};
}  // namespace ops

namespace emit {
/// Another result of the op that was appended last.
/// @pre its results are appended in the order of their numbers, and nothing between them
constexpr int further_result(builder& b, int op, int number, dtype type, const extents& shape) {
  return b.append(
      with_attributes(builder::make(ops::further_result, type, shape, op), further_result_attributes{number}));
}
}  // namespace emit

}  // namespace espalier
