// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/profile.hpp>
#include <espalier/pipeline/simulate.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/choose.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/predict.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// A plan to execute, and what the simulator says of it.
struct predicted_plan {
  execution_plan plan;
  costs predicted;
  double seconds = 0;  ///< a step's
};

namespace detail {

/// Looks for the meshes of a plan's groups of ranks. The planner finds stages, replication and placement for one mesh
/// at a time; from the best of what it finds for each, this goes on to the neighbour that the simulator says is
/// fastest: one group on another mesh, all groups on another one, or one layer in the next stage.
class mesh_search {
 public:
  mesh_search(const layer_model& model, const std::vector<profile>& measured, const cluster& machines)
      : model_(model), measured_(measured), machines_(machines) {
    for (std::size_t host = 0; host < machines.devices_of.size(); ++host)
      host_of_.insert(host_of_.end(), as_index(machines.devices_of[host]), static_cast<int>(host));
  }

  /// The plan, if it can be executed on these machines.
  [[nodiscard]] std::optional<predicted_plan> priced(execution_plan plan) const {
    try {
      check(plan, model_, static_cast<int>(host_of_.size()));
      if (!replicas_stay_on_hosts(plan)) return std::nullopt;
      costs told = predicted_costs(plan, model_, measured_, machines_for(plan));
      const simulation step = simulate(plan.order, told);
      const auto fits = [&](double bytes) { return bytes <= machines_.memory_bytes; };
      if (!step.complete || !std::all_of(step.peak_bytes.begin(), step.peak_bytes.end(), fits)) return std::nullopt;
      return predicted_plan{std::move(plan), std::move(told), step.makespan};
    } catch (const std::invalid_argument&) { return std::nullopt; }
  }

  /// Goes from neighbour to neighbour as long as one is faster.
  [[nodiscard]] predicted_plan improved(predicted_plan best) const {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      const execution_plan from = best.plan;
      for (execution_plan& next : neighbours(from)) {
        std::optional<predicted_plan> one = priced(std::move(next));
        if (!one || one->seconds >= best.seconds * (1 - least_gain)) continue;
        best = std::move(*one);
        goes_on = true;
      }
    }
    return best;
  }

 private:
  /// Differences of less are rounding, or not worth another plan.
  static constexpr double least_gain = 1e-6;

  [[nodiscard]] bool replicas_stay_on_hosts(const execution_plan& plan) const {
    for (const replica_group& group : plan.groups)
      for (std::size_t k = 0; k < group.ranks.size(); ++k) {
        const int first = group.ranks[k - k % as_index(group.devices)];
        if (host_of_[as_index(group.ranks[k])] != host_of_[as_index(first)]) return false;
      }
    return true;
  }
  /// `predicted_costs` counts replicas where all are alike.
  [[nodiscard]] cluster machines_for(const execution_plan& plan) const {
    const int devices = plan.groups.front().devices;
    const bool are_alike = std::all_of(plan.groups.begin(), plan.groups.end(),
                                       [&](const replica_group& group) { return group.devices == devices; });
    return are_alike ? cluster_of_replicas(machines_, devices) : machines_;
  }

  [[nodiscard]] std::vector<execution_plan> neighbours(const execution_plan& from) const {
    std::vector<execution_plan> made;
    const auto put_on = [&](replica_group& group, int mesh) {
      group.mesh = mesh;
      group.devices = model_.devices(mesh);
      group.shares.clear();
    };
    for (int mesh = 0; mesh < model_.meshes(); ++mesh) {
      execution_plan all = from;
      for (std::size_t g = 0; g < from.groups.size(); ++g) {
        put_on(all.groups[g], mesh);
        if (from.groups[g].mesh != mesh) put_on(made.emplace_back(from).groups[g], mesh);
      }
      made.push_back(std::move(all));
    }
    for (std::size_t s = 0; s + 1 < from.stages.size(); ++s)
      for (const int by : {-1, 1}) {
        execution_plan& moved = made.emplace_back(from);
        moved.stages[s].last += by;
        moved.stages[s + 1].first += by;
      }
    return made;
  }

  const layer_model& model_;
  const std::vector<profile>& measured_;
  const cluster& machines_;
  std::vector<int> host_of_;
};

}  // namespace detail

/// Plans a step of a model that is compiled for several meshes: each stage is on one of them. `measured` holds a
/// profile for each mesh, `machines` count ranks. Of the plans that the planner finds for each mesh those that the
/// model is compiled for are tried, and from the fastest ones stages move to other meshes, and layers to neighbouring
/// stages, as long as the simulator says that the step gets shorter. A replica stays on one host. Throws
/// std::invalid_argument where no plan fits or can be executed, with what the planner says of the first mesh.
[[nodiscard]] inline predicted_plan plan_on_meshes(const layer_model& model, const std::vector<profile>& measured,
                                                   const cluster& machines, const planner_options& asked) {
  if (static_cast<int>(measured.size()) != model.meshes())
    throw std::invalid_argument("plan_on_meshes: " + std::to_string(measured.size()) + " profiles of a model for " +
                                std::to_string(model.meshes()) + " meshes: give one for each");
  constexpr std::size_t most_starts = 8;  // what is slower at first does not make up for it
  const detail::mesh_search search(model, measured, machines);
  const int ranks = machines.devices();
  std::vector<predicted_plan> starts;
  std::string reason;
  const auto offer = [&](execution_plan plan) {
    if (std::optional<predicted_plan> one = search.priced(std::move(plan))) starts.push_back(std::move(*one));
  };
  for (int mesh = 0; mesh < model.meshes(); ++mesh) {
    const int devices = model.devices(mesh);
    try {
      const planning found =
          make_plan(measured[static_cast<std::size_t>(mesh)], cluster_of_replicas(machines, devices), asked);
      offer(make_execution_plan(found.best, asked.global_batch, devices, mesh));
      for (const alternative& other : found.others)
        if (other.fits && !other.candidate.stages.empty())
          offer(make_execution_plan(other.candidate, asked.global_batch, devices, mesh));
      offer(executable_plan(found, model, ranks, asked.global_batch, mesh));
    } catch (const std::invalid_argument& error) {
      if (reason.empty()) reason = error.what();
    }
  }
  if (starts.empty()) throw std::invalid_argument("no plan fits on any mesh of the model: " + reason);
  std::vector<std::pair<double, std::size_t>> order;  // of equal ones the first
  for (std::size_t k = 0; k < starts.size(); ++k) order.emplace_back(starts[k].seconds, k);
  std::sort(order.begin(), order.end());
  if (order.size() > most_starts) order.resize(most_starts);
  std::optional<predicted_plan> best;
  for (const auto& [seconds, k] : order) {
    predicted_plan one = search.improved(std::move(starts[k]));
    if (!best || one.seconds < best->seconds) best = std::move(one);
  }
  return std::move(*best);
}

}  // namespace espalier::pipeline
