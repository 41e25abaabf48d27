// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Checks the counts that every generator takes. Throws std::invalid_argument unless all of them are positive.
inline void require_counts(int ranks, int chunks, int micro_batches) {
  if (micro_batches < 1)
    throw std::invalid_argument("a schedule of " + std::to_string(micro_batches) +
                                " micro-batches: there must be at least 1");
  (void)loop_placement(ranks, chunks);
}

/// A chunk of a rank and a micro-batch.
struct visit {
  int chunk = 0;
  int micro_batch = 0;
};

// Micro-batches in groups of as many as there are ranks: a group passes through one chunk of all ranks, then through
// the next. Gradients pass in the same groups, through the last chunk first.
[[nodiscard]] inline std::vector<visit> in_groups(int ranks, int chunks, int micro_batches, bool backwards) {
  std::vector<visit> order;
  for (int first = 0; first < micro_batches; first += ranks)
    for (int c = 0; c < chunks; ++c)
      for (int m = first; m < std::min(first + ranks, micro_batches); ++m)
        order.push_back({backwards ? chunks - 1 - c : c, m});
  return order;
}

/// How the ranks of a schedule alternate: after `warm_up` F, one B, one F ... Where B and W are two instructions, a W
/// follows each B but the first `delay`.
struct rhythm {
  std::vector<int> warm_up;  ///< by rank
  std::vector<int> delay;    ///< by rank; empty: B and W are one instruction
};

[[nodiscard]] inline std::vector<instruction> list_in_rhythm(int rank, int ranks, int chunks, int micro_batches,
                                                             const rhythm& beat) {
  const std::vector<visit> forwards = in_groups(ranks, chunks, micro_batches, false);
  const std::vector<visit> gradients = in_groups(ranks, chunks, micro_batches, true);
  const auto stage = [&](const visit& one) { return one.chunk * ranks + rank; };
  std::vector<instruction> list;
  std::size_t next_forward = 0;
  std::size_t next_weights = 0;
  const auto forward = [&] {
    if (next_forward == forwards.size()) return;
    const visit& one = forwards[next_forward++];
    list.push_back({action::forward, stage(one), one.micro_batch});
  };
  const auto weights = [&] {
    const visit& one = gradients[next_weights++];
    list.push_back({action::weight_gradient, stage(one), one.micro_batch});
  };
  for (int i = 0; i < beat.warm_up[as_index(rank)]; ++i) forward();
  const bool split = !beat.delay.empty();
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const visit& one = gradients[k];
    list.push_back({split ? action::input_gradient : action::backward, stage(one), one.micro_batch});
    if (split && k >= as_index(beat.delay[as_index(rank)])) weights();
    forward();
  }
  while (split && next_weights < gradients.size()) weights();
  return list;
}

// Where the number of micro-batches is no multiple of the ranks, the usual warm-up may let ranks wait for one another
// in a circle; it is then made longer on all ranks until none do. With all F first none can, nor with one stage per
// rank if no warm-up is shorter than that of the next rank.
[[nodiscard]] inline schedule in_rhythm(std::string name, int ranks, int chunks, int micro_batches, rhythm beat) {
  schedule plan;
  plan.name = std::move(name);
  plan.micro_batches = micro_batches;
  plan.rank_of = loop_placement(ranks, chunks);
  const costs even = uniform_costs(plan.stages());
  for (int longer = 0; longer <= chunks * micro_batches; ++longer) {
    plan.lists.clear();
    for (int r = 0; r < ranks; ++r) plan.lists.push_back(list_in_rhythm(r, ranks, chunks, micro_batches, beat));
    if (chunks == 1 || evaluator(plan, even)(plan.lists).complete) break;
    for (int& count : beat.warm_up) ++count;
  }
  return plan;
}

}  // namespace espalier::pipeline::detail
