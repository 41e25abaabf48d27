// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/simulate.hpp>
#include <espalier/pipeline/transfers.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::pipeline::detail {

// How long lists of computations take, for searches that ask thousands of times: no events, since with links of full
// duplex everything a rank does depends on its own past and on what has been sent to it alone. The simulator gives the
// same numbers (a test compares them), and also serves half duplex.
class evaluator {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  struct outcome {
    bool complete = false;
    double makespan = never;
    double sum_of_ends = never;  // over ranks: of two orders with one makespan, which leaves more room
    double longest_span = never;
  };

  // One computation of a list, as timed by the last call.
  struct place {
    int rank = 0;
    int position = 0;
  };

  evaluator(const schedule& plan, const costs& cost)
      : rank_of_(plan.rank_of), micro_batches_(plan.micro_batches), stages_(plan.rank_of.size()) {
    for (std::size_t s = 0; s < stages_; ++s) {
      const int stage = static_cast<int>(s);
      for (const action kind : {action::forward, action::input_gradient, action::weight_gradient, action::backward})
        seconds_.push_back(seconds_of({kind, stage, 0}, plan, cost));
      all_reduce_.push_back(cost.stages[s].all_reduce_seconds);
      optimizer_.push_back(cost.stages[s].optimizer_seconds);
      hop_costs hop;
      if (!cost.hops.empty() && s + 1 < stages_) hop = cost.hops[s];
      has_tail_ = has_tail_ || all_reduce_.back() > 0 || optimizer_.back() > 0;
      hops_.push_back({hop.activation_seconds(), hop.gradient_seconds(), hop.latency_seconds});
    }
    ranks_ = plan.lists.size();
    const std::size_t cells = stages_ * as_index(micro_batches_);
    forward_.resize(cells);
    gradient_.resize(cells);
    forward_place_.resize(cells);
    gradient_place_.resize(cells);
    links_.resize(ranks_ * ranks_);
  }

  outcome operator()(const std::vector<std::vector<instruction>>& lists) {
    std::fill(forward_.begin(), forward_.end(), waited{});
    std::fill(gradient_.begin(), gradient_.end(), waited{});
    std::fill(links_.begin(), links_.end(), 0.0);
    clocks_.assign(ranks_, {});
    starts_.resize(ranks_);
    ready_.clear();
    for (std::size_t r = ranks_; r-- > 0;) {
      starts_[r].resize(lists[r].size());
      ready_.push_back(r);
    }
    while (!ready_.empty()) {
      const std::size_t r = ready_.back();
      ready_.pop_back();
      run_rank(r, lists[r]);
    }
    return summary(lists);
  }

  // When the computation at a place of the last lists started.
  [[nodiscard]] double start(place where) const { return starts_[as_index(where.rank)][as_index(where.position)]; }
  [[nodiscard]] double seconds(const instruction& step) const {
    return seconds_[4 * as_index(step.stage) + static_cast<std::size_t>(step.kind)];
  }

  // Returns the place of the instruction whose result `step` had to wait for: F of the stage before, B of the next
  // one, or its own F or B.
  [[nodiscard]] place source(const instruction& step) const {
    const std::size_t here = cell(step.stage, step.micro_batch);
    if (step.kind == action::forward) return forward_place_[here - as_index(micro_batches_)];
    if (step.kind == action::weight_gradient) return gradient_place_[here];
    const bool last = as_index(step.stage) + 1 == stages_;
    return last ? forward_place_[here] : gradient_place_[here + as_index(micro_batches_)];
  }

 private:
  struct waited {
    double end = never;      // on its own rank
    double arrival = never;  // on the rank that needs it
  };
  struct hop_seconds {
    double activation = 0;
    double gradient = 0;
    double latency = 0;
  };
  struct clock {
    double now = 0;
    double first = never;
    std::size_t next = 0;
    const waited* needs = nullptr;
  };

  [[nodiscard]] std::size_t cell(int stage, int micro_batch) const {
    return as_index(stage) * as_index(micro_batches_) + as_index(micro_batch);
  }

  // When all that `step` needs is on its rank; `clock.needs` is what it waits for where that is not known.
  [[nodiscard]] double earliest(const instruction& step, clock& at) {
    const std::size_t here = cell(step.stage, step.micro_batch);
    const std::size_t stride = as_index(micro_batches_);
    const waited* needed = nullptr;
    if (step.kind == action::forward) {
      if (step.stage == 0) return 0;
      needed = &forward_[here - stride];
    } else if (step.kind == action::weight_gradient) {
      return gradient_[here].end;
    } else {
      if (forward_[here].end == never) return never;
      if (as_index(step.stage) + 1 == stages_) return forward_[here].end;
      needed = &gradient_[here + stride];
    }
    at.needs = needed;
    return needed->arrival;
  }

  void run_rank(std::size_t r, const std::vector<instruction>& list) {
    clock& at = clocks_[r];
    while (at.next < list.size()) {
      const instruction& step = list[at.next];
      at.needs = nullptr;
      const double from = earliest(step, at);
      if (from == never) return;
      const double begin = std::max(at.now, from);
      starts_[r][at.next] = begin;
      at.first = std::min(at.first, begin);
      at.now = begin + seconds(step);
      const place where{static_cast<int>(r), static_cast<int>(at.next)};
      ++at.next;
      const std::size_t here = cell(step.stage, step.micro_batch);
      if (step.kind == action::forward) {
        forward_place_[here] = where;
        const std::size_t hop = as_index(step.stage);
        if (hop + 1 < stages_)
          hand_on(forward_[here], r, rank_of_[hop + 1], at.now, hops_[hop].activation, hops_[hop].latency);
        forward_[here].end = at.now;
      } else if (step.kind != action::weight_gradient) {
        gradient_place_[here] = where;
        if (step.stage > 0) {
          const std::size_t hop = as_index(step.stage - 1);
          hand_on(gradient_[here], r, rank_of_[hop], at.now, hops_[hop].gradient, hops_[hop].latency);
        }
        gradient_[here].end = at.now;
      }
    }
  }

  void hand_on(waited& value, std::size_t from, int target, double now, double transfer, double latency) {
    const std::size_t to = as_index(target);
    if (to == from) {
      value.arrival = now;
      return;
    }
    double& free = links_[from * ranks_ + to];
    free = std::max(free, now) + transfer;
    value.arrival = free + latency;
    if (clocks_[to].needs == &value) {
      clocks_[to].needs = nullptr;
      ready_.push_back(to);
    }
  }

  outcome summary(const std::vector<std::vector<instruction>>& lists) {
    outcome result{true, 0, 0, 0};
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (clocks_[r].next < lists[r].size()) return {};
      double end = clocks_[r].now;
      if (has_tail_) end = end_of_tail(r, lists[r]);
      result.makespan = std::max(result.makespan, end);
      result.sum_of_ends += end;
      if (!lists[r].empty()) result.longest_span = std::max(result.longest_span, end - clocks_[r].first);
    }
    return result;
  }

  // All-reduces start after the last gradient of each stage's weights, one after another; steps follow at the end.
  [[nodiscard]] double end_of_tail(std::size_t r, const std::vector<instruction>& list) {
    last_gradient_.clear();
    for (std::size_t i = list.size(); i-- > 0;) {
      const instruction& step = list[i];
      if (step.kind != action::weight_gradient && step.kind != action::backward) continue;
      const bool known = std::any_of(last_gradient_.begin(), last_gradient_.end(),
                                     [&](const tail& one) { return one.stage == as_index(step.stage); });
      if (!known) last_gradient_.push_back({as_index(step.stage), starts_[r][i] + seconds(step), 0});
    }
    double free = 0;
    for (std::size_t i = last_gradient_.size(); i-- > 0;) {
      tail& one = last_gradient_[i];
      one.reduced = free = std::max(free, one.end) + all_reduce_[one.stage];
    }
    double now = clocks_[r].now;
    for (std::size_t i = last_gradient_.size(); i-- > 0;)
      now = std::max(now, last_gradient_[i].reduced) + optimizer_[last_gradient_[i].stage];
    return now;
  }

  struct tail {
    std::size_t stage;
    double end;
    double reduced;
  };

  std::vector<int> rank_of_;
  int micro_batches_;
  std::size_t stages_;
  std::size_t ranks_ = 0;
  std::vector<double> seconds_;  // by stage: F, B, W, BW
  std::vector<double> all_reduce_, optimizer_;
  std::vector<hop_seconds> hops_;
  bool has_tail_ = false;
  std::vector<waited> forward_, gradient_;  // by stage and micro-batch
  std::vector<place> forward_place_, gradient_place_;
  std::vector<double> links_;  // by sender and receiver: when it is free
  std::vector<clock> clocks_;
  std::vector<std::vector<double>> starts_;
  std::vector<std::size_t> ready_;
  std::vector<tail> last_gradient_;
};

/// True where any link carries one transfer at a time only.
[[nodiscard]] inline bool has_half_duplex(const costs& cost) {
  return std::any_of(cost.hops.begin(), cost.hops.end(), [](const hop_costs& hop) { return hop.mode == duplex::half; });
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// `simulate(plan, cost).makespan`, some ten times faster where all links are full duplex; infinite for a deadlock.
/// @pre only_computations(plan), and the costs belong to it
[[nodiscard]] inline double quick_makespan(const schedule& plan, const costs& cost) {
  if (detail::has_half_duplex(cost)) {
    const simulation run = simulate(plan, cost);
    return run.complete ? run.makespan : detail::evaluator::never;
  }
  return detail::evaluator(plan, cost)(plan.lists).makespan;
}

}  // namespace espalier::pipeline
