// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reduce.hpp>
#include <espalier/pipeline/stages/engine/reduce_gradients.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/layers/tensor_shard.hpp>
#include <espalier/pipeline/stages/messages/box_exchange.hpp>
#include <espalier/pipeline/stages/messages/transport.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/tensor/core/partition/mesh_transfer.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::pipeline::detail {

/// The sum of one block of gradients over replicas on different meshes, where the same rank of two replicas holds
/// different parts. Each tensor is cut into as many shares as there are ranks. The rank that has a share
/// gets it from every replica, from one of the ranks that hold it there, adds the contributions in the order of
/// replicas, and gives each rank the part of the sum that it needs.
class mesh_reduction final : public block_reduction {
 public:
  /// @param groups those of the plan that use the block, ascending; @param members their ranks, ascending
  mesh_reduction(const execution_plan& plan, const layer_model& model, int owner, const std::vector<int>& groups,
                 const std::vector<int>& members, int rank, int tag)
      : members_(members),
        self_(member(rank)),
        own_(&model.facts(owner, plan.mesh_of_rank(rank)).parameters),
        given_(members, self_, tag),
        sums_(members, self_, tag + 1) {
    for (const int g : groups) replicas_ += plan.replicas(g);
    parts_.resize(static_cast<std::size_t>(replicas_));
    std::vector<std::int64_t> used(members_.size(), 0);  // bytes of each member's shares so far
    for (std::size_t t = 0; t < own_->size(); ++t) add_tensor(plan, model, owner, groups, t, used);
    given_.finish();
    sums_.finish();
    shares_ = aligned_memory(used[self_]);
    bytes_ = given_.staging_bytes() + sums_.staging_bytes() + aligned_memory::rounded(used[self_]);
  }

  [[nodiscard]] std::int64_t staging_bytes() const override { return bytes_; }

  void start(transport& ranks, std::byte* gradients) override {
    gradients_ = gradients;
    is_summed_ = false;
    given_.receive(ranks);
    sums_.receive(ranks);
    given_.send(ranks, gradients_, shares_.data());
  }
  bool advance(transport& ranks) override {
    if (!is_summed_) {
      if (!given_.has_come(ranks, shares_.data())) return false;
      add();
      is_summed_ = true;
      sums_.send(ranks, shares_.data(), gradients_);
    }
    const bool has_come = sums_.has_come(ranks, gradients_);
    const bool has_gone = given_.has_gone(ranks);
    return sums_.has_gone(ranks) && has_come && has_gone;
  }

 private:
  /// The elements that this rank adds: contributions of `count` elements each, back to back from `begin`.
  struct share {
    dtype type;
    std::int64_t begin, count;
  };

  [[nodiscard]] std::size_t member(int rank) const {
    return static_cast<std::size_t>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
  }
  [[nodiscard]] static layout layout_of(const tensor_facts& tensor) {
    if (tensor.whole) return *tensor.whole;
    layout made;
    for (const std::int64_t extent : tensor.shape) made.shape.append(extent);
    made.placement = sharding::whole(made.shape.rank);
    return made;
  }
  /// A tensor's share of each member: an interval of its longest dimension.
  [[nodiscard]] std::vector<held_box> shares_of(const extents& shape) const {
    int longest = 0;
    for (int d = 1; d < shape.rank; ++d) longest = shape[d] > shape[longest] ? d : longest;
    const auto count = static_cast<std::int64_t>(members_.size());
    std::vector<held_box> all;
    for (std::int64_t k = 0; k < count; ++k) {
      held_box one{members_[static_cast<std::size_t>(k)], espalier::detail::whole_box(shape), shape};
      if (shape.rank > 0) {
        const std::int64_t begin = shape[longest] * k / count;
        one.buffer[longest] = shape[longest] * (k + 1) / count - begin;
        one.box.dim[longest] = {begin, one.buffer[longest]};
      }
      all.push_back(one);
    }
    return all;
  }

  void add_tensor(const execution_plan& plan, const layer_model& model, int owner, const std::vector<int>& groups,
                  std::size_t t, std::vector<std::int64_t>& used) {
    const auto facts = [&](int mesh) -> const tensor_facts& { return model.facts(owner, mesh).parameters[t]; };
    const dtype type = (*own_)[t].type;
    const std::int64_t element = size_of(type);
    const extents shape = layout_of((*own_)[t]).shape;
    const std::vector<held_box> shares = shares_of(shape);
    std::vector<std::int64_t> begin;  // of each member's contributions
    for (std::size_t k = 0; k < members_.size(); ++k) {
      begin.push_back(used[k]);
      used[k] = aligned_memory::rounded(used[k] + replicas_ * shares[k].buffer.elements() * element);
    }
    std::vector<held_box> readers;
    std::vector<std::int64_t> offsets;  // of the tensor in each reader's block
    std::int64_t number = 0;
    for (const int g : groups) {
      const replica_group& group = plan.groups[as_index(g)];
      for (int replica = 0; replica < plan.replicas(g); ++replica, ++number) {
        std::vector<held_box> holders;
        for (int device = 0; device < group.devices; ++device)
          holders.push_back(held_shard(model.replica_mesh(group.mesh), layout_of(facts(group.mesh)), device,
                                       group.ranks[as_index(replica * group.devices + device)]));
        for (const moved_piece& move : moved_pieces(holders, shares, shape.rank))
          given_.add(member(holders[move.from].rank), move.to, type,
                     espalier::detail::block_of(move.box, holders[move.from].buffer, shares[move.to].buffer),
                     facts(group.mesh).offset, begin[move.to] + number * shares[move.to].buffer.elements() * element);
        readers.insert(readers.end(), holders.begin(), holders.end());
        offsets.insert(offsets.end(), holders.size(), facts(group.mesh).offset);
      }
    }
    // The sums take the place of the first contributions.
    for (const moved_piece& move : moved_pieces(shares, readers, shape.rank))
      sums_.add(move.from, member(readers[move.to].rank), type,
                espalier::detail::block_of(move.box, shares[move.from].buffer, readers[move.to].buffer),
                begin[move.from], offsets[move.to]);
    const std::int64_t count = shares[self_].buffer.elements();
    if (count > 0) added_.push_back({type, begin[self_], count});
  }

  void add() {
    for (const share& one : added_) {
      std::byte* const first = shares_.data() + one.begin;
      for (std::size_t r = 0; r < parts_.size(); ++r)
        parts_[r] = {first + static_cast<std::int64_t>(r) * one.count * size_of(one.type), nullptr};
      comm::detail::reduce_range(comm::reducer_of(one.type, reduction::sum), first, comm::contiguous_block(one.count),
                                 0, one.count, parts_.data(), replicas_);
    }
  }

  std::vector<int> members_;
  std::size_t self_;
  const std::vector<tensor_facts>* own_;
  box_exchange given_, sums_;
  int replicas_ = 0;
  std::vector<share> added_;
  std::vector<comm::contribution> parts_;  // by replica
  aligned_memory shares_;
  std::int64_t bytes_ = 0;
  std::byte* gradients_ = nullptr;
  bool is_summed_ = false;
};

}  // namespace espalier::pipeline::detail
