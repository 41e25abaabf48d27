// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/real_functions.hpp>
#include <espalier/tensor/core/ops/activation.hpp>

namespace espalier {

namespace detail {

inline double sin_scalar(double a) { return real::sin(a); }
inline double cos_scalar(double a) { return real::cos(a); }
inline double tan_scalar(double a) { return real::tan(a); }
inline double atan2_scalars(double y, double x) { return real::atan2(y, x); }

constexpr void sin_gradient(gradient_context& c);
constexpr void cos_gradient(gradient_context& c);
constexpr void tan_gradient(gradient_context& c) {
  const int result = emit::widen(c.emit, c.id);
  const int square = emit::multiply(c.emit, result, result);
  give_times(c, emit::add(c.emit, square, emit::constant_like(c.emit, square, 1)));
}
/// x / (x^2 + y^2) and -y / (x^2 + y^2).
constexpr void atan2_gradient(gradient_context& c) {
  const int y = emit::widen(c.emit, c.operand(0));
  const int x = emit::widen(c.emit, c.operand(1));
  const dtype type = c.self().type;
  const int square = emit::add(c.emit, emit::multiply(c.emit, x, x), emit::multiply(c.emit, y, y));
  const int over = emit::divide(c.emit, emit::widen(c.emit, c.cotangent), square);
  c.give(0, emit::convert(c.emit, emit::multiply(c.emit, over, x), type));
  c.give(1, emit::convert(c.emit, emit::negate(c.emit, emit::multiply(c.emit, over, y)), type));
}

}  // namespace detail

namespace ops {
inline constexpr op_info sin = detail::elementwise_op("sin", detail::evaluate_unary<detail::sin_scalar>,
                                                      detail::sin_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info cos = detail::elementwise_op("cos", detail::evaluate_unary<detail::cos_scalar>,
                                                      detail::cos_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info tan =
    detail::elementwise_op("tan", detail::evaluate_unary<detail::tan_scalar>, detail::tan_gradient);
/// The angle of the point (operand 1, operand 0).
inline constexpr op_info atan2 =
    detail::elementwise_op("atan2", detail::evaluate_binary<detail::atan2_scalars>, detail::atan2_gradient);
}  // namespace ops

constexpr void detail::sin_gradient(gradient_context& c) {
  const int from = emit::widen(c.emit, c.operand(0));
  give_times(c, c.emit.append(ops::cos, c.emit[from].type, c.emit[from].shape, from));
}
constexpr void detail::cos_gradient(gradient_context& c) {
  const instruction from = c.emit[c.operand(0)];
  const int slope = c.emit.append(ops::sin, from.type, from.shape, c.operand(0));
  c.give(0, emit::negate(c.emit, emit::multiply(c.emit, c.cotangent, slope)));
}

/// Returns the sine or cosine of angles in radians, however large; of an infinity, a NaN.
/// Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto sin(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::sin>(a, where);
}
template <Traced A> constexpr auto cos(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::cos>(a, where);
}
template <Traced A> constexpr auto tan(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::tan>(a, where);
}
/// The angle of the point (x, y), in [-pi, pi], with C's answers at zeros and infinities. Either may be a number; they
/// broadcast. The gradient at the origin is a NaN.
/// Errors: `operand_is_not_floating`, `shape_mismatch`, `dtype_mismatch`.
template <class Y, detail::OperatorArguments<Y> X>
constexpr auto atan2(const Y& y, const X& x, source_line where = source_line::current()) {
  return detail::binary_of<&ops::atan2, is_floating, why::operand_is_not_floating>(y, x, where);
}

}  // namespace espalier
