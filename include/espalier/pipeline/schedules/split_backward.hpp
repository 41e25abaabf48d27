// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>

#include <cstddef>
#include <vector>

namespace espalier::pipeline::detail {

/// A list whose BW from `first` on are a B, then a W.
[[nodiscard]] inline std::vector<instruction> with_split_backwards(const std::vector<instruction>& list,
                                                                   std::size_t first) {
  std::vector<instruction> made;
  for (std::size_t i = 0; i < list.size(); ++i) {
    made.push_back(list[i]);
    if (i < first || list[i].kind != action::backward) continue;
    made.back().kind = action::input_gradient;
    made.push_back({action::weight_gradient, list[i].stage, list[i].micro_batch});
  }
  return made;
}

/// The same schedule with as many BW as each rank's memory allows, its last ones first, as a B that a W follows: what
/// waits for the gradient waits for B alone. A B that is split may hold more until its W than the activations that it
/// gives back, so that it does not fit everywhere where a BW does.
/// @pre only_computations(plan), fits(plan, cost)
[[nodiscard]] inline schedule split_backwards(schedule plan, const costs& cost) {
  for (std::vector<instruction>& list : plan.lists) {
    const std::vector<instruction> whole = list;
    std::size_t refused = 0;  // from here on it is too much; as the memory that is needed falls with `first`
    std::size_t allowed = whole.size();
    list = with_split_backwards(whole, 0);
    if (fits(plan, cost)) continue;
    while (allowed - refused > 1) {
      const std::size_t middle = refused + (allowed - refused) / 2;
      list = with_split_backwards(whole, middle);
      (fits(plan, cost) ? allowed : refused) = middle;
    }
    list = with_split_backwards(whole, allowed);
  }
  return plan;
}

}  // namespace espalier::pipeline::detail
