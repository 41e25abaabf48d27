// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/network.hpp>
#include <espalier/pipeline/cluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline {

/// The machines of a network that was probed (`comm::network_of(comm::probe(...))`), for the planner. Of two hosts the
/// slowest pair of ranks counts, and inside of hosts the slowest of all; `inside` where the network says nothing of the
/// ranks of a host, which share memory. Hosts are connected alike where no pair is a tenth faster than the slowest one.
/// Errors: std::invalid_argument unless each host's ranks follow one another, and all pairs are connected.
[[nodiscard]] inline cluster cluster_of(const comm::network& net, const transfer_rate& inside) {
  if (net.ranks < 1 || net.host.size() != static_cast<std::size_t>(net.ranks))
    throw std::invalid_argument("a network of " + std::to_string(net.ranks) + " ranks that says the hosts of " +
                                std::to_string(net.host.size()) + ": it must say each rank's");
  const auto host = [&](int rank) { return net.host[static_cast<std::size_t>(rank)]; };
  cluster made;
  std::vector<int> seen;
  for (int rank = 0; rank < net.ranks; ++rank) {
    if (rank > 0 && host(rank) == host(rank - 1)) {
      ++made.devices_of.back();
      continue;
    }
    if (std::find(seen.begin(), seen.end(), host(rank)) != seen.end())
      throw std::invalid_argument("rank " + std::to_string(rank) +
                                  " is on a host whose other ranks do not come right "
                                  "before it: start the ranks host by host (mpirun --map-by slot)");
    seen.push_back(host(rank));
    made.devices_of.push_back(1);
  }
  const auto n = static_cast<std::size_t>(net.ranks);
  std::vector<transfer_rate> best(n * n, transfer_rate{0, 0});
  for (const comm::network::edge& one : net.edges) {
    std::int64_t capacity = std::numeric_limits<std::int64_t>::max();
    for (const int r : one.resources)
      capacity = std::min(capacity, net.resources[static_cast<std::size_t>(r)].capacity);
    if (one.resources.empty()) continue;
    transfer_rate& pair = best[static_cast<std::size_t>(one.from) * n + static_cast<std::size_t>(one.to)];
    const double rate = static_cast<double>(capacity) * net.unit;
    if (rate > pair.bytes_per_second) pair = {rate, one.latency};
  }
  const double unknown = std::numeric_limits<double>::infinity();
  const auto hosts = static_cast<std::size_t>(made.hosts());
  std::vector<transfer_rate> slowest(hosts * hosts, transfer_rate{unknown, 0});
  transfer_rate within{unknown, 0};
  const auto include = [](transfer_rate& all, const transfer_rate& one) {
    all.bytes_per_second = std::min(all.bytes_per_second, one.bytes_per_second);
    all.latency_seconds = std::max(all.latency_seconds, one.latency_seconds);
  };
  std::vector<std::size_t> place;  // of each rank's host
  for (std::size_t h = 0; h < hosts; ++h) place.insert(place.end(), static_cast<std::size_t>(made.devices_of[h]), h);
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t to = 0; to < n; ++to) {
      if (from == to) continue;
      const transfer_rate& pair = best[from * n + to];
      const bool same = place[from] == place[to];
      if (pair.bytes_per_second <= 0) {
        if (same) continue;
        throw std::invalid_argument("nothing connects rank " + std::to_string(from) + " to rank " + std::to_string(to) +
                                    " of another host: a pipeline may need any pair");
      }
      include(same ? within : slowest[place[from] * hosts + place[to]], pair);
    }
  made.inside = within.bytes_per_second < unknown ? within : inside;
  transfer_rate across{unknown, 0};
  double fastest = 0;
  for (const transfer_rate& pair : slowest) {
    if (pair.bytes_per_second == unknown) continue;  // a host with itself
    include(across, pair);
    fastest = std::max(fastest, pair.bytes_per_second);
  }
  made.across = hosts > 1 ? across : made.inside;
  if (fastest > 1.1 * across.bytes_per_second) {
    for (std::size_t h = 0; h < hosts; ++h) slowest[h * hosts + h] = made.inside;
    made.between = std::move(slowest);
  }
  return made;
}

}  // namespace espalier::pipeline
