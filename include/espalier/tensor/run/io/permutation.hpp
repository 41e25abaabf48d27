// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/random.hpp>

#include <bit>
#include <cstdint>

namespace espalier::io {

/// An order of the numbers 0 to n - 1 that follows from a seed and a number, such as that of an epoch, and of which any
/// place can be asked for by itself: nothing is stored, and it is the same on every rank and mesh.
///
/// A Feistel network of 8 rounds over the smallest square of a power of two that holds n, with Philox4x32 as its round
/// function; a number beyond n goes through it again (Black and Rogaway, "Ciphers with arbitrary finite domains",
/// 2002).
///
///     permutation order(60000, 3, 0);
///     order(0);  // the row that comes first in epoch 0
class permutation {
 public:
  /// @pre 0 <= n <= 2^62
  constexpr permutation(std::int64_t n, std::int64_t seed, std::int64_t number)
      : n_(static_cast<std::uint64_t>(n)),
        half_((static_cast<unsigned>(std::bit_width(n_ > 1 ? n_ - 1 : 0)) + 1) / 2),
        seed_(static_cast<std::uint64_t>(seed)),
        number_(static_cast<std::uint64_t>(number)) {}

  /// @pre 0 <= place < n
  /// @post the n places give the n numbers, each once
  [[nodiscard]] constexpr std::int64_t operator()(std::int64_t place) const {
    auto at = static_cast<std::uint64_t>(place);
    do at = encrypted(at);
    while (at >= n_);
    return static_cast<std::int64_t>(at);
  }

 private:
  [[nodiscard]] constexpr std::uint64_t encrypted(std::uint64_t at) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = at >> half_;
    std::uint64_t right = at & mask;
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    for (std::uint32_t round = 0; round < 8; ++round) {
      const auto words =
          philox({low(right), round, low(number_), low(number_ >> 32U)}, {low(seed_), low(seed_ >> 32U)});
      const std::uint64_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    return left << half_ | right;
  }

  std::uint64_t n_;
  unsigned half_;
  std::uint64_t seed_;
  std::uint64_t number_;
};

}  // namespace espalier::io
