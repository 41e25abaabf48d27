// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Places of values, ascending, in groups: one within `gap` of the value before it belongs to the same group. A group
/// wider than `span` is cut at its widest gap: noise has an end. Zeros are left out.
[[nodiscard]] inline std::vector<std::vector<std::size_t>> groups_of(const std::vector<double>& values, double gap,
                                                                     double span) {
  std::vector<std::size_t> sorted;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > 0) sorted.push_back(i);
  std::sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  const auto ratio = [&](std::size_t i) { return values[sorted[i]] / values[sorted[i - 1]]; };
  std::vector<std::pair<std::size_t, std::size_t>> open;
  for (std::size_t first = 0, i = 1; i <= sorted.size() && !sorted.empty(); ++i) {
    if (i < sorted.size() && ratio(i) <= 1 + gap) continue;
    open.emplace_back(first, i);
    first = i;
  }
  std::reverse(open.begin(), open.end());
  std::vector<std::vector<std::size_t>> groups;
  while (!open.empty()) {
    const auto [first, end] = open.back();
    open.pop_back();
    if (values[sorted[end - 1]] > values[sorted[first]] * (1 + span)) {
      std::size_t widest = first + 1;
      for (std::size_t i = first + 2; i < end; ++i)
        if (ratio(i) > ratio(widest)) widest = i;
      open.emplace_back(widest, end);
      open.emplace_back(first, widest);
      continue;
    }
    groups.emplace_back(sorted.begin() + static_cast<std::ptrdiff_t>(first),
                        sorted.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return groups;
}

[[nodiscard]] inline double median_of(const std::vector<double>& values, const std::vector<std::size_t>& group) {
  return values[group[group.size() / 2]];
}

/// Returns, for each value that looks like a slip of the measurement, its likely value: the median of a group at least
/// twice as large as its own that is no further than `reach` away, the nearest one. 0 for all others. Machines are
/// built of equal parts.
[[nodiscard]] inline std::vector<double> likely_values(const std::vector<double>& values, double gap, double span,
                                                       double reach) {
  std::vector<double> likely(values.size(), 0.0);
  const auto groups = groups_of(values, gap, span);
  for (const auto& small : groups) {
    double nearest = 1 + reach;
    double target = 0;
    const double own = median_of(values, small);
    for (const auto& large : groups) {
      const double other = median_of(values, large);
      const double distance = std::max(own / other, other / own);
      if (large.size() < 2 * small.size() || distance > nearest) continue;
      nearest = distance;
      target = other;
    }
    for (const std::size_t i : small) likely[i] = target;
  }
  return likely;
}

/// Makes values equal that differ by noise only: those of a group become its median, and those near a much larger group
/// become that group's.
inline void equalise(const std::vector<double*>& places, double gap, double span) {
  std::vector<double> values;
  for (const double* value : places) values.push_back(*value);
  const std::vector<double> likely = likely_values(values, gap, span, span);
  for (const auto& group : groups_of(values, gap, span)) {
    const double median = median_of(values, group);
    for (const std::size_t i : group) *places[i] = likely[i] > 0 ? likely[i] : median;
  }
}

/// A bandwidth of which all `values` are whole multiples, within `tolerance`; packings of small whole numbers have few
/// trees. The widest one that serves, down to a tenth of the smallest value, from where any number is near a multiple.
[[nodiscard]] inline double common_measure(std::vector<double> values, double tolerance) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  values.erase(values.begin(), std::upper_bound(values.begin(), values.end(), 0.0));
  if (values.empty()) return 1;
  constexpr int finest = 20;
  double best = values.front();
  double least = std::numeric_limits<double>::max();
  for (int parts = 1; parts <= finest; ++parts) {
    // The smallest value counts most, but a slip of its own must not move all others: the middle of what would be
    // right for the values by themselves.
    const double guess = values.front() / parts;
    double low = std::numeric_limits<double>::max();
    double high = 0;
    for (const double value : values) {
      const double exact = value / std::max(1.0, std::round(value / guess));
      low = std::min(low, exact);
      high = std::max(high, exact);
    }
    const double measure = std::sqrt(low * high);
    const double error = std::sqrt(high / low) - 1;
    if (error < least) {
      least = error;
      best = measure;
    }
    if (error <= tolerance) return measure;
  }
  return best;
}

/// Three digits are more than a probe knows.
[[nodiscard]] inline double three_digits(double value) {
  if (!(value > 0)) return 0;
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(value)));
  return scale > 1 ? std::round(value * scale) / scale : std::round(value * scale) * std::round(1 / scale);
}

}  // namespace espalier::comm::detail
