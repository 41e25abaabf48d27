// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reducer.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace espalier::pipeline::detail {

/// target += source, both `count` elements.
inline void add_elements(dtype type, std::byte* target, const std::byte* source, std::int64_t count) {
  const std::array<comm::contribution, 2> parts{{{target, nullptr}, {source, nullptr}}};
  comm::detail::reduce_range(comm::reducer_of(type, reduction::sum), target, comm::contiguous_block(count), 0, count,
                             parts.data(), 2);
}

/// The parameters of one layer on this rank, and all that its layers add to them.
struct parameter_block {
  int owner = 0;
  std::unique_ptr<layer> stepper;  ///< the owner's object, where no stage of this rank has it
  layer* owner_object = nullptr;
  aligned_memory parameters;
  aligned_memory state;
  struct user {
    int layer = 0;
    aligned_memory gradients;
  };
  std::vector<user> users;  ///< layers of this rank, ascending; each adds to gradients of its own
  std::vector<int> ranks;  ///< all that have the same part of it; all that use it, where their meshes differ; ascending
  std::vector<int> groups;     ///< of the plan, that use it, ascending
  bool is_mixed = false;       ///< groups have different meshes: ranks have parts that are not the same
  bool is_saved_here = false;  ///< this rank's replica is the first that has it
  int stages_left = 0;         ///< of this rank, whose last W is still to come in this step
  bool reduced = false;        ///< the sum over ranks has begun
  bool stepped = false;
};

/// The blocks that the stages of one rank use.
class parameter_store {
 public:
  parameter_store(const execution_plan& plan, const layer_model& model, int rank)
      : model_(&model), mesh_(plan.mesh_of_rank(rank)) {
    for (int s = 0; s < plan.order.stages(); ++s) {
      const std::vector<int>& ranks = plan.group_at(s).ranks;
      const bool here = std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      const layer_run run = plan.stages[as_index(s)];
      if (here) runs_.push_back(run);
      for (int l = run.first; l < run.last; ++l)
        for (const int owner : model.facts(l).parameters_of) {
          if (here && find(owner) == nullptr) add(owner);
          if (here) find(owner)->users.push_back({l, aligned_memory(facts(owner).parameter_bytes)});
        }
    }
    for (parameter_block& block : blocks_) find_users(plan, block, rank);
    std::sort(blocks_.begin(), blocks_.end(),
              [](const parameter_block& a, const parameter_block& b) { return a.owner < b.owner; });
  }

  /// All ranks that use a layer's block, or one device's part of it, ascending. @pre they are on one mesh
  [[nodiscard]] static std::vector<int> users_of(const execution_plan& plan, const layer_model& model, int owner,
                                                 int device) {
    std::vector<int> ranks;
    for (int s = 0; s < plan.order.stages(); ++s)
      if (uses(plan.stages[as_index(s)], model, owner)) {
        const replica_group& group = plan.group_at(s);
        for (std::size_t k = as_index(device); k < group.ranks.size(); k += as_index(group.devices))
          ranks.push_back(group.ranks[k]);
      }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }
  [[nodiscard]] static bool uses(const layer_run& run, const layer_model& model, int owner) {
    for (int l = run.first; l < run.last; ++l) {
      const std::vector<int>& owners = model.facts(l).parameters_of;
      if (std::find(owners.begin(), owners.end(), owner) != owners.end()) return true;
    }
    return false;
  }

  /// Returns the facts of a layer on this rank's mesh.
  [[nodiscard]] const layer_facts& facts(int layer) const { return model_->facts(layer, mesh_); }
  [[nodiscard]] std::vector<parameter_block>& blocks() { return blocks_; }
  [[nodiscard]] const std::vector<parameter_block>& blocks() const { return blocks_; }
  [[nodiscard]] parameter_block* find(int owner) {
    for (parameter_block& block : blocks_)
      if (block.owner == owner) return &block;
    return nullptr;
  }
  [[nodiscard]] std::byte* gradients(int owner, int layer) {
    for (parameter_block::user& user : find(owner)->users)
      if (user.layer == layer) return user.gradients.data();
    return nullptr;
  }

  /// First values, once all layers of this rank exist.
  void initialise(replica_link& link) {
    for (parameter_block& block : blocks_) {
      if (block.owner_object == nullptr) {
        block.stepper = model_->make(block.owner, mesh_, link);
        block.owner_object = block.stepper.get();
      }
      block.owner_object->initialise(block.parameters.data(), block.state.data());
    }
  }
  void begin_step() {
    for (parameter_block& block : blocks_) {
      block.reduced = false;
      block.stepped = false;
      block.stages_left = static_cast<int>(std::count_if(
          runs_.begin(), runs_.end(), [&](const layer_run& run) { return uses(run, *model_, block.owner); }));
      const std::int64_t bytes = facts(block.owner).parameter_bytes;
      for (parameter_block::user& user : block.users)
        std::fill_n(user.gradients.data(), static_cast<std::size_t>(bytes), std::byte{0});
    }
  }
  /// Sums what this rank's layers added to a block: in the order of layers, whatever the order in which they ran.
  [[nodiscard]] std::byte* combine(parameter_block& block) const {
    std::byte* const sum = block.users.front().gradients.data();
    for (std::size_t u = 1; u < block.users.size(); ++u)
      for (const tensor_facts& one : facts(block.owner).parameters)
        add_elements(one.type, sum + one.offset, block.users[u].gradients.data() + one.offset, one.elements());
    return sum;
  }
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const parameter_block& block : blocks_)
      sum += (1 + static_cast<std::int64_t>(block.users.size())) * facts(block.owner).parameter_bytes +
             facts(block.owner).state_bytes;
    return sum;
  }

 private:
  void find_users(const execution_plan& plan, parameter_block& block, int rank) const {
    for (int s = 0; s < plan.order.stages(); ++s)
      if (uses(plan.stages[as_index(s)], *model_, block.owner)) block.groups.push_back(plan.group_of(s));
    std::sort(block.groups.begin(), block.groups.end());
    block.groups.erase(std::unique(block.groups.begin(), block.groups.end()), block.groups.end());
    const replica_group& first = plan.groups[as_index(block.groups.front())];
    const auto end = first.ranks.begin() + first.devices;
    block.is_saved_here = std::find(first.ranks.begin(), end, rank) != end;
    block.is_mixed = std::any_of(block.groups.begin(), block.groups.end(),
                                 [&](int g) { return plan.groups[as_index(g)].mesh != first.mesh; });
    if (!block.is_mixed) {
      block.ranks = users_of(plan, *model_, block.owner, plan.device_of(rank));
      return;
    }
    for (const int g : block.groups) {
      const std::vector<int>& ranks = plan.groups[as_index(g)].ranks;
      block.ranks.insert(block.ranks.end(), ranks.begin(), ranks.end());
    }
    std::sort(block.ranks.begin(), block.ranks.end());
  }
  void add(int owner) {
    parameter_block& block = blocks_.emplace_back();
    block.owner = owner;
    block.parameters = aligned_memory(facts(owner).parameter_bytes);
    block.state = aligned_memory(facts(owner).state_bytes);
  }

  const layer_model* model_;
  int mesh_;
  std::vector<parameter_block> blocks_;
  std::vector<layer_run> runs_;  ///< of this rank's stages
};

}  // namespace espalier::pipeline::detail
