// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/math.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

/// Tools with which tests measure the errors of functions.
namespace kernels_math_checks {

template <class T> inline constexpr T infinity = std::numeric_limits<T>::infinity();
template <class T> inline constexpr T not_a_number = std::numeric_limits<T>::quiet_NaN();

// The reference is one format wider, so that its own error does not count.
template <class T> struct wider;
template <> struct wider<float> { using type = double; };
template <> struct wider<double> { using type = long double; };
template <class T> using wider_t = typename wider<T>::type;

/// |got - expected| in units of the last place of T at `expected`; subnormals have the spacing of the smallest normal.
template <class T> double ulps(T got, wider_t<T> expected) {
  const T rounded = static_cast<T>(expected);
  if (std::isnan(rounded) || std::isnan(got)) return std::isnan(rounded) && std::isnan(got) ? 0.0 : infinity<double>;
  if (std::isinf(rounded) || std::isinf(got)) return rounded == got ? 0.0 : infinity<double>;
  int exponent = 0;
  std::frexp(expected, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  const wider_t<T> spacing = std::ldexp(wider_t<T>(1), exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<wider_t<T>>(got) - expected) / spacing);
}

template <class T> std::vector<T> spread(T low, T high, int count) {
  std::vector<T> x;
  const T step = (high - low) / static_cast<T>(count);
  for (int i = 0; i <= count; ++i) x.push_back(low + step * static_cast<T>(i));
  return x;
}

/// Positive numbers of every magnitude, subnormals included.
template <class T> std::vector<T> all_magnitudes(int count) {
  using bits = espalier::detail::float_bits<T>;
  const bits step = espalier::detail::float_format<T>::infinity / static_cast<bits>(count);
  std::vector<T> x;
  for (int i = 1; i < count; ++i) x.push_back(std::bit_cast<T>(static_cast<bits>(step * static_cast<bits>(i) + 1U)));
  return x;
}

#if defined(__FMA__)
inline constexpr double slack = 0.0;
#else
inline constexpr double slack = 1.0;
#endif

}  // namespace kernels_math_checks
