// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/rounding.hpp>
#include <espalier/comm/packing/simplex.hpp>
#include <espalier/comm/packing/strength.hpp>
#include <espalier/comm/packing/symmetry.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// All-reduce on a full-duplex network whose edges compete (allocation.hpp, with undirected trees): gives each pair of
/// opposite edges a share, such that the strength of what results is greatest. The rows are partitions of the ranks:
/// between k parts there must be k - 1 times the rate (Tutte, Nash-Williams); greedy forests find those that matter.
class duplex_allocation {
 public:
  /// @pre opposite = find_mirror(net) exists
  duplex_allocation(const network& net, const mirror& opposite) : net_(net), opposite_(opposite), solver_({}) {
    build();
  }

  /// False if the linear program was given up: there are no shares then.
  bool solve(packing_clock::time_point deadline) {
    solver_.stop_at(deadline);
    if (!solver_.improve()) return false;
    while (cut())
      if (!solver_.repair() || !solver_.improve()) return false;
    // The small costs that kept the steps from going in circles are removed.
    for (int j = 1; j < next_column_; ++j) solver_.set_objective(j, 0);
    return solver_.improve() && !cut();
  }

  /// Trees on the shares, and prices that prove the bound.
  [[nodiscard]] packing pack(int attempts, packing_clock::time_point deadline) {
    packing result;
    const std::optional<simplex::exact_solution> exact = solver_.solve_exactly(whole_limits_);
    std::optional<whole_weights> shares;
    if (exact) shares = over_one_denominator(exact->values);
    // Denominators beyond this make a bundle of trees of every digit.
    if (!shares || shares->denominator > 5040) shares = rounded_shares(16);
    result = pack_shares(*shares, attempts, deadline);
    result.kind = collective::all_reduce;
    set_bound_from_duals(net_, result, solver_.duals(), exact, [&](const auto& duals) { return prices(duals); });
    return result;
  }

 private:
  void build() {
    std::vector<int> users(net_.resources.size(), 0);
    for (const auto& edge : net_.edges)
      for (const int r : edge.resources) ++users[static_cast<std::size_t>(r)];
    row_.assign(net_.resources.size(), -1);
    std::vector<double> limits;
    for (std::size_t e = 0; e < net_.edges.size(); ++e) {
      const auto& edge = net_.edges[e];
      if (edge.from > edge.to) continue;
      const int back = opposite_.edge[e];
      links_.push_back({edge.from, edge.to, static_cast<int>(e), back, 0});
      is_free_.push_back(edge.resources.size() == 1 && users[static_cast<std::size_t>(edge.resources[0])] == 1);
      if (is_free_.back()) {
        links_.back().capacity = net_.resources[static_cast<std::size_t>(edge.resources[0])].capacity;
        continue;
      }
      for (const int b : {static_cast<int>(e), back})
        for (const int r : net_.edges[static_cast<std::size_t>(b)].resources) {
          // A resource and its opposite carry the same load; the first represents both.
          if (opposite_.resource[static_cast<std::size_t>(r)] < r || row_[static_cast<std::size_t>(r)] >= 0) continue;
          row_[static_cast<std::size_t>(r)] = static_cast<int>(limits.size());
          whole_limits_.push_back(net_.resources[static_cast<std::size_t>(r)].capacity);
          limits.push_back(static_cast<double>(whole_limits_.back()));
        }
    }
    solver_ = simplex(std::move(limits));
    solver_.add(1, {});  // the rate
    std::uint32_t state = 1;
    for (std::size_t l = 0; l < links_.size(); ++l) {
      column_.push_back(-1);
      if (is_free_[l]) continue;
      std::vector<std::pair<int, double>> entries;
      for (const int e : {links_[l].edge, links_[l].back})
        for (const int r : net_.edges[static_cast<std::size_t>(e)].resources) {
          const int row = row_[static_cast<std::size_t>(r)];
          if (row < 0) continue;
          const auto same = std::find_if(entries.begin(), entries.end(), [&](const auto& x) { return x.first == row; });
          if (same == entries.end()) {
            entries.emplace_back(row, 1.0);
          } else {
            same->second += 1;
          }
        }
      state = state * 1664525U + 1013904223U;
      const double part = 0.5 + static_cast<double>(state >> 8U) / static_cast<double>(1U << 25U);
      column_.back() = next_column_++;
      solver_.add(-1e-7 * part, std::move(entries));
    }
    std::vector<int> parts(static_cast<std::size_t>(net_.ranks));
    for (int r = 0; r < net_.ranks; ++r) parts[static_cast<std::size_t>(r)] = r;
    add_partition(parts);
    for (int r = 0; r < net_.ranks; ++r) {
      std::vector<int> one(static_cast<std::size_t>(net_.ranks), 0);
      one[static_cast<std::size_t>(r)] = 1;
      add_partition(std::move(one));
    }
  }

  [[nodiscard]] bool crosses(const std::vector<int>& parts, const duplex_link& link) const {
    return parts[static_cast<std::size_t>(link.u)] != parts[static_cast<std::size_t>(link.v)];
  }

  /// False if it is known.
  bool add_partition(std::vector<int> parts) {
    // Parts are named by their order, so that equal partitions are equal.
    std::vector<int> names;
    for (int& p : parts) {
      const auto at = std::find(names.begin(), names.end(), p);
      const int name = static_cast<int>(at - names.begin());
      if (at == names.end()) names.push_back(p);
      p = name;
    }
    if (names.size() < 2 || !known_.insert(parts).second) return false;
    std::vector<std::pair<int, double>> entries{{0, static_cast<double>(names.size() - 1)}};
    std::int64_t free = 0;
    for (std::size_t l = 0; l < links_.size(); ++l) {
      if (!crosses(parts, links_[l])) continue;
      if (is_free_[l]) {
        free += links_[l].capacity;
      } else {
        entries.emplace_back(column_[l], -1.0);
      }
    }
    partitions_.emplace_back(whole_limits_.size(), std::move(parts));
    whole_limits_.push_back(free);
    solver_.add_row(entries, static_cast<double>(free));
    return true;
  }

  /// The shares in units of 1 / denominator; the first is the rate.
  [[nodiscard]] whole_weights rounded_shares(int digits) {
    const std::vector<double> values = solver_.values();
    whole_weights result;
    const int exponent = values[0] > 0 ? std::clamp(digits - std::ilogb(values[0]), 0, 30) : 0;
    result.denominator = std::int64_t{1} << exponent;
    for (const double v : values)
      result.numerators.push_back(
          static_cast<std::int64_t>(std::max(0.0, v) * static_cast<double>(result.denominator) + 1e-3));
    return result;
  }

  [[nodiscard]] std::vector<duplex_link> shared_links(const whole_weights& values) const {
    std::vector<duplex_link> shared;
    for (std::size_t l = 0; l < links_.size(); ++l) {
      duplex_link link = links_[l];
      link.capacity =
          is_free_[l] ? link.capacity * values.denominator : values.numerators[static_cast<std::size_t>(column_[l])];
      if (link.capacity > 0) shared.push_back(link);
    }
    return shared;
  }

  /// Adds the partition that the present shares violate. False if there is none.
  bool cut() {
    const whole_weights values = rounded_shares(24);
    const std::int64_t rate =
        values.numerators[0] - values.numerators[0] / 200000 - static_cast<std::int64_t>(links_.size());
    if (rate <= 0) return false;
    const std::vector<duplex_link> links = shared_links(values);
    forest_choice choice(net_.ranks, links, fraction{1, 1}, rate);
    return choice.total() < rate * (net_.ranks - 1) && add_partition(choice.partition());
  }

  [[nodiscard]] packing pack_shares(const whole_weights& values, int attempts,
                                    packing_clock::time_point deadline) const {
    network shares;
    shares.ranks = net_.ranks;
    shares.host = net_.host;
    mirror opposite;
    std::vector<int> place;
    for (const duplex_link& link : shared_links(values)) {
      const int first = static_cast<int>(shares.edges.size());
      shares.edges.push_back({link.u, link.v, {first}, 0});
      shares.edges.push_back({link.v, link.u, {first + 1}, 0});
      for (const int other : {first + 1, first}) {
        shares.resources.push_back({"", link.capacity});
        opposite.edge.push_back(other);
        opposite.resource.push_back(other);
      }
      place.push_back(link.edge);
      place.push_back(link.back);
    }
    packing result = pack_strength(shares, opposite, attempts, deadline);
    const fraction unit{values.denominator, 1};
    for (tree& t : result.trees) {
      for (auto* half : {&t.down, &t.up})
        for (int& e : *half)
          if (e >= 0) e = place[static_cast<std::size_t>(e)];
      t.weight = t.weight / unit;
    }
    result.rate = result.rate / unit;
    return result;
  }

  /// A resource's price is its row's; a link without competition costs what the partitions that it crosses cost.
  template <class Number> [[nodiscard]] std::vector<Number> prices(const std::vector<Number>& of_rows) const {
    std::vector<Number> prices(net_.resources.size(), Number{});
    for (std::size_t r = 0; r < prices.size(); ++r) {
      const auto first = static_cast<std::size_t>(std::min(static_cast<int>(r), opposite_.resource[r]));
      if (row_[first] < 0) continue;
      prices[r] = of_rows[static_cast<std::size_t>(row_[first])];
      // A resource that is its own opposite counts once; others count twice.
      if (opposite_.resource[r] == static_cast<int>(r)) prices[r] = prices[r] + prices[r];
    }
    for (const auto& [row, parts] : partitions_)
      for (std::size_t l = 0; l < links_.size(); ++l) {
        if (!is_free_[l] || !crosses(parts, links_[l])) continue;
        for (const int e : {links_[l].edge, links_[l].back}) {
          auto& price = prices[static_cast<std::size_t>(net_.edges[static_cast<std::size_t>(e)].resources[0])];
          price = price + of_rows[row];
        }
      }
    return prices;
  }

  const network& net_;
  const mirror& opposite_;
  simplex solver_;
  std::vector<duplex_link> links_;
  std::vector<bool> is_free_;  ///< of each link: no tree competes for it, it has all of its capacity
  std::vector<int> column_;    ///< of each other link
  int next_column_ = 1;
  std::vector<int> row_;                    ///< of each resource
  std::vector<std::int64_t> whole_limits_;  ///< of all rows
  std::set<std::vector<int>> known_;
  std::vector<std::pair<std::size_t, std::vector<int>>> partitions_;  ///< with their rows
};

}  // namespace espalier::comm::detail
