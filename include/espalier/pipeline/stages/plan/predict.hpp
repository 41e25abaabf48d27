// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>
#include <espalier/pipeline/stages/plan/stage_bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace espalier::pipeline {

namespace detail {

/// How many of some ranks each host has, which number the devices through the hosts.
[[nodiscard]] inline std::vector<int> count_by_host(const cluster& machines, const std::vector<int>& ranks) {
  std::vector<int> counts;
  int begin = 0;
  for (const int devices : machines.devices_of) {
    const int end = begin + devices;
    counts.push_back(static_cast<int>(
        std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return rank >= begin && rank < end; })));
    begin = end;
  }
  return counts;
}

}  // namespace detail

/// Returns the costs from which the simulator predicts the step of a plan: bytes from the model, seconds from profiles,
/// one for each of the model's meshes, for the replica that has most rows, and from the machines' rates. A hop carries
/// the values that a device of a later stage reads of an earlier one, once for all of its readers, as `routes` has it:
/// a value that skips stages is counted at each hop on its way. An all-reduce begins with a stage's last gradient.
/// @pre check(plan, model, ranks) passes; the profiles are of this model; device d of the machines is rank d or, where
///      all replicas have n ranks, the replica that begins with rank d * n
[[nodiscard]] inline costs predicted_costs(const execution_plan& plan, const layer_model& model,
                                           const std::vector<profile>& measured, const cluster& machines) {
  costs made = memory_costs(plan, model);
  const detail::routes paths(plan, model);
  const int micro_batch = *std::max_element(plan.micro_batch_rows.begin(), plan.micro_batch_rows.end());
  const int devices = plan.groups.front().devices;
  const bool are_alike = std::all_of(plan.groups.begin(), plan.groups.end(),
                                     [&](const replica_group& group) { return group.devices == devices; });
  std::vector<int> before;
  for (int s = 0; s < plan.order.stages(); ++s) {
    const int group = plan.group_of(s);
    const replica_group& members = plan.group_at(s);
    const profile& on_mesh = measured.at(detail::as_index(members.mesh));
    const profile_sums sums(on_mesh);
    int rows = 0;
    for (int k = 0; k < plan.replicas(group); ++k)
      for (int m = 0; m < plan.order.micro_batches; ++m) rows = std::max(rows, plan.rows_of(group, k, m).count());
    const auto [first, last] = plan.stages[detail::as_index(s)];
    stage_costs& stage = made.stages[detail::as_index(s)];
    const double scale = rows / on_mesh.batch;
    stage.forward_seconds = scale * sums.forward(first, last);
    stage.input_gradient_seconds = scale * sums.input_gradient(first, last);
    stage.weight_gradient_seconds = scale * sums.weight_gradient(first, last);
    stage.optimizer_seconds = sums.optimizer(first, last);
    std::vector<int> replicas;
    for (int k = 0; k < plan.replicas(group); ++k)
      replicas.push_back(members.ranks[detail::as_index(k * members.devices)] / (are_alike ? devices : 1));
    const std::vector<int> here = detail::count_by_host(machines, replicas);
    if (replicas.size() > 1) stage.all_reduce_seconds = all_reduce_seconds(machines, here)(sums.parameter(first, last));
    if (s > 0) {
      hop_costs hop;
      for (std::size_t r = 0; r < paths.values().size(); ++r) {
        const detail::value_route& value = paths.values()[r];
        if (value.local || value.from_stage >= s || value.to_stage < s) continue;
        const auto bytes = static_cast<double>(paths.incoming_bytes(static_cast<int>(r), micro_batch));
        hop.activation_bytes += bytes;
        if (value.has_gradient) hop.gradient_bytes += bytes;
      }
      const seconds_for_bytes moved = transfer_seconds(machines, before, here);
      hop.latency_seconds = moved.fixed;
      if (moved.per_byte > 0) hop.bytes_per_second = 1 / moved.per_byte;
      made.hops.push_back(hop);
    }
    before = here;
  }
  return made;
}
/// The same of a model of one mesh.
[[nodiscard]] inline costs predicted_costs(const execution_plan& plan, const layer_model& model,
                                           const profile& measured, const cluster& machines) {
  return predicted_costs(plan, model, std::vector<profile>{measured}, machines);
}

}  // namespace espalier::pipeline
