// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/layer_sizes.hpp>
#include <espalier/pipeline/stages/plan/check_plan.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/tensor/core/partition/mesh_transfer.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// An activation that a stage reads and does not make. It comes from the last stage before it that has it, which may be
/// a reader as well: of a value that many stages read, one copy crosses to the next host and goes on from there. Its
/// gradient takes the same steps back, and each reader adds its own to what comes from the readers after it.
struct value_route {
  int layer = 0;       ///< whose output
  int from_stage = 0;  ///< the layer's own stage, or an earlier reader
  int to_stage = 0;
  bool local = false;  ///< the same ranks have both: nothing moves
  bool has_gradient = false;
  part needed = part::forward;  ///< the last part of the reading stage that reads it
  dtype type = dtype::f32;
};

/// A box of an activation, or of its gradient, that one rank sends another.
struct message {
  int route = 0;
  bool is_gradient = false;
  int micro_batch = 0;
  int from = 0;  ///< ranks
  int to = 0;
  int tag = 0;  ///< number among those of this pair
  /// The elements of the sender's buffer and their places in the receiver's; under way they are in the order of the
  /// box.
  comm::block box{};
};

/// The messages that a stage waits for, and those that it sends.
enum class traffic : std::uint8_t { activation_in, activation_out, gradient_in, gradient_out };

/// All that moves between stages in a step, which follows from the plan alone: every rank knows it of every other. A
/// value has a layout on the mesh of each stage that has it, and each device there its part of its replica's rows; what
/// moves from one to the other is what the layouts say.
class routes {
 public:
  routes(const execution_plan& plan, const layer_model& model) : plan_(&plan), model_(&model) {
    into_.resize(plan.stages.size());
    out_of_.resize(plan.stages.size());
    for (const replica_group& group : plan.groups) members_ = std::max(members_, group.ranks.size());
    find_routes();
    lists_.resize(plan.stages.size() * plan.micro_batch_rows.size() * members_ * 4);
    for (std::size_t r = 0; r < values_.size(); ++r)
      if (!values_[r].local) add_messages(static_cast<int>(r));
  }

  [[nodiscard]] const std::vector<value_route>& values() const { return values_; }
  [[nodiscard]] const value_route& value(int route) const { return values_[as_index(route)]; }
  [[nodiscard]] const std::vector<message>& messages() const { return messages_; }
  [[nodiscard]] const message& at(int number) const { return messages_[as_index(number)]; }
  /// Routes by the stage that reads, in the order of layers, and by the stage that makes them, in the order of readers.
  [[nodiscard]] const std::vector<int>& into(int stage) const { return into_[as_index(stage)]; }
  [[nodiscard]] const std::vector<int>& out_of(int stage) const { return out_of_[as_index(stage)]; }
  /// Numbers of the messages of one member of a stage's group for one micro-batch.
  [[nodiscard]] const std::vector<int>& of(traffic kind, int stage, int micro_batch, int member) const {
    return lists_[place(kind, stage, micro_batch, member)];
  }
  [[nodiscard]] std::int64_t bytes(const message& one) const {
    return one.box.elements() * size_of(value(one.route).type);
  }
  /// Returns the bytes of a reading device's buffer for its replica's rows.
  [[nodiscard]] std::int64_t incoming_bytes(int route, int rows) const {
    const value_route& one = value(route);
    return output_bytes(*model_, one.layer, plan_->mesh_of(one.to_stage), rows);
  }

 private:
  [[nodiscard]] std::size_t place(traffic kind, int stage, int micro_batch, int member) const {
    const std::size_t cell = as_index(stage) * plan_->micro_batch_rows.size() + as_index(micro_batch);
    return (cell * members_ + as_index(member)) * 4 + static_cast<std::size_t>(kind);
  }

  void find_routes() {
    std::map<int, std::vector<int>> stages_with;  // by layer: its own stage, then those that read it so far
    std::vector<int> stage_of(as_index(model_->layers()), 0);
    for (std::size_t s = 0; s < plan_->stages.size(); ++s)
      for (int l = plan_->stages[s].first; l < plan_->stages[s].last; ++l) stage_of[as_index(l)] = static_cast<int>(s);
    for (int s = 0; s < plan_->order.stages(); ++s) {
      std::map<int, value_route> read;  // by layer
      for (int l = plan_->stages[as_index(s)].first; l < plan_->stages[as_index(s)].last; ++l) {
        const layer_facts& facts = model_->facts(l, plan_->mesh_of(s));
        for (const input_facts& input : facts.inputs) {
          const int own = stage_of[as_index(input.layer)];
          if (own == s) continue;
          value_route& route = read[input.layer];
          route.layer = input.layer;
          route.to_stage = s;
          route.has_gradient = route.has_gradient || (plan_->trains && input.has_gradient);
          if (plan_->trains) route.needed = std::max(route.needed, last_part(facts, input.needed));
          route.type = model_->facts(input.layer).output.type;
        }
      }
      for (auto& [layer, route] : read) {
        std::vector<int>& holders = stages_with[layer];
        if (holders.empty()) holders.push_back(stage_of[as_index(layer)]);
        const auto here = std::find_if(holders.rbegin(), holders.rend(),
                                       [&](int holder) { return plan_->group_of(holder) == plan_->group_of(s); });
        route.local = here != holders.rend();
        route.from_stage = route.local ? *here : holders.back();
        holders.push_back(s);
        into_[as_index(s)].push_back(static_cast<int>(values_.size()));
        values_.push_back(route);
      }
    }
    // A value that a reader hands on has a gradient if it comes back with one.
    for (std::size_t r = values_.size(); r-- > 0;)
      for (value_route& before : values_)
        if (before.layer == values_[r].layer && before.to_stage == values_[r].from_stage)
          before.has_gradient = before.has_gradient || values_[r].has_gradient;
    for (std::size_t r = 0; r < values_.size(); ++r)
      out_of_[as_index(values_[r].from_stage)].push_back(static_cast<int>(r));
  }

  /// Returns the boxes of a value that the devices of a stage have, or are to have, device after device: if both stages
  /// have equally many devices and one layout, copies then go to the same device of another replica.
  [[nodiscard]] std::vector<held_box> parts_in(int stage, int layer, int m) const {
    const int group = plan_->group_of(stage);
    const replica_group& members = plan_->groups[as_index(group)];
    const mesh_shape mesh = model_->replica_mesh(members.mesh);
    std::vector<held_box> parts;
    for (int device = 0; device < members.devices; ++device)
      for (int replica = 0; replica < plan_->replicas(group); ++replica) {
        const row_interval rows = plan_->rows_of(group, replica, m);
        held_box part = held_shard(mesh, output_layout(*model_, layer, members.mesh, rows.count()), device,
                                   members.ranks[as_index(replica * members.devices + device)]);
        part.box.dim[0].start += rows.begin;
        parts.push_back(part);
      }
    return parts;
  }
  /// Micro-batches of as many rows have the same messages.
  void add_messages(int route) {
    std::map<int, std::pair<int, int>> known;  // by rows: from the first message to one after the last
    for (int m = 0; m < plan_->order.micro_batches; ++m) {
      const int begin = static_cast<int>(messages_.size());
      const auto [at, fresh] = known.try_emplace(plan_->micro_batch_rows[as_index(m)]);
      if (fresh) {
        add_messages(route, m);
        at->second = {begin, static_cast<int>(messages_.size())};
        continue;
      }
      for (int number = at->second.first; number < at->second.second; ++number) {
        message again = messages_[as_index(number)];
        again.micro_batch = m;
        add(again);
      }
    }
  }
  void add_messages(int route, int m) {
    const value_route& one = value(route);
    const std::vector<held_box> made = parts_in(one.from_stage, one.layer, m);
    const std::vector<held_box> read = parts_in(one.to_stage, one.layer, m);
    add_messages({route, false, m}, made, read);
    if (one.has_gradient) add_messages({route, true, m}, read, made);
  }
  void add_messages(message one, const std::vector<held_box>& from, const std::vector<held_box>& to) {
    for (const moved_piece& move : moved_pieces(from, to, from.front().buffer.rank)) {
      one.from = from[move.from].rank;
      one.to = to[move.to].rank;
      one.box = espalier::detail::block_of(move.box, from[move.from].buffer, to[move.to].buffer);
      add(one);
    }
  }
  [[nodiscard]] int member(int stage, int rank) const {
    const std::vector<int>& ranks = plan_->group_at(stage).ranks;
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  void add(message one) {
    const value_route& crossed = value(one.route);
    const int from = one.is_gradient ? crossed.to_stage : crossed.from_stage;
    const int to = one.is_gradient ? crossed.from_stage : crossed.to_stage;
    const traffic out = one.is_gradient ? traffic::gradient_out : traffic::activation_out;
    const traffic in = one.is_gradient ? traffic::gradient_in : traffic::activation_in;
    one.tag = tags_[{one.from, one.to}]++;
    lists_[place(out, from, one.micro_batch, member(from, one.from))].push_back(static_cast<int>(messages_.size()));
    lists_[place(in, to, one.micro_batch, member(to, one.to))].push_back(static_cast<int>(messages_.size()));
    messages_.push_back(one);
  }

  const execution_plan* plan_;
  const layer_model* model_;
  std::size_t members_ = 1;
  std::vector<value_route> values_;
  std::vector<std::vector<int>> into_, out_of_;
  std::vector<message> messages_;
  std::vector<std::vector<int>> lists_;
  std::map<std::pair<int, int>, int> tags_;
};

}  // namespace espalier::pipeline::detail
