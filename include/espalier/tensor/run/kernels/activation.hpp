// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/activation.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/math.hpp>

namespace espalier::detail {

struct exp_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::exp(a); }
};
struct log_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::log(a); }
};
struct sqrt_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::sqrt(a); }
};
struct rsqrt_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::rsqrt(a); }
};
struct tanh_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::tanh(a); }
};
struct sigmoid_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::sigmoid(a); }
};
/// A NaN stays one.
struct relu_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return a < T(0) ? T(0) : a; }
};
struct silu_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::silu(a); }
};
struct gelu_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::gelu(a); }
};
struct silu_slope_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    return kernels::silu_derivative(a);
  }
};
struct gelu_slope_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) {
    return kernels::gelu_derivative(a);
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::exp> : detail::elementwise_block<detail::exp_element> {};
template <> struct block_kernel<&ops::log> : detail::elementwise_block<detail::log_element> {};
template <> struct block_kernel<&ops::sqrt> : detail::elementwise_block<detail::sqrt_element> {};
template <> struct block_kernel<&ops::rsqrt> : detail::elementwise_block<detail::rsqrt_element> {};
template <> struct block_kernel<&ops::tanh> : detail::elementwise_block<detail::tanh_element> {};
template <> struct block_kernel<&ops::sigmoid> : detail::elementwise_block<detail::sigmoid_element> {};
template <> struct block_kernel<&ops::relu> : detail::elementwise_block<detail::relu_element> {};
template <> struct block_kernel<&ops::silu> : detail::elementwise_block<detail::silu_element> {};
template <> struct block_kernel<&ops::gelu> : detail::elementwise_block<detail::gelu_element> {};
template <> struct block_kernel<&ops::silu_slope> : detail::elementwise_block<detail::silu_slope_element> {};
template <> struct block_kernel<&ops::gelu_slope> : detail::elementwise_block<detail::gelu_slope_element> {};

}  // namespace espalier::kernels
