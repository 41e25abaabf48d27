// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/magnitude.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/math.hpp>

#include <type_traits>

namespace espalier::detail {

struct abs_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    if constexpr (std::is_floating_point_v<T>) {
      return from_bits<T>(static_cast<float_bits<T>>(to_bits(a) & ~float_format<T>::sign));
    } else if constexpr (std::is_signed_v<T>) {
      // Of the least integer there is no opposite: it wraps around.
      using word = std::make_unsigned_t<T>;
      const auto opposite = static_cast<T>(static_cast<word>(word{0} - static_cast<word>(a)));
      return a < 0 ? opposite : a;
    } else {
      return a;
    }
  }
};
struct sign_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    if constexpr (std::is_floating_point_v<T>) {
      const float_bits<T> raw = to_bits(a);
      const float_bits<T> size = raw & ~float_format<T>::sign;
      const bool is_number = (size != 0) & (size <= float_format<T>::infinity);
      return from_bits<T>(blend(is_number, (raw & float_format<T>::sign) | to_bits(T(1)), raw));
    } else {
      return static_cast<T>((a > T(0) ? 1 : 0) - (a < T(0) ? 1 : 0));
    }
  }
};
struct is_finite_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a) {
    return from_bits<T>(to_bits(a) & ~float_format<T>::sign) < from_bits<T>(float_format<T>::infinity);
  }
};
struct clamp_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T low, T a, T high) {
    if constexpr (std::is_floating_point_v<T>) {
      // The rule of base/extremum.hpp, with masks: of one choice that depends on the other g++ makes four.
      const T raised = from_bits<T>(blend(a != a, to_bits(a), to_bits(a > low ? a : low)));
      return from_bits<T>(blend(raised != raised, to_bits(raised), to_bits(raised < high ? raised : high)));
    } else {
      return lesser_of(greater_of(a, low), high);
    }
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::abs> : detail::elementwise_block<detail::abs_element> {};
template <> struct block_kernel<&ops::sign> : detail::elementwise_block<detail::sign_element> {};
template <> struct block_kernel<&ops::is_finite> : detail::elementwise_block<detail::is_finite_element> {};
template <> struct block_kernel<&ops::clamp> : detail::elementwise_block<detail::clamp_elements> {};

}  // namespace espalier::kernels
