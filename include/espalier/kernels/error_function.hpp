// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/exponential.hpp>
#include <espalier/ops/error_function.hpp>

// float is computed in double, with shorter series.

namespace espalier::detail {

/// erf(x) / x - 1 for |x| <= 1, as a series in x^2.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double erf_tail(double square) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return horner(square, 0.12837916706154343, -0.3761263846802871, 0.11283782495236845, -0.026865430727670243,
                  0.005221031807858023, -0.0008484080405535107, 0.00011265959025606609, -9.667044571486996e-06);
  } else {
    return horner(square, 0.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792,
                  0.0052239776248180145, -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05,
                  1.6461000484121368e-06, -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09,
                  5.957176147748911e-11);
  }
}

/// (1 + 2 x) e^(x^2) erfc(x) for all x >= 0 that matter, as a series in (x - c) / (x + c), which maps them to [-1, 1)
/// (Shepherd and Laframboise, Mathematics of Computation 36, 1981).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double erfc_series(double x) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return horner((x - 3.0) / (x + 3.0), 1.2530080582388305, -0.13562110689859255, -0.0475622904593603,
                  0.12964520228507312, -0.11927372190842343, 0.06830731905508453, -0.02377057636314501,
                  0.002534043936642424, 0.0018930030013616936, -0.0007918784296321018, -0.00012593659144500917,
                  0.0001289865495193801, 3.4030573838876466e-05);
  } else {
    return horner((x - 4.0) / (x + 4.0), 1.2329951186255526, -0.13962111684056253, 0.015379652102619577,
                  0.06809705425469348, -0.1010390660362956, 0.0937328349983214, -0.06633036581238866,
                  0.03716751553792265, -0.016197734056192747, 0.005031969974293165, -0.0007577732964763434,
                  -0.00019925667587989877, 0.00015062169605217738, -2.4399274806735163e-05, -1.122205415946788e-05,
                  5.70985344176465e-06, 2.938175156873787e-07, -8.255610031719535e-07, 7.464016908895004e-08,
                  1.1011918537215051e-07, -1.7920360316356552e-08, -1.4096503348569252e-08, 1.8368212617851957e-09,
                  1.2537550125450752e-09);
  }
}

/// erfc(x) of x >= 0.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE double erfc_above(double x) {
  x = at_most(x, 30.0);  // where it has long become 0
  const double factor = erfc_series<T>(x) / mul_add(2.0, x, 1.0);
  // The square in two parts: the exponential turns its absolute error into a relative one.
  two_parts square{x * x, 0};
  if constexpr (sizeof(T) != sizeof(float)) square = two_product(x, x);
  return scaled_exp(factor, {-square.high, -square.low});
}

}  // namespace espalier::detail

namespace espalier::kernels {

/// Error <= 0.51 ulp (float), 1.4 ulp (double); odd exactly, erf(+-inf) = +-1.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE T erf(T x) {
  constexpr std::uint64_t sign = detail::float_format<double>::sign;
  const auto wide = static_cast<double>(x);
  const double size = detail::from_bits<double>(detail::to_bits(wide) & ~sign);
  const double near = detail::mul_add(size, detail::erf_tail<T>(size * size), size);
  const double far = 1.0 - detail::erfc_above<T>(size);
  const std::uint64_t bits = detail::blend(size < 1.0, detail::to_bits(near), detail::to_bits(far));
  return static_cast<T>(detail::from_bits<double>(bits | (detail::to_bits(wide) & sign)));
}

/// Error <= 0.51 ulp (float), 4 ulp (double), subnormal results included; erfc(-inf) = 2, erfc(+inf) = 0.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE T erfc(T x) {
  constexpr std::uint64_t sign = detail::float_format<double>::sign;
  const auto wide = static_cast<double>(x);
  const std::uint64_t bits = detail::to_bits(wide);
  const double size = detail::from_bits<double>(bits & ~sign);
  const double near = 1.0 - detail::mul_add(wide, detail::erf_tail<T>(size * size), wide);
  const double above = detail::erfc_above<T>(size);
  const bool negative = (bits & sign) != 0;
  const std::uint64_t far = detail::blend(negative, detail::to_bits(2.0 - above), detail::to_bits(above));
  return static_cast<T>(detail::from_bits<double>(detail::blend(size < 0.5, detail::to_bits(near), far)));
}

}  // namespace espalier::kernels

namespace espalier::detail {

struct erf_element {
  static constexpr int arity = 1;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a) { return kernels::erf(a); }
};
struct erfc_element {
  static constexpr int arity = 1;
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a) { return kernels::erfc(a); }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::erf> : detail::elementwise_block<detail::erf_element> {};
template <> struct block_kernel<&ops::erfc> : detail::elementwise_block<detail::erfc_element> {};

}  // namespace espalier::kernels
