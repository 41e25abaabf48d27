// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A collective on the network that it finds, beside the MPI library's own and the bound of the probed rates.
//
//     mpirun -n N bench_collectives OPERATION BYTES ROW [ours|library|both]
//
// OPERATION: all_reduce (float sums), broadcast, ... BYTES: of the whole array. Every time is that of the slowest rank,
// the median of some calls after tuning.

#include "machine.hpp"

#include <espalier/comm.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::comm;
using espalier::benchmarks::median;

operation operation_named(const std::string& name) {
  for (const operation what :
       {operation::broadcast, operation::reduce, operation::all_reduce, operation::all_gather,
        operation::reduce_scatter, operation::gather, operation::scatter, operation::all_to_all}) {
    if (name == name_of(what)) return what;
  }
  throw std::invalid_argument("there is no collective " + name);
}

collective kind_of(operation what) {
  for (const collective kind : {collective::broadcast, collective::reduce, collective::all_gather,
                                collective::reduce_scatter, collective::all_reduce}) {
    if (operation_of(kind) == what) return kind;
  }
  return collective::all_reduce;
}

/// Seconds of the slowest rank in each call.
template <class Body> double timed(int calls, const Body& body) {
  std::vector<double> samples;
  for (int n = 0; n < calls; ++n) {
    MPI_Barrier(MPI_COMM_WORLD);
    double mine = benchmarks::seconds(body);
    double slowest = 0;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    samples.push_back(slowest);
  }
  return median(samples);
}

/// Calls that take about a second and a half together, 3 to 200.
int calls_for(double seconds) { return std::clamp(static_cast<int>(1.5 / std::max(seconds, 1e-6)), 3, 200); }

int run(int argc, char** argv) {
  if (argc < 4) throw std::invalid_argument("usage: bench_collectives OPERATION BYTES ROW [forced | library NAME]");
  const operation what = operation_named(argv[1]);
  const std::int64_t bytes = std::atoll(argv[2]);
  const std::string row = argv[3];
  const std::string who = argc > 4 ? argv[4] : "";
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const element type = element_of(dtype::f32, reduction::sum);
  const std::int64_t blocks = has_blocks(what) ? ranks : what == operation::all_to_all ? ranks * ranks : 1;
  const collective_call call = uniform_call(what, ranks, std::max<std::int64_t>(1, bytes / 4 / blocks));
  const call_layout layout(call);
  std::vector<float> input(static_cast<std::size_t>(layout.input_elements(rank)), 1.0F);
  std::vector<float> output(static_cast<std::size_t>(std::max<std::int64_t>(layout.output_elements(rank), 1)), 0.0F);
  const auto say = [&](const char* beside, const char* name, double seconds) {
    if (rank == 0) benchmarks::report(row + '/' + beside, name, seconds * 1e3, "ms");
  };

  if (who != "library") {
    const double begin = benchmarks::now();
    const topology machine = probe(MPI_COMM_WORLD);
    const double probed = benchmarks::now() - begin;
    collectives all(MPI_COMM_WORLD, machine);
    const auto one = [&] { all.run(call, input.data(), output.data(), type); };
    int tried = 0;
    double last = 0;
    while (!all.settled(call, type) && tried < 100) {
      last = timed(1, one);
      ++tried;
    }
    const double ours = timed(calls_for(last > 0 ? last : timed(1, one)), one);
    const choice found = all.settled(call, type).value_or(choice{});
    if (rank == 0) {
      std::printf("%s: probed in %.2f s, settled on %s with chunks of %lld B after %d calls\n", row.c_str(), probed,
                  name_of(found.how), static_cast<long long>(found.chunk), tried);
    }
    for (const char* beside : {"bound", "library", "forced"}) {
      if (std::string(beside) != "forced" || who == "forced") say(beside, "ours", ours);
    }
    if (what != operation::gather && what != operation::scatter && what != operation::all_to_all && ranks > 1) {
      const packing trees = pack(all.over(), kind_of(what), call.root);
      say("bound", "bound", static_cast<double>(bytes) / (to_double(trees.bound) * all.over().unit));
    }
  }
  const comm::detail::library_call library(call, type, rank);
  const auto one = [&] { library.run(MPI_COMM_WORLD, input.data(), output.data(), type); };
  const double once = timed(1, one);
  const bool alone = who == "library";
  say(alone ? "forced" : "library", alone && argc > 5 ? argv[5] : "MPI library", timed(calls_for(once), one));
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = EXIT_FAILURE;
  try {
    code = run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_collectives: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  MPI_Finalize();
  return code;
}
