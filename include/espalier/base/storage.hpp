// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

// Number formats that are only stored: their elements are computed with in another type, which each names as
// `computed`, converts to and is made from. `widened` is the conversion of many at once: of the bits of elements, in
// words or in vectors of words, the bits of the floats.

namespace espalier {

/// A brain-float in memory: the upper half of an IEEE float32, rounded to nearest even.
struct bfloat16 {
  using computed = float;
  std::uint16_t bits = 0;

  bfloat16() = default;
  constexpr explicit bfloat16(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (raw & 0x7fffffffU) > 0x7f800000U;
    // A NaN whose payload sits in the lower half would round to infinity: keep it quiet instead.
    bits = static_cast<std::uint16_t>(is_nan ? (raw >> 16U) | 0x40U : (raw + 0x7fffU + ((raw >> 16U) & 1U)) >> 16U);
  }
  [[nodiscard]] constexpr operator float() const {  // NOLINT(google-explicit-constructor): storage reads as float
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  template <class Floats, class Words>
  [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr Words widened(const Words& stored) {
    return stored << 16U;
  }
};

namespace detail {
/// All bits where a comparison of words, or of vectors of them, holds.
template <class Words, class Truth>
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr Words all_bits_where(const Truth& holds) {
  if constexpr (std::is_same_v<Truth, bool>) {
    return Words{0} - static_cast<Words>(holds);
  } else {
    return std::bit_cast<Words>(holds);
  }
}
}  // namespace detail

/// An IEEE binary16 in memory: 5 bits of exponent, 10 of mantissa, rounded to nearest even. Subnormals, infinities and
/// NaNs are kept in both directions, NaNs as quiet ones; from 65520 on, a float becomes an infinity: the bits that the
/// processor's instructions make (half_runs.hpp). Without branches, and without subnormal floats on the way, so that
/// loops over many become vectors that run at one speed for all values.
struct float16 {
  using computed = float;
  std::uint16_t bits = 0;

  float16() = default;
  constexpr explicit float16(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = raw & 0x7fffffffU;
    // A smaller exponent bias, rounded where the last 13 bits go; a carry into the exponent is right, too.
    const std::uint32_t normal = (size + 0xfffU + (size >> 13U & 1U) - (112U << 23U)) >> 13U;
    // Below 2^-14 the step stays 2^-24, and so is that of a float from 0.5 on: an addition rounds.
    const auto is_subnormal = detail::all_bits_where<std::uint32_t>(size < least_normal);
    const std::uint32_t small = size < least_normal ? size : least_normal;  // a minimum, which is no branch
    constexpr float half = 0.5F;
    const std::uint32_t subnormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(small) + half) - std::bit_cast<std::uint32_t>(half);
    const std::uint32_t finite = (subnormal & is_subnormal) | (normal & ~is_subnormal);
    // Masks and no choices: g++ 12 would make branches of them, around the addition. A NaN keeps what fits of its
    // payload, and is quiet.
    const auto is_beyond = detail::all_bits_where<std::uint32_t>(size >= 143U << 23U);
    const auto is_nan = detail::all_bits_where<std::uint32_t>(size > 0x7f800000U);
    const std::uint32_t special = 0x7c00U | (is_nan & (0x200U | (size >> 13U & 0x3ffU)));
    const std::uint32_t any = (special & is_beyond) | (finite & ~is_beyond);
    bits = static_cast<std::uint16_t>((raw >> 16U & 0x8000U) | any);
  }
  // Before its use: clang 14 to 19 evaluate no member template that they have not read.
  template <class Floats, class Words>
  [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr Words widened(const Words& stored) {
    const Words sign = (stored & 0x8000U) << 16U;
    const Words size = (stored & 0x7fffU) << 13U;
    // Infinities and NaNs have the highest exponent here and there.
    const Words is_special = detail::all_bits_where<Words>(size >= 0x7c00U << 13U);
    const Words normal = size + (112U << 23U) + (is_special & 112U << 23U);
    // With an exponent, a subnormal is 2^-14 too large.
    constexpr float excess = 0x1p-14F;
    const Words subnormal = std::bit_cast<Words>(std::bit_cast<Floats>(size + least_normal) - excess);
    const Words is_subnormal = detail::all_bits_where<Words>(size < 0x400U << 13U);
    const Words is_nan = detail::all_bits_where<Words>(size > 0x7c00U << 13U);
    return sign | (subnormal & is_subnormal) | (normal & ~is_subnormal) | (is_nan & 0x400000U);
  }
  [[nodiscard]] constexpr operator float() const {  // NOLINT(google-explicit-constructor): storage reads as float
    return std::bit_cast<float>(widened<float>(std::uint32_t{bits}));
  }

 private:
  /// The bits of 2^-14 as a float.
  static constexpr std::uint32_t least_normal = 113U << 23U;
};

/// The C++ type in which single elements of type T are computed: `T::computed` for a storage-only type, else T itself.
template <class T> struct computed { using type = T; };
template <class T>
  requires requires { typename T::computed; }
struct computed<T> {
  using type = typename T::computed;
};
template <class T> using computed_t = typename computed<T>::type;

/// The type in which sums and products of T are computed. An integer type becomes unsigned, so that it wraps around and
/// does not overflow; every other type stays as it is.
template <class T> struct wrapping { using type = T; };
template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct wrapping<T> {
  using type = std::make_unsigned_t<T>;
};
template <class T> using wrapping_t = typename wrapping<T>::type;

}  // namespace espalier
