// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::pipeline {

/// A stage of DAPPLE's latency formula: one that computes, or a cut between two, whose forward and backward are the
/// transfers of a micro-batch and whose all-reduce is 0. Seconds.
struct latency_stage {
  double forward = 0;     ///< of one micro-batch
  double backward = 0;    ///< of one micro-batch
  double all_reduce = 0;  ///< of the stage's gradients, once per step
};

/// The pivot: the stage that is taken to work without a pause from its first forward to its last backward
/// (DAPPLE equation 3, algorithm 1).
/// @pre there is a stage; micro_batches is positive
[[nodiscard]] inline std::size_t pivot_of(const std::vector<latency_stage>& stages, int micro_batches) {
  const double repeats = micro_batches - 1;
  const auto steady = [&](std::size_t s) { return repeats * (stages[s].forward + stages[s].backward); };
  std::size_t pivot = stages.size() - 1;
  for (std::size_t s = pivot; s-- > 0;) {
    double until_pivot = 0;
    for (std::size_t a = s + 1; a < pivot; ++a) until_pivot += stages[a].forward + stages[a].backward;
    if (steady(s) > steady(pivot) + until_pivot) pivot = s;
  }
  return pivot;
}

/// The seconds of a step as DAPPLE estimates them (equations 1 and 2): warm-up to the pivot, the pivot's steady phase,
/// and the ending from its last backward on.
/// @pre there is a stage; micro_batches is positive
[[nodiscard]] inline double estimated_latency(const std::vector<latency_stage>& stages, int micro_batches) {
  const std::size_t pivot = pivot_of(stages, micro_batches);
  double warm_up = 0;
  for (std::size_t s = 0; s <= pivot; ++s) warm_up += stages[s].forward;
  double ending = -std::numeric_limits<double>::infinity();
  for (std::size_t s = 0; s < stages.size(); ++s) {
    double backwards = 0;
    for (std::size_t a = std::min(s, pivot); a <= std::max(s, pivot); ++a) backwards += stages[a].backward;
    ending = std::max(ending, stages[s].all_reduce + (s <= pivot ? backwards : -backwards));
  }
  return warm_up + (micro_batches - 1) * (stages[pivot].forward + stages[pivot].backward) + ending;
}

/// Seconds that no schedule of whole backwards goes below: whichever stage is looked at, its first micro-batch has to
/// come to it, it does its own work, and its last gradient has to go back to every stage before it.
/// @pre there is a stage; micro_batches is positive
[[nodiscard]] inline double latency_bound(const std::vector<latency_stage>& stages, int micro_batches) {
  double bound = 0;
  double fill = 0;
  double drain = 0;  // the longest way back from the stage that is looked at, with the all-reduce at its end
  for (const latency_stage& one : stages) {
    drain = std::max(drain, one.all_reduce);
    bound = std::max(bound, fill + micro_batches * (one.forward + one.backward) + drain);
    fill += one.forward;
    drain += one.backward;
  }
  return bound;
}

}  // namespace espalier::pipeline
