// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/planner/candidate.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <vector>

namespace espalier::pipeline::detail {

/// The best partitions that a search has come across, by number of stages.
class families {
 public:
  struct member {
    double seconds = std::numeric_limits<double>::infinity();
    candidate partition;
  };

  /// Returns the seconds below which a partition of so many stages is of interest.
  [[nodiscard]] double limit(int stages) const {
    const auto at = best_.find(stages);
    return at == best_.end() ? std::numeric_limits<double>::infinity() : at->second.back().seconds;
  }

  /// Evaluates a partition, and keeps it if it is the best of its number of stages.
  bool offer(partition_evaluator& evaluate, const candidate& partition) {
    const int stages = static_cast<int>(partition.stages.size());
    // Rounding alone must not decide between plans that are equal.
    const double below = limit(stages) * (1 - 1e-12);
    const partition_step result = evaluate(partition, below);
    if (!(result.seconds < below)) return false;
    auto& kept = best_[stages];
    kept.push_back({result.seconds, partition});
    if (kept.size() > remembered) kept.erase(kept.begin());
    return true;
  }

  /// Returns the best partitions for each number of stages, the very best last.
  [[nodiscard]] const std::map<int, std::vector<member>>& all() const { return best_; }

  [[nodiscard]] double best_seconds() const {
    double best = std::numeric_limits<double>::infinity();
    for (const auto& [stages, kept] : best_) best = std::min(best, kept.back().seconds);
    return best;
  }

 private:
  static constexpr std::size_t remembered = 4;
  std::map<int, std::vector<member>> best_;
};

}  // namespace espalier::pipeline::detail
