// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace espalier::pipeline {

/// What moving bytes takes: `latency_seconds` once, then bytes / `bytes_per_second`.
struct transfer_rate {
  double bytes_per_second = 1;
  double latency_seconds = 0;
};

/// The machines that a plan is for: hosts that are connected alike, with devices that are all equal.
///
/// A device sends and receives at `inside` at the same time; what crosses hosts shares the one network card of each,
/// which sends and receives at `across` at the same time. Devices count from 0 through the hosts.
struct cluster {
  std::vector<int> devices_of;                                    ///< by host
  transfer_rate inside;                                           ///< of each device, to devices of its host
  transfer_rate across;                                           ///< of each host, to other hosts
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< of each device

  [[nodiscard]] int hosts() const { return static_cast<int>(devices_of.size()); }
  [[nodiscard]] int devices() const {
    int sum = 0;
    for (const int count : devices_of) sum += count;
    return sum;
  }
};

/// Throws std::invalid_argument, with the value, unless each host has a device, rates and memory are positive and
/// latencies finite and not negative.
inline void require_usable(const cluster& machines) {
  if (machines.devices_of.empty()) throw std::invalid_argument("a cluster of no hosts: give at least one");
  for (std::size_t h = 0; h < machines.devices_of.size(); ++h)
    if (machines.devices_of[h] < 1)
      throw std::invalid_argument("host " + std::to_string(h) + " has " + std::to_string(machines.devices_of[h]) +
                                  " devices: each host needs at least one");
  const auto rate = [](const transfer_rate& one, const char* where) {
    if (!(one.bytes_per_second > 0))
      throw std::invalid_argument(std::string("the bandwidth ") + where + " hosts is " +
                                  std::to_string(one.bytes_per_second) + " bytes/s: give a positive number");
    if (!(one.latency_seconds >= 0) || !std::isfinite(one.latency_seconds))
      throw std::invalid_argument(std::string("the latency ") + where + " hosts is " +
                                  std::to_string(one.latency_seconds) + " s: give a finite number, 0 or more");
  };
  rate(machines.inside, "inside");
  rate(machines.across, "across");
  if (!(machines.memory_bytes > 0))
    throw std::invalid_argument("the memory of a device is " + std::to_string(machines.memory_bytes) +
                                " bytes: give a positive number");
}

/// The same machines for a model whose replicas are so many devices each, as they follow one another: a replica counts
/// as one device of the planner. Its devices send parts of their own at the same time, through one card to other hosts.
/// Throws std::invalid_argument where a replica would be on two hosts.
[[nodiscard]] inline cluster cluster_of_replicas(cluster machines, int devices) {
  for (std::size_t h = 0; h < machines.devices_of.size(); ++h) {
    if (devices < 1 || machines.devices_of[h] % devices != 0)
      throw std::invalid_argument("host " + std::to_string(h) + " has " + std::to_string(machines.devices_of[h]) +
                                  " devices, which are no replicas of " + std::to_string(devices) +
                                  " each: give every host a multiple of that");
    machines.devices_of[h] /= devices;
  }
  machines.across.bytes_per_second /= devices;
  return machines;
}

/// The number of devices of each host that "4x8" (four hosts of eight) or "8,4,4" says.
/// Throws std::invalid_argument for any other text, and for more than 4096 devices.
[[nodiscard]] inline std::vector<int> parse_hosts(std::string_view text) {
  const auto fail = [&]() -> std::invalid_argument {
    return std::invalid_argument("hosts are \"" + std::string(text) +
                                 "\": write 4x8 for four hosts of eight devices, or 8,4,4 for hosts that differ; " +
                                 "4096 devices at most");
  };
  const auto number = [&](std::string_view part) {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size() || value < 1 || value > 4096) throw fail();
    return value;
  };
  std::vector<int> hosts;
  if (const std::size_t times = text.find('x'); times != std::string_view::npos) {
    const int count = number(text.substr(0, times));
    const int each = number(text.substr(times + 1));
    if (count > 4096 / each) throw fail();
    hosts.assign(static_cast<std::size_t>(count), each);
    return hosts;
  }
  int sum = 0;
  while (true) {
    const std::size_t comma = text.find(',');
    hosts.push_back(number(text.substr(0, comma)));
    if ((sum += hosts.back()) > 4096) throw fail();
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

/// "4 x 8" for equal hosts, "8 + 4 + 4" for others.
[[nodiscard]] inline std::string to_string(const std::vector<int>& devices_of) {
  if (std::equal(devices_of.begin() + 1, devices_of.end(), devices_of.begin()))
    return std::to_string(devices_of.size()) + " x " + std::to_string(devices_of.front());
  std::string sum;
  for (const int count : devices_of) sum += (sum.empty() ? "" : " + ") + std::to_string(count);
  return sum;
}

/// How long an operation takes for any number of bytes: a fixed part and a part for each byte.
struct seconds_for_bytes {
  double fixed = 0;
  double per_byte = 0;

  [[nodiscard]] double operator()(double bytes) const { return fixed + per_byte * bytes; }
};

/// An all-reduce over the devices that a stage has on each host, of what every one of them holds.
///
/// The faster of a ring through all devices, host after host, and of reduce-scatter inside the hosts, rings across them
/// and all-gather inside (2 (n - 1) / n of the bytes pass each device, and each host's network card).
/// @pre `taken` holds a number for each host, at least one of them positive
[[nodiscard]] inline seconds_for_bytes all_reduce_seconds(const cluster& machines, const std::vector<int>& taken) {
  double devices = 0;
  double hosts = 0;
  double most = 0;
  for (const int count : taken) {
    devices += count;
    hosts += count > 0 ? 1 : 0;
    most = std::max(most, static_cast<double>(count));
  }
  const auto part = [](double n) { return 2 * (n - 1) / n; };
  const auto steps = [](double n) { return 2 * (n - 1); };
  if (devices <= 1) return {};
  const double inside = 1 / machines.inside.bytes_per_second;
  const double across = 1 / machines.across.bytes_per_second;
  if (hosts <= 1) return {steps(devices) * machines.inside.latency_seconds, part(devices) * inside};
  const seconds_for_bytes ring{
      steps(devices) * std::max(machines.inside.latency_seconds, machines.across.latency_seconds),
      part(devices) * std::max(inside, across)};
  const seconds_for_bytes in_levels{
      steps(most) * machines.inside.latency_seconds + steps(hosts) * machines.across.latency_seconds,
      part(most) * inside + part(hosts) * across};
  // Which is faster depends on the bytes; gradients are large, so that the part for each byte decides.
  return ring.per_byte < in_levels.per_byte ? ring : in_levels;
}

/// A batch of samples that is divided evenly over the devices of one stage and, after it, over those of the next one.
///
/// Shares stay on their host as far as possible: only the difference between what a host holds and what it needs
/// crosses. Transfers inside and across hosts go on at the same time.
/// @pre both hold a number for each host, at least one of them positive
[[nodiscard]] inline seconds_for_bytes transfer_seconds(const cluster& machines, const std::vector<int>& from,
                                                        const std::vector<int>& to) {
  double senders = 0;
  double receivers = 0;
  for (std::size_t h = 0; h < from.size(); ++h) {
    senders += from[h];
    receivers += to[h];
  }
  double crossing = 0;  // the largest share that one host sends or receives
  bool stays = false;
  for (std::size_t h = 0; h < from.size(); ++h) {
    const double held = from[h] / senders;
    const double needed = to[h] / receivers;
    crossing = std::max(crossing, std::abs(held - needed));
    stays = stays || (from[h] > 0 && to[h] > 0);
  }
  seconds_for_bytes time;
  if (stays) {
    time.fixed = machines.inside.latency_seconds;
    time.per_byte = std::max(1 / senders, 1 / receivers) / machines.inside.bytes_per_second;
  }
  if (crossing > 1e-12) {
    time.fixed = std::max(time.fixed, machines.across.latency_seconds);
    time.per_byte = std::max(time.per_byte, crossing / machines.across.bytes_per_second);
  }
  return time;
}

}  // namespace espalier::pipeline
