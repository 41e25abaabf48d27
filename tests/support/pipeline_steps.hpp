// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/stage_bytes.hpp>
#include <support/hand_written_layers.hpp>
#include <support/hand_written_loop.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hand_written {

/// The first layers of so many stages of about equal numbers of layers.
inline std::vector<int> cut(int stages) {
  std::vector<int> first;
  for (int s = 0; s < stages; ++s) first.push_back(s * model::count / stages);
  return first;
}

/// Groups of one rank each, in order.
inline std::vector<pl::replica_group> single(int groups) {
  std::vector<pl::replica_group> all;
  for (int g = 0; g < groups; ++g) all.push_back({{g}, {}});
  return all;
}

/// A schedule by name, of stages that cost the same.
inline pl::schedule scheduled(const std::string& name, int ranks, int chunks, int micro_batches, bool recomputed) {
  const std::vector<bool> again =
      recomputed ? std::vector<bool>(static_cast<std::size_t>(ranks * chunks), true) : std::vector<bool>{};
  return pl::make_schedule(name, ranks, chunks, micro_batches, pl::uniform_costs(ranks * chunks), again);
}

/// The results of some steps on one rank.
struct outcome {
  std::vector<double> losses;
  std::map<int, std::vector<double>> weights, gradients;  // of the last step, by layer
  std::int64_t peak = 0;
};

inline std::vector<double> copy(const std::byte* memory, std::int64_t bytes) {
  return {numbers(memory), numbers(memory) + bytes / 8};
}

inline void read_blocks(pl::engine& pipe, outcome& read) {
  for (auto& block : pipe.store().blocks()) {
    const std::int64_t bytes = pipe.model().facts(block.owner).parameter_bytes;
    read.weights[block.owner] = copy(block.parameters.data(), bytes);
    read.gradients[block.owner] = copy(block.users.front().gradients.data(), bytes);
  }
}

inline outcome run_steps(pl::engine& pipe, const batch& data, int steps) {
  outcome run;
  for (int k = 0; k < steps; ++k) {
    const pl::step_report report = pipe.step(data.pointers());
    run.losses.push_back(report.loss);
    run.peak = report.peak_activation_bytes;
  }
  read_blocks(pipe, run);
  return run;
}

/// The largest difference of losses, weights and gradients from those of the loop after as many steps.
inline double distance_from_loop(const outcome& run, const batch& data) {
  loop reference;
  double most = 0;
  for (const double loss : run.losses) most = std::max(most, std::abs(loss - reference.step(data)));
  const auto compare = [&](const auto& mine, auto& theirs) {
    for (const auto& [layer, values] : mine)
      for (std::size_t i = 0; i < values.size(); ++i) most = std::max(most, std::abs(values[i] - theirs[layer].at(i)));
  };
  compare(run.weights, reference.weights);
  compare(run.gradients, reference.gradients);
  return std::isfinite(most) ? most : 1e300;
}

}  // namespace hand_written
