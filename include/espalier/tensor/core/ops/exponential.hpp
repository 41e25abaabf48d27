// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/real_functions.hpp>
#include <espalier/tensor/core/ops/activation.hpp>

namespace espalier {

namespace detail {

inline double expm1_scalar(double a) { return real::expm1(a); }
inline double log1p_scalar(double a) { return real::log1p(a); }
inline double pow_scalars(double a, double b) { return real::pow(a, b); }

constexpr void expm1_gradient(gradient_context& c) {
  const int result = emit::widen(c.emit, c.id);
  give_times(c, emit::add(c.emit, result, emit::constant_like(c.emit, result, 1)));
}
constexpr void log1p_gradient(gradient_context& c) {
  const int from = emit::widen(c.emit, c.operand(0));
  const int above = emit::add(c.emit, from, emit::constant_like(c.emit, from, 1));
  c.give(0, emit::convert(c.emit, emit::divide(c.emit, emit::widen(c.emit, c.cotangent), above), c.self().type));
}
constexpr void pow_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
/// e^a - 1 and log(1 + a), without the cancellation near 0.
inline constexpr op_info expm1 =
    detail::elementwise_op("expm1", detail::evaluate_unary<detail::expm1_scalar>, detail::expm1_gradient);
inline constexpr op_info log1p =
    detail::elementwise_op("log1p", detail::evaluate_unary<detail::log1p_scalar>, detail::log1p_gradient);
/// Operand 0 to the power of operand 1.
inline constexpr op_info pow =
    detail::elementwise_op("pow", detail::evaluate_binary<detail::pow_scalars>, detail::pow_gradient);
}  // namespace ops

/// b a^(b-1) and a^b log(a). At b = 0 the first is 0, even where a is 0; at a = 0 the second is 0 wherever a^b is: its
/// limit, where the plain products would be NaN.
constexpr void detail::pow_gradient(gradient_context& c) {
  const int base = emit::widen(c.emit, c.operand(0));
  const int exponent = emit::widen(c.emit, c.operand(1));
  const int cotangent = emit::widen(c.emit, c.cotangent);
  const instruction self = c.emit[base];
  const dtype type = c.self().type;
  const int one = emit::constant_like(c.emit, base, 1);
  const int zero = emit::constant_like(c.emit, base, 0);
  const int lower = emit::subtract(c.emit, exponent, one);
  const int power = c.emit.append(ops::pow, self.type, self.shape, base, lower);
  const int flat = emit::compare(c.emit, ops::equal, exponent, zero);
  const int by_base = emit::drop_where(c.emit, flat, emit::multiply(c.emit, exponent, power));
  c.give(0, emit::convert(c.emit, emit::multiply(c.emit, cotangent, by_base), type));
  const int nothing = emit::compare(c.emit, ops::equal, base, zero);
  const int positive = emit::select(c.emit, nothing, one, base);
  const int log = c.emit.append(ops::log, self.type, self.shape, positive);
  const int by_exponent = emit::multiply(c.emit, emit::widen(c.emit, c.id), log);
  c.give(1, emit::convert(c.emit, emit::multiply(c.emit, cotangent, by_exponent), type));
}

/// e^a - 1. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto expm1(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::expm1>(a, where);
}
/// log(1 + a). Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto log1p(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::log1p>(a, where);
}
/// a to the power of b, with C's answers at zeros, infinities and NaN: a negative number has powers with whole
/// exponents only, and x^0 and 1^x are 1 of any x. Either may be a number; they broadcast. The gradient by the exponent
/// is a NaN where a is negative. Errors: `operand_is_not_floating`, `shape_mismatch`, `dtype_mismatch`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto pow(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary_of<&ops::pow, is_floating, why::operand_is_not_floating>(a, b, where);
}

}  // namespace espalier
