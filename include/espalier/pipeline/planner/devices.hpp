// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/device_sets.hpp>
#include <espalier/pipeline/planner/problem.hpp>

#include <cstddef>
#include <deque>
#include <map>
#include <utility>
#include <vector>

namespace espalier::pipeline::detail {

/// The ways in which stages, one after the other, can take devices, each found once: which devices are free and what
/// the stage before holds is a state, a stage's placement leads from one to the next.
class device_tree {
 public:
  struct step {
    stage_devices devices;
    int next = 0;  ///< state
  };

  explicit device_tree(const cluster& machines) : machines_(machines), hosts_(machines) {
    (void)number(free_devices(machines.devices_of));
  }

  /// The state in which all devices are free.
  static constexpr int start = 0;

  [[nodiscard]] const host_order& hosts() const { return hosts_; }
  [[nodiscard]] int left(int state) const { return states_[static_cast<std::size_t>(state)].left; }

  /// The placements of a stage of `count` devices. They stay where they are as long as the tree does.
  /// @pre count is positive and no more than is left
  [[nodiscard]] const std::vector<step>& steps(int state, int count) {
    auto& known = states_[static_cast<std::size_t>(state)].steps[static_cast<std::size_t>(count) - 1];
    if (known.empty()) {
      const free_devices free = states_[static_cast<std::size_t>(state)].free;
      for (placement& offered : placements(free, count, hosts_)) known.push_back(follow(free, std::move(offered)));
    }
    return known;
  }

  /// The placement of a stage of `count` devices by one policy; nothing where the policy has none.
  [[nodiscard]] const step* by_policy(int state, int count, placement_policy policy) {
    const free_devices& free = states_[static_cast<std::size_t>(state)].free;
    std::vector<int> taken = devices_by(policy, free, count);
    if (taken.empty()) return nullptr;
    others_.push_back(follow(free_devices(free), {policy, std::move(taken)}));
    return &others_.back();
  }

  /// Returns the devices `chosen` with the costs of their transfers, after a stage that has `before` on each host;
  /// empty: as the first stage.
  [[nodiscard]] stage_devices devices_after(const std::vector<int>& before, placement chosen) const {
    stage_devices made;
    for (const int here : chosen.count) made.count += here;
    made.all_reduce = all_reduce_seconds(machines_, chosen.count);
    if (!before.empty()) made.transfer = transfer_seconds(machines_, before, chosen.count);
    made.chosen = std::move(chosen);
    return made;
  }
  /// Keeps devices as long as the tree.
  [[nodiscard]] const stage_devices* kept(stage_devices devices) {
    others_.push_back({std::move(devices), start});
    return &others_.back().devices;
  }

  /// The devices' numbers.
  [[nodiscard]] std::vector<std::vector<int>> numbers(const std::vector<const stage_devices*>& stages) const {
    free_devices free(machines_.devices_of);
    std::vector<std::vector<int>> all;
    for (const stage_devices* one : stages) {
      all.push_back(free.numbers(one->chosen.count));
      free.take(one->chosen.count);
    }
    return all;
  }

 private:
  struct occupancy {
    free_devices free;
    int left = 0;
    std::vector<std::vector<step>> steps;  ///< by number of devices, from 1
  };

  step follow(free_devices free, placement offered) {
    std::vector<int> before;
    if (free.left() < machines_.devices())
      for (int h = 0; h < free.hosts(); ++h) before.push_back(free.latest(h));
    step made;
    free.take(offered.count);
    made.devices = devices_after(before, std::move(offered));
    made.next = number(free);
    return made;
  }

  int number(const free_devices& free) {
    const auto [place, added] = numbers_.emplace(free, static_cast<int>(states_.size()));
    if (added) {
      const int left = free.left();
      states_.push_back({free, left, std::vector<std::vector<step>>(static_cast<std::size_t>(left))});
    }
    return place->second;
  }

  cluster machines_;
  host_order hosts_;
  std::deque<occupancy> states_;
  std::map<free_devices, int> numbers_;
  std::deque<step> others_;
};

}  // namespace espalier::pipeline::detail
