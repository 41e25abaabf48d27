// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/cluster.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

/// Which hosts can be exchanged, and which are near each other. Where hosts have as many devices each and all pairs are
/// connected alike, all can, and are taken in the order of their numbers.
class host_order {
 public:
  host_order() = default;
  explicit host_order(const cluster& machines) {
    const int hosts = machines.hosts();
    double occupancies = 1;  // how much of each host may be taken
    for (const int devices : machines.devices_of) occupancies *= devices + 1;
    few_ = hosts <= 6 && occupancies <= 729;
    const auto as_first = [&](int devices) { return devices == machines.devices_of.front(); };
    if (machines.between.empty() && std::all_of(machines.devices_of.begin(), machines.devices_of.end(), as_first))
      return;
    for (int h = 0; h < hosts; ++h) {
      int kind = h;
      for (int other = 0; other < h && kind == h; ++other)
        if (can_be_exchanged(machines, h, other)) kind = kind_[static_cast<std::size_t>(other)];
      kind_.push_back(kind);
      std::vector<int> near(static_cast<std::size_t>(hosts));
      std::iota(near.begin(), near.end(), 0);
      std::sort(near.begin(), near.end(), [&](int a, int b) {
        if (a == h || b == h) return a == h && b != h;
        const double to_a = machines.rate(h, a).bytes_per_second;
        const double to_b = machines.rate(h, b).bytes_per_second;
        return to_a != to_b ? to_a > to_b : a < b;
      });
      from_.push_back(std::move(near));
    }
  }

  [[nodiscard]] bool alike() const { return kind_.empty(); }
  /// Few hosts and devices: there is time to try them in any order.
  [[nodiscard]] bool are_few() const { return few_; }
  /// Hosts of one kind can be exchanged if they have as many devices.
  [[nodiscard]] int kind(int host) const { return alike() ? 0 : kind_[static_cast<std::size_t>(host)]; }
  /// A host and all others, the nearest first. @pre not alike()
  [[nodiscard]] const std::vector<int>& from(int host) const { return from_[static_cast<std::size_t>(host)]; }

 private:
  [[nodiscard]] static bool can_be_exchanged(const cluster& machines, int a, int b) {
    const auto equal = [](const transfer_rate& one, const transfer_rate& other) {
      return one.bytes_per_second == other.bytes_per_second && one.latency_seconds == other.latency_seconds;
    };
    if (!equal(machines.rate(a, b), machines.rate(b, a))) return false;
    for (int h = 0; h < machines.hosts(); ++h)
      if (h != a && h != b &&
          !(equal(machines.rate(a, h), machines.rate(b, h)) && equal(machines.rate(h, a), machines.rate(h, b))))
        return false;
    return true;
  }

  bool few_ = true;
  std::vector<int> kind_;
  std::vector<std::vector<int>> from_;
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

/// The orders in which placements of the next stage take hosts that are not alike. Of few hosts and devices, any hosts
/// before any others. Of more, whose placements are too many, those begin that are nearest to the host which has most
/// of the stage before, for the first stage more of them, of those that can be exchanged one; each goes on to the hosts
/// that are nearest to it.
[[nodiscard]] inline std::vector<std::vector<int>> host_orders(const free_devices& free, int count,
                                                               const host_order& hosts) {
  constexpr std::size_t most_later = 2;
  constexpr std::size_t most_at_first = 4;
  std::vector<std::vector<int>> orders;
  int before = 0;
  for (int h = 1; h < free.hosts(); ++h)
    if (free.latest(h) > free.latest(before)) before = h;
  if (hosts.are_few()) {
    for (unsigned first = 1; first < 1U << static_cast<unsigned>(free.hosts()); ++first) {
      std::vector<int> order;
      std::vector<int> rest;
      int left = 0;
      for (const int h : hosts.from(before)) {
        const bool is_first = (first >> static_cast<unsigned>(h) & 1U) != 0;
        (is_first ? order : rest).push_back(h);
        left += is_first ? free.left(h) : 0;
      }
      if (left < count || static_cast<int>(order.size()) > count) continue;
      order.insert(order.end(), rest.begin(), rest.end());
      orders.push_back(std::move(order));
    }
    return orders;
  }
  const std::size_t most = free.latest(before) == 0 ? most_at_first : most_later;
  const auto equal = [&](int a, int b) {
    return hosts.kind(a) == hosts.kind(b) && free.devices(a) == free.devices(b) && free.taken(a) == free.taken(b) &&
           free.latest(a) == free.latest(b);
  };
  for (const int h : hosts.from(before)) {
    if (free.left(h) == 0 || orders.size() == most) continue;
    if (std::any_of(orders.begin(), orders.end(), [&](const auto& other) { return equal(h, other.front()); })) continue;
    orders.push_back(hosts.from(h));
  }
  return orders;
}

}  // namespace espalier::pipeline::detail

namespace espalier::pipeline {

/// Returns the number of devices on each host that `policy` gives a stage of `count` devices, or nothing if the policy
/// cannot. `order`: the hosts in the order to try them; empty: by number.
/// @pre count is positive
[[nodiscard]] inline std::vector<int> devices_by(placement_policy policy, const free_devices& free, int count,
                                                 const std::vector<int>& order = {}) {
  std::vector<int> fresh;
  std::vector<int> begun;
  for (int k = 0; k < free.hosts(); ++k) {
    const int h = order.empty() ? k : order[static_cast<std::size_t>(k)];
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
      std::vector<int> place(static_cast<std::size_t>(free.hosts()));
      for (std::size_t k = 0; k < place.size(); ++k)
        place[order.empty() ? k : static_cast<std::size_t>(order[k])] = static_cast<int>(k);
      const auto fewer_left = [&](int a, int b) {
        if (free.left(a) != free.left(b)) return free.left(a) < free.left(b);
        return place[static_cast<std::size_t>(a)] < place[static_cast<std::size_t>(b)];
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

/// The placements that the policies offer a stage of `count` devices, each once. Hosts of one kind with as many
/// devices, as many of them taken, and as many by the stage before, can be exchanged: placements that differ only by
/// that are one. Where hosts are not connected alike, policies take them in other orders than that of their numbers,
/// too.
/// @pre count is positive and no more than is left
[[nodiscard]] inline std::vector<placement> placements(const free_devices& free, int count,
                                                       const host_order& hosts = {}) {
  using signature = std::vector<std::array<int, 5>>;
  std::vector<placement> offered;
  std::vector<signature> seen;
  const auto offer = [&](placement_policy policy, const std::vector<int>& order) {
    std::vector<int> taken = devices_by(policy, free, count, order);
    if (taken.empty()) return;
    signature kinds;
    for (int h = 0; h < free.hosts(); ++h)
      kinds.push_back(
          {hosts.kind(h), free.devices(h), free.taken(h), free.latest(h), taken[static_cast<std::size_t>(h)]});
    std::sort(kinds.begin(), kinds.end());
    if (std::find(seen.begin(), seen.end(), kinds) != seen.end()) return;
    seen.push_back(std::move(kinds));
    offered.push_back({policy, std::move(taken)});
  };
  const std::vector<std::vector<int>> orders =
      hosts.alike() ? std::vector<std::vector<int>>(1) : detail::host_orders(free, count, hosts);
  for (const placement_policy policy : {placement_policy::fresh_first, placement_policy::append_first,
                                        placement_policy::scatter_first, placement_policy::gaps_first}) {
    for (const std::vector<int>& order : orders) offer(policy, order);
  }
  return offered;
}

}  // namespace espalier::pipeline
