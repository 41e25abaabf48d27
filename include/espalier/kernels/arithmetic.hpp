// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/elementwise.hpp>
#include <espalier/ops/arithmetic.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// Integers wrap around, and on truth values a sum is `or`, a product `and`: what storing the exact result as the
/// type gives.
struct add_elements {
  static constexpr int arity = 2;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
    } else if constexpr (std::is_same_v<T, bool>) {
      return static_cast<bool>(a | b);
    } else {
      return a + b;
    }
  }
};
struct subtract_elements {
  static constexpr int arity = 2;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
    } else if constexpr (std::is_same_v<T, bool>) {
      return a != b;
    } else {
      return a - b;
    }
  }
};
struct multiply_elements {
  static constexpr int arity = 2;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
    } else if constexpr (std::is_same_v<T, bool>) {
      return static_cast<bool>(a & b);
    } else {
      return a * b;
    }
  }
};
/// An integer divided by 0 gives 0: padding must not trap.
struct divide_elements {
  static constexpr int arity = 2;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return b == 0 ? 0 : static_cast<T>(std::int64_t{a} / b);
    } else if constexpr (std::is_same_v<T, bool>) {
      return a;
    } else {
      return a / b;
    }
  }
};
struct negate_element {
  static constexpr int arity = 1;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return static_cast<T>(0U - static_cast<std::uint32_t>(a));
    } else if constexpr (std::is_same_v<T, bool>) {
      return a;
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
