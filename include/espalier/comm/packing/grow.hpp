// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/max_flow.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// A directed graph with whole capacities.
struct flow_graph {
  struct arc {
    int from = 0;
    int to = 0;
    std::int64_t capacity = 0;
  };
  int vertices = 0;
  std::vector<arc> arcs;
};

/// So many spanning arborescences with this root.
struct demand {
  int root = 0;
  std::int64_t count = 0;
};

/// `count` equal arborescences.
struct grown_tree {
  int root = 0;
  std::int64_t count = 0;
  std::vector<int> parent_arc;  ///< of each vertex; -1 at the root
  std::vector<int> depth;       ///< of each vertex

  [[nodiscard]] int height() const { return *std::max_element(depth.begin(), depth.end()); }
};

struct growth_order {
  /// Trees are split rather than made deeper than this; 0: they are made as deep as it takes to keep them whole.
  int depth_limit = 0;
  /// All trees grow level by level, so that none is left with the long ways round; else one after the other, which
  /// gives fewer trees.
  bool together = false;
  /// Shuffles the order in which equally near vertices are taken, 0: their numbers'.
  std::uint32_t seed = 0;
};

/// The same order on every machine, unlike std::shuffle.
template <class T> void shuffle(std::vector<T>& items, std::uint32_t& state) {
  for (std::size_t left = items.size(); left > 1; --left) {
    state = state * 1664525U + 1013904223U;
    std::swap(items[left - 1], items[(state >> 8U) % left]);
  }
}

/// Packs arborescences with given roots into a graph, exactly (Lovasz 1976, with multiplicities as in Berczi and
/// Frank): a bundle of equal trees grows arc by arc; an arc is admitted for as many of them as leave room for
/// everything still to be packed, which a maximum flow tells; if that is not all, the bundle is split. Never has to go
/// back.
///
/// @pre every set of vertices has at least as much capacity entering it as trees whose roots lie outside of it
class growth {
 public:
  growth(flow_graph graph, std::vector<demand> demands, growth_order order)
      : graph_(std::move(graph)), waiting_(std::move(demands)), order_(order) {
    out_.resize(static_cast<std::size_t>(graph_.vertices));
    for (std::size_t a = 0; a < graph_.arcs.size(); ++a)
      out_[static_cast<std::size_t>(graph_.arcs[a].from)].push_back(static_cast<int>(a));
    if (std::uint32_t state = order_.seed; state != 0)
      for (auto& arcs : out_) shuffle(arcs, state);
  }

  [[nodiscard]] std::vector<grown_tree> run() {
    std::vector<grown_tree> trees;
    while (true) {
      while (!waiting_.empty() && (order_.together || bundles_.empty())) {
        if (waiting_.back().count > 0) bundles_.push_back(start(waiting_.back()));
        waiting_.pop_back();
      }
      if (bundles_.empty()) return trees;
      auto next = bundles_.end() - 1;
      if (order_.together)
        next = std::min_element(bundles_.begin(), bundles_.end(), [](const bundle& a, const bundle& b) {
          return std::pair(a.level, a.order.size()) < std::pair(b.level, b.order.size());
        });
      bundle current = std::move(*next);
      bundles_.erase(next);
      if (static_cast<int>(current.order.size()) == graph_.vertices) {
        trees.push_back(std::move(current.tree));
        continue;
      }
      extend(current);
      bundles_.push_back(std::move(current));
    }
  }

 private:
  struct bundle {
    grown_tree tree;
    std::vector<int> order;           ///< vertices, by depth
    std::vector<std::int64_t> limit;  ///< of each arc: as many as were possible when last asked; never rises again
    int level = 1;                    ///< new vertices are taken at this depth or above it
  };

  [[nodiscard]] bundle start(const demand& wanted) const {
    bundle b;
    const auto vertices = static_cast<std::size_t>(graph_.vertices);
    b.tree = {wanted.root, wanted.count, std::vector<int>(vertices, -1), std::vector<int>(vertices, -1)};
    b.tree.depth[static_cast<std::size_t>(wanted.root)] = 0;
    b.order.push_back(wanted.root);
    b.limit.assign(graph_.arcs.size(), max_flow::unlimited);
    return b;
  }

  /// Adds an arc, or goes on to the next level.
  void extend(bundle& b) {
    const bool exhausted = b.level > graph_.vertices;
    const auto [arc, count] = choose(b, exhausted || (order_.depth_limit > 0 && b.level >= order_.depth_limit));
    if (arc < 0) {
      if (exhausted) throw std::logic_error("packing: the trees asked for do not fit this graph");
      ++b.level;
      return;
    }
    if (count < b.tree.count) {
      bundle rest = b;
      rest.tree.count -= count;
      b.tree.count = count;
      bundles_.push_back(std::move(rest));
    }
    flow_graph::arc& taken = graph_.arcs[static_cast<std::size_t>(arc)];
    taken.capacity -= count;
    const auto to = static_cast<std::size_t>(taken.to);
    b.tree.parent_arc[to] = arc;
    b.tree.depth[to] = b.tree.depth[static_cast<std::size_t>(taken.from)] + 1;
    // The position after the last vertex of its depth.
    const auto at = std::upper_bound(b.order.begin(), b.order.end(), b.tree.depth[to],
                                     [&](int d, int v) { return d < b.tree.depth[static_cast<std::size_t>(v)]; });
    b.order.insert(at, taken.to);
  }

  /// An arc that leaves the bundle's vertices, and for how many of its trees: the nearest to the root that all of them
  /// can take; else, where splitting is allowed, the one that most of them can.
  [[nodiscard]] std::pair<int, std::int64_t> choose(bundle& b, bool may_split) {
    std::pair<int, std::int64_t> best{-1, 0};
    for (const int from : b.order) {
      if (b.tree.depth[static_cast<std::size_t>(from)] >= b.level) break;
      built_for_ = -1;
      for (const int a : out_[static_cast<std::size_t>(from)]) {
        const flow_graph::arc& arc = graph_.arcs[static_cast<std::size_t>(a)];
        std::int64_t& limit = b.limit[static_cast<std::size_t>(a)];
        if (b.tree.depth[static_cast<std::size_t>(arc.to)] >= 0 || limit == 0) continue;
        limit = std::min({limit, arc.capacity, b.tree.count});
        if (limit < b.tree.count && (!may_split || limit <= best.second)) continue;
        limit = admissible(arc, limit);
        if (limit == b.tree.count) return {a, limit};
        if (may_split && limit > best.second) best = {a, limit};
      }
    }
    return best;
  }

  /// How many of `wanted` trees of the bundle can take this arc.
  [[nodiscard]] std::int64_t admissible(const flow_graph::arc& arc, std::int64_t wanted) {
    if (wanted == 0) return 0;
    if (built_for_ != arc.from) build(arc.from);
    return std::max<std::int64_t>(0, flow_.solve(arc.from, arc.to, others_ + wanted) - others_);
  }

  /// The flow that leaves room for all others: whatever is still to be packed may use `from` as its source too.
  void build(int from) {
    built_for_ = from;
    flow_.reset(graph_.vertices);
    for (const auto& arc : graph_.arcs)
      if (arc.capacity > 0) flow_.add_arc(arc.from, arc.to, arc.capacity);
    others_ = 0;
    for (const demand& d : waiting_) {
      others_ += d.count;
      if (d.root != from && d.count > 0) flow_.add_arc(from, d.root, d.count);
    }
    for (const bundle& other : bundles_) {
      others_ += other.tree.count;
      if (other.order.size() == 1) {
        if (other.tree.root != from) flow_.add_arc(from, other.tree.root, other.tree.count);
        continue;
      }
      const int hub = flow_.add_vertex();
      flow_.add_arc(from, hub, other.tree.count);
      for (const int v : other.order) flow_.add_arc(hub, v, max_flow::unlimited);
    }
  }

  flow_graph graph_;
  std::vector<demand> waiting_;
  growth_order order_;
  std::vector<std::vector<int>> out_;
  std::vector<bundle> bundles_;
  max_flow flow_;
  std::int64_t others_ = 0;
  int built_for_ = -1;
};

}  // namespace espalier::comm::detail
