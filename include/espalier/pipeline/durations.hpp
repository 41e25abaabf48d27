// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace espalier::pipeline {

/// Seconds that a computation occupies its rank; a recomputed stage runs its forward again before B. 0 for the rest.
[[nodiscard]] inline double seconds_of(const instruction& step, const schedule& plan, const costs& cost) {
  const stage_costs& stage = cost.stages[detail::as_index(step.stage)];
  const double again = plan.recomputes(step.stage) ? stage.forward_seconds : 0.0;
  switch (step.kind) {
    case action::forward: return stage.forward_seconds;
    case action::input_gradient: return again + stage.input_gradient_seconds;
    case action::weight_gradient: return stage.weight_gradient_seconds;
    case action::backward: return again + stage.input_gradient_seconds + stage.weight_gradient_seconds;
    default: return 0;
  }
}

/// Returns, for each rank, the seconds of all its computations.
[[nodiscard]] inline std::vector<double> work_of(const schedule& plan, const costs& cost) {
  std::vector<double> work;
  for (const auto& list : plan.lists) {
    double sum = 0;
    for (const instruction& step : list) sum += seconds_of(step, plan, cost);
    work.push_back(sum);
  }
  return work;
}

/// Returns the bytes that one activation of `stage` holds from F to B.
[[nodiscard]] inline double held_bytes(const schedule& plan, const costs& cost, int stage) {
  const stage_costs& one = cost.stages[detail::as_index(stage)];
  return plan.recomputes(stage) ? one.input_bytes : one.activation_bytes;
}

/// The most activation bytes that a rank with this list holds at once. Which those are follows from the order alone: F
/// takes memory as it starts, a recomputed B takes a whole activation while it runs, B gives back all but what W needs.
/// @pre every F comes before its B, every B before its W
[[nodiscard]] inline double peak_of(const std::vector<instruction>& list, const schedule& plan, const costs& cost) {
  double held = 0;
  double peak = 0;
  for (const instruction& step : list) {
    const stage_costs& stage = cost.stages[detail::as_index(step.stage)];
    const double kept = held_bytes(plan, cost, step.stage);
    switch (step.kind) {
      case action::forward: held += kept; break;
      case action::input_gradient:
      case action::backward:
        if (plan.recomputes(step.stage)) peak = std::max(peak, held + stage.activation_bytes);
        held += (step.kind == action::input_gradient ? stage.weight_gradient_bytes : 0.0) - kept;
        break;
      case action::weight_gradient: held -= stage.weight_gradient_bytes; break;
      default: break;
    }
    peak = std::max(peak, held);
  }
  return peak;
}

/// Returns, for each rank, `peak_of` its list.
[[nodiscard]] inline std::vector<double> peak_activation_bytes(const schedule& plan, const costs& cost) {
  std::vector<double> peaks;
  peaks.reserve(plan.lists.size());
  for (const auto& list : plan.lists) peaks.push_back(peak_of(list, plan, cost));
  return peaks;
}

/// Returns, for each rank, the most bytes that it holds at once, the state of its stages included.
[[nodiscard]] inline std::vector<double> peak_bytes(const schedule& plan, const costs& cost) {
  std::vector<double> peaks = peak_activation_bytes(plan, cost);
  for (std::size_t s = 0; s < plan.rank_of.size(); ++s)
    peaks[detail::as_index(plan.rank_of[s])] += cost.stages[s].state_bytes;
  return peaks;
}

/// True where no rank holds more than it may.
[[nodiscard]] inline bool fits(const schedule& plan, const costs& cost) {
  if (cost.memory_bytes.empty()) return true;
  const std::vector<double> peaks = peak_bytes(plan, cost);
  for (std::size_t r = 0; r < peaks.size(); ++r)
    if (peaks[r] > cost.memory_bytes[r] * (1 + 1e-9)) return false;  // sums of parts such as 1/3
  return true;
}

}  // namespace espalier::pipeline
