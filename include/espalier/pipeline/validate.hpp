// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/costs.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/instruction.hpp>
#include <espalier/pipeline/simulate.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

// Finds the faults of one rank's list: each of its stages needs F, then B and W or both in one, once per micro-batch.
class list_check {
 public:
  list_check(const schedule& plan, int rank, std::vector<std::string>& faults)
      : plan_(plan), rank_(rank), faults_(faults), seen_(plan.rank_of.size() * as_index(plan.micro_batches)) {}

  void run() {
    for (const instruction& step : plan_.lists[as_index(rank_)])
      if (known(step) && is_computation(step.kind)) take(step);
    for (int s = 0; s < plan_.stages(); ++s) {
      if (plan_.rank_of[as_index(s)] != rank_) continue;
      for (int m = 0; m < plan_.micro_batches; ++m) {
        const done& one = at(s, m);
        if (!one.forward) missing({action::forward, s, m});
        if (!one.gradient) missing({action::input_gradient, s, m});
        if (!one.weights) missing({action::weight_gradient, s, m});
      }
    }
  }

 private:
  struct done {
    bool forward = false;
    bool gradient = false;
    bool weights = false;
  };

  [[nodiscard]] done& at(int stage, int micro_batch) {
    return seen_[as_index(stage) * as_index(plan_.micro_batches) + as_index(micro_batch)];
  }

  void fault(const std::string& sentence) { faults_.push_back("rank " + std::to_string(rank_) + " " + sentence); }
  void missing(const instruction& step) { fault("never does " + to_string(step)); }

  [[nodiscard]] bool known(const instruction& step) {
    const bool exists = step.stage >= 0 && step.stage < plan_.stages() && step.micro_batch >= 0 &&
                        step.micro_batch < plan_.micro_batches;
    if (!exists || plan_.rank_of[as_index(step.stage)] != rank_) {
      fault("does " + to_string(step) + (exists ? ", a stage of another rank" : ", which does not exist"));
      return false;
    }
    return true;
  }

  void take(const instruction& step) {
    done& one = at(step.stage, step.micro_batch);
    const auto once = [&](bool& flag) {
      if (flag) fault("does " + to_string(step) + " twice");
      flag = true;
    };
    if (step.kind == action::forward) {
      once(one.forward);
    } else if (step.kind == action::weight_gradient) {
      if (!one.gradient) fault("does " + to_string(step) + " before its B");
      once(one.weights);
    } else {
      if (!one.forward) fault("does " + to_string(step) + " before its F");
      once(one.gradient);
      if (step.kind == action::backward) once(one.weights);
    }
  }

  const schedule& plan_;
  int rank_;
  std::vector<std::string>& faults_;
  std::vector<done> seen_;
};

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Returns the faults of a schedule, one sentence each, and none if it is valid: every stage does F, B and W of every
/// micro-batch once, in this order, and no rank waits for ever.
[[nodiscard]] inline std::vector<std::string> validate(const schedule& plan) {
  std::vector<std::string> faults;
  for (std::size_t s = 0; s < plan.rank_of.size(); ++s)
    if (plan.rank_of[s] < 0 || plan.rank_of[s] >= plan.ranks())
      faults.push_back("stage " + std::to_string(s) + " is on rank " + std::to_string(plan.rank_of[s]) + " of " +
                       std::to_string(plan.ranks()));
  if (!plan.recomputed.empty() && plan.recomputed.size() != plan.rank_of.size())
    faults.push_back("it says of " + std::to_string(plan.recomputed.size()) +
                     " stages whether they are recomputed, of " + std::to_string(plan.rank_of.size()));
  if (plan.micro_batches < 0) faults.push_back("it has " + std::to_string(plan.micro_batches) + " micro-batches");
  if (!faults.empty()) return faults;
  for (int r = 0; r < plan.ranks(); ++r) detail::list_check(plan, r, faults).run();
  if (!faults.empty()) return faults;
  return simulate(plan, uniform_costs(plan.stages())).waiting;
}

/// The same, and that no rank holds more than `cost` lets it.
[[nodiscard]] inline std::vector<std::string> validate(const schedule& plan, const costs& cost) {
  std::vector<std::string> faults = validate(plan);
  if (!faults.empty()) return faults;
  check(cost, plan.stages(), plan.ranks());
  if (fits(plan, cost)) return faults;
  const std::vector<double> peaks = peak_bytes(plan, cost);
  for (std::size_t r = 0; r < peaks.size(); ++r)
    if (peaks[r] > cost.memory_bytes[r])
      faults.push_back("rank " + std::to_string(r) + " holds " + detail::short_number(peaks[r]) +
                       " bytes, its limit is " + detail::short_number(cost.memory_bytes[r]));
  return faults;
}

}  // namespace espalier::pipeline
