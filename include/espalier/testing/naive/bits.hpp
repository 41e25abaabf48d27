// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/functions.hpp>
#include <espalier/testing/naive/tensors.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

/// Operators on the bits of elements, and random words.
namespace espalier::test::naive {

[[nodiscard]] inline double power_of_two(std::int64_t n) { return std::ldexp(1.0, static_cast<int>(n)); }
/// How many bits of an element say something.
[[nodiscard]] inline std::int64_t bits_of(dtype type) { return type == dtype::boolean ? 1 : 8 * size_of(type); }
/// Digit k of a whole number in two's complement.
[[nodiscard]] inline bool digit(double x, std::int64_t k) {
  const double shifted = std::floor(x / power_of_two(k));
  return shifted - 2 * std::floor(shifted / 2) != 0;
}
/// Whether op is a function of two words, and what it makes of x and y.
[[nodiscard]] inline bool is_function_of_words(const op_info* op) {
  for (const op_info* const one : {&ops::bitwise_and, &ops::bitwise_or, &ops::bitwise_xor, &ops::shift_left,
                                   &ops::shift_right_logical, &ops::shift_right_arithmetic}) {
    if (op == one) return true;
  }
  return false;
}
[[nodiscard]] inline double function_of_words(const op_info* op, dtype type, double x, double y) {
  const std::int64_t bits = bits_of(type);
  const double all = power_of_two(bits);
  // An amount without its sign.
  const double amount = y < 0 ? y + all : y;
  const bool small = amount < static_cast<double>(bits);
  const double by = small ? power_of_two(static_cast<std::int64_t>(amount)) : 1;
  double made = 0;
  if (op == &ops::shift_left) {
    made = small ? x * by : 0;
  } else if (op == &ops::shift_right_logical) {
    made = small ? std::floor((x < 0 ? x + all : x) / by) : 0;
  } else if (op == &ops::shift_right_arithmetic) {
    made = small ? std::floor(x / by) : x < 0 ? -1 : 0;
  } else {
    for (std::int64_t k = 0; k < bits; ++k) {
      const int both = (digit(x, k) ? 1 : 0) + (digit(y, k) ? 1 : 0);
      const bool is_set = op == &ops::bitwise_and ? both == 2 : op == &ops::bitwise_or ? both > 0 : both == 1;
      if (is_set) made += power_of_two(k);
    }
  }
  return in_memory(type, made);
}

/// How many bits of a float are its mantissa's; the others but one are the exponent's.
[[nodiscard]] inline int mantissa_of(dtype type) { return type == dtype::f64 ? 52 : type == dtype::bf16 ? 7 : 23; }
/// The bits of a float as a whole number, and the other way round: sign, exponent, mantissa (IEEE 754).
[[nodiscard]] inline double word_of_float(dtype type, double x) {
  const int mantissa = mantissa_of(type);
  const int exponents = static_cast<int>(bits_of(type)) - 1 - mantissa;
  const double bias = power_of_two(exponents - 1) - 1;
  const double sign = std::signbit(x) ? power_of_two(bits_of(type) - 1) : 0;
  const double unit = power_of_two(mantissa);
  if (std::isnan(x)) return sign + (2 * bias + 1) * unit + unit / 2;
  if (std::isinf(x)) return sign + (2 * bias + 1) * unit;
  const double size = std::abs(x);
  if (size < std::ldexp(2.0, -static_cast<int>(bias))) {
    return sign + std::ldexp(size, static_cast<int>(bias) - 1 + mantissa);
  }
  int exponent = 0;
  const double fraction = std::frexp(size, &exponent);
  return sign + (exponent - 1 + bias) * unit + (2 * fraction - 1) * unit;
}
[[nodiscard]] inline double float_of_word(dtype type, double word) {
  const int mantissa = mantissa_of(type);
  const int exponents = static_cast<int>(bits_of(type)) - 1 - mantissa;
  const auto bias = static_cast<int>(power_of_two(exponents - 1)) - 1;
  const double top = power_of_two(bits_of(type) - 1);
  const double without_sign = word >= top ? word - top : word;
  const double unit = power_of_two(mantissa);
  const double exponent = std::floor(without_sign / unit);
  const double rest = without_sign - exponent * unit;
  double size = std::ldexp(unit + rest, static_cast<int>(exponent) - bias - mantissa);
  if (exponent == 0) size = std::ldexp(rest, 1 - bias - mantissa);
  if (exponent == 2 * bias + 1) {
    size = rest == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return word >= top ? -size : size;
}
/// Word `at` of the sequence that belongs to a key, a number and a purpose: Philox4x32-7 of the number of the word's
/// block (Salmon et al., 2011, figure 2: of four words two are multiplied, and take each other's places).
[[nodiscard]] inline double random_word(std::uint64_t at, const tensor_value& key, double number,
                                        std::int64_t purpose) {
  constexpr std::uint64_t all = std::uint64_t{1} << 32U;
  std::uint64_t left[2]{at / 4 % all, static_cast<std::uint64_t>(number)};
  std::uint64_t right[2]{at / 4 / all, static_cast<std::uint64_t>(purpose)};
  const std::uint64_t factor[2]{3528531795U, 3449720151U};
  const std::uint64_t weyl[2]{2654435769U, 3144134277U};
  for (std::uint64_t round = 0; round < 7; ++round) {
    std::uint64_t next[2]{};
    for (std::size_t k = 0; k < 2; ++k) {
      const std::uint64_t round_key = (static_cast<std::uint64_t>(key.data.at(k)) + round * weyl[k]) % all;
      next[k] = factor[1 - k] * left[1 - k] / all ^ right[k] ^ round_key;
    }
    for (std::size_t k = 0; k < 2; ++k) right[k] = factor[1 - k] * left[1 - k] % all;
    for (std::size_t k = 0; k < 2; ++k) left[k] = next[k];
  }
  return static_cast<double>(at % 2 == 0 ? left[at % 4 / 2] : right[at % 4 / 2]);
}

/// An element's bits as another type's. (Of 64 bits a double holds 53.)
[[nodiscard]] inline double with_bits_of(dtype from, dtype to, double x) {
  const double all = power_of_two(bits_of(from));
  const double word = is_floating(from) ? word_of_float(from, in_memory(from, x)) : x < 0 ? x + all : x;
  return is_floating(to) ? float_of_word(to, word) : in_memory(to, word);
}

}  // namespace espalier::test::naive
