// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#define OMPI_SKIP_MPICXX 1  // the C++ bindings are of no use, and full of warnings
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

/// The measurements of a collective, and their method: the same for ours and for any MPI library. Nothing of Espalier
/// is here.
namespace collective_cells {

enum class kind { broadcast, reduce, all_reduce, all_gather, reduce_scatter, gather, scatter, all_to_all };
inline constexpr std::array<const char*, 8> names{"broadcast",      "reduce", "all_reduce", "all_gather",
                                                  "reduce_scatter", "gather", "scatter",    "all_to_all"};
inline const char* name_of(kind what) { return names[static_cast<std::size_t>(what)]; }

/// The parts of a list with commas.
inline std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    found.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}
/// "all" or names with commas.
inline std::vector<kind> kinds_of(const std::string& list) {
  std::vector<kind> found;
  for (const std::string& name : parts_of(list)) {
    for (std::size_t k = 0; k < names.size(); ++k) {
      if (name == "all" || name == names[k]) found.push_back(static_cast<kind>(k));
    }
  }
  if (found.empty()) throw std::invalid_argument("\"" + list + "\" names no collective");
  return found;
}

/// Float sums or copies, root 0. A cell of `bytes` has as much in a rank's larger buffer (at least one element a rank).
struct cell {
  kind what = kind::all_reduce;
  long long bytes = 0;
  int rank = 0;
  int ranks = 1;
  int count = 1;  ///< elements, as MPI's calls count them
  std::vector<float> input;
  std::vector<float> output;

  cell(kind made, long long size, MPI_Comm communicator) : what(made), bytes(size) {
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &ranks);
    const bool whole = what == kind::broadcast || what == kind::reduce || what == kind::all_reduce;
    count = static_cast<int>(std::max(1LL, size / 4 / (whole ? 1 : ranks)));
    const bool root = rank == 0;
    const auto one = static_cast<std::size_t>(count);
    const std::size_t all = one * static_cast<std::size_t>(ranks);
    const bool many_in = what == kind::reduce_scatter || what == kind::all_to_all || (what == kind::scatter && root);
    const bool many_out = what == kind::all_gather || what == kind::all_to_all || (what == kind::gather && root);
    const bool no_in = what == kind::broadcast || (what == kind::scatter && !root);
    const bool no_out = (what == kind::reduce || what == kind::gather) && !root;
    input.resize(no_in ? 0 : many_in ? all : one);
    output.resize(no_out ? 0 : many_out ? all : one);
    // Small whole numbers: sums are exact in any order.
    for (std::size_t i = 0; i < input.size(); ++i)
      input[i] = static_cast<float>((i * 7 + i / 1000) % 61) + static_cast<float>(rank);
    clear();
  }

  /// Forgets results; a broadcast's root has its data there.
  void clear() {
    for (std::size_t i = 0; i < output.size(); ++i) {
      const bool given = what == kind::broadcast && rank == 0;
      output[i] = given ? static_cast<float>(i % 61) : std::numeric_limits<float>::quiet_NaN();
    }
  }

  void library(MPI_Comm communicator) {
    float* const in = input.data();
    float* const out = output.data();
    switch (what) {
      case kind::broadcast: MPI_Bcast(out, count, MPI_FLOAT, 0, communicator); break;
      case kind::reduce: MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, communicator); break;
      case kind::all_reduce: MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, communicator); break;
      case kind::all_gather: MPI_Allgather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, communicator); break;
      case kind::reduce_scatter: MPI_Reduce_scatter_block(in, out, count, MPI_FLOAT, MPI_SUM, communicator); break;
      case kind::gather: MPI_Gather(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, communicator); break;
      case kind::scatter: MPI_Scatter(in, count, MPI_FLOAT, out, count, MPI_FLOAT, 0, communicator); break;
      case kind::all_to_all: MPI_Alltoall(in, count, MPI_FLOAT, out, count, MPI_FLOAT, communicator); break;
    }
  }
};

inline double slowest(double mine, MPI_Comm communicator) {
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, communicator);
  return most;
}

/// Seconds a call, of the slowest rank. The ranks meet before each call, outside the time.
template <class Body> double batch_seconds(int calls, Body& body, MPI_Comm communicator) {
  double sum = 0;
  for (int n = 0; n < calls; ++n) {
    MPI_Barrier(communicator);
    const double begin = MPI_Wtime();
    body();
    sum += MPI_Wtime() - begin;
  }
  return slowest(sum / calls, communicator);
}

/// Seconds of a clock that all processes of a machine read alike; MPI_Wtime may count from each process's start.
inline double machine_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether calls can start at instants agreed before: all ranks on one host, with a core each.
inline bool can_start_by_clock(MPI_Comm communicator) {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int here = 0;
  int all = 0;
  MPI_Comm_size(host, &here);
  MPI_Comm_size(communicator, &all);
  MPI_Comm_free(&host);
  return here == all && all <= sysconf(_SC_NPROCESSORS_ONLN);
}

/// Measures as `batch_seconds` does, but calls start at agreed instants, `window` seconds apart. A barrier lets some
/// ranks go earlier than others: MPICH's its rank 0 by 0.3 us, which is half of a small call, and flatters what rank 0
/// starts. (The scheme: Hunold and Carpen-Amarie, "Reproducible MPI benchmarking is still not as easy as you think",
/// TPDS 2016.) No value: a rank was late for one call in twenty; the window is too short.
template <class Body>
std::optional<double> window_seconds(int calls, double window, Body& body, MPI_Comm communicator) {
  double first = machine_seconds() + 2e-5;
  MPI_Bcast(&first, 1, MPI_DOUBLE, 0, communicator);
  double sum = 0;
  int late = 0;
  for (int n = 0; n < calls; ++n) {
    const double start = first + n * window;
    if (machine_seconds() > start) ++late;
    while (machine_seconds() < start) {}
    body();
    sum += machine_seconds() - start;
  }
  MPI_Allreduce(MPI_IN_PLACE, &late, 1, MPI_INT, MPI_MAX, communicator);
  const double taken = slowest(sum / calls, communicator);
  if (20 * late > calls) return std::nullopt;
  return taken;
}

/// How long a line of memory takes from one of two ranks on a host to the other and back. The two processors of a
/// virtual machine share a last cache for some seconds and do not for others: 0.1 us or 0.3 us, and what small calls
/// take follows from that. Times of two programs can only be compared where this was alike. Collective, like all that
/// it does.
class handover {
 public:
  explicit handover(MPI_Comm communicator) : communicator_(communicator) {
    MPI_Comm_rank(communicator, &rank_);
    int ranks = 0;
    MPI_Comm_size(communicator, &ranks);
    if (ranks != 2 || !can_start_by_clock(communicator)) return;
    void* mine = nullptr;
    MPI_Aint bytes = rank_ == 0 ? static_cast<MPI_Aint>(sizeof(number)) : 0;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, communicator, static_cast<void*>(&mine), &window_);
    int unit = 0;
    MPI_Win_shared_query(window_, 0, &bytes, &unit, static_cast<void*>(&mine));
    turn_ = rank_ == 0 ? new (mine) number(0) : static_cast<number*>(mine);
    MPI_Barrier(communicator);
  }
  handover(const handover&) = delete;
  handover& operator=(const handover&) = delete;
  ~handover() {
    if (turn_ != nullptr) MPI_Win_free(&window_);
  }

  /// Seconds; 0 where there are not two ranks with a processor each.
  double seconds() {
    if (turn_ == nullptr) return 0;
    MPI_Barrier(communicator_);
    const double begin = machine_seconds();
    // Rank 0 waits for even numbers, rank 1 for odd ones, and each writes the next.
    for (std::uint32_t n = 0; n < trips; ++n, next_ += 2) {
      const auto mine = next_ + static_cast<std::uint32_t>(rank_);
      while (turn_->load() != mine) {}
      turn_->store(mine + 1);
    }
    return slowest((machine_seconds() - begin) / trips, communicator_);
  }

 private:
  using number = std::atomic<std::uint32_t>;
  static constexpr std::uint32_t trips = 100;

  MPI_Comm communicator_;
  int rank_ = 0;
  MPI_Win window_ = MPI_WIN_NULL;
  number* turn_ = nullptr;  // in rank 0's memory
  std::uint32_t next_ = 0;
};

/// How calls are started: at the same intervals, whichever candidate makes them.
struct pace {
  /// Longer calls don't notice who goes first.
  static constexpr double longest = 1e-4;
  /// The time of a small call depends on the pause before it (MPICH's broadcast of 512 bytes: 0.5 us at instants 2.5 us
  /// apart, 1.1 us at 10 us and more). So instants of calls that are compared have to be equally far apart, though some
  /// candidates need less: these seconds, or twice, four times as much.
  static constexpr double least = 1e-5;
  static constexpr int tries = 5;  ///< batches in a row in which ranks were late, until the window is too short
  double window = 0;               ///< 0: after a barrier

  /// `slowest`: seconds of a call of the slowest candidate.
  void fit(double slowest) {
    for (window = least; window < 3 * slowest;) window *= 2;
  }

  template <class Body> double batch(int calls, Body& body, MPI_Comm communicator) {
    for (; window > 0 && window < 50 * longest; window *= 2) {
      for (int attempt = 0; attempt < tries; ++attempt) {
        const std::optional<double> taken = window_seconds(calls, window, body, communicator);
        if (taken) return *taken;
      }
    }
    window = 0;
    return batch_seconds(calls, body, communicator);
  }
};

/// How long is measured.
struct effort {
  double batch = 1e-3;  ///< seconds of one batch of one candidate
  double all = 0.5;     ///< seconds of all batches of one candidate
  int least = 5;        ///< batches
  int most = 61;
  /// Seconds: before a batch of shorter calls comes one that is not counted. It finds in the caches what another
  /// candidate left there: on two processors of a Xeon, whatever came after shared memory took up to a third longer.
  double warmed_up = 0.03;
  /// A candidate this much slower than the best is called twice, however long the others are measured.
  double hopeless = 1e9;
};

/// The middle one; of an even number the lower.
inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

struct measured {
  std::vector<double> seconds;  ///< of a call of each candidate
  double apart = 0;             ///< seconds that a line took between the two ranks and back meanwhile; 0: not known
};

/// Medians over rounds in which all candidates take turns, so that a machine that slows down for a while slows all of
/// them down.
inline measured measure(const std::vector<std::function<void()>>& candidates, const effort& how,
                        MPI_Comm communicator) {
  std::vector<std::vector<double>> samples(candidates.size());
  std::vector<double> once;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const double first = batch_seconds(1, candidates[c], communicator);
    // The first call warms up what the others find warm; a long one does not notice.
    once.push_back(first > 0.1 ? first : batch_seconds(1, candidates[c], communicator));
    if (first > 0.1) samples[c].push_back(first);
  }
  const double best = *std::min_element(once.begin(), once.end());
  const auto is_hopeless = [&](std::size_t c) { return once[c] > how.hopeless * best; };
  std::vector<double> last = once;
  pace common;
  const auto fit = [&] {
    double slowest = 0;
    for (std::size_t c = 0; c < candidates.size(); ++c) slowest = std::max(slowest, is_hopeless(c) ? 0 : last[c]);
    common.fit(slowest);
  };
  bool by_clock = best < pace::longest && can_start_by_clock(communicator);
  if (by_clock) fit();
  std::vector<int> calls;
  int rounds = how.most;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const double each = std::max(once[c], common.window);
    calls.push_back(std::clamp(static_cast<int>(how.batch / each), 1, 2000));
    if (is_hopeless(c)) continue;
    rounds = std::min(rounds, std::max(how.least, static_cast<int>(how.all / (each * calls.back()))));
  }
  handover between(communicator);
  std::vector<double> apart;
  for (int round = 0; round < rounds; ++round) {
    apart.push_back(between.seconds());
    if (by_clock) fit();
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      if (is_hopeless(c) && samples[c].size() >= 2) continue;
      if (last[c] < how.warmed_up) candidates[c]();
      last[c] = common.batch(calls[c], candidates[c], communicator);
      samples[c].push_back(last[c]);
    }
    by_clock = by_clock && common.window > 0;
  }
  measured found;
  for (const std::vector<double>& all : samples) found.seconds.push_back(median(all));
  found.apart = median(apart);
  return found;
}

/// Prints one line for benchmarks/run.
inline void report(const std::string& row, const std::string& what, double seconds, double apart = 0) {
  std::printf("{\"row\": \"%s\", \"what\": \"%s\", \"value\": %.9g, \"unit\": \"us\"", row.c_str(), what.c_str(),
              seconds * 1e6);
  if (apart > 0) std::printf(", \"apart\": %.3g", apart * 1e6);
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace collective_cells
