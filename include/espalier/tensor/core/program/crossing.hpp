// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>

#include <cstdint>

namespace espalier::detail {

/// Finds the values to hand on where a graph is cut, so that they take the fewest bytes: a minimum cut through nodes
/// (Ford and Fulkerson 1956; the shortest path first, as Edmonds and Karp 1972). A value that may be computed again has
/// edges from its operands; any other one has one from the source. A wanted value has one to the sink.
class cheapest_crossing {
 public:
  /// A value that costs `bytes` where it is handed on.
  constexpr int add(std::int64_t bytes) {
    const int node = values_++;
    head_.push_back(-1);
    head_.push_back(-1);
    connect(enter(node), leave(node), bytes);
    return node;
  }
  /// Marks a value that is there only if it was kept.
  constexpr void cannot_be_repeated(int node) { sources_.push_back(node); }
  constexpr void is_wanted(int node) { sinks_.push_back(node); }
  /// `node` may be computed again, from `operand` among others.
  constexpr void is_made_of(int node, int operand) { connect(leave(operand), enter(node), unlimited); }

  constexpr void run() {
    source_ = head_.push_back(-1);
    sink_ = head_.push_back(-1);
    for (const int node : sources_) connect(source_, enter(node), unlimited);
    for (const int node : sinks_) connect(leave(node), sink_, unlimited);
    while (find_path()) push();
  }
  /// True if the value is one of those to hand on.
  /// @pre `run` was called
  [[nodiscard]] constexpr bool is_kept(int node) const {
    return by_[enter(node)] != not_reached && by_[leave(node)] == not_reached;
  }

 private:
  static constexpr std::int64_t unlimited = std::int64_t{1} << 60U;
  static constexpr int not_reached = -2;
  static constexpr int at_source = -1;

  /// Edges come in pairs, each next to the one that leads back.
  struct edge {
    int to = -1;
    int next = -1;
    std::int64_t room = 0;
  };

  [[nodiscard]] static constexpr int enter(int node) { return 2 * node; }
  [[nodiscard]] static constexpr int leave(int node) { return 2 * node + 1; }

  constexpr void connect(int from, int to, std::int64_t room) {
    head_[from] = edges_.push_back({to, head_[from], room});
    head_[to] = edges_.push_back({from, head_[to], 0});
  }

  constexpr bool find_path() {
    by_.clear();
    by_.resize(head_.size(), not_reached);
    list<int> queue;
    queue.push_back(source_);
    by_[source_] = at_source;
    for (int n = 0; n < queue.size(); ++n) {
      for (int e = head_[queue[n]]; e >= 0; e = edges_[e].next) {
        const int to = edges_[e].to;
        if (edges_[e].room == 0 || by_[to] != not_reached) continue;
        by_[to] = e;
        queue.push_back(to);
      }
    }
    return by_[sink_] != not_reached;
  }

  constexpr void push() {
    std::int64_t most = unlimited;
    for (int e = by_[sink_]; e >= 0; e = by_[edges_[e ^ 1].to]) {
      if (edges_[e].room < most) most = edges_[e].room;
    }
    for (int e = by_[sink_]; e >= 0; e = by_[edges_[e ^ 1].to]) {
      edges_[e].room -= most;
      edges_[e ^ 1].room += most;
    }
  }

  int values_ = 0;
  int source_ = -1;
  int sink_ = -1;
  list<int> sources_;
  list<int> sinks_;
  /// The first edge of each node. A value has two nodes.
  list<int> head_;
  list<edge> edges_;
  /// The edge by which the last search reached each node.
  list<int> by_;
};

}  // namespace espalier::detail
