// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace espalier::comm::detail {

/// Maximum flow by Dinic's blocking flows, in whole numbers. Arcs stay where they were added, so that a graph can be
/// built once and solved for several pairs.
class max_flow {
 public:
  static constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max() / 4;

  explicit max_flow(int vertices = 0) { reset(vertices); }

  void reset(int vertices) {
    first_.assign(static_cast<std::size_t>(vertices), -1);
    arcs_.clear();
  }

  int add_vertex() {
    first_.push_back(-1);
    return static_cast<int>(first_.size()) - 1;
  }

  /// `back` is the capacity of the opposite arc: an undirected link is one call.
  int add_arc(int from, int to, std::int64_t capacity, std::int64_t back = 0) {
    const int id = static_cast<int>(arcs_.size());
    arcs_.push_back({to, first_[static_cast<std::size_t>(from)], capacity, capacity});
    first_[static_cast<std::size_t>(from)] = id;
    arcs_.push_back({from, first_[static_cast<std::size_t>(to)], back, back});
    first_[static_cast<std::size_t>(to)] = id + 1;
    return id;
  }

  void set_capacity(int arc, std::int64_t capacity) { arcs_[static_cast<std::size_t>(arc)].capacity = capacity; }
  void set_capacities(int arc, std::int64_t capacity, std::int64_t back) {
    set_capacity(arc, capacity);
    set_capacity(arc + 1, back);
  }
  [[nodiscard]] std::int64_t flow(int arc) const {
    const entry& e = arcs_[static_cast<std::size_t>(arc)];
    return e.capacity - e.residual;
  }

  /// The value of a maximum flow, or `limit` as soon as it is reached.
  /// @post below `limit`: it is the capacity of the arcs from the source's side to the other, and every flow fits its
  /// arc
  std::int64_t solve(int source, int sink, std::int64_t limit = unlimited) {
    for (entry& e : arcs_) e.residual = e.capacity;
    source_ = source;
    sink_ = sink;
    std::int64_t total = 0;
    while (total < limit && label()) {
      next_ = first_;
      while (total < limit) {
        const std::int64_t pushed = augment(source, limit - total);
        if (pushed == 0) break;
        total += pushed;
      }
    }
    return total;
  }

  /// True if, after a `solve` that stopped below its limit, the vertex is on the source's side of the minimum cut that
  /// is nearest to the source.
  [[nodiscard]] bool on_source_side(int vertex) const { return level_[static_cast<std::size_t>(vertex)] >= 0; }

 private:
  struct entry {
    int to;
    int next;
    std::int64_t capacity;
    std::int64_t residual;
  };

  bool label() {
    level_.assign(first_.size(), -1);
    queue_.clear();
    queue_.push_back(source_);
    level_[static_cast<std::size_t>(source_)] = 0;
    bool reached = false;
    for (std::size_t head = 0; head < queue_.size(); ++head) {
      const auto v = static_cast<std::size_t>(queue_[head]);
      for (int a = first_[v]; a >= 0; a = arcs_[static_cast<std::size_t>(a)].next) {
        const entry& e = arcs_[static_cast<std::size_t>(a)];
        if (e.residual <= 0 || level_[static_cast<std::size_t>(e.to)] >= 0) continue;
        level_[static_cast<std::size_t>(e.to)] = level_[v] + 1;
        queue_.push_back(e.to);
        reached = reached || e.to == sink_;
      }
    }
    return reached;
  }

  // Recursion is as deep as the shortest path is long.
  std::int64_t augment(int vertex, std::int64_t limit) {
    if (vertex == sink_) return limit;
    const auto v = static_cast<std::size_t>(vertex);
    for (int& a = next_[v]; a >= 0; a = arcs_[static_cast<std::size_t>(a)].next) {
      entry& e = arcs_[static_cast<std::size_t>(a)];
      if (e.residual <= 0 || level_[static_cast<std::size_t>(e.to)] != level_[v] + 1) continue;
      const std::int64_t pushed = augment(e.to, std::min(limit, e.residual));
      if (pushed == 0) continue;
      e.residual -= pushed;
      arcs_[static_cast<std::size_t>(a ^ 1)].residual += pushed;
      return pushed;
    }
    return 0;
  }

  std::vector<int> first_;
  std::vector<entry> arcs_;
  std::vector<int> level_;
  std::vector<int> next_;
  std::vector<int> queue_;
  int source_ = 0;
  int sink_ = 0;
};

}  // namespace espalier::comm::detail
