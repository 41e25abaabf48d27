// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>
#include <espalier/pipeline/schedules/zb_v.hpp>

#include <stdexcept>
#include <string>

namespace espalier::pipeline {

/// DualPipeV (DeepSeek), its F and B one after another instead of overlapped: two stages per rank, placed as a V; B and
/// W are one except where the pipeline fills and drains. Throws std::invalid_argument for fewer micro-batches than
/// stages, which its pattern does not know.
[[nodiscard]] inline schedule dualpipe_v(int ranks, int micro_batches) {
  detail::require_counts(ranks, 2, micro_batches);
  if (micro_batches < 2 * ranks)
    throw std::invalid_argument("dualpipe_v on " + std::to_string(ranks) + " ranks needs at least " +
                                std::to_string(2 * ranks) + " micro-batches, there are " +
                                std::to_string(micro_batches) + ": use more, or zb_v");
  using detail::v_list;
  schedule plan;
  plan.name = "dualpipe_v";
  plan.micro_batches = micro_batches;
  plan.rank_of = v_placement(ranks, 2);
  for (int r = 0; r < ranks; ++r) {
    v_list list(r, ranks, micro_batches);
    const int below = ranks - 1 - r;
    for (int i = 0; i < 2 * below; ++i) list.forward(v_list::down);
    for (int i = 0; i <= r; ++i) {
      list.forward(v_list::down);
      list.forward(v_list::up);
    }
    for (int i = 0; i < below; ++i) {
      list.input_gradient(v_list::up);
      list.weight_gradient();
      list.forward(v_list::up);
    }
    for (int i = 0; i < micro_batches - 2 * ranks + r + 1; ++i) {
      list.forward(v_list::down);
      list.backward(v_list::up);
      list.forward(v_list::up);
      list.backward(v_list::down);
    }
    for (int i = 0; i < below; ++i) {
      list.backward(v_list::up);
      list.forward(v_list::up);
      list.backward(v_list::down);
    }
    // Half way through the last ones W is put off; which leg begins with that alternates from rank to rank.
    bool split = false;
    const auto gradient = [&](v_list::leg way) {
      if (split)
        list.input_gradient(way);
      else
        list.backward(way);
    };
    for (int i = 0; i <= r; ++i) {
      if (i == (r + 1) / 2 && r % 2 == 1) split = true;
      gradient(v_list::up);
      if (i == (r + 1) / 2 && r % 2 == 0) split = true;
      gradient(v_list::down);
    }
    for (int i = 0; i < below; ++i) {
      list.weight_gradient();
      list.input_gradient(v_list::down);
    }
    while (list.has_open()) list.weight_gradient();
    plan.lists.push_back(list.take());
  }
  return plan;
}

}  // namespace espalier::pipeline
