// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/extremum.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>

namespace espalier::detail {

struct less_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) { return a < b; }
};
struct less_equal_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) { return a <= b; }
};
struct equal_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) { return a == b; }
};
struct not_equal_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) { return a != b; }
};
// `&` and `|`, not `&&` and `||`: a branch in the body would keep the loop from being vectorised.
struct and_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) {
    return static_cast<bool>((a != T(0)) & (b != T(0)));
  }
};
struct or_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a, T b) {
    return static_cast<bool>((a != T(0)) | (b != T(0)));
  }
};
struct not_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool apply(T a) { return a == T(0); }
};
struct maximum_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) {
    return greater_of(a, b);
  }
};
struct minimum_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a, T b) { return lesser_of(a, b); }
};
struct select_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(bool condition, T yes, T no) {
    return condition ? yes : no;
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::less> : detail::elementwise_block<detail::less_elements> {};
template <> struct block_kernel<&ops::less_equal> : detail::elementwise_block<detail::less_equal_elements> {};
template <> struct block_kernel<&ops::equal> : detail::elementwise_block<detail::equal_elements> {};
template <> struct block_kernel<&ops::not_equal> : detail::elementwise_block<detail::not_equal_elements> {};
template <> struct block_kernel<&ops::logical_and> : detail::elementwise_block<detail::and_elements> {};
template <> struct block_kernel<&ops::logical_or> : detail::elementwise_block<detail::or_elements> {};
template <> struct block_kernel<&ops::logical_not> : detail::elementwise_block<detail::not_element> {};
template <> struct block_kernel<&ops::maximum> : detail::elementwise_block<detail::maximum_elements> {};
template <> struct block_kernel<&ops::minimum> : detail::elementwise_block<detail::minimum_elements> {};
template <> struct block_kernel<&ops::select> : detail::elementwise_block<detail::select_elements> {};

}  // namespace espalier::kernels
