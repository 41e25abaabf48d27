// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>

namespace espalier {

namespace detail {

constexpr double abs_scalar(double a) { return a < 0 ? -a : a == 0 ? 0 : a; }
constexpr double sign_scalar(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
constexpr double is_finite_scalar(double a) {
  return a - a == 0 ? 1 : 0;  // an infinity less itself is a NaN
}

constexpr void evaluate_clamp(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    e.result[i] = lesser_of(greater_of(e.operand[1][i], e.operand[0][i]), e.operand[2][i]);
  }
}
constexpr void abs_gradient(gradient_context& c);
constexpr void clamp_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
inline constexpr op_info abs = detail::elementwise_op("abs", detail::evaluate_unary<detail::abs_scalar>,
                                                      detail::abs_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info sign = detail::elementwise_op("sign", detail::evaluate_unary<detail::sign_scalar>,
                                                       detail::no_gradient, linearity::none, {.keeps_finite = true});
inline constexpr op_info is_finite =
    detail::elementwise_op("is_finite", detail::evaluate_unary<detail::is_finite_scalar>, detail::no_gradient);
/// Operand 1, but at least operand 0, and then at most operand 2.
inline constexpr op_info clamp = detail::elementwise_op("clamp", detail::evaluate_clamp, detail::clamp_gradient,
                                                        linearity::none, {.keeps_finite = true});
}  // namespace ops

/// The slope is the sign of the operand; at 0 it is 0.
constexpr void detail::abs_gradient(gradient_context& c) {
  const instruction from = c.emit[c.operand(0)];
  const int slope = c.emit.append(ops::sign, from.type, from.shape, c.operand(0));
  c.give(0, emit::multiply(c.emit, c.cotangent, slope));
}
/// The cotangent goes to the operand that the result is: to the clamped one also where it equals a bound, and to the
/// upper bound where the bounds are the wrong way round. Where one is a NaN it may go to several, so that none of them
/// hides it.
constexpr void detail::clamp_gradient(gradient_context& c) {
  const int low = c.operand(0);
  const int from = c.operand(1);
  const int high = c.operand(2);
  const auto both = [&](const op_info& op, int a, int b) {
    return c.emit.append(op, dtype::boolean, c.emit[a].shape, a, b);
  };
  const int crossed = both(ops::less, high, low);
  const int above = both(ops::logical_or, both(ops::less, high, from), crossed);
  const int outside = both(ops::logical_or, both(ops::less, from, low), above);
  const int not_low = both(ops::logical_or, both(ops::less_equal, low, from), above);
  const int not_high = both(ops::logical_and, both(ops::less_equal, from, high), both(ops::less_equal, low, high));
  c.give(0, emit::drop_where(c.emit, not_low, c.cotangent));
  c.give(1, emit::drop_where(c.emit, outside, c.cotangent));
  c.give(2, emit::drop_where(c.emit, not_high, c.cotangent));
}

/// The absolute value; of the least integer that integer. Errors: `operand_is_boolean`.
template <Traced A> constexpr auto abs(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::abs, detail::holds_numbers, why::operand_is_boolean>(a, where);
}
/// -1, 0 or 1; a zero or a NaN is its own sign. The gradient is 0. Errors: `operand_is_boolean`.
template <Traced A> constexpr auto sign(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::sign, detail::holds_numbers, why::operand_is_boolean>(a, where);
}
/// A boolean tensor: neither infinite nor a NaN. Errors: `operand_is_not_floating`.
template <Traced A> constexpr auto is_finite(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (!is_floating(A::type)) {
    return failed<why::operand_is_not_floating<typename A::tensor>>(where, "is_finite");
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, tensor_for<dtype::boolean, A::shape>>(
        a, a.owner->append(ops::is_finite, dtype::boolean, A::shape, a.id));
  }
}

namespace detail {
/// The trace that the first of these operands belongs to: a tensor may be of none, and a number is. The last is a
/// tensor.
template <class First, class... Rest> constexpr builder& builder_of(const First& first, const Rest&... rest) {
  if constexpr (sizeof...(Rest) == 0) {
    return *first.owner;
  } else if constexpr (Scalar<First>) {
    return builder_of(rest...);
  } else {
    return first.owner != nullptr ? *first.owner : builder_of(rest...);
  }
}
}  // namespace detail

/// minimum(maximum(x, low), high): NaN where one of them is, and `high` where that is below `low`. The bounds may be
/// numbers; all three broadcast. Errors: `operand_is_boolean`, `shape_mismatch`, `dtype_mismatch`,
/// `number_is_no_integer`.
template <class Low, Traced X, class High>
  requires detail::OperatorArguments<Low, X> && detail::OperatorArguments<X, High>
constexpr auto clamp(const Low& low, const X& x, const High& high, source_line where = source_line::current()) {
  if constexpr (Failed<Low> || Failed<X> || Failed<High>) {
    return detail::first_failure(low, x, high);
  } else if constexpr (X::type == dtype::boolean) {
    return failed<why::operand_is_boolean<typename X::tensor>>(where, "clamp");
  } else if constexpr (detail::loses_fraction<Low, X>()) {
    return detail::fraction_lost<Low, X>(where, "clamp");
  } else if constexpr (detail::loses_fraction<X, High>()) {
    return detail::fraction_lost<X, High>(where, "clamp");
  } else if constexpr (Scalar<Low> || Scalar<High>) {
    builder& b = detail::builder_of(low, high, x);
    b.at(where);
    const auto bound = [&](auto value) {
      return symbol<typename X::mesh, typename X::tensor>(b,
                                                          detail::number<typename X::tensor>(b, value, where, "clamp"));
    };
    if constexpr (Scalar<Low>) {
      return clamp(bound(low), x, high, where);
    } else {
      return clamp(low, x, bound(high), where);
    }
  } else if constexpr (X::type != Low::type) {
    return failed<why::dtype_mismatch<typename Low::tensor, typename X::tensor>>(where, "clamp");
  } else if constexpr (X::type != High::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename High::tensor>>(where, "clamp");
  } else {
    constexpr extents lower = detail::broadcast_shape(Low::shape, X::shape);
    constexpr extents shape = lower.rank < 0 ? lower : detail::broadcast_shape(lower, High::shape);
    if constexpr (shape.rank < 0) {
      return failed<why::shape_mismatch<typename Low::tensor, typename X::tensor, typename High::tensor>>(where,
                                                                                                          "clamp");
    } else {
      builder& b = detail::builder_of(low, high, x);
      b.at(where);
      using on = detail::operands_mesh<Low, X, High>;
      const int bottom = emit::broadcast_to(b, detail::operand_on<on>(b, low), shape);
      const int middle = emit::broadcast_to(b, detail::operand_on<on>(b, x), shape);
      const int top = emit::broadcast_to(b, detail::operand_on<on>(b, high), shape);
      return symbol<on, tensor_for<X::type, shape>>(b, b.append(ops::clamp, X::type, shape, bottom, middle, top));
    }
  }
}

}  // namespace espalier
