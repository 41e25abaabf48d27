// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/validate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

[[noreturn]] inline void refuse(const std::string& text) { throw std::invalid_argument(text); }

/// "layer 3 (attention)"
[[nodiscard]] inline std::string layer_text(const layer_model& model, int index) {
  return "layer " + std::to_string(index) + " (" + model.facts(index).name + ")";
}
/// "layers 2 to 3", "layer 2"
[[nodiscard]] inline std::string run_text(const layer_run& run) {
  if (run.last - run.first == 1) return "layer " + std::to_string(run.first);
  return "layers " + std::to_string(run.first) + " to " + std::to_string(run.last - 1);
}
/// "1, 2, 4"
template <class Numbers> [[nodiscard]] std::string number_list(const Numbers& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text.empty() ? "none" : text;
}

/// "one device", "data 2, model 2"
[[nodiscard]] inline std::string mesh_text(const mesh_shape& mesh) {
  if (mesh.rank == 0) return "one device";
  std::string text;
  for (int axis = 0; axis < mesh.rank; ++axis)
    text += (axis == 0 ? "" : ", ") + std::string(mesh.name[axis]) + ' ' + std::to_string(mesh.size[axis]);
  return text;
}
/// "0 (one device), 1 (model 2)"
[[nodiscard]] inline std::string mesh_list(const layer_model& model) {
  std::string text;
  for (int mesh = 0; mesh < model.meshes(); ++mesh)
    text += (mesh == 0 ? "" : ", ") + std::to_string(mesh) + " (" + mesh_text(model.replica_mesh(mesh)) + ")";
  return text;
}

/// The last part for which a layer needs what it says it needs until `needed`: without parameters it has no W.
[[nodiscard]] inline part last_part(const layer_facts& facts, part needed) {
  return facts.parameters_of.empty() && needed == part::weight_gradient ? part::input_gradient : needed;
}

inline void check_tensors(const layer_model& model, int index, const std::vector<tensor_facts>& tensors,
                          std::int64_t bytes, std::set<std::string>& names) {
  for (const tensor_facts& one : tensors) {
    const std::string name = "tensor \"" + one.name + "\" of " + layer_text(model, index);
    if (one.offset < 0 || one.offset % size_of(one.type) != 0 || one.offset + one.bytes() > bytes)
      refuse(name + " has bytes " + std::to_string(one.offset) + " to " + std::to_string(one.offset + one.bytes()) +
             " of a block of " + std::to_string(bytes) + ": lay it inside, at a multiple of its elements' size");
    if (!names.insert(one.name).second) refuse(name + " has the name of another tensor: rename one of them");
  }
}

/// Checks that a model's facts about its layers on one mesh are consistent.
inline void check_model(const layer_model& model, int mesh) {
  std::set<std::string> names;
  std::map<std::string, std::int64_t> data_bytes;
  std::vector<bool> read(as_index(model.layers()), false);
  for (int l = 0; l < model.layers(); ++l) {
    const layer_facts& facts = model.facts(l, mesh);
    const std::string name = layer_text(model, l);
    if (facts.kept.size() != facts.batches.size())
      refuse(name + " says of " + std::to_string(facts.kept.size()) + " numbers of rows what it keeps, of " +
             std::to_string(facts.batches.size()));
    for (const input_facts& input : facts.inputs) {
      if (input.layer < 0 || input.layer >= l)
        refuse(name + " reads the output of layer " + std::to_string(input.layer) + ": only earlier layers have one");
      read[as_index(input.layer)] = true;
    }
    for (const data_facts& data : facts.data) {
      const auto [at, fresh] = data_bytes.emplace(data.name, data.row.bytes());
      if (!fresh && at->second != data.row.bytes())
        refuse(name + " reads " + std::to_string(data.row.bytes()) + " bytes a row of \"" + data.name +
               "\", an earlier layer " + std::to_string(at->second) + ": data of one name has rows of one type");
    }
    for (const int owner : facts.parameters_of) {
      if (owner < 0 || owner >= model.layers() || model.facts(owner, mesh).parameter_bytes == 0)
        refuse(name + " uses the parameters of layer " + std::to_string(owner) + ", which has none");
    }
    const bool lists_own = std::count(facts.parameters_of.begin(), facts.parameters_of.end(), l) == 1;
    if (facts.parameter_bytes > 0 && !lists_own) refuse(name + " has parameters, but does not list itself once");
    check_tensors(model, l, facts.parameters, facts.parameter_bytes, names);
    check_tensors(model, l, facts.state, facts.state_bytes, names);
  }
  for (int l = 0; l + 1 < model.layers(); ++l)
    if (!read[as_index(l)]) refuse("nothing reads the output of " + layer_text(model, l) + ": leave the layer out");
  if (!is_floating(model.facts(model.layers() - 1).output.type))
    refuse("the last layer's output is the loss, which must be of a floating type");
}

inline void check_stages(const execution_plan& plan, const layer_model& model) {
  if (plan.stages.size() != plan.order.rank_of.size())
    refuse("the plan has " + std::to_string(plan.stages.size()) + " runs of layers for a schedule of " +
           std::to_string(plan.order.stages()) + " stages: give each stage one");
  int next = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const layer_run& run = plan.stages[s];
    if (run.first != next || run.last <= run.first)
      refuse("stage " + std::to_string(s) + " has layers [" + std::to_string(run.first) + ", " +
             std::to_string(run.last) + "), but it must begin with layer " + std::to_string(next) +
             " and have at least one: stages cover the layers in their order");
    next = run.last;
  }
  if (next != model.layers())
    refuse("the stages end with layer " + std::to_string(next - 1) + ", but the model has " +
           std::to_string(model.layers()) + " layers: the last stage must end at " + std::to_string(model.layers()));
}

inline void check_groups(const execution_plan& plan, const layer_model& model, int ranks) {
  if (plan.groups.size() != plan.order.lists.size())
    refuse("the plan has " + std::to_string(plan.groups.size()) + " groups of ranks, but its schedule " +
           std::to_string(plan.order.ranks()) + " lists: each list needs the ranks that follow it");
  std::map<int, std::size_t> group_of;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const replica_group& group = plan.groups[g];
    const std::string name = "group " + std::to_string(g);
    if (group.ranks.empty()) refuse(name + " has no ranks: leave its stages to another one, or give it a rank");
    if (group.mesh < 0 || group.mesh >= model.meshes())
      refuse(name + " is on mesh " + std::to_string(group.mesh) + ", but the model is compiled for " +
             mesh_list(model) + ": choose one of them, or compile it for another");
    if (group.devices != model.devices(group.mesh))
      refuse(name + " has replicas of " + std::to_string(group.devices) + (group.devices == 1 ? " rank" : " ranks") +
             ", but its mesh, " + mesh_text(model.replica_mesh(group.mesh)) + ", has " +
             std::to_string(model.devices(group.mesh)) + " devices: give it that number of `devices`");
    if (group.ranks.size() % as_index(group.devices) != 0)
      refuse(name + " has " + std::to_string(group.ranks.size()) + " ranks, which are no replicas of " +
             std::to_string(group.devices) + " ranks each: give each replica as many");
    const int replicas = plan.replicas(static_cast<int>(g));
    if (!group.shares.empty() && group.shares.size() != as_index(replicas))
      refuse(name + " has " + std::to_string(group.shares.size()) + " shares for " + std::to_string(replicas) +
             (group.devices == 1 ? " ranks" : " replicas") + ": give each one, or none for equal shares");
    for (const int share : group.shares)
      if (share < 1) refuse(name + " has a share of " + std::to_string(share) + ": shares are 1 or more");
    for (const int rank : group.ranks) {
      if (rank < 0 || rank >= ranks)
        refuse(name + " has rank " + std::to_string(rank) + ", but there are " + std::to_string(ranks) +
               " ranks, from 0: start more, or plan for these");
      const auto [at, fresh] = group_of.emplace(rank, g);
      if (!fresh)
        refuse("rank " + std::to_string(rank) + " is in group " + std::to_string(at->second) + " and in group " +
               std::to_string(g) + ": a rank follows one list; give its stages to one group, as chunks");
    }
  }
}

inline void check_order(const execution_plan& plan) {
  if (plan.micro_batch_rows.size() != as_index(plan.order.micro_batches))
    refuse("the plan gives the samples of " + std::to_string(plan.micro_batch_rows.size()) +
           " micro-batches, but its " + "schedule has " + std::to_string(plan.order.micro_batches));
  for (std::size_t m = 0; m < plan.micro_batch_rows.size(); ++m)
    if (plan.micro_batch_rows[m] < 1)
      refuse("micro-batch " + std::to_string(m) + " has " + std::to_string(plan.micro_batch_rows[m]) +
             " samples: each needs at least one");
  if (!plan.trains) {
    if (plan.order.lists != forward_only(plan, plan.samples(), plan.order.micro_batches).order.lists)
      refuse(
          "the lists of a plan that does not train are not those of forward_only(plan, samples, micro_batches): "
          "make it so");
    return;
  }
  for (std::size_t g = 0; g < plan.order.lists.size(); ++g) {
    bool stepped = false;
    std::set<int> reduced;
    for (const instruction& step : plan.order.lists[g]) {
      if (step.kind == action::all_reduce) reduced.insert(step.stage);
      if ((step.kind == action::weight_gradient || step.kind == action::backward) && reduced.count(step.stage) == 1)
        refuse("list " + std::to_string(g) + " has " + to_string(step) +
               " behind the all-reduce of its gradients: reduce when the last of them is there");
      if (stepped && is_computation(step.kind))
        refuse("list " + std::to_string(g) + " has " + to_string(step) +
               " behind an optimizer's step: optimizers step when all computations of the list are done");
      stepped = stepped || step.kind == action::optimizer;
    }
  }
  const std::vector<std::string> faults = validate(plan.order);
  if (!faults.empty())
    refuse("the plan's schedule cannot be executed: " + faults.front() +
           (faults.size() > 1 ? " (and " + std::to_string(faults.size() - 1) + " more)" : std::string()));
}

/// Every number of rows that some replica gets must be one that its layers are compiled for.
inline void check_batches(const execution_plan& plan, const layer_model& model) {
  for (int s = 0; s < plan.order.stages(); ++s) {
    const int g = plan.group_of(s);
    const replica_group& group = plan.groups[as_index(g)];
    std::set<int> needed;
    for (int k = 0; k < plan.replicas(g); ++k)
      for (int m = 0; m < plan.order.micro_batches; ++m)
        if (const int rows = plan.rows_of(g, k, m).count(); rows > 0) needed.insert(rows);
    const layer_run run = plan.stages[as_index(s)];
    for (int l = run.first; l < run.last; ++l) {
      const std::vector<int>& compiled = model.facts(l).batches;
      for (int k = 0; k < plan.replicas(g); ++k)
        for (int m = 0; m < plan.order.micro_batches; ++m) {
          const int rows = plan.rows_of(g, k, m).count();
          if (rows == 0 || std::find(compiled.begin(), compiled.end(), rows) != compiled.end()) continue;
          refuse(
              "stage " + std::to_string(s) + " gives rank " + std::to_string(group.ranks[as_index(k * group.devices)]) +
              " " + std::to_string(rows) + " rows of micro-batch " + std::to_string(m) + ", but " +
              layer_text(model, l) + " is compiled for " + number_list(compiled) +
              ": choose other micro-batches or shares, or compile it for what this plan needs: " + number_list(needed));
        }
    }
  }
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Refuses a plan that cannot be executed with this model on so many ranks, before anything runs.
/// Throws std::invalid_argument with the values and what would do.
inline void check(const execution_plan& plan, const layer_model& model, int ranks) {
  if (model.layers() < 1) detail::refuse("a model without layers cannot be run");
  for (int mesh = 0; mesh < model.meshes(); ++mesh) detail::check_model(model, mesh);
  detail::check_stages(plan, model);
  detail::check_groups(plan, model, ranks);
  detail::check_order(plan);
  detail::check_batches(plan, model);
}

/// True where some stage's weight gradients are not added in the order of the micro-batches: sums of the same addends,
/// but rounded in another order, so that the last bits of a step may differ from those of other schedules.
[[nodiscard]] inline bool reorders_gradients(const schedule& order) {
  std::vector<int> next(order.rank_of.size(), 0);
  for (const auto& list : order.lists)
    for (const instruction& step : list)
      if (step.kind == action::weight_gradient || step.kind == action::backward)
        if (step.micro_batch != next[detail::as_index(step.stage)]++) return true;
  return false;
}

}  // namespace espalier::pipeline
