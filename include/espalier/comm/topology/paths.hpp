// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/network.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace espalier::comm {

struct path_options {
  int longest = 10;   ///< links of one path
  int per_pair = 16;  ///< paths between one pair of ranks
  int in_all = 8192;  ///< paths of all pairs together; but one for every pair
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// How many capacity units make one unit of bandwidth: 1 for whole numbers, a power of ten for decimals. Probed values
/// have no end of decimals: those are cut at six digits of the largest.
[[nodiscard]] inline double capacity_scale(const topology& machine) {
  double largest = 0;
  const auto widest = [&](double bandwidth) { largest = std::max(largest, bandwidth); };
  for (const auto& link : machine.links) widest(link.bandwidth);
  for (const auto& shared : machine.resources) widest(shared.bandwidth);
  double scale = 1;
  const auto whole = [&](double bandwidth) {
    const double scaled = bandwidth * scale;
    return std::abs(scaled - std::round(scaled)) <= 1e-9 * scaled && scaled >= 0.5;
  };
  const auto all_whole = [&] {
    return std::all_of(machine.links.begin(), machine.links.end(), [&](const auto& x) { return whole(x.bandwidth); }) &&
           std::all_of(machine.resources.begin(), machine.resources.end(),
                       [&](const auto& x) { return whole(x.bandwidth); });
  };
  if (largest <= 0) return 1;
  while (largest * scale < 1e6 && !all_whole()) scale *= 10;
  while (largest * scale > 1e9) scale /= 10;
  return scale;
}

/// The simple paths of links from each rank to the others that pass through switches only.
class switch_paths {
 public:
  switch_paths(const topology& machine, const path_options& options) : machine_(machine), options_(options) {
    out_.resize(machine.vertices.size());
    for (std::size_t l = 0; l < machine.links.size(); ++l)
      out_[static_cast<std::size_t>(machine.links[l].from)].push_back(static_cast<int>(l));
    visited_.assign(machine.vertices.size(), false);
    paths_.resize(machine.vertices.size());
  }

  /// Returns the paths by the vertex where they end.
  [[nodiscard]] const std::vector<std::vector<std::vector<int>>>& from(int vertex) {
    for (auto& paths : paths_) paths.clear();
    measure(vertex);
    // One more link at a time, so that the shortest are found before a pair's share of the list is used up.
    for (int length = 1; length <= options_.longest; ++length) {
      deeper_ = false;
      extend(vertex, length, length);
      if (!deeper_) break;
      for (auto& paths : paths_) drop_detours(paths);
    }
    return paths_;
  }

 private:
  /// Links from the start, through switches, to each vertex.
  void measure(int start) {
    distance_.assign(machine_.vertices.size(), -1);
    distance_[static_cast<std::size_t>(start)] = 0;
    std::vector<int> queue{start};
    for (std::size_t head = 0; head < queue.size(); ++head) {
      const auto v = static_cast<std::size_t>(queue[head]);
      if (head > 0 && !machine_.vertices[v].is_switch) continue;
      for (const int l : out_[v]) {
        const int next = machine_.links[static_cast<std::size_t>(l)].to;
        if (distance_[static_cast<std::size_t>(next)] >= 0) continue;
        distance_[static_cast<std::size_t>(next)] = distance_[v] + 1;
        queue.push_back(next);
      }
    }
  }

  /// A path that is longer than others must not run along them: of its links, only the first and the last may be
  /// theirs. Else a network of many switches has no end of ways round.
  static void drop_detours(std::vector<std::vector<int>>& paths) {
    std::size_t kept = 0;
    for (std::size_t p = 0; p < paths.size(); ++p) {
      const auto& path = paths[p];
      bool detour = false;
      for (std::size_t q = 0; q < kept && !detour; ++q) {
        const auto& other = paths[q];
        if (other.size() == path.size()) continue;
        for (std::size_t i = 1; i + 1 < path.size() && !detour; ++i)
          detour = std::find(other.begin(), other.end(), path[i]) != other.end();
      }
      if (detour) continue;
      if (kept != p) paths[kept] = std::move(paths[p]);
      ++kept;
    }
    paths.resize(kept);
  }

  void extend(int vertex, int left, int length) {
    const auto v = static_cast<std::size_t>(vertex);
    visited_[v] = true;
    for (const int l : out_[v]) {
      const int next = machine_.links[static_cast<std::size_t>(l)].to;
      const auto n = static_cast<std::size_t>(next);
      if (visited_[n]) continue;
      path_.push_back(l);
      if (!machine_.vertices[n].is_switch) {
        if (left == 1 && static_cast<int>(paths_[n].size()) < options_.per_pair) paths_[n].push_back(path_);
      } else if (left == 1) {
        deeper_ = true;
      } else if (length - left < distance_[n] + longest_detour) {
        extend(next, left - 1, length);
      }
      path_.pop_back();
    }
    visited_[v] = false;
  }

  /// Links by which the way to a switch may be longer than the shortest.
  static constexpr int longest_detour = 3;

  const topology& machine_;
  const path_options& options_;
  std::vector<std::vector<int>> out_;
  std::vector<int> distance_;
  std::vector<bool> visited_;
  std::vector<int> path_;
  std::vector<std::vector<std::vector<int>>> paths_;
  bool deeper_ = false;
};

/// Removes resources that no packing can notice: each edge that uses one also uses another that is no wider. Returns
/// the new number of each resource, -1 for those that went.
inline std::vector<int> drop_slack_resources(network& net) {
  const std::size_t count = net.resources.size();
  const std::size_t words = (net.edges.size() + 63) / 64;
  std::vector<std::uint64_t> users(count * words, 0);
  for (std::size_t e = 0; e < net.edges.size(); ++e)
    for (const int r : net.edges[e].resources)
      users[static_cast<std::size_t>(r) * words + e / 64] |= std::uint64_t{1} << (e % 64);
  const auto within = [&](std::size_t inner, std::size_t outer) {
    for (std::size_t w = 0; w < words; ++w)
      if ((users[inner * words + w] & ~users[outer * words + w]) != 0) return false;
    return true;
  };
  std::vector<int> kept(count, -1);
  int next = 0;
  for (std::size_t a = 0; a < count; ++a) {
    bool slack = true;
    for (std::size_t w = 0; w < words && slack; ++w) slack = users[a * words + w] == 0;
    for (std::size_t b = 0; b < count && !slack; ++b) {
      if (a == b || net.resources[b].capacity > net.resources[a].capacity || !within(a, b)) continue;
      // The first of two that are the same stays.
      slack = b < a || net.resources[b].capacity < net.resources[a].capacity || !within(b, a);
    }
    if (!slack) kept[a] = next++;
  }
  for (std::size_t a = 0; a < count; ++a)
    if (kept[a] >= 0 && kept[a] != static_cast<int>(a))
      net.resources[static_cast<std::size_t>(kept[a])] = std::move(net.resources[a]);
  net.resources.resize(static_cast<std::size_t>(next));
  for (auto& edge : net.edges) {
    std::vector<int> left;
    for (const int r : edge.resources)
      if (kept[static_cast<std::size_t>(r)] >= 0) left.push_back(kept[static_cast<std::size_t>(r)]);
    edge.resources = std::move(left);
  }
  return kept;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Returns the network of a topology: an edge for each path from one rank to another through switches, with the links
/// and shared resources it occupies. Two paths through the same resources are one edge; a path through a superset of
/// another's is left out.
[[nodiscard]] inline network network_of(const topology& machine, const path_options& options = {}) {
  require_consistent(machine);
  network net;
  const std::vector<int> ranks = rank_vertices(machine);
  net.ranks = static_cast<int>(ranks.size());
  const double scale = detail::capacity_scale(machine);
  net.unit = machine.unit / scale;
  const auto capacity = [&](double bandwidth) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(bandwidth * scale * (1 + 1e-12))));
  };
  const auto name = [&](int v) { return machine.vertices[static_cast<std::size_t>(v)].name; };

  int next_host = 0;
  for (const auto& vertex : machine.vertices) next_host = std::max(next_host, vertex.host + 1);
  std::vector<int> rank_of(machine.vertices.size(), -1);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    rank_of[static_cast<std::size_t>(ranks[r])] = static_cast<int>(r);
    const int host = machine.vertices[static_cast<std::size_t>(ranks[r])].host;
    net.host.push_back(host >= 0 ? host : next_host++);
  }
  std::vector<std::vector<int>> occupied(machine.links.size());
  for (std::size_t l = 0; l < machine.links.size(); ++l) {
    const auto& link = machine.links[l];
    occupied[l].push_back(static_cast<int>(l));
    net.resources.push_back({name(link.from) + " -> " + name(link.to), capacity(link.bandwidth)});
  }
  for (const auto& shared : machine.resources) {
    for (const int l : shared.links)
      occupied[static_cast<std::size_t>(l)].push_back(static_cast<int>(net.resources.size()));
    net.resources.push_back({shared.name, capacity(shared.bandwidth)});
  }

  const std::size_t pairs = std::max<std::size_t>(1, ranks.size() * (ranks.size() - 1));
  const std::size_t share_of_pair =
      std::max<std::size_t>(1, std::min<std::size_t>(static_cast<std::size_t>(options.per_pair),
                                                     static_cast<std::size_t>(options.in_all) / pairs));
  detail::switch_paths paths(machine, options);
  for (const int from : ranks) {
    const auto& found = paths.from(from);
    for (const int to : ranks) {
      std::vector<network::edge> edges;
      const auto& candidates = found[static_cast<std::size_t>(to)];
      // Where not all can be kept, each pair begins with another one, so that no switch is left out.
      const auto wanted = std::min(candidates.size(), share_of_pair);
      const auto begin = wanted < candidates.size() ? static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to)
                                                    : std::size_t{0};
      for (std::size_t i = 0; i < wanted; ++i) {
        const auto& path = candidates[(begin + i) % candidates.size()];
        network::edge edge{rank_of[static_cast<std::size_t>(from)], rank_of[static_cast<std::size_t>(to)], {}, 0.0};
        for (const int l : path) {
          const auto& uses = occupied[static_cast<std::size_t>(l)];
          edge.resources.insert(edge.resources.end(), uses.begin(), uses.end());
          edge.latency += machine.links[static_cast<std::size_t>(l)].latency;
        }
        std::sort(edge.resources.begin(), edge.resources.end());
        edge.resources.erase(std::unique(edge.resources.begin(), edge.resources.end()), edge.resources.end());
        const bool wasteful = std::any_of(edges.begin(), edges.end(), [&](const network::edge& other) {
          return std::includes(edge.resources.begin(), edge.resources.end(), other.resources.begin(),
                               other.resources.end());
        });
        if (!wasteful) edges.push_back(std::move(edge));
      }
      net.edges.insert(net.edges.end(), std::make_move_iterator(edges.begin()), std::make_move_iterator(edges.end()));
    }
  }
  detail::drop_slack_resources(net);
  return net;
}

}  // namespace espalier::comm
