// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/declare.hpp>
#include <espalier/tensor/core/ops/reasons/transpose.hpp>

namespace espalier {

/// A permutation of dimensions.
struct transpose_attributes {
  /// The dimension of the operand that each dimension of the result is.
  axis_list source;
};

namespace detail {

[[nodiscard]] constexpr factor_rule transpose_factors(op_view v) {
  factor_rule rule;
  const axis_list source = attributes_of<transpose_attributes>(v).source;
  for (int d = 0; d < v.self().shape.rank; ++d) {
    rule.result[d] = factor_list(rule.add(v.self().shape[d]));
    rule.operand[0][source[d]] = rule.result[d];
  }
  return rule;
}

constexpr void transpose_gradient(gradient_context& c);

constexpr void evaluate_transpose(const evaluation& e) {
  const extents& to = e.self->shape;
  std::int64_t index[max_rank]{};
  std::int64_t stride[max_rank]{};
  const axis_list source = attributes_of<transpose_attributes>(*e.self).source;
  for (int d = 0; d < to.rank; ++d) stride[d] = stride_of(*e.operand_shape[0], source[d]);
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    e.result[i] = e.operand[0][at];
    for (int d = to.rank - 1; d >= 0; --d) {
      at += stride[d];
      if (++index[d] < to[d]) break;
      at -= stride[d] * to[d];
      index[d] = 0;
    }
  }
}

}  // namespace detail

namespace ops {
/// Permutes dimensions.
inline constexpr op_info transpose{.name = "transpose",
                                   .spread = propagation::elementwise,
                                   .linear = linearity::first,
                                   .facts = {.attributes = "order:dims"},
                                   .factors = detail::transpose_factors,
                                   .gradient = detail::transpose_gradient,
                                   .evaluate = detail::evaluate_transpose,
                                   .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int transpose(builder& b, int a, axis_list order) {
  extents shape;
  bool identity = true;
  for (int d = 0; d < b[a].shape.rank; ++d) {
    shape.append(b[a].shape[order[d]]);
    identity = identity && order[d] == d;
  }
  if (identity) return a;
  return b.append(with_attributes(builder::make(ops::transpose, b[a].type, shape, a), transpose_attributes{order}));
}
}  // namespace emit

constexpr void detail::transpose_gradient(gradient_context& c) {
  const axis_list source = attributes_of<transpose_attributes>(c).source;
  axis_list inverse;
  for (int of_operand = 0; of_operand < source.size(); ++of_operand) {
    for (int d = 0; d < source.size(); ++d) {
      if (source[d] == of_operand) inverse = inverse.with(d);
    }
  }
  c.give(0, emit::transpose(c.emit, c.cotangent, inverse));
}

namespace detail {
template <int... Order> [[nodiscard]] constexpr bool is_permutation_of(int rank) {
  std::uint32_t seen = 0;
  const bool in_range = ((Order >= 0 && Order < rank) && ...);
  ((seen |= 1U << (static_cast<unsigned>(Order) & 31U)), ...);
  return in_range && static_cast<int>(sizeof...(Order)) == rank && seen == (1U << static_cast<unsigned>(rank)) - 1U;
}
}  // namespace detail

/// Dimension d of the result is dimension Order[d] of the operand. Errors: `bad_permutation`.
template <int... Order, Traced A> constexpr auto transpose(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (!detail::is_permutation_of<Order...>(A::rank)) {
    return failed<why::bad_permutation<typename A::tensor, why::dim<Order>...>>(where);
  } else {
    a.owner->at(where);
    axis_list order;
    ((order = order.with(Order)), ...);
    using type = typename detail::dtype_row<A::type>::template tensor<static_cast<int>(A::shape[Order])...>;
    return detail::symbol_like<A, type>(a, emit::transpose(*a.owner, a.id, order));
  }
}

}  // namespace espalier
