// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/joint_packing.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The result of `check` for a joint packing.
struct joint_report {
  std::vector<std::string> mistakes;  ///< one sentence each, with the values; empty: the packing is right
  std::vector<fraction> loads;        ///< of each resource, by all groups
  fraction bound;                     ///< the bound that the prices prove

  [[nodiscard]] explicit operator bool() const { return mistakes.empty(); }
};

/// Checks a joint packing from first principles: every group's packing by itself (as `check` does), the loads of all
/// together, that each group gets its part of the rate, and the bound. Trusts nothing that the packing says.
[[nodiscard]] inline joint_report check(const joint_packing& trees, const network& net,
                                        const std::vector<joint_group>& groups) {
  joint_report report;
  const auto mistake = [&](std::string what) { report.mistakes.push_back(std::move(what)); };
  detail::require_disjoint(net, groups);
  report.loads.assign(net.resources.size(), fraction{0, 1});
  if (trees.groups.size() != groups.size()) {
    mistake("there are " + std::to_string(trees.groups.size()) + " packings for " + std::to_string(groups.size()) +
            " groups");
    return report;
  }
  bool alone = true;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string name = "group " + std::to_string(g);
    const packing& mine = trees.groups[g];
    if (mine.kind != trees.kind) mistake(name + " has trees for another collective, " + name_of(mine.kind));
    if (mine.root != groups[g].root && !has_equal_roots(trees.kind) && trees.kind != collective::all_reduce)
      mistake(name + " has trees for root " + std::to_string(mine.root) + ", expected " +
              std::to_string(groups[g].root));
    const packing_report one = check(mine, restricted(net, groups[g].members));
    for (const std::string& what : one.mistakes) {
      std::string text = name;
      mistake(text.append(": ").append(what));
    }
    if (!one.mistakes.empty()) continue;
    for (std::size_t r = 0; r < report.loads.size(); ++r) report.loads[r] = report.loads[r] + one.loads[r];
    if (groups[g].members.size() < 2) continue;
    alone = false;
    const auto wanted =
        detail::try_fraction(detail::int128{trees.rate.numerator} * groups[g].size, trees.rate.denominator);
    const double nearly = to_double(trees.rate) * static_cast<double>(groups[g].size) * (1 - 1e-12);
    if (wanted ? one.rate < *wanted : to_double(one.rate) < nearly)
      mistake(name + " has rate " + to_string(one.rate) + ", less than its size " + std::to_string(groups[g].size) +
              " times the joint rate " + to_string(trees.rate));
  }
  detail::find_overloads(net, report.loads, report.mistakes);
  if (alone) return report;
  const detail::proof proved = detail::joint_bound(net, trees.kind, groups, trees.prices);
  report.bound = proved.bound;
  detail::find_false_bound(proved, trees.rate, trees.bound, report.mistakes);
  return report;
}

}  // namespace espalier::comm
