// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/pipeline/latency.hpp>
#include <espalier/pipeline/profile.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// The evaluator of the speed-ups that DAPPLE prints (its Table 6 and Figure 12), with its constants and its fault,
// so that plans can be compared in the numbers that were published. Nothing else uses it.

namespace espalier::pipeline {

/// A stage of a published plan.
struct published_stage {
  int first = 0;
  int last = 0;              ///< one after the stage's last layer
  std::vector<int> devices;  ///< ascending
};

/// The setting that a published speed-up is for.
struct published_setting {
  double global_batch = 1;
  double micro_batch = 1;             ///< samples; each replica of a stage gets its share of them, be it less than one
  std::vector<int> host_ends{8, 16};  ///< one after each host's last device; devices beyond belong to no host
  bool layer_twice = true;  ///< the published evaluator counts the first layer of a stage in the stage before it, too
  double gigabyte_point_to_point = 1;  ///< bandwidths between hosts, GB/s: of a transfer into one host,
  double gigabyte_collective = 3;      ///< of an all-reduce and of a transfer into several hosts,
  double gigabyte_inside = 25;         ///< and inside a host

  [[nodiscard]] int micro_batches() const { return static_cast<int>(std::floor(global_batch / micro_batch)); }
};

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

/// The costs of transfers and computations in the published evaluator.
class published_costs {
 public:
  published_costs(const profile& model, const published_setting& setting)
      : sums_(model), setting_(setting), scale_(setting.global_batch / model.batch) {
    if (setting.micro_batches() < 1)
      throw std::invalid_argument("a global batch of " + std::to_string(setting.global_batch) +
                                  " samples holds no micro-batch of " + std::to_string(setting.micro_batch));
  }

  [[nodiscard]] int layers() const { return sums_.layers(); }
  /// Returns the seconds of the whole batch on one device.
  [[nodiscard]] double one_device() const { return scale_ * sums_.seconds(0, layers()); }

  /// One micro-batch in the stage [first, last): half of it is taken to be its forward, half its backward.
  [[nodiscard]] double block(int first, int last, int replicas) const {
    return scale_ * sums_.seconds(first, counted(last)) / replicas / setting_.micro_batches();
  }

  [[nodiscard]] double all_reduce(int first, int last, const std::vector<int>& devices) const {
    const auto count = static_cast<double>(devices.size());
    if (count < 2) return 0;
    const double moved = 2 * (count - 1) / count * sums_.parameter(first, counted(last)) / 1e9;
    return on_one_host(devices, devices) ? moved / setting_.gigabyte_inside / std::floor(count / 2)
                                         : moved / setting_.gigabyte_collective;
  }

  /// One micro-batch across the cut before layer `first`.
  [[nodiscard]] double transfer(int first, const std::vector<int>& from, const std::vector<int>& to) const {
    const double moved = scale_ * sums_.input(first) / setting_.micro_batches() / 1e9;
    if (!on_one_host(to, to))
      return moved / (on_one_host(from, to) ? setting_.gigabyte_inside : setting_.gigabyte_collective);
    double elsewhere = 0;
    for (const int device : from) elsewhere += on_one_host({device}, to) ? 0 : 1;
    return elsewhere > 0 ? moved * elsewhere / static_cast<double>(from.size()) / setting_.gigabyte_point_to_point
                         : moved / setting_.gigabyte_inside;
  }

 private:
  [[nodiscard]] int counted(int last) const { return setting_.layer_twice ? std::min(last + 1, sums_.layers()) : last; }

  [[nodiscard]] bool on_one_host(const std::vector<int>& some, const std::vector<int>& others) const {
    const int lowest = std::min(some.front(), others.front());
    const int highest = std::max(some.back(), others.back());
    int start = 0;
    for (const int end : setting_.host_ends) {
      if (start <= lowest && highest < end) return true;
      start = end;
    }
    return false;
  }

  profile_sums sums_;
  published_setting setting_;
  double scale_;
};

/// When the last all-reduce ends if computations and transfers alternate strictly, forward and backward, on every stage
/// and on every cut, S of them: number x, from 0, has at most S - x micro-batches in flight.
[[nodiscard]] inline double alternating_latency(const std::vector<latency_stage>& stages, int micro_batches) {
  const int count = static_cast<int>(stages.size());
  std::vector<double> forward(stages.size(), 0);  // when each stage's latest forward and backward end
  std::vector<double> backward(stages.size(), 0);
  // In round i stage x does forward i, then backward i - (S - 1 - x): all that they wait for belongs to earlier rounds,
  // or to this round and stages that have had their turn.
  for (int round = 0; round < micro_batches + count - 1; ++round) {
    if (round < micro_batches)
      for (std::size_t x = 0; x < stages.size(); ++x) {
        const double input = x > 0 ? forward[x - 1] : 0.0;
        forward[x] = std::max({forward[x], backward[x], input}) + stages[x].forward;
      }
    // The gradient that a stage needs has come in the round before: stages in order, so that it is not yet replaced.
    for (std::size_t x = 0; x < stages.size(); ++x) {
      const int micro_batch = round - (count - 1 - static_cast<int>(x));
      if (micro_batch < 0 || micro_batch >= micro_batches) continue;
      const double gradient = x + 1 < stages.size() ? backward[x + 1] : 0.0;
      // After the last forward, the published recursion waits for no forward: the one it names is out of range.
      const double own = round < micro_batches ? forward[x] : 0.0;
      backward[x] = std::max({backward[x], own, gradient}) + stages[x].backward;
    }
  }
  double end = 0;
  for (std::size_t x = 0; x < stages.size(); ++x) end = std::max(end, backward[x] + stages[x].all_reduce);
  return end;
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// The speed-up over one device as the published evaluator computes it.
/// Throws std::invalid_argument where stages are empty, out of order or beyond the profile, or have no devices.
[[nodiscard]] inline double published_speed_up(const profile& model, const published_setting& setting,
                                               const std::vector<published_stage>& stages) {
  const detail::published_costs cost(model, setting);
  std::vector<latency_stage> line;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const published_stage& one = stages[s];
    const int expected = s == 0 ? 0 : stages[s - 1].last;
    const bool reaches = s + 1 < stages.size() || one.last == model.size();
    if (one.first != expected || one.last <= one.first || one.last > model.size() || !reaches || one.devices.empty())
      throw std::invalid_argument("stage " + std::to_string(s) + " has layers [" + std::to_string(one.first) + ", " +
                                  std::to_string(one.last) + ") and " + std::to_string(one.devices.size()) +
                                  " devices: stages have devices, and follow one another through all " +
                                  std::to_string(model.size()) + " layers");
    if (s > 0) {
      const double seconds = cost.transfer(one.first, stages[s - 1].devices, one.devices);
      line.push_back({seconds, seconds, 0});
    }
    const double half = cost.block(one.first, one.last, static_cast<int>(one.devices.size())) / 2;
    line.push_back({half, half, cost.all_reduce(one.first, one.last, one.devices)});
  }
  if (line.empty()) throw std::invalid_argument("a plan of no stages");
  return cost.one_device() / detail::alternating_latency(line, setting.micro_batches());
}

/// A plan and the speed-up that the published evaluator gives it.
struct published_plan {
  std::vector<published_stage> stages;
  double speed_up = 0;
};

/// The best plan of `stages` stages, 1, 2 or 3, whose devices follow one another, in the published evaluator:
/// exhaustive, but for plans that `latency_bound` rules out. Throws std::invalid_argument for other numbers, and where
/// there are fewer layers or devices than stages.
[[nodiscard]] inline published_plan best_published_plan(const profile& model, const published_setting& setting,
                                                        int stages, int devices) {
  if (stages < 1 || stages > 3 || stages > model.size() || stages > devices)
    throw std::invalid_argument("plans of " + std::to_string(stages) + " stages for " + std::to_string(model.size()) +
                                " layers and " + std::to_string(devices) +
                                " devices: the search is for 1, 2 or 3 stages, with a layer and a device for each");
  const detail::published_costs cost(model, setting);
  const int micro_batches = setting.micro_batches();
  published_plan best;
  double best_seconds = std::numeric_limits<double>::infinity();
  std::vector<published_stage> chosen;
  std::vector<latency_stage> line;
  const auto add = [&](int first, int last, int start, int end) {
    published_stage one{first, last, {}};
    for (int d = start; d < end; ++d) one.devices.push_back(d);
    if (!chosen.empty()) {
      const double seconds = cost.transfer(first, chosen.back().devices, one.devices);
      line.push_back({seconds, seconds, 0});
    }
    const double half = cost.block(first, last, end - start) / 2;
    line.push_back({half, half, cost.all_reduce(first, last, one.devices)});
    chosen.push_back(std::move(one));
    // With fewer micro-batches than it has in flight, a stage of the recursion waits for less than the bound takes it
    // to.
    return micro_batches < 2 * stages || latency_bound(line, micro_batches) < best_seconds;
  };
  const auto remove = [&] {
    chosen.pop_back();
    line.resize(chosen.empty() ? 0 : 2 * chosen.size() - 1);
  };
  const auto search = [&](const auto& self, int first, int start, int left) -> void {
    if (left == 1) {
      if (add(first, model.size(), start, devices)) {
        const double seconds = detail::alternating_latency(line, micro_batches);
        if (seconds < best_seconds) {
          best_seconds = seconds;
          best.stages = chosen;
        }
      }
      remove();
      return;
    }
    for (int last = first + 1; last + left - 1 <= model.size(); ++last)
      for (int end = start + 1; end + left - 1 <= devices; ++end) {
        if (add(first, last, start, end)) self(self, last, end, left - 1);
        remove();
      }
  };
  search(search, 0, 0, stages);
  best.speed_up = cost.one_device() / best_seconds;
  return best;
}

}  // namespace espalier::pipeline
