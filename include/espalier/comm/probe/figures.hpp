// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace espalier::comm::detail {

/// Rates that differ by less are the same: the noise of a measurement of some milliseconds.
constexpr double probe_noise = 0.12;

/// The groups of ranks that share memory.
struct probe_hosts {
  std::vector<std::vector<int>> ranks;  ///< of each host, ascending; hosts in the order of their first ranks
  std::vector<std::string> names;
  std::vector<int> of;  ///< host of each rank

  [[nodiscard]] int count() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int ranks_at(int host) const { return static_cast<int>(ranks[static_cast<std::size_t>(host)].size()); }
  /// The ranks of a host in turn.
  [[nodiscard]] int rank(int host, int k) const {
    const auto& mine = ranks[static_cast<std::size_t>(host)];
    return mine[static_cast<std::size_t>(k) % mine.size()];
  }
};

/// A square table of what goes from one to another.
class pair_table {
 public:
  pair_table() = default;
  explicit pair_table(int count)
      : count_(count), values_(static_cast<std::size_t>(count) * static_cast<std::size_t>(count), 0.0) {}
  [[nodiscard]] double& operator()(int from, int to) { return values_[place(from, to)]; }
  [[nodiscard]] double operator()(int from, int to) const { return values_[place(from, to)]; }
  [[nodiscard]] std::vector<double>& values() { return values_; }

 private:
  [[nodiscard]] std::size_t place(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(count_) + static_cast<std::size_t>(to);
  }
  int count_ = 0;
  std::vector<double> values_;
};

/// Whether what a host sends or what it receives is meant.
enum class toward { others, host };

/// All that a probe measures; bandwidths in bytes per second, latencies in seconds.
struct probe_figures {
  /// The rates that the ranks of one host reach among themselves.
  struct inside {
    double single = 0;   ///< one rank to another, the others idle
    double fan_out = 0;  ///< one rank to all others together
    double fan_in = 0;   ///< all others to one rank together
    double all = 0;      ///< every rank to the next, at the same time
  };
  /// One host with some of the others at the same time.
  struct concurrent {
    int host = 0;
    toward direction = toward::others;
    std::vector<int> peers;
    std::vector<double> rates;  ///< of each peer
  };

  pair_table latency;   ///< of ranks
  pair_table single;    ///< of hosts: one rank to one rank
  pair_table together;  ///< of hosts: all ranks to all ranks
  std::vector<inside> in_host;
  std::vector<concurrent> fans;   ///< with all other hosts
  std::vector<concurrent> parts;  ///< with those that a fan left in doubt
};

}  // namespace espalier::comm::detail
