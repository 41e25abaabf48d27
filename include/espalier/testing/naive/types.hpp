// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

/// How element types round, wrap around and convert, in double precision.
namespace espalier::test::naive {

/// The nearest number of so many significant bits, of two the even one, where no step is less than 2^least; from
/// 2^end on an infinity.
[[nodiscard]] inline double nearest_short(double x, int bits, int least, int end) {
  const auto from = static_cast<double>(static_cast<float>(x));
  if (!std::isfinite(from) || from == 0) return from;
  int exponent = 0;
  std::frexp(from, &exponent);
  const int step = std::max(exponent - bits, least);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(from, -step)), step);
  if (std::abs(rounded) >= std::ldexp(1.0, end)) return std::copysign(std::numeric_limits<double>::infinity(), rounded);
  return rounded;
}

/// The whole numbers of a type: from `least` on, as many as `count`.
struct whole_numbers {
  double least = 0;
  double count = 0;
};
[[nodiscard]] inline whole_numbers whole_numbers_of(dtype type) {
  switch (type) {
    case dtype::i8: return {-128, 256};
    case dtype::u8: return {0, 256};
    case dtype::i32: return {-0x1p31, 0x1p32};
    case dtype::i64: return {-0x1p63, 0x1p64};
    case dtype::u32: return {0, 0x1p32};
    default: return {};
  }
}

/// A whole number, modulo as many as the type has.
[[nodiscard]] inline double wrapped(dtype type, double x) {
  if (!std::isfinite(x)) return 0;
  const auto [least, count] = whole_numbers_of(type);
  const double whole = std::trunc(x);
  // Of 64 bits the greatest is no double: the next one stands for it.
  if (whole == least + (count - 1)) return whole;
  return whole - std::floor((whole - least) / count) * count;
}

/// The exact result of an op as memory keeps it: floats round, integers wrap around.
[[nodiscard]] inline double in_memory(dtype type, double x) {
  switch (type) {
    case dtype::f64: return x;
    case dtype::f32: return static_cast<double>(static_cast<float>(x));
    case dtype::bf16: return nearest_short(x, 8, -133, 128);
    case dtype::f16: return nearest_short(x, 11, -24, 16);
    case dtype::i8:
    case dtype::u8:
    case dtype::i32:
    case dtype::i64:
    case dtype::u32: return wrapped(type, x);
    case dtype::boolean: return x == 0 ? 0 : 1;
  }
  return x;
}

/// A conversion: floats become integers towards zero, at the ends of their range the nearest one, a NaN 0. Integers
/// become others modulo as many as there are.
[[nodiscard]] inline double converted(dtype type, double x, dtype from) {
  const auto [least, count] = whole_numbers_of(type);
  if (count == 0 || whole_numbers_of(from).count != 0) return in_memory(type, x);
  if (std::isnan(x)) return 0;
  return std::clamp(std::trunc(x), least, least + (count - 1));
}

}  // namespace espalier::test::naive
