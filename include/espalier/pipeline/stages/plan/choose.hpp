// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/layer_sizes.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::pipeline {

/// One stage on all of `ranks` ranks: each replica, on that mesh of the model, has its rows of every micro-batch.
[[nodiscard]] inline execution_plan data_parallel_plan(const layer_model& model, int ranks, int samples,
                                                       int micro_batches, int mesh = 0) {
  replica_group all;
  all.mesh = mesh;
  all.devices = model.devices(mesh);
  for (int k = 0; k < ranks; ++k) all.ranks.push_back(k);
  return make_execution_plan(make_schedule("1f1b", 1, 1, micro_batches, uniform_costs(1)), {0}, model.layers(),
                             {std::move(all)}, samples);
}

/// The best of the plans that a planner found whose numbers of rows the model is compiled for; if there is none, data
/// parallelism with the fewest micro-batches for which it is. Each of the planner's devices is a replica on that mesh
/// of the model. Throws std::invalid_argument, with what the best plan lacks, where the model fits nothing.
[[nodiscard]] inline execution_plan executable_plan(const planning& found, const layer_model& model, int ranks,
                                                    int samples, int mesh = 0) {
  detail::require_mesh(model, mesh, "executable_plan");
  const int devices = model.devices(mesh);
  std::string reason;
  const auto runs = [&](const execution_plan& made) {
    try {
      check(made, model, ranks);
      return true;
    } catch (const std::invalid_argument& error) {
      if (reason.empty()) reason = error.what();
      return false;
    }
  };
  if (execution_plan made = make_execution_plan(found.best, samples, devices, mesh); runs(made)) return made;
  for (const alternative& other : found.others) {
    if (!other.fits || other.candidate.stages.empty()) continue;
    if (execution_plan made = make_execution_plan(other.candidate, samples, devices, mesh); runs(made)) return made;
  }
  for (int count = 1; count <= samples; ++count)
    if (execution_plan made = data_parallel_plan(model, ranks, samples, count, mesh); runs(made)) return made;
  throw std::invalid_argument("no plan can be executed: " + reason);
}

}  // namespace espalier::pipeline
