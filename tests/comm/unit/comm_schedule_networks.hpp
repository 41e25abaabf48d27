// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

// Networks and trees made by hand, for tests that must not depend on a packing algorithm.
namespace espalier::test {

/// A link both ways. `capacity` 0: of unlimited rate.
constexpr void add_link(comm::network& net, int a, int b, std::int64_t capacity, double latency) {
  for (const bool back : {false, true}) {
    comm::network::edge e;
    e.from = back ? b : a;
    e.to = back ? a : b;
    if (capacity > 0) {
      net.resources.push_back({"", capacity});
      e.resources.push_back(static_cast<int>(net.resources.size()) - 1);
    }
    e.latency = latency;
    net.edges.push_back(e);
  }
}

[[nodiscard]] constexpr comm::network empty_network(int ranks, double unit) {
  comm::network net;
  net.ranks = ranks;
  net.unit = unit;
  net.host.assign(static_cast<std::size_t>(ranks), 0);
  return net;
}

/// Ranks in a row; links of `capacities`, or 1.
[[nodiscard]] constexpr comm::network line_network(int ranks, double unit, double latency,
                                                   const std::vector<std::int64_t>& capacities = {}) {
  comm::network net = empty_network(ranks, unit);
  for (int r = 0; r + 1 < ranks; ++r) {
    add_link(net, r, r + 1, capacities.empty() ? 1 : capacities[static_cast<std::size_t>(r)], latency);
  }
  return net;
}

[[nodiscard]] constexpr comm::network ring_network(int ranks, double unit, double latency, std::int64_t capacity = 1) {
  comm::network net =
      line_network(ranks, unit, latency, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), capacity));
  if (ranks > 2) add_link(net, ranks - 1, 0, capacity, latency);
  return net;
}

[[nodiscard]] constexpr comm::network complete_network(int ranks, double unit, double latency,
                                                       std::int64_t capacity = 1) {
  comm::network net = empty_network(ranks, unit);
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) add_link(net, a, b, capacity, latency);
  }
  return net;
}

/// A switch without limits of its own: every rank has a card of `capacities` each way.
[[nodiscard]] constexpr comm::network star_network(const std::vector<std::int64_t>& capacities, double unit,
                                                   double latency) {
  comm::network net = empty_network(static_cast<int>(capacities.size()), unit);
  for (const std::int64_t c : capacities) {
    net.resources.push_back({"", c});
    net.resources.push_back({"", c});
  }
  for (int a = 0; a < net.ranks; ++a) {
    for (int b = 0; b < net.ranks; ++b) {
      if (a == b) continue;
      comm::network::edge e;
      e.from = a;
      e.to = b;
      e.resources = a < b ? std::vector<int>{2 * a, 2 * b + 1} : std::vector<int>{2 * b + 1, 2 * a};
      e.latency = latency;
      net.edges.push_back(e);
    }
  }
  return net;
}

[[nodiscard]] constexpr int edge_between(const comm::network& net, int from, int to) {
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    if (net.edges[e].from == from && net.edges[e].to == to) return static_cast<int>(e);
  }
  return -1;
}

/// The tree in which rank r hangs below `parents[r]` (the root: -1).
[[nodiscard]] constexpr comm::tree tree_of(const comm::network& net, const std::vector<int>& parents) {
  comm::tree t;
  t.weight = {1, 1};
  t.down.assign(parents.size(), -1);
  t.up.assign(parents.size(), -1);
  for (std::size_t r = 0; r < parents.size(); ++r) {
    if (parents[r] < 0) {
      t.root = static_cast<int>(r);
      continue;
    }
    t.down[r] = edge_between(net, parents[r], static_cast<int>(r));
    t.up[r] = edge_between(net, static_cast<int>(r), parents[r]);
  }
  return t;
}

/// Returns the tree along a row of ranks, in either direction from the root.
[[nodiscard]] constexpr comm::tree line_tree(const comm::network& net, int root) {
  std::vector<int> parents;
  for (int r = 0; r < net.ranks; ++r) parents.push_back(r < root ? r + 1 : r > root ? r - 1 : -1);
  return tree_of(net, parents);
}

/// Round a ring, one way.
[[nodiscard]] constexpr comm::tree ring_tree(const comm::network& net, int root, int direction) {
  std::vector<int> parents(static_cast<std::size_t>(net.ranks), -1);
  for (int i = 1; i < net.ranks; ++i) {
    const int rank = ((root + i * direction) % net.ranks + net.ranks) % net.ranks;
    parents[static_cast<std::size_t>(rank)] = ((rank - direction) % net.ranks + net.ranks) % net.ranks;
  }
  return tree_of(net, parents);
}

/// All ranks directly below the root.
[[nodiscard]] constexpr comm::tree flat_tree(const comm::network& net, int root) {
  std::vector<int> parents;
  for (int r = 0; r < net.ranks; ++r) parents.push_back(r == root ? -1 : root);
  return tree_of(net, parents);
}

/// A random spanning tree of a network whose links run both ways. Up and down edges need not be the same tree.
template <class Random> [[nodiscard]] comm::tree random_tree(const comm::network& net, int root, Random& random) {
  const auto n = static_cast<std::size_t>(net.ranks);
  const auto grow = [&] {
    std::vector<int> parents(n, -2);
    parents[static_cast<std::size_t>(root)] = -1;
    for (std::size_t found = 1; found < n;) {
      const auto e = std::uniform_int_distribution<std::size_t>(0, net.edges.size() - 1)(random);
      const auto from = static_cast<std::size_t>(net.edges[e].from);
      const auto to = static_cast<std::size_t>(net.edges[e].to);
      if (parents[from] == -2 || parents[to] != -2) continue;
      parents[to] = net.edges[e].from;
      ++found;
    }
    return tree_of(net, parents);
  };
  comm::tree t = grow();
  t.up = grow().up;
  t.weight = {std::uniform_int_distribution<int>(1, 5)(random), std::uniform_int_distribution<int>(1, 3)(random)};
  return t;
}

/// Parents of a random tree with root `root` in which every subtree is a run of neighbouring ranks.
template <class Random> [[nodiscard]] std::vector<int> random_ordered_parents(int ranks, int root, Random& random) {
  std::vector<int> parents(static_cast<std::size_t>(ranks), -1);
  struct run {
    int first;
    int last;  // one past
    int parent;
  };
  std::vector<run> todo{{0, root, root}, {root + 1, ranks, root}};
  while (!todo.empty()) {
    const run all = todo.back();
    todo.pop_back();
    // The run is cut into some runs, each with a root that hangs below the parent.
    for (int first = all.first; first < all.last;) {
      const int last = std::uniform_int_distribution<int>(first + 1, all.last)(random);
      const int local = std::uniform_int_distribution<int>(first, last - 1)(random);
      parents[static_cast<std::size_t>(local)] = all.parent;
      todo.push_back({first, local, local});
      todo.push_back({local + 1, last, local});
      first = last;
    }
  }
  return parents;
}

/// A connected network with random links.
template <class Random> [[nodiscard]] comm::network random_network(int ranks, Random& random) {
  comm::network net = empty_network(ranks, 1e8);
  const auto below = [&](int most) { return std::uniform_int_distribution<int>(0, most - 1)(random); };
  for (int r = 1; r < ranks; ++r) add_link(net, below(r), r, 1 + below(4), 1e-6);
  for (int extra = ranks > 2 ? below(2 * ranks) : 0; extra > 0; --extra) {
    const int a = below(ranks);
    const int b = below(ranks);
    if (a != b) add_link(net, a, b, 1 + below(4), 1e-6);
  }
  return net;
}

}  // namespace espalier::test
