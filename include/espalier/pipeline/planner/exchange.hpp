// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>

#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// Exchanges devices between the stages of a partition as long as the step gets shorter: all that two hosts have, or
/// one device of a stage for one of another stage. For hosts that are not alike, which placements take in a few orders
/// only.
class device_exchange {
 public:
  device_exchange(candidate partition, const cluster& machines, device_tree& tree, partition_evaluator& evaluate)
      : partition_(std::move(partition)), machines_(machines), tree_(tree), evaluate_(evaluate) {
    for (const candidate::stage& one : partition_.stages) counts_.push_back(one.devices->chosen.count);
  }

  [[nodiscard]] candidate run() {
    best_ = evaluate_(partition_).seconds;
    bool better = true;
    bool any = false;
    while (better && evaluations_ < most_evaluations) {
      better = exchange_hosts();
      better = exchange_single_devices() || better;
      better = give_single_devices() || better;
      any = any || better;
    }
    if (!any) return partition_;
    candidate made = partition_;
    for (std::size_t s = 0; s < counts_.size(); ++s) made.stages[s].devices = tree_.kept(devices(s, counts_));
    return made;
  }

 private:
  static constexpr int most_evaluations = 2000;
  using by_stage = std::vector<std::vector<int>>;  // of each host

  [[nodiscard]] stage_devices devices(std::size_t stage, const by_stage& counts) const {
    const placement chosen{partition_.stages[stage].devices->chosen.policy, counts[stage]};
    return tree_.devices_after(stage == 0 ? std::vector<int>{} : counts[stage - 1], chosen);
  }

  /// Keeps other numbers of devices if the step is shorter with them.
  bool improves(by_stage counts) {
    ++evaluations_;
    std::vector<stage_devices> made;
    for (std::size_t s = 0; s < counts.size(); ++s) made.push_back(devices(s, counts));
    candidate moved = partition_;
    for (std::size_t s = 0; s < made.size(); ++s) moved.stages[s].devices = &made[s];
    const double below = best_ * (1 - 1e-9);
    const double seconds = evaluate_(moved, below).seconds;
    if (!(seconds < below)) return false;
    best_ = seconds;
    counts_ = std::move(counts);
    return true;
  }

  [[nodiscard]] bool fit(const by_stage& counts, std::size_t host) const {
    int sum = 0;
    for (const std::vector<int>& one : counts) sum += one[host];
    return sum <= machines_.devices_of[host];
  }

  bool exchange_hosts() {
    bool better = false;
    const std::size_t hosts = machines_.devices_of.size();
    for (std::size_t a = 0; a < hosts; ++a)
      for (std::size_t b = a + 1; b < hosts && evaluations_ < most_evaluations; ++b) {
        by_stage counts = counts_;
        for (std::vector<int>& one : counts) std::swap(one[a], one[b]);
        if (fit(counts, a) && fit(counts, b)) better = improves(std::move(counts)) || better;
      }
    return better;
  }

  bool exchange_single_devices() {
    bool better = false;
    const std::size_t hosts = machines_.devices_of.size();
    for (std::size_t s = 0; s < counts_.size(); ++s)
      for (std::size_t t = s + 1; t < counts_.size(); ++t)
        for (std::size_t a = 0; a < hosts; ++a)
          for (std::size_t b = 0; b < hosts && evaluations_ < most_evaluations; ++b) {
            if (a == b || counts_[s][a] == 0 || counts_[t][b] == 0) continue;
            by_stage counts = counts_;
            --counts[s][a];
            ++counts[t][a];
            --counts[t][b];
            ++counts[s][b];
            better = improves(std::move(counts)) || better;
          }
    return better;
  }

  bool give_single_devices() {
    bool better = false;
    for (std::size_t s = 0; s < counts_.size(); ++s)
      for (std::size_t t = 0; t < counts_.size(); ++t)
        for (std::size_t a = 0; a < machines_.devices_of.size() && evaluations_ < most_evaluations; ++a) {
          if (s == t || counts_[s][a] == 0 || sum(counts_[s]) == 1) continue;
          by_stage counts = counts_;
          --counts[s][a];
          ++counts[t][a];
          better = improves(std::move(counts)) || better;
        }
    return better;
  }

  [[nodiscard]] static int sum(const std::vector<int>& one) { return std::accumulate(one.begin(), one.end(), 0); }

  candidate partition_;
  const cluster& machines_;
  device_tree& tree_;
  partition_evaluator& evaluate_;
  by_stage counts_;
  double best_ = 0;
  int evaluations_ = 0;
};

}  // namespace espalier::pipeline::detail
