// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/fraction.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Arithmetic modulo the prime 2^61 - 1.
struct residue {
  static constexpr std::int64_t prime = (std::int64_t{1} << 61) - 1;

  static constexpr std::int64_t of(int128 value) {
    const auto rest = static_cast<std::int64_t>(value % prime);
    return rest < 0 ? rest + prime : rest;
  }
  static constexpr std::int64_t times(std::int64_t a, std::int64_t b) {
    const int128 product = int128{a} * b;
    auto sum = static_cast<std::int64_t>(product & prime) + static_cast<std::int64_t>(product >> 61);
    if (sum >= prime) sum -= prime;
    return sum;
  }
  static constexpr std::int64_t minus(std::int64_t a, std::int64_t b) { return a >= b ? a - b : a - b + prime; }
  static constexpr std::int64_t inverse(std::int64_t a) {
    std::int64_t result = 1;
    for (std::int64_t e = prime - 2; e > 0; e >>= 1) {
      if ((e & 1) != 0) result = times(result, a);
      a = times(a, a);
    }
    return result;
  }
};

/// A square system of whole numbers, row by row.
struct whole_system {
  std::size_t size = 0;
  std::vector<std::int64_t> matrix;
  std::vector<std::int64_t> right;
};

/// The fraction that is `value` modulo `modulus`, with both parts below 2^60 (Wang's reconstruction).
[[nodiscard]] inline std::optional<fraction> fraction_from_residue(int128 value, int128 modulus) {
  constexpr int128 limit = int128{1} << 60;
  int128 r0 = modulus, r1 = value, t0 = 0, t1 = 1;
  while (r1 > limit) {
    const int128 q = r0 / r1;
    const int128 r2 = r0 - q * r1;
    const int128 t2 = t0 - q * t1;
    r0 = r1, r1 = r2;
    t0 = t1, t1 = t2;
    if (t1 > limit || t1 < -limit) return std::nullopt;
  }
  if (t1 == 0) return std::nullopt;
  return t1 < 0 ? try_fraction(-r1, -t1) : try_fraction(r1, t1);
}

/// Solves the system in fractions, if they are simple enough: modulo a prime, then two digits of its p-adic expansion
/// (Dixon 1982). Nothing if the matrix is singular. Negative solutions are possible.
[[nodiscard]] inline std::optional<std::vector<fraction>> solve_exactly(const whole_system& system) {
  const std::size_t n = system.size;
  std::vector<std::int64_t> lu(n * n);
  for (std::size_t i = 0; i < n * n; ++i) lu[i] = residue::of(system.matrix[i]);
  std::vector<std::size_t> row(n);
  for (std::size_t i = 0; i < n; ++i) row[i] = i;
  std::vector<std::int64_t> inverse(n);
  for (std::size_t p = 0; p < n; ++p) {
    std::size_t found = p;
    while (found < n && lu[found * n + p] == 0) ++found;
    if (found == n) return std::nullopt;
    if (found != p) {
      std::swap(row[found], row[p]);
      for (std::size_t k = 0; k < n; ++k) std::swap(lu[found * n + k], lu[p * n + k]);
    }
    inverse[p] = residue::inverse(lu[p * n + p]);
    for (std::size_t i = p + 1; i < n; ++i) {
      if (lu[i * n + p] == 0) continue;
      const std::int64_t factor = residue::times(lu[i * n + p], inverse[p]);
      lu[i * n + p] = factor;
      for (std::size_t k = p + 1; k < n; ++k)
        if (lu[p * n + k] != 0) lu[i * n + k] = residue::minus(lu[i * n + k], residue::times(factor, lu[p * n + k]));
    }
  }
  const auto solve = [&](const std::vector<int128>& right) {
    std::vector<std::int64_t> x(n);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = residue::of(right[row[i]]);
      for (std::size_t k = 0; k < i; ++k)
        if (lu[i * n + k] != 0) x[i] = residue::minus(x[i], residue::times(lu[i * n + k], x[k]));
    }
    for (std::size_t i = n; i-- > 0;) {
      for (std::size_t k = i + 1; k < n; ++k)
        if (lu[i * n + k] != 0) x[i] = residue::minus(x[i], residue::times(lu[i * n + k], x[k]));
      x[i] = residue::times(x[i], inverse[i]);
    }
    return x;
  };
  std::vector<int128> rest(system.right.begin(), system.right.end());
  const std::vector<std::int64_t> low = solve(rest);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < n; ++k) rest[i] -= int128{system.matrix[i * n + k]} * low[k];
    rest[i] /= residue::prime;
  }
  const std::vector<std::int64_t> high = solve(rest);
  std::vector<fraction> result;
  for (std::size_t i = 0; i < n; ++i) {
    const int128 value = int128{low[i]} + int128{high[i]} * residue::prime;
    const int128 modulus = int128{residue::prime} * residue::prime;
    // Near the modulus stands a negative number.
    auto simple = fraction_from_residue(value, modulus);
    if (!simple) {
      simple = fraction_from_residue(modulus - value, modulus);
      if (simple) simple->numerator = -simple->numerator;
    }
    if (!simple) return std::nullopt;
    result.push_back(*simple);
  }
  return result;
}

}  // namespace espalier::comm::detail
