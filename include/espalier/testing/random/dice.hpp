// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

/// The source of random numbers.
namespace espalier::test {

/// Random numbers that are the same on every platform (splitmix64; Steele, Lea and Flood, 2014).
class dice {
 public:
  constexpr explicit dice(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  /// A whole number in [low, high].
  constexpr int integer(int low, int high) {
    return low + static_cast<int>((next() >> 33U) % static_cast<std::uint64_t>(high - low + 1));
  }
  constexpr double real(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11U) + 0.5) * 0x1p-53;
  }
  constexpr bool chance(double probability) { return real(0, 1) < probability; }
  template <class T, int Count> constexpr T one_of(const T (&from)[Count]) { return from[integer(0, Count - 1)]; }

 private:
  std::uint64_t state_;
};

}  // namespace espalier::test
