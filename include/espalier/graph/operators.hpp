// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/diagnostics/failure.hpp>
#include <espalier/diagnostics/source_line.hpp>

#include <concepts>
#include <type_traits>

namespace espalier {

template <class T>
concept Scalar = std::is_arithmetic_v<T>;

namespace detail {

struct symbol_tag {};

/// An operand, and the line on which it was handed to an operator. An operator has no room for a default argument that
/// would ask for the caller's line, but the conversion to its parameter has.
template <class S> struct located {
  const S& value;
  source_line where;

  constexpr located(const S& operand, const char* file = __builtin_FILE(),  // NOLINT(google-explicit-constructor)
                    int line = __builtin_LINE())
      : value(operand), where{file, line} {}
};

/// The same for what an operator assigns to.
template <class S> struct assigned {
  S& target;
  source_line where;

  constexpr assigned(S& operand, const char* file = __builtin_FILE(),  // NOLINT(google-explicit-constructor)
                     int line = __builtin_LINE())
      : target(operand), where{file, line} {}
};

/// A subscript of any type, and the line on which it stands.
struct subscript {
  source_line where;

  template <class Index>  // NOLINTNEXTLINE(google-explicit-constructor): what stands between the brackets
  constexpr subscript(const Index& /*index*/, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : where{file, line} {}
};

/// Names an operator by its letters: `operate` is what it does, overloaded for each in the header of its op.
template <char... Letters> struct operator_name {};

/// What may stand on the right of a symbol; on its left stands a symbol, with operators of its own, or one of these.
template <class T>
concept OtherOperand = Scalar<T> || Failed<T>;
template <class T>
concept AnyOperand = OtherOperand<T> || std::derived_from<T, symbol_tag>;

/// The operators of a symbol S: friends, found through S, in which one parameter is not deduced, so that the operand is
/// converted. Neither macros (which would add a message to each error) nor a loop can write them.
template <class S> struct operators {
  template <AnyOperand B> friend constexpr auto operator+(located<S> a, const B& b) {
    return operate(operator_name<'+'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator+(const A& a, located<S> b) {
    return operate(operator_name<'+'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator-(located<S> a, const B& b) {
    return operate(operator_name<'-'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator-(const A& a, located<S> b) {
    return operate(operator_name<'-'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator*(located<S> a, const B& b) {
    return operate(operator_name<'*'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator*(const A& a, located<S> b) {
    return operate(operator_name<'*'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator/(located<S> a, const B& b) {
    return operate(operator_name<'/'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator/(const A& a, located<S> b) {
    return operate(operator_name<'/'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator<(located<S> a, const B& b) {
    return operate(operator_name<'<'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator<(const A& a, located<S> b) {
    return operate(operator_name<'<'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator<=(located<S> a, const B& b) {
    return operate(operator_name<'<', '='>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator<=(const A& a, located<S> b) {
    return operate(operator_name<'<', '='>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator>(located<S> a, const B& b) {
    return operate(operator_name<'>'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator>(const A& a, located<S> b) {
    return operate(operator_name<'>'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator>=(located<S> a, const B& b) {
    return operate(operator_name<'>', '='>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator>=(const A& a, located<S> b) {
    return operate(operator_name<'>', '='>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator&(located<S> a, const B& b) {
    return operate(operator_name<'&'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator&(const A& a, located<S> b) {
    return operate(operator_name<'&'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator|(located<S> a, const B& b) {
    return operate(operator_name<'|'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator|(const A& a, located<S> b) {
    return operate(operator_name<'|'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator%(located<S> a, const B& b) {
    return operate(operator_name<'%'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator%(const A& a, located<S> b) {
    return operate(operator_name<'%'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator^(located<S> a, const B& b) {
    return operate(operator_name<'^'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator^(const A& a, located<S> b) {
    return operate(operator_name<'^'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator<<(located<S> a, const B& b) {
    return operate(operator_name<'<', '<'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator<<(const A& a, located<S> b) {
    return operate(operator_name<'<', '<'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator>>(located<S> a, const B& b) {
    return operate(operator_name<'>', '>'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator>>(const A& a, located<S> b) {
    return operate(operator_name<'>', '>'>{}, a, b.value, b.where);
  }
  // Nothing is left out where the left one decides: both operands are values of the program.
  template <AnyOperand B> friend constexpr auto operator&&(located<S> a, const B& b) {
    return operate(operator_name<'&', '&'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator&&(const A& a, located<S> b) {
    return operate(operator_name<'&', '&'>{}, a, b.value, b.where);
  }
  template <AnyOperand B> friend constexpr auto operator||(located<S> a, const B& b) {
    return operate(operator_name<'|', '|'>{}, a.value, b, a.where);
  }
  template <OtherOperand A> friend constexpr auto operator||(const A& a, located<S> b) {
    return operate(operator_name<'|', '|'>{}, a, b.value, b.where);
  }
  // The result has to be of the type of what is assigned to.
  template <AnyOperand B> friend constexpr S& operator+=(assigned<S> a, const B& b) {
    return a.target = operate(operator_name<'+'>{}, a.target, b, a.where);
  }
  template <AnyOperand B> friend constexpr S& operator-=(assigned<S> a, const B& b) {
    return a.target = operate(operator_name<'-'>{}, a.target, b, a.where);
  }
  template <AnyOperand B> friend constexpr S& operator*=(assigned<S> a, const B& b) {
    return a.target = operate(operator_name<'*'>{}, a.target, b, a.where);
  }
  template <AnyOperand B> friend constexpr S& operator/=(assigned<S> a, const B& b) {
    return a.target = operate(operator_name<'/'>{}, a.target, b, a.where);
  }
  friend constexpr auto operator-(located<S> a) { return operate(operator_name<'-'>{}, a.value, a.where); }
  friend constexpr auto operator~(located<S> a) { return operate(operator_name<'~'>{}, a.value, a.where); }
  /// Takes the operand itself, by value: beside a conversion of it to `located` stands that to bool, and neither is
  /// better. A copy notes its line. (What is no copy has the line on which it was made.)
  template <std::same_as<S> T> friend constexpr auto operator!(T a) { return operate(operator_name<'!'>{}, a, a.seen); }
};

}  // namespace detail

}  // namespace espalier
