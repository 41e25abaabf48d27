// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/reasons.hpp>

#include <cstddef>
#include <exception>

/// Calls that are made when a program is asked for something that it does not have. The functions in `why` are not
/// constexpr: a constant evaluation that calls one stops there, and the compiler names the function, what was asked for
/// and, as its template arguments, what there is. At run time they throw.
namespace espalier {

/// Thrown at run time by a query for a label or a number that a program does not have.
class no_such_value : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return &text_[0]; }

  no_such_value& operator<<(const char* more) {
    for (; *more != '\0' && size_ + 1 < sizeof(text_); ++more) text_[size_++] = *more;
    text_[size_] = '\0';
    return *this;
  }
  no_such_value& operator<<(int number) {
    char digits[16]{};
    std::size_t first = sizeof(digits) - 1;
    unsigned rest = number < 0 ? 0U - static_cast<unsigned>(number) : static_cast<unsigned>(number);
    do {
      digits[--first] = static_cast<char>('0' + rest % 10U);
      rest /= 10U;
    } while (rest != 0);
    if (number < 0) digits[--first] = '-';
    return *this << &digits[first];
  }

 private:
  char text_[512]{};
  std::size_t size_ = 0;
};

namespace detail {

template <class Text> struct letters_of;
template <char... Letters> struct letters_of<why::text<Letters...>> {
  static constexpr char value[]{Letters..., '\0'};
};

template <class Count> struct number_of;
template <int Value> struct number_of<why::count<Value>> { static constexpr int value = Value; };

[[noreturn]] inline void throw_no_such_number(const char* what, int asked, int count) {
  no_such_value error;
  error << "program: there is no " << what << " number " << asked << ": it has " << count
        << ", counted from 0 (each tensor of a tree counts). Ask argument_count() and result_count().";
  throw error;
}

}  // namespace detail

namespace why {

/// The labels that there are.
template <class... Labels> struct labels {};

template <class... Labels> [[noreturn]] void no_value_has_this_label(const char* asked, labels<Labels...> /*there*/) {
  no_such_value error;
  error << "program: no value has the label \"" << asked << "\"";
  if constexpr (sizeof...(Labels) > 0) {
    error << "; there are:";
    ((error << " \"" << &detail::letters_of<Labels>::value[0] << "\""), ...);
  }
  error << ". Give a value one with label<\"...\">(value).";
  throw error;
}

template <class Count> [[noreturn]] void no_argument_has_this_number(int asked) {
  detail::throw_no_such_number("argument", asked, detail::number_of<Count>::value);
}
template <class Count> [[noreturn]] void no_result_has_this_number(int asked) {
  detail::throw_no_such_number("result", asked, detail::number_of<Count>::value);
}

}  // namespace why

}  // namespace espalier
