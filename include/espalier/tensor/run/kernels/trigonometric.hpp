// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/trigonometric.hpp>
#include <espalier/tensor/run/kernels/exact_arithmetic.hpp>
#include <espalier/tensor/run/kernels/math.hpp>
#include <espalier/tensor/run/kernels/two_paths.hpp>

#include <cmath>

// float is computed in double, with shorter series: then nothing but the last rounding is lost. Series are polynomials
// through Chebyshev's nodes; errors quoted are the largest found.

namespace espalier::detail {

/// An angle of a turn's eighth, as high + low: what is left of `angle` when `quarters` quarter turns are taken away.
struct reduced_angle {
  double high;
  double low;
  /// Modulo 4, in the low bits.
  std::uint64_t quarters;
};

/// Larger angles are left to the C library, which knows 1200 digits of pi.
inline constexpr double greatest_usual_angle = 0x1p20;

/// angle in [0, 2^20]: pi / 2 is taken away in parts of 33 bits, whose multiples are exact (Cody and Waite).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr reduced_angle reduce_angle(double angle) {
  const double shifted = mul_add(angle, 0.63661977236758138, 0x1.8p52);
  const double n = shifted - 0x1.8p52;
  const double first = mul_add(-n, 0x1.921fb544p+0, angle);
  if constexpr (sizeof(T) == sizeof(float)) {
    // A float is never closer to a multiple than 2^-30.
    return {mul_add(-n, 0x1.0b4611a626331p-34, first), 0, to_bits(shifted)};
  } else {
    const two_parts second = two_sum(first, -n * 0x1.0b4611a6p-34);
    const two_parts third = two_sum(second.high, -n * 0x1.3198a2ep-69);
    const double rest = mul_add(-n, 0x1.b839a252049c1p-104, second.low + third.low);
    const double high = third.high + rest;
    return {high, (third.high - high) + rest, to_bits(shifted)};
  }
}

struct sine_and_cosine {
  double sine;
  double cosine;
};
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr sine_and_cosine of_reduced(const reduced_angle& a) {
  const double r = a.high;
  const double z = r * r;
  if constexpr (sizeof(T) == sizeof(float)) {
    const double sine =
        horner(z, -0.1666666666372105, 0.008333331822812816, -0.00019840058863568338, 2.7246332908640676e-06);
    const double cosine =
        horner(z, 0.04166666666420918, -0.0013888887628704352, 2.4800577114948624e-05, -2.729796043851432e-07);
    return {mul_add(z * r, sine, r), mul_add(z * z, cosine, mul_add(-0.5, z, 1.0))};
  } else {
    const double sine =
        horner(z, -0.16666666666666666, 0.008333333333333331, -0.00019841269841264778, 2.755731921911718e-06,
               -2.505210615578957e-08, 1.6058519539543833e-10, -7.585989217686428e-13);
    const double cosine = horner(z, 0.041666666666666664, -0.0013888888888887309, 2.480158729863089e-05,
                                 -2.755731720221659e-07, 2.0876131865438917e-09, -1.1381600803648663e-11);
    const double half = 0.5 * z;
    const double most = 1.0 - half;
    const double lost = (1.0 - most) - half;
    return {r + mul_add(z * r, sine, mul_add(-half, a.low, a.low)), most + (lost + mul_add(z * z, cosine, -r * a.low))};
  }
}

[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double blend_values(bool where, double chosen, double otherwise) {
  return from_bits<double>(blend(where, to_bits(chosen), to_bits(otherwise)));
}
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double magnitude_of(double x) {
  return from_bits<double>(to_bits(x) & ~float_format<double>::sign);
}
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr std::uint64_t sign_of(double x) {
  return to_bits(x) & float_format<double>::sign;
}

/// The base of the functions of an angle.
struct angle_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr bool is_usual(T x) {
    return magnitude_of(static_cast<double>(x)) <= greatest_usual_angle;
  }
};

/// Error <= 0.51 ulp (float), 0.8 ulp (double); odd exactly.
struct sin_element : angle_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T x) {
    const auto wide = static_cast<double>(x);
    const reduced_angle angle = reduce_angle<T>(magnitude_of(wide));
    const auto [sine, cosine] = of_reduced<T>(angle);
    const double value = blend_values((angle.quarters & 1U) != 0, cosine, sine);
    return static_cast<T>(from_bits<double>(to_bits(value) ^ sign_of(wide) ^ (angle.quarters >> 1U << 63U)));
  }
  template <class T> [[nodiscard]] static T exact(T x) { return static_cast<T>(std::sin(static_cast<double>(x))); }
};
/// Error <= 0.51 ulp (float), 0.8 ulp (double).
struct cos_element : angle_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T x) {
    const reduced_angle angle = reduce_angle<T>(magnitude_of(static_cast<double>(x)));
    const auto [sine, cosine] = of_reduced<T>(angle);
    const double value = blend_values((angle.quarters & 1U) != 0, sine, cosine);
    return static_cast<T>(from_bits<double>(to_bits(value) ^ ((angle.quarters + 1U) >> 1U << 63U)));
  }
  template <class T> [[nodiscard]] static T exact(T x) { return static_cast<T>(std::cos(static_cast<double>(x))); }
};
/// Error <= 0.51 ulp (float), 2.2 ulp (double); odd exactly.
struct tan_element : angle_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T x) {
    const auto wide = static_cast<double>(x);
    const reduced_angle angle = reduce_angle<T>(magnitude_of(wide));
    const auto [sine, cosine] = of_reduced<T>(angle);
    const bool odd = (angle.quarters & 1U) != 0;
    const double value = blend_values(odd, cosine, sine) / blend_values(odd, sine, cosine);
    return static_cast<T>(from_bits<double>(to_bits(value) ^ sign_of(wide) ^ (angle.quarters << 63U)));
  }
  template <class T> [[nodiscard]] static T exact(T x) { return static_cast<T>(std::tan(static_cast<double>(x))); }
};

/// (arctan(z) / z - 1) / z^2 for |z| <= tan(pi / 8), as a series in z^2.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double arctan_tail(double square) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return horner(square, -0.333333332792454, 0.19999977255439008, -0.14284151018362443, 0.11071361773577976,
                  -0.08624651922002546, 0.05048076007568571);
  } else {
    return horner(square, -0.3333333333333333, 0.19999999999999804, -0.14285714285659812, 0.11111111105153937,
                  -0.09090908753425743, 0.07692296372859808, -0.06666424846721739, 0.05878928549229719,
                  -0.052304509666811966, 0.045515781496647055, -0.034570174391823104, 0.01628532732275549);
  }
}

/// Error <= 0.51 ulp (float), 2.4 ulp (double).
struct atan2_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T y_of_type, T x_of_type) {
    constexpr std::uint64_t infinity = float_format<double>::infinity;
    const auto y = static_cast<double>(y_of_type);
    const auto x = static_cast<double>(x_of_type);
    const double up = magnitude_of(y);
    const double along = magnitude_of(x);
    const bool steep = up > along;
    double larger = blend_values(steep, up, along);
    double smaller = blend_values(steep, along, up);
    // Two infinities are as two ones, and no sum overflows.
    const bool unbounded = to_bits(larger) == infinity;
    const bool both = to_bits(smaller) == infinity;
    const double scale = blend_values(larger > 0x1p1000, 0.25, 1.0);
    smaller = blend_values(unbounded, blend_values(both, 1.0, 0.0), smaller * scale);
    larger = blend_values(unbounded | (larger == 0), 1.0, larger * scale);
    // arctan(s / l) = pi / 4 + arctan((s - l) / (s + l))
    const bool diagonal = smaller > 0.41421356237309503 * larger;
    const double ratio =
        blend_values(diagonal, smaller - larger, smaller) / blend_values(diagonal, smaller + larger, larger);
    const double square = ratio * ratio;
    const double angle = mul_add(ratio * square, arctan_tail<T>(square), ratio);
    // The result is `eighths` pi / 4, plus or minus that.
    double eighths = blend_values(diagonal, 1.0, 0.0);
    eighths = blend_values(steep, 2.0 - eighths, eighths);
    std::uint64_t turned = blend(steep, float_format<double>::sign, std::uint64_t{0});
    const bool backwards = sign_of(x) != 0;
    eighths = blend_values(backwards, 4.0 - eighths, eighths);
    turned ^= sign_of(x);
    // pi / 4 in 50 bits, of which multiples are exact, and the rest.
    const double rest = mul_add(eighths, 0x1.1a62633145c07p-55, from_bits<double>(to_bits(angle) ^ turned));
    const double total = mul_add(eighths, 0x1.921fb54442d18p-1, rest);
    std::uint64_t bits = to_bits(total) | sign_of(y);
    const bool either_nan = (y != y) | (x != x);
    bits |= blend(either_nan, ~std::uint64_t{0}, std::uint64_t{0});
    return static_cast<T>(from_bits<double>(bits));
  }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::sin> : detail::two_path_block<detail::sin_element> {};
template <> struct block_kernel<&ops::cos> : detail::two_path_block<detail::cos_element> {};
template <> struct block_kernel<&ops::tan> : detail::two_path_block<detail::tan_element> {};
template <> struct block_kernel<&ops::atan2> : detail::elementwise_block<detail::atan2_elements> {};

}  // namespace espalier::kernels
