// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

namespace espalier::comm::detail {

/// Products of two capacities must not overflow.
__extension__ using int128 = __int128;

[[nodiscard]] constexpr int128 greatest_common_divisor(int128 a, int128 b) {
  while (b != 0) {
    const int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

[[nodiscard]] constexpr bool fits(int128 value) {
  return value <= std::numeric_limits<std::int64_t>::max() && value >= std::numeric_limits<std::int64_t>::min();
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// A non-negative fraction in lowest terms. Arithmetic is exact, or throws `std::overflow_error`.
struct fraction {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;

  friend constexpr bool operator==(const fraction&, const fraction&) = default;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

[[nodiscard]] constexpr std::optional<fraction> try_fraction(int128 numerator, int128 denominator) {
  if (denominator == 0) return std::nullopt;
  const int128 divisor = greatest_common_divisor(numerator, denominator);
  numerator /= divisor;
  denominator /= divisor;
  if (!fits(numerator) || !fits(denominator)) return std::nullopt;
  return fraction{static_cast<std::int64_t>(numerator), static_cast<std::int64_t>(denominator)};
}

[[nodiscard]] constexpr fraction make_fraction(int128 numerator, int128 denominator) {
  const auto value = try_fraction(numerator, denominator);
  if (!value) throw std::overflow_error("a fraction beyond 64 bits: scale the capacities down");
  return *value;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

[[nodiscard]] constexpr fraction operator+(const fraction& a, const fraction& b) {
  using detail::int128;
  // The sum is taken over the least common multiple: sums of equal denominators must not overflow.
  const std::int64_t common = std::gcd(a.denominator, b.denominator);
  return detail::make_fraction(
      int128{a.numerator} * (b.denominator / common) + int128{b.numerator} * (a.denominator / common),
      int128{a.denominator / common} * b.denominator);
}

/// @pre a >= b
/// @post (a - b) + b == a
[[nodiscard]] constexpr fraction operator-(const fraction& a, const fraction& b) {
  return a + fraction{-b.numerator, b.denominator};
}

[[nodiscard]] constexpr fraction operator*(const fraction& a, const fraction& b) {
  // Cross-wise in lowest terms first, so that products overflow only if the result does.
  const fraction left = detail::make_fraction(a.numerator, b.denominator);
  const fraction right = detail::make_fraction(b.numerator, a.denominator);
  return detail::make_fraction(detail::int128{left.numerator} * right.numerator,
                               detail::int128{left.denominator} * right.denominator);
}

/// @pre b > 0
/// @post (a / b) * b == a
[[nodiscard]] constexpr fraction operator/(const fraction& a, const fraction& b) {
  return a * fraction{b.denominator, b.numerator};
}

[[nodiscard]] constexpr std::strong_ordering operator<=>(const fraction& a, const fraction& b) {
  const detail::int128 left = detail::int128{a.numerator} * b.denominator;
  const detail::int128 right = detail::int128{b.numerator} * a.denominator;
  return left < right   ? std::strong_ordering::less
         : left > right ? std::strong_ordering::greater
                        : std::strong_ordering::equal;
}

[[nodiscard]] constexpr double to_double(const fraction& a) {
  return static_cast<double>(a.numerator) / static_cast<double>(a.denominator);
}

/// "24/7", "6".
[[nodiscard]] inline std::string to_string(const fraction& a) {
  return a.denominator == 1 ? std::to_string(a.numerator)
                            : std::to_string(a.numerator) + "/" + std::to_string(a.denominator);
}

/// The largest fraction that divides both: 6/7 of 6 and 24/7.
/// @pre one of them > 0
/// @post a and b are whole multiples of it, and those two numbers have no common divisor
[[nodiscard]] constexpr fraction common_divisor(const fraction& a, const fraction& b) {
  using detail::int128;
  return detail::make_fraction(
      detail::greatest_common_divisor(int128{a.numerator} * b.denominator, int128{b.numerator} * a.denominator),
      int128{a.denominator} * b.denominator);
}

}  // namespace espalier::comm
