// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/layer_sizes.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>

#include <algorithm>
#include <cstdint>
#include <set>

namespace espalier::pipeline::detail {

/// The last part that reads a layer's own output: of the layer itself, and of the readers in its stage.
[[nodiscard]] inline part output_needed_in_stage(const layer_model& model, const layer_run& run, int layer, int mesh) {
  part needed = last_part(model.facts(layer, mesh), model.facts(layer, mesh).output_needed);
  for (int reader = layer + 1; reader < run.last; ++reader)
    for (const input_facts& input : model.facts(reader, mesh).inputs)
      if (input.layer == layer) needed = std::max(needed, last_part(model.facts(reader, mesh), input.needed));
  return needed;
}

/// Returns the bytes that one micro-batch of `rows` rows holds in a stage, from the layers' facts: see `stage_costs`
/// for the terms.
[[nodiscard]] inline stage_costs bytes_of_stage(const layer_model& model, const execution_plan& plan,
                                                const routes& paths, int stage, int rows) {
  std::int64_t inputs = 0;
  std::int64_t held = 0;
  std::int64_t for_weights = 0;
  const layer_run run = plan.stages[as_index(stage)];
  const int mesh = plan.mesh_of(stage);
  for (const int r : paths.into(stage)) {
    const value_route& value = paths.value(r);
    const std::int64_t bytes = paths.incoming_bytes(r, rows);
    inputs += bytes;
    // A recomputed stage holds its inputs in addition to the activation; see `peak_of`.
    if (value.needed >= part::input_gradient && !plan.order.recomputes(stage)) held += bytes;
    if (value.needed == part::weight_gradient) for_weights += bytes;
  }
  for (int l = run.first; l < run.last; ++l) {
    const layer_facts& facts = model.facts(l, mesh);
    const kept_facts& kept = kept_of(facts, rows);
    const part needed = output_needed_in_stage(model, run, l, mesh);
    const std::int64_t output = output_bytes(model, l, mesh, rows);
    held += kept.kept_bytes + kept.kept_through_bytes;
    if (needed >= part::input_gradient) held += output;
    if (needed == part::weight_gradient) for_weights += output;
    if (facts.parameters_of.empty()) continue;
    for_weights += kept.kept_through_bytes + kept.kept_between_bytes;
    if (facts.output_gradient_needed == part::weight_gradient) for_weights += output;
  }
  stage_costs cost;
  cost.activation_bytes = static_cast<double>(held);
  cost.weight_gradient_bytes = static_cast<double>(for_weights);
  cost.input_bytes = static_cast<double>(inputs);
  return cost;
}

/// Parameters, gradients and optimizer's state of the blocks that a device of a stage uses.
[[nodiscard]] inline std::int64_t state_bytes_of_stage(const layer_model& model, const layer_run& run, int mesh) {
  std::set<int> owners;
  std::int64_t bytes = 0;
  for (int l = run.first; l < run.last; ++l)
    for (const int owner : model.facts(l).parameters_of) {
      bytes += model.facts(owner, mesh).parameter_bytes;  // every user has gradients of its own
      if (owners.insert(owner).second)
        bytes += model.facts(owner, mesh).parameter_bytes + model.facts(owner, mesh).state_bytes;
    }
  return bytes;
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Returns the bytes that the stages of a plan hold, for the simulator: those of the replica that has most rows of the
/// largest micro-batch. All durations are 1 and hops are free, for the caller to fill in. The simulator's peak of a
/// rank equals the bytes that the engine holds there if all micro-batches and shares are equal; otherwise it is at
/// least that.
/// @pre check(plan, model, ranks) passes
[[nodiscard]] inline costs memory_costs(const execution_plan& plan, const layer_model& model) {
  const detail::routes paths(plan, model);
  costs made = uniform_costs(plan.order.stages());
  for (int s = 0; s < plan.order.stages(); ++s) {
    int rows = 0;
    const int g = plan.group_of(s);
    for (int k = 0; k < plan.replicas(g); ++k)
      for (int m = 0; m < plan.order.micro_batches; ++m) rows = std::max(rows, plan.rows_of(g, k, m).count());
    const stage_costs bytes = detail::bytes_of_stage(model, plan, paths, s, rows);
    stage_costs& stage = made.stages[detail::as_index(s)];
    stage.activation_bytes = bytes.activation_bytes;
    stage.weight_gradient_bytes = bytes.weight_gradient_bytes;
    stage.input_bytes = bytes.input_bytes;
    stage.state_bytes =
        static_cast<double>(detail::state_bytes_of_stage(model, plan.stages[detail::as_index(s)], plan.mesh_of(s)));
  }
  return made;
}

}  // namespace espalier::pipeline
