// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/network_paths.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::comm {

/// The ranks of each host, ascending; hosts in the order of their first ranks.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<std::vector<int>> ranks_of_hosts(const network& net) {
  std::vector<std::vector<int>> ranks;
  std::vector<int> names;
  for (int r = 0; r < net.ranks; ++r) {
    const int host = net.host.empty() ? 0 : net.host[static_cast<std::size_t>(r)];
    const auto found = std::find(names.begin(), names.end(), host);
    const auto at = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(host);
      ranks.emplace_back();
    }
    ranks[at].push_back(r);
  }
  return ranks;
}

/// The fastest edge between two ranks (the first of equals); -1 if there is none.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR int fastest_edge(const network& net, int from, int to) {
  int best = -1;
  double rate = -1;
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    if (net.edges[e].from != from || net.edges[e].to != to || edge_rate(net, net.edges[e]) <= rate) continue;
    best = static_cast<int>(e);
    rate = edge_rate(net, net.edges[e]);
  }
  return best;
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

// Hangs `member` below `parent` by the fastest edges.
ESPALIER_CONSTEXPR_VECTOR void hang_below(const network& net, tree& t, int member, int parent) {
  const int down = fastest_edge(net, parent, member);
  const int up = fastest_edge(net, member, parent);
  if (down < 0 || up < 0) {
    throw std::invalid_argument("ranks " + std::to_string(parent) + " and " + std::to_string(member) +
                                " have no link both ways, which the three-phase form needs");
  }
  t.down[static_cast<std::size_t>(member)] = down;
  t.up[static_cast<std::size_t>(member)] = up;
}

// Hangs the ranks of a host below one of them, breadth first, by links inside the host.
ESPALIER_CONSTEXPR_VECTOR void span_host(const network& net, tree& t, const std::vector<int>& members, int root) {
  std::vector<int> reached{root};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const int member : members) {
      if (std::find(reached.begin(), reached.end(), member) != reached.end()) continue;
      if (fastest_edge(net, reached[i], member) < 0 || fastest_edge(net, member, reached[i]) < 0) continue;
      hang_below(net, t, member, reached[i]);
      reached.push_back(member);
    }
  }
  if (reached.size() != members.size()) {
    throw std::invalid_argument("the ranks of a host are not connected by links of its own");
  }
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Blink's three phases over several hosts as trees of the whole network: data is cut into as many partitions as the
/// largest host has ranks, the same on all hosts; each partition is reduced inside every host to one of its ranks, then
/// between these, each of which is the root for one part of it, then broadcast inside the hosts (reference/blink.md,
/// 1.6). As trees, the three phases overlap chunk by chunk. All trees have weight 1; `packing` finds better weights
/// where hosts differ.
///
/// `locals`: for each host (in the order of `ranks_of_hosts`) trees over its ranks, partition p uses the p-th (round
/// robin); -1 elsewhere. Empty: breadth-first trees, every rank a root in turn. For all-reduce, broadcast and reduce
/// (`only_root`: the trees with that root alone).
/// Throws std::invalid_argument where roots of two hosts have no link.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<tree> three_phase_trees(
    const network& net, const std::vector<std::vector<tree>>& locals = {}, int only_root = -1) {
  const std::vector<std::vector<int>> hosts = ranks_of_hosts(net);
  if (!locals.empty() && locals.size() != hosts.size()) {
    throw std::invalid_argument("the three-phase form needs local trees for every host, or for none");
  }
  std::size_t partitions = 0;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    partitions = std::max(partitions, locals.empty() ? hosts[h].size() : locals[h].size());
  }
  const auto n = static_cast<std::size_t>(net.ranks);
  std::vector<tree> trees;
  for (std::size_t p = 0; p < partitions; ++p) {
    tree inside;
    inside.down.assign(n, -1);
    inside.up.assign(n, -1);
    std::vector<int> roots;
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      if (locals.empty()) {
        // A broadcast's root must be a local root of every partition of its host.
        const bool here = only_root >= 0 && std::find(hosts[h].begin(), hosts[h].end(), only_root) != hosts[h].end();
        roots.push_back(here ? only_root : hosts[h][p % hosts[h].size()]);
        detail::span_host(net, inside, hosts[h], roots.back());
        continue;
      }
      const tree& local = locals[h][p % locals[h].size()];
      roots.push_back(local.root);
      for (const int member : hosts[h]) {
        inside.down[static_cast<std::size_t>(member)] = local.down[static_cast<std::size_t>(member)];
        inside.up[static_cast<std::size_t>(member)] = local.up[static_cast<std::size_t>(member)];
      }
    }
    for (const int root : roots) {
      if (only_root >= 0 && root != only_root) continue;
      tree whole = inside;
      whole.root = root;
      whole.weight = {1, 1};
      for (const int other : roots) {
        if (other != root) detail::hang_below(net, whole, other, root);
      }
      trees.push_back(std::move(whole));
    }
  }
  if (trees.empty()) throw std::invalid_argument("no local tree has the root that was asked for");
  return trees;
}

}  // namespace espalier::comm
