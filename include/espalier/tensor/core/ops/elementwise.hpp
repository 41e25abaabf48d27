// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/broadcast.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace espalier::detail {

/// The families of elementwise ops share this: evaluation from a scalar function, and the typed front with NumPy's
/// broadcasting and scalars.

template <double (*Function)(double)> constexpr void evaluate_unary(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = Function(e.operand[0][i]);
}
template <double (*Function)(double, double)> constexpr void evaluate_binary(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = Function(e.operand[0][i], e.operand[1][i]);
}

/// The extents two shapes broadcast to; rank -1 when they do not.
[[nodiscard]] constexpr extents broadcast_shape(const extents& a, const extents& b) {
  extents result;
  result.rank = a.rank > b.rank ? a.rank : b.rank;
  for (int d = 0; d < result.rank; ++d) {
    const int i = d - (result.rank - a.rank);
    const int j = d - (result.rank - b.rank);
    const std::int64_t x = i < 0 ? 1 : a[i];
    const std::int64_t y = j < 0 ? 1 : b[j];
    if (x != y && x != 1 && y != 1) {
      extents none;
      none.rank = -1;
      return none;
    }
    result[d] = x == 1 ? y : x;
  }
  return result;
}

/// A floating-point number cannot be an element of a tensor of integers: its fraction would be lost.
template <class A, class B> [[nodiscard]] constexpr bool loses_fraction() {
  if constexpr (Symbol<A> && Scalar<B>) {
    return is_integer(A::type) && std::is_floating_point_v<B>;
  } else if constexpr (Scalar<A> && Symbol<B>) {
    return loses_fraction<B, A>();
  } else {
    return false;
  }
}
/// The mistake, of the operands in this order.
template <class A, class B> constexpr auto fraction_lost(source_line where, const char* op) {
  if constexpr (Symbol<A>) {
    return failed<why::number_is_no_integer<typename A::tensor, B>>(where, op);
  } else {
    return failed<why::number_is_no_integer<typename B::tensor, A>>(where, op);
  }
}

/// An integer in every element, exactly (ops/arithmetic.hpp).
constexpr int integer_constant(builder& b, dtype type, const extents& shape, std::int64_t value);

/// A number of any arithmetic type in every element of a tensor of this type. An integer that the type does not have is
/// a mistake.
template <TensorType Type, class Number>
constexpr int number(builder& b, Number value, source_line where, const char* op) {
  if constexpr (is_integer(Type::type) && std::is_integral_v<Number>) {
    using widest = std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>;
    if (!std::in_range<storage_t<Type::type>>(static_cast<widest>(value))) {
      b.note(failed<why::number_out_of_range<Type, Number>>(where, op));
      value = Number{};
    }
    return integer_constant(b, Type::type, Type::shape, static_cast<std::int64_t>(value));
  } else {
    return emit::constant(b, Type::type, Type::shape, static_cast<double>(value));
  }
}

/// The element type of a binary elementwise op's result: the operands' type, or a truth value.
enum class binary_result { same, boolean };

template <const op_info* Op, binary_result Result, class A, class B>
constexpr auto binary(const A& a, const B& b, source_line where) {
  if constexpr (Failed<A> || Failed<B>) {
    return first_failure(a, b);
  } else if constexpr (loses_fraction<A, B>()) {
    return fraction_lost<A, B>(where, Op->name);
  } else if constexpr (Scalar<A>) {
    b.owner->at(where);
    const symbol<typename B::mesh, typename B::tensor> left(*b.owner,
                                                            number<typename B::tensor>(*b.owner, a, where, Op->name));
    return binary<Op, Result>(left, b, where);
  } else if constexpr (Scalar<B>) {
    a.owner->at(where);
    const symbol<typename A::mesh, typename A::tensor> right(*a.owner,
                                                             number<typename A::tensor>(*a.owner, b, where, Op->name));
    return binary<Op, Result>(a, right, where);
  } else if constexpr (A::type != B::type) {
    return failed<why::dtype_mismatch<typename A::tensor, typename B::tensor>>(where, Op->name);
  } else {
    constexpr extents shape = broadcast_shape(A::shape, B::shape);
    if constexpr (shape.rank < 0) {
      return failed<why::shape_mismatch<typename A::tensor, typename B::tensor>>(where, Op->name);
    } else {
      builder& emitter = *(a.owner != nullptr ? a.owner : b.owner);
      emitter.at(where);
      constexpr dtype type = Result == binary_result::boolean ? dtype::boolean : A::type;
      using on = operands_mesh<A, B>;
      const int left = emit::broadcast_to(emitter, operand_on<on>(emitter, a), shape);
      const int right = emit::broadcast_to(emitter, operand_on<on>(emitter, b), shape);
      return symbol<on, tensor_for<type, shape>>(emitter, emitter.append(*Op, type, shape, left, right));
    }
  }
}

// Ops that take only some element types: `Reason` is the mistake, about the first tensor of another one. Most that have
// one operand take floats, most that have two take numbers.

/// The first tensor among the operands whose element type `Accepts` refuses, or void.
template <bool (*Accepts)(dtype), class... Operands> struct refused_among { using type = void; };
template <bool (*Accepts)(dtype), class First, class... Rest>
struct refused_among<Accepts, First, Rest...> : refused_among<Accepts, Rest...> {};
template <bool (*Accepts)(dtype), Symbol First, class... Rest>
  requires(!Accepts(First::type))
struct refused_among<Accepts, First, Rest...> {
  using type = typename First::tensor;
};

template <const op_info* Op, bool (*Accepts)(dtype) = is_floating,
          template <class...> class Reason = why::operand_is_not_floating, Traced A>
constexpr auto unary(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (!Accepts(A::type)) {
    return failed<Reason<typename A::tensor>>(where, Op->name);
  } else {
    a.owner->at(where);
    return symbol_like<A, typename A::tensor>(a, a.owner->append(*Op, A::type, A::shape, a.id));
  }
}
[[nodiscard]] constexpr bool holds_numbers(dtype type) { return type != dtype::boolean; }
template <const op_info* Op, bool (*Accepts)(dtype) = holds_numbers,
          template <class...> class Reason = why::operand_is_boolean, class A, class B>
constexpr auto binary_of(const A& a, const B& b, source_line where) {
  using refused = typename refused_among<Accepts, A, B>::type;
  if constexpr (Failed<A> || Failed<B>) {
    return first_failure(a, b);
  } else if constexpr (!std::is_void_v<refused>) {
    return failed<Reason<refused>>(where, Op->name);
  } else {
    return binary<Op, binary_result::same>(a, b, where);
  }
}

template <class A, class B>
concept OperatorArguments = (Traced<A> && (Traced<B> || Scalar<B>)) || (Scalar<A> && Traced<B>);

/// Operands of an operator none of which is a tensor: mistakes, which travel on, and perhaps a number.
template <class A, class B>
concept FailedOperands = (Failed<A> && (Failed<B> || Scalar<B>)) || (Scalar<A> && Failed<B>);

}  // namespace espalier::detail
