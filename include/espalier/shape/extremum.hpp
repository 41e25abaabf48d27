// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

namespace espalier::detail {

/// The rule of every maximum and minimum: of two numbers `a` becomes the greater or the lesser, but a NaN if either is
/// one, as in NumPy. For scalars and for vectors of them, these by reference, since some are wider than a register;
/// without a branch, so that loops over scalars become vectors.
template <class V> ESPALIER_ALWAYS_INLINE constexpr void keep_greater(V& a, const V& b) {
  const V greater = a > b ? a : b;  // one instruction, which takes b where either is a NaN
  a = a != a ? a : greater;
}
template <class V> ESPALIER_ALWAYS_INLINE constexpr void keep_lesser(V& a, const V& b) {
  const V lesser = a < b ? a : b;
  a = a != a ? a : lesser;
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
