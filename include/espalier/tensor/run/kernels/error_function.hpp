// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/error_function.hpp>
#include <espalier/tensor/run/kernels/exponential.hpp>

// float is computed in double, with shorter series, but for the inverse.

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

/// erf_inv(x) of |x| < 1 (M. Giles, "Approximating the erfinv function", GPU Computing Gems, 2012).
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr float erf_inv_inside(float x) {
  const float w = -kernels::log((1.0F - x) * (1.0F + x));
  const float near = horner(w - 2.5F, 1.50140941F, 0.246640727F, -0.00417768164F, -0.00125372503F, 0.00021858087F,
                            -4.39150654e-06F, -3.5233877e-06F, 3.43273939e-07F, 2.81022636e-08F);
  const float far = horner(kernels::sqrt(w) - 3.0F, 2.83297682F, 1.00167406F, 0.00943887047F, -0.0076224613F,
                           0.00573950773F, -0.00367342844F, 0.00134934322F, 0.000100950558F, -0.000200214257F);
  return x * from_bits<float>(blend(w < 5.0F, to_bits(near), to_bits(far)));
}
/// The same (M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988).
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double erf_inv_inside(double x) {
  const std::uint64_t sign = to_bits(x) & float_format<double>::sign;
  const double size = from_bits<double>(to_bits(x) ^ sign);
  const double middle = mul_add(-0.25 * size, size, 0.180625);
  const double tail = kernels::sqrt(-kernels::log(0.5 * (1.0 - size)));
  const bool is_near = size <= 0.85;
  const bool is_far = tail > 5.0;
  const auto choose = [=](double near, double between, double far) ESPALIER_ALWAYS_INLINE_BODY {
    return from_bits<double>(blend(is_near, to_bits(near), blend(is_far, to_bits(far), to_bits(between))));
  };
  const double above = choose(
      horner(middle, 3.3871328727963666080, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
             1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4, 3.3430575583588128105e+4,
             2.5090809287301226727e+3),
      horner(tail - 1.6, 1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
             1.27045825245236838258, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
      horner(tail - 5.0, 6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580,
             2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5,
             2.01033439929228813265e-7));
  const double below = choose(
      horner(middle, 1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
             2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4, 5.2264952788528545610e+3),
      horner(tail - 1.6, 1.0, 2.05319162663775882187, 1.67638483018380384940, 6.89767334985100004550e-1,
             1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
             1.05075007164441684324e-9),
      horner(tail - 5.0, 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
             7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
             2.04426310338993978564e-15));
  // These are quantiles of (1 + x) / 2: of half x in the middle, and of their variable itself outside.
  const double factor =
      from_bits<double>(blend(is_near, to_bits(0.35355339059327376220 * size), to_bits(0.70710678118654752440)));
  return from_bits<double>(to_bits(factor * (above / below)) | sign);
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

/// Error <= 4 ulp (float), 7 ulp (double); odd exactly, erf_inv(+-1) = +-inf, beyond NaN.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE T erf_inv(T x) {
  using format = detail::float_format<T>;
  const auto bits = detail::to_bits(x);
  const auto sign = static_cast<detail::float_bits<T>>(bits & format::sign);
  const auto size = static_cast<detail::float_bits<T>>(bits ^ sign);
  const auto infinity = static_cast<detail::float_bits<T>>(sign | format::infinity);
  const T inside = detail::erf_inv_inside(x);
  return detail::from_bits<T>(detail::blend(size == detail::to_bits(T(1)), infinity, detail::to_bits(inside)));
}

}  // namespace espalier::kernels

namespace espalier::detail {

struct erf_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a) { return kernels::erf(a); }
};
struct erfc_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a) { return kernels::erfc(a); }
};
struct erf_inv_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a) { return kernels::erf_inv(a); }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::erf> : detail::elementwise_block<detail::erf_element> {};
template <> struct block_kernel<&ops::erfc> : detail::elementwise_block<detail::erfc_element> {};
template <> struct block_kernel<&ops::erf_inv> : detail::elementwise_block<detail::erf_inv_element> {};

}  // namespace espalier::kernels
