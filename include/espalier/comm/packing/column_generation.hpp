// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/columns.hpp>
#include <espalier/comm/packing/multiplicative_weights.hpp>
#include <espalier/comm/packing/simplex.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// The packing program over a growing list of trees.
class packing_program {
 public:
  explicit packing_program(const column_source& source)
      : rows_(source.capacities().size()), groups_(source.groups()), solver_(limits(source)) {
    if (groups_ == 1) return;
    // x <= what the trees of each root carry; the rate is x for every root.
    std::vector<std::pair<int, double>> share;
    for (int g = 0; g < groups_; ++g) share.emplace_back(static_cast<int>(rows_) + g, 1.0);
    solver_.add(groups_, std::move(share));
  }

  void stop_at(packing_clock::time_point deadline) { solver_.stop_at(deadline); }

  /// Whether the tree is new. @pre `columns` is the same list in every call
  bool add(std::vector<tree_column>& columns, tree_column column) {
    const auto [at, is_new] = index_.add(columns, std::move(column));
    if (is_new) enter(columns[at]);
    return is_new;
  }

  bool improve() { return solver_.improve(); }

  [[nodiscard]] double rate() const { return solver_.objective(); }

  /// Returns the prices of the rows, never negative.
  [[nodiscard]] std::vector<double> prices() const {
    std::vector<double> prices(solver_.duals().begin(), solver_.duals().begin() + static_cast<std::ptrdiff_t>(rows_));
    for (double& p : prices) p = std::max(p, 0.0);
    return prices;
  }

  /// Returns by how much a unit of the tree's weight would increase the rate.
  [[nodiscard]] double gain(const tree_column& column) const {
    const auto& duals = solver_.duals();
    double value = groups_ == 1 ? 1.0 : duals[rows_ + static_cast<std::size_t>(column.group)];
    for (const auto& [row, count] : column.uses) value -= count * duals[static_cast<std::size_t>(row)];
    return value;
  }

  void read(rough_packing& result, const column_source& source) {
    result.weights = solver_.values();
    std::vector<std::int64_t> whole = source.capacities();
    if (groups_ > 1) whole.resize(whole.size() + static_cast<std::size_t>(groups_), 0);
    if (auto exact = solver_.solve_exactly(whole)) {
      result.exact_weights = std::move(exact->values);
      result.exact_prices = std::move(exact->duals);
      result.exact_prices.resize(rows_);
    }
    if (groups_ == 1) return;
    result.weights.erase(result.weights.begin());
    if (!result.exact_weights.empty()) result.exact_weights.erase(result.exact_weights.begin());
  }

 private:
  void enter(const tree_column& column) {
    std::vector<std::pair<int, double>> entries;
    for (const auto& [row, count] : column.uses) entries.emplace_back(row, count);
    if (groups_ > 1) entries.emplace_back(static_cast<int>(rows_) + column.group, -1.0);
    solver_.add(groups_ == 1 ? 1 : 0, std::move(entries));
  }

  static std::vector<double> limits(const column_source& source) {
    std::vector<double> limits(source.capacities().begin(), source.capacities().end());
    if (source.groups() > 1) limits.resize(limits.size() + static_cast<std::size_t>(source.groups()), 0);
    return limits;
  }

  std::size_t rows_;
  int groups_;
  simplex solver_;
  column_index index_;
};

/// Solves the packing program over all trees: solve it over the known ones, ask for trees that are cheap at its prices,
/// repeat. Prices are smoothed towards the best seen (Wentges 1997), without which they leap about.
/// @pre source.connects()
[[nodiscard]] inline rough_packing generate_columns(const column_source& source, rough_packing start, double gap,
                                                    packing_clock::time_point deadline) {
  rough_packing result;
  result.bound = start.bound;
  std::vector<double> centre = std::move(start.prices);
  packing_program program(source);
  program.stop_at(deadline);
  // The heaviest trees are enough to begin with: a program over thousands takes longer than finding better ones.
  std::vector<std::size_t> order(start.columns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return start.weights[a] != start.weights[b] ? start.weights[a] > start.weights[b] : a < b;
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(40 + 2 * source.groups())));
  for (const std::size_t j : order) program.add(result.columns, start.columns[j]);
  double smoothing = centre.empty() ? 0 : 0.7;
  while (program.improve()) {
    result.rate = program.rate();
    if (result.rate >= result.bound * (1 - gap) || packing_clock::now() > deadline) break;
    const std::vector<double> current = program.prices();
    std::vector<double> asked = current;
    for (std::size_t r = 0; r < asked.size() && smoothing > 0; ++r)
      asked[r] = smoothing * centre[r] + (1 - smoothing) * current[r];
    column_source::offer offer = source.cheapest(asked);
    double cost = 0;
    double paid = 0;
    for (const double c : offer.cost) cost += c;
    for (std::size_t r = 0; r < asked.size(); ++r) paid += asked[r] * static_cast<double>(source.capacities()[r]);
    if (cost > 0 && source.groups() * paid / cost < result.bound) {
      result.bound = source.groups() * paid / cost;
      centre = asked;
      // The prices are put on the scale of the program's, at which the trees of all groups together cost as much as
      // there are groups.
      for (double& p : centre) p *= source.groups() / cost;
    }
    bool grew = false;
    std::size_t added = 0;
    for (auto& column : offer.columns) {
      if (program.gain(column) <= 1e-9) continue;
      if (program.add(result.columns, std::move(column))) grew = true, ++added;
      if (source.groups() == 1 && added >= 8) break;
    }
    if (grew) {
      smoothing = centre.empty() ? 0 : std::min(0.7, smoothing + 0.1);
    } else if (smoothing > 0) {
      smoothing = smoothing > 0.2 ? smoothing / 2 : 0;  // the asked prices were too far from the program's
    } else {
      break;  // no tree gains: optimal
    }
  }
  result.prices = centre.empty() ? program.prices() : std::move(centre);
  program.read(result, source);
  if (program.rate() >= start.rate * (1 - 1e-9)) return result;
  // Stopped before it was better than what it started from.
  start.bound = result.bound;
  start.prices = std::move(result.prices);
  return start;
}

}  // namespace espalier::comm::detail
