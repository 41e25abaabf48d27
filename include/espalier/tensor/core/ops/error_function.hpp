// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/real_functions.hpp>
#include <espalier/tensor/core/ops/activation.hpp>

#include <limits>

namespace espalier {

namespace detail {

inline double erf_scalar(double a) { return real::erf(a); }
inline double erfc_scalar(double a) { return real::erfc(a); }

/// 2 / sqrt(pi)
inline constexpr double erf_slope_at_zero = 1.1283791670955125739;

/// The solution of erf(y) = a: Halley's method on erf, or where that is flat on erfc, from a start that is right to
/// three digits (S. Winitzki, "A handy approximation for the error function and its inverse", 2008).
inline double erf_inv_scalar(double a) {
  const double size = real::abs(a);
  if (!(size < 1))
    return size == 1 ? a * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  const double log = real::log((1 - size) * (1 + size));
  const double middle = 4.330746750799873 + log / 2;  // 2 / (pi 0.147)
  double y = real::sqrt(larger_of(real::sqrt(middle * middle - log / 0.147) - middle, 0.0));
  for (int step = 0; step < 4; ++step) {
    const double excess = size < 0.5 ? real::erf(y) - size : (1 - size) - real::erfc(y);
    const double by_newton = excess / (erf_slope_at_zero * real::exp(-y * y));
    y -= by_newton / (1 + y * by_newton);
  }
  return real::copysign(y, a);
}

/// factor * e^(-a^2), in the type that a is computed in.
constexpr int bell_curve(builder& b, int given, double factor) {
  const int a = emit::widen(b, given);
  const int exponent = emit::negate(b, emit::multiply(b, a, a));
  return emit::scale(b, b.append(ops::exp, b[a].type, b[a].shape, exponent), factor);
}
constexpr void erf_gradient(gradient_context& c) { give_times(c, bell_curve(c.emit, c.operand(0), erf_slope_at_zero)); }
constexpr void erfc_gradient(gradient_context& c) {
  give_times(c, bell_curve(c.emit, c.operand(0), -erf_slope_at_zero));
}
/// sqrt(pi) / 2 e^(y^2) of the result y.
constexpr void erf_inv_gradient(gradient_context& c) {
  builder& b = c.emit;
  const int y = emit::widen(b, c.id);
  const int square = emit::multiply(b, y, y);
  give_times(c, emit::scale(b, b.append(ops::exp, b[y].type, b[y].shape, square), 1 / erf_slope_at_zero));
}

}  // namespace detail

namespace ops {
/// 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to a; and 1 minus that, without the cancellation.
inline constexpr op_info erf =
    detail::elementwise_op("erf", detail::evaluate_unary<detail::erf_scalar>, detail::erf_gradient);
inline constexpr op_info erfc =
    detail::elementwise_op("erfc", detail::evaluate_unary<detail::erfc_scalar>, detail::erfc_gradient);
/// The inverse of erf: of 1 and -1 infinities, beyond NaN.
inline constexpr op_info erf_inv =
    detail::elementwise_op("erf_inv", detail::evaluate_unary<detail::erf_inv_scalar>, detail::erf_inv_gradient);
}  // namespace ops

/// The error function. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto erf(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::erf>(a, where);
}
/// 1 - erf(a), accurate where that is small. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto erfc(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::erfc>(a, where);
}
/// The number whose `erf` is a, for a in [-1, 1]; sqrt(2) erf_inv(2 p - 1) is the quantile p of the normal
/// distribution. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto erf_inv(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::erf_inv>(a, where);
}

}  // namespace espalier
