// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/plan.hpp>
#include <espalier/pipeline/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// Layers [first, last) of a model.
struct layer_run {
  int first = 0;
  int last = 0;
};

/// Rows [begin, end) of a micro-batch.
struct row_interval {
  int begin = 0;
  int end = 0;
  [[nodiscard]] int count() const { return end > begin ? end - begin : 0; }
  constexpr bool operator==(const row_interval&) const = default;
};

/// The ranks that work on the same stages: its replicas, each with its own rows of every micro-batch. A replica is as
/// many ranks that follow each other as the group's mesh, which is number `mesh` of the model's list, has devices.
/// `shares` says in which proportion the rows are divided among the replicas; empty: evenly.
struct replica_group {
  std::vector<int> ranks;
  std::vector<int> shares;
  int mesh = 0;
  int devices = 1;  ///< of that mesh
};

/// The plan of a step that an engine executes: which layers form a stage, which ranks compute it, in which order, and
/// which samples are in which micro-batch. The ranks of `order` are groups of ranks here; all members of a group follow
/// its list.
struct execution_plan {
  schedule order;
  std::vector<layer_run> stages;
  std::vector<replica_group> groups;  ///< by rank of `order`
  std::vector<int> micro_batch_rows;  ///< by micro-batch: its samples; those of the batch in their order
  bool trains = true;                 ///< false: losses are all that is computed; see `forward_only`

  [[nodiscard]] int samples() const { return std::accumulate(micro_batch_rows.begin(), micro_batch_rows.end(), 0); }
  [[nodiscard]] int group_of(int stage) const { return order.rank_of[detail::as_index(stage)]; }
  [[nodiscard]] const replica_group& group_at(int stage) const { return groups[detail::as_index(group_of(stage))]; }
  /// The number of a stage's mesh in the model's list.
  [[nodiscard]] int mesh_of(int stage) const { return group_at(stage).mesh; }
  [[nodiscard]] int replicas(int group) const {
    const replica_group& members = groups[detail::as_index(group)];
    return static_cast<int>(members.ranks.size()) / members.devices;
  }
  /// The group of a rank; null where it has nothing to do.
  [[nodiscard]] const replica_group* group_with(int rank) const {
    for (const replica_group& group : groups)
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end()) return &group;
    return nullptr;
  }
  /// The mesh that a rank is a device of.
  [[nodiscard]] int mesh_of_rank(int rank) const {
    const replica_group* const group = group_with(rank);
    return group == nullptr ? 0 : group->mesh;
  }
  /// The ranks of a rank's replica, by device; itself, where it has nothing to do.
  [[nodiscard]] std::vector<int> replica_of(int rank) const {
    const replica_group* const group = group_with(rank);
    if (group == nullptr) return {rank};
    const auto place = std::find(group->ranks.begin(), group->ranks.end(), rank) - group->ranks.begin();
    const auto first = group->ranks.begin() + (place - place % group->devices);
    return {first, first + group->devices};
  }
  /// Which device of its replica a rank is.
  [[nodiscard]] int device_of(int rank) const {
    const std::vector<int> members = replica_of(rank);
    return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  }
  /// The first sample of a micro-batch.
  [[nodiscard]] int first_sample(int micro_batch) const {
    return std::accumulate(micro_batch_rows.begin(), micro_batch_rows.begin() + micro_batch, 0);
  }
  /// Returns the rows of a micro-batch that a replica has; none if there are fewer rows than replicas.
  [[nodiscard]] row_interval rows_of(int group, int replica, int micro_batch) const {
    const replica_group& members = groups[detail::as_index(group)];
    const std::int64_t rows = micro_batch_rows[detail::as_index(micro_batch)];
    std::int64_t before = 0;
    std::int64_t all = 0;
    for (int k = 0; k < replicas(group); ++k) {
      const std::int64_t share = members.shares.empty() ? 1 : members.shares[detail::as_index(k)];
      if (k < replica) before += share;
      all += share;
    }
    const std::int64_t own = members.shares.empty() ? 1 : members.shares[detail::as_index(replica)];
    return {static_cast<int>(rows * before / all), static_cast<int>(rows * (before + own) / all)};
  }
};

/// `samples` in so many micro-batches, the first ones a sample larger where they do not divide evenly.
/// Throws std::invalid_argument unless every micro-batch gets a sample.
[[nodiscard]] inline std::vector<int> split_batch(int samples, int micro_batches) {
  if (micro_batches < 1 || samples < micro_batches)
    throw std::invalid_argument("a batch of " + std::to_string(samples) + " samples cannot be cut into " +
                                std::to_string(micro_batches) + " micro-batches: give each at least one sample");
  std::vector<int> rows(detail::as_index(micro_batches), samples / micro_batches);
  for (int m = 0; m < samples % micro_batches; ++m) ++rows[detail::as_index(m)];
  return rows;
}

/// A plan by hand: stage s has the layers from `first_layers[s]` to the next stage's first one, or to `layers`.
/// Lists of computations alone get their transfers. `devices`, where it is given, is what all groups have.
[[nodiscard]] inline execution_plan make_execution_plan(schedule order, const std::vector<int>& first_layers,
                                                        int layers, std::vector<replica_group> groups, int samples,
                                                        std::optional<int> devices = std::nullopt) {
  execution_plan plan;
  plan.micro_batch_rows = split_batch(samples, order.micro_batches);
  plan.order = only_computations(order) ? with_transfers(std::move(order)) : std::move(order);
  plan.groups = std::move(groups);
  for (replica_group& group : plan.groups) group.devices = devices.value_or(group.devices);
  for (std::size_t s = 0; s < first_layers.size(); ++s)
    plan.stages.push_back({first_layers[s], s + 1 < first_layers.size() ? first_layers[s + 1] : layers});
  return plan;
}

/// The stages and ranks of a plan, to compute the losses of `samples` samples and nothing else. A micro-batch reaches
/// stage s after s others have; what is received late stays with its sender.
/// Throws std::invalid_argument unless every micro-batch gets a sample.
[[nodiscard]] inline execution_plan forward_only(const execution_plan& plan, int samples, int micro_batches) {
  execution_plan made = plan;
  made.trains = false;
  made.micro_batch_rows = split_batch(samples, micro_batches);
  made.order.name = "forward only";
  made.order.micro_batches = micro_batches;
  made.order.recomputed.clear();
  for (auto& list : made.order.lists) list.clear();
  for (int time = 0; time < micro_batches + made.order.stages() - 1; ++time)
    for (int s = 0; s < made.order.stages(); ++s)
      if (const int m = time - s; m >= 0 && m < micro_batches)
        made.order.lists[detail::as_index(made.group_of(s))].push_back({action::forward, s, m});
  made.order = with_transfers(std::move(made.order));
  return made;
}

/// Returns a planner's result as a plan to execute on a batch of `samples`: each of its devices becomes a replica of
/// `devices` ranks that follow each other, on the model's mesh of that number.
/// Throws std::invalid_argument where stages of one rank of its order have different devices.
[[nodiscard]] inline execution_plan make_execution_plan(const plan& planned, int samples, int devices = 1,
                                                        int mesh = 0) {
  execution_plan made;
  made.micro_batch_rows = split_batch(samples, planned.order.micro_batches);
  made.order = only_computations(planned.order) ? with_transfers(planned.order) : planned.order;
  made.groups.resize(planned.order.lists.size());
  for (std::size_t s = 0; s < planned.stages.size(); ++s) {
    const plan_stage& stage = planned.stages[s];
    made.stages.push_back({stage.first, stage.last});
    if (s >= planned.order.rank_of.size()) continue;  // refused with the rest of the plan
    std::vector<int> wanted;
    for (const int one : stage.devices)
      for (int d = 0; d < devices; ++d) wanted.push_back(one * devices + d);
    std::vector<int>& ranks = made.groups.at(detail::as_index(planned.order.rank_of[s])).ranks;
    if (!ranks.empty() && ranks != wanted)
      throw std::invalid_argument("stage " + std::to_string(s) + " is a chunk of rank " +
                                  std::to_string(planned.order.rank_of[s]) +
                                  " of the schedule, but has other devices than that rank's first stage: stages with "
                                  "different devices need ranks of their own");
    ranks = std::move(wanted);
  }
  for (replica_group& group : made.groups) {
    group.mesh = mesh;
    group.devices = devices;
  }
  return made;
}

}  // namespace espalier::pipeline
