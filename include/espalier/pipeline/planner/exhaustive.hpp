// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/families.hpp>

#include <algorithm>

namespace espalier::pipeline::detail {

/// Looks at every partition of a given number of stages, with every division of the devices and every placement that
/// the policies offer; those that a lower bound rules out are left out in whole ranges.
class exhaustive_search {
 public:
  exhaustive_search(const planning_problem& problem, device_tree& tree, partition_evaluator& evaluate, families& found)
      : problem_(problem), tree_(tree), evaluate_(evaluate), families_(found) {}

  void run(int stages, int micro_batches) {
    stages_ = stages;
    partition_ = {};
    partition_.micro_batches = micro_batches;
    extend(device_tree::start, 0, {});
  }

  [[nodiscard]] long long partitions() const { return partitions_; }

 private:
  /// The terms that the stages so far add to any continuation: until the first micro-batch is through them, until the
  /// last gradient is back and reduced, and the step that they need at least.
  struct prefix {
    double fill = 0;
    double drain = 0;
    double bound = 0;
  };

  void extend(int state, int first, const prefix& before) {
    const int missing = stages_ - static_cast<int>(partition_.stages.size());
    const int left = tree_.left(state);
    for (int count = missing == 1 ? left : 1; count <= left - (missing - 1); ++count)
      for (const device_tree::step& step : tree_.steps(state, count)) extend_by(step, first, missing, before);
  }

  void extend_by(const device_tree::step& step, int first, int missing, const prefix& before) {
    const int micro_batches = partition_.micro_batches;
    const int layers = problem_.layers();
    const double memory = problem_.machines().memory_bytes * (1 + 1e-9);
    const double scale = problem_.time_scale(micro_batches, step.devices.count);
    const double hop =
        first == 0 ? 0.0
                   : step.devices.transfer(problem_.sums().input(first) * problem_.micro_batch_scale(micro_batches));
    const int left = tree_.left(step.next);
    partition_.stages.push_back({first, first, &step.devices});
    for (int last = missing == 1 ? layers : first + 1; last + missing - 1 <= layers; ++last) {
      ++partitions_;
      const double limit = families_.limit(stages_);
      const double forward = scale * problem_.sums().forward(first, last);
      const double backward = scale * problem_.sums().backward(first, last);
      const double work = micro_batches * (forward + backward);
      // More layers make this no smaller.
      if (before.fill + hop + work + before.drain + hop >= limit ||
          problem_.least_bytes(first, last, micro_batches, step.devices.count) > memory)
        break;
      prefix here;
      here.fill = before.fill + hop + forward;
      here.drain = before.drain + hop;
      here.drain = std::max(here.drain, problem_.least_exposed_seconds(first, last, micro_batches, step.devices));
      here.bound = std::max(before.bound, before.fill + hop + work + here.drain);
      here.drain += backward;
      if (here.bound >= limit) continue;
      partition_.stages.back().last = last;
      if (missing == 1) {
        families_.offer(evaluate_, partition_);
      } else if (here.fill + micro_batches * problem_.even_seconds(last, layers, micro_batches, left) + here.drain <
                 limit) {
        extend(step.next, last, here);
      }
    }
    partition_.stages.pop_back();
  }

  const planning_problem& problem_;
  device_tree& tree_;
  partition_evaluator& evaluate_;
  families& families_;
  int stages_ = 1;
  candidate partition_;
  long long partitions_ = 0;
};

}  // namespace espalier::pipeline::detail
