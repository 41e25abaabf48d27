// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/runtime/check_plan.hpp>
#include <espalier/pipeline/runtime/execution_plan.hpp>
#include <espalier/pipeline/runtime/layer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// An activation that one stage makes and a later one reads: straight from there, whatever lies between.
struct value_route {
  int layer = 0;  ///< whose output
  int from_stage = 0;
  int to_stage = 0;
  bool local = false;  ///< the same ranks have both: nothing moves
  bool has_gradient = false;
  part needed = part::forward;  ///< the last part of the reading stage that reads it
  std::int64_t row_bytes = 0;
};

/// Rows of an activation, or of its gradient, that one rank sends another.
struct message {
  int route = 0;
  bool is_gradient = false;
  int micro_batch = 0;
  int from = 0;  ///< ranks
  int to = 0;
  int tag = 0;  ///< number among those of this pair
  row_interval rows;
};

/// What a stage waits for and what it sends.
enum class traffic : std::uint8_t { activation_in, activation_out, gradient_in, gradient_out };

/// All that moves between stages in a step, which follows from the plan alone: every rank knows it of every other.
class routes {
 public:
  routes(const execution_plan& plan, const layer_model& model) : plan_(&plan) {
    into_.resize(plan.stages.size());
    out_of_.resize(plan.stages.size());
    for (const replica_group& group : plan.groups) members_ = std::max(members_, group.ranks.size());
    find_routes(model);
    lists_.resize(plan.stages.size() * plan.micro_batch_rows.size() * members_ * 4);
    for (std::size_t r = 0; r < values_.size(); ++r)
      if (!values_[r].local)
        for (int m = 0; m < plan.order.micro_batches; ++m) add_messages(static_cast<int>(r), m);
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
  [[nodiscard]] std::int64_t bytes(const message& one) const { return one.rows.count() * value(one.route).row_bytes; }

 private:
  [[nodiscard]] std::size_t place(traffic kind, int stage, int micro_batch, int member) const {
    const std::size_t cell = as_index(stage) * plan_->micro_batch_rows.size() + as_index(micro_batch);
    return (cell * members_ + as_index(member)) * 4 + static_cast<std::size_t>(kind);
  }

  void find_routes(const layer_model& model) {
    std::vector<int> stage_of(as_index(model.layers()), 0);
    for (std::size_t s = 0; s < plan_->stages.size(); ++s)
      for (int l = plan_->stages[s].first; l < plan_->stages[s].last; ++l) stage_of[as_index(l)] = static_cast<int>(s);
    for (int s = 0; s < plan_->order.stages(); ++s) {
      std::map<int, value_route> read;  // by layer
      for (int l = plan_->stages[as_index(s)].first; l < plan_->stages[as_index(s)].last; ++l) {
        const layer_facts& facts = model.facts(l);
        for (const input_facts& input : facts.inputs) {
          const int from = stage_of[as_index(input.layer)];
          if (from == s) continue;
          value_route& route = read[input.layer];
          route.layer = input.layer;
          route.from_stage = from;
          route.to_stage = s;
          route.local = plan_->group_of(from) == plan_->group_of(s);
          route.has_gradient = route.has_gradient || (plan_->trains && input.has_gradient);
          if (plan_->trains) route.needed = std::max(route.needed, last_part(facts, input.needed));
          route.row_bytes = model.facts(input.layer).output.bytes();
        }
      }
      for (const auto& [layer, route] : read) {
        into_[as_index(s)].push_back(static_cast<int>(values_.size()));
        values_.push_back(route);
      }
    }
    for (std::size_t r = 0; r < values_.size(); ++r)
      out_of_[as_index(values_[r].from_stage)].push_back(static_cast<int>(r));
  }

  /// The layouts of an activation are alike in all replicas: what a device needs of it, the same device of another
  /// replica has.
  void add_messages(int route, int m) {
    const value_route& one = value(route);
    const int producers = plan_->group_of(one.from_stage);
    const int readers = plan_->group_of(one.to_stage);
    for (int i = 0; i < plan_->replicas(producers); ++i)
      for (int j = 0; j < plan_->replicas(readers); ++j) {
        const row_interval rows = intersection(plan_->rows_of(producers, i, m), plan_->rows_of(readers, j, m));
        if (rows.count() == 0) continue;
        for (int device = 0; device < plan_->devices; ++device)
          add_messages(route, m, rows, i * plan_->devices + device, j * plan_->devices + device);
      }
  }
  void add_messages(int route, int m, const row_interval& rows, int producer, int reader) {
    const value_route& one = value(route);
    const auto rank = [&](int stage, int member) {
      return plan_->groups[as_index(plan_->group_of(stage))].ranks[as_index(member)];
    };
    message there{route, false, m, rank(one.from_stage, producer), rank(one.to_stage, reader), 0, rows};
    add(there, place(traffic::activation_out, one.from_stage, m, producer),
        place(traffic::activation_in, one.to_stage, m, reader));
    if (!one.has_gradient) return;
    message back = there;
    back.is_gradient = true;
    std::swap(back.from, back.to);
    add(back, place(traffic::gradient_out, one.to_stage, m, reader),
        place(traffic::gradient_in, one.from_stage, m, producer));
  }

  void add(message one, std::size_t sender, std::size_t receiver) {
    one.tag = tags_[{one.from, one.to}]++;
    lists_[sender].push_back(static_cast<int>(messages_.size()));
    lists_[receiver].push_back(static_cast<int>(messages_.size()));
    messages_.push_back(one);
  }

  const execution_plan* plan_;
  std::size_t members_ = 1;
  std::vector<value_route> values_;
  std::vector<std::vector<int>> into_, out_of_;
  std::vector<message> messages_;
  std::vector<std::vector<int>> lists_;
  std::map<std::pair<int, int>, int> tags_;
};

}  // namespace espalier::pipeline::detail
