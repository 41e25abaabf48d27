// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

/// The common part of the distributed matrix product peers: arguments, operands, timing, and the JSON line they print.
namespace peers {

/// One measurement: `program --n 2048 --type f32 [--repeats 5] [--only "1x2 nb 128"] [--row name]`.
struct request {
  int n = 2048;
  std::string type = "f32";
  int repeats = 5;
  std::string only;                   ///< measure this configuration only
  std::string row = "matmul_2ranks";  ///< name of the row in the line that is printed

  static request parse(int argc, char** argv) {
    request r;
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string key = argv[i], value = argv[i + 1];
      if (key == "--n") r.n = std::atoi(value.c_str());
      if (key == "--type") r.type = value;
      if (key == "--repeats") r.repeats = std::atoi(value.c_str());
      if (key == "--only") r.only = value;
      if (key == "--row") r.row = value;
    }
    return r;
  }
};

/// Elements of the operands: small multiples of 1/8, so that products are exact and a mistake can't hide in rounding.
template <class T> T left(long i, long j) { return static_cast<T>((i * 7 + j * 3) % 11 - 5) / 8; }
template <class T> T right(long i, long j) { return static_cast<T>((i * 5 + j * 13) % 9 - 4) / 8; }

/// Whether `value` is element (i, j) of the product of the two n x n operands.
template <class T> bool right_product(T value, long i, long j, long n) {
  double sum = 0;
  for (long k = 0; k < n; ++k) sum += static_cast<double>(left<T>(i, k)) * right<T>(k, j);
  return std::abs(sum - value) <= 1e-5 * n;
}

/// Median seconds of `repeats` runs after one that warms up; a run lasts until the slower rank is done.
template <class Body> double median_seconds(int repeats, Body body) {
  body();
  std::vector<double> times;
  for (int r = 0; r < repeats; ++r) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    body();
    double mine = MPI_Wtime() - begin, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    times.push_back(all);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

inline double gflops(long n, double seconds) { return 2.0 * n * n * n / seconds / 1e9; }

/// Aborts all ranks when one of them saw a wrong element.
inline void require_on_all(bool good, const char* what) {
  int mine = good, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (!all) {
    std::fprintf(stderr, "%s: wrong product\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

/// Measures every configuration and prints each on stderr and the fastest, measured once more, as the JSON line.
/// `measure(configuration, repeats)` gives median seconds and has checked the product.
template <class Configuration, class Measure>
void report_best(const request& r, const char* peer, const std::vector<Configuration>& configurations,
                 Measure measure) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  double best = 0;
  const Configuration* winner = nullptr;
  for (const auto& c : configurations) {
    if (!r.only.empty() && r.only != c.name()) continue;
    const double rate = gflops(r.n, measure(c, r.only.empty() ? 2 : r.repeats));
    if (rank == 0)
      std::fprintf(stderr, "%s %s %d %s: %.1f GFLOP/s\n", peer, r.type.c_str(), r.n, c.name().c_str(), rate);
    if (rate > best) best = rate, winner = &c;
  }
  if (winner == nullptr) {
    if (rank == 0) std::fprintf(stderr, "%s: no configuration is called '%s'\n", peer, r.only.c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  // The scan took the fastest of many: a fresh measurement of the winner is free of that luck.
  if (r.only.empty()) best = gflops(r.n, measure(*winner, r.repeats));
  MPI_Bcast(&best, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank == 0)
    std::printf(
        "{\"row\": \"%s\", \"what\": \"%s\", \"value\": %.2f, \"unit\": \"GFLOP/s\", \"config\": \"%s\", \"ranks\": "
        "%d}\n",
        r.row.c_str(), peer, best, winner->name().c_str(), ranks);
}

}  // namespace peers
