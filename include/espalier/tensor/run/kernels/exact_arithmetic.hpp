// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

// Sums and products of doubles together with what rounding takes from them, without branches, so that they become
// vectors. Both parts are exact as long as nothing overflows, and no product's low part is subnormal.

namespace espalier::detail {

/// A number as the sum of two: `low` is less than the last place of `high`.
struct two_parts {
  double high;
  double low;
};

/// a + b (Knuth, TAOCP volume 2, section 4.2.2).
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr two_parts two_sum(double a, double b) {
  const double sum = a + b;
  const double from_b = sum - a;
  return {sum, (a - (sum - from_b)) + (b - from_b)};
}

/// a b: one fused operation tells what was rounded off; without it, products of half the digits do (Dekker 1971), and a
/// and b must stay below 2^996.
[[nodiscard]] ESPALIER_ALWAYS_INLINE two_parts two_product(double a, double b) {
  const double product = a * b;
#if defined(__FMA__)
  return {product, __builtin_fma(a, b, -product)};
#else
  constexpr double split = 0x1p27 + 1;
  const double a_turned = split * a;
  const double a_high = a_turned - (a_turned - a);
  const double a_low = a - a_high;
  const double b_turned = split * b;
  const double b_high = b_turned - (b_turned - b);
  const double b_low = b - b_high;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
#endif
}

}  // namespace espalier::detail
