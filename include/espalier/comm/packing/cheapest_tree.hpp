// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// The cost of each edge: what its resources cost together.
template <class Cost> [[nodiscard]] std::vector<Cost> edge_costs(const network& net, const std::vector<Cost>& prices) {
  std::vector<Cost> costs;
  costs.reserve(net.edges.size());
  for (const auto& edge : net.edges) {
    Cost cost = 0;
    for (const int r : edge.resources) cost += prices[static_cast<std::size_t>(r)];
    costs.push_back(cost);
  }
  return costs;
}

/// Minimum-cost spanning arborescences of one network (Chu and Liu, Edmonds): the oracle of every packing and of every
/// certificate. Of equally cheap choices it prefers those near the root.
template <class Cost> class arborescences {
 public:
  /// `inward`: trees along which data flows to the root.
  arborescences(const network& net, bool inward) : ranks_(net.ranks) {
    for (const auto& edge : net.edges) ends_.emplace_back(inward ? edge.to : edge.from, inward ? edge.from : edge.to);
    std::vector<std::vector<int>> next(static_cast<std::size_t>(ranks_));
    for (const auto& [from, to] : ends_) next[static_cast<std::size_t>(from)].push_back(to);
    hops_.assign(static_cast<std::size_t>(ranks_), std::vector<int>(static_cast<std::size_t>(ranks_), -1));
    for (int root = 0; root < ranks_; ++root) {
      auto& hops = hops_[static_cast<std::size_t>(root)];
      std::vector<int> queue{root};
      hops[static_cast<std::size_t>(root)] = 0;
      for (std::size_t head = 0; head < queue.size(); ++head)
        for (const int v : next[static_cast<std::size_t>(queue[head])])
          if (hops[static_cast<std::size_t>(v)] < 0) {
            hops[static_cast<std::size_t>(v)] = hops[static_cast<std::size_t>(queue[head])] + 1;
            queue.push_back(v);
          }
    }
  }

  [[nodiscard]] bool spans_from(int root) const {
    const auto& hops = hops_[static_cast<std::size_t>(root)];
    return std::all_of(hops.begin(), hops.end(), [](int h) { return h >= 0; });
  }

  struct result {
    Cost cost = 0;
    std::vector<int> edge;  ///< of each rank, towards its parent; -1 at the root
  };

  /// @pre costs are >= 0
  [[nodiscard]] std::optional<result> cheapest(int root, const std::vector<Cost>& costs) const {
    if (!spans_from(root)) return std::nullopt;
    result best;
    best.edge = contraction(*this, root, costs).run();
    for (const int e : best.edge)
      if (e >= 0) best.cost += costs[static_cast<std::size_t>(e)];
    return best;
  }

 private:
  /// One run, in time quadratic in the ranks: walk backwards along cheapest arcs, contract each cycle that the walk
  /// closes, until it ends at what hangs on the root (Tarjan 1977); then undo the contractions.
  class contraction {
   public:
    contraction(const arborescences& trees, int root, const std::vector<Cost>& costs)
        : trees_(trees), root_(root), ranks_(static_cast<std::size_t>(trees.ranks_)), arcs_(ranks_ * ranks_) {
      const auto& hops = trees.hops_[static_cast<std::size_t>(root)];
      for (std::size_t e = 0; e < trees.ends_.size(); ++e) {
        const auto [from, to] = trees.ends_[e];
        arc& best = arcs_[static_cast<std::size_t>(to) * ranks_ + static_cast<std::size_t>(from)];
        if (best.edge < 0 || costs[e] < best.cost)
          best = {costs[e], hops[static_cast<std::size_t>(from)], static_cast<int>(e)};
      }
      if constexpr (std::is_floating_point_v<Cost>) {
        Cost dearest = 0;
        for (const Cost& cost : costs) dearest = std::max(dearest, cost);
        tie_ = dearest * Cost(1e-13);
      }
      // Nodes are the ranks, followed by the contracted cycles. A node's arcs stand in the row of one of its ranks.
      nodes_.reserve(2 * ranks_);
      for (std::size_t v = 0; v < ranks_; ++v)
        nodes_.push_back({v, -1, {}, v == static_cast<std::size_t>(root), false});
      top_.resize(ranks_);
      for (std::size_t v = 0; v < ranks_; ++v) top_[v] = v;
    }

    [[nodiscard]] std::vector<int> run() {
      for (std::size_t start = 0; start < ranks_; ++start) {
        std::vector<std::size_t> path;
        std::size_t v = top_[start];
        while (!nodes_[v].is_done) {
          if (nodes_[v].is_on_path) {
            v = contract(path, v);
            continue;
          }
          path.push_back(v);
          nodes_[v].is_on_path = true;
          v = choose(v);
        }
        for (const std::size_t u : path) nodes_[u].is_done = true;
      }
      return expand();
    }

   private:
    struct arc {
      Cost cost = 0;
      int hops = 0;  ///< of its tail, from the root
      int edge = -1;
    };
    struct node {
      std::size_t row = 0;
      int parent = -1;  ///< the cycle it is part of
      arc chosen;       ///< the arc by which it is entered
      bool is_done = false;
      bool is_on_path = false;
    };

    /// Takes the cheapest arc into the node; returns the node that it comes from.
    std::size_t choose(std::size_t v) {
      const arc* const row = &arcs_[nodes_[v].row * ranks_];
      std::size_t best = ranks_;
      for (std::size_t u = 0; u < ranks_; ++u) {
        if (row[u].edge < 0 || top_[u] == v) continue;
        if (best == ranks_ || !as_good(row[best].cost, row[best].hops, row[u])) best = u;
      }
      nodes_[v].chosen = row[best];
      return top_[best];
    }

    /// Makes one node of the path's end from `first` on. Entering it at a member saves that member's arc.
    std::size_t contract(std::vector<std::size_t>& path, std::size_t first) {
      const std::size_t cycle = nodes_.size();
      const std::size_t into = nodes_[first].row;
      nodes_.push_back({into, -1, {}, false, false});
      merged_.assign(ranks_, {});
      std::size_t member = 0;
      do {
        member = path.back();
        path.pop_back();
        node& m = nodes_[member];
        m.parent = static_cast<int>(cycle);
        const arc* const source = &arcs_[m.row * ranks_];
        for (std::size_t u = 0; u < ranks_; ++u) {
          if (source[u].edge < 0) continue;
          const Cost cost = source[u].cost - m.chosen.cost;
          // The walk's first member wins a tie: entered elsewhere, hubs would become chains.
          if (as_good(cost, source[u].hops, merged_[u])) merged_[u] = {cost, source[u].hops, source[u].edge};
        }
      } while (member != first);
      std::copy(merged_.begin(), merged_.end(), &arcs_[into * ranks_]);
      for (std::size_t& t : top_)
        if (nodes_[t].parent == static_cast<int>(cycle)) t = cycle;
      return cycle;
    }

    /// Nearly equal costs are equal: then the nearer tail counts, and of those the one that is asked about.
    [[nodiscard]] bool as_good(const Cost& cost, int hops, const arc& than) const {
      return than.edge < 0 || cost < than.cost - tie_ || (cost <= than.cost + tie_ && hops <= than.hops);
    }

    /// Expands the cycles from the outermost inwards: a cycle's arc enters one member, whose own arc is dropped; the
    /// other members keep theirs.
    std::vector<int> expand() {
      for (std::size_t c = nodes_.size(); c-- > ranks_;) {
        const int edge = nodes_[c].chosen.edge;
        auto member = static_cast<std::size_t>(trees_.ends_[static_cast<std::size_t>(edge)].second);
        while (nodes_[member].parent != static_cast<int>(c)) member = static_cast<std::size_t>(nodes_[member].parent);
        nodes_[member].chosen.edge = edge;
      }
      std::vector<int> edges(ranks_, -1);
      for (std::size_t v = 0; v < ranks_; ++v)
        if (static_cast<int>(v) != root_) edges[v] = nodes_[v].chosen.edge;
      return edges;
    }

    const arborescences& trees_;
    int root_;
    std::size_t ranks_;
    std::vector<arc> arcs_;  ///< into each row, from each rank
    std::vector<arc> merged_;
    Cost tie_ = 0;
    std::vector<node> nodes_;
    std::vector<std::size_t> top_;  ///< the outermost node of each rank
  };

  int ranks_;
  std::vector<std::pair<int, int>> ends_;
  std::vector<std::vector<int>> hops_;
};

}  // namespace espalier::comm::detail
