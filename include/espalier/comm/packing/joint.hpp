// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/column_generation.hpp>
#include <espalier/comm/packing/columns.hpp>
#include <espalier/comm/packing/joint_packing.hpp>
#include <espalier/comm/packing/multiplicative_weights.hpp>
#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/packing/rounding.hpp>
#include <espalier/comm/packing/symmetry.hpp>
#include <espalier/comm/topology/paths.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// The trees of several groups at once, which compete for the same rows.
///
/// Packing programs give equal weights to all groups of columns. Here a unit of weight stands for so much of a tree as
/// its group is large: `multiple`.
class joint_source : public column_source {
 public:
  /// @param groups  those that compete, of `net`
  joint_source(const network& net, collective kind, const std::vector<joint_group>& groups) : kind_(kind) {
    // Resources that never limit a transfer make the program larger. The remaining ones are renumbered.
    network both = net;
    both.edges.clear();
    std::vector<std::size_t> first;
    for (const joint_group& group : groups) {
      subnetworks_.push_back(restricted(net, group.members));
      first.push_back(both.edges.size());
      for (const network::edge& e : subnetworks_.back().edges)
        both.edges.push_back({group.members[static_cast<std::size_t>(e.from)],
                              group.members[static_cast<std::size_t>(e.to)], e.resources, e.latency});
    }
    kept_ = drop_slack_resources(both);
    const mirror opposite = kind == collective::all_reduce ? find_mirror(both) : mirror{};
    find_multiples(groups);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      network& subnetwork = subnetworks_[g];
      subnetwork.resources = both.resources;
      mirror own;
      if (opposite) own.resource = opposite.resource;
      for (std::size_t e = 0; e < subnetwork.edges.size(); ++e) {
        subnetwork.edges[e].resources = both.edges[first[g] + e].resources;
        if (opposite) own.edge.push_back(opposite.edge[first[g] + e] - static_cast<int>(first[g]));
      }
      sources_.push_back(std::make_unique<tree_source>(subnetwork, kind, groups[g].root, std::move(own)));
      for (int h = 0; h < sources_.back()->groups(); ++h) owner_.push_back(g);
    }
  }

  [[nodiscard]] int groups() const override { return static_cast<int>(owner_.size()); }
  [[nodiscard]] const std::vector<std::int64_t>& capacities() const override { return sources_.front()->capacities(); }

  [[nodiscard]] offer cheapest(const std::vector<double>& prices) const override {
    offer all;
    std::vector<tree_column> more;
    int before = 0;
    for (std::size_t g = 0; g < sources_.size(); ++g) {
      offer one = sources_[g]->cheapest(prices);
      const int own = sources_[g]->groups();
      for (const double c : one.cost) all.cost.push_back(c * multiples_[g]);
      for (std::size_t j = 0; j < one.columns.size(); ++j) {
        tree_column& column = one.columns[j];
        column.group += before;
        for (auto& [row, count] : column.uses) count *= multiples_[g];
        (static_cast<int>(j) < own ? all.columns : more).push_back(std::move(column));
      }
      before += own;
    }
    for (tree_column& column : more) all.columns.push_back(std::move(column));
    return all;
  }

  /// Which of the groups a column is for, and how much of its tree a unit of its weight is.
  [[nodiscard]] std::size_t owner(const tree_column& column) const {
    return owner_[static_cast<std::size_t>(column.group)];
  }
  [[nodiscard]] int multiple(std::size_t group) const { return multiples_[group]; }

  /// Prices of the network's resources from those of rows.
  template <class Number> [[nodiscard]] std::vector<Number> resource_prices(const std::vector<Number>& of_rows) const {
    const std::vector<Number> few = sources_.front()->resource_prices(of_rows);
    std::vector<Number> prices(kept_.size());
    for (std::size_t r = 0; r < kept_.size(); ++r)
      prices[r] = kept_[r] >= 0 ? few[static_cast<std::size_t>(kept_[r])] : Number{};
    return prices;
  }

 private:
  /// Size over the number of roots, as whole numbers for all groups. Sizes of many digits are rounded to so few that
  /// entries of the program stay small; the rate that comes of it is computed from the true sizes.
  void find_multiples(const std::vector<joint_group>& groups) {
    constexpr std::int64_t largest_multiple = 1 << 16;
    std::int64_t common = 0;
    std::int64_t largest = 0;
    std::int64_t roots = 1;
    for (const joint_group& group : groups) {
      common = std::gcd(common, group.size);
      largest = std::max(largest, group.size);
      if (has_equal_roots(kind_)) roots = std::lcm(roots, static_cast<std::int64_t>(group.members.size()));
    }
    const bool whole = largest / common <= largest_multiple / roots;
    for (const joint_group& group : groups) {
      const double share = has_equal_roots(kind_) ? 1.0 / static_cast<double>(group.members.size()) : 1.0;
      const std::int64_t units = group.size / common;
      const double exact = whole ? static_cast<double>(units) * share * static_cast<double>(roots)
                                 : static_cast<double>(group.size) / static_cast<double>(largest) * share *
                                       static_cast<double>(largest_multiple);
      multiples_.push_back(std::max(1, static_cast<int>(std::lround(exact))));
    }
  }

  collective kind_;
  std::deque<network> subnetworks_;  // sources keep their addresses
  std::vector<std::unique_ptr<tree_source>> sources_;
  std::vector<int> multiples_;
  std::vector<std::size_t> owner_;  // of each group of columns
  std::vector<int> kept_;           // new number of each resource
};

/// `rate` / `size`, or a little less where that has too many digits.
[[nodiscard]] inline fraction share_of_rate(const fraction& rate, std::int64_t size) {
  const int128 denominator = int128{rate.denominator} * size;
  if (const auto exact = try_fraction(rate.numerator, denominator)) return *exact;
  for (int bits = 50;; bits -= 10)
    if (const auto near = try_fraction((int128{rate.numerator} << bits) / denominator, int128{1} << bits)) return *near;
}

/// The rate that all groups have.
inline void set_joint_rate(const std::vector<joint_group>& groups, joint_packing& result) {
  bool first = true;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].members.size() < 2) continue;
    const fraction mine = share_of_rate(result.groups[g].rate, groups[g].size);
    if (first || mine < result.rate) result.rate = mine;
    first = false;
  }
}

/// Groups that share resources, by one packing program over the trees of all of them.
[[nodiscard]] inline joint_packing pack_competing(const network& net, collective kind,
                                                  const std::vector<joint_group>& groups,
                                                  packing_clock::time_point deadline) {
  const joint_source source(net, kind, groups);
  rough_packing rough = multiplicative_weights(source, 0.1, 0.02, deadline, 40);
  rough = generate_columns(source, std::move(rough), 1e-11, deadline);

  joint_packing result;
  result.kind = kind;
  result.groups.resize(groups.size());
  const whole_weights weights = whole_weights_of(source, rough);
  for (std::size_t j = 0; j < rough.columns.size(); ++j) {
    if (weights.numerators[j] == 0) continue;
    const std::size_t g = source.owner(rough.columns[j]);
    tree t = rough.columns[j].shape;
    t.weight = make_fraction(int128{weights.numerators[j]} * source.multiple(g), weights.denominator);
    packing& mine = result.groups[g];
    mine.rate = mine.rate + t.weight;
    mine.trees.push_back(std::move(t));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    result.groups[g].kind = kind;
    result.groups[g].root = groups[g].root;
  }
  set_joint_rate(groups, result);

  result.prices = rounded_prices(source.resource_prices(rough.prices));
  result.bound = joint_bound(net, kind, groups, result.prices).bound;
  if (!rough.exact_prices.empty()) {
    const auto whole = over_one_denominator(source.resource_prices(rough.exact_prices));
    // Longer ones would overflow the sums.
    const bool is_short = whole && std::all_of(whole->numerators.begin(), whole->numerators.end(),
                                               [](std::int64_t p) { return p < std::int64_t{1} << 50; });
    const proof better = is_short ? joint_bound(net, kind, groups, whole->numerators) : proof{};
    if (better.valid && better.bound <= result.bound) {
      result.bound = better.bound;
      result.prices = whole->numerators;
    }
  }
  return result;
}

/// Sets of groups that have a resource in common, or are joined by others that do.
[[nodiscard]] inline std::vector<std::vector<std::size_t>> competing_sets(const network& net,
                                                                          const std::vector<joint_group>& groups) {
  std::vector<int> set(groups.size());
  std::iota(set.begin(), set.end(), 0);
  std::vector<int> group_of(static_cast<std::size_t>(net.ranks), -1);
  network used = net;
  used.edges.clear();
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const int member : groups[g].members) group_of[static_cast<std::size_t>(member)] = static_cast<int>(g);
  for (const network::edge& e : net.edges) {
    const int from = group_of[static_cast<std::size_t>(e.from)];
    if (from >= 0 && from == group_of[static_cast<std::size_t>(e.to)]) used.edges.push_back(e);
  }
  (void)drop_slack_resources(used);  // groups do not compete for a resource that limits no transfer
  std::vector<int> user(used.resources.size(), -1);
  for (const network::edge& e : used.edges) {
    const int mine = group_of[static_cast<std::size_t>(e.from)];
    for (const int r : e.resources) {
      int& other = user[static_cast<std::size_t>(r)];
      if (other < 0) other = mine;
      const int from = set[static_cast<std::size_t>(other)];
      const int to = set[static_cast<std::size_t>(mine)];
      if (from != to) std::replace(set.begin(), set.end(), std::max(from, to), std::min(from, to));
    }
  }
  std::vector<std::vector<std::size_t>> sets(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) sets[static_cast<std::size_t>(set[g])].push_back(g);
  sets.erase(std::remove_if(sets.begin(), sets.end(), [](const auto& s) { return s.empty(); }), sets.end());
  return sets;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Packs trees for groups that run one collective at the same time, at the greatest rate that all of them can have in
/// proportion to their sizes. Groups that share nothing are packed each by itself, and may be faster than the others.
///
/// A group whose members are not connected among themselves gets no trees, and the rate is 0; a group of one has
/// nothing to do and does not count.
///
/// Throws std::invalid_argument where the groups are not disjoint groups of the network's ranks.
/// @post check(pack_jointly(net, kind, groups), net, groups)
[[nodiscard]] inline joint_packing pack_jointly(const network& net, collective kind,
                                                const std::vector<joint_group>& groups,
                                                const pack_options& options = {}) {
  detail::require_disjoint(net, groups);
  detail::require_packable(net, kind, 0);
  joint_packing result;
  result.kind = kind;
  result.groups.resize(groups.size());
  bool bounded = false;
  const auto limit = [&](const fraction& bound, std::vector<std::int64_t> prices) {
    if (bounded && result.bound <= bound) return;
    bounded = true;
    result.bound = bound;
    result.prices = std::move(prices);
  };

  std::vector<joint_group> connected;
  std::vector<std::size_t> place;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const network subnetwork = restricted(net, groups[g].members);
    if (subnetwork.ranks > 1 && detail::tree_source(subnetwork, kind, groups[g].root).connects()) {
      connected.push_back(groups[g]);
      place.push_back(g);
      continue;
    }
    packing& mine = result.groups[g];
    mine = pack(subnetwork, kind, groups[g].root, options);
    if (subnetwork.ranks > 1) limit({0, 1}, mine.prices);
  }
  for (const std::vector<std::size_t>& set : detail::competing_sets(net, connected)) {
    if (set.size() == 1) {
      const joint_group& group = connected[set.front()];
      packing mine = pack(restricted(net, group.members), kind, group.root, options);
      limit(detail::fraction_above(mine.bound.numerator, detail::int128{mine.bound.denominator} * group.size),
            mine.prices);
      result.groups[place[set.front()]] = std::move(mine);
      continue;
    }
    std::vector<joint_group> competing;
    for (const std::size_t g : set) competing.push_back(connected[g]);
    joint_packing some = detail::pack_competing(net, kind, competing, detail::after(options.most_seconds));
    for (std::size_t k = 0; k < set.size(); ++k) {
      packing& mine = some.groups[k];
      // The joint prices also prove a bound for the group alone, unless everything that it needs costs 0.
      const network subnetwork = restricted(net, competing[k].members);
      mine.prices = some.prices;
      detail::proof own = detail::bound_of_prices(subnetwork, kind, mine.root, mine.prices);
      if (!own.valid) {
        mine.prices.assign(net.resources.size(), 1);
        own = detail::bound_of_prices(subnetwork, kind, mine.root, mine.prices);
      }
      mine.bound = own.bound;
      result.groups[place[set[k]]] = std::move(mine);
    }
    limit(some.bound, std::move(some.prices));
  }
  if (!bounded) {  // every group is one rank
    result.rate = result.bound = {1, 1};
    result.prices.assign(net.resources.size(), 0);
    return result;
  }
  detail::set_joint_rate(groups, result);
  return result;
}

}  // namespace espalier::comm
