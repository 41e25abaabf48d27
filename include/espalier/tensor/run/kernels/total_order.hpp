// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/total_order.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/math.hpp>

#include <type_traits>

namespace espalier::detail {

/// The place of a float in the total order, as an integer: of those below 0, the larger magnitude is the smaller.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr auto place_in_order(T a) {
  using place = std::make_signed_t<float_bits<T>>;
  const float_bits<T> raw = to_bits(a);
  const bool negative = (raw & float_format<T>::sign) != 0;
  const float_bits<T> turned = blend(negative, static_cast<float_bits<T>>(~float_format<T>::sign), float_bits<T>{0});
  return static_cast<place>(static_cast<float_bits<T>>(raw ^ turned));
}

struct total_less_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) {
    return place_in_order(a) < place_in_order(b);
  }
};
struct total_less_equal_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) {
    return place_in_order(a) <= place_in_order(b);
  }
};
struct total_equal_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) {
    return to_bits(a) == to_bits(b);
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::total_less> : detail::elementwise_block<detail::total_less_elements> {};
template <>
struct block_kernel<&ops::total_less_equal> : detail::elementwise_block<detail::total_less_equal_elements> {};
template <> struct block_kernel<&ops::total_equal> : detail::elementwise_block<detail::total_equal_elements> {};

}  // namespace espalier::kernels
