// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/exponential.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/exact_arithmetic.hpp>
#include <espalier/tensor/run/kernels/math.hpp>

#include <limits>

namespace espalier::detail {

/// Returns factor * e^(exponent.high + exponent.low), where `low` is negligible against 1. Error <= 1.1 ulp, plus those
/// of its arguments, subnormal results included, as of kernels::exp.
[[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr double scaled_exp(double factor, const two_parts& exponent) {
  using format = float_format<double>;
  const bool vanishes = exponent.high < format::exp_lowest;
  double x = at_least(exponent.high, format::exp_lowest);
  x = at_most(x, format::exp_highest);
  const auto [remainder, scale] = reduce_by_ln2(x);
  const double r = remainder + exponent.low;
  const double mantissa = factor * (mul_add(r * r, exp_tail(r), r) + 1.0);
  const double kept = from_bits<double>(blend(vanishes, std::uint64_t{0}, to_bits(mantissa)));
  const std::uint64_t half = (scale >> 1U) << format::mantissa_bits;
  const std::uint64_t rest = (scale << format::mantissa_bits) - half;
  return kept * from_bits<double>(half) * from_bits<double>(rest);
}

/// Below this, x itself is nearest to e^x - 1 and to log(1 + x).
template <class T>
inline constexpr float_bits<T> negligible_square = (float_format<T>::bias - float_format<T>::mantissa_bits - 2U)
                                                   << float_format<T>::mantissa_bits;

}  // namespace espalier::detail

namespace espalier::kernels {

/// e^x - 1. Error <= 2.3 ulp (float and double); expm1(-inf) = -1, expm1(-0) = -0.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T expm1(T x) {
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const T bounded = detail::at_most(detail::at_least(x, T(-50)), format::exp_highest);
  const auto [r, scale_bits] = detail::reduce_by_ln2(bounded);
  // Half the result, so that the power of two does not overflow before the result does.
  const T scale = detail::from_bits<T>(
      static_cast<bits>((scale_bits << format::mantissa_bits) - ((format::bias + 1U) << format::mantissa_bits)));
  const T half = detail::mul_add(scale, detail::mul_add(r * r, detail::exp_tail(r), r), scale - T(0.5));
  const bool tiny = static_cast<bits>(detail::to_bits(x) & ~format::sign) < detail::negligible_square<T>;
  return detail::from_bits<T>(detail::blend(tiny, detail::to_bits(x), detail::to_bits(half + half)));
}

/// log(1 + x). Error <= 1.3 ulp (float and double); log1p(-1) = -inf, log1p(x < -1) = NaN, log1p(-0) = -0.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE constexpr T log1p(T x) {
  using format = detail::float_format<T>;
  using bits = typename format::bits;
  const T sum = T(1) + x;
  const T from_x = sum - T(1);
  const T lost = (T(1) - (sum - from_x)) + (x - from_x);
  // As in `log`; but where the exponent is 0, x is what is left.
  const bits raw = detail::to_bits(sum);
  constexpr bits lift = 2 * (format::bias + 1);
  const auto shifted = static_cast<bits>(raw - format::sqrt_half + (lift << format::mantissa_bits));
  const bits exponent_bits = shifted >> format::mantissa_bits;
  const bool direct = exponent_bits == lift;
  const auto f =
      detail::from_bits<T>(static_cast<bits>(raw - ((exponent_bits - lift) << format::mantissa_bits))) - T(1);
  constexpr T two_to_mantissa = format::to_integer / T(1.5);
  const T exponent =
      detail::from_bits<T>(exponent_bits | detail::to_bits(two_to_mantissa)) - (two_to_mantissa + T(lift));
  const T left = detail::from_bits<T>(detail::blend(direct, detail::to_bits(x), detail::to_bits(f)));
  const T correction = detail::from_bits<T>(detail::blend(direct, bits{0}, detail::to_bits(lost / sum)));
  const T result = detail::log_of_parts(exponent, left) + correction;
  bits merged = detail::blend(raw == format::infinity, format::infinity, detail::to_bits(result));
  merged |= static_cast<bits>(bits{0} - static_cast<bits>(raw > format::infinity));
  merged = detail::blend(raw == 0, static_cast<bits>(format::infinity | format::sign), merged);
  const bool tiny = static_cast<bits>(detail::to_bits(x) & ~format::sign) < detail::negligible_square<T>;
  return detail::from_bits<T>(detail::blend(tiny, detail::to_bits(x), merged));
}

}  // namespace espalier::kernels

namespace espalier::detail {

/// The logarithm of a positive number, infinity included, with an error below 2^-65 of it. With s = (m - 1) / (m + 1),
/// log(m) = 2 s + 2/3 s^3 + s^5 (...), of which the first two are computed in two parts.
[[nodiscard]] ESPALIER_ALWAYS_INLINE two_parts log_in_two_parts(double x) {
  using format = float_format<double>;
  const bool tiny = to_bits(x) < format::lift_below;
  const double scaled = x * from_bits<double>(blend(tiny, to_bits(format::up), to_bits(1.0)));
  const std::uint64_t normal = to_bits(scaled);
  constexpr std::uint64_t lift = 2 * (format::bias + 1);
  const std::uint64_t shifted = normal - format::sqrt_half + (lift << format::mantissa_bits);
  const std::uint64_t exponent_bits = shifted >> format::mantissa_bits;
  const double m = from_bits<double>(normal - ((exponent_bits - lift) << format::mantissa_bits));
  constexpr double two_to_mantissa = format::to_integer / 1.5;
  const double correction =
      from_bits<double>(blend(tiny, to_bits(two_to_mantissa + static_cast<double>(lift) + format::up_exponent),
                              to_bits(two_to_mantissa + static_cast<double>(lift))));
  const double exponent = from_bits<double>(exponent_bits | to_bits(two_to_mantissa)) - correction;

  const double over = m - 1.0;
  const double under = m + 1.0;
  const double under_low = m - (under - 1.0);
  const double s = over / under;
  const two_parts back = two_product(s, under);
  const double s_low = (((over - back.high) - back.low) - s * under_low) / under;
  const two_parts square = two_product(s, s);
  const double square_low = mul_add(2.0 * s, s_low, square.low);
  const two_parts cube = two_product(s, square.high);
  const double cube_low = mul_add(s, square_low, mul_add(s_low, square.high, cube.low));
  constexpr double third = 0x1.5555555555555p-1;  // 2/3
  constexpr double third_low = 0x1.5555555555555p-55;
  const two_parts second = two_product(cube.high, third);
  const double second_low = mul_add(cube.high, third_low, mul_add(cube_low, third, second.low));
  const double tail = cube.high * square.high *
                      horner(square.high, 0.4, 0.2857142857142937, 0.22222222221652765, 0.18181818336099848,
                             0.1538459488700718, 0.1333480879881234, 0.11706126464563398, 0.11724327060846747);
  const two_parts of_m = two_sum(2.0 * s, second.high);
  const double of_m_low = of_m.low + (mul_add(2.0, s_low, second_low) + tail);
  // ln 2 in 42 bits, so that its multiples are exact, and the rest.
  const two_parts total = two_sum(exponent * 0x1.62e42fefa38p-1, of_m.high);
  const double total_low = total.low + mul_add(exponent, 0x1.ef35793c7673p-45, of_m_low);
  const double high = total.high + total_low;
  const double low = (total.high - high) + total_low;
  const bool unbounded = to_bits(x) == format::infinity;
  return {from_bits<double>(blend(unbounded, format::infinity, to_bits(high))),
          from_bits<double>(blend(unbounded, std::uint64_t{0}, to_bits(low)))};
}

}  // namespace espalier::detail

namespace espalier::kernels {

/// x to the power of y. Error <= 0.51 ulp (float), 1.4 ulp (double), subnormal results included. Zeros, infinities and
/// NaN as C's pow: x^0 = 1^y = (-1)^inf = 1.
template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE T pow(T base, T exponent) {
  using format = detail::float_format<double>;
  const auto x = static_cast<double>(base);
  const auto y = static_cast<double>(exponent);
  const double size = detail::from_bits<double>(detail::to_bits(x) & ~format::sign);
  const double amount = detail::from_bits<double>(detail::to_bits(y) & ~format::sign);
  // Conditions are masks, all ones or none: of joined truth values clang makes a switch, and then no vector.
  const auto mask = [](bool condition) { return std::uint64_t{0} - static_cast<std::uint64_t>(condition); };
  // Whole numbers from 2^53 on are even; below, adding 2^52 leaves the units in the last bit.
  const double lifted = amount + 0x1p52;
  const std::uint64_t large = mask(amount >= 0x1p52);
  const std::uint64_t whole = large | mask(lifted - 0x1p52 == amount);
  const std::uint64_t units = (detail::to_bits(amount) & large) | (detail::to_bits(lifted) & ~large);
  const std::uint64_t odd = whole & mask(amount < 0x1p53) & (std::uint64_t{0} - (units & 1U));
  const std::uint64_t sign = detail::to_bits(x) & format::sign;
  const std::uint64_t negative = std::uint64_t{0} - (sign >> 63U);

  detail::two_parts log{0, 0};
  if constexpr (sizeof(T) == sizeof(float)) {
    log.high = kernels::log(size);
  } else {
    log = detail::log_in_two_parts(size);
    const bool nothing = size == 0;
    log.high =
        detail::from_bits<double>(detail::blend(nothing, format::infinity | format::sign, detail::to_bits(log.high)));
  }
  detail::two_parts power{y * log.high, 0};
  if constexpr (sizeof(T) != sizeof(float)) {
    // No smaller logarithm than 2^-53 is left, so that larger exponents make no difference.
    const double bounded = detail::at_most(detail::at_least(y, -0x1p100), 0x1p100);
    power = detail::two_product(log.high, bounded);
    const double low = detail::mul_add(bounded, log.low, power.low);
    // Beyond, the result is 0 or infinite, and the low part may be a NaN.
    const bool counts = detail::from_bits<double>(detail::to_bits(power.high) & ~format::sign) < 1000.0;
    power.low = detail::from_bits<double>(detail::blend(counts, detail::to_bits(low), std::uint64_t{0}));
  }
  std::uint64_t bits = detail::to_bits(detail::scaled_exp(1.0, power));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::uint64_t undefined = negative & ~whole & mask(size > 0) & mask(size < infinity);
  const std::uint64_t either_nan = mask(x != x) | mask(y != y);
  bits |= (sign & odd) | undefined | either_nan;
  const std::uint64_t one = mask(y == 0) | mask(x == 1.0) | (mask(size == 1.0) & mask(amount == infinity));
  bits = (detail::to_bits(1.0) & one) | (bits & ~one);
  return static_cast<T>(detail::from_bits<double>(bits));
}

}  // namespace espalier::kernels

namespace espalier::detail {

struct expm1_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::expm1(a); }
};
struct log1p_element {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static constexpr T apply(T a) { return kernels::log1p(a); }
};
struct pow_elements {
  template <class T> [[nodiscard]] ESPALIER_ALWAYS_INLINE static T apply(T a, T b) { return kernels::pow(a, b); }
};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct block_kernel<&ops::expm1> : detail::elementwise_block<detail::expm1_element> {};
template <> struct block_kernel<&ops::log1p> : detail::elementwise_block<detail::log1p_element> {};
template <> struct block_kernel<&ops::pow> : detail::elementwise_block<detail::pow_elements> {};

}  // namespace espalier::kernels
