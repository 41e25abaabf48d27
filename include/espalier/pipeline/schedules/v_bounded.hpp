// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/fill_gaps.hpp>
#include <espalier/pipeline/schedules/improve.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>
#include <espalier/pipeline/schedules/zb_v.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

// A micro-batch's way through a V, in slots that each hold one F, B or W of one stage; the next micro-batch follows six
// slots later. `step`: slots from one rank to the next, of F on the way down, F up, B down, B up; `turn`: slots from
// the end of each way to the start of the next. A rank's memory is proportional to what its stages wait between F and
// W, which is even over the ranks where step[0] + step[3] = step[1] + step[2], and then proportional to that sum
// (Pipeline Parallelism with Controllable Memory, section 3).
struct v_pattern {
  std::array<int, 4> step{};
  std::array<int, 3> turn{};

  // Slots of F down, F up, B down, B up of micro-batch 0.
  [[nodiscard]] std::array<int, 4> slots(int rank, int ranks) const {
    const int last = ranks - 1;
    const int up = last * step[0] + turn[0];
    const int back = up + last * step[1] + turn[1];
    const int home = back + last * step[2] + turn[2];
    return {rank * step[0], up + (last - rank) * step[1], back + rank * step[2], home + (last - rank) * step[3]};
  }

  // True where no rank has two things to do in one slot.
  [[nodiscard]] bool possible(int ranks) const {
    for (int r = 0; r < ranks; ++r) {
      std::array<bool, 6> taken{};
      for (const int slot : slots(r, ranks)) {
        bool& one = taken[as_index(slot % 6)];
        if (one) return false;
        one = true;
      }
    }
    return true;
  }

  // Each rank's F and B in the order of their slots.
  [[nodiscard]] schedule order(int ranks, int micro_batches) const {
    schedule plan;
    plan.micro_batches = micro_batches;
    plan.rank_of = v_placement(ranks, 2);
    for (int r = 0; r < ranks; ++r) {
      const std::array<int, 4> first = slots(r, ranks);
      const int back_up = 2 * ranks - 1 - r;
      std::vector<std::pair<int, instruction>> timed_list;
      for (int m = 0; m < micro_batches; ++m) {
        timed_list.push_back({first[0] + 6 * m, {action::forward, r, m}});
        timed_list.push_back({first[1] + 6 * m, {action::forward, back_up, m}});
        timed_list.push_back({first[2] + 6 * m, {action::input_gradient, back_up, m}});
        timed_list.push_back({first[3] + 6 * m, {action::input_gradient, r, m}});
      }
      std::sort(timed_list.begin(), timed_list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      auto& list = plan.lists.emplace_back();
      for (const auto& one : timed_list) list.push_back(one.second);
    }
    return plan;
  }
};

/// All possible patterns whose pairs of steps add up to `sum`.
[[nodiscard]] inline std::vector<v_pattern> v_patterns(int ranks, int sum) {
  std::vector<v_pattern> all;
  for (int down = 1; down < sum; ++down)
    for (int up = 1; up < sum; ++up)
      for (int code = 0; code < 6 * 6 * 6; ++code) {
        const v_pattern one{{down, up, sum - up, sum - down}, {code / 36 + 1, code / 6 % 6 + 1, code % 6 + 1}};
        if (one.possible(ranks)) all.push_back(one);
      }
  return all;
}

/// The same with every stage cut into `parts` neighbouring stages of its rank.
[[nodiscard]] inline schedule cut_stages(const schedule& plan, int parts) {
  schedule fine = plan;
  fine.rank_of.clear();
  for (const int rank : plan.rank_of)
    for (int part = 0; part < parts; ++part) fine.rank_of.push_back(rank);
  for (auto& list : fine.lists) {
    std::vector<instruction> longer;
    for (const instruction& step : list)
      for (int part = 0; part < parts; ++part) {
        const int place = step.kind == action::forward ? part : parts - 1 - part;
        longer.push_back({step.kind, step.stage * parts + place, step.micro_batch});
      }
    list = std::move(longer);
  }
  return fine;
}

// Of many patterns the best few are found on so many micro-batches that the pipeline is full for a while.
[[nodiscard]] inline int enough_micro_batches(int ranks, int micro_batches) {
  return std::min(micro_batches, 3 * ranks + 4);
}

// Whether an order of F and B keeps to the limits if every W follows its B at once.
[[nodiscard]] inline bool could_fit(const schedule& order, const costs& cost, const activation_limits& limits) {
  for (std::size_t r = 0; r < order.lists.size(); ++r) {
    std::vector<instruction> list = order.lists[r];
    for (instruction& step : list)
      if (step.kind == action::input_gradient) step.kind = action::backward;
    if (peak_of(list, order, cost) > limits[r]) return false;
  }
  return true;
}

// The same bytes, but F, B and W that take equally long and transfers that take no time, as a pattern's slots do: what
// fits into its gaps there keeps its rhythm, which is sometimes worth more than gaps that are filled to the brim.
[[nodiscard]] inline costs with_equal_durations(costs cost) {
  for (stage_costs& one : cost.stages)
    one.forward_seconds = one.input_gradient_seconds = one.weight_gradient_seconds = 1;
  cost.hops.clear();
  return cost;
}

/// The patterns with this sum that are fastest on these costs, each stage cut into `parts`, with their gaps filled: at
/// most `most`, the fastest first; none where none fits the limits.
[[nodiscard]] inline std::vector<schedule> best_v(int ranks, int parts, int micro_batches, const costs& cost,
                                                  const activation_limits& limits, const std::vector<bool>& recomputed,
                                                  int sum, std::size_t most) {
  struct ranked {
    double seconds;
    std::size_t number;
    schedule plan;
  };
  const auto in_order = [](const ranked& a, const ranked& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.number < b.number;
  };
  const std::vector<v_pattern> patterns = v_patterns(ranks, sum);
  const costs slots = with_equal_durations(cost);
  const auto filled = [&](std::size_t number, int count, std::vector<ranked>& plans) {
    schedule order = cut_stages(patterns[number].order(ranks, count), parts);
    order.recomputed = recomputed;
    if (!could_fit(order, cost, limits)) return;
    for (const costs* durations : {&cost, &slots}) {
      std::optional<schedule> plan = fill_gaps(order, *durations, limits);
      if (!plan) continue;
      const double seconds = quick_makespan(*plan, cost);
      if (seconds == evaluator::never) continue;
      plans.push_back({seconds, number, std::move(*plan)});
      std::sort(plans.begin(), plans.end(), in_order);
      if (plans.size() > most) plans.pop_back();
    }
  };
  const int few = enough_micro_batches(ranks, micro_batches);
  std::vector<ranked> best;
  for (std::size_t i = 0; i < patterns.size(); ++i) filled(i, few, best);
  if (few < micro_batches) {
    std::vector<ranked> whole;
    for (const ranked& one : best) filled(one.number, micro_batches, whole);
    best = std::move(whole);
  }
  std::vector<schedule> plans;
  for (ranked& one : best) plans.push_back(std::move(one.plan));
  return plans;
}

// Limits of so many halves of a micro-batch's activations on every rank; where that is too few, of one more, and so on.
// Local search improves the schedules that are found within them.
[[nodiscard]] inline schedule bounded_v(std::string name, int ranks, int micro_batches, const costs& cost, int sum,
                                        int halves) {
  require_counts(ranks, 2, micro_batches);
  check(cost, 2 * ranks, ranks);
  const std::vector<int> rank_of = v_placement(ranks, 2);
  costs limited = cost;
  for (;; ++halves) {
    // Costs such as no activations, but bytes for W, are no multiple of activations.
    const bool unlimited = halves > 2 * std::max(ranks, micro_batches);
    limited.memory_bytes.assign(unlimited ? 0 : as_index(ranks), 0.0);
    for (std::size_t s = 0; s < rank_of.size() && !unlimited; ++s)
      limited.memory_bytes[as_index(rank_of[s])] +=
          cost.stages[s].state_bytes + 0.5 * halves * cost.stages[s].activation_bytes;
    const activation_limits limits = limits_of(zb_v(ranks, 1), limited);
    std::vector<schedule> best = best_v(ranks, 1, micro_batches, cost, limits, {}, sum, 3);
    if (best.empty() && unlimited) throw std::logic_error(name + ": no order of its instructions ends");
    if (best.empty()) continue;
    schedule plan = improve(std::move(best.front()), limited, affordable(1000, ranks, 2, micro_batches));
    plan.name = std::move(name);
    return plan;
  }
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// V-Half (Pipeline Parallelism with Controllable Memory): two stages per rank, placed as a V; with F = B = W a bubble
/// smaller than that of 1F1B at about half its memory: `ranks` / 2 + 1 micro-batches on each rank.
/// @pre one entry of `cost.stages` for each of the 2 `ranks` stages
[[nodiscard]] inline schedule v_half(int ranks, int micro_batches, const costs& cost) {
  return detail::bounded_v("v_half", ranks, micro_batches, cost, 3, 2 * ((ranks + 1) / 2 + 1));
}

/// V-Min (the same paper): the least memory of this family, about a third of that of 1F1B: (`ranks` + 2) / 3
/// micro-batches on each rank. Slower than V-Half; where F, B and W differ much, slower than 1F1B.
/// @pre one entry of `cost.stages` for each of the 2 `ranks` stages
[[nodiscard]] inline schedule v_min(int ranks, int micro_batches, const costs& cost) {
  return detail::bounded_v("v_min", ranks, micro_batches, cost, 2, 2 * ((ranks + 4) / 3));
}

}  // namespace espalier::pipeline
