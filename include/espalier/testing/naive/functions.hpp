// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/testing/naive/types.hpp>

#include <cmath>
#include <complex>
#include <limits>

/// Operators that are functions of one or two elements.
namespace espalier::test::naive {

[[nodiscard]] inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

/// The border between the numbers whose erf is less than x and those whose erf is not.
[[nodiscard]] inline double whose_erf_is(double x) {
  const double size = std::abs(x);
  if (size == 0) return x;
  if (size == 1) return x * std::numeric_limits<double>::infinity();
  if (!(size < 1)) return std::numeric_limits<double>::quiet_NaN();
  double low = 0;
  double high = 7;
  for (int step = 0; step < 1200 && low < high; ++step) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (size < 0.5 ? std::erf(middle) < size : std::erfc(middle) > 1 - size) ? low = middle : high = middle;
  }
  return std::copysign(high, x);
}

/// The function of one element that an op is, or null.
[[nodiscard]] inline double (*function_of_one(const op_info* op))(double) {
  const auto same = [](double x) { return x; };
  if (op == &ops::negate) return [](double x) { return -x; };
  if (op == &ops::logical_not) return [](double x) { return x == 0 ? 1.0 : 0.0; };
  if (op == &ops::exp) return [](double x) { return std::exp(x); };
  if (op == &ops::log) return [](double x) { return std::log(x); };
  if (op == &ops::sqrt) return [](double x) { return std::sqrt(x); };
  if (op == &ops::rsqrt) return [](double x) { return 1 / std::sqrt(x); };
  if (op == &ops::tanh) return [](double x) { return std::tanh(x); };
  if (op == &ops::sigmoid) return [](double x) { return logistic(x); };
  if (op == &ops::relu) return [](double x) { return x <= 0 ? 0.0 : x; };
  if (op == &ops::silu) return [](double x) { return x * logistic(x); };
  if (op == &ops::gelu) {
    return
        [](double x) { return x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))) / 2; };
  }
  // The derivatives of the last two.
  if (op == &ops::silu_slope) return [](double x) { return logistic(x) + x * logistic(x) * (1 - logistic(x)); };
  if (op == &ops::gelu_slope) {
    return [](double x) {
      const double scale = std::sqrt(2 / std::acos(-1.0));
      const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
      return (1 + t) / 2 + x * (1 - t * t) / 2 * scale * (1 + 3 * 0.044715 * x * x);
    };
  }
  if (op == &ops::sin) return [](double x) { return std::sin(x); };
  if (op == &ops::cos) return [](double x) { return std::cos(x); };
  if (op == &ops::tan) return [](double x) { return std::sin(x) / std::cos(x); };
  if (op == &ops::erf) return [](double x) { return std::erf(x); };
  if (op == &ops::erfc) return [](double x) { return std::erfc(x); };
  if (op == &ops::erf_inv) return whose_erf_is;
  if (op == &ops::expm1) return [](double x) { return std::expm1(x); };
  if (op == &ops::log1p) return [](double x) { return std::log1p(x); };
  if (op == &ops::abs) return [](double x) { return std::signbit(x) ? -x : x; };
  if (op == &ops::sign) return [](double x) { return std::isnan(x) ? x : (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0); };
  if (op == &ops::is_finite) return [](double x) { return std::isfinite(x) ? 1.0 : 0.0; };
  if (op == &ops::trunc) {
    return [](double x) {
      double whole = 0;
      std::modf(x, &whole);
      return whole;
    };
  }
  if (op == &ops::floor) return [](double x) { return std::trunc(x) > x ? std::trunc(x) - 1 : std::trunc(x); };
  if (op == &ops::ceil) return [](double x) { return std::trunc(x) < x ? std::trunc(x) + 1 : std::trunc(x); };
  if (op == &ops::round) return [](double x) { return std::nearbyint(x); };
  // What only says something to passes: about gradients, layouts and buffers. (Of `match`, operand 1 is a model.)
  for (const op_info* const one : {&ops::stop_gradient, &ops::copy, &ops::shard, &ops::shard_value, &ops::reshard,
                                   &ops::match, &ops::shard_like, &ops::shard_as, &ops::again}) {
    if (op == one) return same;
  }
  return nullptr;
}

/// A NaN in either place is the greatest and the smallest, as NumPy has it.
[[nodiscard]] inline double larger(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  return x < y ? y : x;
}
[[nodiscard]] inline double smaller(double x, double y) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  return y < x ? y : x;
}

/// The remainder of x when as many y as fit are taken away, with x's sign; of integers, x itself where y is zero.
[[nodiscard]] inline double left_over(double x, double y) {
  const double size = std::abs(y);
  const double rest = std::remainder(std::abs(x), size);
  return std::copysign(rest < 0 ? rest + size : rest, x);
}
/// -NaN, -infinity ... -0, 0 ... infinity, NaN.
[[nodiscard]] inline bool is_below(double x, double y) {
  const auto group = [](double z) { return !std::isnan(z) ? 0 : std::signbit(z) ? -1 : 1; };
  if (group(x) != 0 || group(y) != 0) return group(x) < group(y);
  return x < y || (x == y && std::signbit(x) && !std::signbit(y));
}

/// The function of two elements that an op is, or null.
[[nodiscard]] inline double (*function_of_two(const op_info* op, dtype type))(double, double) {
  if (op == &ops::add) return [](double x, double y) { return x + y; };
  if (op == &ops::subtract) return [](double x, double y) { return x - y; };
  if (op == &ops::multiply) return [](double x, double y) { return x * y; };
  // Integers divide towards zero, and by zero into zero.
  if (op == &ops::divide && whole_numbers_of(type).count != 0) {
    return [](double x, double y) { return y == 0 ? 0 : std::trunc(x / y); };
  }
  if (op == &ops::divide) return [](double x, double y) { return x / y; };
  if (op == &ops::less) return [](double x, double y) { return x < y ? 1.0 : 0.0; };
  if (op == &ops::less_equal) return [](double x, double y) { return x <= y ? 1.0 : 0.0; };
  if (op == &ops::equal) return [](double x, double y) { return x == y ? 1.0 : 0.0; };
  if (op == &ops::not_equal) return [](double x, double y) { return x == y ? 0.0 : 1.0; };
  if (op == &ops::logical_and) return [](double x, double y) { return x == 0 || y == 0 ? 0.0 : 1.0; };
  if (op == &ops::logical_or) return [](double x, double y) { return x == 0 && y == 0 ? 0.0 : 1.0; };
  if (op == &ops::atan2) return [](double y, double x) { return std::arg(std::complex<double>(x, y)); };
  if (op == &ops::pow) return [](double x, double y) { return std::pow(x, y); };
  if (op == &ops::remainder && !is_floating(type)) {
    return [](double x, double y) { return y == 0 ? x : left_over(x, y); };
  }
  if (op == &ops::remainder) return left_over;
  if (op == &ops::total_less) return [](double x, double y) { return is_below(x, y) ? 1.0 : 0.0; };
  if (op == &ops::total_less_equal) return [](double x, double y) { return is_below(y, x) ? 0.0 : 1.0; };
  if (op == &ops::total_equal) return [](double x, double y) { return is_below(x, y) || is_below(y, x) ? 0.0 : 1.0; };
  if (op == &ops::maximum) return larger;
  if (op == &ops::minimum) return smaller;
  return nullptr;
}

}  // namespace espalier::test::naive
