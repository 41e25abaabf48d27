// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/real_functions.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/convert.hpp>

namespace espalier {

namespace detail {

/// sqrt(2/pi) and the cubic coefficient of GELU's tanh form (Hendrycks and Gimpel, arXiv 1606.08415).
inline constexpr double gelu_scale = 0.79788456080286535588;
inline constexpr double gelu_cubic = 0.044715;

inline double exp_scalar(double a) { return real::exp(a); }
inline double log_scalar(double a) { return real::log(a); }
inline double sqrt_scalar(double a) { return real::sqrt(a); }
inline double rsqrt_scalar(double a) { return 1 / real::sqrt(a); }
inline double tanh_scalar(double a) { return real::tanh(a); }
inline double sigmoid_scalar(double a) { return 1 / (1 + real::exp(-a)); }
constexpr double relu_scalar(double a) { return a < 0 ? 0 : a; }  // a NaN stays one
inline double silu_scalar(double a) { return a / (1 + real::exp(-a)); }
inline double silu_slope_scalar(double a) {
  const double s = sigmoid_scalar(a);
  return s * (1 + a * (1 - s));
}
inline double gelu_scalar(double a) { return 0.5 * a * (1 + real::tanh(gelu_scale * (a + gelu_cubic * a * a * a))); }
inline double gelu_slope_scalar(double a) {
  const double t = real::tanh(gelu_scale * (a + gelu_cubic * a * a * a));
  return 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * gelu_scale * (1 + 3 * gelu_cubic * a * a);
}

/// The cotangent times a slope that was found in the type that elements are computed in, rounded once.
constexpr void give_times(gradient_context& c, int slope) {
  const int product = emit::multiply(c.emit, emit::widen(c.emit, c.cotangent), slope);
  c.give(0, emit::convert(c.emit, product, c.self().type));
}
constexpr void exp_gradient(gradient_context& c) { c.give(0, emit::multiply(c.emit, c.cotangent, c.id)); }
constexpr void log_gradient(gradient_context& c) { c.give(0, emit::divide(c.emit, c.cotangent, c.operand(0))); }
constexpr void sqrt_gradient(gradient_context& c) {
  const int half = emit::scale(c.emit, emit::widen(c.emit, c.cotangent), 0.5);
  c.give(0, emit::convert(c.emit, emit::divide(c.emit, half, emit::widen(c.emit, c.id)), c.self().type));
}
constexpr void rsqrt_gradient(gradient_context& c) {
  const int result = emit::widen(c.emit, c.id);
  const int cubed = emit::multiply(c.emit, result, emit::multiply(c.emit, result, result));
  give_times(c, emit::scale(c.emit, cubed, -0.5));
}
constexpr void tanh_gradient(gradient_context& c) {
  const int result = emit::widen(c.emit, c.id);
  const int squared = emit::multiply(c.emit, result, result);
  give_times(c, emit::subtract(c.emit, emit::constant_like(c.emit, squared, 1), squared));
}
constexpr void sigmoid_gradient(gradient_context& c) {
  const int result = emit::widen(c.emit, c.id);
  const int rest = emit::subtract(c.emit, emit::constant_like(c.emit, result, 1), result);
  give_times(c, emit::multiply(c.emit, result, rest));
}
constexpr void relu_gradient(gradient_context& c) {
  const int zero = emit::constant_like(c.emit, c.id, 0);
  c.give(0, emit::drop_where(c.emit, emit::compare(c.emit, ops::less_equal, c.id, zero), c.cotangent));
}
constexpr void silu_gradient(gradient_context& c);
constexpr void gelu_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
inline constexpr op_info exp =
    detail::elementwise_op("exp", detail::evaluate_unary<detail::exp_scalar>, detail::exp_gradient, linearity::none,
                           {.masks = masking::exponential});
inline constexpr op_info log =
    detail::elementwise_op("log", detail::evaluate_unary<detail::log_scalar>, detail::log_gradient);
inline constexpr op_info sqrt =
    detail::elementwise_op("sqrt", detail::evaluate_unary<detail::sqrt_scalar>, detail::sqrt_gradient);
inline constexpr op_info rsqrt =
    detail::elementwise_op("rsqrt", detail::evaluate_unary<detail::rsqrt_scalar>, detail::rsqrt_gradient);
inline constexpr op_info tanh = detail::elementwise_op("tanh", detail::evaluate_unary<detail::tanh_scalar>,
                                                       detail::tanh_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info sigmoid =
    detail::elementwise_op("sigmoid", detail::evaluate_unary<detail::sigmoid_scalar>, detail::sigmoid_gradient,
                           linearity::none, {.keeps_finite = true});
inline constexpr op_info relu = detail::elementwise_op("relu", detail::evaluate_unary<detail::relu_scalar>,
                                                       detail::relu_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info silu = detail::elementwise_op("silu", detail::evaluate_unary<detail::silu_scalar>,
                                                       detail::silu_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info gelu = detail::elementwise_op("gelu", detail::evaluate_unary<detail::gelu_scalar>,
                                                       detail::gelu_gradient, linearity::none, {.keeps_finite = true});
/// Derivatives of silu and gelu as functions of the argument: one pass instead of a chain of ten.
inline constexpr op_info silu_slope =
    detail::elementwise_op("silu_slope", detail::evaluate_unary<detail::silu_slope_scalar>, nullptr);
inline constexpr op_info gelu_slope =
    detail::elementwise_op("gelu_slope", detail::evaluate_unary<detail::gelu_slope_scalar>, nullptr);
}  // namespace ops

constexpr void detail::silu_gradient(gradient_context& c) {
  const int from = emit::widen(c.emit, c.operand(0));
  give_times(c, c.emit.append(ops::silu_slope, c.emit[from].type, c.emit[from].shape, from));
}
constexpr void detail::gelu_gradient(gradient_context& c) {
  const int from = emit::widen(c.emit, c.operand(0));
  give_times(c, c.emit.append(ops::gelu_slope, c.emit[from].type, c.emit[from].shape, from));
}

/// Elementwise functions of a floating-point tensor. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto exp(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::exp>(a, where);
}
template <Traced A> constexpr auto log(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::log>(a, where);
}
template <Traced A> constexpr auto sqrt(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::sqrt>(a, where);
}
template <Traced A> constexpr auto rsqrt(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::rsqrt>(a, where);
}
template <Traced A> constexpr auto tanh(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::tanh>(a, where);
}
template <Traced A> constexpr auto sigmoid(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::sigmoid>(a, where);
}
template <Traced A> constexpr auto relu(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::relu>(a, where);
}
template <Traced A> constexpr auto silu(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::silu>(a, where);
}
/// x times the distribution function of the normal distribution, in the tanh form, as GPT-2 uses it.
/// Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto gelu(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::gelu>(a, where);
}

}  // namespace espalier
