// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/config.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

using espalier::collective;

/// True if all ranks can call it, and schedules say which rank sends what when. The other collectives move boxes
/// between a program's devices, or have no data.
[[nodiscard]] constexpr bool has_schedules(collective what) { return facts_of(what).before != array_share::none; }

/// Whose memory: offsets and counts of a schedule are elements of one of these, on one rank.
enum class place : std::uint8_t {
  input,   ///< the caller's input; never written
  output,  ///< the caller's result
  scratch  ///< the schedule's own memory
};

/// Elements of a buffer from `offset` on. In a track of many chunks, chunk k stands k chunks further on; or, if
/// `cyclic`, at slot k % in_flight of scratch memory that is used round robin.
struct location {
  place where = place::output;
  std::int64_t offset = 0;
  bool cyclic = false;

  [[nodiscard]] friend constexpr bool operator==(const location&, const location&) = default;
};

/// One collective operation, as its caller states it. Units: elements.
struct collective_call {
  collective kind = collective::broadcast;
  int ranks = 1;
  int root = 0;  ///< of broadcast, reduce, gather and scatter
  /// Broadcast, reduce, all-reduce: one number. All-gather, reduce-scatter, gather, scatter: the block of each rank;
  /// blocks follow one another. All-to-all: what rank s has for rank d at `s * ranks + d`; inputs lie in the order of
  /// receivers, results in the order of senders.
  std::vector<std::int64_t> counts;
  /// The input stands in the output: everywhere (all-reduce, all-to-all), at its place in the whole array (all-gather,
  /// reduce-scatter, whose result then moves to the front; what follows it is used up), or so at the root only
  /// (broadcast, reduce, gather). A scatter's root leaves its own block in its input.
  bool in_place = false;
  /// Contributions are combined in the order of ranks: for operators that don't commute.
  bool ordered = false;
};

[[nodiscard]] constexpr bool has_root(collective what) {
  return facts_of(what).before == array_share::whole_at_root || facts_of(what).after == array_share::whole_at_root;
}
[[nodiscard]] constexpr bool reduces(collective what) { return facts_of(what).reduces; }
/// Whether `counts` has one number per rank.
[[nodiscard]] constexpr bool has_blocks(collective what) {
  return facts_of(what).before == array_share::block || facts_of(what).after == array_share::block;
}
/// Whether it has one for each pair of ranks.
[[nodiscard]] constexpr bool has_cells(collective what) { return facts_of(what).before == array_share::cells; }

/// A call whose blocks are all equal. `count` is what `counts` says: the whole array, or one block.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR collective_call uniform_call(collective what, int ranks, std::int64_t count,
                                                                     int root = 0) {
  collective_call call;
  call.kind = what;
  call.ranks = ranks;
  call.root = root;
  const auto n = static_cast<std::size_t>(ranks);
  call.counts.assign(has_cells(what) ? n * n : has_blocks(what) ? n : 1, count);
  return call;
}

/// Elements of the array that the collective is about: all blocks together.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t total_elements(const collective_call& call) {
  std::int64_t total = 0;
  for (const std::int64_t count : call.counts) total += count;
  return total;
}

/// The array that a collective is about, and where its pieces stand on each rank. Elements are numbered through the
/// whole array: of all-gather and its like, block after block; of all-to-all, row after row of `counts`.
class call_layout {
 public:
  /// Throws std::invalid_argument where the call contradicts itself.
  ESPALIER_CONSTEXPR_VECTOR explicit call_layout(const collective_call& call) : call_(&call) {
    const auto n = static_cast<std::size_t>(call.ranks);
    if (!has_schedules(call.kind)) throw std::invalid_argument("this kind of collective has no schedules");
    if (call.ranks < 1) throw std::invalid_argument("a collective needs at least one rank");
    if (has_root(call.kind) && (call.root < 0 || call.root >= call.ranks)) {
      throw std::invalid_argument("the root of a collective must be one of its ranks");
    }
    const std::size_t needed = has_cells(call.kind) ? n * n : has_blocks(call.kind) ? n : 1;
    if (call.counts.size() != needed) {
      throw std::invalid_argument(
          "counts of a collective: one for the whole array, one per rank for blocks, ranks x ranks for all-to-all");
    }
    first_.reserve(needed + 1);
    first_.push_back(0);
    for (const std::int64_t count : call.counts) {
      if (count < 0) throw std::invalid_argument("a count of a collective is negative");
      first_.push_back(first_.back() + count);
    }
    if (!has_cells(call.kind)) return;
    column_.assign(n * n, 0);
    for (std::size_t d = 0; d < n; ++d) {
      std::int64_t offset = 0;
      for (std::size_t s = 0; s < n; ++s) {
        column_[s * n + d] = offset;
        offset += call.counts[s * n + d];
        if (call.in_place && call.counts[s * n + d] != call.counts[d * n + s]) {
          throw std::invalid_argument("all-to-all in place: two ranks must exchange equal counts");
        }
      }
    }
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t total() const { return first_.back(); }
  /// First element of block `index` (all-to-all: of row-major cell `index`).
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t first(int index) const {
    return first_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t count(int index) const {
    return call_->counts[static_cast<std::size_t>(index)];
  }

  /// Elements of the rank's input: 0 where the call is in place for it, or nothing is taken from it.
  [[nodiscard]] constexpr std::int64_t input_elements(int rank) const {
    if (is_in_output(rank)) return 0;
    switch (facts().before) {
      case array_share::whole_at_root: return rank == call_->root ? total() : 0;
      case array_share::whole: return total();
      case array_share::block: return count(rank);
      case array_share::cells: return first((rank + 1) * call_->ranks) - first(rank * call_->ranks);
      case array_share::none: break;
    }
    return 0;
  }

  [[nodiscard]] constexpr std::int64_t output_elements(int rank) const {
    const bool root = rank == call_->root;
    switch (facts().after) {
      case array_share::whole: return total();
      case array_share::whole_at_root: return root ? total() : 0;
      case array_share::block:
        if (!call_->in_place) return count(rank);
        if (facts().before == array_share::whole) return total();
        return root ? 0 : count(rank);
      case array_share::cells: {
        const int last = (call_->ranks - 1) * call_->ranks + rank;
        return column_[static_cast<std::size_t>(last)] + count(last);
      }
      case array_share::none: break;
    }
    return 0;
  }

  /// Returns where `rank` holds its part of element `element` before the collective. `block` is the block (or cell) of
  /// it.
  [[nodiscard]] constexpr location held(int rank, int block, std::int64_t element) const {
    if (facts().before == array_share::none) return {};
    const place where = is_in_output(rank) ? place::output : place::input;
    if (facts().before == array_share::cells) return {where, element - first(rank * call_->ranks)};
    const bool is_alone = facts().before == array_share::block && where == place::input;
    return {where, is_alone ? element - first(block) : element};
  }

  /// The place of element `element` of block (or cell) `block` after the collective. @pre the element is a result of
  /// the rank
  [[nodiscard]] constexpr location result(int block, std::int64_t element) const {
    switch (facts().after) {
      case array_share::whole:
      case array_share::whole_at_root: return {place::output, element};
      case array_share::block: return {place::output, element - first(block)};
      case array_share::cells:
        return {place::output, column_[static_cast<std::size_t>(block)] + element - first(block)};
      case array_share::none: break;
    }
    return {};
  }

 private:
  [[nodiscard]] constexpr const collective_facts& facts() const { return facts_of(call_->kind); }
  /// Whether the rank's input stands in its output. (A scatter's root has its own in its input, whatever is in place.)
  [[nodiscard]] constexpr bool is_in_output(int rank) const {
    const bool scatters = facts().before == array_share::whole_at_root && facts().after == array_share::block;
    return call_->in_place && !scatters && (rank == call_->root || !has_root(call_->kind));
  }

  const collective_call* call_;
  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> column_;  // all-to-all: offset of each cell in its receiver's output
};

}  // namespace espalier::comm
