// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/device_sets.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

namespace espalier::pipeline::detail {

/// Cuts the layers into `parts` runs so that the longest of a run's seconds and of the transfers at its cuts is
/// shortest; of such cuts, it chooses those whose transfers are shortest in sum. Exact: a table over layers and parts.
///
/// `run(part, first, last)` gives the seconds of a run, infinity where it does not fit; `transfer(first)` those of a
/// cut before a layer. Returns the runs' ends, nothing where no cut is possible.
template <class Run, class Transfer>
[[nodiscard]] std::vector<int> even_cuts(int layers, int parts, const Run& run, const Transfer& transfer) {
  struct cell {
    double longest = std::numeric_limits<double>::infinity();
    double transfers = 0;
    int from = 0;
  };
  const auto row = static_cast<std::size_t>(layers) + 1;
  std::vector<cell> table(row * (static_cast<std::size_t>(parts) + 1));
  const auto at = [&](int part, int layer) -> cell& {
    return table[static_cast<std::size_t>(part) * row + static_cast<std::size_t>(layer)];
  };
  at(0, 0).longest = 0;
  for (int part = 1; part <= parts; ++part)
    for (int last = part; last <= layers - (parts - part); ++last)
      for (int first = last - 1; first >= part - 1; --first) {
        const double seconds = run(part - 1, first, last);
        cell& best = at(part, last);
        if (seconds > best.longest) break;  // a run that begins earlier takes longer
        const cell& before = at(part - 1, first);
        const double moved = first == 0 ? 0.0 : transfer(first);
        const cell here{std::max({seconds, moved, before.longest}), before.transfers + moved, first};
        if (here.longest < best.longest || (here.longest == best.longest && here.transfers < best.transfers))
          best = here;
      }
  std::vector<int> ends;
  if (at(parts, layers).longest == std::numeric_limits<double>::infinity()) return ends;
  for (int part = parts, last = layers; part > 0; last = at(part, last).from, --part) ends.push_back(last);
  std::reverse(ends.begin(), ends.end());
  return ends;
}

/// Gives the stages of a partition their layers, as even as can be: `run(stage, first, last)` says how long a stage
/// takes for layers. Nothing where no cut is possible.
template <class Run>
[[nodiscard]] std::optional<candidate> with_even_layers(const planning_problem& problem, candidate partition,
                                                        const Run& run) {
  double slowest = 0;  // which hop a cut will be is not known yet
  for (const candidate::stage& one : partition.stages) slowest = std::max(slowest, one.devices->transfer.per_byte);
  const auto transfer = [&](int first) {
    return slowest * problem.sums().input(first) * problem.micro_batch_scale(partition.micro_batches);
  };
  const std::vector<int> ends = even_cuts(problem.layers(), static_cast<int>(partition.stages.size()), run, transfer);
  if (ends.empty()) return std::nullopt;
  int first = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    partition.stages[s].first = first;
    partition.stages[s].last = first = ends[s];
  }
  return partition;
}

/// The partition into `stages` stages as even as can be, whose widths differ by one device at most; placed by one
/// policy. Nothing where it does not fit.
[[nodiscard]] inline std::optional<candidate> even_partition(const planning_problem& problem, device_tree& tree,
                                                             int stages, int micro_batches, placement_policy policy) {
  candidate partition;
  partition.micro_batches = micro_batches;
  int state = device_tree::start;
  for (int s = 0; s < stages; ++s) {
    const int left = stages - s;
    const device_tree::step* step = tree.by_policy(state, (tree.left(state) + left - 1) / left, policy);
    if (step == nullptr) return std::nullopt;
    partition.stages.push_back({0, 0, &step->devices});
    state = step->next;
  }
  const double memory = problem.machines().memory_bytes * (1 + 1e-9);
  const auto run = [&](int part, int first, int last) {
    const int count = partition.stages[static_cast<std::size_t>(part)].devices->count;
    if (problem.least_bytes(first, last, micro_batches, count) > memory) return std::numeric_limits<double>::infinity();
    return problem.time_scale(micro_batches, count) * problem.sums().seconds(first, last);
  };
  return with_even_layers(problem, partition, run);
}

}  // namespace espalier::pipeline::detail
