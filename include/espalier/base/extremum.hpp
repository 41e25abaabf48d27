// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <type_traits>
#include <utility>

namespace espalier::detail {

/// Whether a scalar, or the elements of a vector, are integers.
template <class V> [[nodiscard]] constexpr bool holds_integers() {
  if constexpr (requires(const V& v) { v[0]; }) {
    return std::is_integral_v<std::remove_cvref_t<decltype(std::declval<const V&>()[0])>>;
  } else {
    return std::is_integral_v<V>;
  }
}

/// The rule of every maximum and minimum: of two numbers `a` becomes the greater or the lesser, but a NaN if either is
/// one, as in NumPy. For scalars and for vectors of them, these by reference, since some are wider than a register;
/// without a branch, so that loops over scalars become vectors.
template <class V> ESPALIER_ALWAYS_INLINE constexpr void keep_greater(V& a, const V& b) {
  const V greater = a > b ? a : b;  // one instruction, which takes b where either is a NaN
  if constexpr (holds_integers<V>()) {
    a = greater;
  } else {
    a = a != a ? a : greater;
  }
}
template <class V> ESPALIER_ALWAYS_INLINE constexpr void keep_lesser(V& a, const V& b) {
  const V lesser = a < b ? a : b;
  if constexpr (holds_integers<V>()) {
    a = lesser;
  } else {
    a = a != a ? a : lesser;
  }
}
template <class V> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr V greater_of(V a, const V& b) {
  keep_greater(a, b);
  return a;
}
template <class V> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr V lesser_of(V a, const V& b) {
  keep_lesser(a, b);
  return a;
}

}  // namespace espalier::detail
