// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// True where the lists hold computations alone.
[[nodiscard]] inline bool only_computations(const schedule& plan) {
  for (const auto& list : plan.lists)
    for (const instruction& step : list)
      if (!is_computation(step.kind)) return false;
  return true;
}

/// True where stage `s` gets its input from another rank.
[[nodiscard]] inline bool crosses_before(const schedule& plan, int s) {
  const auto at = static_cast<std::size_t>(s);
  return s > 0 && plan.rank_of[at - 1] != plan.rank_of[at];
}

/// True where stage `s` hands its output to another rank.
[[nodiscard]] inline bool crosses_after(const schedule& plan, int s) {
  return s + 1 < plan.stages() && crosses_before(plan, s + 1);
}

/// Adds what computations need from other ranks: results are sent as soon as they are there, waited for where they are
/// needed; a stage's gradients are reduced after the last of its micro-batches, and all stages of a rank step at its
/// end.
/// @pre only_computations(plan)
[[nodiscard]] inline schedule with_transfers(schedule plan) {
  for (auto& list : plan.lists) {
    std::vector<int> left(plan.rank_of.size(), 0);  // gradients of weights that are still to come
    for (const instruction& step : list)
      if (step.kind == action::backward || step.kind == action::weight_gradient)
        ++left[static_cast<std::size_t>(step.stage)];
    std::vector<instruction> whole;
    std::vector<int> reduced;
    whole.reserve(3 * list.size());
    for (const instruction& step : list) {
      const int s = step.stage;
      const bool gradient = step.kind == action::backward || step.kind == action::input_gradient;
      if (step.kind == action::forward && crosses_before(plan, s))
        whole.push_back({action::receive_activation, s, step.micro_batch});
      if (gradient && crosses_after(plan, s)) whole.push_back({action::receive_gradient, s, step.micro_batch});
      whole.push_back(step);
      if (step.kind == action::forward && crosses_after(plan, s))
        whole.push_back({action::send_activation, s, step.micro_batch});
      if (gradient && crosses_before(plan, s)) whole.push_back({action::send_gradient, s, step.micro_batch});
      if ((step.kind == action::backward || step.kind == action::weight_gradient) &&
          --left[static_cast<std::size_t>(s)] == 0) {
        whole.push_back({action::all_reduce, s, 0});
        reduced.push_back(s);
      }
    }
    for (const int s : reduced) whole.push_back({action::optimizer, s, 0});
    list = std::move(whole);
  }
  return plan;
}

}  // namespace espalier::pipeline
