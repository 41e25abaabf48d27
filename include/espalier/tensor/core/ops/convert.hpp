// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/ops/declare.hpp>

#include <limits>

namespace espalier {

namespace detail {

/// Towards zero; what is beyond the range becomes the nearest integer, a NaN 0.
template <class T> [[nodiscard]] constexpr T nearest_integer(double value) {
  using limits = std::numeric_limits<T>;
  if (value != value) return 0;
  // No double is the greatest integer of 64 bits, but the next one is.
  if (value >= static_cast<double>(limits::max())) return limits::max();
  if (value <= static_cast<double>(limits::min())) return limits::min();
  return static_cast<T>(value);
}

/// An element of type `to`, made of a number. Integers end at the nearest one, or are taken modulo as many as there
/// are.
[[nodiscard]] constexpr double element_as(dtype to, double value, bool wraps) {
  return with_storage(to, [=]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      return value != 0 ? 1.0 : 0.0;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<double>(wraps ? static_cast<T>(nearest_integer<std::int64_t>(value))
                                       : nearest_integer<T>(value));
    } else {
      return static_cast<double>(static_cast<computed_t<T>>(static_cast<T>(static_cast<computed_t<T>>(value))));
    }
  });
}
/// Rounds as a store to the type would; an integer's range ends at the nearest one.
[[nodiscard]] constexpr double stored_as(dtype type, double value) { return element_as(type, value, false); }

/// Returns the score of an element that must count for nothing: -1e30, or the lowest number of the type. It is finite,
/// so that a difference of two is no NaN. A softmax gives it 0 next to any score that is not as low.
[[nodiscard]] constexpr double hidden_score(dtype type) {
  const bool is_half = size_of(type) == 2 && facts_of(type).format == number_format::binary;
  return is_half ? -65504 : -1e30;
}

constexpr void evaluate_convert(const evaluation& e) {
  const bool wraps = is_integer(e.operand_type[0]);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    e.result[i] = element_as(e.self->type, e.operand[0][i], wraps);
  }
}
constexpr void convert_gradient(gradient_context& c);

/// Whether sums, or sums of products, of elements of type `from` may have type `to`: floats of floats, integers of
/// integers or of truth values, at least as wide as what such sums are kept in.
[[nodiscard]] constexpr bool can_hold_sums(dtype to, dtype from) {
  if (to == from) return true;
  if (is_floating(to) != is_floating(from) || to == dtype::boolean) return false;
  return size_of(facts_of(to).accumulate) >= size_of(from == dtype::boolean ? dtype::i8 : facts_of(from).accumulate);
}

/// The type asked for, if one is, else `Otherwise`.
template <dtype Otherwise, dtype... Asked> inline constexpr dtype asked_type = Otherwise;
template <dtype Otherwise, dtype Asked> inline constexpr dtype asked_type<Otherwise, Asked> = Asked;

/// The same of products of several operands, where a type is asked for.
template <dtype... Asked, class... Operands> [[nodiscard]] constexpr bool can_hold_products(Operands... operand) {
  bool all = true;
  if constexpr (sizeof...(Asked) != 0) {
    ((all = all && can_hold_sums(asked_type<dtype::f32, Asked...>, operand)), ...);
  }
  return all;
}

}  // namespace detail

namespace ops {
/// The same values stored as the result's type. To a float: to nearest even, from wider floats by way of float32. From
/// a float to an integer: towards zero, beyond the range the nearest integer, a NaN 0. From an integer to another:
/// modulo as many values as that has, as in C and NumPy. To a truth value: whether it is not 0.
inline constexpr op_info convert =
    detail::elementwise_op("convert", detail::evaluate_convert, detail::convert_gradient, linearity::none,
                           {.is_operand = detail::has_type_and_shape_of_operand,
                            .masks = masking::same,
                            .vanishes_with = 0b1,
                            .converts = true,
                            .keeps_finite = true});
}  // namespace ops

namespace emit {
constexpr int convert(builder& b, int a, dtype type) {
  return b[a].type == type ? a : b.append(ops::convert, type, b[a].shape, a);
}
/// Converts to the type that the elements are computed in (`dtype_facts::accumulate`): bf16 and f16 to f32; all others
/// stay as they are. A computation in several steps is done in it, and rounded once.
constexpr int widen(builder& b, int a) {
  return is_floating(b[a].type) ? convert(b, a, facts_of(b[a].type).accumulate) : a;
}
}  // namespace emit

/// A gradient that a product of the wider type has for an operand of the narrower one, as where a product of bf16
/// weights is asked for in f32, is not rounded on its way to weights of the wider type.
constexpr void detail::convert_gradient(gradient_context& c) {
  const dtype from = c.emit[c.operand(0)].type;
  if (!is_floating(from)) return;
  instruction flow = c.emit[c.cotangent];
  bool was_wider = false;
  for (int k = 0; k < flow.operand_count && k < inline_operands; ++k)
    was_wider = was_wider || c.emit[flow.operand[k]].type == from;
  if (flow.op->facts.adds_up && was_wider && is_for_storage(flow.type) && facts_of(flow.type).accumulate == from) {
    flow.type = from;
    c.give(0, c.emit.append(flow));
    return;
  }
  c.give(0, emit::convert(c.emit, c.cotangent, from));
}

/// The same values as another element type.
template <dtype Type, Traced A> constexpr auto convert(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, tensor_for<Type, A::shape>>(a, emit::convert(*a.owner, a.id, Type));
  }
}

}  // namespace espalier
