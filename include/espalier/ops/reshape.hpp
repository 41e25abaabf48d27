// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/declare.hpp>

namespace espalier {

namespace detail {

/// Splits and merges of dimensions become factors: walking both shapes from the left, the smaller of the two current
/// dimensions is a factor when it divides the other; what does not divide is one blocked factor.
[[nodiscard]] constexpr factor_rule reshape_factors(op_view v) {
  factor_rule rule;
  const extents& from = v.operand(0).shape;
  const extents& to = v.self().shape;
  if (to.elements() == 0) return rule;  // nothing to split
  int i = 0;
  int j = 0;
  std::int64_t left = 1;
  std::int64_t right = 1;
  while (i < from.rank || j < to.rank) {
    if (left == 1 && i < from.rank) left = from[i];
    if (right == 1 && j < to.rank) right = to[j];
    if (left == 1 && i < from.rank) {
      ++i;
      continue;
    }
    if (right == 1 && j < to.rank) {
      ++j;
      continue;
    }
    if (left == right) {
      const factor_list factor(rule.add(left));
      rule.operand[0][i] = rule.operand[0][i].followed_by(factor);
      rule.result[j] = rule.result[j].followed_by(factor);
      left = right = 1;
      ++i;
      ++j;
    } else if (left > right && left % right == 0) {
      const factor_list factor(rule.add(right));
      rule.operand[0][i] = rule.operand[0][i].followed_by(factor);
      rule.result[j] = rule.result[j].followed_by(factor);
      left /= right;
      right = 1;
      ++j;
    } else if (right > left && right % left == 0) {
      const factor_list factor(rule.add(left));
      rule.operand[0][i] = rule.operand[0][i].followed_by(factor);
      rule.result[j] = rule.result[j].followed_by(factor);
      right /= left;
      left = 1;
      ++i;
    } else {
      // Neither divides the other (6,4 -> 8,3): elements are reordered across dimensions until the products agree.
      const factor_list blocked(rule.add(1, factor_kind::blocked));
      rule.operand[0][i] = rule.operand[0][i].followed_by(blocked);
      rule.result[j] = rule.result[j].followed_by(blocked);
      while (left != right) {
        if (left < right) {
          left *= from[++i];
          rule.operand[0][i] = blocked;
        } else {
          right *= to[++j];
          rule.result[j] = blocked;
        }
      }
      left = right = 1;
      ++i;
      ++j;
    }
  }
  return rule;
}

constexpr void reshape_gradient(gradient_context& c);

constexpr void evaluate_copy(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = e.operand[0][i];
}

}  // namespace detail

namespace ops {
/// The same elements in row-major order under another shape.
inline constexpr op_info reshape{
    .name = "reshape",
    .spread = propagation::elementwise,
    .linear = linearity::first,
    .facts = {.shares_operand = true, .cheap_to_repeat = true, .is_operand = detail::has_type_and_shape_of_operand},
    .factors = detail::reshape_factors,
    .gradient = detail::reshape_gradient,
    .evaluate = detail::evaluate_copy,
    .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int reshape(builder& b, int a, const extents& shape) {
  return b[a].shape == shape ? a : b.append(ops::reshape, b[a].type, shape, a);
}
}  // namespace emit

constexpr void detail::reshape_gradient(gradient_context& c) {
  c.give(0, emit::reshape(c.emit, c.cotangent, c.emit[c.operand(0)].shape));
}

/// The same elements, in row-major order, with these extents: dimensions split or merge.
/// Errors: `reshape_size_mismatch`.
template <int... Extents, Traced A> constexpr auto reshape(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    using type = typename detail::dtype_row<A::type>::template tensor<Extents...>;
    if constexpr (type::shape.elements() != A::shape.elements()) {
      return failed<why::reshape_size_mismatch<typename A::tensor, type>>(where);
    } else {
      a.owner->at(where);
      return detail::symbol_like<A, type>(a, emit::reshape(*a.owner, a.id, type::shape));
    }
  }
}

}  // namespace espalier
