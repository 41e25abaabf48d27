// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/failure.hpp>
#include <espalier/tensor/core/diagnostics/source_line.hpp>
#include <espalier/tensor/core/shape/tensor.hpp>

#include <concepts>
#include <type_traits>

namespace espalier {

class builder;
template <class Mesh, TensorType Type> struct symbol;

template <class T>
concept Scalar = std::is_arithmetic_v<T>;

namespace detail {

/// The base of a symbol, with all that it holds except its name. An overloaded operator takes its operand by value as
/// this base, so the operand, named or not, is copied on the line of the operator, and the copy constructor records
/// that line. An operator cannot have a default argument that would ask for the line; a copy constructor can.
template <class Mesh, class Type> struct operand : symbol_tag {
  builder* owner = nullptr;
  int id = -1;
  source_line seen;

  constexpr operand() = default;
  constexpr operand(builder* builds, int instruction, source_line where)
      : owner(builds), id(instruction), seen(where) {}
  constexpr operand(const operand& other, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : symbol_tag(), owner(other.owner), id(other.id), seen{file, line} {}
  constexpr operand& operator=(const operand& other) = default;
  constexpr ~operand() = default;

  [[nodiscard]] constexpr symbol<Mesh, Type> value() const { return symbol<Mesh, Type>(*this); }
};

/// The target of an assigning operator, and the line of the operator.
template <class S> struct assigned {
  S& target;
  source_line where;

  constexpr assigned(S& operand, const char* file = __builtin_FILE(),  // NOLINT(google-explicit-constructor)
                     int line = __builtin_LINE())
      : target(operand), where{file, line} {}
};

/// A subscript of any type, and the line that it is on.
struct subscript {
  source_line where;

  template <class Index>  // NOLINTNEXTLINE(google-explicit-constructor): what stands between the brackets
  constexpr subscript(const Index& /*index*/, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : where{file, line} {}
};

/// Names an operator by its letters: `operate` is what it does, overloaded for each in the header of its op.
template <char... Letters> struct operator_name {};

/// The operands other than symbols: the right operand of a symbol's operator. The left operand is a symbol, which has
/// operators of its own, or one of these.
template <class T>
concept OtherOperand = Scalar<T> || Failed<T>;
template <class T>
concept AnyOperand = OtherOperand<T> || std::derived_from<T, symbol_tag>;

// The operators of symbols. Neither macros (which would add a message to each error) nor a loop can write them. No
// friends of each symbol's type: g++ compares each friend with all others of its name, so that with a thousand types of
// tensors in one file these comparisons took longer than all else.
template <class Mesh, class Type, AnyOperand B> constexpr auto operator+(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'+'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator+(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'+'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator-(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'-'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator-(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'-'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator*(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'*'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator*(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'*'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator/(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'/'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator/(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'/'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator<(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'<'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator<(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'<'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator<=(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'<', '='>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator<=(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'<', '='>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator>(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'>'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator>(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'>'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator>=(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'>', '='>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator>=(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'>', '='>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator&(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'&'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator&(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'&'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator|(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'|'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator|(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'|'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator%(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'%'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator%(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'%'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator^(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'^'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator^(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'^'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator<<(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'<', '<'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator<<(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'<', '<'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator>>(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'>', '>'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator>>(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'>', '>'>{}, a, b.value(), b.seen);
}
// Nothing is left out where the left one decides: both operands are values of the program.
template <class Mesh, class Type, AnyOperand B> constexpr auto operator&&(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'&', '&'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator&&(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'&', '&'>{}, a, b.value(), b.seen);
}
template <class Mesh, class Type, AnyOperand B> constexpr auto operator||(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'|', '|'>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator||(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'|', '|'>{}, a, b.value(), b.seen);
}
// The language itself tries `==` with its sides exchanged: of two symbols both are taken by value, so that neither way
// is better than the other, which decides for the one that was written.
namespace equality {
template <class Mesh, class A, class B> constexpr auto operator==(operand<Mesh, A> a, operand<Mesh, B> b) {
  return operate(operator_name<'=', '='>{}, a.value(), b.value(), a.seen);
}
template <class Mesh, class Type, OtherOperand B> constexpr auto operator==(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'=', '='>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator==(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'=', '='>{}, a, b.value(), b.seen);
}
template <class Mesh, class A, class B> constexpr auto operator!=(operand<Mesh, A> a, operand<Mesh, B> b) {
  return operate(operator_name<'!', '='>{}, a.value(), b.value(), a.seen);
}
template <class Mesh, class Type, OtherOperand B> constexpr auto operator!=(operand<Mesh, Type> a, const B& b) {
  return operate(operator_name<'!', '='>{}, a.value(), b, a.seen);
}
template <OtherOperand A, class Mesh, class Type> constexpr auto operator!=(const A& a, operand<Mesh, Type> b) {
  return operate(operator_name<'!', '='>{}, a, b.value(), b.seen);
}
}  // namespace equality
template <class Mesh, class Type> constexpr auto operator-(operand<Mesh, Type> a) {
  return operate(operator_name<'-'>{}, a.value(), a.seen);
}
template <class Mesh, class Type> constexpr auto operator~(operand<Mesh, Type> a) {
  return operate(operator_name<'~'>{}, a.value(), a.seen);
}
template <class Mesh, class Type> constexpr auto operator!(operand<Mesh, Type> a) {
  return operate(operator_name<'!'>{}, a.value(), a.seen);
}

/// The operators that assign to a symbol S: friends, found through S, in which S is not deduced, so that the operand is
/// converted.
template <class S> struct assigning_operators {
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
};

}  // namespace detail

}  // namespace espalier
