// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/columns.hpp>
#include <espalier/comm/packing/fraction.hpp>
#include <espalier/comm/packing/multiplicative_weights.hpp>
#include <espalier/comm/packing/simplex.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Weights over one denominator, so that sums are sums of whole numbers.
struct whole_weights {
  std::vector<std::int64_t> numerators;  ///< of each column
  std::int64_t denominator = 1;
};

/// Whether the weights keep within all capacities, give every group the same, and are short enough to be added up: a
/// program that is stopped early may be at weights whose common denominator has 60 bits.
[[nodiscard]] inline bool fit(const column_source& source, const std::vector<tree_column>& columns,
                              const whole_weights& weights) {
  std::vector<int128> load(source.capacities().size(), 0);
  std::vector<int128> share(static_cast<std::size_t>(source.groups()), 0);
  for (std::size_t j = 0; j < columns.size(); ++j) {
    for (const auto& [row, count] : columns[j].uses)
      load[static_cast<std::size_t>(row)] += int128{weights.numerators[j]} * count;
    share[static_cast<std::size_t>(columns[j].group)] += weights.numerators[j];
  }
  constexpr int128 longest = int128{1} << 62;
  for (std::size_t r = 0; r < load.size(); ++r)
    if (load[r] > std::min(longest, int128{source.capacities()[r]} * weights.denominator)) return false;
  if (std::accumulate(share.begin(), share.end(), int128{0}) > longest) return false;
  return std::all_of(share.begin(), share.end(), [&](int128 s) { return s == share[0]; });
}

/// Fractions over one denominator; nothing if one is negative or the numbers become too long.
[[nodiscard]] inline std::optional<whole_weights> over_one_denominator(const std::vector<fraction>& values) {
  whole_weights result;
  for (const fraction& value : values) {
    if (value.numerator < 0) return std::nullopt;
    const std::int64_t factor = value.denominator / std::gcd(value.denominator, result.denominator);
    if (result.denominator > (std::int64_t{1} << 60) / factor) return std::nullopt;
    result.denominator *= factor;
  }
  for (const fraction& value : values) {
    const int128 numerator = int128{value.numerator} * (result.denominator / value.denominator);
    if (numerator > (int128{1} << 60)) return std::nullopt;
    result.numerators.push_back(static_cast<std::int64_t>(numerator));
  }
  return result;
}

/// Weights cut to a binary denominator, a little less than they were so that they fit.
[[nodiscard]] inline whole_weights cut_down(const column_source& source, const std::vector<tree_column>& columns,
                                            const std::vector<double>& values) {
  double largest = 1e-300;
  for (const double v : values) largest = std::max(largest, v);
  whole_weights result;
  // 30 bits for the largest.
  const int exponent = std::clamp(30 - std::ilogb(largest), 0, 40);
  result.denominator = std::int64_t{1} << exponent;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const double shrink = 1 - 1e-9 - 1e-6 * attempt;
    result.numerators.clear();
    std::vector<std::int64_t> share(static_cast<std::size_t>(source.groups()), 0);
    for (std::size_t j = 0; j < values.size(); ++j) {
      const double scaled = std::max(0.0, values[j]) * shrink * static_cast<double>(result.denominator);
      // A tree of a millionth of the rate is not worth its messages.
      result.numerators.push_back(values[j] < 1e-6 * largest ? 0 : static_cast<std::int64_t>(scaled));
      share[static_cast<std::size_t>(columns[j].group)] += result.numerators.back();
    }
    const std::int64_t equal = *std::min_element(share.begin(), share.end());
    for (std::size_t j = 0; j < values.size(); ++j) {
      std::int64_t& mine = share[static_cast<std::size_t>(columns[j].group)];
      const std::int64_t less = source.groups() > 1 ? std::min(mine - equal, result.numerators[j]) : 0;
      result.numerators[j] -= less;
      mine -= less;
    }
    if (fit(source, columns, result)) return result;
  }
  result.numerators.assign(values.size(), 0);
  return result;
}

/// The weights as fractions where they are known and fit, else cut down.
[[nodiscard]] inline whole_weights whole_weights_of(const column_source& source, const rough_packing& rough) {
  std::optional<whole_weights> exact;
  if (!rough.exact_weights.empty()) exact = over_one_denominator(rough.exact_weights);
  return exact && fit(source, rough.columns, *exact) ? *exact : cut_down(source, rough.columns, rough.weights);
}

/// Prices as whole numbers, of which the dearest has 24 bits.
[[nodiscard]] inline std::vector<std::int64_t> rounded_prices(const std::vector<double>& prices) {
  double dearest = 0;
  for (const double p : prices) dearest = std::max(dearest, p);
  std::vector<std::int64_t> rounded;
  rounded.reserve(prices.size());
  for (const double p : prices)
    rounded.push_back(dearest > 0 ? std::llround(std::max(p, 0.0) / dearest * (1 << 24)) : 1);
  return rounded;
}

/// Sets prices and bound of a packing from prices of the resources, rounded to whole numbers: any prices prove a bound.
inline void set_bound_from_prices(const network& net, packing& result, const std::vector<double>& prices) {
  result.prices = rounded_prices(prices);
  result.bound = bound_of_prices(net, result.kind, result.root, result.prices).bound;
}

/// The same from fractions, if those prove at least as much.
inline void improve_bound_exactly(const network& net, packing& result, const std::vector<fraction>& prices) {
  auto whole = over_one_denominator(prices);
  if (!whole) return;
  const proof p = bound_of_prices(net, result.kind, result.root, whole->numerators);
  if (!p.valid || p.bound > result.bound) return;
  result.prices = std::move(whole->numerators);
  result.bound = p.bound;
}

/// Prices and bound from the duals of a program's rows, as fractions where those are known and not too long. `prices`
/// turns the duals into prices of the resources.
template <class Prices>
void set_bound_from_duals(const network& net, packing& result, const std::vector<double>& duals,
                          const std::optional<simplex::exact_solution>& exact, const Prices& prices) {
  set_bound_from_prices(net, result, prices(duals));
  if (!exact) return;
  const auto negative = [](const fraction& f) { return f.numerator < 0; };
  if (std::any_of(exact->duals.begin(), exact->duals.end(), negative)) return;
  try {
    improve_bound_exactly(net, result, prices(exact->duals));
  } catch (const std::overflow_error&) {
    // The rounded prices stand.
  }
}

/// An exact packing from an approximate one: weights and prices become the simple fractions that they are at the
/// optimum where that works out, else they are rounded to the safe side.
[[nodiscard]] inline packing make_exact(const network& net, collective kind, int root, const tree_source& source,
                                        const rough_packing& rough) {
  packing result;
  result.kind = kind;
  result.root = root;

  const whole_weights weights = whole_weights_of(source, rough);
  for (std::size_t j = 0; j < rough.columns.size(); ++j) {
    if (weights.numerators[j] == 0) continue;
    tree t = rough.columns[j].shape;
    t.weight = make_fraction(weights.numerators[j], weights.denominator);
    result.rate = result.rate + t.weight;
    result.trees.push_back(std::move(t));
  }

  set_bound_from_prices(net, result, source.resource_prices(rough.prices));
  if (!rough.exact_prices.empty()) improve_bound_exactly(net, result, source.resource_prices(rough.exact_prices));
  return result;
}

}  // namespace espalier::comm::detail
