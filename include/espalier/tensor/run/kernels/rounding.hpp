// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/rounding.hpp>
#include <espalier/tensor/run/kernels/exact_arithmetic.hpp>
#include <espalier/tensor/run/kernels/math.hpp>
#include <espalier/tensor/run/kernels/two_paths.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// Every number of at least this magnitude is whole: 2^23 in float, 2^52 in double.
template <class T> inline constexpr T all_whole = float_format<T>::to_integer / T(1.5);

/// 1 where a condition holds, else 0, without control flow.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T one_where(bool condition) {
  return from_bits<T>(blend(condition, to_bits(T(1)), float_bits<T>{0}));
}

/// Below `all_whole`, adding it leaves no room for a fraction: it rounds to nearest even. NaN and infinities stay.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T to_nearest(T x) {
  using bits = float_bits<T>;
  const bits sign = to_bits(x) & float_format<T>::sign;
  const T size = from_bits<T>(static_cast<bits>(to_bits(x) ^ sign));
  const T rounded = (size + all_whole<T>)-all_whole<T>;
  return from_bits<T>(static_cast<bits>(blend(size < all_whole<T>, to_bits(rounded), to_bits(size)) | sign));
}
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T to_lower(T x) {
  const T nearest = to_nearest(x);
  return nearest - one_where<T>(nearest > x);
}
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T to_zero(T x) {
  using bits = float_bits<T>;
  const bits sign = to_bits(x) & float_format<T>::sign;
  return from_bits<T>(static_cast<bits>(to_bits(to_lower(from_bits<T>(static_cast<bits>(to_bits(x) ^ sign)))) | sign));
}

struct floor_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return to_lower(a); }
};
struct ceil_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return -to_lower(-a); }
};
struct trunc_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return to_zero(a); }
};
struct round_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return to_nearest(a); }
};

/// Exact. Of floats, a quotient that a double holds to the unit tells how often the divisor goes; others, zeros and
/// infinities are the C library's.
struct remainder_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool is_usual(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const double dividend = magnitude(a);
      const double divisor = magnitude(b);
      // Of floats, a quotient that is no whole number is then at least 2^-52 of it away from one.
      constexpr double most = std::is_same_v<T, float> ? 0x1p28 : 0x1p20;
      constexpr double least_divisor = std::is_same_v<T, float> ? 0x1p-149 : 0x1p-900;
      constexpr double most_divisor = std::is_same_v<T, float> ? 0x1p127 : 0x1p900;
      return (dividend <= divisor * most) & (divisor >= least_divisor) & (divisor <= most_divisor);
    } else {
      return true;
    }
  }
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const double dividend = magnitude(a);
      const double divisor = magnitude(b);
      const double count = to_lower(dividend / divisor);
      double rest = 0;
      if constexpr (std::is_same_v<T, float>) {
        rest = dividend - count * divisor;
      } else {
        const two_parts taken = two_product(count, divisor);
        rest = (dividend - taken.high) - taken.low;
        // The quotient may have been rounded up to a whole number.
        rest += from_bits<double>(blend(rest < 0, to_bits(divisor), std::uint64_t{0}));
      }
      const std::uint64_t sign = to_bits(static_cast<double>(a)) & float_format<double>::sign;
      return static_cast<T>(from_bits<double>(to_bits(rest) | sign));
    } else if constexpr (sizeof(T) <= sizeof(std::int32_t)) {
      // There is no vector division of integers, and doubles hold all of these. By 0 or -1 is as by 1, since the
      // quotient could overflow; masks choose, so that nothing is computed in a branch.
      using word = std::make_unsigned_t<T>;
      const bool by_nothing = b == 0;
      const bool by_minus_one = std::is_signed_v<T> & (b == static_cast<T>(-1));
      const auto divisor = static_cast<T>(blend<word>(by_nothing | by_minus_one, word{1}, static_cast<word>(b)));
      const auto count = static_cast<T>(static_cast<double>(a) / static_cast<double>(divisor));
      const auto rest = static_cast<word>(a - count * divisor);
      return static_cast<T>(blend<word>(by_nothing, static_cast<word>(a), rest));
    } else {
      const bool trivial = (b == 0) | (std::is_signed_v<T> & (b == static_cast<T>(-1)));
      const T rest = static_cast<T>(a % (trivial ? T(1) : b));
      return b == 0 ? a : rest;
    }
  }
  template <class T> [[nodiscard]] static T exact(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      return apply(a, b);
    }
  }

 private:
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr double magnitude(T x) {
    return from_bits<double>(to_bits(static_cast<double>(x)) & ~float_format<double>::sign);
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::floor> : detail::elementwise_block<detail::floor_element> {};
template <> struct block_kernel<&ops::ceil> : detail::elementwise_block<detail::ceil_element> {};
template <> struct block_kernel<&ops::trunc> : detail::elementwise_block<detail::trunc_element> {};
template <> struct block_kernel<&ops::round> : detail::elementwise_block<detail::round_element> {};
template <> struct block_kernel<&ops::remainder> : detail::two_path_block<detail::remainder_elements> {};

}  // namespace espalier::kernels
