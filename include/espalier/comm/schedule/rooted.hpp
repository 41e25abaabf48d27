// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::comm {

/// One direction of a tree as parents and children.
struct rooted_tree {
  struct child {
    int rank = 0;
    int edge = 0;
  };

  std::vector<int> parent;  ///< -1 at the root
  std::vector<int> edge;    ///< to or from the parent; -1 at the root
  std::vector<int> height;  ///< edges of the longest way down
  std::vector<int> depth;   ///< edges to the root
  std::vector<std::vector<child>> children;
};

enum class direction { from_root, to_root };

/// Reads a tree in one direction. Throws std::invalid_argument where its edges don't span the ranks.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR rooted_tree read_tree(const network& net, const tree& t, direction way) {
  const auto n = static_cast<std::size_t>(net.ranks);
  const std::vector<int>& edges = way == direction::from_root ? t.down : t.up;
  const auto wrong = [&](const char* what) {
    throw std::invalid_argument(std::string("a tree's ") + (way == direction::from_root ? "down" : "up") + " edges " +
                                what);
  };
  rooted_tree made;
  made.parent.assign(n, -1);
  made.edge.assign(n, -1);
  made.height.assign(n, 0);
  made.depth.assign(n, -1);
  made.children.assign(n, {});
  if (edges.size() != n && n > 1) wrong("are missing: the packing is for another collective");
  for (std::size_t r = 0; r < n; ++r) {
    if (static_cast<int>(r) == t.root) continue;
    const int index = edges[r];
    if (index < 0 || static_cast<std::size_t>(index) >= net.edges.size()) wrong("don't reach every rank");
    const network::edge& e = net.edges[static_cast<std::size_t>(index)];
    const int near = way == direction::from_root ? e.to : e.from;
    if (near != static_cast<int>(r)) wrong("don't end at their ranks");
    made.parent[r] = way == direction::from_root ? e.from : e.to;
    made.edge[r] = index;
  }
  // The walk goes from each rank up to one whose depth is known; more steps than ranks are a circle.
  for (std::size_t r = 0; r < n; ++r) {
    std::vector<std::size_t> path_up;
    std::size_t at = r;
    while (made.depth[at] < 0 && static_cast<int>(at) != t.root) {
      path_up.push_back(at);
      if (path_up.size() > n) wrong("form a circle");
      at = static_cast<std::size_t>(made.parent[at]);
    }
    int depth = static_cast<int>(at) == t.root ? 0 : made.depth[at];
    if (static_cast<int>(at) == t.root) made.depth[at] = 0;
    for (std::size_t i = path_up.size(); i-- > 0;) {
      made.depth[path_up[i]] = ++depth;
      const auto parent = static_cast<std::size_t>(made.parent[path_up[i]]);
      made.children[parent].push_back({static_cast<int>(path_up[i]), made.edge[path_up[i]]});
    }
    int height = 0;
    for (at = r; static_cast<int>(at) != t.root; at = static_cast<std::size_t>(made.parent[at])) {
      made.height[at] = std::max(made.height[at], height);
      ++height;
    }
    made.height[at] = std::max(made.height[at], height);
  }
  return made;
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Sorts every rank's children by height, upwards (`sign` = 1) or downwards (-1). Equal ones are ordered by distance
/// from the rank, towards lower (1) or higher numbers (-1), around the circle of ranks.
ESPALIER_CONSTEXPR_VECTOR void order_by_height(rooted_tree& t, int sign) {
  const int n = static_cast<int>(t.parent.size());
  for (int r = 0; r < n; ++r) {
    auto& children = t.children[static_cast<std::size_t>(r)];
    std::sort(children.begin(), children.end(), [&](const auto& a, const auto& b) {
      const int x = sign * t.height[static_cast<std::size_t>(a.rank)];
      const int y = sign * t.height[static_cast<std::size_t>(b.rank)];
      return x != y ? x < y : (sign * (r - a.rank) + n) % n < (sign * (r - b.rank) + n) % n;
    });
  }
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Puts the children in the order in which their messages are best taken: shallow subtrees are ready first. Of equal
/// ones, each rank begins with the next lower one, so that ranks with the same children don't meet at the same one.
ESPALIER_CONSTEXPR_VECTOR void shallow_first(rooted_tree& t) { detail::order_by_height(t, 1); }

/// Puts the children in the order in which they are best sent to: what has far to go leaves first; then as above.
ESPALIER_CONSTEXPR_VECTOR void deep_first(rooted_tree& t) { detail::order_by_height(t, -1); }

/// Puts the children in the order in which their values can be combined with the parent's own one by one so that ranks
/// stay in order: outwards from the parent, lower ranks downwards, then higher ranks upwards. Throws
/// std::invalid_argument unless every subtree is a run of neighbouring ranks (`ordered_tree` makes such trees).
ESPALIER_CONSTEXPR_VECTOR void outwards(rooted_tree& t) {
  const std::size_t n = t.parent.size();
  std::vector<int> first(n, 0);
  std::vector<int> size(n, 1);
  std::vector<std::size_t> order(n, 0);
  for (std::size_t r = 0; r < n; ++r) {
    first[r] = static_cast<int>(r);
    order[r] = r;
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return t.depth[a] != t.depth[b] ? t.depth[a] > t.depth[b] : a < b; });
  std::vector<int> last = first;
  for (const std::size_t r : order) {
    if (last[r] - first[r] + 1 != size[r]) {
      throw std::invalid_argument(
          "an operator that does not commute needs trees whose subtrees are neighbouring ranks");
    }
    if (t.parent[r] < 0) continue;
    const auto up = static_cast<std::size_t>(t.parent[r]);
    first[up] = std::min(first[up], first[r]);
    last[up] = std::max(last[up], last[r]);
    size[up] += size[r];
  }
  for (std::size_t r = 0; r < n; ++r) {
    std::sort(t.children[r].begin(), t.children[r].end(), [&](const auto& a, const auto& b) {
      const bool a_low = a.rank < static_cast<int>(r);
      const bool b_low = b.rank < static_cast<int>(r);
      return a_low != b_low ? a_low : a_low ? a.rank > b.rank : a.rank < b.rank;
    });
  }
}

}  // namespace espalier::comm
