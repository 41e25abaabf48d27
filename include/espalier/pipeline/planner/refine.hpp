// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/families.hpp>
#include <espalier/pipeline/profile.hpp>

#include <cstddef>
#include <vector>

namespace espalier::pipeline::detail {

/// Divides the layers into at most `most` runs that take about equally long and end where few bytes cross; a search
/// over cuts in a model of many layers looks at these alone. Returns the runs' ends.
[[nodiscard]] inline std::vector<int> blocks_of(const profile& model, int most) {
  std::vector<int> ends;
  if (model.size() <= most) {
    for (int k = 1; k <= model.size(); ++k) ends.push_back(k);
    return ends;
  }
  const profile_sums sums(model);
  const double whole = sums.seconds(0, model.size());
  int end = 1;
  for (int block = 1; block < most; ++block) {
    // Of the layers that end within half a block of where an even division would cut, the one with the least output.
    const double from = whole * (block - 0.5) / most;
    const double to = whole * (block + 0.5) / most;
    int chosen = 0;
    for (; end < model.size() && sums.seconds(0, end) < to; ++end) {
      if (sums.seconds(0, end) < from) continue;
      if (chosen == 0 || sums.input(end) < sums.input(chosen)) chosen = end;
    }
    if (chosen > 0 && (ends.empty() || chosen > ends.back())) ends.push_back(chosen);
  }
  ends.push_back(model.size());
  return ends;
}

/// A partition of merged layers as one of the layers themselves.
[[nodiscard]] inline candidate unmerged(candidate partition, const std::vector<int>& ends) {
  const auto layer = [&](int block) { return block == 0 ? 0 : ends[static_cast<std::size_t>(block) - 1]; };
  for (candidate::stage& one : partition.stages) {
    one.first = layer(one.first);
    one.last = layer(one.last);
  }
  return partition;
}

/// Moves cuts, one at a time, by as many layers as `reach` and fewer, as long as the step gets shorter.
inline void move_cuts(candidate partition, int reach, partition_evaluator& evaluate, families& found) {
  found.offer(evaluate, partition);
  double best = evaluate(partition).seconds;
  for (bool better = true; better;) {
    better = false;
    for (std::size_t s = 0; s + 1 < partition.stages.size(); ++s)
      for (int by = reach; by > 0; by /= 2)
        for (const int signed_by : {by, -by}) {
          candidate moved = partition;
          int& cut = moved.stages[s].last;
          cut = moved.stages[s + 1].first = cut + signed_by;
          if (cut <= moved.stages[s].first || cut >= moved.stages[s + 1].last) continue;
          const double seconds = evaluate(moved, best * (1 - 1e-9)).seconds;
          if (!(seconds < best * (1 - 1e-9))) continue;
          best = seconds;
          partition = moved;
          better = true;
        }
  }
  found.offer(evaluate, partition);
}

}  // namespace espalier::pipeline::detail
