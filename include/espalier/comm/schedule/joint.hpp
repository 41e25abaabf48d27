// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/call.hpp>
#include <espalier/comm/schedule/routes.hpp>
#include <espalier/comm/schedule/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm {

/// Schedules of disjoint groups, each for `restricted(net, members)`, as one of the whole network, to be simulated:
/// what the groups share slows them down there. It says nothing about where data lies, so it can't be run or validated.
/// Throws std::invalid_argument where groups and schedules don't fit.
[[nodiscard]] inline schedule merged(const network& net, const std::vector<std::vector<int>>& groups,
                                     const std::vector<schedule>& plans) {
  if (groups.size() != plans.size()) throw std::invalid_argument("every group needs one schedule");
  schedule all;
  all.call.ranks = net.ranks;
  all.credits = 0;
  all.scratch.assign(static_cast<std::size_t>(net.ranks), 0);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::vector<int>& members = groups[g];
    if (plans[g].call.ranks != static_cast<int>(members.size())) {
      throw std::invalid_argument("a group and its schedule have different numbers of ranks");
    }
    std::vector<char> inside(static_cast<std::size_t>(net.ranks), 0);
    for (const int member : members) inside[static_cast<std::size_t>(member)] = 1;
    std::vector<int> edges;
    for (std::size_t e = 0; e < net.edges.size(); ++e) {
      if (inside[static_cast<std::size_t>(net.edges[e].from)] != 0 &&
          inside[static_cast<std::size_t>(net.edges[e].to)] != 0) {
        edges.push_back(static_cast<int>(e));
      }
    }
    all.credits = std::max(all.credits, plans[g].credits);
    for (track t : plans[g].tracks) {
      for (rank_steps& p : t.parts) p.rank = members[static_cast<std::size_t>(p.rank)];
      std::sort(t.parts.begin(), t.parts.end(),
                [](const rank_steps& a, const rank_steps& b) { return a.rank < b.rank; });
      for (step& s : t.steps) {
        if (s.peer >= 0) s.peer = members[static_cast<std::size_t>(s.peer)];
        if (s.edge != step::direct) s.edge = edges.at(static_cast<std::size_t>(s.edge));
      }
      all.tracks.push_back(std::move(t));
    }
  }
  return all;
}

/// Whether every rank reaches every other.
[[nodiscard]] inline bool is_connected(const network& net) {
  for (const bool inward : {false, true}) {
    std::vector<int> reached{0};
    std::vector<char> seen(static_cast<std::size_t>(net.ranks), 0);
    if (net.ranks > 0) seen[0] = 1;
    for (std::size_t head = 0; head < reached.size(); ++head) {
      for (const network::edge& e : net.edges) {
        const int next = inward ? e.from : e.to;
        if ((inward ? e.to : e.from) != reached[head] || seen[static_cast<std::size_t>(next)] != 0) continue;
        seen[static_cast<std::size_t>(next)] = 1;
        reached.push_back(next);
      }
    }
    if (static_cast<int>(reached.size()) < net.ranks) return false;
  }
  return true;
}

/// Routes for all-to-alls that several groups carry out at the same time, each with equal blocks.
struct joint_routing {
  double rate = 0;                         ///< of each group's whole array, in the network's unit
  double bound = 0;                        ///< no routes give all groups more (linear programming duality)
  std::vector<std::vector<double>> loads;  ///< of each resource, by group
};

/// Finds them, up to `options.gap` of the bound. Data of a group stays on its ranks. Groups that are not connected, or
/// of one rank, are left out and have no load.
[[nodiscard]] inline joint_routing route_jointly(const network& net, const std::vector<std::vector<int>>& groups,
                                                 const routing_options& options = {}) {
  joint_routing made;
  made.loads.assign(groups.size(), std::vector<double>(net.resources.size(), 0));
  // One network in which only ranks of a group are joined.
  std::vector<int> group_of(static_cast<std::size_t>(net.ranks), -1);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const int member : groups[g]) group_of[static_cast<std::size_t>(member)] = static_cast<int>(g);
  network within = net;
  within.edges.clear();
  for (const network::edge& e : net.edges) {
    const int from = group_of[static_cast<std::size_t>(e.from)];
    if (from >= 0 && from == group_of[static_cast<std::size_t>(e.to)]) within.edges.push_back(e);
  }
  std::vector<detail::concurrent_flow::demand> demands;
  for (const std::vector<int>& members : groups) {
    const auto n = static_cast<double>(members.size());
    if (members.size() < 2 || !is_connected(restricted(net, members))) continue;
    for (const int a : members)
      for (const int b : members)
        if (a != b) demands.push_back({a, b, 1 / (n * n)});
  }
  if (demands.empty()) return made;
  const routing all = detail::concurrent_flow(within, demands).run(options);
  made.rate = all.rate;
  made.bound = all.bound;
  for (const route& r : all.routes) {
    const auto g = static_cast<std::size_t>(group_of[static_cast<std::size_t>(r.from)]);
    const auto n = static_cast<double>(groups[g].size());
    for (const int e : r.edges)
      for (const int x : within.edges[static_cast<std::size_t>(e)].resources)
        made.loads[g][static_cast<std::size_t>(x)] += r.weight * all.rate / (n * n);
  }
  return made;
}

}  // namespace espalier::comm
