// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The balanced tree with root `root` in which every subtree is a run of neighbouring ranks, so that values can be
/// combined in the order of ranks. It depends on nothing but its arguments: reductions along it give the same bits on
/// every run and every network. Its messages go directly (`step::direct`), whatever links there are.
/// @post height <= 1 + ceil(log2(ranks))
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR rooted_tree ordered_tree(int ranks, int root) {
  const auto n = static_cast<std::size_t>(ranks);
  rooted_tree made;
  made.parent.assign(n, -1);
  made.edge.assign(n, step::direct);
  made.height.assign(n, 0);
  made.depth.assign(n, 0);
  made.children.assign(n, {});
  struct range {
    int first;
    int last;  // one past
    int parent;
  };
  std::vector<range> todo{{0, root, root}, {root + 1, ranks, root}};
  std::vector<std::size_t> order{static_cast<std::size_t>(root)};
  while (!todo.empty()) {
    const range r = todo.back();
    todo.pop_back();
    if (r.first >= r.last) continue;
    const int middle = r.first + (r.last - r.first) / 2;
    const auto self = static_cast<std::size_t>(middle);
    const auto up = static_cast<std::size_t>(r.parent);
    made.parent[self] = r.parent;
    made.depth[self] = made.depth[up] + 1;
    made.children[up].push_back({middle, step::direct});
    order.push_back(self);
    todo.push_back({r.first, middle, middle});
    todo.push_back({middle + 1, r.last, middle});
  }
  for (std::size_t i = n; i-- > 1;) {
    auto& above = made.height[static_cast<std::size_t>(made.parent[order[i]])];
    above = std::max(above, made.height[order[i]] + 1);
  }
  return made;
}

/// Reduce, all-reduce and reduce-scatter along ordered trees: for operators that don't commute, and for results that
/// are equal to the bit on every rank, run and network. Pipelined in chunks like `from_trees`.
///
/// An all-reduce may be cut into shares with a tree and root each, evenly spaced among the ranks: one has the fewest
/// messages, `ranks` of them load all ranks alike. Which operations make up a result depends on the ranks, the counts
/// and `shares` alone, not on chunks.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule from_ordered_trees(const collective_call& call,
                                                                    const chunking& cut = {}, int shares = 1) {
  if (!reduces(call.kind)) throw std::invalid_argument("only reductions have an order of ranks to keep");
  if (shares < 1 || shares > call.ranks) throw std::invalid_argument("an all-reduce has 1 to `ranks` shares");
  const call_layout layout(call);
  schedule plan = detail::empty_schedule(call, cut);
  plan.call.ordered = true;
  detail::tree_tracks tracks(plan, layout, cut);
  const auto add = [&](int root, const detail::tree_share& share) {
    rooted_tree rising = ordered_tree(call.ranks, root);
    rooted_tree falling = rising;
    const int ways = rising.height[static_cast<std::size_t>(root)] * (call.kind == collective::all_reduce ? 2 : 1);
    // Nothing is known of the rates on the way: two chunks a hop.
    tracks.add(root, std::move(rising), std::move(falling), share, 2.0 * ways);
  };
  if (call.ranks > 1 && call.kind == collective::reduce) add(call.root, {0, layout.total(), 0, 0});
  for (int b = 0; b < call.ranks && call.ranks > 1 && has_blocks(call.kind); ++b) {
    add(b, {layout.first(b), layout.count(b), b, b});
  }
  for (int k = 0; k < shares && call.ranks > 1 && call.kind == collective::all_reduce; ++k) {
    const std::int64_t begin = layout.total() / shares * k + std::min<std::int64_t>(k, layout.total() % shares);
    const std::int64_t count = layout.total() / shares + (k < layout.total() % shares ? 1 : 0);
    add((2 * k + 1) * call.ranks / (2 * shares), {begin, count, 0, k});
  }
  detail::add_own_copies(plan, layout, call.ranks);
  detail::add_final_moves(plan, layout, call.ranks);
  return plan;
}

}  // namespace espalier::comm
