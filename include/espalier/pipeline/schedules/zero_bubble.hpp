// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>

#include <utility>

namespace espalier::pipeline {

/// ZB-H1 (Zero Bubble Pipeline Parallelism, section 2): 1F1B whose W wait until they fill what would be a bubble. Every
/// rank holds as many activations as the first rank of 1F1B.
[[nodiscard]] inline schedule zb_h1(int ranks, int micro_batches) {
  detail::require_counts(ranks, 1, micro_batches);
  detail::rhythm beat;
  for (int r = 0; r < ranks; ++r) {
    beat.warm_up.push_back(ranks - r);
    beat.delay.push_back(r);
  }
  return detail::in_rhythm("zb_h1", ranks, 1, micro_batches, std::move(beat));
}

/// ZB-H2 (the same paper): twice the warm-up, so that no rank waits between its first F and its last W where F = B = W.
/// Ranks hold 2 `ranks` - 1 activations. After a barrier it is no faster than ZB-H1.
[[nodiscard]] inline schedule zb_h2(int ranks, int micro_batches) {
  detail::require_counts(ranks, 1, micro_batches);
  detail::rhythm beat;
  for (int r = 0; r < ranks; ++r) {
    beat.warm_up.push_back(2 * (ranks - r) - 1);
    beat.delay.push_back(2 * r);
  }
  return detail::in_rhythm("zb_h2", ranks, 1, micro_batches, std::move(beat));
}

}  // namespace espalier::pipeline
