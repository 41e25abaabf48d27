// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace espalier::comm::detail {

/// When the messages of a flow arrived, in seconds of any clock: its rate, seen where it ends.
class arrivals {
 public:
  void add(double when) { times_.push_back(when); }

  [[nodiscard]] std::size_t count() const { return times_.size(); }

  /// How many came in the later half of the time so far.
  [[nodiscard]] std::size_t late() const { return times_.empty() ? 0 : times_.size() - middle(times_.size()); }

  [[nodiscard]] double first() const { return times_.front(); }
  [[nodiscard]] double last() const { return times_.back(); }

  /// Messages per second in the later half of the time. Shapers and cards let a burst pass at a speed they do not keep
  /// up; it is over soon, and the first half goes to it. 0 if too few arrived to tell.
  [[nodiscard]] double rate() const {
    if (times_.size() < 2) return 0;
    // The slope starts at the last message before that time: a rank that was away, and found many waiting, must not
    // take them for a flow.
    const std::size_t begin = late() > 1 && late() < times_.size() ? times_.size() - late() - 1 : 0;
    if (const double fitted = slope(begin, times_.size()); fitted > 0) return fitted;
    const double taken = times_.back() - times_[begin];
    return taken > 0 ? static_cast<double>(times_.size() - 1 - begin) / taken : 0;
  }

  /// Messages per second between two times, so that those of several flows can be added.
  [[nodiscard]] double rate(double begin, double end) const {
    const auto at = [&](double time) {
      return static_cast<std::size_t>(std::lower_bound(times_.begin(), times_.end(), time) - times_.begin());
    };
    const std::size_t first = at(begin);
    const std::size_t stop = at(end);
    const double fitted = slope(first, stop);
    const bool filled = stop > first && times_[stop - 1] - times_[first] > (end - begin) / 2;
    return fitted > 0 && filled ? fitted : static_cast<double>(stop - first) / (end - begin);
  }

 private:
  /// Messages are seen in batches, when the rank gets to look. Only at the end of a batch is the count up to date; the
  /// rate is the slope of the line that fits those ends best. 0 if there are too few.
  [[nodiscard]] double slope(std::size_t first, std::size_t end) const {
    if (end < first + 2) return 0;
    constexpr double batch = 0.2;  // of the mean time between two messages
    const double same = batch * (times_[end - 1] - times_[first]) / static_cast<double>(end - first);
    double points = 0;
    double sum_t = 0;
    double sum_n = 0;
    double sum_tt = 0;
    double sum_tn = 0;
    for (std::size_t i = first; i < end; ++i) {
      if (i + 1 < end && times_[i + 1] - times_[i] < same) continue;
      const double t = times_[i] - times_[first];
      const auto n = static_cast<double>(i - first);
      points += 1;
      sum_t += t;
      sum_n += n;
      sum_tt += t * t;
      sum_tn += t * n;
    }
    const double spread = points * sum_tt - sum_t * sum_t;
    constexpr double fewest = 4;
    if (points < fewest) return 0;
    return spread > 0 ? std::max(0.0, (points * sum_tn - sum_t * sum_n) / spread) : 0;
  }

  [[nodiscard]] std::size_t middle(std::size_t end) const {
    const double half = (times_.front() + times_[end - 1]) / 2;
    return static_cast<std::size_t>(
        std::lower_bound(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(end), half) - times_.begin());
  }

  std::vector<double> times_;
};

}  // namespace espalier::comm::detail
