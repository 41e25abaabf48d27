// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/joined.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace espalier::pipeline {

/// The time to move bytes: `latency_seconds` once, then bytes / `bytes_per_second`.
struct transfer_rate {
  double bytes_per_second = 1;
  double latency_seconds = 0;
};

/// The machines that a plan is for: hosts with devices that are all equal.
///
/// A device sends and receives at `inside` at the same time; what crosses hosts shares the one network card of each,
/// which sends and receives at `across` at the same time, or, where pairs of hosts differ, at the rate of its fastest
/// pair. Devices count from 0 through the hosts.
struct cluster {
  std::vector<int> devices_of;                                    ///< by host
  transfer_rate inside;                                           ///< of each device, to devices of its host
  transfer_rate across;                                           ///< of each host, to other hosts
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< of each device
  /// The rate of each host to each, row by row, if pairs of hosts differ; the diagonal is not used. Empty: all pairs
  /// are connected at `across`.
  std::vector<transfer_rate> between = {};

  [[nodiscard]] int hosts() const { return static_cast<int>(devices_of.size()); }
  /// Returns the rate from one host to another.
  [[nodiscard]] const transfer_rate& rate(int from, int to) const {
    if (between.empty()) return across;
    return between[static_cast<std::size_t>(from) * devices_of.size() + static_cast<std::size_t>(to)];
  }
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
  const auto rate = [](const transfer_rate& one, const std::string& where) {
    if (!(one.bytes_per_second > 0))
      throw std::invalid_argument("the bandwidth " + where + " is " + std::to_string(one.bytes_per_second) +
                                  " bytes/s: give a positive number");
    if (!(one.latency_seconds >= 0) || !std::isfinite(one.latency_seconds))
      throw std::invalid_argument("the latency " + where + " is " + std::to_string(one.latency_seconds) +
                                  " s: give a finite number, 0 or more");
  };
  rate(machines.inside, "inside hosts");
  rate(machines.across, "across hosts");
  const std::size_t pairs = machines.devices_of.size() * machines.devices_of.size();
  if (!machines.between.empty() && machines.between.size() != pairs)
    throw std::invalid_argument(
        "rates of " + std::to_string(machines.between.size()) + " pairs of hosts: " + std::to_string(machines.hosts()) +
        " hosts have " + std::to_string(pairs) + ", each with itself among them; leave them out where all are alike");
  for (int a = 0; !machines.between.empty() && a < machines.hosts(); ++a)
    for (int b = 0; b < machines.hosts(); ++b)
      if (a != b) rate(machines.rate(a, b), "from host " + std::to_string(a) + " to host " + std::to_string(b));
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
  for (transfer_rate& pair : machines.between) pair.bytes_per_second /= devices;
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

/// Gives the pairs of hosts that a text names rates of their own, both ways: "0-1:50,1-2:12.5", in units of so many
/// bytes per second. The other pairs, and all latencies, stay as they are. Throws std::invalid_argument, with the text,
/// for any other form, and for hosts that there are not.
inline void set_links(cluster& machines, std::string_view text, double unit) {
  const auto fail = [&](const std::string& what) {
    return std::invalid_argument("links are \"" + std::string(text) + "\": " + what +
                                 "; write 0-1:50,1-2:12.5 for two pairs of hosts, numbered from 0");
  };
  const auto number = [&](std::string_view part) {
    int value = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc{} || end != part.data() + part.size() || value < 0)
      throw fail(espalier::detail::joined({"\"", std::string(part), "\" is no host"}));
    if (value >= machines.hosts())
      throw fail("there are " + std::to_string(machines.hosts()) + " hosts, and none is " + std::to_string(value));
    return static_cast<std::size_t>(value);
  };
  const auto hosts = static_cast<std::size_t>(machines.hosts());
  if (machines.between.empty()) machines.between.assign(hosts * hosts, machines.across);
  for (std::string_view rest = text; true;) {
    const std::size_t comma = rest.find(',');
    const std::string_view one = rest.substr(0, comma);
    const std::size_t dash = one.find('-');
    const std::size_t colon = one.find(':');
    if (dash == std::string_view::npos || colon == std::string_view::npos || colon < dash)
      throw fail(espalier::detail::joined({"\"", std::string(one), "\" is no pair with a rate"}));
    const std::size_t a = number(one.substr(0, dash));
    const std::size_t b = number(one.substr(dash + 1, colon - dash - 1));
    if (a == b) throw fail("a host has no link to itself");
    char* end = nullptr;
    const std::string rate(one.substr(colon + 1));
    const double value = std::strtod(rate.c_str(), &end);
    if (rate.empty() || *end != '\0' || !(value > 0) || !std::isfinite(value))
      throw fail("\"" + rate + "\" is no positive rate");
    for (const std::size_t pair : {a * hosts + b, b * hosts + a})
      machines.between[pair].bytes_per_second = value * unit;
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
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

/// Returns the rate of each link of a ring through some hosts: that of its slowest link. The ring goes on to the
/// nearest host that is left, and begins at the host from which it is fastest.
/// @pre `taken` holds a number for each host, at least two of them positive
[[nodiscard]] inline transfer_rate ring_across(const cluster& machines, const std::vector<int>& taken) {
  if (machines.between.empty()) return machines.across;
  transfer_rate best{0, 0};
  for (int start = 0; start < machines.hosts(); ++start) {
    if (taken[static_cast<std::size_t>(start)] == 0) continue;
    std::vector<int> left;
    for (int h = 0; h < machines.hosts(); ++h)
      if (h != start && taken[static_cast<std::size_t>(h)] > 0) left.push_back(h);
    transfer_rate slowest{std::numeric_limits<double>::infinity(), 0};
    const auto pass = [&](int from, int to) {
      slowest.bytes_per_second = std::min(slowest.bytes_per_second, machines.rate(from, to).bytes_per_second);
      slowest.latency_seconds = std::max(slowest.latency_seconds, machines.rate(from, to).latency_seconds);
    };
    int at = start;
    while (!left.empty()) {
      const auto nearest = std::max_element(left.begin(), left.end(), [&](int a, int b) {
        return machines.rate(at, a).bytes_per_second < machines.rate(at, b).bytes_per_second;
      });
      pass(at, *nearest);
      at = *nearest;
      left.erase(nearest);
    }
    pass(at, start);
    if (slowest.bytes_per_second > best.bytes_per_second) best = slowest;
  }
  return best;
}

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
  if (hosts <= 1) return {steps(devices) * machines.inside.latency_seconds, part(devices) * inside};
  const transfer_rate between_hosts = ring_across(machines, taken);
  const double across = 1 / between_hosts.bytes_per_second;
  const seconds_for_bytes ring{
      steps(devices) * std::max(machines.inside.latency_seconds, between_hosts.latency_seconds),
      part(devices) * std::max(inside, across)};
  const seconds_for_bytes in_levels{
      steps(most) * machines.inside.latency_seconds + steps(hosts) * between_hosts.latency_seconds,
      part(most) * inside + part(hosts) * across};
  // Which is faster depends on the bytes; gradients are large, so that the part for each byte decides.
  return ring.per_byte < in_levels.per_byte ? ring : in_levels;
}

/// A batch of samples that is divided evenly over the devices of one stage and, after it, over those of the next one.
///
/// Shares stay on their host as far as possible: only the difference between what a host holds and what it needs
/// crosses, and hosts that need more get of each that holds more in proportion. Transfers inside and across hosts go on
/// at the same time.
/// @pre both hold a number for each host, at least one of them positive
[[nodiscard]] inline seconds_for_bytes transfer_seconds(const cluster& machines, const std::vector<int>& from,
                                                        const std::vector<int>& to) {
  constexpr double rounding = 1e-12;
  double senders = 0;
  double receivers = 0;
  for (std::size_t h = 0; h < from.size(); ++h) {
    senders += from[h];
    receivers += to[h];
  }
  std::vector<double> more(from.size());  // what a host holds beyond what it needs
  double moved = 0;
  bool stays = false;
  for (std::size_t h = 0; h < from.size(); ++h) {
    more[h] = from[h] / senders - to[h] / receivers;
    moved += std::max(more[h], 0.0);
    stays = stays || (from[h] > 0 && to[h] > 0);
  }
  seconds_for_bytes time;
  if (stays) {
    time.fixed = machines.inside.latency_seconds;
    time.per_byte = std::max(1 / senders, 1 / receivers) / machines.inside.bytes_per_second;
  }
  for (int a = 0; a < machines.hosts(); ++a) {
    const double here = more[static_cast<std::size_t>(a)];
    if (std::abs(here) <= rounding) continue;
    double fastest = 0;  // of the pairs of this host that something goes between
    for (int b = 0; b < machines.hosts(); ++b) {
      const double there = more[static_cast<std::size_t>(b)];
      if (std::abs(there) <= rounding || (here > 0) == (there > 0)) continue;
      const transfer_rate& link = here > 0 ? machines.rate(a, b) : machines.rate(b, a);
      const double share = std::abs(here) * std::abs(there) / moved;
      fastest = std::max(fastest, link.bytes_per_second);
      time.fixed = std::max(time.fixed, link.latency_seconds);
      time.per_byte = std::max(time.per_byte, share / link.bytes_per_second);
    }
    if (fastest > 0) time.per_byte = std::max(time.per_byte, std::abs(here) / fastest);
  }
  return time;
}

}  // namespace espalier::pipeline
