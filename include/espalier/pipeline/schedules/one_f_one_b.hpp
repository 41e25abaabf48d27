// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// DAPPLE's early backward scheduling, "1F1B" (DAPPLE section 3): rank i does `warm_up[i]` F, then one BW and one F in
/// turn. It holds as many activations as it does F in its warm-up.
/// Throws std::invalid_argument where a rank starts with fewer F than the next rank, which would wait for ever.
[[nodiscard]] inline schedule one_f_one_b(int micro_batches, const std::vector<int>& warm_up) {
  const int ranks = static_cast<int>(warm_up.size());
  detail::require_counts(ranks, 1, micro_batches);
  for (std::size_t i = 0; i < warm_up.size(); ++i) {
    const int next_warm_up = i + 1 < warm_up.size() ? std::min(warm_up[i + 1], micro_batches) : 1;
    if (warm_up[i] < next_warm_up)
      throw std::invalid_argument("rank " + std::to_string(i) + " starts with " + std::to_string(warm_up[i]) +
                                  " forwards, but " + std::to_string(next_warm_up) +
                                  " are needed before the first gradient can "
                                  "come: let no rank start with fewer than the next one");
  }
  return detail::in_rhythm("1f1b", ranks, 1, micro_batches, {warm_up, {}});
}

/// DAPPLE's policy PA: rank i of S starts with S - i micro-batches. For transfers that take no time.
[[nodiscard]] inline std::vector<int> warm_up_pa(int ranks) {
  std::vector<int> warm_up;
  for (int i = 0; i < ranks; ++i) warm_up.push_back(ranks - i);
  return warm_up;
}

/// DAPPLE's policy PB: rank i of S starts with 2 (S - i) - 1 micro-batches. Hides transfers of up to half a
/// micro-batch.
[[nodiscard]] inline std::vector<int> warm_up_pb(int ranks) {
  std::vector<int> warm_up;
  for (int i = 0; i < ranks; ++i) warm_up.push_back(2 * (ranks - i) - 1);
  return warm_up;
}

/// Returns the warm-up that `cost.memory_bytes` allows, at most the given one; no rank starts with fewer F than the
/// next one.
/// @pre one stage per rank. Throws std::invalid_argument where a rank cannot hold a single micro-batch.
/// @post no rank starts with more than it was given, than the rank before it, or than its memory holds
[[nodiscard]] inline std::vector<int> within_memory(std::vector<int> warm_up, const costs& cost,
                                                    const std::vector<bool>& recomputed = {}) {
  for (std::size_t s = 0; s < warm_up.size(); ++s) {
    if (s > 0) warm_up[s] = std::min(warm_up[s], warm_up[s - 1]);
    if (cost.memory_bytes.empty()) continue;
    const stage_costs& one = cost.stages[s];
    const bool again = !recomputed.empty() && recomputed[s];
    const double held = again ? one.input_bytes : one.activation_bytes;
    const double room = cost.memory_bytes[s] * (1 + 1e-12) - one.state_bytes - (again ? one.activation_bytes : 0.0);
    if (room < held)
      throw std::invalid_argument("rank " + std::to_string(s) + " may hold " +
                                  detail::short_number(cost.memory_bytes[s]) +
                                  " bytes, too few for its state and one micro-batch: use more ranks, smaller "
                                  "micro-batches or recomputation");
    if (held > 0) warm_up[s] = static_cast<int>(std::min(static_cast<double>(warm_up[s]), std::floor(room / held)));
  }
  return warm_up;
}

/// Returns the warm-up that the hops need, and no more, within memory. Each rank starts with one more micro-batch than
/// the next rank, and one more for every micro-batch that the slowest stage completes while an activation and its
/// gradient travel between the two. Without transfer times it is PA; with equal short ones, PB.
/// @pre one stage per rank. Throws std::invalid_argument where a rank cannot hold a single micro-batch.
[[nodiscard]] inline std::vector<int> warm_up_per_hop(const costs& cost, int micro_batches,
                                                      const std::vector<bool>& recomputed = {}) {
  const std::size_t ranks = cost.stages.size();
  double slowest = 0;
  for (std::size_t s = 0; s < ranks; ++s)
    slowest = std::max(slowest, cost.stages[s].seconds() +
                                    (!recomputed.empty() && recomputed[s] ? cost.stages[s].forward_seconds : 0.0));
  std::vector<int> warm_up(ranks, 1);
  for (std::size_t s = ranks; s-- > 1;) {
    double extra = 0;
    if (!cost.hops.empty() && slowest > 0) {
      const hop_costs& hop = cost.hops[s - 1];
      const double way = hop.activation_seconds() + hop.gradient_seconds() + 2 * hop.latency_seconds;
      extra = std::min(std::ceil(way / slowest - 1e-9), static_cast<double>(micro_batches));
    }
    warm_up[s - 1] = std::min(warm_up[s] + 1 + static_cast<int>(extra), std::max(1, micro_batches));
  }
  return within_memory(std::move(warm_up), cost, recomputed);
}

/// The least warm-up that is as fast as the fastest of PA, PB and `warm_up_per_hop`: of that one, every rank does
/// without the forwards that make no difference to the time of a step.
///
/// Neighbours that start with the same number work on one micro-batch in turn, instead of on two at once. Where memory
/// lets a warm-up no longer fall from each rank to the next, it therefore also tries to make it smaller everywhere.
/// @pre one stage per rank. Throws std::invalid_argument where a rank cannot hold a single micro-batch.
[[nodiscard]] inline std::vector<int> least_warm_up(const costs& cost, int micro_batches,
                                                    const std::vector<bool>& recomputed = {}) {
  const int ranks = static_cast<int>(cost.stages.size());
  const auto seconds = [&](const std::vector<int>& warm_up) {
    schedule plan = one_f_one_b(micro_batches, warm_up);
    plan.recomputed = recomputed;
    return quick_makespan(plan, cost);
  };
  std::vector<int> best;
  double least = std::numeric_limits<double>::infinity();
  for (const std::vector<int>& policy :
       {warm_up_per_hop(cost, micro_batches, recomputed), warm_up_pa(ranks), warm_up_pb(ranks)})
    for (const bool everywhere : {false, true}) {
      std::vector<int> warm_up = within_memory(policy, cost, recomputed);
      double share = 1;
      for (std::size_t s = 0; s < warm_up.size(); ++s)
        share = std::min(share, static_cast<double>(warm_up[s]) / policy[s]);
      for (std::size_t s = 0; s < warm_up.size(); ++s) {
        if (everywhere) warm_up[s] = std::min(warm_up[s], static_cast<int>(std::ceil(policy[s] * share - 1e-9)));
        warm_up[s] = std::min(warm_up[s], micro_batches);
      }
      const double time = seconds(warm_up);
      if (time >= least) continue;
      least = time;
      best = std::move(warm_up);
    }
  // A rank cannot start with fewer than the next one, which is therefore set first, and makes room for others.
  // Large pipelines end with more than they need rather than late: this many instructions are timed in all.
  constexpr double most_instructions = 3e7;
  double tries = most_instructions / (2.0 * ranks * micro_batches);
  for (bool fewer = true; fewer;) {
    fewer = false;
    for (std::size_t s = best.size(); s-- > 0;)
      while (best[s] > (s + 1 < best.size() ? best[s + 1] : 1) && --tries > 0) {
        --best[s];
        if (seconds(best) > least * (1 + 1e-12)) {
          ++best[s];
          break;
        }
        fewer = true;
      }
  }
  return best;
}

}  // namespace espalier::pipeline
