// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/circulant.hpp>
#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

// Schedules for messages so small that the number of rounds decides. They need no packing: messages go directly, rank
// to rank, for any number of ranks.
namespace espalier::comm::detail {

[[nodiscard]] constexpr int modulo(int value, int ranks) { return ((value % ranks) + ranks) % ranks; }

// ceil(log2(ranks)).
[[nodiscard]] constexpr int rounds_of(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
}

// Takes a piece of the rank's scratch memory.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR location take_scratch(schedule& plan, int rank, std::int64_t elements) {
  std::int64_t& used = plan.scratch[static_cast<std::size_t>(rank)];
  const location made{place::scratch, used};
  used += elements;
  return made;
}

// First elements of blocks r, r + 1, ... (all ranks' once round), from 0.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<std::int64_t> rotated_offsets(
    const std::vector<std::int64_t>& counts, int rank) {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    offsets.push_back(offsets.back() + counts[(i + static_cast<std::size_t>(rank)) % counts.size()]);
  }
  return offsets;
}

// Copies blocks r, r + 1, ... in this order from an array that begins with block 0, or back into it.
ESPALIER_CONSTEXPR_VECTOR void rotate(track_builder& track, const std::vector<std::int64_t>& counts, int rank,
                                      location array, location rotated, bool back) {
  std::int64_t before = 0;
  for (int b = 0; b < rank; ++b) before += counts[static_cast<std::size_t>(b)];
  std::int64_t from_own = 0;
  for (std::size_t b = static_cast<std::size_t>(rank); b < counts.size(); ++b) from_own += counts[b];
  const location high = moved(array, before);
  const location low_rotated = moved(rotated, from_own);
  if (back) {
    track.copy(rotated, high, from_own);
    track.copy(low_rotated, array, before);
  } else {
    track.copy(high, rotated, from_own);
    track.copy(array, low_rotated, before);
  }
}

// Rotated blocks [0, s) shrink to [0, 1) in ceil(log2(ranks)) rounds: of s blocks the upper half goes to the rank that
// far ahead, which combines it with its own lower half (Träff, arXiv 2410.14234). The last sum is written to `target`.
ESPALIER_CONSTEXPR_VECTOR void circulant_reduce_scatter(track_builder& track, const std::vector<std::int64_t>& offsets,
                                                        int rank, location rotated, location target) {
  const int n = static_cast<int>(offsets.size()) - 1;
  for (int s = n; s > 1;) {
    const int half = (s + 1) / 2;
    const auto at = [&](int i) { return offsets[static_cast<std::size_t>(i)]; };
    track.send(modulo(rank + half, n), step::direct, moved(rotated, at(half)), at(s) - at(half));
    // The sender's block half + j is the receiver's block j.
    track.receive_reduce(modulo(rank - half, n), step::direct, rotated, half == 1 ? target : rotated, at(s - half));
    s = half;
  }
}

// The way back: block 0 is at `rotated`, and all others arrive after it in as many rounds.
ESPALIER_CONSTEXPR_VECTOR void circulant_all_gather(track_builder& track, const std::vector<std::int64_t>& offsets,
                                                    int rank, location rotated) {
  const int n = static_cast<int>(offsets.size()) - 1;
  const std::vector<int> skips = circulant_skips(n);
  for (std::size_t k = 0; k + 1 < skips.size(); ++k) {
    const int have = skips[k];
    const int want = skips[k + 1];
    const auto at = [&](int i) { return offsets[static_cast<std::size_t>(i)]; };
    track.send(modulo(rank - have, n), step::direct, rotated, at(want - have));
    track.receive(modulo(rank + have, n), step::direct, moved(rotated, at(have)), at(want) - at(have));
  }
}

constexpr void require(bool right, const char* text) {
  if (!right) throw std::invalid_argument(text);
}

/// Writes the steps of all ranks of a binomial tree.
class binomial_builder {
 public:
  ESPALIER_CONSTEXPR_VECTOR explicit binomial_builder(const collective_call& call)
      : call_(call),
        layout_(call),
        plan_(empty_schedule(call, {})),
        track_(0, 0),
        levels_(rounds_of(call.ranks)),
        blocks_(has_blocks(call.kind)),
        rising_(call.kind == collective::reduce || call.kind == collective::gather) {
    if (blocks_) offsets_ = rotated_offsets(call.counts, call.root);
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule build() {
    for (int r = 0; r < call_.ranks; ++r) {
      track_.rank(r);
      const node at = node_of(r);
      if (call_.kind == collective::broadcast) {
        broadcast(at);
      } else if (call_.kind == collective::reduce) {
        reduce(at);
      } else if (r == call_.root) {
        move_root_blocks(at);
      } else {
        move_blocks(at);
      }
    }
    plan_.tracks.push_back(track_.finish());
    add_own_copies(plan_, layout_, 0);
    return plan_;
  }

 private:
  /// A rank in the tree, numbered relative to the root. Relative rank v is a child of v without its lowest bit, and
  /// holds the blocks of [v, v + that bit).
  struct node {
    int rank = 0;
    int relative = 0;
    int low = 0;  // the lowest bit's place; of the root: the number of levels
    int parent = 0;

    [[nodiscard]] constexpr int child(int bit) const { return relative + (1 << bit); }
  };
  [[nodiscard]] constexpr node node_of(int rank) const {
    node at;
    at.rank = rank;
    at.relative = modulo(rank - call_.root, call_.ranks);
    at.low = at.relative == 0 ? levels_ : std::countr_zero(static_cast<unsigned>(at.relative));
    at.parent = rank_of(at.relative - (at.relative == 0 ? 0 : 1 << at.low));
    return at;
  }
  [[nodiscard]] constexpr int rank_of(int relative) const { return modulo(relative + call_.root, call_.ranks); }
  [[nodiscard]] constexpr bool exists(int relative) const { return relative < call_.ranks; }
  /// Returns where the block of a relative rank begins, in the order of relative ranks.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t block_at(int relative) const {
    return offsets_[static_cast<std::size_t>(std::min(relative, call_.ranks))];
  }
  /// Elements of the blocks of [relative, relative + 2^bit).
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::int64_t span(int relative, int bit) const {
    return block_at(relative + (1 << bit)) - block_at(relative);
  }

  ESPALIER_CONSTEXPR_VECTOR void broadcast(const node& at) {
    location value = layout_.held(at.rank, 0, 0);
    if (at.relative != 0) {
      value = layout_.result(0, 0);
      track_.receive(at.parent, step::direct, value, layout_.total());
    }
    for (int bit = at.low - 1; bit >= 0; --bit) {
      if (exists(at.child(bit))) track_.send(rank_of(at.child(bit)), step::direct, value, layout_.total());
    }
  }

  ESPALIER_CONSTEXPR_VECTOR void reduce(const node& at) {
    const bool leaf = at.low == 0 || !exists(at.relative + 1);
    location value = layout_.held(at.rank, 0, 0);
    const location sum = at.relative == 0 ? layout_.result(0, 0)
                         : leaf           ? value
                                          : take_scratch(plan_, at.rank, layout_.total());
    for (int bit = 0; bit < at.low; ++bit) {
      if (!exists(at.child(bit))) break;
      track_.receive_reduce(rank_of(at.child(bit)), step::direct, value, sum, layout_.total());
      value = sum;
    }
    if (at.relative != 0) track_.send(at.parent, step::direct, value, layout_.total());
  }

  /// The root of a gather or scatter. In the order of relative ranks its array begins with its own block; a child's
  /// message is whole in it unless it runs over the end, where it is taken apart in scratch memory.
  ESPALIER_CONSTEXPR_VECTOR void move_root_blocks(const node& at) {
    for (int k = 0; k < levels_; ++k) {
      const int bit = rising_ ? k : levels_ - 1 - k;
      if (exists(at.child(bit))) move_root_message(at, at.child(bit), span(at.child(bit), bit), bit);
    }
  }
  ESPALIER_CONSTEXPR_VECTOR void move_root_message(const node& at, int child, std::int64_t count, int bit) {
    const int peer = rank_of(child);
    const int last = std::min(child + (1 << bit), call_.ranks);  // one past
    const int wrap = call_.ranks - call_.root;                   // relative rank of block 0
    const std::int64_t to_end = child < wrap ? block_at(std::min(last, wrap)) - block_at(child) : 0;
    const location high =
        rising_ ? layout_.result(peer, layout_.first(peer)) : layout_.held(at.rank, peer, layout_.first(peer));
    const location zero = rising_ ? layout_.result(0, 0) : layout_.held(at.rank, 0, 0);
    if (child >= wrap || to_end == count || to_end == 0) {
      return move_message(peer, child >= wrap || to_end == count ? high : zero, count);
    }
    const location whole = take_scratch(plan_, at.rank, count);
    if (rising_) {
      track_.receive(peer, step::direct, whole, count);
      track_.copy(whole, high, to_end);
      track_.copy(moved(whole, to_end), zero, count - to_end);
    } else {
      track_.copy(high, whole, to_end);
      track_.copy(zero, moved(whole, to_end), count - to_end);
      track_.send(peer, step::direct, whole, count);
    }
  }

  /// A rank of a gather or scatter that is not the root.
  ESPALIER_CONSTEXPR_VECTOR void move_blocks(const node& at) {
    const std::int64_t mine = layout_.count(at.rank);
    const std::int64_t below = span(at.relative, at.low);
    location held = rising_ ? layout_.held(at.rank, at.rank, layout_.first(at.rank))
                            : layout_.result(at.rank, layout_.first(at.rank));
    if (below != mine) {
      const location all = take_scratch(plan_, at.rank, below);
      if (rising_) {
        track_.copy(held, all, mine);
      } else {
        track_.receive(at.parent, step::direct, all, below);
      }
      for (int k = 0; k < at.low; ++k) {
        const int bit = rising_ ? k : at.low - 1 - k;
        if (!exists(at.child(bit))) continue;
        const location place = moved(all, block_at(at.child(bit)) - block_at(at.relative));
        move_message(rank_of(at.child(bit)), place, span(at.child(bit), bit));
      }
      if (!rising_) track_.copy(all, held, mine);
      held = all;
    } else if (!rising_) {
      track_.receive(at.parent, step::direct, held, below);
    }
    if (rising_) track_.send(at.parent, step::direct, held, below);
  }

  /// One message between a rank and its child.
  ESPALIER_CONSTEXPR_VECTOR void move_message(int child, const location& at, std::int64_t count) {
    if (rising_) {
      track_.receive(child, step::direct, at, count);
    } else {
      track_.send(child, step::direct, at, count);
    }
  }

  const collective_call& call_;
  call_layout layout_;
  schedule plan_;
  track_builder track_;
  int levels_;
  bool blocks_;
  bool rising_;
  std::vector<std::int64_t> offsets_;
};

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Broadcast, reduce, gather and scatter along the binomial tree: ceil(log2(ranks)) rounds. A reduction keeps the order
/// of ranks if the root is 0 or the operator commutes; gather and scatter move each block once per level.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule binomial(const collective_call& call) {
  detail::require(has_root(call.kind), "binomial trees are for broadcast, reduce, gather and scatter");
  detail::require(!call.ordered || call.root == 0, "a binomial tree keeps the order of ranks only with root 0");
  return detail::binomial_builder(call).build();
}

/// All-reduce by recursive doubling: log2(ranks) rounds of the whole array, two more where ranks are no power of two
/// (neighbours are folded first). Ranks stay in order, and all get the same bits.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule doubling(const collective_call& call) {
  detail::require(call.kind == collective::all_reduce, "recursive doubling is for all-reduce");
  const call_layout layout(call);
  schedule plan = detail::empty_schedule(call, {});
  const int n = call.ranks;
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  const int folded = n - core;  // pairs (0, 1), (2, 3), ...: the odd one goes on
  const int levels = std::countr_zero(static_cast<unsigned>(core));
  const std::int64_t count = layout.total();
  const auto core_rank = [&](int v) { return v < folded ? 2 * v + 1 : v + folded; };
  track_builder track(0, 0);
  for (int r = 0; r < n; ++r) {
    track.rank(r);
    const location out = layout.result(0, 0);
    location value = layout.held(r, 0, 0);
    if (r < 2 * folded && r % 2 == 0) {
      track.send(r + 1, step::direct, value, count);
      track.receive(r + 1, step::direct, out, count);
      continue;
    }
    // Sums alternate between two places and end in the output, so that no sum is overwritten while it is being sent.
    int left = levels + (r < 2 * folded ? 1 : 0);
    const location other = left > 1 ? detail::take_scratch(plan, r, count) : out;
    const auto next = [&] { return --left % 2 == 0 ? out : other; };
    if (r < 2 * folded) {
      const location to = next();
      track.receive_reduce(r - 1, step::direct, value, to, count, true);
      value = to;
    }
    const int v = r < 2 * folded ? r / 2 : r - folded;
    for (int k = 0; k < levels; ++k) {
      const int peer = core_rank(v ^ (1 << k));
      const location to = next();
      track.send(peer, step::direct, value, count);
      track.receive_reduce(peer, step::direct, value, to, count, peer < r);
      value = to;
    }
    if (r < 2 * folded) track.send(r - 1, step::direct, value, count);
  }
  plan.tracks.push_back(track.finish());
  detail::add_own_copies(plan, layout, 0);
  return plan;
}

/// All-gather, reduce-scatter, and all-reduce as one after the other, on the circulant graph: ceil(log2(ranks)) rounds
/// each for any number of ranks, every element sent as few times as possible (Träff, arXiv 2410.14234). The operator
/// must commute.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule circulant(const collective_call& call) {
  detail::require(call.kind == collective::all_gather || call.kind == collective::reduce_scatter ||
                      call.kind == collective::all_reduce,
                  "circulant halving is for all-gather, reduce-scatter and all-reduce");
  detail::require(!call.ordered, "circulant halving changes the order of ranks");
  const call_layout layout(call);
  schedule plan = detail::empty_schedule(call, {});
  const int n = call.ranks;
  std::vector<std::int64_t> counts = call.counts;
  if (call.kind == collective::all_reduce) {
    counts.clear();
    for (int b = 0; b < n; ++b) counts.push_back(layout.total() * (b + 1) / n - layout.total() * b / n);
  }
  track_builder track(0, 0);
  for (int r = 0; r < n && n > 1; ++r) {
    track.rank(r);
    const std::vector<std::int64_t> offsets = detail::rotated_offsets(counts, r);
    const location rotated = detail::take_scratch(plan, r, offsets.back());
    if (call.kind == collective::all_gather) {
      track.copy(layout.held(r, r, layout.first(r)), rotated, layout.count(r));
      detail::circulant_all_gather(track, offsets, r, rotated);
      detail::rotate(track, counts, r, layout.result(0, 0), rotated, true);
      continue;
    }
    detail::rotate(track, counts, r, layout.held(r, 0, 0), rotated, false);
    if (call.kind == collective::reduce_scatter) {
      detail::circulant_reduce_scatter(track, offsets, r, rotated, layout.result(r, layout.first(r)));
    } else {
      detail::circulant_reduce_scatter(track, offsets, r, rotated, rotated);
      detail::circulant_all_gather(track, offsets, r, rotated);
      detail::rotate(track, counts, r, layout.result(0, 0), rotated, true);
    }
  }
  plan.tracks.push_back(track.finish());
  if (n == 1) detail::add_own_copies(plan, layout, 0);
  return plan;
}

/// Broadcast, reduce, all-reduce, all-gather and reduce-scatter along flat trees: every rank sends to a root, or a root
/// to every rank, or both. One or two latencies, whatever the number of ranks, for as many messages at a root as there
/// are ranks: best for few ranks far apart. Keeps the order of ranks. The root of an all-reduce is `hub`; those of
/// blocks are their ranks.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule flat(const collective_call& call, int hub = 0) {
  detail::require(!has_root(call.kind) || call.kind == collective::broadcast || call.kind == collective::reduce,
                  "flat trees are for broadcast, reduce, all-reduce, all-gather and reduce-scatter");
  detail::require(call.kind != collective::all_to_all, "an all-to-all sends every pair its own data: pairwise");
  detail::require(hub >= 0 && hub < call.ranks, "the hub of flat trees must be one of the ranks");
  const call_layout layout(call);
  const auto n = static_cast<std::size_t>(call.ranks);
  chunking whole;
  whole.elements = std::max<std::int64_t>(1, layout.total());
  schedule plan = detail::empty_schedule(call, whole);
  detail::tree_tracks tracks(plan, layout, whole);
  const auto add = [&](int root, const detail::tree_share& share) {
    const auto top = static_cast<std::size_t>(root);
    rooted_tree t;
    t.parent.assign(n, root);
    t.parent[top] = -1;
    t.edge.assign(n, step::direct);
    t.height.assign(n, 0);
    t.height[top] = 1;
    t.depth.assign(n, 1);
    t.depth[top] = 0;
    t.children.assign(n, {});
    for (int r = 0; r < call.ranks; ++r) {
      if (r != root) t.children[top].push_back({r, step::direct});
    }
    tracks.add(root, t, t, share, 2);
  };
  for (int b = 0; b < (has_blocks(call.kind) ? call.ranks : 1) && call.ranks > 1; ++b) {
    const int root = has_blocks(call.kind) ? b : has_root(call.kind) ? call.root : hub;
    add(root, {layout.first(b), layout.count(b), b, b});
  }
  detail::add_own_copies(plan, layout, call.ranks);
  detail::add_final_moves(plan, layout, call.ranks);
  return plan;
}

/// Broadcast and reduce in `blocks` blocks on the circulant graph: blocks - 1 + ceil(log2(ranks)) rounds, which no
/// one-ported algorithm beats, for any number of ranks (Träff, arXiv 2312.11236, 2407.18004). A reduction is the
/// broadcast backwards; its operator must commute.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule circulant_blocks(const collective_call& call, std::int64_t blocks) {
  detail::require(call.kind == collective::broadcast || call.kind == collective::reduce,
                  "circulant blocks are for broadcast and reduce");
  detail::require(!call.ordered, "a circulant reduction changes the order of ranks");
  detail::require(blocks >= 1, "a broadcast has at least one block");
  const call_layout layout(call);
  schedule plan = detail::empty_schedule(call, {});
  const int n = call.ranks;
  const std::int64_t total = layout.total();
  blocks = std::max<std::int64_t>(1, std::min(blocks, total));
  const circulant_rounds rounds(n, blocks);
  const auto first = [&](std::int64_t b) { return total / blocks * b + std::min(b, total % blocks); };
  const auto size = [&](std::int64_t b) { return first(b + 1) - first(b); };
  const auto rank_of = [&](int relative) { return detail::modulo(relative + call.root, n); };
  track_builder track(0, 0);
  for (int r = 0; r < n && n > 1; ++r) {
    track.rank(r);
    const int v = detail::modulo(r - call.root, n);
    if (call.kind == collective::broadcast) {
      const location array = v == 0 ? layout.held(r, 0, 0) : layout.result(0, 0);
      for (std::int64_t i = 0; i < rounds.rounds(); ++i) {
        const int to = detail::modulo(v + rounds.skip(i), n);
        const int from = detail::modulo(v - rounds.skip(i), n);
        const std::int64_t out = rounds.received(to, i);
        const std::int64_t in = rounds.received(v, i);
        if (out >= 0) track.send(rank_of(to), step::direct, detail::moved(array, first(out)), size(out));
        if (in >= 0) track.receive(rank_of(from), step::direct, detail::moved(array, first(in)), size(in));
      }
      continue;
    }
    std::vector<char> summed(static_cast<std::size_t>(blocks), 0);
    bool inner = false;
    for (std::int64_t i = 0; i < rounds.rounds(); ++i) {
      inner = inner || rounds.received(detail::modulo(v + rounds.skip(i), n), i) >= 0;
    }
    const location input = layout.held(r, 0, 0);
    const location sums = v == 0 ? layout.result(0, 0) : inner ? detail::take_scratch(plan, r, total) : input;
    const auto value = [&](std::int64_t b) {
      return detail::moved(summed[static_cast<std::size_t>(b)] != 0 ? sums : input, first(b));
    };
    for (std::int64_t i = rounds.rounds(); i-- > 0;) {
      const int to = detail::modulo(v + rounds.skip(i), n);
      const int from = detail::modulo(v - rounds.skip(i), n);
      const std::int64_t in = rounds.received(to, i);
      const std::int64_t out = rounds.received(v, i);
      if (out >= 0) track.send(rank_of(from), step::direct, value(out), size(out));
      if (in >= 0) {
        track.receive_reduce(rank_of(to), step::direct, value(in), detail::moved(sums, first(in)), size(in));
        summed[static_cast<std::size_t>(in)] = 1;
      }
    }
  }
  plan.tracks.push_back(track.finish());
  detail::add_own_copies(plan, layout, 0);
  return plan;
}

/// All-to-all in ceil(log2(ranks)) rounds: each block travels by the bits of its distance (Bruck et al., 1997). For
/// blocks so small that rounds cost more than sending each element log2(ranks) / 2 times.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule bruck(const collective_call& call) {
  detail::require(call.kind == collective::all_to_all, "Bruck's algorithm is for all-to-all");
  const call_layout layout(call);
  schedule plan = detail::empty_schedule(call, {});
  const int n = call.ranks;
  const auto count = [&](int from, int to) {
    return layout.count(detail::modulo(from, n) * n + detail::modulo(to, n));
  };
  track_builder track(0, 0);
  for (int r = 0; r < n && n > 1; ++r) {
    track.rank(r);
    // Before round k, slot d holds the block that has d still to go in bits k and above; it came from r - (d's lower
    // bits), so its length changes from round to round.
    const int levels = detail::rounds_of(n);
    std::vector<location> slot(static_cast<std::size_t>(n));
    for (int d = 1; d < n; ++d) {
      const int cell = r * n + detail::modulo(r + d, n);
      slot[static_cast<std::size_t>(d)] = layout.held(r, cell, layout.first(cell));
    }
    const auto origin = [&](int at, int d, int round) { return at - (d & ((1 << round) - 1)); };
    for (int k = 0; k < levels; ++k) {
      std::int64_t outgoing = 0;
      std::int64_t incoming = 0;
      for (int d = 1; d < n; ++d) {
        if ((d >> k & 1) == 0) continue;
        outgoing += count(origin(r, d, k), origin(r, d, k) + d);
        incoming += count(origin(r, d, k + 1), origin(r, d, k + 1) + d);
      }
      const location packed = detail::take_scratch(plan, r, outgoing);
      std::int64_t offset = 0;
      for (int d = 1; d < n; ++d) {
        if ((d >> k & 1) == 0) continue;
        const std::int64_t length = count(origin(r, d, k), origin(r, d, k) + d);
        track.copy(slot[static_cast<std::size_t>(d)], detail::moved(packed, offset), length);
        offset += length;
      }
      track.send(detail::modulo(r + (1 << k), n), step::direct, packed, outgoing);
      const location arrived = detail::take_scratch(plan, r, incoming);
      track.receive(detail::modulo(r - (1 << k), n), step::direct, arrived, incoming);
      offset = 0;
      for (int d = 1; d < n; ++d) {
        if ((d >> k & 1) == 0) continue;
        slot[static_cast<std::size_t>(d)] = detail::moved(arrived, offset);
        offset += count(origin(r, d, k + 1), origin(r, d, k + 1) + d);
      }
    }
    for (int d = 1; d < n; ++d) {
      const int cell = detail::modulo(r - d, n) * n + r;
      track.copy(slot[static_cast<std::size_t>(d)], layout.result(cell, layout.first(cell)), layout.count(cell));
    }
  }
  plan.tracks.push_back(track.finish());
  detail::add_own_copies(plan, layout, 0);
  return plan;
}

}  // namespace espalier::comm
