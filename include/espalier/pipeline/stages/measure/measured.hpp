// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/chart.hpp>
#include <espalier/pipeline/simulate.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::pipeline {

/// The report of one rank on a step.
struct step_report {
  double loss = 0;                         ///< mean over the samples of the batch; the same on all ranks
  double seconds = 0;                      ///< of the step on this rank
  double layer_seconds = 0;                ///< of them, inside layers
  double waiting_seconds = 0;              ///< of them, for other ranks
  int instructions = 0;                    ///< of this rank's list
  std::int64_t peak_activation_bytes = 0;  ///< the most that was held at once, between and within instructions

  /// Returns the pipeline's own seconds per instruction, without layers and waiting.
  [[nodiscard]] double overhead_seconds() const {
    return instructions == 0 ? 0 : (seconds - layer_seconds - waiting_seconds) / instructions;
  }
};

/// The bytes that a rank has allocated.
struct memory_report {
  std::int64_t blocks = 0;      ///< activations, their gradients and messages, as the schedule needs them at most
  std::int64_t parameters = 0;  ///< parameters, gradients and optimizer's state
  std::int64_t reductions = 0;  ///< that all-reduces need in addition to the gradients
};

/// A measured step of all ranks, on one clock that begins with the first instruction of any.
struct measured_run {
  std::vector<std::vector<timed>> timeline;  ///< by rank, in the order of its list
  double makespan = 0;
};

/// Returns a measured run as a chart to compare with simulated ones; it shows the first rank of each group.
[[nodiscard]] inline chart chart_of(const execution_plan& plan, const measured_run& run) {
  chart drawn{
      plan.order.name + ", measured: makespan " + detail::short_number(run.makespan) + " s", plan.order.rank_of, {}};
  for (const replica_group& group : plan.groups)
    drawn.timeline.push_back(run.timeline[detail::as_index(group.ranks.front())]);
  return drawn;
}

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

/// Brings the ranks' timelines together on rank 0; `ahead`: of this rank's clock.
[[nodiscard]] inline measured_run collect(conversation talk, const std::vector<timed>& own, double ahead) {
  std::vector<std::int64_t> words;
  for (const timed& entry : own) {
    words.push_back(static_cast<std::int64_t>(entry.step.kind));
    words.push_back(entry.step.stage);
    words.push_back(entry.step.micro_batch);
    words.push_back(std::bit_cast<std::int64_t>(entry.start - ahead));
    words.push_back(std::bit_cast<std::int64_t>(entry.end - ahead));
  }
  measured_run run;
  double first = 1e300;
  for (const std::vector<std::int64_t>& theirs : talk.gather(words)) {
    std::vector<timed>& entries = run.timeline.emplace_back();
    for (std::size_t k = 0; k + 4 < theirs.size(); k += 5) {
      timed entry;
      entry.step = {static_cast<action>(theirs[k]), static_cast<int>(theirs[k + 1]), static_cast<int>(theirs[k + 2])};
      entry.start = std::bit_cast<double>(theirs[k + 3]);
      entry.end = std::bit_cast<double>(theirs[k + 4]);
      first = std::min(first, entry.start);
      entries.push_back(entry);
    }
  }
  for (std::vector<timed>& entries : run.timeline)
    for (timed& entry : entries) {
      entry.start -= first;
      entry.end -= first;
      run.makespan = std::max(run.makespan, entry.end);
    }
  return run;
}

}  // namespace espalier::pipeline::detail
