// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/evaluate.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/schedules/fill_gaps.hpp>
#include <espalier/pipeline/schedules/in_order.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

// The heuristic of Zero Bubble Pipeline Parallelism, section 3, one stage per rank. Rounds of one F and one B on every
// rank follow a warm-up; a W goes where a rank would wait at least as long, where the wait would make the rank the one
// that waited most, or where memory is needed.
class zb_rounds {
 public:
  struct options {
    bool delay_first_gradient = false;  // the warm-up takes all memory, even if the first B has to wait for that
    bool skip_forward = false;          // a rank three F ahead of the next one goes without one where B would wait
    bool every_gap = false;             // a W goes into every gap
  };

  zb_rounds(const schedule& empty, const costs& cost, activation_limits limits, options chosen)
      : plan_(empty), cost_(cost), limits_(std::move(limits)), options_(chosen), ranks_(cost.stages.size()) {
    const std::size_t cells = ranks_.size() * as_index(plan_.micro_batches);
    forward_.resize(cells);
    gradient_.resize(cells);
    plan_.lists.assign(ranks_.size(), {});
  }

  /// Nothing where the limits do not let it end.
  [[nodiscard]] std::optional<schedule> run() {
    if (!warm_up()) return std::nullopt;
    for (int round = 1; round < plan_.micro_batches; ++round)
      if (!forwards() || !gradients(round)) return std::nullopt;
    for (std::size_t j = 0; j < ranks_.size(); ++j)
      while (ranks_[j].weights < plan_.micro_batches) weights(j);
    return plan_;
  }

 private:
  struct rank_state {
    double now = 0;
    double idle = 0;
    double held = 0;
    int forwards = 0;
    int gradients = 0;
    int weights = 0;
  };

  [[nodiscard]] double way_down(std::size_t j) const {
    return cost_.hops.empty() ? 0.0 : cost_.hops[j].latency_seconds + cost_.hops[j].activation_seconds();
  }
  [[nodiscard]] double way_up(std::size_t j) const {
    return cost_.hops.empty() ? 0.0 : cost_.hops[j].latency_seconds + cost_.hops[j].gradient_seconds();
  }
  [[nodiscard]] double seconds(std::size_t j, action kind) const {
    return seconds_of({kind, static_cast<int>(j), 0}, plan_, cost_);
  }
  [[nodiscard]] double held_by(std::size_t j) const { return held_bytes(plan_, cost_, static_cast<int>(j)); }
  [[nodiscard]] double kept_by(std::size_t j) const { return cost_.stages[j].weight_gradient_bytes; }
  // Of the limit, what F may fill: a recomputed B needs the rest while it runs.
  [[nodiscard]] double room(std::size_t j) const {
    return limits_[j] - (plan_.recomputes(static_cast<int>(j)) ? cost_.stages[j].activation_bytes : 0.0);
  }
  [[nodiscard]] std::size_t cell(std::size_t j, int micro_batch) const {
    return j * as_index(plan_.micro_batches) + as_index(micro_batch);
  }
  [[nodiscard]] double forward_ready(std::size_t j) const {
    return j == 0 ? 0.0 : forward_[cell(j - 1, ranks_[j].forwards)] + way_down(j - 1);
  }
  [[nodiscard]] double gradient_ready(std::size_t j) const {
    return j + 1 == ranks_.size() ? 0.0 : gradient_[cell(j + 1, ranks_[j].gradients)] + way_up(j);
  }

  void wait_until(std::size_t j, double time) {
    rank_state& rank = ranks_[j];
    if (time <= rank.now) return;
    if (rank.forwards > 0) rank.idle += time - rank.now;
    rank.now = time;
  }
  void forward(std::size_t j) {
    rank_state& rank = ranks_[j];
    wait_until(j, forward_ready(j));
    rank.now += seconds(j, action::forward);
    rank.held += held_by(j);
    plan_.lists[j].push_back({action::forward, static_cast<int>(j), rank.forwards});
    forward_[cell(j, rank.forwards++)] = rank.now;
  }
  void gradient(std::size_t j) {
    rank_state& rank = ranks_[j];
    wait_until(j, gradient_ready(j));
    rank.now += seconds(j, action::input_gradient);
    rank.held += kept_by(j) - held_by(j);
    plan_.lists[j].push_back({action::input_gradient, static_cast<int>(j), rank.gradients});
    gradient_[cell(j, rank.gradients++)] = rank.now;
  }
  void weights(std::size_t j) {
    rank_state& rank = ranks_[j];
    rank.now += seconds(j, action::weight_gradient);
    rank.held -= kept_by(j);
    plan_.lists[j].push_back({action::weight_gradient, static_cast<int>(j), rank.weights++});
  }
  [[nodiscard]] bool has_weights(std::size_t j) const { return ranks_[j].weights < ranks_[j].gradients; }

  void fill(std::size_t j, double until) {
    const rank_state& rank = ranks_[j];
    while (has_weights(j) && rank.now + seconds(j, action::weight_gradient) <= until) weights(j);
    if (!has_weights(j) || rank.now >= until) return;
    double most = 0;
    for (const rank_state& other : ranks_) most = std::max(most, other.idle);
    if (options_.every_gap || rank.idle + until - rank.now > most) weights(j);
  }

  [[nodiscard]] bool make_room(std::size_t j) {
    while (ranks_[j].held + held_by(j) > room(j)) {
      if (!has_weights(j)) return false;
      weights(j);
    }
    return true;
  }

  // As many F as memory allows and as end before the first B can start; then the first B.
  [[nodiscard]] bool warm_up() {
    const std::size_t count = ranks_.size();
    for (std::size_t j = 0; j < count; ++j) {
      if (!make_room(j)) return false;
      forward(j);
    }
    std::vector<int> more(count, 0);
    double first_gradient = 0;  // when the one of the next rank ends
    for (std::size_t j = count; j-- > 0;) {
      double now = ranks_[j].now;
      if (j + 1 < count) {
        double held = ranks_[j].held;
        const double arrives = first_gradient + way_up(j);
        const double one = seconds(j, action::forward);
        while (1 + more[j] < plan_.micro_batches && held + held_by(j) <= room(j) &&
               (options_.delay_first_gradient || now + one <= arrives)) {
          held += held_by(j);
          now += one;
          ++more[j];
        }
        now = std::max(now, arrives);
      }
      first_gradient = now + seconds(j, action::input_gradient);
    }
    for (std::size_t j = 1; j < count; ++j)
      if (more[j] >= more[j - 1]) more[j] = std::max(0, more[j - 1] - 1);
    for (std::size_t j = 0; j < count; ++j)
      for (int i = 0; i < more[j]; ++i) forward(j);
    for (std::size_t j = count; j-- > 0;) gradient(j);
    return true;
  }

  // True where rank j, three F ahead of the next one, would let its next B wait for one more.
  [[nodiscard]] bool better_skipped(std::size_t j) const {
    if (!options_.skip_forward || j + 1 == ranks_.size() || ranks_[j].forwards < ranks_[j + 1].forwards + 3)
      return false;
    const double next = ranks_[j + 1].now + seconds(j + 1, action::input_gradient) + way_up(j);
    double held = ranks_[j].held + held_by(j);
    double now = ranks_[j].now;
    if (now >= next) return true;
    for (int w = ranks_[j].weights; held > room(j) && w < ranks_[j].gradients; ++w) {
      held -= kept_by(j);
      now += seconds(j, action::weight_gradient);
    }
    return now + seconds(j, action::forward) >= next;
  }

  [[nodiscard]] bool forwards() {
    const std::size_t count = ranks_.size();
    std::vector<bool> wanted(count);
    for (std::size_t j = 0; j < count; ++j) wanted[j] = ranks_[j].forwards < plan_.micro_batches && !better_skipped(j);
    for (std::size_t j = count - 1; j-- > 0;)
      if (wanted[j + 1] && ranks_[j].forwards <= ranks_[j + 1].forwards) wanted[j] = true;
    for (std::size_t j = 0; j < count; ++j) {
      if (!wanted[j]) continue;
      if (!make_room(j)) return false;
      if (j > 0) fill(j, forward_ready(j));
      forward(j);
    }
    return true;
  }

  [[nodiscard]] bool gradients(int round) {
    for (std::size_t j = ranks_.size(); j-- > 0;) {
      if (ranks_[j].forwards == round) {  // its F was skipped, and is needed now
        if ((j > 0 && ranks_[j - 1].forwards <= round) || !make_room(j)) return false;
        forward(j);
      }
      if (j + 1 < ranks_.size()) fill(j, gradient_ready(j));
      gradient(j);
    }
    return true;
  }

  schedule plan_;
  const costs& cost_;
  activation_limits limits_;
  options options_;
  std::vector<rank_state> ranks_;
  std::vector<double> forward_, gradient_;  // by rank and micro-batch: when they end
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The quantity that a search minimises: the time until the last rank ends, or the longest span of a rank, which counts
/// if ranks need not begin a step together.
enum class goal { makespan, span };

/// The zero-bubble heuristic (Zero Bubble Pipeline Parallelism, section 3) for one stage per rank and the costs and
/// memory of each: the best of all its settings. ZB-1p and ZB-2p of the paper are it with memory for `ranks` and 2
/// `ranks` micro-batches.
///
/// A schedule without lists where memory is too small for it.
[[nodiscard]] inline schedule zb_heuristic(int micro_batches, const costs& cost, goal wanted = goal::makespan,
                                           const std::vector<bool>& recomputed = {}) {
  const int ranks = static_cast<int>(cost.stages.size());
  detail::require_counts(ranks, 1, micro_batches);
  check(cost, ranks, ranks);
  schedule best;
  best.name = "zb_heuristic";
  best.micro_batches = micro_batches;
  best.rank_of = loop_placement(ranks, 1);
  best.recomputed = recomputed;
  schedule empty = best;
  empty.lists.resize(cost.stages.size());
  detail::evaluator timing(empty, cost);
  double least = std::numeric_limits<double>::infinity();
  for (int flags = 0; flags < 8; ++flags) {
    const detail::zb_rounds::options chosen{(flags & 4) != 0, (flags & 2) != 0, (flags & 1) != 0};
    std::optional<schedule> one = detail::zb_rounds(empty, cost, detail::limits_of(empty, cost), chosen).run();
    if (!one) continue;
    const auto measured = timing(one->lists);
    const double value = wanted == goal::span ? measured.longest_span : measured.makespan;
    if (!measured.complete || value >= least) continue;
    least = value;
    best = std::move(*one);
  }
  return best;
}

}  // namespace espalier::pipeline
