// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/problem.hpp>
#include <espalier/pipeline/simulate.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Each stage's list with 1F1B: as many forwards as it may have in flight, then a backward after each forward.
[[nodiscard]] inline schedule alternating_schedule(const std::vector<line_stage>& line,
                                                   const std::vector<char>& recomputed, int micro_batches) {
  schedule order;
  order.name = "1f1b";
  order.micro_batches = micro_batches;
  order.rank_of = loop_placement(static_cast<int>(line.size()), 1);
  for (std::size_t s = 0; s < line.size(); ++s) {
    const int stage = static_cast<int>(s);
    const int ahead = std::min(line[s].in_flight, micro_batches);
    auto& list = order.lists.emplace_back();
    for (int k = 0; k < ahead; ++k) list.push_back({action::forward, stage, k});
    for (int k = 0; k < micro_batches; ++k) {
      list.push_back({action::backward, stage, k});
      if (k + ahead < micro_batches) list.push_back({action::forward, stage, k + ahead});
    }
    order.recomputed.push_back(recomputed[s] != 0);
  }
  return order;
}

/// Returns the costs of a partition for the simulator. Activations are taken to be held whole from B to W.
[[nodiscard]] inline costs simulated_costs(const planning_problem& problem, const candidate& partition) {
  costs cost;
  const int micro_batches = partition.micro_batches;
  for (const candidate::stage& one : partition.stages) {
    const int replicas = one.devices->count;
    if (!cost.stages.empty()) {
      hop_costs hop;
      const double bytes = problem.sums().input(one.first) * problem.micro_batch_scale(micro_batches);
      hop.latency_seconds = one.devices->transfer.fixed;
      if (one.devices->transfer.per_byte > 0) {
        hop.activation_bytes = hop.gradient_bytes = bytes;
        hop.bytes_per_second = 1 / one.devices->transfer.per_byte;
      }
      cost.hops.push_back(hop);
    }
    stage_costs stage;
    const double scale = problem.time_scale(micro_batches, replicas);
    stage.forward_seconds = scale * problem.sums().forward(one.first, one.last);
    stage.input_gradient_seconds = scale * problem.sums().input_gradient(one.first, one.last);
    stage.weight_gradient_seconds = scale * problem.sums().weight_gradient(one.first, one.last);
    stage.activation_bytes = problem.activation_bytes(one.first, one.last, micro_batches, replicas);
    stage.weight_gradient_bytes = stage.activation_bytes;
    stage.input_bytes = problem.input_bytes(one.first, micro_batches, replicas);
    stage.state_bytes = problem.state_bytes(one.first, one.last);
    stage.all_reduce_seconds = problem.exposed_seconds(one.first, one.last, micro_batches, *one.devices);
    stage.optimizer_seconds = problem.sums().optimizer(one.first, one.last);
    cost.stages.push_back(stage);
  }
  return cost;
}

/// A step's time by cause: what is left out, one after the other, is the all-reduces and the transfers.
[[nodiscard]] inline plan_times times_by_cause(const schedule& order, costs cost, const simulation& whole) {
  plan_times times;
  times.step = whole.makespan;
  times.work = *std::max_element(whole.busy.begin(), whole.busy.end());
  for (stage_costs& stage : cost.stages) stage.all_reduce_seconds = 0;
  const double without_reduction = simulate(order, cost).makespan;
  cost.hops.clear();
  const double computed = simulate(order, cost).makespan;
  times.all_reduce = std::max(0.0, times.step - without_reduction);
  times.transfer = std::max(0.0, without_reduction - computed);
  times.bubble = std::max(0.0, computed - times.work);
  return times;
}

/// A plan of a partition and an order of instructions for it. `step` is infinite where the order deadlocks, or a device
/// would hold more than it can.
[[nodiscard]] inline plan assembled(const planning_problem& problem, const device_tree& tree,
                                    const candidate& partition, schedule order) {
  plan made;
  made.schedule_name = order.name;
  made.micro_batches = partition.micro_batches;
  const costs cost = simulated_costs(problem, partition);
  const simulation whole = simulate(order, cost);
  made.memory_bytes = whole.peak_bytes;
  bool fits = whole.complete;
  for (const double bytes : whole.peak_bytes) fits = fits && bytes <= problem.machines().memory_bytes * (1 + 1e-9);
  if (fits) {
    made.times = times_by_cause(order, cost, whole);
    made.speed_up = problem.one_device_seconds() / made.times.step;
  }
  std::vector<const stage_devices*> groups;  // by rank; the chunks of a rank share its devices
  for (int r = 0; r < order.ranks(); ++r) groups.push_back(partition.stages[static_cast<std::size_t>(r)].devices);
  const std::vector<std::vector<int>> numbers = tree.numbers(groups);
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const candidate::stage& from = partition.stages[s];
    plan_stage stage;
    stage.first = from.first;
    stage.last = from.last;
    stage.devices = numbers[static_cast<std::size_t>(order.rank_of[s])];
    stage.policy = from.devices->chosen.policy;
    stage.recomputed = order.recomputes(static_cast<int>(s));
    stage.share = problem.share(partition.micro_batches, from.devices->count);
    stage.forward_seconds = cost.stages[s].forward_seconds;
    stage.backward_seconds = cost.stages[s].input_gradient_seconds + cost.stages[s].weight_gradient_seconds +
                             (stage.recomputed ? cost.stages[s].forward_seconds : 0.0);
    if (s < cost.hops.size()) stage.transfer_seconds = cost.hops[s].latency_seconds + cost.hops[s].activation_seconds();
    stage.all_reduce_seconds = problem.all_reduce_seconds(from.first, from.last, *from.devices);
    stage.exposed_seconds = cost.stages[s].all_reduce_seconds;
    stage.state_bytes = cost.stages[s].state_bytes;
    made.stages.push_back(std::move(stage));
  }
  for (std::size_t s = 0; s < made.stages.size(); ++s) {
    int flying = 0;
    int most = 0;
    for (const instruction& step : order.lists[static_cast<std::size_t>(order.rank_of[s])]) {
      if (step.stage != static_cast<int>(s)) continue;
      if (step.kind == action::forward) most = std::max(most, ++flying);
      if (step.kind == action::backward || step.kind == action::input_gradient) --flying;
    }
    made.stages[s].in_flight = most;
  }
  made.order = std::move(order);
  return made;
}

}  // namespace espalier::pipeline::detail
