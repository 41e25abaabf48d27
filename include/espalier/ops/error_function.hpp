// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/activation.hpp>

#include <cmath>

namespace espalier {

namespace detail {

inline double erf_scalar(double a) { return std::erf(a); }
inline double erfc_scalar(double a) { return std::erfc(a); }

/// 2 / sqrt(pi)
inline constexpr double erf_slope_at_zero = 1.1283791670955125739;

/// factor * e^(-a^2)
constexpr int bell_curve(builder& b, int a, double factor) {
  const int exponent = emit::negate(b, emit::multiply(b, a, a));
  return emit::scale(b, b.append(ops::exp, b[a].type, b[a].shape, exponent), factor);
}
constexpr void erf_gradient(gradient_context& c) {
  c.give(0, emit::multiply(c.emit, c.cotangent, bell_curve(c.emit, c.operand(0), erf_slope_at_zero)));
}
constexpr void erfc_gradient(gradient_context& c) {
  c.give(0, emit::multiply(c.emit, c.cotangent, bell_curve(c.emit, c.operand(0), -erf_slope_at_zero)));
}

}  // namespace detail

namespace ops {
/// 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to a; and 1 minus that, without the cancellation.
inline constexpr op_info erf =
    detail::elementwise_op("erf", detail::evaluate_unary<detail::erf_scalar>, detail::erf_gradient);
inline constexpr op_info erfc =
    detail::elementwise_op("erfc", detail::evaluate_unary<detail::erfc_scalar>, detail::erfc_gradient);
}  // namespace ops

/// The error function. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto erf(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::erf>(a, where);
}
/// 1 - erf(a), accurate where that is small. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto erfc(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::erfc>(a, where);
}

}  // namespace espalier
