// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>

#include <type_traits>
#include <utility>

namespace espalier::detail {

template <class T>
inline constexpr bool is_character_type =
    std::is_same_v<T, char> || std::is_same_v<T, wchar_t> || std::is_same_v<T, char8_t> ||
    std::is_same_v<T, char16_t> || std::is_same_v<T, char32_t>;

/// NumPy's order of kinds: an element is converted without being asked to a type of its own kind or of a later one.
/// Characters are no numbers.
template <class T> [[nodiscard]] constexpr int kind_of_element() {
  if constexpr (std::is_same_v<T, bool>) {
    return 0;
  } else if constexpr (std::is_integral_v<T> && !is_character_type<T>) {
    return std::is_unsigned_v<T> ? 1 : 2;
  } else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return 3;
  } else {
    return -1;
  }
}
template <class From, class To>
inline constexpr bool converts_elements =
    kind_of_element<From>() >= 0 && kind_of_element<From>() <= kind_of_element<To>();

/// Whether a value of the one type is one of the other, perhaps rounded. @pre `converts_elements<From, To>`
template <class To, class From> [[nodiscard]] constexpr bool fits_element(From value) {
  if constexpr (std::is_integral_v<To> && std::is_integral_v<From> && !std::is_same_v<From, bool>) {
    return std::in_range<To>(value);
  } else {
    return true;
  }
}

/// @pre `converts_elements<From, To>` and `fits_element<To>(value)`
template <class To, class From> [[nodiscard]] constexpr To converted_element(From value) {
  if constexpr (std::is_same_v<From, bfloat16> || std::is_same_v<From, float16>) {
    return static_cast<To>(static_cast<computed_t<To>>(static_cast<float>(value)));
  } else {
    return static_cast<To>(static_cast<computed_t<To>>(value));
  }
}

}  // namespace espalier::detail
