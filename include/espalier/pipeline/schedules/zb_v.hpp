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

  void forward(leg way) { add(action::forward, way, forwards_[way]++); }
  void input_gradient(leg way) {
    add(action::input_gradient, way, gradients_[way]);
    open_.push_back({way, gradients_[way]++});
  }
  void backward(leg way) { add(action::backward, way, gradients_[way]++); }
  /// W of the oldest B that has none yet; of this leg, if one is given.
  void weight_gradient() { finish(open_.begin()); }
  void weight_gradient(leg way) {
    finish(std::find_if(open_.begin(), open_.end(), [&](const pending& one) { return one.way == way; }));
  }

  [[nodiscard]] int forwards(leg way) const { return forwards_[way]; }
  [[nodiscard]] bool has_open() const { return !open_.empty(); }
  [[nodiscard]] bool has_open(leg way) const {
    return std::any_of(open_.begin(), open_.end(), [&](const pending& one) { return one.way == way; });
  }
  [[nodiscard]] std::vector<instruction> take() { return std::move(list_); }

 private:
  struct pending {
    leg way;
    int micro_batch;
  };

  void add(action kind, leg way, int micro_batch) {
    if (micro_batch < micro_batches_) list_.push_back({kind, stage_[way], micro_batch});
  }
  void finish(std::vector<pending>::iterator one) {
    add(action::weight_gradient, one->way, one->micro_batch);
    open_.erase(one);
  }

  std::array<int, 2> stage_;
  int micro_batches_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> gradients_{};
  std::vector<pending> open_;
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
    const auto both = [&](v_list::leg way) {
      list.input_gradient(way);
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
