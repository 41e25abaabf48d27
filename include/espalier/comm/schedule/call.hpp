// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/shape/collective.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

using espalier::collective;

/// Whether all ranks can call it, and schedules say who sends what when. The others are what a program's devices do
/// with boxes, or have no data.
[[nodiscard]] constexpr bool has_schedules(collective what) {
  switch (what) {
    case collective::broadcast:
    case collective::reduce:
    case collective::all_reduce:
    case collective::all_gather:
    case collective::reduce_scatter:
    case collective::gather:
    case collective::scatter:
    case collective::all_to_all: return true;
    case collective::local_slice:
    case collective::collective_permute:
    case collective::exchange:
    case collective::reduce_exchange:
    case collective::barrier: return false;
  }
  return false;
}

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
  collective what = collective::broadcast;
  int ranks = 1;
  int root = 0;  ///< of broadcast, reduce, gather and scatter
  /// Broadcast, reduce, all-reduce: one number. All-gather, reduce-scatter, gather, scatter: the block of each rank;
  /// blocks lie behind each other. All-to-all: what rank s has for rank d at `s * ranks + d`; inputs lie in the order
  /// of receivers, results in the order of senders.
  std::vector<std::int64_t> counts;
  /// The input stands in the output: everywhere (all-reduce, all-to-all), at its place in the whole array (all-gather,
  /// reduce-scatter, whose result then moves to the front; what stands behind it is used up), or so at the root only
  /// (broadcast, reduce, gather). A scatter's root leaves its own block in its input.
  bool in_place = false;
  /// Contributions are combined in the order of ranks: for operators that don't commute.
  bool ordered = false;
};

[[nodiscard]] constexpr bool has_root(collective what) {
  return what == collective::broadcast || what == collective::reduce || what == collective::gather ||
         what == collective::scatter;
}
[[nodiscard]] constexpr bool reduces(collective what) {
  return what == collective::reduce || what == collective::all_reduce || what == collective::reduce_scatter ||
         what == collective::reduce_exchange;
}
/// Whether `counts` has one number per rank.
[[nodiscard]] constexpr bool has_blocks(collective what) {
  return what == collective::all_gather || what == collective::reduce_scatter || what == collective::gather ||
         what == collective::scatter;
}

/// A call whose blocks are all equal. `count` is what `counts` says: the whole array, or one block.
[[nodiscard]] constexpr collective_call uniform_call(collective what, int ranks, std::int64_t count, int root = 0) {
  collective_call call;
  call.what = what;
  call.ranks = ranks;
  call.root = root;
  const auto n = static_cast<std::size_t>(ranks);
  call.counts.assign(what == collective::all_to_all ? n * n : has_blocks(what) ? n : 1, count);
  return call;
}

/// Elements of the array that the collective is about: all blocks together.
[[nodiscard]] constexpr std::int64_t total_elements(const collective_call& call) {
  std::int64_t total = 0;
  for (const std::int64_t count : call.counts) total += count;
  return total;
}

/// The array that a collective is about, and where its pieces stand on each rank. Elements are numbered through the
/// whole array: of all-gather and its like, block behind block; of all-to-all, row behind row of `counts`.
class call_layout {
 public:
  /// Throws std::invalid_argument where the call contradicts itself.
  constexpr explicit call_layout(const collective_call& call) : call_(&call) {
    const auto n = static_cast<std::size_t>(call.ranks);
    if (!has_schedules(call.what)) throw std::invalid_argument("this kind of collective has no schedules");
    if (call.ranks < 1) throw std::invalid_argument("a collective needs at least one rank");
    if (has_root(call.what) && (call.root < 0 || call.root >= call.ranks)) {
      throw std::invalid_argument("the root of a collective must be one of its ranks");
    }
    const std::size_t needed = call.what == collective::all_to_all ? n * n : has_blocks(call.what) ? n : 1;
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
    if (call.what != collective::all_to_all) return;
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

  [[nodiscard]] constexpr std::int64_t total() const { return first_.back(); }
  /// First element of block `index` (all-to-all: of row-major cell `index`).
  [[nodiscard]] constexpr std::int64_t first(int index) const { return first_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] constexpr std::int64_t count(int index) const { return call_->counts[static_cast<std::size_t>(index)]; }

  /// Elements of the rank's input: 0 where the call is in place for it, or nothing is taken from it.
  [[nodiscard]] constexpr std::int64_t input_elements(int rank) const {
    const bool root = rank == call_->root;
    const bool absent = call_->in_place && (root || !has_root(call_->what));
    switch (call_->what) {
      case collective::broadcast: return root && !absent ? total() : 0;
      case collective::scatter: return root ? total() : 0;
      case collective::reduce:
      case collective::all_reduce:
      case collective::reduce_scatter: return absent ? 0 : total();
      case collective::all_gather:
      case collective::gather: return absent ? 0 : count(rank);
      case collective::all_to_all: return absent ? 0 : first((rank + 1) * call_->ranks) - first(rank * call_->ranks);
      case collective::local_slice:
      case collective::collective_permute:
      case collective::exchange:
      case collective::reduce_exchange:
      case collective::barrier: break;
    }
    return 0;
  }

  [[nodiscard]] constexpr std::int64_t output_elements(int rank) const {
    const bool root = rank == call_->root;
    switch (call_->what) {
      case collective::broadcast:
      case collective::all_reduce:
      case collective::all_gather: return total();
      case collective::reduce:
      case collective::gather: return root ? total() : 0;
      case collective::reduce_scatter: return call_->in_place ? total() : count(rank);
      case collective::scatter: return root && call_->in_place ? 0 : count(rank);
      case collective::all_to_all: {
        const int last = (call_->ranks - 1) * call_->ranks + rank;
        return column_[static_cast<std::size_t>(last)] + count(last);
      }
      case collective::local_slice:
      case collective::collective_permute:
      case collective::exchange:
      case collective::reduce_exchange:
      case collective::barrier: break;
    }
    return 0;
  }

  /// Where `rank` holds its part of element `element` before the collective. `block` is the block (or cell) of it.
  [[nodiscard]] constexpr location held(int rank, int block, std::int64_t element) const {
    const bool at_root = rank == call_->root;
    const bool in_output = call_->in_place && (at_root || !has_root(call_->what));
    switch (call_->what) {
      case collective::broadcast:
      case collective::reduce:
      case collective::all_reduce:
      case collective::reduce_scatter: return {in_output ? place::output : place::input, element};
      case collective::all_gather:
      case collective::gather:
        return in_output ? location{place::output, element} : location{place::input, element - first(block)};
      case collective::scatter: return {place::input, element};
      case collective::all_to_all:
        return {in_output ? place::output : place::input, element - first(rank * call_->ranks)};
      case collective::local_slice:
      case collective::collective_permute:
      case collective::exchange:
      case collective::reduce_exchange:
      case collective::barrier: break;
    }
    return {};
  }

  /// Where `rank` wants element `element` of block (or cell) `block`. @pre the element is a result of that rank
  [[nodiscard]] constexpr location wanted(int block, std::int64_t element) const {
    switch (call_->what) {
      case collective::broadcast:
      case collective::reduce:
      case collective::all_reduce:
      case collective::all_gather:
      case collective::gather: return {place::output, element};
      case collective::reduce_scatter:
      case collective::scatter: return {place::output, element - first(block)};
      case collective::all_to_all:
        return {place::output, column_[static_cast<std::size_t>(block)] + element - first(block)};
      case collective::local_slice:
      case collective::collective_permute:
      case collective::exchange:
      case collective::reduce_exchange:
      case collective::barrier: break;
    }
    return {};
  }

 private:
  const collective_call* call_;
  std::vector<std::int64_t> first_;
  std::vector<std::int64_t> column_;  // all-to-all: offset of each cell in its receiver's output
};

/// A run of elements on a rank. `contributor` is the rank whose value it is; `everyone`: all ranks' values combined.
struct piece {
  static constexpr int everyone = -1;
  location at;
  std::int64_t count = 0;
  std::int64_t element = 0;
  int contributor = everyone;
};

/// What `rank` holds before the collective.
[[nodiscard]] constexpr std::vector<piece> pieces_held(const collective_call& call, const call_layout& layout,
                                                       int rank) {
  std::vector<piece> pieces;
  const bool root = rank == call.root;
  switch (call.what) {
    case collective::broadcast:
    case collective::scatter:
      if (root) pieces.push_back({layout.held(rank, 0, 0), layout.total(), 0, rank});
      break;
    case collective::reduce:
    case collective::all_reduce:
    case collective::reduce_scatter: pieces.push_back({layout.held(rank, 0, 0), layout.total(), 0, rank}); break;
    case collective::all_gather:
    case collective::gather:
      pieces.push_back({layout.held(rank, rank, layout.first(rank)), layout.count(rank), layout.first(rank), rank});
      break;
    case collective::all_to_all:
      for (int d = 0; d < call.ranks; ++d) {
        const int cell = rank * call.ranks + d;
        pieces.push_back({layout.held(rank, cell, layout.first(cell)), layout.count(cell), layout.first(cell), rank});
      }
      break;
    case collective::local_slice:
    case collective::collective_permute:
    case collective::exchange:
    case collective::reduce_exchange:
    case collective::barrier: break;
  }
  return pieces;
}

/// What `rank` wants after it.
[[nodiscard]] constexpr std::vector<piece> pieces_wanted(const collective_call& call, const call_layout& layout,
                                                         int rank) {
  std::vector<piece> pieces;
  const bool root = rank == call.root;
  switch (call.what) {
    case collective::broadcast: pieces.push_back({layout.wanted(0, 0), layout.total(), 0, call.root}); break;
    case collective::reduce:
      if (root) pieces.push_back({layout.wanted(0, 0), layout.total(), 0, piece::everyone});
      break;
    case collective::all_reduce: pieces.push_back({layout.wanted(0, 0), layout.total(), 0, piece::everyone}); break;
    case collective::all_gather:
    case collective::gather:
      for (int s = 0; s < call.ranks && (root || call.what == collective::all_gather); ++s) {
        pieces.push_back({layout.wanted(s, layout.first(s)), layout.count(s), layout.first(s), s});
      }
      break;
    case collective::reduce_scatter:
      pieces.push_back(
          {layout.wanted(rank, layout.first(rank)), layout.count(rank), layout.first(rank), piece::everyone});
      break;
    case collective::scatter:
      if (root && call.in_place) break;
      pieces.push_back({layout.wanted(rank, layout.first(rank)), layout.count(rank), layout.first(rank), call.root});
      break;
    case collective::all_to_all:
      for (int s = 0; s < call.ranks; ++s) {
        const int cell = s * call.ranks + rank;
        pieces.push_back({layout.wanted(cell, layout.first(cell)), layout.count(cell), layout.first(cell), s});
      }
      break;
    case collective::local_slice:
    case collective::collective_permute:
    case collective::exchange:
    case collective::reduce_exchange:
    case collective::barrier: break;
  }
  return pieces;
}

}  // namespace espalier::comm
