// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>

#include <utility>

namespace espalier::pipeline {

/// Interleaved 1F1B (Megatron-LM): each rank has `chunks` stages, so that filling and draining the pipeline costs 1 /
/// `chunks` as much; micro-batches pass in groups of as many as there are ranks.
[[nodiscard]] inline schedule interleaved_1f1b(int ranks, int chunks, int micro_batches) {
  detail::require_counts(ranks, chunks, micro_batches);
  detail::rhythm beat;
  for (int r = 0; r < ranks; ++r) beat.warm_up.push_back((chunks - 1) * ranks + 2 * (ranks - 1 - r) + 1);
  return detail::in_rhythm("interleaved_1f1b", ranks, chunks, micro_batches, std::move(beat));
}

/// Interleaved zero bubble: as interleaved 1F1B, but W waits until it fills what would be a bubble. Every rank holds as
/// much as the first rank of 1F1B: `ranks` micro-batches.
[[nodiscard]] inline schedule interleaved_zb(int ranks, int chunks, int micro_batches) {
  detail::require_counts(ranks, chunks, micro_batches);
  detail::rhythm beat;
  for (int r = 0; r < ranks; ++r) {
    beat.warm_up.push_back((chunks - 1) * ranks + ranks - r);
    beat.delay.push_back(r);
  }
  return detail::in_rhythm("interleaved_zb", ranks, chunks, micro_batches, std::move(beat));
}

}  // namespace espalier::pipeline
