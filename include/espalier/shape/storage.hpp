// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/shape/dtype.hpp>

#include <bit>
#include <cstdint>

namespace espalier {

/// A brain-float in memory: the upper half of an IEEE float32, rounded to nearest even.
struct bfloat16 {
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
};

template <dtype Type> struct storage;
template <> struct storage<dtype::f32> { using type = float; };
template <> struct storage<dtype::f64> { using type = double; };
template <> struct storage<dtype::bf16> { using type = bfloat16; };
template <> struct storage<dtype::i32> { using type = std::int32_t; };
template <> struct storage<dtype::boolean> { using type = bool; };

/// The C++ type that holds one element of `Type`.
template <dtype Type> using storage_t = typename storage<Type>::type;

template <class T> inline constexpr dtype dtype_of = T::no_such_dtype;
template <> inline constexpr dtype dtype_of<float> = dtype::f32;
template <> inline constexpr dtype dtype_of<double> = dtype::f64;
template <> inline constexpr dtype dtype_of<bfloat16> = dtype::bf16;
template <> inline constexpr dtype dtype_of<std::int32_t> = dtype::i32;
template <> inline constexpr dtype dtype_of<bool> = dtype::boolean;

}  // namespace espalier
