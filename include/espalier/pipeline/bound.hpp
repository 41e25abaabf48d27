// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::pipeline {

/// A makespan that no order of the schedule's instructions can go below: what ends at it is optimal.
///
/// For each rank: the first micro-batch has to reach it, and it has to do its own work; and when its last B is done,
/// the gradient has to travel through all stages before. Where every stage has its B and W in one, as in 1F1B, W counts
/// as a part of the way back.
[[nodiscard]] inline double lower_bound(const schedule& plan, const costs& cost) {
  const std::size_t stages = plan.rank_of.size();
  bool whole = true;  // no B can be done without its W
  for (const auto& list : plan.lists)
    for (const instruction& step : list) whole = whole && step.kind != action::input_gradient;
  const double count = plan.micro_batches;
  std::vector<double> there(stages, 0.0);  // from the start to the start of a stage's first F
  std::vector<double> back(stages, 0.0);   // from the end of a stage's last B to the end of everything before it
  std::vector<double> backward;            // what holds up the gradient
  for (std::size_t s = 0; s < stages; ++s) {
    const action kind = whole ? action::backward : action::input_gradient;
    backward.push_back(seconds_of({kind, static_cast<int>(s), 0}, plan, cost));
    back[s] = whole ? 0.0 : cost.stages[s].weight_gradient_seconds;
    if (s == 0) continue;
    hop_costs hop;
    if (!cost.hops.empty() && crosses_before(plan, static_cast<int>(s))) hop = cost.hops[s - 1];
    there[s] = there[s - 1] + cost.stages[s - 1].forward_seconds + hop.activation_seconds() + hop.latency_seconds;
    back[s] = std::max(back[s], hop.gradient_seconds() + hop.latency_seconds + backward[s - 1] + back[s - 1]);
  }
  double bound = 0;
  for (std::size_t r = 0; r < plan.lists.size(); ++r) {
    std::size_t first = stages;  // of the rank's stages: what its other stages do for a gradient happens before
    double needed = 0;
    double all = 0;
    for (std::size_t s = stages; s-- > 0;) {
      if (plan.rank_of[s] != static_cast<int>(r)) continue;
      first = s;
      needed += count * (cost.stages[s].forward_seconds + backward[s]);
      all += count *
             (cost.stages[s].forward_seconds + backward[s] + (whole ? 0.0 : cost.stages[s].weight_gradient_seconds));
    }
    if (first == stages || plan.micro_batches == 0) continue;
    const double last_gradient = there[first] + all;
    bound = std::max({bound, last_gradient, there[first] + needed + back[first]});
    // Its optimizer steps come after all its computations, and the all-reduce of one of its stages does.
    double tail = std::numeric_limits<double>::infinity();
    double steps = 0;
    for (std::size_t s = 0; s < stages; ++s) {
      if (plan.rank_of[s] != static_cast<int>(r)) continue;
      tail = std::min(tail, cost.stages[s].all_reduce_seconds + cost.stages[s].optimizer_seconds);
      steps += cost.stages[s].optimizer_seconds;
    }
    bound = std::max(bound, last_gradient + std::max(tail, steps));
  }
  return bound;
}

}  // namespace espalier::pipeline
