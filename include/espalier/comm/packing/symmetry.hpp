// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// How a full-duplex network maps to itself when all transfers change direction.
struct mirror {
  std::vector<int> edge;      ///< the opposite of each edge; empty: the network has no such symmetry
  std::vector<int> resource;  ///< and of each resource; a half-duplex bus is its own opposite

  [[nodiscard]] explicit operator bool() const { return !edge.empty(); }
};

/// Finds the opposite of each edge from the resources alone: a resource is recognised by the pairs it serves.
[[nodiscard]] inline mirror find_mirror(const network& net) {
  using pairs = std::vector<std::pair<int, int>>;
  using key = std::pair<std::int64_t, pairs>;
  std::vector<key> forward(net.resources.size());
  for (std::size_t r = 0; r < net.resources.size(); ++r) forward[r].first = net.resources[r].capacity;
  for (const auto& edge : net.edges)
    for (const int r : edge.resources) forward[static_cast<std::size_t>(r)].second.emplace_back(edge.from, edge.to);
  std::map<key, std::vector<int>> by_key;
  for (std::size_t r = 0; r < net.resources.size(); ++r) {
    std::sort(forward[r].second.begin(), forward[r].second.end());
    by_key[forward[r]].push_back(static_cast<int>(r));
  }
  mirror found;
  found.resource.assign(net.resources.size(), -1);
  for (const auto& [same, members] : by_key) {
    key opposite = same;
    for (auto& [from, to] : opposite.second) std::swap(from, to);
    std::sort(opposite.second.begin(), opposite.second.end());
    const auto at = by_key.find(opposite);
    if (at == by_key.end() || at->second.size() != members.size()) return {};
    // Equal resources (channels) are paired in their order, which both directions share.
    for (std::size_t i = 0; i < members.size(); ++i)
      found.resource[static_cast<std::size_t>(members[i])] = at->second[i];
  }

  using edge_key = std::tuple<int, int, std::vector<int>>;
  std::map<edge_key, int> by_place;
  for (std::size_t e = 0; e < net.edges.size(); ++e)
    by_place[{net.edges[e].from, net.edges[e].to, net.edges[e].resources}] = static_cast<int>(e);
  if (by_place.size() != net.edges.size()) return {};
  std::vector<int> edges(net.edges.size());
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    std::vector<int> uses;
    for (const int r : net.edges[e].resources) uses.push_back(found.resource[static_cast<std::size_t>(r)]);
    std::sort(uses.begin(), uses.end());
    const auto at = by_place.find({net.edges[e].to, net.edges[e].from, uses});
    if (at == by_place.end()) return {};
    edges[e] = at->second;
  }
  found.edge = std::move(edges);
  return found;
}

/// Whether every edge has one resource to itself: then resources are links, and packing is a question of flows.
[[nodiscard]] inline bool is_graph(const network& net) {
  std::vector<int> users(net.resources.size(), 0);
  for (const auto& edge : net.edges) {
    if (edge.resources.size() != 1) return false;
    if (++users[static_cast<std::size_t>(edge.resources[0])] > 1) return false;
  }
  return true;
}

}  // namespace espalier::comm::detail
