// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/extremum.hpp>
#include <espalier/tensor/core/ops/constant.hpp>
#include <espalier/tensor/core/ops/convert.hpp>
#include <espalier/tensor/core/ops/reshape.hpp>

#include <limits>

namespace espalier {

namespace detail {

[[nodiscard]] constexpr bool has_dimension(std::int64_t dims, int dim) { return (dims >> dim & 1) != 0; }

[[nodiscard]] constexpr double identity_of(reduction kind) {
  switch (kind) {
    case reduction::sum: return 0;
    case reduction::prod: return 1;
    case reduction::max: return -std::numeric_limits<double>::infinity();
    case reduction::min: return std::numeric_limits<double>::infinity();
  }
  return 0;
}

[[nodiscard]] constexpr double combine(reduction kind, double a, double b) {
  switch (kind) {
    case reduction::sum: return a + b;
    case reduction::prod: return a * b;
    case reduction::max: return greater_of(a, b);
    case reduction::min: return lesser_of(a, b);
  }
  return a;
}

[[nodiscard]] constexpr factor_rule reduce_factors(op_view v) {
  factor_rule rule;
  const extents& from = v.operand(0).shape;
  const auto [dims, kind] = attributes_of<reduction_attributes>(v);
  rule.combine = kind;
  int kept = 0;
  for (int d = 0; d < from.rank; ++d) {
    const bool gone = has_dimension(dims, d);
    const factor_list factor(rule.add(from[d], gone ? factor_kind::reduce : factor_kind::pass));
    rule.operand[0][d] = factor;
    if (!gone) rule.result[kept++] = factor;
  }
  return rule;
}

constexpr void reduce_sum_gradient(gradient_context& c);

/// Walks an operand in order and the element of the result each of its elements belongs to.
constexpr void evaluate_reduce(const evaluation& e) {
  const auto [dims, kind] = attributes_of<reduction_attributes>(*e.self);
  const extents& from = *e.operand_shape[0];
  std::int64_t result_stride[max_rank]{};
  std::int64_t stride = 1;
  for (int d = from.rank - 1; d >= 0; --d) {
    if (has_dimension(dims, d)) continue;
    result_stride[d] = stride;
    stride *= from[d];
  }
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = identity_of(kind);
  std::int64_t index[max_rank]{};
  std::int64_t target = 0;
  for (std::int64_t i = 0; i < from.elements(); ++i) {
    e.result[target] = combine(kind, e.result[target], e.operand[0][i]);
    for (int d = from.rank - 1; d >= 0; --d) {
      target += result_stride[d];
      if (++index[d] < from[d]) break;
      target -= result_stride[d] * from[d];
      index[d] = 0;
    }
  }
}

[[nodiscard]] constexpr double reduce_identity(op_view v) {
  return identity_of(attributes_of<reduction_attributes>(v).kind);
}
[[nodiscard]] constexpr std::int64_t reduce_flops(op_view v) { return v.operand(0).shape.elements(); }

}  // namespace detail

namespace ops {
/// Adds the elements along some dimensions, which disappear, in the `accumulate` type of the result, which may be
/// another type than the operand's. Broadcast's gradient, as broadcast is its own, which is
/// why the two share a header. Its attributes are those of ops::reduce, with `reduction::sum`.
inline constexpr op_info reduce_sum{.name = "reduce_sum",
                                    .spread = propagation::dimensional,
                                    .linear = linearity::first,
                                    .fuse = fusion::reduction,
                                    .facts = {.adds_up = true, .attributes = "dims:set kind:sum|prod|max|min"},
                                    .factors = detail::reduce_factors,
                                    .gradient = detail::reduce_sum_gradient,
                                    .evaluate = detail::evaluate_reduce,
                                    .flops = detail::reduce_flops,
                                    .identity = detail::reduce_identity};
}  // namespace ops

namespace detail {
[[nodiscard]] constexpr extents reduced_shape(const extents& from, std::int64_t dims, bool keep) {
  extents result;
  for (int d = 0; d < from.rank; ++d) {
    if (!has_dimension(dims, d)) {
      result.append(from[d]);
    } else if (keep) {
      result.append(1);
    }
  }
  return result;
}
}  // namespace detail

namespace emit {
constexpr int reduce_with(builder& b, const op_info& op, reduction kind, int a, std::int64_t dims, dtype type) {
  if (dims == 0 && b[a].type == type) return a;
  return b.append(with_attributes(builder::make(op, type, detail::reduced_shape(b[a].shape, dims, false), a),
                                  reduction_attributes{dims, kind}));
}
constexpr int reduce_with(builder& b, const op_info& op, reduction kind, int a, std::int64_t dims) {
  return reduce_with(b, op, kind, a, dims, b[a].type);
}
constexpr int reduce_sum(builder& b, int a, std::int64_t dims) {
  return reduce_with(b, ops::reduce_sum, reduction::sum, a, dims);
}
/// A sum of another type than its operand.
constexpr int reduce_sum(builder& b, int a, std::int64_t dims, dtype type) {
  return reduce_with(b, ops::reduce_sum, reduction::sum, a, dims, type);
}
}  // namespace emit

/// The dimensions along which a tensor is repeated: those of the result that no dimension of the operand is mapped to,
/// and those where the operand has one element.
struct broadcast_attributes {
  /// The dimension of the result that each dimension of the operand lies along.
  axis_list target;
};

namespace detail {

/// Dimension d of the operand of a broadcast lies along this dimension of the result.
[[nodiscard]] constexpr int broadcast_target(const instruction& i, int d) {
  return attributes_of<broadcast_attributes>(i).target[d];
}

[[nodiscard]] constexpr factor_rule broadcast_factors(op_view v) {
  factor_rule rule;
  const extents& to = v.self().shape;
  for (int d = 0; d < to.rank; ++d) rule.result[d] = factor_list(rule.add(to[d]));
  const extents& from = v.operand(0).shape;
  for (int d = 0; d < from.rank; ++d) {
    const int target = broadcast_target(v.self(), d);
    // A dimension of size 1 that is stretched is whole everywhere: it takes part in no factor.
    if (from[d] == to[target]) rule.operand[0][d] = rule.result[target];
  }
  return rule;
}

constexpr void broadcast_gradient(gradient_context& c);

constexpr void evaluate_broadcast(const evaluation& e) {
  const extents& to = e.self->shape;
  const extents& from = *e.operand_shape[0];
  std::int64_t source_stride[max_rank]{};
  for (int d = 0; d < from.rank; ++d) {
    if (from[d] != 1) source_stride[broadcast_target(*e.self, d)] = stride_of(from, d);
  }
  std::int64_t index[max_rank]{};
  std::int64_t source = 0;
  for (std::int64_t i = 0; i < to.elements(); ++i) {
    e.result[i] = e.operand[0][source];
    for (int d = to.rank - 1; d >= 0; --d) {
      source += source_stride[d];
      if (++index[d] < to[d]) break;
      source -= source_stride[d] * to[d];
      index[d] = 0;
    }
  }
}

}  // namespace detail

namespace ops {
/// Repeats the operand along new dimensions and dimensions of size 1.
inline constexpr op_info broadcast{.name = "broadcast",
                                   .spread = propagation::broadcast,
                                   .linear = linearity::first,
                                   .fuse = fusion::broadcast,
                                   .facts = {.is_operand = detail::has_type_and_shape_of_operand,
                                             .cheap_to_repeat = true,
                                             .attributes = "target:dims"},
                                   .factors = detail::broadcast_factors,
                                   .gradient = detail::broadcast_gradient,
                                   .evaluate = detail::evaluate_broadcast,
                                   .flops = detail::no_flops};
}  // namespace ops

namespace emit {

constexpr int broadcast(builder& b, int a, const extents& shape, axis_list targets) {
  if (b[a].shape == shape) return a;
  return b.append(with_attributes(builder::make(ops::broadcast, b[a].type, shape, a), broadcast_attributes{targets}));
}

/// NumPy's broadcasting: dimensions correspond counted from the right.
constexpr int broadcast_to(builder& b, int a, const extents& shape) {
  axis_list targets;
  const int added = shape.rank - b[a].shape.rank;
  for (int d = 0; d < b[a].shape.rank; ++d) targets = targets.with(d + added);
  return broadcast(b, a, shape, targets);
}

/// Undoes `reduce`: repeats the result along the dimensions in the bit set `dims` of `shape`.
constexpr int broadcast_along(builder& b, int a, const extents& shape, std::int64_t dims) {
  axis_list targets;
  for (int d = 0; d < shape.rank; ++d) {
    if (!detail::has_dimension(dims, d)) targets = targets.with(d);
  }
  return broadcast(b, a, shape, targets);
}

}  // namespace emit

constexpr void detail::broadcast_gradient(gradient_context& c) {
  const instruction self = c.self();
  const extents from = c.emit[c.operand(0)].shape;
  std::int64_t repeated = (std::int64_t{1} << self.shape.rank) - 1;
  for (int d = 0; d < from.rank; ++d) {
    const int target = broadcast_target(self, d);
    if (from[d] == self.shape[target]) repeated &= ~(std::int64_t{1} << target);
  }
  c.give(0, emit::reshape(c.emit, emit::reduce_sum(c.emit, c.cotangent, repeated), from));
}

/// The cotangent has the type of the sum; what flows back has the operand's.
constexpr void detail::reduce_sum_gradient(gradient_context& c) {
  const instruction from = c.emit[c.operand(0)];
  const int term = emit::convert(c.emit, c.cotangent, from.type);
  c.give(0, emit::broadcast_along(c.emit, term, from.shape, attributes_of<reduction_attributes>(c).dims));
}

}  // namespace espalier
