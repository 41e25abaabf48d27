// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/one_forward_one_backward.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/problem.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::pipeline::detail {

/// A partition of the model: which layers and devices each stage has.
struct candidate {
  struct stage {
    int first = 0;
    int last = 0;  ///< one after the last layer
    const stage_devices* devices = nullptr;
  };

  int micro_batches = 1;
  std::vector<stage> stages;
};

/// Returns the costs of a stage per micro-batch, with the least that its all-reduce and its optimizer can add; without
/// the hop after it.
inline line_stage stage_line(const planning_problem& problem, const candidate::stage& one, int micro_batches) {
  line_stage line;
  const double scale = problem.time_scale(micro_batches, one.devices->count);
  line.forward = scale * problem.sums().forward(one.first, one.last);
  line.backward = scale * problem.sums().backward(one.first, one.last);
  line.tail = problem.least_exposed_seconds(one.first, one.last, micro_batches, *one.devices) +
              problem.sums().optimizer(one.first, one.last);
  return line;
}

/// Sets what the hop in front of a stage costs, in the line of the stage before it.
inline void set_hop(const planning_problem& problem, const candidate::stage& after, int micro_batches,
                    line_stage& before) {
  const double bytes = problem.sums().input(after.first) * problem.micro_batch_scale(micro_batches);
  before.transfer = after.devices->transfer.per_byte * bytes;
  before.latency = after.devices->transfer.fixed;
}

/// A partition's exact step with 1F1B, and what had to be decided for it.
struct partition_step {
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<line_stage> line;  ///< with forwards that run again in `backward`
  std::vector<char> recomputed;  ///< by stage
};

/// Computes the step of partitions. Memory is a hard limit: where a stage cannot hold as many micro-batches as would be
/// best, it has fewer in flight, or keeps their inputs alone, whichever is faster for the whole pipeline.
class partition_evaluator {
 public:
  explicit partition_evaluator(const planning_problem& problem) : problem_(&problem) {}

  [[nodiscard]] long long evaluated() const { return evaluated_; }
  [[nodiscard]] const planning_problem& problem() const { return *problem_; }

  /// Infinity in `seconds` where the partition does not fit, or cannot be below `limit`.
  partition_step operator()(const candidate& partition, double limit = std::numeric_limits<double>::infinity()) {
    partition_step result;
    if (!prepare(partition) || step_bound(line_, partition.micro_batches) >= limit) return result;
    for (std::size_t s = 0; s < line_.size(); ++s) {
      const candidate::stage& one = partition.stages[s];
      line_[s].tail = problem_->exposed_seconds(one.first, one.last, partition.micro_batches, *one.devices) +
                      problem_->sums().optimizer(one.first, one.last);
    }
    ++evaluated_;
    choose(partition.micro_batches, result);
    return result;
  }

 private:
  struct limits {
    double forward = 0;
    double plain = 0;       ///< micro-batches that fit in flight
    double recomputed = 0;  ///< and if only their inputs are kept
  };

  bool prepare(const candidate& partition) {
    const int micro_batches = partition.micro_batches;
    const double memory = problem_->machines().memory_bytes * (1 + 1e-9);
    line_.clear();
    limits_.clear();
    for (const candidate::stage& one : partition.stages) {
      if (!line_.empty()) set_hop(*problem_, one, micro_batches, line_.back());
      line_.push_back(stage_line(*problem_, one, micro_batches));
      const int replicas = one.devices->count;
      const double state = problem_->state_bytes(one.first, one.last);
      const double activation = problem_->activation_bytes(one.first, one.last, micro_batches, replicas);
      const double input = problem_->input_bytes(one.first, micro_batches, replicas);
      if (state + activation > memory) return false;
      const auto fit = [&](double free, double each) {
        return each > 0 ? std::floor(free / each) : static_cast<double>(micro_batches);
      };
      limits_.push_back({line_.back().forward, fit(memory - state, activation),
                         // While one is computed again, it is there as a whole, in addition to the inputs.
                         std::max(1.0, fit(memory - state - activation, input))});
    }
    return true;
  }

  void choose(int micro_batches, partition_step& result) {
    set_in_flight(line_, micro_batches);
    std::vector<std::size_t> open;  // stages that hold too little for what they should have in flight
    for (std::size_t s = 0; s < line_.size(); ++s)
      if (limits_[s].plain < line_[s].in_flight) open.push_back(s);
    std::vector<char> again(line_.size(), 0);
    if (open.empty() || !problem_->asked().recompute) {
      attempt(micro_batches, again, result);
      return;
    }
    constexpr std::size_t most_tried = 4;
    if (open.size() <= most_tried) {
      for (std::size_t mask = 0; mask < std::size_t{1} << open.size(); ++mask) {
        for (std::size_t k = 0; k < open.size(); ++k) again[open[k]] = static_cast<char>(mask >> k & 1U);
        attempt(micro_batches, again, result);
      }
      return;
    }
    attempt(micro_batches, again, result);
    for (const std::size_t s : open) again[s] = 1;
    attempt(micro_batches, again, result);
    again = result.recomputed;  // the better of the two ends: change stages one at a time
    for (const std::size_t s : open) {
      const double before = result.seconds;
      again[s] = again[s] != 0 ? char{0} : char{1};
      attempt(micro_batches, again, result);
      if (!(result.seconds < before)) again[s] = again[s] != 0 ? char{0} : char{1};
    }
  }

  void attempt(int micro_batches, const std::vector<char>& again, partition_step& result) {
    tried_ = line_;
    for (std::size_t s = 0; s < tried_.size(); ++s)
      if (again[s] != 0) tried_[s].backward += limits_[s].forward;
    set_in_flight(tried_, micro_batches);
    bool lowered = false;
    for (std::size_t s = 0; s < tried_.size(); ++s) {
      const double most = again[s] != 0 ? limits_[s].recomputed : limits_[s].plain;
      if (!(most < tried_[s].in_flight)) continue;
      tried_[s].in_flight = static_cast<int>(most);
      lowered = true;
    }
    for (const int less : {0, 1}) {
      if (less == 1 && !lowered) return;
      limit_in_flight(tried_, less);
      const double seconds = clock_.seconds(tried_, micro_batches);
      if (seconds < result.seconds || result.line.empty()) {
        result.seconds = seconds;
        result.line = tried_;
        result.recomputed = again;
      }
    }
  }

  const planning_problem* problem_;
  one_forward_one_backward clock_;
  std::vector<line_stage> line_;
  std::vector<line_stage> tried_;
  std::vector<limits> limits_;
  long long evaluated_ = 0;
};

}  // namespace espalier::pipeline::detail
