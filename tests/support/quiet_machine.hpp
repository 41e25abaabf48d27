// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>
#include <support/mpi_ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace espalier::test {

/// The work of this machine's processors since it started, in ticks: the first line of Linux's /proc/stat.
class processor_ticks {
 public:
  [[nodiscard]] static processor_ticks now() {
    processor_ticks read;
    std::ifstream file("/proc/stat");
    std::string name;
    file >> name;
    // user nice system idle iowait irq softirq steal; what follows is part of user and nice.
    for (double& ticks : read.ticks_) file >> ticks;
    if (!file) read.ticks_.assign(read.ticks_.size(), 0);
    return read;
  }

  /// Shares of the processors' time since `before`, between 0 and 1.
  [[nodiscard]] double idle_since(const processor_ticks& before) const { return share(before, 3) + share(before, 4); }
  [[nodiscard]] double stolen_since(const processor_ticks& before) const { return share(before, 7); }
  [[nodiscard]] bool moved_since(const processor_ticks& before) const { return total() > before.total(); }

 private:
  [[nodiscard]] double total() const { return std::accumulate(ticks_.begin(), ticks_.end(), 0.0); }
  [[nodiscard]] double share(const processor_ticks& before, std::size_t column) const {
    return (ticks_[column] - before.ticks_[column]) / std::max(total() - before.total(), 1.0);
  }

  std::vector<double> ticks_ = std::vector<double>(8, 0.0);
};

/// The verdict of a measurement of time: none, if it is wrong and the machine was busy with something else.
enum class verdict { right, wrong, machine_was_busy };

/// Watches the machine in tests of timings. Every rank is on this machine; rank 0 looks at what it did.
class quiet_machine {
 public:
  /// Least share of the processors' time that is left idle where nothing but these tests runs (they leave 0.4 and
  /// more), and most that the host of a virtual machine takes then.
  static constexpr double least_idle = 0.3;
  static constexpr double most_stolen = 0.02;

  explicit quiet_machine(MPI_Comm communicator) : communicator_(communicator) {}

  /// `is_right` measures, and says the same on all ranks. What is wrong while the machine is busy is measured again,
  /// for `seconds`. Where the machine stays busy, rank 0 prints a line that begins with "skipped:". Collective.
  [[nodiscard]] verdict judge(const std::function<bool()>& is_right, double seconds = 20) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      MPI_Barrier(communicator_);
      const processor_ticks before = processor_ticks::now();
      if (is_right()) return verdict::right;
      const processor_ticks after = processor_ticks::now();
      const double idle = after.idle_since(before);
      const double stolen = after.stolen_since(before);
      // A system that does not say what its processors do is taken to be quiet.
      const bool busy = after.moved_since(before) && (idle < least_idle || stolen > most_stolen);
      const bool gives_up = std::chrono::steady_clock::now() > deadline;
      int said = !busy ? is_wrong : gives_up ? is_busy : measure_again;
      MPI_Bcast(&said, 1, MPI_INT, 0, communicator_);
      if (rank_in(communicator_) == 0)
        std::cerr << std::setprecision(2) << (said == is_busy ? "skipped" : "wrong")
                  << (busy ? ": the machine was busy (" : ": the machine was quiet (") << 100 * idle << " % idle, "
                  << 100 * stolen << " % taken by its host)\n";
      if (said == is_wrong) return verdict::wrong;
      if (said == is_busy) return verdict::machine_was_busy;
    }
  }

 private:
  enum { is_wrong, is_busy, measure_again };

  MPI_Comm communicator_;
};

}  // namespace espalier::test
