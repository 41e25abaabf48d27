// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/uniform.hpp>

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace espalier::pipeline::detail {

/// Partitions in which each group of devices has several stages, its chunks: as even as can be. `rank_of` says which
/// group a stage belongs to; the first of them go through all groups in order.
///
/// What stages know of their devices lives in `kept`. Nothing where it does not fit.
[[nodiscard]] inline std::optional<candidate> chunked_partition(const planning_problem& problem, device_tree& tree,
                                                                const std::vector<int>& rank_of, int groups,
                                                                int micro_batches, std::deque<stage_devices>& kept) {
  const int stages = static_cast<int>(rank_of.size());
  if (stages > problem.layers()) return std::nullopt;
  std::vector<const stage_devices*> devices;
  int state = device_tree::start;
  for (int g = 0; g < groups; ++g) {
    const int left = groups - g;
    const device_tree::step* step =
        tree.by_policy(state, (tree.left(state) + left - 1) / left, placement_policy::gaps_first);
    if (step == nullptr) return std::nullopt;
    devices.push_back(&step->devices);
    state = step->next;
  }
  candidate partition;
  partition.micro_batches = micro_batches;
  for (std::size_t s = 0; s < rank_of.size(); ++s) {
    const stage_devices* own = devices[static_cast<std::size_t>(rank_of[s])];
    if (s >= devices.size()) {
      kept.push_back(*own);
      const int before = rank_of[s - 1];
      kept.back().transfer = {};
      if (before != rank_of[s])
        kept.back().transfer = transfer_seconds(
            problem.machines(), devices[static_cast<std::size_t>(before)]->chosen.count, own->chosen.count);
      own = &kept.back();
    }
    partition.stages.push_back({0, 0, own});
  }
  const auto run = [&](int part, int first, int last) {
    return problem.time_scale(micro_batches, partition.stages[static_cast<std::size_t>(part)].devices->count) *
           problem.sums().seconds(first, last);
  };
  return with_even_layers(problem, partition, run);
}

}  // namespace espalier::pipeline::detail
