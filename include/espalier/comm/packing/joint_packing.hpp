// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/check.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::comm {

/// Ranks that run a collective while others run the same one: a group of a mesh axis.
struct joint_group {
  std::vector<int> members;  ///< ranks of the whole network, in the group's order
  std::int64_t size = 1;     ///< of the group's array; only proportions between the groups matter
  int root = 0;              ///< of broadcast and reduce: a place in `members`
};

/// Trees for several disjoint groups of one network that run a collective at the same time.
///
/// Data of a group does not pass through ranks outside of it. `groups[g]` is a packing of `restricted(net, members)`:
/// its ranks and edges are numbered so.
///
/// @post rate of group g >= rate x size of group g: they all end after 1 / rate / unit seconds at the latest
/// @post for each resource: the loads of all groups together <= capacity
struct joint_packing {
  collective kind = collective::all_reduce;
  std::vector<packing> groups;
  fraction rate;
  fraction bound;  ///< no packing gives all groups more than bound x their sizes
  /// Why: a price of each resource. If all capacities cost C, and the cheapest way to serve group g costs z_g per unit
  /// of its rate, then rate x sum of size_g x z_g <= C (linear programming duality).
  std::vector<std::int64_t> prices;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Throws std::invalid_argument unless the groups are disjoint groups of the network's ranks.
inline void require_disjoint(const network& net, const std::vector<joint_group>& groups) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("joint packing: " + what); };
  std::vector<int> owner(static_cast<std::size_t>(net.ranks), -1);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string name = "group " + std::to_string(g);
    const joint_group& group = groups[g];
    if (group.members.empty()) refuse(name + " has no members");
    if (group.size < 1 || group.size > std::int64_t{1} << 40)
      refuse(name + " has size " + std::to_string(group.size) + ", expected 1 to 2^40");
    if (group.root < 0 || group.root >= static_cast<int>(group.members.size()))
      refuse(name + " has root " + std::to_string(group.root) + ", expected a place among its " +
             std::to_string(group.members.size()) + " members");
    for (const int member : group.members) {
      if (member < 0 || member >= net.ranks)
        refuse(name + " has member " + std::to_string(member) + " of " + std::to_string(net.ranks) + " ranks");
      int& mine = owner[static_cast<std::size_t>(member)];
      if (mine >= 0)
        refuse("rank " + std::to_string(member) + " is in groups " + std::to_string(mine) + " and " +
               std::to_string(g));
      mine = static_cast<int>(g);
    }
  }
}

/// Returns the bound that prices prove for all joint packings. Not valid where everything that a group needs costs 0.
[[nodiscard]] inline proof joint_bound(const network& net, collective kind, const std::vector<joint_group>& groups,
                                       const std::vector<std::int64_t>& prices) {
  std::vector<int128> wide_prices(prices.begin(), prices.end());
  wide_prices.resize(net.resources.size(), 0);
  const std::optional<int128> paid = cost_of_capacities(net, wide_prices);
  if (!paid) return {};
  std::int64_t common_size = 0;
  std::int64_t shares = 1;  // a multiple of the groups' ranks
  for (const joint_group& group : groups) {
    common_size = std::gcd(common_size, group.size);
    if (has_equal_roots(kind)) shares = std::lcm(shares, static_cast<std::int64_t>(group.members.size()));
  }
  int128 cost = 0;
  for (const joint_group& group : groups) {
    if (group.members.size() < 2) continue;
    const network part = restricted(net, group.members);
    const std::optional<int128> unit = cheapest_unit(part, kind, group.root, edge_costs(part, wide_prices));
    if (!unit) return {true, {0, 1}};
    const std::int64_t times = has_equal_roots(kind) ? shares / part.ranks : 1;
    cost += *unit * times * (group.size / common_size);
  }
  if (cost <= 0) return {};
  return {true, fraction_above(*paid * shares, cost * common_size)};
}

}  // namespace espalier::comm::detail
