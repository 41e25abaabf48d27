// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::comm {

/// The distances of the circulant graph on `ranks` vertices: from 1, each the half of the next rounded up, to `ranks`
/// itself. Its size less one is ceil(log2(ranks)), the number of rounds in which one value reaches everyone.
/// @pre ranks >= 1
/// @post every rank is a sum of different skips
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<int> circulant_skips(int ranks) {
  std::vector<int> falling{ranks};
  while (falling.back() > 1) falling.push_back((falling.back() + 1) / 2);
  return {falling.rbegin(), falling.rend()};
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

// Which blocks a processor receives in the rounds of one phase, found by following canonical paths from the root
// backwards (Träff, arXiv 2312.11236, section 2.3).
class circulant_receiver {
 public:
  ESPALIER_CONSTEXPR_VECTOR circulant_receiver(const std::vector<int>& skips, int rank)
      : skips_(skips), rounds_(static_cast<int>(skips.size()) - 1), target_(skips.back() + rank) {
    own_ = base_block(rank);
    left_ = ((std::uint64_t{2} << static_cast<unsigned>(rounds_)) - 1U) &
            ~(std::uint64_t{1} << static_cast<unsigned>(own_));
    int bound = 2 * skips.back();
    search(0, bound, rounds_);
    for (int& block : blocks_) block = block == rounds_ ? own_ : block - rounds_;
  }

  /// The blocks by round: the block's number relative to the phase; negative: of the phase before.
  [[nodiscard]] constexpr const std::vector<int>& blocks() const { return blocks_; }

 private:
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int skip(int k) const {
    return k <= rounds_ ? skips_[static_cast<std::size_t>(k)] : 4 * skips_.back();
  }

  // The first skip of the shortest path from the root.
  [[nodiscard]] constexpr int base_block(int rank) const {
    for (int k = rounds_ - 1; k >= 0; --k) {
      if (skip(k) == rank) return k;
      if (skip(k) < rank) rank -= skip(k);
    }
    return rounds_;
  }

  constexpr void search(int from, int& bound, int e) {
    for (; e >= 0; --e) {
      if ((left_ >> static_cast<unsigned>(e) & 1U) == 0) continue;
      int k = static_cast<int>(blocks_.size());
      if (k >= rounds_) return;
      const int at = from + skip(e);
      if (at > target_ - skip(k) || at >= bound) continue;
      if (at <= target_ - skip(k + 1)) {
        search(at, bound, e);
        k = static_cast<int>(blocks_.size());
        if (k >= rounds_ || (left_ >> static_cast<unsigned>(e) & 1U) == 0) {
          if (k >= rounds_) return;
          continue;
        }
      }
      if (from > target_ - skip(k + 1)) return;
      bound = at;
      blocks_.push_back(e);
      left_ &= ~(std::uint64_t{1} << static_cast<unsigned>(e));
    }
  }

  const std::vector<int>& skips_;
  int rounds_;
  int target_;
  int own_ = 0;
  std::uint64_t left_ = 0;
  std::vector<int> blocks_;
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// The round-optimal pipelined broadcast of `blocks` blocks from rank 0: every rank sends and receives at most one
/// block per round, all have everything after blocks - 1 + ceil(log2(ranks)) rounds, for any number of ranks (Träff,
/// arXiv 2312.11236 and 2407.18004). In round i with k = i % q, rank r sends to r + skips[k].
class circulant_rounds {
 public:
  ESPALIER_CONSTEXPR_VECTOR circulant_rounds(int ranks, std::int64_t blocks)
      : blocks_(blocks), skips_(circulant_skips(ranks)), q_(static_cast<int>(skips_.size()) - 1) {
    if (q_ == 0) return;
    rounds_ = blocks - 1 + q_;
    idle_ = (q_ - rounds_ % q_) % q_;
    for (int r = 0; r < ranks; ++r) receives_.push_back(detail::circulant_receiver(skips_, r).blocks());
  }

  [[nodiscard]] constexpr std::int64_t rounds() const { return rounds_; }
  /// How far messages of round `i` go.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int skip(std::int64_t i) const {
    return skips_[static_cast<std::size_t>((i + idle_) % q_)];
  }
  /// The block that `rank` receives in round `i`; -1 if none.
  [[nodiscard]] constexpr std::int64_t received(int rank, std::int64_t i) const {
    if (rank == 0) return -1;
    const std::int64_t round = i + idle_;
    const std::int64_t block =
        receives_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(round % q_)] - idle_ + round / q_ * q_;
    return block < 0 ? -1 : block < blocks_ ? block : blocks_ - 1;
  }

 private:
  std::int64_t blocks_;
  std::vector<int> skips_;
  int q_;
  std::int64_t rounds_ = 0;
  std::int64_t idle_ = 0;  // rounds before the first, so that the last phase is whole
  std::vector<std::vector<int>> receives_;
};

}  // namespace espalier::comm
