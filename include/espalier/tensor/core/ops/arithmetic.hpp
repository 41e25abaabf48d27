// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/elementwise.hpp>

namespace espalier {

namespace detail {

constexpr double add_scalars(double a, double b) { return a + b; }
constexpr double subtract_scalars(double a, double b) { return a - b; }
constexpr double multiply_scalars(double a, double b) { return a * b; }
constexpr double divide_scalars(double a, double b) { return a / b; }
constexpr double negate_scalar(double a) { return -a; }

/// Integers divide towards zero, and by 0 into 0: padding must not trap.
constexpr void evaluate_divide(const evaluation& e) {
  if (!is_integer(e.self->type)) return evaluate_binary<divide_scalars>(e);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const auto a = static_cast<std::int64_t>(e.operand[0][i]);
    const auto b = static_cast<std::int64_t>(e.operand[1][i]);
    const std::int64_t quotient = b == 0 || b == -1 ? 0 : a / b;
    e.result[i] = b == -1 ? -e.operand[0][i] : static_cast<double>(quotient);
  }
}

constexpr void add_gradient(gradient_context& c) {
  c.give(0, c.cotangent);
  c.give(1, c.cotangent);
}
constexpr void subtract_gradient(gradient_context& c);
constexpr void multiply_gradient(gradient_context& c);
constexpr void divide_gradient(gradient_context& c);
constexpr void negate_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
inline constexpr op_info add =
    detail::elementwise_op("add", detail::evaluate_binary<detail::add_scalars>, detail::add_gradient, linearity::joint,
                           {.combines = static_cast<std::int8_t>(reduction::sum), .keeps_finite = true});
inline constexpr op_info subtract =
    detail::elementwise_op("subtract", detail::evaluate_binary<detail::subtract_scalars>, detail::subtract_gradient,
                           linearity::joint, {.masks = masking::difference, .keeps_finite = true});
inline constexpr op_info multiply =
    detail::elementwise_op("multiply", detail::evaluate_binary<detail::multiply_scalars>, detail::multiply_gradient,
                           linearity::each, {.vanishes_with = 0b11, .multiplies = 0b11, .keeps_finite = true});
inline constexpr op_info divide =
    detail::elementwise_op("divide", detail::evaluate_divide, detail::divide_gradient, linearity::first);
inline constexpr op_info negate =
    detail::elementwise_op("negate", detail::evaluate_unary<detail::negate_scalar>, detail::negate_gradient,
                           linearity::first, {.keeps_finite = true});
}  // namespace ops

namespace emit {
/// The operands of these have equal shapes: broadcasting has happened.
constexpr int add(builder& b, int x, int y) { return b.append(ops::add, b[x].type, b[x].shape, x, y); }
constexpr int subtract(builder& b, int x, int y) { return b.append(ops::subtract, b[x].type, b[x].shape, x, y); }
constexpr int multiply(builder& b, int x, int y) { return b.append(ops::multiply, b[x].type, b[x].shape, x, y); }
constexpr int divide(builder& b, int x, int y) { return b.append(ops::divide, b[x].type, b[x].shape, x, y); }
constexpr int negate(builder& b, int x) { return b.append(ops::negate, b[x].type, b[x].shape, x); }
/// Whether all elements of a value are 1, as far as its instruction says: of what flows back from a plain sum they are.
[[nodiscard]] constexpr bool is_one(builder& b, int id) {
  while (b[id].op->fuse == fusion::broadcast) id = b[id].operand[0];
  return b[id].op->facts.values == pattern::uniform && b[id].scalar == 1;
}
/// What flows back from x * y to x: a cotangent times y, or y itself, which is the same to the last bit.
constexpr int flowing_back(builder& b, int cotangent, int y) {
  return is_one(b, cotangent) ? y : multiply(b, cotangent, y);
}
/// A tensor times a number.
constexpr int scale(builder& b, int x, double factor) { return multiply(b, x, constant_like(b, x, factor)); }
}  // namespace emit

/// A double has 53 bits: what has more is a sum of two.
constexpr int detail::integer_constant(builder& b, dtype type, const extents& shape, std::int64_t value) {
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  if (value >= -exact && value <= exact) return emit::constant(b, type, shape, static_cast<double>(value));
  const std::int64_t low = value % (std::int64_t{1} << 20);
  const int high = emit::constant(b, type, shape, static_cast<double>(value - low));
  return emit::add(b, high, emit::constant(b, type, shape, static_cast<double>(low)));
}

constexpr void detail::subtract_gradient(gradient_context& c) {
  c.give(0, c.cotangent);
  c.give(1, emit::negate(c.emit, c.cotangent));
}
constexpr void detail::multiply_gradient(gradient_context& c) {
  c.give(0, emit::flowing_back(c.emit, c.cotangent, c.operand(1)));
  c.give(1, emit::flowing_back(c.emit, c.cotangent, c.operand(0)));
}
constexpr void detail::divide_gradient(gradient_context& c) {
  const int over = emit::divide(c.emit, c.cotangent, c.operand(1));
  c.give(0, over);
  c.give(1, emit::negate(c.emit, emit::multiply(c.emit, over, c.id)));
}
constexpr void detail::negate_gradient(gradient_context& c) { c.give(0, emit::negate(c.emit, c.cotangent)); }

// Elementwise arithmetic with NumPy's broadcasting; either operand may be a number.
// Errors: `shape_mismatch`, `dtype_mismatch`, `operand_is_boolean`, `number_is_no_integer`, `number_out_of_range`.
namespace detail {
template <class... Operands>
concept Numbers = std::is_void_v<typename refused_among<holds_numbers, Operands...>::type>;
template <class... Operands>
using operand_is_boolean = failed<why::operand_is_boolean<typename refused_among<holds_numbers, Operands...>::type>>;

template <class A, class B>
constexpr auto operate(operator_name<'+'> /*plus*/, const A& a, const B& b, source_line where) {
  return binary_of<&ops::add>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'-'> /*minus*/, const A& a, const B& b, source_line where) {
  return binary_of<&ops::subtract>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'*'> /*times*/, const A& a, const B& b, source_line where) {
  return binary_of<&ops::multiply>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'/'> /*over*/, const A& a, const B& b, source_line where) {
  return binary_of<&ops::divide>(a, b, where);
}
template <class A> constexpr auto operate(operator_name<'-'> /*minus*/, const A& a, source_line where) {
  return unary<&ops::negate, holds_numbers, why::operand_is_boolean>(a, where);
}
}  // namespace detail
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator+(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator-(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator*(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator/(const A& a, const B& b) { return detail::first_failure(a, b); }
template <Failed A> constexpr auto operator-(const A& a) { return a; }

}  // namespace espalier
