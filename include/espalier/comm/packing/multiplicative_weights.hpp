// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/columns.hpp>
#include <espalier/comm/packing/graph_packing.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// A packing in floating point, on its way to an exact one.
struct rough_packing {
  std::vector<tree_column> columns;
  std::vector<double> weights;  ///< of each column
  double rate = 0;
  double bound = std::numeric_limits<double>::infinity();
  std::vector<double> prices;  ///< of the rows, that prove the bound: the cheapest tree of a group costs 1 on average
  std::vector<fraction> exact_weights;  ///< the same as fractions, where they are known
  std::vector<fraction> exact_prices;
};

/// Columns by their edges, so that equal trees become one.
class column_index {
 public:
  /// The place of the column, and whether it is new there.
  std::pair<std::size_t, bool> add(std::vector<tree_column>& columns, tree_column column) {
    std::vector<int> key = column.shape.down;
    key.insert(key.end(), column.shape.up.begin(), column.shape.up.end());
    key.push_back(column.group);
    const auto [at, is_new] = places_.emplace(std::move(key), columns.size());
    if (is_new) columns.push_back(std::move(column));
    return {at->second, is_new};
  }

 private:
  std::map<std::vector<int>, std::size_t> places_;
};

/// Maximal fractional packing by multiplicative weights, as Blink does it (Garg and Konemann's scheme): send over the
/// cheapest trees, raise the prices of what they used in proportion to its capacity, repeat. The prices prove how far
/// from the optimum it can be, so it ends as soon as that is at most `gap`.
///
/// Where roots have equal shares, one tree of each is sent at a time.
[[nodiscard]] inline rough_packing multiplicative_weights(const column_source& source, double epsilon, double gap,
                                                          packing_clock::time_point deadline,
                                                          int most_iterations = std::numeric_limits<int>::max()) {
  const auto& capacities = source.capacities();
  const std::size_t rows = capacities.size();
  rough_packing result;
  column_index index;
  std::vector<double> prices(rows);
  for (std::size_t r = 0; r < rows; ++r) prices[r] = 1.0 / static_cast<double>(capacities[r]);
  std::vector<double> load(rows, 0);
  double sent = 0;
  for (int iteration = 0; iteration < most_iterations; ++iteration) {
    column_source::offer offer = source.cheapest(prices);
    double cost = 0;
    for (const double c : offer.cost) cost += c;
    double paid = 0;
    for (std::size_t r = 0; r < rows; ++r) paid += prices[r] * static_cast<double>(capacities[r]);
    if (const double bound = source.groups() * paid / cost; bound < result.bound) {
      result.bound = bound;
      result.prices = prices;
      for (double& p : result.prices) p *= source.groups() / cost;
    }
    std::vector<double> use(rows, 0);
    for (int g = 0; g < source.groups(); ++g)
      for (const auto& [row, count] : offer.columns[static_cast<std::size_t>(g)].uses)
        use[static_cast<std::size_t>(row)] += count;
    double amount = std::numeric_limits<double>::infinity();
    for (std::size_t r = 0; r < rows; ++r)
      if (use[r] > 0) amount = std::min(amount, static_cast<double>(capacities[r]) / use[r]);
    double crowding = 0;
    double largest = 0;
    for (std::size_t r = 0; r < rows; ++r) {
      const double share = amount * use[r] / static_cast<double>(capacities[r]);
      prices[r] *= 1 + epsilon * share;
      largest = std::max(largest, prices[r]);
      load[r] += amount * use[r];
      crowding = std::max(crowding, load[r] / static_cast<double>(capacities[r]));
    }
    if (largest > 1e100)
      for (double& p : prices) p /= largest;
    for (int g = 0; g < source.groups(); ++g) {
      const auto [at, is_new] = index.add(result.columns, std::move(offer.columns[static_cast<std::size_t>(g)]));
      if (is_new) result.weights.push_back(0);
      result.weights[at] += amount;
    }
    sent += amount;
    result.rate = source.groups() * sent / crowding;
    if (result.rate >= (1 - gap) * result.bound || packing_clock::now() > deadline) {
      for (double& w : result.weights) w /= crowding;
      return result;
    }
    if (iteration + 1 == most_iterations)
      for (double& w : result.weights) w /= crowding;
  }
  return result;
}

}  // namespace espalier::comm::detail
