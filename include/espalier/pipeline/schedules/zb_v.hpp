// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

// Writes the list of a rank that has two stages, on the way down the V and on the way back up; counts the micro-batches
// of each kind, and leaves out those that do not exist.
class v_list {
 public:
  enum leg : std::size_t { down, up };

  v_list(int rank, int ranks, int micro_batches) : stage_{rank, 2 * ranks - 1 - rank}, micro_batches_(micro_batches) {}

  void forward(leg direction) { add(action::forward, direction, forwards_[direction]++); }
  void input_gradient(leg direction) {
    add(action::input_gradient, direction, gradients_[direction]);
    open_.push_back({direction, gradients_[direction]++});
  }
  void backward(leg direction) { add(action::backward, direction, gradients_[direction]++); }
  /// W of the oldest B that has none yet; of this leg, if one is given.
  void weight_gradient() { finish(open_.begin()); }
  void weight_gradient(leg direction) {
    finish(
        std::find_if(open_.begin(), open_.end(), [&](const open_gradient& one) { return one.direction == direction; }));
  }

  [[nodiscard]] int forwards(leg direction) const { return forwards_[direction]; }
  [[nodiscard]] bool has_open() const { return !open_.empty(); }
  [[nodiscard]] bool has_open(leg direction) const {
    return std::any_of(open_.begin(), open_.end(),
                       [&](const open_gradient& one) { return one.direction == direction; });
  }
  [[nodiscard]] std::vector<instruction> take() { return std::move(list_); }

 private:
  struct open_gradient {
    leg direction;
    int micro_batch;
  };

  void add(action kind, leg direction, int micro_batch) {
    if (micro_batch < micro_batches_) list_.push_back({kind, stage_[direction], micro_batch});
  }
  void finish(std::vector<open_gradient>::iterator one) {
    add(action::weight_gradient, one->direction, one->micro_batch);
    open_.erase(one);
  }

  std::array<int, 2> stage_;
  int micro_batches_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> gradients_{};
  std::vector<open_gradient> open_;
  std::vector<instruction> list_;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// ZB-V (Zero Bubble Pipeline Parallelism, section 6): two stages per rank, placed as a V. Where F = B = W no rank
/// waits between its first F and its last W, at the memory of 1F1B: `ranks` micro-batches on each rank.
[[nodiscard]] inline schedule zb_v(int ranks, int micro_batches) {
  detail::require_counts(ranks, 2, micro_batches);
  using detail::v_list;
  schedule plan;
  plan.name = "zb_v";
  plan.micro_batches = micro_batches;
  plan.rank_of = v_placement(ranks, 2);
  // The pattern needs so many to fill the pipeline; of fewer, the rest is left out.
  const int count = std::max(2 * ranks - 1, micro_batches);
  for (int r = 0; r < ranks; ++r) {
    v_list list(r, ranks, micro_batches);
    const auto both = [&](v_list::leg direction) {
      list.input_gradient(direction);
      list.weight_gradient();
    };
    for (int i = 0; i < 2 * (ranks - r) - 1; ++i) list.forward(v_list::down);
    for (int i = 0; i < r; ++i) {
      list.forward(v_list::up);
      list.forward(v_list::down);
    }
    for (int i = 0; i < ranks - r; ++i) {
      list.forward(v_list::up);
      both(v_list::up);
    }
    while (list.forwards(v_list::down) < count || list.forwards(v_list::up) < count) {
      if (list.forwards(v_list::down) < count) list.forward(v_list::down);
      both(v_list::down);
      list.forward(v_list::up);
      both(v_list::up);
    }
    for (int i = 0; i < r; ++i) {
      list.input_gradient(v_list::down);
      list.input_gradient(v_list::up);
    }
    for (int i = 0; i < ranks - r; ++i) {
      list.input_gradient(v_list::down);
      list.weight_gradient(v_list::down);
    }
    while (list.has_open(v_list::up)) list.weight_gradient(v_list::up);
    while (list.has_open()) list.weight_gradient();
    plan.lists.push_back(list.take());
  }
  return plan;
}

}  // namespace espalier::pipeline
