// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/reasons/compare.hpp>

namespace espalier {

namespace detail {

constexpr double less_scalars(double a, double b) { return a < b ? 1 : 0; }
constexpr double less_equal_scalars(double a, double b) { return a <= b ? 1 : 0; }
constexpr double equal_scalars(double a, double b) { return a == b ? 1 : 0; }
constexpr double not_equal_scalars(double a, double b) { return a != b ? 1 : 0; }
constexpr double and_scalars(double a, double b) { return a != 0 && b != 0 ? 1 : 0; }
constexpr double or_scalars(double a, double b) { return a != 0 || b != 0 ? 1 : 0; }
constexpr double not_scalar(double a) { return a == 0 ? 1 : 0; }
constexpr double maximum_scalars(double a, double b) { return greater_of(a, b); }
constexpr double minimum_scalars(double a, double b) { return lesser_of(a, b); }

constexpr void evaluate_select(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    e.result[i] = e.operand[0][i] != 0 ? e.operand[1][i] : e.operand[2][i];
  }
}
constexpr void select_gradient(gradient_context& c);
constexpr void maximum_gradient(gradient_context& c);
constexpr void minimum_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
inline constexpr op_info less =
    detail::elementwise_op("less", detail::evaluate_binary<detail::less_scalars>, detail::no_gradient, linearity::none,
                           {.cheap_to_repeat = true, .keeps_finite = true});
inline constexpr op_info less_equal =
    detail::elementwise_op("less_equal", detail::evaluate_binary<detail::less_equal_scalars>, detail::no_gradient,
                           linearity::none, {.masks = masking::order, .cheap_to_repeat = true, .keeps_finite = true});
inline constexpr op_info equal =
    detail::elementwise_op("equal", detail::evaluate_binary<detail::equal_scalars>, detail::no_gradient,
                           linearity::none, {.cheap_to_repeat = true, .keeps_finite = true});
inline constexpr op_info not_equal =
    detail::elementwise_op("not_equal", detail::evaluate_binary<detail::not_equal_scalars>, detail::no_gradient,
                           linearity::none, {.keeps_finite = true});
inline constexpr op_info logical_and =
    detail::elementwise_op("logical_and", detail::evaluate_binary<detail::and_scalars>, detail::no_gradient);
inline constexpr op_info logical_or =
    detail::elementwise_op("logical_or", detail::evaluate_binary<detail::or_scalars>, detail::no_gradient);
inline constexpr op_info logical_not =
    detail::elementwise_op("logical_not", detail::evaluate_unary<detail::not_scalar>, detail::no_gradient);
inline constexpr op_info maximum = detail::elementwise_op(
    "maximum", detail::evaluate_binary<detail::maximum_scalars>, detail::maximum_gradient, linearity::none,
    {.combines = static_cast<std::int8_t>(reduction::max), .keeps_finite = true});
inline constexpr op_info minimum = detail::elementwise_op(
    "minimum", detail::evaluate_binary<detail::minimum_scalars>, detail::minimum_gradient, linearity::none,
    {.combines = static_cast<std::int8_t>(reduction::min), .keeps_finite = true});
/// Operand 0 is boolean; where it is true the result is operand 1, elsewhere operand 2.
inline constexpr op_info select =
    detail::elementwise_op("select", detail::evaluate_select, detail::select_gradient, linearity::none,
                           {.masks = masking::choice, .keeps_finite = true});
}  // namespace ops

namespace emit {
constexpr int compare(builder& b, const op_info& op, int x, int y) {
  return b.append(op, dtype::boolean, b[x].shape, x, y);
}
constexpr int select(builder& b, int condition, int yes, int no) {
  return b.append(ops::select, b[yes].type, b[yes].shape, condition, yes, no);
}
/// The value where the condition holds, 0 elsewhere; or the other way round.
constexpr int keep_where(builder& b, int condition, int value) {
  return select(b, condition, value, constant_like(b, value, 0));
}
constexpr int drop_where(builder& b, int condition, int value) {
  return select(b, condition, constant_like(b, value, 0), value);
}
}  // namespace emit

constexpr void detail::select_gradient(gradient_context& c) {
  c.give(1, emit::keep_where(c.emit, c.operand(0), c.cotangent));
  c.give(2, emit::drop_where(c.emit, c.operand(0), c.cotangent));
}
/// Gives the first operand the whole cotangent where both are equal; gives it to both where one is a NaN, so that
/// neither hides it.
constexpr void detail::maximum_gradient(gradient_context& c) {
  const int second = emit::compare(c.emit, ops::less, c.operand(0), c.operand(1));
  const int first = emit::compare(c.emit, ops::less_equal, c.operand(1), c.operand(0));
  c.give(0, emit::drop_where(c.emit, second, c.cotangent));
  c.give(1, emit::drop_where(c.emit, first, c.cotangent));
}
constexpr void detail::minimum_gradient(gradient_context& c) {
  const int second = emit::compare(c.emit, ops::less, c.operand(1), c.operand(0));
  const int first = emit::compare(c.emit, ops::less_equal, c.operand(0), c.operand(1));
  c.give(0, emit::drop_where(c.emit, second, c.cotangent));
  c.give(1, emit::drop_where(c.emit, first, c.cotangent));
}

// Elementwise comparisons: a boolean tensor of the broadcast shape. `&&` and `||` are of truth values.
namespace detail {
[[nodiscard]] constexpr bool is_boolean(dtype type) { return type == dtype::boolean; }
template <class A, class B>
constexpr auto operate(operator_name<'<'> /*sign*/, const A& a, const B& b, source_line where) {
  return binary<&ops::less, binary_result::boolean>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'<', '='> /*sign*/, const A& a, const B& b, source_line where) {
  return binary<&ops::less_equal, binary_result::boolean>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'>'> /*sign*/, const A& a, const B& b, source_line where) {
  return binary<&ops::less, binary_result::boolean>(b, a, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'>', '='> /*sign*/, const A& a, const B& b, source_line where) {
  return binary<&ops::less_equal, binary_result::boolean>(b, a, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'=', '='> /*sign*/, const A& a, const B& b, source_line where) {
  return binary<&ops::equal, binary_result::boolean>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'!', '='> /*sign*/, const A& a, const B& b, source_line where) {
  return binary<&ops::not_equal, binary_result::boolean>(a, b, where);
}
/// Combines truth values; other types are mistakes.
template <const op_info* Op, class A, class B> constexpr auto logical(const A& a, const B& b, source_line where) {
  return binary_of<Op, is_boolean, why::condition_is_not_boolean>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'&', '&'> /*and*/, const A& a, const B& b, source_line where) {
  return logical<&ops::logical_and>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'|', '|'> /*or*/, const A& a, const B& b, source_line where) {
  return logical<&ops::logical_or>(a, b, where);
}
template <class A> constexpr auto operate(operator_name<'!'> /*not*/, const A& a, source_line where) {
  return unary<&ops::logical_not, is_boolean, why::condition_is_not_boolean>(a, where);
}
}  // namespace detail
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator<(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator<=(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator>(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator>=(const A& a, const B& b) { return detail::first_failure(a, b); }
namespace detail::equality {
template <class A, class B>
  requires FailedOperands<A, B>
constexpr auto operator==(const A& a, const B& b) { return first_failure(a, b); }
template <class A, class B>
  requires FailedOperands<A, B>
constexpr auto operator!=(const A& a, const B& b) { return first_failure(a, b); }
}  // namespace detail::equality
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator&&(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator||(const A& a, const B& b) { return detail::first_failure(a, b); }

/// Whether elements are equal, or not, as `==` and `!=`: a boolean tensor. A NaN equals nothing, itself included.
/// Either operand may be a number; they broadcast. Errors: `shape_mismatch`, `dtype_mismatch`, `number_is_no_integer`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto equal(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary<&ops::equal, detail::binary_result::boolean>(a, b, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto not_equal(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary<&ops::not_equal, detail::binary_result::boolean>(a, b, where);
}
/// The larger, or the smaller, of two elements; where one is a NaN, a NaN. Of equal ones the gradient goes to the
/// first. Either operand may be a number; they broadcast. Errors: `shape_mismatch`, `dtype_mismatch`,
/// `number_is_no_integer`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto maximum(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary<&ops::maximum, detail::binary_result::same>(a, b, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto minimum(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary<&ops::minimum, detail::binary_result::same>(a, b, where);
}

template <Failed A> constexpr auto operator!(const A& a) { return a; }

namespace detail {
/// A number as a tensor of the type of `like`.
template <Symbol Like, class Number>
constexpr Like number_like(const Like& like, Number value, source_line where, const char* op) {
  like.owner->at(where);
  return Like(*like.owner, number<typename Like::tensor>(*like.owner, value, where, op));
}
}  // namespace detail

/// Chooses elementwise: where `condition` holds the element of `yes`, elsewhere that of `no`. All three broadcast;
/// `yes` or `no` may be a number.
/// Errors: `condition_is_not_boolean`, `shape_mismatch`, `dtype_mismatch`, `number_is_no_integer`.
template <Traced Condition, class Yes, class No>
  requires detail::OperatorArguments<Yes, No>
constexpr auto select(const Condition& condition, const Yes& yes, const No& no,
                      source_line where = source_line::current()) {
  if constexpr (Failed<Condition> || Failed<Yes> || Failed<No>) {
    return detail::first_failure(condition, yes, no);
  } else if constexpr (Condition::type != dtype::boolean) {
    return failed<why::condition_is_not_boolean<typename Condition::tensor>>(where, "select");
  } else if constexpr (detail::loses_fraction<Yes, No>()) {
    return detail::fraction_lost<Yes, No>(where, "select");
  } else if constexpr (Scalar<Yes>) {
    return select(condition, detail::number_like(no, yes, where, "select"), no, where);
  } else if constexpr (Scalar<No>) {
    return select(condition, yes, detail::number_like(yes, no, where, "select"), where);
  } else if constexpr (Yes::type != No::type) {
    return failed<why::dtype_mismatch<typename Yes::tensor, typename No::tensor>>(where, "select");
  } else {
    constexpr extents values = detail::broadcast_shape(Yes::shape, No::shape);
    constexpr extents shape = values.rank < 0 ? values : detail::broadcast_shape(Condition::shape, values);
    if constexpr (shape.rank < 0) {
      return failed<why::shape_mismatch<typename Condition::tensor, typename Yes::tensor, typename No::tensor>>(
          where, "select");
    } else {
      builder& b = *condition.owner;
      b.at(where);
      using on = detail::operands_mesh<Condition, Yes, No>;
      const int chooser = emit::broadcast_to(b, detail::operand_on<on>(b, condition), shape);
      const int left = emit::broadcast_to(b, detail::operand_on<on>(b, yes), shape);
      const int right = emit::broadcast_to(b, detail::operand_on<on>(b, no), shape);
      return detail::symbol_like<Condition, tensor_for<Yes::type, shape>>(
          condition, emit::select(b, chooser, left, right), yes, no);
    }
  }
}

}  // namespace espalier
