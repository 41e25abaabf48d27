// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>

#include <type_traits>

namespace espalier::detail {

/// Integers wrap around, and on truth values a sum is `or`, a product `and`: what storing the exact result as the
/// type gives.
struct add_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return static_cast<bool>(a | b);
    } else {
      return static_cast<T>(static_cast<wrapping_t<T>>(a) + static_cast<wrapping_t<T>>(b));
    }
  }
};
struct subtract_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a != b;
    } else {
      return static_cast<T>(static_cast<wrapping_t<T>>(a) - static_cast<wrapping_t<T>>(b));
    }
  }
};
struct multiply_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return static_cast<bool>(a & b);
    } else {
      return static_cast<T>(static_cast<wrapping_t<T>>(a) * static_cast<wrapping_t<T>>(b));
    }
  }
};
/// An integer divided by 0 gives 0, and the least one by -1 itself: padding must not trap.
struct divide_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>) {
      return a;
    } else if constexpr (!std::is_integral_v<T>) {
      return a / b;
    } else if constexpr (std::is_signed_v<T>) {
      const auto negative = static_cast<T>(wrapping_t<T>(0) - static_cast<wrapping_t<T>>(a));
      return b == 0 ? T(0) : b == -1 ? negative : static_cast<T>(a / b);
    } else {
      return b == 0 ? T(0) : static_cast<T>(a / b);
    }
  }
};
struct negate_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    if constexpr (std::is_same_v<T, bool>) {
      return a;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(wrapping_t<T>(0) - static_cast<wrapping_t<T>>(a));
    } else {
      return -a;
    }
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::add> : detail::elementwise_block<detail::add_elements> {};
template <> struct block_kernel<&ops::subtract> : detail::elementwise_block<detail::subtract_elements> {};
template <> struct block_kernel<&ops::multiply> : detail::elementwise_block<detail::multiply_elements> {};
template <> struct block_kernel<&ops::divide> : detail::elementwise_block<detail::divide_elements> {};
template <> struct block_kernel<&ops::negate> : detail::elementwise_block<detail::negate_element> {};

}  // namespace espalier::kernels
