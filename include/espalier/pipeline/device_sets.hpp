// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::pipeline {

/// How a stage chooses its devices among those that earlier stages have left (DAPPLE section 4.3).
enum class placement_policy : std::uint8_t {
  fresh_first,    ///< on hosts that are wholly free, in order: a stage stays within few hosts
  append_first,   ///< on hosts that are partly taken, in order: leaves no fragments
  scatter_first,  ///< evenly on the hosts that are partly taken, or on all while none is: every stage on every host
  gaps_first      ///< on the hosts with the fewest free devices, those partly taken before those wholly free
};

/// "fresh first", "append first" ...
[[nodiscard]] constexpr std::string_view name_of(placement_policy policy) {
  switch (policy) {
    case placement_policy::fresh_first: return "fresh first";
    case placement_policy::append_first: return "append first";
    case placement_policy::scatter_first: return "scatter first";
    case placement_policy::gaps_first: return "gaps first";
  }
  return "?";
}

/// Which devices are still free. A host's devices are taken in order, so that numbers say which ones.
class free_devices {
 public:
  explicit free_devices(std::vector<int> devices_of)
      : devices_of_(std::move(devices_of)), taken_(devices_of_.size(), 0), latest_(devices_of_.size(), 0) {}

  [[nodiscard]] int hosts() const { return static_cast<int>(devices_of_.size()); }
  [[nodiscard]] int devices(int host) const { return devices_of_[static_cast<std::size_t>(host)]; }
  [[nodiscard]] int taken(int host) const { return taken_[static_cast<std::size_t>(host)]; }
  [[nodiscard]] int left(int host) const { return devices(host) - taken(host); }
  [[nodiscard]] int left() const {
    int sum = 0;
    for (int h = 0; h < hosts(); ++h) sum += left(h);
    return sum;
  }

  /// How many the stage before took of this host.
  [[nodiscard]] int latest(int host) const { return latest_[static_cast<std::size_t>(host)]; }

  /// All that later stages' costs depend on: what is taken of each host, and what the stage before took.
  [[nodiscard]] bool operator==(const free_devices&) const = default;
  [[nodiscard]] bool operator<(const free_devices& other) const {
    return taken_ != other.taken_ ? taken_ < other.taken_ : latest_ < other.latest_;
  }

  /// The numbers of the next devices of each host, `count` by host.
  [[nodiscard]] std::vector<int> numbers(const std::vector<int>& count) const {
    std::vector<int> all;
    int start = 0;
    for (int h = 0; h < hosts(); ++h) {
      for (int k = 0; k < count[static_cast<std::size_t>(h)]; ++k) all.push_back(start + taken(h) + k);
      start += devices(h);
    }
    return all;
  }

  /// Takes them.
  void take(const std::vector<int>& count) {
    for (std::size_t h = 0; h < taken_.size(); ++h) taken_[h] += count[h];
    latest_ = count;
  }

 private:
  std::vector<int> devices_of_;
  std::vector<int> taken_;
  std::vector<int> latest_;
};

/// Devices for one stage: how many of each host, and the policy that says so.
struct placement {
  placement_policy policy = placement_policy::fresh_first;
  std::vector<int> count;  ///< by host
};

}  // namespace espalier::pipeline

namespace espalier::pipeline::detail {

/// Takes `count` devices one from each of `hosts` in turn, or all of one host after the other; what is left to take.
inline int take_from(const free_devices& free, const std::vector<int>& hosts, int count, bool in_turn,
                     std::vector<int>& taken) {
  for (bool more = true; count > 0 && more;) {
    more = false;
    for (const int host : hosts) {
      int& here = taken[static_cast<std::size_t>(host)];
      const int some = std::min({count, free.left(host) - here, in_turn ? 1 : count});
      here += some;
      count -= some;
      more = more || some > 0;
    }
  }
  return count;
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// What `policy` gives a stage of `count` devices: a number for each host, or nothing where the policy cannot.
/// @pre count is positive
[[nodiscard]] inline std::vector<int> devices_by(placement_policy policy, const free_devices& free, int count) {
  std::vector<int> fresh;
  std::vector<int> begun;
  for (int h = 0; h < free.hosts(); ++h) {
    if (free.left(h) == 0) continue;
    (free.taken(h) == 0 ? fresh : begun).push_back(h);
  }
  std::vector<int> taken(static_cast<std::size_t>(free.hosts()), 0);
  int missing = count;
  switch (policy) {
    case placement_policy::fresh_first: missing = detail::take_from(free, fresh, missing, false, taken); break;
    case placement_policy::append_first: missing = detail::take_from(free, begun, missing, false, taken); break;
    case placement_policy::scatter_first: {
      missing = detail::take_from(free, begun.empty() ? fresh : begun, missing, true, taken);
      break;
    }
    case placement_policy::gaps_first: {
      const auto fewer_left = [&](int a, int b) {
        return free.left(a) != free.left(b) ? free.left(a) < free.left(b) : a < b;
      };
      std::sort(begun.begin(), begun.end(), fewer_left);
      std::sort(fresh.begin(), fresh.end(), fewer_left);
      missing = detail::take_from(free, begun, missing, false, taken);
      if (missing > 0) missing = detail::take_from(free, fresh, missing, false, taken);
      break;
    }
  }
  if (missing > 0) taken.clear();
  return taken;
}

/// The placements that the policies offer a stage of `count` devices, each once. Hosts with as many devices, as many of
/// them taken, and as many by the stage before, can be exchanged: placements that differ only by that are one.
/// @pre count is positive and no more than is left
[[nodiscard]] inline std::vector<placement> placements(const free_devices& free, int count) {
  using signature = std::vector<std::array<int, 4>>;
  std::vector<placement> offered;
  std::vector<signature> seen;
  for (const placement_policy policy : {placement_policy::fresh_first, placement_policy::append_first,
                                        placement_policy::scatter_first, placement_policy::gaps_first}) {
    std::vector<int> taken = devices_by(policy, free, count);
    if (taken.empty()) continue;
    signature kinds;
    for (int h = 0; h < free.hosts(); ++h)
      kinds.push_back({free.devices(h), free.taken(h), free.latest(h), taken[static_cast<std::size_t>(h)]});
    std::sort(kinds.begin(), kinds.end());
    if (std::find(seen.begin(), seen.end(), kinds) != seen.end()) continue;
    seen.push_back(std::move(kinds));
    offered.push_back({policy, std::move(taken)});
  }
  return offered;
}

}  // namespace espalier::pipeline
