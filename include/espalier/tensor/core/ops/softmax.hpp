// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/activation.hpp>
#include <espalier/tensor/core/ops/reduce.hpp>

namespace espalier {

/// The dimensions along which `softmax` and `standardise` relate elements to each other.
struct normalised_attributes {
  /// The dimensions, as a bit set.
  std::int64_t dims = 0;
  /// True if the mean was subtracted before; only for `standardise`.
  bool centred = false;
};

namespace detail {
/// Nothing flows back, and nothing is computed: a pass removes it.
constexpr void evaluate_identity(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = e.operand[0][i];
}
constexpr void evaluate_normalised(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = e.operand[1][i] * e.operand[2][i];
}
constexpr void softmax_gradient(gradient_context& c);
constexpr void standardise_gradient(gradient_context& c);
}  // namespace detail

namespace ops {
/// The operand itself, as a constant to gradients.
inline constexpr op_info stop_gradient = detail::elementwise_op(
    "stop_gradient", detail::evaluate_identity, detail::no_gradient, linearity::first,
    {.is_operand = detail::has_type_and_shape_of_operand, .cheap_to_repeat = true, .stops_gradient = true});
/// Operand 1 times operand 2, in the type that x is computed in, which make a function of operand 0 along some
/// dimensions: its softmax, or itself divided by the root of its mean square (after its mean was taken away, if it is
/// centred). All that flows back goes to operand 0, and is found from the result: that is all a training step needs to
/// keep.
inline constexpr op_info softmax =
    detail::elementwise_op("softmax", detail::evaluate_normalised, detail::softmax_gradient, linearity::none,
                           {.vanishes_with = 0b10, .multiplies = 0b110, .attributes = "dims:set centred:flag"});
inline constexpr op_info standardise =
    detail::elementwise_op("standardise", detail::evaluate_normalised, detail::standardise_gradient, linearity::none,
                           {.multiplies = 0b110, .attributes = "dims:set centred:flag"});
}  // namespace ops

/// The tensor itself, through which no gradient flows.
template <Traced A> constexpr auto stop_gradient(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, typename A::tensor>(a, a.owner->append(ops::stop_gradient, A::type, A::shape, a.id));
  }
}

namespace emit {

/// x minus its maximum along `dims`, which a gradient must not see: the result does not depend on it.
constexpr int minus_maximum(builder& b, int x, std::int64_t dims) {
  const int top = reduce(b, reduction::max, x, dims);
  const int fixed = b.append(ops::stop_gradient, b[top].type, b[top].shape, top);
  return subtract(b, x, broadcast_along(b, fixed, b[x].shape, dims));
}

/// `value` * `factor` as what `op` makes of x.
constexpr int normalised(builder& b, const op_info& op, int x, int value, int factor, std::int64_t dims,
                         bool centred = false) {
  return b.append(with_attributes(builder::make(op, b[x].type, b[x].shape, x, value, factor),
                                  normalised_attributes{dims, centred}));
}

/// exp(x - max) / sum exp(x - max): no overflow for any finite x.
constexpr int softmax(builder& b, int x, std::int64_t dims) {
  const int shifted = minus_maximum(b, widen(b, x), dims);
  const int raised = b.append(ops::exp, b[shifted].type, b[x].shape, shifted);
  const int total = reduce_sum(b, raised, dims);
  // Dividing one by the few totals, not the many elements, keeps the division out of the long loop.
  const int inverse = divide(b, constant_like(b, total, 1), total);
  return normalised(b, ops::softmax, x, raised, broadcast_along(b, inverse, b[x].shape, dims), dims);
}

constexpr int log_softmax(builder& b, int x, std::int64_t dims) {
  const int shifted = minus_maximum(b, widen(b, x), dims);
  const int raised = b.append(ops::exp, b[shifted].type, b[x].shape, shifted);
  const int total = reduce_sum(b, raised, dims);
  const int logarithm = b.append(ops::log, b[total].type, b[total].shape, total);
  return convert(b, subtract(b, shifted, broadcast_along(b, logarithm, b[x].shape, dims)), b[x].type);
}

/// The mean over the dimensions `dims`, which disappear. @pre x is of a type that is computed in (`widen`)
constexpr int mean_over(builder& b, int x, std::int64_t dims) {
  const int total = reduce_sum(b, x, dims);
  const double count = static_cast<double>(b[x].shape.elements()) / static_cast<double>(b[total].shape.elements());
  return scale(b, total, 1 / count);
}

}  // namespace emit

namespace detail {

/// Gives p (dp - sum(p dp)), where p is the result.
constexpr void softmax_gradient(gradient_context& c) {
  builder& b = c.emit;
  const std::int64_t dims = attributes_of<normalised_attributes>(c).dims;
  const int p = emit::widen(b, c.id);
  const int dp = emit::widen(b, c.cotangent);
  const int total = emit::reduce_sum(b, emit::multiply(b, dp, p), dims);
  const int rest = emit::subtract(b, dp, emit::broadcast_along(b, total, b[c.id].shape, dims));
  c.give(0, emit::convert(b, emit::multiply(b, p, rest), b[c.id].type));
}

/// Gives f (dy - mean(dy) - y mean(y dy)), where y is the result and f the factor; without mean(dy) if no mean was
/// subtracted.
constexpr void standardise_gradient(gradient_context& c) {
  builder& b = c.emit;
  const auto [dims, centred] = attributes_of<normalised_attributes>(c);
  const extents shape = b[c.id].shape;
  const int along = emit::mean_over(b, emit::multiply(b, c.cotangent, c.id), dims);
  int rest = emit::subtract(b, c.cotangent, emit::multiply(b, c.id, emit::broadcast_along(b, along, shape, dims)));
  if (centred) {
    const int mean = emit::mean_over(b, c.cotangent, dims);
    rest = emit::subtract(b, rest, emit::broadcast_along(b, mean, shape, dims));
  }
  c.give(0, emit::multiply(b, rest, c.operand(2)));
}

template <int (*Emit)(builder&, int, std::int64_t), int Dim, Traced A>
constexpr auto normalised(const A& a, source_line where, const char* op) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (dimension(Dim, A::rank) < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, op);
  } else if constexpr (!is_floating(A::type)) {
    return failed<why::operand_is_not_floating<typename A::tensor>>(where, op);
  } else {
    const pinned_line line(*a.owner, where);
    return symbol_like<A, typename A::tensor>(a, Emit(*a.owner, a.id, std::int64_t{1} << dimension(Dim, A::rank)));
  }
}
}  // namespace detail

/// exp(x) / sum(exp(x)) along dimension Dim, which may be sharded; no finite x overflows. Of {0, log 3}: {0.25, 0.75}.
/// bf16 and f16 are computed in f32 and rounded once: within a unit in the last place, the gradient within one of its
/// largest element. f32 and f64: within 8 roundings of the largest.
/// Errors: `no_such_dimension`, `operand_is_not_floating`.
template <int Dim = -1, Traced A> constexpr auto softmax(const A& a, source_line where = source_line::current()) {
  return detail::normalised<emit::softmax, Dim>(a, where, "softmax");
}
/// The logarithm of `softmax`, which no small probability makes infinite. bf16 and f16 are computed in f32 and rounded
/// once: within a unit in the last place, and so is the gradient. f32 and f64: within 8 roundings of the largest
/// element. Errors as for `softmax`.
template <int Dim = -1, Traced A> constexpr auto log_softmax(const A& a, source_line where = source_line::current()) {
  return detail::normalised<emit::log_softmax, Dim>(a, where, "log_softmax");
}

}  // namespace espalier
