// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/fill_gaps.hpp>
#include <espalier/pipeline/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

// Builds lists for any placement by doing, on each rank, what can be done now. Memory cannot lock it: an F is done only
// if the micro-batches under way on its rank, the oldest first, could still all end one after another in what is left
// (the banker's rule; gradients come back for old micro-batches first, so their order is the same on every rank).
class safe_greedy {
 public:
  enum class gaps : std::uint8_t { that_fit, largest, every };
  struct options {
    bool gradients_first = true;   // of F and B that are both ready
    bool deepest_first = true;     // of F of several stages: the last stage's, or the first one's
    gaps filled = gaps::that_fit;  // where W go
  };

  safe_greedy(const schedule& empty, const costs& cost, activation_limits limits, options chosen)
      : plan_(empty), cost_(cost), limits_(std::move(limits)), options_(chosen) {
    const std::size_t count = as_index(plan_.ranks());
    plan_.lists.assign(count, {});
    ranks_.resize(count);
    stages_.resize(plan_.rank_of.size());
    forward_.assign(plan_.rank_of.size() * as_index(plan_.micro_batches), never);
    gradient_ = forward_;
    for (std::size_t s = plan_.rank_of.size(); s-- > 0;) {
      rank_state& rank = ranks_[as_index(plan_.rank_of[s])];
      rank.stages.push_back(static_cast<int>(s));  // the last one first
      rank.left += 3 * plan_.micro_batches;
      if (plan_.recomputes(static_cast<int>(s))) rank.reserve = std::max(rank.reserve, cost.stages[s].activation_bytes);
    }
  }

  /// Nothing where a rank cannot hold one micro-batch.
  [[nodiscard]] std::optional<schedule> run() {
    while (true) {
      std::size_t chosen = ranks_.size();
      double earliest = never;
      bool done = true;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].left == 0) continue;
        done = false;
        if (ranks_[r].wakes < earliest) {
          earliest = ranks_[r].wakes;
          chosen = r;
        }
      }
      if (done) return plan_;
      if (chosen == ranks_.size()) return std::nullopt;
      decide(chosen);
    }
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct rank_state {
    double now = 0;
    double wakes = 0;  // when it looks for something to do
    double idle = 0;
    double held = 0;
    double reserve = 0;  // what a recomputed B takes while it runs
    int left = 0;
    std::vector<int> stages;
  };
  struct stage_state {
    int forwards = 0;
    int gradients = 0;
    int weights = 0;
  };

  [[nodiscard]] stage_state& at(int stage) { return stages_[as_index(stage)]; }
  [[nodiscard]] const stage_state& at(int stage) const { return stages_[as_index(stage)]; }
  [[nodiscard]] std::size_t cell(int stage, int micro_batch) const {
    return as_index(stage) * as_index(plan_.micro_batches) + as_index(micro_batch);
  }
  [[nodiscard]] double held_by(int stage) const { return held_bytes(plan_, cost_, stage); }
  [[nodiscard]] double kept_by(int stage) const { return cost_.stages[as_index(stage)].weight_gradient_bytes; }

  // When the operands of a stage's next F or B are on its rank.
  [[nodiscard]] double forward_ready(int stage) const {
    if (stage == 0) return 0;
    const double there = forward_[cell(stage - 1, at(stage).forwards)];
    return cost_.hops.empty() || !crosses_before(plan_, stage)
               ? there
               : there + cost_.hops[as_index(stage - 1)].activation_seconds() +
                     cost_.hops[as_index(stage - 1)].latency_seconds;
  }
  [[nodiscard]] double gradient_ready(int stage) const {
    const int m = at(stage).gradients;
    if (m >= at(stage).forwards) return never;
    const double own = forward_[cell(stage, m)];
    if (stage + 1 == plan_.stages()) return own;
    const double there = gradient_[cell(stage + 1, m)];
    return cost_.hops.empty() || !crosses_after(plan_, stage)
               ? there
               : there + cost_.hops[as_index(stage)].gradient_seconds() + cost_.hops[as_index(stage)].latency_seconds;
  }

  // Returns the bytes that micro-batch m holds of a stage, and those it will still need for it; with the next F of
  // `started` done.
  [[nodiscard]] std::pair<double, double> share(int stage, int m, int started) const {
    const stage_state& one = at(stage);
    if (one.weights > m) return {0, 0};
    if (one.gradients > m) return {kept_by(stage), 0};
    if (one.forwards > m || (stage == started && one.forwards == m)) return {held_by(stage), 0};
    return {0, held_by(stage)};
  }

  [[nodiscard]] bool safe(std::size_t r, int stage) const {
    const rank_state& rank = ranks_[r];
    double free = limits_[r] - rank.reserve - rank.held - held_by(stage);
    if (free < 0) return false;
    if (rank.stages.size() == 1) return true;
    int first = plan_.micro_batches;
    int last = at(stage).forwards;
    for (const int s : rank.stages) {
      first = std::min(first, at(s).weights);
      last = std::max(last, at(s).forwards - 1);
    }
    for (int m = first; m <= last; ++m) {
      double holds = 0;
      double needs = 0;
      for (const int s : rank.stages) {
        const auto [has, lacks] = share(s, m, stage);
        holds += has;
        needs += lacks;
      }
      if (needs > free) return false;
      free += holds;
    }
    return true;
  }

  void decide(std::size_t r) {
    rank_state& rank = ranks_[r];
    if (rank.wakes > rank.now) {
      rank.idle += rank.wakes - rank.now;
      rank.now = rank.wakes;
    }
    int forward = -1;
    int gradient = -1;
    int weights = -1;
    bool blocked = false;  // an F is ready, but memory is not
    double next = never;   // when something else will be ready
    for (const int s : rank.stages) {
      if (at(s).forwards < plan_.micro_batches) {
        const double ready = forward_ready(s);
        const bool fits_now = ready != never && safe(r, s);
        if (ready <= rank.now && !fits_now) blocked = true;
        if (fits_now && ready <= rank.now && (forward < 0 || !options_.deepest_first)) forward = s;
        if (fits_now && ready > rank.now) next = std::min(next, ready);
      }
      if (at(s).gradients < plan_.micro_batches) {
        const double ready = gradient_ready(s);
        if (ready <= rank.now && (gradient < 0 || at(s).gradients < at(gradient).gradients)) gradient = s;
        if (ready > rank.now) next = std::min(next, ready);
      }
      if (at(s).weights < at(s).gradients && (weights < 0 || at(s).weights < at(weights).weights)) weights = s;
    }
    // A recomputed B may leave more for its W than its F left for it.
    if (gradient >= 0 && weights >= 0 &&
        rank.held + std::max(rank.reserve, kept_by(gradient) - held_by(gradient)) > limits_[r])
      return run(r, action::weight_gradient, weights);
    if (gradient >= 0 && (options_.gradients_first || forward < 0)) return run(r, action::input_gradient, gradient);
    if (forward >= 0) return run(r, action::forward, forward);
    if (weights >= 0 && (blocked || worthwhile(rank, weights, next))) return run(r, action::weight_gradient, weights);
    rank.wakes = next;
  }

  [[nodiscard]] bool worthwhile(const rank_state& rank, int stage, double next) const {
    if (rank.now + cost_.stages[as_index(stage)].weight_gradient_seconds <= next * (1 + 1e-9)) return true;
    if (options_.filled != gaps::largest) return options_.filled == gaps::every;
    const double waited = rank.idle + next - rank.now;
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const rank_state& other) { return waited > other.idle; });
  }

  void run(std::size_t r, action kind, int stage) {
    rank_state& rank = ranks_[r];
    stage_state& one = at(stage);
    const int m = kind == action::forward          ? one.forwards++
                  : kind == action::input_gradient ? one.gradients++
                                                   : one.weights++;
    const instruction step{kind, stage, m};
    plan_.lists[r].push_back(step);
    rank.now += seconds_of(step, plan_, cost_);
    rank.wakes = rank.now;
    --rank.left;
    if (kind == action::forward) {
      rank.held += held_by(stage);
      forward_[cell(stage, m)] = rank.now;
      if (stage + 1 < plan_.stages() && at(stage + 1).forwards == m) wake(stage + 1, forward_ready(stage + 1));
    } else if (kind == action::input_gradient) {
      rank.held += kept_by(stage) - held_by(stage);
      gradient_[cell(stage, m)] = rank.now;
      if (stage > 0 && at(stage - 1).gradients == m) wake(stage - 1, gradient_ready(stage - 1));
    } else {
      rank.held -= kept_by(stage);
    }
  }

  void wake(int stage, double time) {
    rank_state& rank = ranks_[as_index(plan_.rank_of[as_index(stage)])];
    rank.wakes = std::max(rank.now, std::min(rank.wakes, time));
  }

  schedule plan_;
  const costs& cost_;
  activation_limits limits_;
  options options_;
  std::vector<rank_state> ranks_;
  std::vector<stage_state> stages_;
  std::vector<double> forward_, gradient_;  // by stage and micro-batch: when they end
};

}  // namespace espalier::pipeline::detail
