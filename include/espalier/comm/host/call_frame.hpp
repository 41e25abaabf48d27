// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/host/endpoint.hpp>
#include <espalier/comm/host/shape.hpp>
#include <espalier/comm/host/space.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace espalier::comm::host {

/// The flags and data that one call uses in the ranks' regions: one copy of one tier.
template <SharedSpace Space> class call_frame {
 public:
  /// `cut()`: the shape. It is constructed in place, since small calls would notice the copy.
  template <class Cut>
  call_frame(endpoint<Space>& self, const call_tag& tag, const Cut& cut)
      : self_(&self),
        tag_(tag.bits),
        cut_(cut()),
        area_(cut_.of->at + static_cast<std::int64_t>(tag.number & static_cast<std::uint64_t>(cut_.of->depth - 1)) *
                                cut_.of->copy_bytes()) {}

  [[nodiscard]] const shape& cut() const { return cut_; }

  /// The tag of a round: exact, for a flag's line never holds anything but tags.
  [[nodiscard]] std::uint64_t tag(std::int64_t round) const {
    return tag_ | (static_cast<std::uint64_t>(round) & ((1U << endpoint<Space>::round_bits) - 1));
  }
  [[nodiscard]] flag_line& line(int rank, std::int64_t slot) const {
    return line_at(self_->region(rank), area_ + slot * line_bytes);
  }
  [[nodiscard]] std::byte* data(int rank, std::int64_t slot) const {
    return self_->region(rank) + area_ + cut_.of->flags * line_bytes + slot * cut_.stride;
  }

  void raise(flag_line& flag, std::int64_t round) const { flag.flag.store(tag(round), std::memory_order_release); }
  ESPALIER_ALWAYS_INLINE void await(const flag_line& flag, std::int64_t round, int rank, const char* purpose) const {
    const std::uint64_t expected = tag(round);
    self_->waits.until([&] { return flag.flag.load(std::memory_order_acquire) == expected; },
                       {rank, purpose, round, cut_.rounds});
  }
  ESPALIER_ALWAYS_INLINE void await_room() const { self_->await_room(cut_); }

 private:
  endpoint<Space>* self_;
  std::uint64_t tag_;
  shape cut_;
  std::int64_t area_;
};

/// Exchanges a few words among all ranks, each in the line of a flag.
template <SharedSpace Space> class word_exchange {
 public:
  /// `tier`: one whose lines the rest of the call does not use.
  word_exchange(endpoint<Space>& self, const call_tag& tag, int tier)
      : self_(&self), frame_(self, tag, [&] { return shape_in(self, tier); }) {
    frame_.await_room();
  }

  /// Calls `visit(rank, words)` with the words of each rank. `purpose`: for the error of a wait in vain.
  template <class Words, class Visit> void run(const Words& mine, const char* purpose, const Visit& visit) const {
    static_assert(sizeof(Words) <= static_cast<std::size_t>(flag_line::room));
    flag_line& own = frame_.line(self_->rank, 0);
    std::memcpy(&own.beside[0], &mine, sizeof mine);
    frame_.raise(own, 0);
    for (int r = 0; r < self_->size; ++r) {
      Words theirs = mine;
      if (r != self_->rank) {
        const flag_line& other = frame_.line(r, 0);
        frame_.await(other, 0, r, purpose);
        std::memcpy(&theirs, &other.beside[0], sizeof theirs);
      }
      visit(r, theirs);
    }
  }

  /// Memory of a rank in the same copy of the tier.
  [[nodiscard]] std::byte* data(int rank) const { return frame_.data(rank, 0); }

 private:
  static shape shape_in(const endpoint<Space>& self, int tier) {
    shape cut = shape_of(self.layout, self.how, flag_line::room, 1, 1);
    cut.of = &self.layout.of(tier);
    return cut;
  }

  endpoint<Space>* self_;
  call_frame<Space> frame_;
};

}  // namespace espalier::comm::host
