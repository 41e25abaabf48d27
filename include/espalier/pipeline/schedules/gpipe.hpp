// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>

namespace espalier::pipeline {

/// GPipe: all F of a rank, then all of its BW. A rank holds the activations of all micro-batches.
[[nodiscard]] inline schedule gpipe(int ranks, int micro_batches) {
  detail::require_counts(ranks, 1, micro_batches);
  schedule plan;
  plan.name = "gpipe";
  plan.micro_batches = micro_batches;
  plan.rank_of = loop_placement(ranks, 1);
  for (int r = 0; r < ranks; ++r) {
    auto& list = plan.lists.emplace_back();
    for (int m = 0; m < micro_batches; ++m) list.push_back({action::forward, r, m});
    for (int m = 0; m < micro_batches; ++m) list.push_back({action::backward, r, m});
  }
  return plan;
}

}  // namespace espalier::pipeline
