// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/families.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Partitions of more stages than can be searched exhaustively. Stages are added one after the other; of the beginnings
/// that cover the same layers with as many devices, a few are kept: those whose step would be shortest if the rest were
/// divided evenly. Completed ones are evaluated exactly.
class beam_search {
 public:
  beam_search(const planning_problem& problem, device_tree& tree, partition_evaluator& evaluate, families& found)
      : problem_(problem), tree_(tree), evaluate_(evaluate), families_(found), width_(width_for(tree.hosts())) {}

  /// Searches partitions of `least` to `most` stages; ends when a few more stages have brought nothing.
  void run(int least, int most, int micro_batches) {
    micro_batches_ = micro_batches;
    levels_.assign(1, {beginning{}});
    int idle = 0;
    double best = std::numeric_limits<double>::infinity();
    for (int stages = 1; stages <= most && idle < patience; ++stages) {
      if (stages >= least && stages > 1) {
        complete(stages);
        const double now = families_.limit(stages);
        idle = now < best ? 0 : idle + 1;
        best = std::min(best, now);
      }
      if (stages < most) extend();
      if (levels_.back().empty()) return;
    }
  }

  [[nodiscard]] long long partitions() const { return partitions_; }

 private:
  /// How many times as many beginnings are kept: where hosts are not alike, it also matters which devices are left.
  [[nodiscard]] static std::size_t width_for(const host_order& hosts) {
    if (hosts.alike()) return 1;
    return hosts.are_few() ? 8 : 2;
  }

  static constexpr std::size_t kept_alike = 3;
  static constexpr std::size_t completed = 6;
  static constexpr int patience = 3;
  // Worse beginnings than this, against the best plan so far, do not become the best of their number of stages.
  static constexpr double slack = 1.25;

  struct beginning {
    int state = device_tree::start;
    int last = 0;
    std::size_t parent = 0;  ///< in the level before
    const stage_devices* devices = nullptr;
    double fill = 0;
    double drain = 0;
    double longest = 0;  ///< seconds per micro-batch of the slowest stage
    double estimate = 0;
  };

  [[nodiscard]] static std::size_t index(int k) { return static_cast<std::size_t>(k); }

  /// `from` with a stage of the layers up to `last` more. `estimate` is infinite where it does not fit.
  [[nodiscard]] beginning with_stage(const beginning& from, std::size_t parent, const device_tree::step& step,
                                     int last) const {
    beginning next{step.next, last, parent, &step.devices, 0, 0, 0, std::numeric_limits<double>::infinity()};
    const int first = from.last;
    const int count = step.devices.count;
    if (problem_.least_bytes(first, last, micro_batches_, count) > problem_.machines().memory_bytes * (1 + 1e-9))
      return next;
    const double scale = problem_.time_scale(micro_batches_, count);
    const double forward = scale * problem_.sums().forward(first, last);
    const double backward = scale * problem_.sums().backward(first, last);
    const double bytes = problem_.sums().input(first) * problem_.micro_batch_scale(micro_batches_);
    const double hop = first == 0 ? 0.0 : step.devices.transfer(bytes);
    const double reduced = problem_.least_exposed_seconds(first, last, micro_batches_, step.devices);
    next.fill = from.fill + hop + forward;
    next.drain = std::max(from.drain + hop, reduced) + backward;
    next.longest =
        std::max({from.longest, forward + backward, first == 0 ? 0.0 : step.devices.transfer.per_byte * bytes});
    const int left = tree_.left(step.next);
    const double rest = left == 0 ? 0.0 : problem_.even_seconds(last, problem_.layers(), micro_batches_, left);
    next.estimate = next.fill + next.drain + (micro_batches_ - 1) * std::max(next.longest, rest) + rest;
    return next;
  }

  void extend() {
    const std::vector<beginning>& from = levels_.back();
    const int layers = problem_.layers();
    const int devices = problem_.machines().devices();
    std::vector<std::vector<beginning>> alike(index(layers) * index(devices));
    const double limit = slack * families_.best_seconds();
    for (std::size_t p = 0; p < from.size(); ++p) {
      const int left = tree_.left(from[p].state);
      for (int count = 1; count < left; ++count)
        for (const device_tree::step& step : tree_.steps(from[p].state, count))
          for (int last = from[p].last + 1; last < layers; ++last) {
            ++partitions_;
            beginning next = with_stage(from[p], p, step, last);
            if (micro_batches_ * next.longest > limit || next.estimate == std::numeric_limits<double>::infinity())
              break;
            if (next.estimate > limit) continue;
            keep(alike[index(last) * index(devices) + index(left - count)], next);
          }
    }
    std::vector<beginning> level;
    for (std::vector<beginning>& some : alike) level.insert(level.end(), some.begin(), some.end());
    levels_.push_back(std::move(level));
  }

  void keep(std::vector<beginning>& some, const beginning& next) const {
    if (some.size() == width_ * kept_alike && !(next.estimate < some.back().estimate)) return;
    if (some.size() == width_ * kept_alike) some.pop_back();
    const auto better = [](const beginning& a, const beginning& b) { return a.estimate < b.estimate; };
    some.insert(std::upper_bound(some.begin(), some.end(), next, better), next);
  }

  /// Gives all that is left to one more stage, and evaluates the most promising.
  void complete(int stages) {
    const std::vector<beginning>& from = levels_.back();
    std::vector<beginning> whole;
    for (std::size_t p = 0; p < from.size(); ++p)
      for (const device_tree::step& step : tree_.steps(from[p].state, tree_.left(from[p].state))) {
        const beginning last = with_stage(from[p], p, step, problem_.layers());
        if (last.estimate < std::numeric_limits<double>::infinity()) whole.push_back(last);
      }
    const auto better = [](const beginning& a, const beginning& b) { return a.estimate < b.estimate; };
    const std::size_t some = std::min(width_ * completed, whole.size());
    std::partial_sort(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(some), whole.end(), better);
    for (std::size_t k = 0; k < some; ++k) families_.offer(evaluate_, partition(whole[k], stages));
  }

  [[nodiscard]] candidate partition(const beginning& whole, int stages) const {
    candidate made;
    made.micro_batches = micro_batches_;
    made.stages.resize(index(stages));
    const beginning* at = &whole;
    for (std::size_t s = made.stages.size(); s-- > 0;) {
      const beginning& before = levels_[s][at->parent];
      made.stages[s] = {before.last, at->last, at->devices};
      at = &before;
    }
    return made;
  }

  const planning_problem& problem_;
  device_tree& tree_;
  partition_evaluator& evaluate_;
  families& families_;
  std::size_t width_;
  int micro_batches_ = 1;
  std::vector<std::vector<beginning>> levels_;
  long long partitions_ = 0;
};

}  // namespace espalier::pipeline::detail
