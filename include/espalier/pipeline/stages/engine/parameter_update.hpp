// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/communicator.hpp>
#include <espalier/pipeline/stages/engine/mesh_reduction.hpp>
#include <espalier/pipeline/stages/engine/parameters.hpp>
#include <espalier/pipeline/stages/engine/reduce_gradients.hpp>
#include <espalier/pipeline/stages/engine/stage_memory.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/measure/measured.hpp>
#include <espalier/pipeline/stages/messages/conversation.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Updates the parameters at the end of a step: the gradients of a block are summed over all ranks that use it, in the
/// background, as soon as the last of them is there; then its optimizer steps.
class parameter_update {
 public:
  /// Uses tags from `first_tag` on.
  parameter_update(const execution_plan& plan, const layer_model& model, parameter_store& store, transport& ranks,
                   int first_tag)
      : plan_(&plan), model_(&model), store_(&store), ranks_(&ranks), tags_end_(first_tag) {
    for (int owner = 0; owner < model.layers(); ++owner, tags_end_ += 2) {
      const parameter_block* block = store.find(owner);
      if (block == nullptr || block->ranks.size() < 2) continue;
      if (block->is_mixed) {
        reductions_.emplace_back(owner, std::make_unique<mesh_reduction>(plan, model, owner, block->groups,
                                                                         block->ranks, ranks.rank(), tags_end_));
      } else {
        reductions_.emplace_back(
            owner, std::make_unique<gradient_reduction>(store.facts(owner), block->ranks, ranks.rank(), tags_end_));
      }
    }
  }

  [[nodiscard]] int tags_end() const { return tags_end_; }
  [[nodiscard]] std::int64_t staging_bytes() const {
    std::int64_t sum = 0;
    for (const auto& one : reductions_) sum += one.second->staging_bytes();
    return sum;
  }

  /// The last gradient of a stage is there: blocks that no other stage of this rank will add to are reduced. `entry`:
  /// where in the timeline their end is to be noted.
  void reduce(int stage, std::size_t entry) {
    for (parameter_block& block : store_->blocks())
      if (uses(stage, block) && --block.stages_left == 0) start(block, entry);
  }
  /// Step `number` of a stage's optimizers, each when its gradients are reduced: `wait(done, text)` waits for that.
  template <class Wait> void optimise(int stage, std::int64_t number, const Wait& wait) {
    for (parameter_block& block : store_->blocks())
      if (!block.stepped && uses(stage, block)) optimise(block, number, wait);
  }
  /// Reduces and optimises the blocks for which the lists have no instruction.
  template <class Wait> void finish(std::int64_t number, std::size_t no_entry, const Wait& wait) {
    for (parameter_block& block : store_->blocks())
      if (block.stages_left > 0) {
        block.stages_left = 0;
        start(block, no_entry);
      }
    for (parameter_block& block : store_->blocks())
      if (!block.stepped) optimise(block, number, wait);
  }
  /// Lets reductions go on.
  void advance(std::vector<timed>& timeline) {
    for (std::size_t k = 0; k < running_.size();) {
      if (!running_[k].work->advance(*ranks_)) {
        ++k;
        continue;
      }
      running_[k].block->reduced = true;
      if (running_[k].entry < timeline.size()) timeline[running_[k].entry].end = seconds_now();
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

 private:
  struct running_reduction {
    parameter_block* block;
    block_reduction* work;
    std::size_t entry;
  };

  [[nodiscard]] bool uses(int stage, const parameter_block& block) const {
    return parameter_store::uses(plan_->stages[as_index(stage)], *model_, block.owner);
  }
  void start(parameter_block& block, std::size_t entry) {
    std::byte* const sum = store_->combine(block);
    block.reduced = block.ranks.size() == 1;
    if (block.reduced) return;
    for (auto& [owner, reduction] : reductions_)
      if (owner == block.owner) {
        reduction->start(*ranks_, sum);
        running_.push_back({&block, reduction.get(), entry});
      }
  }
  template <class Wait> void optimise(parameter_block& block, std::int64_t number, const Wait& wait) {
    wait([&] { return block.reduced; },
         [&] {
           return "the all-reduce of the gradients of " + layer_text(*model_, block.owner) + " over " +
                  comm::detail::list_ranks(block.ranks);
         });
    try {
      block.owner_object->step(block.parameters.data(), block.users.front().gradients.data(), block.state.data(),
                               number);
    } catch (const std::exception& error) {
      std::throw_with_nested(layer_failure(layer_text(*model_, block.owner) + ": " + error.what()));
    }
    block.stepped = true;
  }

  const execution_plan* plan_;
  const layer_model* model_;
  parameter_store* store_;
  transport* ranks_;
  int tags_end_;
  std::vector<std::pair<int, std::unique_ptr<block_reduction>>> reductions_;  // by owner of the block
  std::vector<running_reduction> running_;
};

}  // namespace espalier::pipeline::detail
