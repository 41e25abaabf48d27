// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/fraction.hpp>
#include <espalier/comm/schedule/network_paths.hpp>
#include <espalier/comm/schedule/rooted.hpp>
#include <espalier/comm/schedule/schedule.hpp>
#include <espalier/comm/schedule/split.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm {

/// How data is cut for pipelining.
struct chunking {
  std::int64_t elements = 8192;  ///< most elements of one message
  /// A share is cut into at least so many chunks, while these have `least` elements: trees of small weight must not
  /// spend long on their first chunk.
  std::int64_t pieces = 1;
  std::int64_t least = 1;
  int credits = 4;           ///< messages under way per stream
  int in_flight = 0;         ///< lanes of a track begun and not finished per rank; 0: those on their way, and `spare`
  std::int64_t grain = 1;    ///< cuts fall on multiples of this many elements where that costs nothing
  double element_bytes = 4;  ///< bytes of an element, with which latencies are compared
  /// Lanes of a tree beside those on their way: one that is being received, one that is being sent, one for what
  /// disturbs. More make up for ranks that wait for their processors; but they fill the transport's queues, ahead of
  /// what other trees wait for: on eight hosts linked like a DGX-1V twice as many lanes as hops lose 12 % of the bound.
  int spare = 3;

  /// Most elements of a message of a share of `count` elements.
  [[nodiscard]] constexpr std::int64_t of(std::int64_t count) const {
    const std::int64_t even = (count + pieces - 1) / std::max<std::int64_t>(1, pieces);
    return std::min(elements, std::max({least, even, std::int64_t{1}}));
  }
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

[[nodiscard]] constexpr location moved(location at, std::int64_t offset) {
  return {at.where, at.offset + offset, at.cyclic};
}

[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule empty_schedule(const collective_call& call, const chunking& cut) {
  if (cut.credits < 1) throw std::invalid_argument("a stream needs at least one credit");
  schedule plan;
  plan.call = call;
  plan.credits = cut.credits;
  plan.scratch.assign(static_cast<std::size_t>(call.ranks), 0);
  return plan;
}

// A rank's results that it holds from the start.
ESPALIER_CONSTEXPR_VECTOR void add_own_copies(schedule& plan, const call_layout& layout, int tree) {
  const collective_call& call = plan.call;
  if (call.kind == collective::reduce_scatter || call.kind == collective::reduce ||
      call.kind == collective::all_reduce) {
    if (call.ranks > 1) return;
  }
  track_builder copies(tree, 0);
  for (int r = 0; r < call.ranks; ++r) {
    const bool root = r == call.root;
    if (has_root(call.kind) && !root) continue;
    if (call.kind == collective::scatter && call.in_place) continue;
    copies.rank(r);
    const bool whole = call.counts.size() == 1;
    const int block = call.kind == collective::all_to_all ? r * call.ranks + r : whole ? 0 : r;
    const std::int64_t first = whole ? 0 : layout.first(block);
    copies.copy(layout.held(r, block, first), layout.result(block, first), layout.count(block));
  }
  track made = copies.finish();
  if (!made.parts.empty()) plan.tracks.push_back(std::move(made));
}

// Elements [first, first + count) of block `block` travel along one tree.
struct tree_share {
  std::int64_t first = 0;
  std::int64_t count = 0;
  int block = 0;
  int number = 0;
};

class tree_tracks {
 public:
  constexpr tree_tracks(schedule& plan, const call_layout& layout, const chunking& cut)
      : plan_(plan), layout_(layout), cut_(cut) {}

  /// Whether values rise to the root, and whether results fall from it.
  [[nodiscard]] constexpr bool up() const { return reduces(plan_.call.kind); }
  [[nodiscard]] constexpr bool down() const { return !up() || plan_.call.kind == collective::all_reduce; }

  ESPALIER_CONSTEXPR_VECTOR void add(const network& net, const tree& t, const tree_share& share) {
    rooted_tree rising;
    rooted_tree falling;
    if (up()) rising = read_tree(net, t, direction::to_root);
    if (down()) falling = read_tree(net, t, direction::from_root);
    const auto chunk = static_cast<double>(cut_.of(share.count)) * cut_.element_bytes;
    const double apart = chunk / (to_double(t.weight) * net.unit);
    const double on_the_way = (longest(net, rising, chunk) + longest(net, falling, chunk)) / apart;
    add(t.root, std::move(rising), std::move(falling), share, on_the_way);
  }

  /// `on_the_way`: chunks of the tree that are between the ranks when it is at its rate.
  /// @pre `rising` is a tree if `up()`, `falling` if `down()`
  ESPALIER_CONSTEXPR_VECTOR void add(int tree_root, rooted_tree rising, rooted_tree falling, const tree_share& share,
                                     double on_the_way) {
    if (share.count == 0) return;
    const bool up = this->up();
    const bool down = this->down();
    if (up && plan_.call.ordered) {
      outwards(rising);
    } else if (up) {
      shallow_first(rising);
    }
    if (down) deep_first(falling);
    const chunk_grid grid = equal_chunks(share.count, cut_.of(share.count), cut_.grain);
    // A lane stays open on a rank while its data is on the way round.
    constexpr double most = 1e6;
    const int lanes = static_cast<int>(std::min(most, on_the_way)) + cut_.spare;
    const int in_flight = cut_.in_flight > 0 ? cut_.in_flight : lanes;
    const int slots = static_cast<int>(std::min<std::int64_t>(in_flight, grid.chunks));
    const std::int64_t n = grid.chunk;

    track_builder track(share.number, 0);
    for (int r = 0; r < plan_.call.ranks; ++r) {
      track.rank(r);
      track.stream(0);
      const auto self = static_cast<std::size_t>(r);
      location value = layout_.held(r, share.block, share.first);
      if (up) {
        const auto& children = rising.children[self];
        const location sum = children.empty() ? value : accumulator(r, tree_root, share, slots * n);
        for (const auto& child : children) {
          const bool left = plan_.call.ordered && child.rank < r;
          track.receive_reduce(child.rank, child.edge, value, sum, n, left);
          value = sum;
        }
        if (r != tree_root) track.send(rising.parent[self], rising.edge[self], value, n);
      }
      if (down) {
        track.stream(up ? 1 : 0);
        if (r != tree_root) {
          value = layout_.result(share.block, share.first);
          track.receive(falling.parent[self], falling.edge[self], value, n);
        }
        for (const auto& child : falling.children[self]) track.send(child.rank, child.edge, value, n);
      }
    }
    plan_.tracks.push_back(track.finish(grid.chunks, grid.chunk, grid.cut, in_flight));
  }

 private:
  // Seconds of a chunk on the longest way between the root and a rank, if nothing is ahead of it.
  [[nodiscard]] static ESPALIER_CONSTEXPR_VECTOR double longest(const network& net, const rooted_tree& t,
                                                                double chunk) {
    double most = 0;
    for (std::size_t r = 0; r < t.parent.size(); ++r) {
      double seconds = 0;
      for (std::size_t at = r; t.parent[at] >= 0; at = static_cast<std::size_t>(t.parent[at])) {
        const network::edge& e = net.edges[static_cast<std::size_t>(t.edge[at])];
        seconds += e.latency + chunk / edge_rate(net, e);
      }
      most = std::max(most, seconds);
    }
    return most;
  }

  // Returns where a rank that has children adds up. Results that the rank keeps, and all-reduce's, which it gets back,
  // are added up in place; others in scratch memory.
  [[nodiscard]] constexpr location accumulator(int rank, int root, const tree_share& share, std::int64_t elements) {
    const collective_call& call = plan_.call;
    if (call.kind == collective::all_reduce) return layout_.result(share.block, share.first);
    if (rank == root) {
      // In place, the front of a reduce-scatter's buffer is still needed as input: the result moves there at the end.
      if (call.kind == collective::reduce_scatter && call.in_place) return layout_.held(rank, share.block, share.first);
      return layout_.result(share.block, share.first);
    }
    std::int64_t& scratch = plan_.scratch[static_cast<std::size_t>(rank)];
    const location made{place::scratch, scratch, true};
    scratch += elements;
    return made;
  }

  schedule& plan_;
  const call_layout& layout_;
  const chunking& cut_;
};

// The results of a reduce-scatter in place move to the front of the buffer when nothing reads that any more.
ESPALIER_CONSTEXPR_VECTOR void add_final_moves(schedule& plan, const call_layout& layout, int tree) {
  if (plan.call.kind != collective::reduce_scatter || !plan.call.in_place) return;
  track_builder moves(tree, 1);
  for (int r = 0; r < plan.call.ranks; ++r) {
    moves.rank(r);
    moves.copy(layout.held(r, r, layout.first(r)), layout.result(r, layout.first(r)), layout.count(r));
  }
  track made = moves.finish();
  if (!made.parts.empty()) plan.tracks.push_back(std::move(made));
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// The schedule that moves the data along trees, pipelined in chunks. Data is cut in proportion to `weights`, one per
/// tree, among the trees that serve the same block: a block's trees are those with its rank as root (all-gather,
/// reduce-scatter); otherwise all trees serve the whole array.
///
/// Of broadcast and reduce every tree's root is the call's; all-reduce may have any roots. Not for gather, scatter and
/// all-to-all, whose data differs per rank: `from_routes`. Calls that are `ordered` need trees like `ordered_tree`'s.
/// Throws std::invalid_argument where trees and call don't fit.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule from_trees(const collective_call& call, const network& net,
                                                            const std::vector<tree>& trees,
                                                            const std::vector<double>& weights,
                                                            const chunking& cut = {}) {
  const call_layout layout(call);
  if (net.ranks != call.ranks) throw std::invalid_argument("the call and the network have different numbers of ranks");
  if (trees.size() != weights.size()) throw std::invalid_argument("trees need one weight each");
  if (call.kind == collective::gather || call.kind == collective::scatter || call.kind == collective::all_to_all) {
    throw std::invalid_argument("gather, scatter and all-to-all move along routes: from_routes");
  }
  schedule plan = detail::empty_schedule(call, cut);
  const int own = static_cast<int>(trees.size());
  detail::tree_tracks tracks(plan, layout, cut);
  const bool by_block = has_blocks(call.kind);
  for (int block = 0; block < (by_block ? call.ranks : 1) && call.ranks > 1; ++block) {
    const std::int64_t count = layout.count(block);
    std::vector<int> serving;
    std::vector<double> shares;
    for (std::size_t i = 0; i < trees.size(); ++i) {
      if (by_block && trees[i].root != block) continue;
      if (has_root(call.kind) && trees[i].root != call.root) {
        throw std::invalid_argument("the trees of a broadcast or reduce must have the call's root");
      }
      serving.push_back(static_cast<int>(i));
      shares.push_back(weights[i]);
    }
    if (count == 0) continue;
    if (serving.empty()) throw std::invalid_argument("no tree serves a block: the packing has a rate of 0");
    const std::vector<std::int64_t> cuts = proportional_cuts(count, shares, cut.grain);
    for (std::size_t i = 0; i < serving.size(); ++i) {
      tracks.add(net, trees[static_cast<std::size_t>(serving[i])],
                 {layout.first(block) + cuts[i], cuts[i + 1] - cuts[i], block, serving[i]});
    }
  }
  detail::add_own_copies(plan, layout, own);
  detail::add_final_moves(plan, layout, own);
  return plan;
}

[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<double> weights_of(const std::vector<tree>& trees) {
  std::vector<double> weights;
  weights.reserve(trees.size());
  for (const tree& t : trees) weights.push_back(to_double(t.weight));
  return weights;
}

/// The same, each tree with the weight that its packing gave it.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule from_trees(const collective_call& call, const network& net,
                                                            const std::vector<tree>& trees, const chunking& cut = {}) {
  return from_trees(call, net, trees, weights_of(trees), cut);
}

}  // namespace espalier::comm
