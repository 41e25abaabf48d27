// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/storage.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/elementwise.hpp>
#include <espalier/tensor/core/ops/reasons/bitwise.hpp>

#include <bit>
#include <type_traits>

namespace espalier {

struct bit_cast_attributes {
  /// The operand's element type.
  dtype from = dtype::f32;
};

namespace detail {

// Elements as words: unsigned, of as many bits as the element has.

[[nodiscard]] constexpr int bits_of_element(dtype type) { return 8 * static_cast<int>(size_of(type)); }
[[nodiscard]] constexpr std::int64_t with_sign(std::uint64_t word, int bits) {
  return static_cast<std::int64_t>(word << (64 - bits)) >> (64 - bits);
}

/// The bits of an element with this value, and the value that bits are. Of a word, only the lowest bits count.
[[nodiscard]] constexpr std::uint64_t word_of_value(dtype type, double value) {
  const int bits = bits_of_element(type);
  switch (facts_of(type).format) {
    case number_format::binary:
      return bits == 64   ? std::bit_cast<std::uint64_t>(value)
             : bits == 32 ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                          : float16(static_cast<float>(value)).bits;
    case number_format::brain: return bfloat16(static_cast<float>(value)).bits;
    case number_format::integer:
    case number_format::natural: {
      const bool fits = value >= -0x1p63 && value < 0x1p63;
      return static_cast<std::uint64_t>(fits ? static_cast<std::int64_t>(value) : 0) &
             (~std::uint64_t{0} >> (64 - bits));
    }
    case number_format::truth: return value != 0 ? 1 : 0;
  }
  return 0;
}
[[nodiscard]] constexpr double value_of_word(dtype type, std::uint64_t word) {
  const int bits = bits_of_element(type);
  switch (facts_of(type).format) {
    case number_format::binary:
      return bits == 64 ? std::bit_cast<double>(word)
             : bits == 32
                 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(word)))
                 : static_cast<double>(static_cast<float>(std::bit_cast<float16>(static_cast<std::uint16_t>(word))));
    case number_format::brain:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(word << 16U)));
    case number_format::integer: return static_cast<double>(with_sign(word, bits));
    case number_format::natural: return static_cast<double>(word & (~std::uint64_t{0} >> (64 - bits)));
    case number_format::truth: return static_cast<double>(word & 1U);
  }
  return 0;
}

constexpr std::uint64_t and_words(std::uint64_t a, std::uint64_t b, int /*bits*/) { return a & b; }
constexpr std::uint64_t or_words(std::uint64_t a, std::uint64_t b, int /*bits*/) { return a | b; }
constexpr std::uint64_t xor_words(std::uint64_t a, std::uint64_t b, int /*bits*/) { return a ^ b; }
constexpr std::uint64_t shift_word_left(std::uint64_t a, std::uint64_t amount, int bits) {
  return amount < static_cast<unsigned>(bits) ? a << amount : 0;
}
constexpr std::uint64_t shift_word_right(std::uint64_t a, std::uint64_t amount, int bits) {
  return amount < static_cast<unsigned>(bits) ? a >> amount : 0;
}
constexpr std::uint64_t shift_word_with_sign(std::uint64_t a, std::uint64_t amount, int bits) {
  const std::int64_t number = with_sign(a, bits);
  return static_cast<std::uint64_t>(number >> (amount < static_cast<unsigned>(bits) ? amount : 63U));
}

template <std::uint64_t (*Function)(std::uint64_t, std::uint64_t, int)>
constexpr void evaluate_words(const evaluation& e) {
  const dtype type = e.self->type;
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const std::uint64_t a = word_of_value(type, e.operand[0][i]);
    const std::uint64_t b = word_of_value(type, e.operand[1][i]);
    e.result[i] = value_of_word(type, Function(a, b, bits_of_element(type)));
  }
}
constexpr void evaluate_bitwise_not(const evaluation& e) {
  const dtype type = e.self->type;
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    e.result[i] = value_of_word(type, ~word_of_value(type, e.operand[0][i]));
  }
}
constexpr void evaluate_bit_cast(const evaluation& e) {
  const dtype from = attributes_of<bit_cast_attributes>(*e.self).from;
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    e.result[i] = value_of_word(e.self->type, word_of_value(from, e.operand[0][i]));
  }
}

[[nodiscard]] constexpr bool holds_bits(dtype type) { return !is_floating(type); }
[[nodiscard]] constexpr bool holds_whole_numbers(dtype type) { return !is_floating(type) && type != dtype::boolean; }
/// True if the first tensor among two operands has integers with a sign.
template <class A, class B> [[nodiscard]] constexpr bool has_sign() {
  if constexpr (Symbol<A>) {
    return facts_of(A::type).format == number_format::integer;
  } else if constexpr (Symbol<B>) {
    return facts_of(B::type).format == number_format::integer;
  } else {
    return true;
  }
}

}  // namespace detail

namespace ops {
inline constexpr op_info bitwise_and =
    detail::elementwise_op("bitwise_and", detail::evaluate_words<detail::and_words>, detail::no_gradient);
inline constexpr op_info bitwise_or =
    detail::elementwise_op("bitwise_or", detail::evaluate_words<detail::or_words>, detail::no_gradient);
inline constexpr op_info bitwise_xor =
    detail::elementwise_op("bitwise_xor", detail::evaluate_words<detail::xor_words>, detail::no_gradient);
inline constexpr op_info bitwise_not =
    detail::elementwise_op("bitwise_not", detail::evaluate_bitwise_not, detail::no_gradient);
/// Operand 0 by as many bits as operand 1 says.
inline constexpr op_info shift_left =
    detail::elementwise_op("shift_left", detail::evaluate_words<detail::shift_word_left>, detail::no_gradient);
inline constexpr op_info shift_right_logical = detail::elementwise_op(
    "shift_right_logical", detail::evaluate_words<detail::shift_word_right>, detail::no_gradient);
inline constexpr op_info shift_right_arithmetic = detail::elementwise_op(
    "shift_right_arithmetic", detail::evaluate_words<detail::shift_word_with_sign>, detail::no_gradient);
/// The bits of the operand as those of another element type.
inline constexpr op_info bit_cast = detail::elementwise_op("bit_cast", detail::evaluate_bit_cast, detail::no_gradient,
                                                           linearity::none, {.attributes = "from:type"});
}  // namespace ops

namespace emit {
/// The types have the same size.
constexpr int bit_cast(builder& b, int a, dtype type) {
  if (b[a].type == type) return a;
  return b.append(
      with_attributes(builder::make(ops::bit_cast, type, b[a].shape, a), bit_cast_attributes{.from = b[a].type}));
}
}  // namespace emit

/// Combines integers bit by bit, and truth values. Either operand may be a number; they broadcast.
/// Errors: `operand_is_not_integer`, `shape_mismatch`, `dtype_mismatch`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto bitwise_and(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary_of<&ops::bitwise_and, detail::holds_bits, why::operand_is_not_integer>(a, b, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto bitwise_or(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary_of<&ops::bitwise_or, detail::holds_bits, why::operand_is_not_integer>(a, b, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto bitwise_xor(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::binary_of<&ops::bitwise_xor, detail::holds_bits, why::operand_is_not_integer>(a, b, where);
}
template <Traced A> constexpr auto bitwise_not(const A& a, source_line where = source_line::current()) {
  return detail::unary<&ops::bitwise_not, detail::holds_bits, why::operand_is_not_integer>(a, where);
}

/// Integers, by `amount` bits. The amount is read without its sign: by the number of bits or more, and so by a negative
/// number, nothing is left: 0, or of `shift_right_arithmetic`, which repeats the sign, 0 or -1 (as in StableHLO).
/// Errors: `operand_is_not_integer`, `shape_mismatch`, `dtype_mismatch`.
template <class A, detail::OperatorArguments<A> B>
constexpr auto shift_left(const A& a, const B& amount, source_line where = source_line::current()) {
  return detail::binary_of<&ops::shift_left, detail::holds_whole_numbers, why::operand_is_not_integer>(a, amount,
                                                                                                       where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto shift_right_logical(const A& a, const B& amount, source_line where = source_line::current()) {
  return detail::binary_of<&ops::shift_right_logical, detail::holds_whole_numbers, why::operand_is_not_integer>(
      a, amount, where);
}
template <class A, detail::OperatorArguments<A> B>
constexpr auto shift_right_arithmetic(const A& a, const B& amount, source_line where = source_line::current()) {
  return detail::binary_of<&ops::shift_right_arithmetic, detail::holds_whole_numbers, why::operand_is_not_integer>(
      a, amount, where);
}

namespace detail {

/// Combines integers bit by bit with `Bits`, and truth values with `Truth`.
template <const op_info* Bits, const op_info* Truth, class A, class B>
constexpr auto bits_or_truth(const A& a, const B& b, source_line where) {
  if constexpr (!std::is_void_v<typename refused_among<is_boolean, A, B>::type>) {
    return binary_of<Bits, holds_bits, why::operand_is_not_integer>(a, b, where);
  } else {
    return binary_of<Truth, holds_bits, why::operand_is_not_integer>(a, b, where);
  }
}
template <class A, class B>
constexpr auto operate(operator_name<'&'> /*and*/, const A& a, const B& b, source_line where) {
  return bits_or_truth<&ops::bitwise_and, &ops::logical_and>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'|'> /*or*/, const A& a, const B& b, source_line where) {
  return bits_or_truth<&ops::bitwise_or, &ops::logical_or>(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'^'> /*exclusive or*/, const A& a, const B& b, source_line where) {
  return bitwise_xor(a, b, where);
}
template <class A, class B>
constexpr auto operate(operator_name<'<', '<'> /*left*/, const A& a, const B& b, source_line where) {
  return shift_left(a, b, where);
}
/// The sign is repeated, where there is one.
template <class A, class B>
constexpr auto operate(operator_name<'>', '>'> /*right*/, const A& a, const B& b, source_line where) {
  if constexpr (has_sign<A, B>()) {
    return shift_right_arithmetic(a, b, where);
  } else {
    return shift_right_logical(a, b, where);
  }
}
template <class A> constexpr auto operate(operator_name<'~'> /*not*/, const A& a, source_line where) {
  return bitwise_not(a, where);
}

}  // namespace detail
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator&(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator|(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator^(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator<<(const A& a, const B& b) { return detail::first_failure(a, b); }
template <class A, class B>
  requires detail::FailedOperands<A, B>
constexpr auto operator>>(const A& a, const B& b) { return detail::first_failure(a, b); }
template <Failed A> constexpr auto operator~(const A& a) { return a; }

/// The same bits as elements of another type of the same size. No gradient flows back.
/// Errors: `bit_cast_size_mismatch`, `operand_is_boolean` (of whose eight bits only one says something).
template <dtype Type, Traced A> constexpr auto bit_cast(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (A::type == dtype::boolean) {
    return failed<why::operand_is_boolean<typename A::tensor>>(where, "bit_cast");
  } else if constexpr (size_of(A::type) != size_of(Type) || Type == dtype::boolean) {
    return failed<why::bit_cast_size_mismatch<typename A::tensor, tensor_for<Type, A::shape>>>(where);
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, tensor_for<Type, A::shape>>(a, emit::bit_cast(*a.owner, a.id, Type));
  }
}

}  // namespace espalier
