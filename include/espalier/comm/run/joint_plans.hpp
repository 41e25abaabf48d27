// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/joint.hpp>
#include <espalier/comm/packing/joint_share.hpp>
#include <espalier/comm/run/agreement.hpp>
#include <espalier/comm/schedule/call.hpp>
#include <espalier/comm/schedule/joint.hpp>
#include <espalier/comm/schedule/price.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace espalier::comm::detail {

/// Returns the capacities that each group may use while all of them carry out the operation, by a joint packing (or
/// joint routes); nothing where groups don't compete, since then each may use all.
[[nodiscard]] inline std::optional<capacity_shares> shares_for(const network& net,
                                                               const std::vector<std::vector<int>>& members,
                                                               collective what) {
  std::vector<joint_group> groups;
  for (const std::vector<int>& list : members) groups.push_back({list, 1, 0});
  if (competing_sets(net, groups).size() == groups.size()) return std::nullopt;
  std::vector<std::vector<fraction>> loads;
  if (has_trees(what)) {
    const joint_packing trees = pack_jointly(net, what, groups);
    for (std::size_t g = 0; g < groups.size(); ++g)
      loads.push_back(check(trees.groups[g], restricted(net, members[g])).loads);
  } else {
    constexpr std::int64_t parts = 1 << 20;
    for (const auto& of_group : route_jointly(net, members).loads) {
      loads.emplace_back();
      for (const double load : of_group)
        loads.back().push_back(make_fraction(static_cast<std::int64_t>(load * static_cast<double>(parts)), parts));
    }
  }
  return divide_capacities(net, members, loads);
}

[[nodiscard]] inline plan_words to_words(const std::optional<capacity_shares>& shares) {
  plan_words made;
  if (!shares) return {0};
  made = {1, std::bit_cast<std::int64_t>(shares->unit), static_cast<std::int64_t>(shares->capacities.size())};
  for (const auto& of_group : shares->capacities) {
    made.push_back(static_cast<std::int64_t>(of_group.size()));
    made.insert(made.end(), of_group.begin(), of_group.end());
  }
  return made;
}
[[nodiscard]] inline std::optional<capacity_shares> shares_from(const plan_words& from) {
  if (from.at(0) == 0) return std::nullopt;
  capacity_shares made;
  made.unit = std::bit_cast<double>(from.at(1));
  std::size_t at = 3;
  for (std::int64_t g = 0; g < from.at(2); ++g) {
    const auto count = static_cast<std::ptrdiff_t>(from.at(at++));
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
    made.capacities.emplace_back(begin, begin + count);
    at += static_cast<std::size_t>(count);
  }
  return made;
}

/// The groups that all ranks belong to, each rank knowing its own. Collective over all ranks. Errors: `comm_error` on
/// all ranks where the groups they name do not fit together.
[[nodiscard]] inline std::vector<std::vector<int>> all_groups(agreement& everyone, const transfer_group& mine) {
  const plan_words said = everyone.from_all(
      {mine.members.front(), mine.self, static_cast<std::int64_t>(mine.members.size())}, "for the groups of all ranks");
  std::vector<std::vector<int>> groups;
  std::vector<std::size_t> group_of(said.size() / 3, 0);
  const auto refuse = [] {
    throw comm_error(
        "the ranks prepared different groups at the same time: all ranks must prepare the same operations in the same "
        "order when their collectives are made for a topology");
  };
  for (std::size_t r = 0; r < said.size() / 3; ++r) {
    if (said[3 * r + 1] != 0) continue;
    if (said[3 * r] != static_cast<std::int64_t>(r)) refuse();
    group_of[r] = groups.size();
    groups.emplace_back(static_cast<std::size_t>(said[3 * r + 2]), -1);
  }
  for (std::size_t r = 0; r < said.size() / 3; ++r) {
    const auto leader = static_cast<std::size_t>(said[3 * r]);
    if (said[3 * leader + 1] != 0) refuse();
    std::vector<int>& group = groups[group_of[leader]];
    const auto place = static_cast<std::size_t>(said[3 * r + 1]);
    if (group.size() != static_cast<std::size_t>(said[3 * r + 2]) || place >= group.size() || group[place] >= 0)
      refuse();
    group[place] = static_cast<int>(r);
  }
  for (const auto& group : groups)
    for (const int member : group)
      if (member < 0) refuse();
  return groups;
}

}  // namespace espalier::comm::detail
