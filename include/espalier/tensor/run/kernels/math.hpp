// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

// Elementary functions that GCC and Clang vectorise inside a plain loop, without -ffast-math and without a vector
// library: straight-line code, no table, no errno, no call. `constexpr`, so a fold at compile time and the loop at run
// time share one definition, and a lane's result does not depend on its position in the vector.
//
// Rules that keep them vectorisable (each measured on g++ 12, clang 14 and clang 19):
// * A special value is merged in with an integer mask, never chosen by `?:` over a computed float. GCC sinks the
//   computation into one arm of such a choice, and may then not flatten it again because it could trap.
// * Integer exponents become floats by a magic constant: AVX2 has no int64 -> double conversion.
// * `a * b + c` stays one expression, so that Clang contracts it to an FMA as GCC does (-ffp-contract's defaults).
// Errors quoted are the largest found with FMA; without it they grow by at most 1 ulp.

namespace espalier::detail {

/// The layout of a floating-point format and the constants that its functions need.
template <class T> struct float_format;

template <> struct float_format<float> {
  using bits = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr bits sign = 0x80000000U;
  static constexpr bits infinity = 0x7f800000U;
  static constexpr bits quiet_nan = 0x7fc00000U;
  static constexpr bits lift_below = (127U - 72U) << 23U;  // 2^-72: leaves room for the residual of a square root
  static constexpr bits sqrt_half = 0x3f3504f3U;
  static constexpr bits rsqrt_seed = 0x5f3759dfU;
  static constexpr int rsqrt_steps = 2;
  static constexpr bits bias = 127U;
  static constexpr float to_integer = 0x1.8p23F;  // adding it rounds to an integer held in the low mantissa bits
  static constexpr float exp_lowest = -104.0F;    // below 150 * ln 2 everything rounds to 0
  static constexpr float exp_highest = 89.0F;
  static constexpr float scale_lowest = -88.0F;  // from here on the bits of 2^n are those of a normal number or of 0
  static constexpr float tanh_highest = 10.0F;   // beyond 9.02, tanh rounds to 1
  static constexpr float log2_e = 1.44269504F;
  static constexpr float ln2_high = 0.693359375F;  // 9 bits: times an exponent it is exact
  static constexpr float ln2_low = -2.12194440e-4F;
  static constexpr float up = 0x1p72F;  // what lifts a tiny or subnormal argument
  static constexpr int up_exponent = 72;
  static constexpr float up_root = 0x1p36F;
};

template <> struct float_format<double> {
  using bits = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr bits sign = 0x8000000000000000U;
  static constexpr bits infinity = 0x7ff0000000000000U;
  static constexpr bits quiet_nan = 0x7ff8000000000000U;
  static constexpr bits lift_below = bits{1023 - 800} << 52U;
  static constexpr bits sqrt_half = 0x3fe6a09e667f3bcdU;
  static constexpr bits rsqrt_seed = 0x5fe6eb50c7b537a9U;
  static constexpr int rsqrt_steps = 3;
  static constexpr bits bias = 1023U;
  static constexpr double to_integer = 0x1.8p52;
  static constexpr double exp_lowest = -746.0;
  static constexpr double exp_highest = 710.0;
  static constexpr double scale_lowest = -709.0;
  static constexpr double tanh_highest = 20.0;
  static constexpr double log2_e = 1.4426950408889634074;
  static constexpr double ln2_high = 6.93147180369123816490e-01;  // 33 bits
  static constexpr double ln2_low = 1.90821492927058770002e-10;
  static constexpr double up = 0x1p160;
  static constexpr int up_exponent = 160;
  static constexpr double up_root = 0x1p80;
};

template <class T> using float_bits = typename float_format<T>::bits;

template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr float_bits<T> to_bits(T x) {
  return std::bit_cast<float_bits<T>>(x);
}

template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T from_bits(float_bits<T> bits) {
  return std::bit_cast<T>(bits);
}

[[nodiscard]] ESPALIER_ALWAYS_INLINE float hardware_sqrt(float x) { return __builtin_sqrtf(x); }
[[nodiscard]] ESPALIER_ALWAYS_INLINE double hardware_sqrt(double x) { return __builtin_sqrt(x); }

template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T mul_add(T a, T b, T c) { return a * b + c; }

/// `c0 + x * (c1 + x * (c2 + ...))`.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T horner(T, T c0) { return c0; }
template <class T, class... Rest>
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T horner(T x, T c0, T c1, Rest... rest) {
  return horner(x, c1, rest...) * x + c0;
}

/// `where ? chosen : otherwise` without control flow.
template <class Bits>
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr Bits blend(bool where, Bits chosen, Bits otherwise) {
  const Bits mask = static_cast<Bits>(0) - static_cast<Bits>(where);
  return (chosen & mask) | (otherwise & ~mask);
}

/// max(x, limit) and min(x, limit) that let a NaN through. With `?:`, GCC specialises what follows for x == limit and
/// then runs both versions under masks (measured on sigmoid: three divisions).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T at_least(T x, T limit) {
  return from_bits<T>(blend(x < limit, to_bits(limit), to_bits(x)));
}
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T at_most(T x, T limit) {
  return from_bits<T>(blend(x > limit, to_bits(limit), to_bits(x)));
}

/// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2: minimax in the relative error of e^r - 1 (float 1.5e-8, double 2.2e-17).
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr float exp_tail(float r) {
  return horner(r, 0.5F, 0.16666545F, 0.0416662917F, 0.00836636592F, 0.00139460235F);
}
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double exp_tail(double r) {
  return horner(r, 0.5000000000000004, 0.16666666666666685, 0.041666666666584216, 0.008333333333315807,
                0.0013888888929725729, 0.00019841269900740664, 2.4801507019639247e-05, 2.7557229733836135e-06,
                2.762547524001016e-07, 2.5113982331697454e-08);
}
/// -2 times that of r = -2 s, of s: powers of two change no digit.
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr float exp_tail_of_half(float s) {
  return horner(s, -2 * 0.5F, 4 * 0.16666545F, -8 * 0.0416662917F, 16 * 0.00836636592F, -32 * 0.00139460235F);
}
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double exp_tail_of_half(double s) {
  return horner(s, -2 * 0.5000000000000004, 4 * 0.16666666666666685, -8 * 0.041666666666584216,
                16 * 0.008333333333315807, -32 * 0.0013888888929725729, 64 * 0.00019841269900740664,
                -128 * 2.4801507019639247e-05, 256 * 2.7557229733836135e-06, -512 * 2.762547524001016e-07,
                1024 * 2.5113982331697454e-08);
}

/// x = n ln 2 + r with |r| <= ln 2 / 2; `scale_bits` holds n + 2 * bias in its low bits, or n + `Lift` * bias.
template <class T> struct reduced {
  T remainder;
  float_bits<T> scale_bits;
};

template <class T, int Lift = 2> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr reduced<T> reduce_by_ln2(T x) {
  using format = float_format<T>;
  // Twice the bias is added to the rounding constant itself, so that n arrives positive and plain shifts suffice. With
  // the bias once, the bits of 2^n are one shift away, of n >= -bias.
  constexpr T round = format::to_integer + static_cast<T>(Lift * static_cast<int>(format::bias));
  const T shifted = mul_add(x, format::log2_e, round);
  const T n = shifted - round;
  const T high = mul_add(-n, format::ln2_high, x);
  return {mul_add(-n, format::ln2_low, high), to_bits(shifted)};
}

/// -2 x = n ln 2 - 2 s, for x >= 0; `scale_bits` holds n + bias in its low bits.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr reduced<T> reduce_by_half_ln2(T x) {
  using format = float_format<T>;
  constexpr T round = format::to_integer + static_cast<T>(format::bias);
  const T shifted = mul_add(x, T(-2) * format::log2_e, round);
  const T n = shifted - round;
  const T high = mul_add(n, format::ln2_high / 2, x);
  return {mul_add(n, format::ln2_low / 2, high), to_bits(shifted)};
}

/// log(1 + f) + exponent * ln 2, for f in [sqrt(1/2) - 1, sqrt(2) - 1].
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr float log_of_parts(float exponent, float f) {
  const float square = f * f;
  const float tail = horner(f, 0.333333164F, -0.250007838F, 0.200022772F, -0.166253746F, 0.141816646F, -0.131219387F,
                            0.128767177F, -0.0787103474F);
  float y = f * square * tail;
  y = mul_add(exponent, float_format<float>::ln2_low, y);
  y = mul_add(-0.5F, square, y);
  return mul_add(exponent, float_format<float>::ln2_high, f + y);
}
// With s = f / (2 + f), log(1 + f) = 2 atanh(s): half the terms of a plain series, for one division (as in fdlibm).
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double log_of_parts(double exponent, double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double tail = z * horner(z, 0.6666666666666698, 0.39999999999611885, 0.28571428703866486, 0.2222220213956896,
                                 0.1818339415573721, 0.15318097099447398, 0.14757974842940844);
  const double half_square = 0.5 * f * f;
  const double low = mul_add(exponent, float_format<double>::ln2_low, s * (half_square + tail));
  return mul_add(exponent, float_format<double>::ln2_high, f - (half_square - low));
}

/// 1 / sqrt(x) of a normal positive x, about 1 ulp: an integer guess (error 3.5 %), then steps that cube the error.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T rsqrt_normal(T x) {
  using format = float_format<T>;
  T y = from_bits<T>(format::rsqrt_seed - (to_bits(x) >> 1U));
  const auto step = [&y, x]() {
    const T error = mul_add(-(x * y), y, T(1));
    y = mul_add(y * error, mul_add(T(0.375), error, T(0.5)), y);
  };
  step();
  step();
  if constexpr (format::rsqrt_steps == 3) step();
  return y;
}

}  // namespace espalier::detail

namespace espalier::kernels {

/// e^x. Error <= 1.1 ulp (float), 1.1 ulp (double), subnormal results included; exp(-inf) = 0, overflow gives +inf.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T exp(T x) {
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const bool vanishes = x < format::exp_lowest;
  x = detail::at_least(x, format::exp_lowest);
  x = detail::at_most(x, format::exp_highest);
  const auto [r, scale] = detail::reduce_by_ln2(x);
  const T nonzero = detail::mul_add(r * r, detail::exp_tail(r), r) + T(1);
  // Masked scores come here in great numbers, and a product that underflows takes as long as twenty others.
  const T mantissa = detail::from_bits<T>(detail::blend(vanishes, bits{0}, detail::to_bits(nonzero)));
  // 2^n in two factors: n spans more than the exponent field, and the last product alone rounds (or overflows).
  const auto half = static_cast<detail::float_bits<T>>((scale >> 1U) << format::mantissa_bits);
  const auto rest = static_cast<detail::float_bits<T>>((scale << format::mantissa_bits) - half);
  return mantissa * detail::from_bits<T>(half) * detail::from_bits<T>(rest);
}

/// Natural logarithm. Error <= 1 ulp (float and double), subnormal arguments included.
/// log(+-0) = -inf, log(+inf) = +inf, log(negative) = NaN.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T log(T x) {
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const bits raw = detail::to_bits(x);
  const bool tiny = raw < format::lift_below;
  const T scaled = x * detail::from_bits<T>(detail::blend(tiny, detail::to_bits(format::up), detail::to_bits(T(1))));
  const bits normal = detail::to_bits(scaled);
  // The exponent goes up by `lift`, so that its shift need not be arithmetic (AVX2 has none for 64 bits).
  constexpr bits lift = 2 * (format::bias + 1);
  const auto shifted = static_cast<bits>(normal - format::sqrt_half + (lift << format::mantissa_bits));
  const bits exponent_bits = shifted >> format::mantissa_bits;
  const auto f =
      detail::from_bits<T>(static_cast<bits>(normal - ((exponent_bits - lift) << format::mantissa_bits))) - T(1);
  constexpr T two_to_mantissa = format::to_integer / T(1.5);
  const T lifted = detail::from_bits<T>(exponent_bits | detail::to_bits(two_to_mantissa));
  const T correction =
      detail::from_bits<T>(detail::blend(tiny, detail::to_bits(two_to_mantissa + T(lift) + T(format::up_exponent)),
                                         detail::to_bits(two_to_mantissa + T(lift))));
  const T result = detail::log_of_parts(lifted - correction, f);
  bits merged = detail::blend(raw == format::infinity, format::infinity, detail::to_bits(result));
  // Negative or NaN: all ones is a NaN.
  merged |= static_cast<bits>(bits{0} - static_cast<bits>(raw > format::infinity));
  merged = detail::blend(static_cast<bits>(raw << 1U) == 0, static_cast<bits>(format::infinity | format::sign), merged);
  return detail::from_bits<T>(merged);
}

/// Hyperbolic tangent. Error <= 3 ulp (float and double); odd exactly, -0 stays -0, tanh(+-inf) = +-1.
/// From e = expm1(-2|x|): tanh|x| = -e / (2 + e), which cancels nowhere. All but the scale is half as large and
/// positive here, s = -r / 2 and h = -e / 2, which changes no digit: |x| need not be doubled first.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T tanh(T x) {
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const bits sign = detail::to_bits(x) & format::sign;
  T magnitude = detail::from_bits<T>(static_cast<bits>(detail::to_bits(x) ^ sign));
  magnitude = detail::at_most(magnitude, format::tanh_highest);
  const auto [s, scale_bits] = detail::reduce_by_half_ln2(magnitude);
  const T scale = detail::from_bits<T>(static_cast<bits>(scale_bits << static_cast<unsigned>(format::mantissa_bits)));
  const T tail = detail::mul_add(s * s, detail::exp_tail_of_half(s), s);
  const T h = detail::mul_add(scale, tail, detail::mul_add(scale, T(-0.5), T(0.5)));
  const T result = h / (T(1) - h);
  return detail::from_bits<T>(static_cast<bits>((detail::to_bits(result) & ~format::sign) | sign));
}

}  // namespace espalier::kernels

namespace espalier::detail {
/// 1 + e^x, for `scale_lowest` <= x <= `exp_highest`.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T one_plus_exp_within(T x) {
  using format = float_format<T>;
  const auto [r, scale_bits] = reduce_by_ln2<T, 1>(x);
  const T scale = from_bits<T>(static_cast<float_bits<T>>(scale_bits << static_cast<unsigned>(format::mantissa_bits)));
  const T mantissa = mul_add(mul_add(exp_tail(r), r, T(1)), r, T(1));
  return mul_add(mantissa, scale, T(1));
}
/// 1 + e^x, within 1.1 ulp; infinite from where 1 / (1 + e^x) is no normal number any more. A single power of two
/// scales the result: a power too small for it is negligible against 1, and one too large becomes infinite.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T one_plus_exp(T x) {
  using format = float_format<T>;
  x = at_least(x, format::scale_lowest);
  x = at_most(x, format::exp_highest);
  return one_plus_exp_within(x);
}
}  // namespace espalier::detail

namespace espalier::kernels {

/// 1 / (1 + e^-x). Error <= 3 ulp where the result is a normal number; below that it is flushed to 0.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T sigmoid(T x) {
  return T(1) / detail::one_plus_exp(-x);
}

/// x * sigmoid(x); silu(-inf) = -0 (its limit, where the plain product would be NaN).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T silu(T x) {
  const T bounded = detail::at_least(x, T(-1000));
  return bounded / detail::one_plus_exp(-bounded);
}

/// d silu / dx = s (1 + x (1 - s)) with s = sigmoid(x).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T silu_derivative(T x) {
  T bounded = detail::at_least(x, T(-1000));  // infinity * 0 would be NaN
  bounded = detail::at_most(bounded, T(1000));
  const T s = sigmoid(bounded);
  return s * detail::mul_add(bounded, T(1) - s, T(1));
}

}  // namespace espalier::kernels

namespace espalier::detail {
/// -2 u of the gelu below: -2 sqrt(2 / pi) (x + 0.044715 x^3).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T gelu_argument(T x) {
  constexpr T linear = T(-1.59576912160573071176);
  constexpr T cubic = T(-1.59576912160573071176 * 0.044715);
  return x * mul_add(cubic * x, x, linear);
}
/// From here on, e^(-2u) is negligible against 1; and up to `gelu_lowest` 1 + e^(-2u) is infinite, though 2^n of it is
/// still the bits of a number: with x between the two, the exponential has no bounds of its own.
template <class T> inline constexpr T gelu_highest = T(8);
template <class T> inline constexpr T gelu_lowest = sizeof(T) == sizeof(float) ? T(-10.07) : T(-21.1615);
}  // namespace espalier::detail

namespace espalier::kernels {

/// GELU in the tanh form of GPT-2: x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks, arXiv 1606.08415).
/// Computed as x sigmoid(2u): the same function, without the cancellation of 1 + tanh for negative x. gelu(-inf) = -0.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T gelu(T x) {
  const T above = detail::at_least(x, detail::gelu_lowest<T>);
  const T between = detail::at_most(above, detail::gelu_highest<T>);
  return above / detail::one_plus_exp_within(detail::gelu_argument(between));
}

/// d gelu / dx = s + x s (1 - s) d(2u)/dx with s = sigmoid(2u).
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T gelu_derivative(T x) {
  T bounded = detail::at_least(x, detail::gelu_lowest<T>);
  bounded = detail::at_most(bounded, detail::gelu_highest<T>);
  const T s = T(1) / detail::one_plus_exp_within(detail::gelu_argument(bounded));
  constexpr T linear = T(1.59576912160573071176);
  constexpr T cubic = T(3 * 1.59576912160573071176 * 0.044715);
  const T slope = detail::mul_add(cubic * bounded, bounded, linear);
  return detail::mul_add(bounded * s * (T(1) - s), slope, s);
}

/// 1 / sqrt(x). Error <= 1.5 ulp; rsqrt(+-0) = +-inf, rsqrt(+inf) = 0, rsqrt(negative) = NaN.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T rsqrt(T x) {
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const bits raw = detail::to_bits(x);
  const bool tiny = raw < format::lift_below;
  const T up = detail::from_bits<T>(detail::blend(tiny, detail::to_bits(format::up), detail::to_bits(T(1))));
  const T back = detail::from_bits<T>(detail::blend(tiny, detail::to_bits(format::up_root), detail::to_bits(T(1))));
  const T result = detail::rsqrt_normal(x * up) * back;
  const bits not_zero = detail::blend(raw > format::infinity, format::quiet_nan, bits{0});
  const bits special =
      detail::blend(static_cast<bits>(raw << 1U) == 0, static_cast<bits>(raw | format::infinity), not_zero);
  const bool is_special = static_cast<bits>(raw - 1U) >= format::infinity - 1U;
  return detail::from_bits<T>(detail::blend(is_special, special, detail::to_bits(result)));
}

/// Square root. Error <= 0.51 ulp; sqrt(+-0) = +-0, sqrt(+inf) = +inf, sqrt(negative) = NaN.
/// Uses the instruction where the compiler can vectorise it, that is with -fno-math-errno: 1.3 times faster for float.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T sqrt(T x) {
#if defined(__NO_MATH_ERRNO__)
  if (!std::is_constant_evaluated()) return detail::hardware_sqrt(x);
#endif
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const bits raw = detail::to_bits(x);
  const bool tiny = raw < format::lift_below;
  const T back =
      detail::from_bits<T>(detail::blend(tiny, detail::to_bits(T(1) / format::up_root), detail::to_bits(T(1))));
  // A blend, not a factor: GCC would contract that product into the residual below and round `root * root` instead.
  const T scaled = detail::from_bits<T>(detail::blend(tiny, detail::to_bits(x * format::up), raw));
  const T inverse = detail::rsqrt_normal(scaled);
  const T root = scaled * inverse;
  const T result = detail::mul_add(T(0.5) * inverse, detail::mul_add(-root, root, scaled), root) * back;
  const bits not_zero = detail::blend(raw > format::infinity, format::quiet_nan, format::infinity);
  const bits special = detail::blend(static_cast<bits>(raw << 1U) == 0, raw, not_zero);
  const bool is_special = static_cast<bits>(raw - 1U) >= format::infinity - 1U;
  return detail::from_bits<T>(detail::blend(is_special, special, detail::to_bits(result)));
}

}  // namespace espalier::kernels
