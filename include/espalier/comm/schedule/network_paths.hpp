// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::comm {

/// The resources that a message from one rank to another occupies on its path, and the time of its first byte.
struct network_path {
  std::vector<int> resources;  ///< ascending
  double latency = 0;          ///< seconds
  double rate = 0;             ///< bytes per second of the slowest resource; infinite without resources
};

/// Bytes per second that an edge reaches alone.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR double edge_rate(const network& net, const network::edge& e) {
  double rate = std::numeric_limits<double>::infinity();
  for (const int r : e.resources) {
    rate = std::min(rate, static_cast<double>(net.resources[static_cast<std::size_t>(r)].capacity) * net.unit);
  }
  return rate;
}

[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR network_path path_of(const network& net, const network::edge& e) {
  return {e.resources, e.latency, edge_rate(net, e)};
}

/// The quickest path for messages of `bytes` between all pairs (row-major by sender), for messages that name no edge
/// (`step::direct`): an edge, or, between ranks that share none, a path over others that forward at no cost of their
/// own. A pair without any path has rate 0.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<network_path> all_paths(const network& net, double bytes = 4096) {
  const auto n = static_cast<std::size_t>(net.ranks);
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<double> cost(n * n, never);
  std::vector<int> edge(n * n, -1);
  for (std::size_t i = 0; i < net.edges.size(); ++i) {
    const network::edge& e = net.edges[i];
    const std::size_t cell = static_cast<std::size_t>(e.from) * n + static_cast<std::size_t>(e.to);
    const double seconds = e.latency + bytes / edge_rate(net, e);
    if (seconds >= cost[cell]) continue;
    cost[cell] = seconds;
    edge[cell] = static_cast<int>(i);
  }
  std::vector<network_path> paths(n * n);
  for (std::size_t from = 0; from < n; ++from) {
    // Dijkstra's tree of this sender; each rank's path continues that of the rank before it.
    std::vector<double> distance(n, never);
    std::vector<std::size_t> before(n, n);
    std::vector<char> done(n, 0);
    distance[from] = 0;
    for (;;) {
      std::size_t next = n;
      for (std::size_t v = 0; v < n; ++v) {
        if (done[v] == 0 && distance[v] < never && (next == n || distance[v] < distance[next])) next = v;
      }
      if (next == n) break;
      done[next] = 1;
      for (std::size_t v = 0; v < n; ++v) {
        if (done[v] != 0 || distance[next] + cost[next * n + v] >= distance[v]) continue;
        distance[v] = distance[next] + cost[next * n + v];
        before[v] = next;
      }
    }
    for (std::size_t to = 0; to < n; ++to) {
      if (to == from || distance[to] == never) continue;
      network_path& made = paths[from * n + to];
      if (edge[from * n + to] >= 0) {
        made = path_of(net, net.edges[static_cast<std::size_t>(edge[from * n + to])]);
        continue;
      }
      made.rate = never;
      for (std::size_t at = to; at != from; at = before[at]) {
        const network::edge& e = net.edges[static_cast<std::size_t>(edge[before[at] * n + at])];
        made.latency += e.latency;
        made.rate = std::min(made.rate, edge_rate(net, e));
        made.resources.insert(made.resources.end(), e.resources.begin(), e.resources.end());
      }
      std::sort(made.resources.begin(), made.resources.end());
      made.resources.erase(std::unique(made.resources.begin(), made.resources.end()), made.resources.end());
    }
  }
  return paths;
}

}  // namespace espalier::comm
