// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Which messages each rank waits for and starts in each of its instructions, and what a rank knows of the others when
/// it gets there.
///
/// A message stays in the sender's memory until the receiver has it. How many do so at once depends on how far the
/// receiver lags, which is bounded by what the sender has heard since: vector clocks, kept in a run of all lists
/// in which no instruction takes time, give that bound, so that buffers can be counted before the first step.
class flow {
 public:
  flow(const execution_plan& plan, const routes& paths, int ranks, int own) : plan_(&plan), routes_(&paths), own_(own) {
    group_.assign(as_index(ranks), -1);
    member_.assign(as_index(ranks), -1);
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (std::size_t k = 0; k < plan.groups[g].ranks.size(); ++k) {
        group_[as_index(plan.groups[g].ranks[k])] = static_cast<int>(g);
        member_[as_index(plan.groups[g].ranks[k])] = static_cast<int>(k);
      }
    sends_.assign(plan.stages.size() * plan.micro_batch_rows.size() * 2, false);
    for (const auto& list : plan.order.lists)
      for (const instruction& step : list)
        if (step.kind == action::send_activation || step.kind == action::send_gradient) sends_[cell(step)] = true;
    run(ranks);
  }

  [[nodiscard]] int group(int rank) const { return group_[as_index(rank)]; }
  [[nodiscard]] int member(int rank) const { return member_[as_index(rank)]; }
  [[nodiscard]] const std::vector<instruction>& list(int rank) const {
    return group(rank) < 0 ? nothing_to_do_ : plan_->order.lists[as_index(group(rank))];
  }
  /// Returns the messages that must have come before the instruction can run.
  [[nodiscard]] const std::vector<int>& waits(int rank, const instruction& step) const {
    switch (step.kind) {
      case action::forward:
      case action::receive_activation: return of(traffic::activation_in, rank, step);
      case action::input_gradient:
      case action::backward:
      case action::receive_gradient: return of(traffic::gradient_in, rank, step);
      default: return no_messages_;
    }
  }
  /// Returns the messages that the instruction sends; a computation sends its results if the list has no instruction
  /// for that.
  [[nodiscard]] const std::vector<int>& starts(int rank, const instruction& step) const {
    switch (step.kind) {
      case action::send_activation: return of(traffic::activation_out, rank, step);
      case action::send_gradient: return of(traffic::gradient_out, rank, step);
      case action::forward: return sends_[cell(step)] ? no_messages_ : of(traffic::activation_out, rank, step);
      case action::input_gradient:
      case action::backward: return sends_[cell(step)] ? no_messages_ : of(traffic::gradient_out, rank, step);
      default: return no_messages_;
    }
  }
  /// True where the receiver of a message surely has it when this rank begins instruction `index` and has waited.
  [[nodiscard]] bool has_arrived(int number, std::size_t index) const {
    const message& one = routes_->at(number);
    return known_[index][as_index(one.to)] > awaited_at_[as_index(number)];
  }

 private:
  [[nodiscard]] std::size_t cell(const instruction& step) const {
    const bool gradient = step.kind != action::forward && step.kind != action::send_activation;
    return (as_index(step.stage) * plan_->micro_batch_rows.size() + as_index(step.micro_batch)) * 2 +
           (gradient ? 1 : 0);
  }
  [[nodiscard]] const std::vector<int>& of(traffic kind, int rank, const instruction& step) const {
    return routes_->of(kind, step.stage, step.micro_batch, member(rank));
  }

  /// All ranks at once, none of which waits for anything but messages.
  void run(int ranks) {
    const auto count = as_index(ranks);
    std::vector<std::vector<int>> clock(count, std::vector<int>(count, 0));
    std::vector<std::vector<int>> sent(routes_->messages().size());  // the sender's clock
    awaited_at_.assign(routes_->messages().size(), -1);
    std::vector<std::size_t> next(count, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < ranks; ++rank)
        while (next[as_index(rank)] < list(rank).size() && advance(rank, next[as_index(rank)], clock, sent)) {
          ++next[as_index(rank)];
          moved = true;
        }
    }
    for (int rank = 0; rank < ranks; ++rank)
      if (next[as_index(rank)] < list(rank).size())
        throw std::invalid_argument(
            "the plan's ranks would wait for each other: rank " + std::to_string(rank) + " never gets what " +
            to_string(list(rank)[next[as_index(rank)]]) +
            " needs; a layer there reads what a later instruction of some list makes: change the order of the lists");
  }

  bool advance(int rank, std::size_t index, std::vector<std::vector<int>>& clock, std::vector<std::vector<int>>& sent) {
    const instruction& step = list(rank)[index];
    std::vector<int>& mine = clock[as_index(rank)];
    for (const int number : waits(rank, step))
      if (sent[as_index(number)].empty()) return false;
    for (const int number : waits(rank, step)) {
      const std::vector<int>& theirs = sent[as_index(number)];
      for (std::size_t k = 0; k < mine.size(); ++k) mine[k] = std::max(mine[k], theirs[k]);
      if (awaited_at_[as_index(number)] < 0) awaited_at_[as_index(number)] = static_cast<int>(index);
    }
    if (rank == own_) known_.push_back(mine);
    mine[as_index(rank)] = static_cast<int>(index) + 1;
    for (const int number : starts(rank, step)) sent[as_index(number)] = mine;
    return true;
  }

  const execution_plan* plan_;
  const routes* routes_;
  int own_;
  std::vector<int> group_, member_;      // by rank; -1: it has nothing to do
  std::vector<bool> sends_;              // by stage, micro-batch and direction: the list has an instruction for it
  std::vector<std::vector<int>> known_;  // by own instruction: how many of theirs other ranks have surely done
  std::vector<int> awaited_at_;          // by message: the receiver's instruction that has it
  std::vector<instruction> nothing_to_do_;
  std::vector<int> no_messages_;
};

}  // namespace espalier::pipeline::detail
