// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/real_functions.hpp>
#include <espalier/tensor/core/ops/arithmetic.hpp>

namespace espalier {

namespace detail {

inline double floor_scalar(double a) { return real::floor(a); }
inline double ceil_scalar(double a) { return real::ceil(a); }
inline double trunc_scalar(double a) { return real::trunc(a); }
/// std::nearbyint follows the rounding mode, which a program may have changed.
inline double round_scalar(double a) {
  const double below = real::floor(a);
  const double rest = a - below;
  const bool up = rest > 0.5 || (rest == 0.5 && real::fmod(below, 2) != 0);
  return real::copysign(up ? below + 1 : below, a);
}
inline double remainder_scalars(double a, double b) { return real::fmod(a, b); }

inline void evaluate_remainder(const evaluation& e) {
  if (is_floating(e.self->type)) return evaluate_binary<remainder_scalars>(e);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const double a = e.operand[0][i];
    const double b = e.operand[1][i];
    e.result[i] = b == 0 ? a : real::fmod(a, b);
  }
}
constexpr void remainder_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
/// The nearest whole number below, above, towards zero, and the nearest of all: of two the even one.
inline constexpr op_info floor =
    detail::elementwise_op("floor", detail::evaluate_unary<detail::floor_scalar>, detail::no_gradient);
inline constexpr op_info ceil =
    detail::elementwise_op("ceil", detail::evaluate_unary<detail::ceil_scalar>, detail::no_gradient);
inline constexpr op_info trunc =
    detail::elementwise_op("trunc", detail::evaluate_unary<detail::trunc_scalar>, detail::no_gradient);
inline constexpr op_info round =
    detail::elementwise_op("round", detail::evaluate_unary<detail::round_scalar>, detail::no_gradient);
/// The remainder of dividing operand 0 by operand 1, rounded towards zero.
inline constexpr op_info remainder =
    detail::elementwise_op("remainder", detail::evaluate_remainder, detail::remainder_gradient);
}  // namespace ops

/// 1 and -trunc(a / b).
constexpr void detail::remainder_gradient(gradient_context& c) {
  c.give(0, c.cotangent);
  const instruction self = c.self();
  const int ratio = emit::divide(c.emit, c.operand(0), c.operand(1));
  const int count = c.emit.append(ops::trunc, self.type, self.shape, ratio);
  c.give(1, emit::negate(c.emit, emit::multiply(c.emit, c.cotangent, count)));
}

/// Whole numbers near those of a floating-point tensor, exactly; a zero keeps the sign of its argument. Their gradient
/// is 0. `round` takes the even one of two that are equally near. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto floor(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::floor>(a, where);
}
template <Traced A> constexpr auto ceil(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::ceil>(a, where);
}
template <Traced A> constexpr auto trunc(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::trunc>(a, where);
}
template <Traced A> constexpr auto round(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::round>(a, where);
}
/// a - trunc(a / b) b, exactly, with the sign of a, as C's fmod and %. By 0 it is a NaN of floats, and of integers a.
/// Either may be a number; they broadcast. Errors: `shape_mismatch`, `dtype_mismatch`, `operand_is_boolean`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto remainder(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary_of<&ops::remainder>(a, b, where);
}

namespace detail {
template <class A, class B>
constexpr auto operate(operator_name<'%'> /*modulo*/, const A& a, const B& b, source_line where) {
  return remainder(a, b, where);
}
}  // namespace detail
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator%(const A& a, const B& b) { return detail::first_failure(a, b); }

}  // namespace espalier
