// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

// std::min, std::max and std::clamp, of numbers only: `<algorithm>`, where they are declared, is a sixth of what
// core.hpp costs to include.

template <class T> [[nodiscard]] constexpr T smaller_of(T a, T b) { return b < a ? b : a; }
template <class T> [[nodiscard]] constexpr T smaller_of(T a, T b, T c) { return smaller_of(smaller_of(a, b), c); }
template <class T> [[nodiscard]] constexpr T larger_of(T a, T b) { return a < b ? b : a; }
/// @pre least <= most
template <class T> [[nodiscard]] constexpr T clamped(T value, T least, T most) {
  return value < least ? least : most < value ? most : value;
}

}  // namespace espalier::detail
