// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/fraction.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The share of a network that each of several groups may use while the others use the rest: capacities of the
/// resources, in `unit` bytes per second. 0: nothing.
struct capacity_shares {
  double unit = 1.0;
  std::vector<std::vector<std::int64_t>> capacities;  ///< by group, by resource of the whole network
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// How much finer the capacities must be cut so that shares of these loads are whole numbers; where that would be too
/// fine, as fine as 30 bits allow.
[[nodiscard]] inline std::int64_t share_scale(const network& net, const std::vector<std::vector<fraction>>& loads) {
  std::int64_t largest = 1;
  for (const network::resource& r : net.resources) largest = std::max(largest, r.capacity);
  const std::int64_t finest = std::max<std::int64_t>(1, (std::int64_t{1} << 30) / largest);
  std::int64_t common = 1;
  for (const auto& of_group : loads)
    for (const fraction& load : of_group) {
      common = std::lcm(common, std::min(load.denominator, finest + 1));
      if (common > finest) return finest;
    }
  return common;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Divides a network among groups that use it at the same time: what only one group can use belongs to it; of what
/// several can, each gets a part in proportion to its load. Plans that are made on one's own part go well together.
///
/// @param groups  members of each
/// @param loads   of each resource by each group, as a joint plan has them; together within the capacities
/// @post for each resource: the shares together <= its capacity; each >= its load, up to a millionth by rounding
[[nodiscard]] inline capacity_shares divide_capacities(const network& net, const std::vector<std::vector<int>>& groups,
                                                       const std::vector<std::vector<fraction>>& loads) {
  const std::int64_t scale = detail::share_scale(net, loads);
  capacity_shares shares;
  shares.unit = net.unit / static_cast<double>(scale);
  shares.capacities.assign(groups.size(), std::vector<std::int64_t>(net.resources.size(), 0));
  std::vector<std::vector<char>> can_use(groups.size(), std::vector<char>(net.resources.size(), 0));
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const network::edge& e : restricted(net, groups[g]).edges)
      for (const int r : e.resources) can_use[g][static_cast<std::size_t>(r)] = 1;
  for (std::size_t r = 0; r < net.resources.size(); ++r) {
    const std::int64_t whole = net.resources[r].capacity * scale;
    std::int64_t users = 0;
    double all = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      users += can_use[g][r];
      all += to_double(loads[g][r]);
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (can_use[g][r] == 0) continue;
      std::int64_t& mine = shares.capacities[g][r];
      if (users == 1) {
        mine = whole;
      } else if (all <= 0) {
        mine = whole / users;
      } else {
        const double part = static_cast<double>(whole) * (to_double(loads[g][r]) / all);
        const std::int64_t least = loads[g][r].numerator > 0 ? 1 : 0;  // what carries anything must not vanish
        mine = std::max(least, static_cast<std::int64_t>(std::floor(part * (1 + 1e-12))));
      }
    }
  }
  return shares;
}

/// A group's part of a network with its shares: `restricted`, without transfers over resources that it has nothing of.
[[nodiscard]] inline network own_share(const network& net, const std::vector<int>& members, double unit,
                                       const std::vector<std::int64_t>& capacities) {
  network part = restricted(net, members);
  part.unit = unit;
  std::vector<network::edge> kept;
  for (network::edge& e : part.edges)
    if (std::all_of(e.resources.begin(), e.resources.end(),
                    [&](int r) { return capacities[static_cast<std::size_t>(r)] > 0; }))
      kept.push_back(std::move(e));
  part.edges = std::move(kept);
  for (std::size_t r = 0; r < part.resources.size(); ++r)
    part.resources[r].capacity = std::max<std::int64_t>(1, capacities[r]);
  return part;
}

}  // namespace espalier::comm
