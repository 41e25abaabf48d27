// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// The bytes of activations that each rank may hold.
using activation_limits = std::vector<double>;

/// Returns the bytes that `cost` leaves each rank for activations, after its state; infinite if it sets no limit.
[[nodiscard]] inline activation_limits limits_of(const schedule& plan, const costs& cost) {
  activation_limits limits(plan.lists.size(), std::numeric_limits<double>::infinity());
  if (cost.memory_bytes.empty()) return limits;
  for (std::size_t r = 0; r < limits.size(); ++r) limits[r] = cost.memory_bytes[r] * (1 + 1e-12);
  for (std::size_t s = 0; s < plan.rank_of.size(); ++s) limits[as_index(plan.rank_of[s])] -= cost.stages[s].state_bytes;
  return limits;
}

// Runs lists whose W may be anywhere, and whose F and B may come earlier than listed: where a rank would wait,
// it does the next F or B of a stage whose operands are there, if it ends in time and never costs more memory than the
// limit; or a W. A W is also done to free memory for the next F. Ranks act in the order of their clocks.
class gap_filler {
 public:
  struct options {
    bool early = true;         // F and B may come earlier than listed
    bool largest_gap = false;  // a W also goes into a smaller gap, if that would make the rank the one that waited most
  };

  gap_filler(const schedule& plan, const costs& cost, activation_limits limits, options chosen)
      : plan_(plan), cost_(cost), limits_(std::move(limits)), options_(chosen), ranks_(plan.lists.size()) {
    const std::size_t cells = plan.rank_of.size() * as_index(plan.micro_batches);
    forward_.assign(cells, never);
    gradient_.assign(cells, never);
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (const instruction& step : plan.lists[r])
        if (step.kind != action::weight_gradient) {
          ranks_[r].left.push_back(step);
          if (step.kind == action::backward) ranks_[r].left.back().kind = action::input_gradient;
        }
    // The memory that a recomputed B takes while it runs has to stay free.
    for (std::size_t s = 0; s < plan.rank_of.size(); ++s)
      if (plan.recomputes(static_cast<int>(s))) {
        double& reserve = ranks_[as_index(plan.rank_of[s])].reserve;
        reserve = std::max(reserve, cost.stages[s].activation_bytes);
      }
  }

  /// Nothing where the limits do not let it end.
  [[nodiscard]] std::optional<schedule> run() {
    while (true) {
      const std::size_t r = next_rank(false);
      if (r != nowhere) {
        ranks_[r].asleep = !act(r, false);
        continue;
      }
      if (std::all_of(ranks_.begin(), ranks_.end(), [](const rank_state& rank) { return rank.left.empty(); })) break;
      if (!go_on()) return std::nullopt;
    }
    schedule filled = plan_;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      while (!ranks_[r].open.empty()) weights(ranks_[r]);
      filled.lists[r] = std::move(ranks_[r].list);
    }
    return filled;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  static constexpr double slack = 1e-9;  // relative: sums of equal durations in different orders
  static constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t view = 16;  // how far ahead an instruction may be that comes early

  struct rank_state {
    double now = 0;
    double idle = 0;
    double held = 0;
    double reserve = 0;
    bool asleep = false;           // until something that it may need is done on another rank
    bool tried = false;            // to go on when no rank could
    std::deque<instruction> left;  // F and B that are still to come
    std::deque<instruction> open;  // W whose B is done
    std::vector<instruction> list;
  };

  [[nodiscard]] std::size_t cell(const instruction& step) const {
    return as_index(step.stage) * as_index(plan_.micro_batches) + as_index(step.micro_batch);
  }
  [[nodiscard]] const stage_costs& of(const instruction& step) const { return cost_.stages[as_index(step.stage)]; }
  [[nodiscard]] double held_by(const instruction& step) const { return held_bytes(plan_, cost_, step.stage); }

  // Of the ranks that may have something to do, the one whose clock is least; or, of those that no rank will wake, the
  // next one that has not been tried.
  [[nodiscard]] std::size_t next_rank(bool stuck) const {
    std::size_t chosen = nowhere;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const rank_state& rank = ranks_[r];
      if (rank.left.empty() || (stuck ? rank.tried : rank.asleep)) continue;
      if (chosen == nowhere || rank.now < ranks_[chosen].now) chosen = r;
    }
    return chosen;
  }

  // All ranks wait: the first one that can, does something early, or a W.
  [[nodiscard]] bool go_on() {
    for (rank_state& rank : ranks_) rank.tried = false;
    for (std::size_t r = next_rank(true); r != nowhere; r = next_rank(true)) {
      ranks_[r].tried = true;
      if (!act(r, true)) continue;
      ranks_[r].asleep = false;
      return true;
    }
    return false;
  }

  void wake(int stage) {
    if (stage >= 0 && stage < plan_.stages()) ranks_[as_index(plan_.rank_of[as_index(stage)])].asleep = false;
  }

  // When the operands of an F or B are on its rank; `never` where that is not known yet.
  [[nodiscard]] double ready(const instruction& step) const {
    const std::size_t here = cell(step);
    const std::size_t stride = as_index(plan_.micro_batches);
    if (step.kind == action::forward)
      return step.stage == 0 ? 0.0 : forward_[here - stride] + way(step.stage - 1, true);
    if (forward_[here] == never) return never;
    return step.stage + 1 == plan_.stages() ? forward_[here] : gradient_[here + stride] + way(step.stage, false);
  }

  [[nodiscard]] double way(int hop, bool forward) const {
    if (cost_.hops.empty() || !crosses_after(plan_, hop)) return 0;
    const hop_costs& one = cost_.hops[as_index(hop)];
    return one.latency_seconds + (forward ? one.activation_seconds() : one.gradient_seconds());
  }

  // Whether an F, or a B that will need more for its W than it gives back, goes beyond the limit.
  [[nodiscard]] bool too_much(std::size_t r, const instruction& step) const {
    const rank_state& rank = ranks_[r];
    if (step.kind == action::forward) return rank.held + held_by(step) > limits_[r] - rank.reserve;
    const double during = plan_.recomputes(step.stage) ? of(step).activation_bytes : 0.0;
    return rank.held + std::max(during, of(step).weight_gradient_bytes - held_by(step)) > limits_[r];
  }

  void weights(rank_state& rank) {
    const instruction step = rank.open.front();
    rank.open.pop_front();
    rank.now += of(step).weight_gradient_seconds;
    rank.held -= of(step).weight_gradient_bytes;
    rank.list.push_back(step);
  }

  void run(std::size_t r, std::size_t position) {
    rank_state& rank = ranks_[r];
    const instruction step = rank.left[position];
    rank.left.erase(rank.left.begin() + static_cast<std::ptrdiff_t>(position));
    const double from = std::max(rank.now, ready(step));
    rank.idle += from - rank.now;
    rank.now = from + seconds_of(step, plan_, cost_);
    rank.list.push_back(step);
    if (step.kind == action::forward) {
      forward_[cell(step)] = rank.now;
      rank.held += held_by(step);
      wake(step.stage + 1);
    } else {
      gradient_[cell(step)] = rank.now;
      rank.held += of(step).weight_gradient_bytes - held_by(step);
      rank.open.push_back({action::weight_gradient, step.stage, step.micro_batch});
      wake(step.stage - 1);
    }
  }

  // An instruction after the next one that can run now and ends before `end`. An F must leave room for those before
  // it, counted as if each W followed its B.
  [[nodiscard]] std::size_t early(std::size_t r, double end) const {
    const rank_state& rank = ranks_[r];
    double held = rank.held;
    for (const instruction& step : rank.open) held -= of(step).weight_gradient_bytes;
    double most = held;  // of what the instructions so far hold
    const std::size_t count = std::min(view, rank.left.size());
    for (std::size_t i = 0; i < count; ++i) {
      const instruction& step = rank.left[i];
      if (i > 0 && first_of_its_kind(rank, i) && ready(step) <= rank.now * (1 + slack) &&
          rank.now + seconds_of(step, plan_, cost_) <= end * (1 + slack)) {
        const bool room =
            step.kind != action::forward || std::max(most, held) + held_by(step) <= limits_[r] - rank.reserve;
        if (room && !too_much(r, step)) return i;
      }
      held += step.kind == action::forward ? held_by(step) : -held_by(step);
      most = std::max(most, held);
    }
    return nowhere;
  }

  // Micro-batches of a stage stay in order.
  [[nodiscard]] static bool first_of_its_kind(const rank_state& rank, std::size_t position) {
    const instruction& step = rank.left[position];
    for (std::size_t i = 0; i < position; ++i)
      if (rank.left[i].kind == step.kind && rank.left[i].stage == step.stage) return false;
    return true;
  }

  // Does one thing on a rank; false where it can do nothing. `now_or_never`: no rank can go on otherwise.
  bool act(std::size_t r, bool now_or_never) {
    rank_state& rank = ranks_[r];
    if (rank.left.empty()) return false;
    const instruction& next = rank.left.front();
    if (too_much(r, next) && (next.kind == action::forward || !rank.open.empty())) {
      if (!rank.open.empty()) {
        weights(rank);
        return true;
      }
      return now_or_never && do_early(r, never);
    }
    const double from = ready(next);
    if (from == never) {
      if (!now_or_never) return false;
      if (do_early(r, never)) return true;
      if (rank.open.empty()) return false;
      weights(rank);
      return true;
    }
    if (from > rank.now * (1 + slack)) {
      if (do_early(r, from)) return true;
      if (!rank.open.empty() && worthwhile(rank, from)) {
        weights(rank);
        return true;
      }
    }
    run(r, 0);
    return true;
  }

  bool do_early(std::size_t r, double end) {
    if (!options_.early) return false;
    const std::size_t position = early(r, end);
    if (position == nowhere) return false;
    run(r, position);
    return true;
  }

  [[nodiscard]] bool worthwhile(const rank_state& rank, double from) const {
    if (rank.now + of(rank.open.front()).weight_gradient_seconds <= from * (1 + slack)) return true;
    if (!options_.largest_gap) return false;
    const double waited = rank.idle + from - rank.now;
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const rank_state& other) { return waited > other.idle; });
  }

  const schedule& plan_;
  const costs& cost_;
  activation_limits limits_;
  options options_;
  std::vector<rank_state> ranks_;
  std::vector<double> forward_, gradient_;  // by stage and micro-batch: when they end
};

/// `plan` with its B and W apart, its W moved and its F and B drawn forward to where ranks would wait, within `limits`.
[[nodiscard]] inline std::optional<schedule> fill_gaps(const schedule& plan, const costs& cost,
                                                       const activation_limits& limits,
                                                       gap_filler::options chosen = {}) {
  return gap_filler(plan, cost, limits, chosen).run();
}

}  // namespace espalier::pipeline::detail
