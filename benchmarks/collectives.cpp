// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Collectives on the network that they find, beside the MPI library's own, taking turns in one process.
//
//     mpirun -n N bench_collectives ROW all|OPERATION,... BYTES,... [bound,default,best]
//
//     bench_collectives ROW combine BYTES,...
//
// The second: what a rank does with another's contribution to a sum, without any communication.
//
// Rows are ROW/OPERATION/BYTES, or with the last argument ROW/OPERATION/BYTES/bound ...: beside the time that the
// probed rates allow at least, the library's own choice, and the best of all of its algorithms when forced. What is
// measured, and how: peers/collectives/cells.hpp. Every result is compared with the library's.

#include "peers/collectives/cells.hpp"
#include "peers/collectives/forced.hpp"

#include <espalier/comm.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::comm;
using namespace collective_cells;

/// The library's collective of this name.
collective collective_of(kind what) {
  for (int k = 0; k < collective_kinds; ++k) {
    const auto one = static_cast<collective>(k);
    if (std::strcmp(name_of(one), name_of(what)) == 0) return one;
  }
  throw std::invalid_argument(std::string("no collective is named ") + name_of(what));
}

/// Calls the collective as a program would.
void call(collectives& all, cell& now, const element& type) {
  float* const in = now.input.data();
  float* const out = now.output.data();
  switch (now.what) {
    case kind::broadcast: all.broadcast(out, now.count, type, 0); break;
    case kind::reduce: all.reduce(in, out, now.count, type, 0); break;
    case kind::all_reduce: all.all_reduce(in, out, now.count, type); break;
    case kind::all_gather: all.all_gather(in, out, now.count, type); break;
    case kind::reduce_scatter: all.reduce_scatter(in, out, now.count, type); break;
    case kind::gather: all.gather(in, out, now.count, type, 0); break;
    case kind::scatter: all.scatter(in, out, now.count, type, 0); break;
    case kind::all_to_all: all.all_to_all(in, out, now.count, type); break;
  }
}

/// Returns the choice on which `call` was settled.
std::optional<choice> settled(collectives& all, const cell& now, const element& type) {
  collective_call made = uniform_call(collective_of(now.what), now.ranks, now.count);
  made.in_place = now.what == kind::broadcast;
  return all.settled(made, type);
}

bool same_everywhere(const std::vector<float>& a, const std::vector<float>& b) {
  int same = a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return same != 0;
}

/// One call, whose result must be the library's.
void require_right(collectives& all, cell& now, const element& type, const std::vector<float>& expected) {
  now.clear();
  call(all, now, type);
  if (same_everywhere(expected, now.output)) return;
  throw std::runtime_error(std::string(collective_cells::name_of(now.what)) + " of " + std::to_string(now.bytes) +
                           " B has another result than the MPI library's");
}

/// Calls until it is settled how the collective is done.
int settle(collectives& all, cell& now, const element& type) {
  int calls = 0;
  for (; calls < 300 && !settled(all, now, type); ++calls) call(all, now, type);
  return calls;
}

/// All-reduce in memory that the collectives give, where they give any: the other ranks read and write it in place.
/// The library has its usual buffers.
template <class Collectives> void measure_own_buffers(Collectives& all, cell& now, const std::string& row) {
  if constexpr (requires { all.deallocate(all.allocate(std::int64_t{1})); }) {
    const element type = element_of(dtype::f32, reduction::sum);
    const auto bytes = static_cast<std::int64_t>(now.input.size() * sizeof(float));
    auto* const in = static_cast<float*>(all.allocate(bytes));
    auto* const out = static_cast<float*>(all.allocate(bytes));
    std::copy(now.input.begin(), now.input.end(), in);
    const auto ours = [&] { all.all_reduce(in, out, now.count, type); };
    for (int calls = 0; calls < 300 && !settled(all, now, type); ++calls) ours();
    for (int calls = 0; calls < 3; ++calls) ours();
    now.library(MPI_COMM_WORLD);
    if (!same_everywhere(now.output, std::vector<float>(out, out + now.output.size()))) {
      throw std::runtime_error("all_reduce in own buffers has another result than the MPI library's");
    }
    const collective_cells::measured found =
        collective_cells::measure({ours, [&] { now.library(MPI_COMM_WORLD); }}, {}, MPI_COMM_WORLD);
    all.deallocate(in);
    all.deallocate(out);
    if (now.rank != 0) return;
    report(row, "ours", found.seconds[0], found.apart);
    report(row, "Open MPI", found.seconds[1], found.apart);
  }
}

/// Bytes from which own buffers are measured.
constexpr long long large = 64LL << 20;

struct asked {
  bool bound = false;
  bool by_default = false;
  bool best = false;
  [[nodiscard]] bool nothing() const { return !bound && !by_default && !best; }
};

void measure_cell(collectives& all, cell& now, const std::string& row, const asked& beside,
                  const std::vector<forced_algorithm>& forced) {
  const element type = element_of(dtype::f32, reduction::sum);
  now.library(MPI_COMM_WORLD);
  const std::vector<float> expected = now.output;
  require_right(all, now, type, expected);
  const int tried = settle(all, now, type);
  require_right(all, now, type, expected);

  std::vector<std::function<void()>> ways{[&] { call(all, now, type); }, [&] { now.library(MPI_COMM_WORLD); }};
  for (const forced_algorithm& one : forced) {
    if (beside.best) ways.emplace_back([&now, &one] { now.library(one.communicator); });
  }
  // On a network a call takes long and varies little.
  const effort network{.batch = 1e-3, .all = 1.0, .least = 2, .most = 31, .hopeless = 2.5};
  const collective_cells::measured times =
      collective_cells::measure(ways, beside.nothing() ? effort{} : network, MPI_COMM_WORLD);
  if (now.rank != 0) return;

  const choice found = settled(all, now, type).value_or(choice{});
  std::printf("%s: %s with chunks of %lld B, settled after %d calls\n", row.c_str(), comm::name_of(found.how),
              static_cast<long long>(found.chunk), tried);
  const auto both = [&](const std::string& name, const char* peer, double other) {
    report(name, "ours", times.seconds[0], times.apart);
    report(name, peer, other, times.apart);
  };
  if (beside.nothing()) both(row, "Open MPI", times.seconds[1]);
  if (beside.by_default) both(row + "/default", "Open MPI", times.seconds[1]);
  if (beside.best) {
    both(row + "/best", "Open MPI", times.seconds[1]);
    for (std::size_t k = 0; k < forced.size(); ++k) report(row + "/best", forced[k].name, times.seconds[2 + k]);
  }
  if (const collective packed = collective_of(now.what); beside.bound && has_trees(packed) && now.ranks > 1) {
    const packing trees = pack(all.over(), packed, 0);
    // All-gather and reduce-scatter count the whole array, as a cell does.
    both(row + "/bound", "bound", static_cast<double>(now.bytes) / (to_double(trees.bound) * all.over().unit));
  }
}

/// Sums of two arrays, in place of the second: our kernel for shared memory and the library's. Both have the same
/// arrays: which of two share places in a cache is chance.
void measure_combining(const std::string& row, long long bytes) {
  const auto count = static_cast<int>(bytes / 4);
  cell now(kind::reduce, bytes, MPI_COMM_SELF);
  const host::fold_function fold = element_of(dtype::f32, reduction::sum).by.fold;
  std::vector<float> sum(now.input);
  std::byte* const target = reinterpret_cast<std::byte*>(sum.data());
  const std::array<const std::byte*, 2> parts{reinterpret_cast<const std::byte*>(now.input.data()), target};
  const auto ours = [&] { fold({&target, 1, parts.data(), 2, count, host::store::cached}); };
  const auto library = [&] { MPI_Reduce_local(now.input.data(), sum.data(), count, MPI_FLOAT, MPI_SUM); };
  library();
  const std::vector<float> expected = sum;
  std::copy(now.input.begin(), now.input.end(), sum.begin());
  ours();
  if (sum != expected) throw std::runtime_error("a sum of two arrays is not the MPI library's");
  const collective_cells::measured found = collective_cells::measure({ours, library}, {}, MPI_COMM_SELF);
  report(row, "ours", found.seconds[0]);
  report(row, "Open MPI", found.seconds[1]);
}

int run(int argc, char** argv) {
  if (argc < 4)
    throw std::invalid_argument("usage: bench_collectives ROW all|OPERATION,... BYTES,... [bound,default,best]");
  const std::string row = argv[1];
  if (std::strcmp(argv[2], "combine") == 0) {
    for (const std::string& bytes : parts_of(argv[3]))
      measure_combining(row + "/combine/" + bytes, std::atoll(bytes.c_str()));
    return EXIT_SUCCESS;
  }
  asked beside;
  for (const std::string& word : parts_of(argc > 4 ? argv[4] : "")) {
    beside.bound = beside.bound || word == "bound";
    beside.by_default = beside.by_default || word == "default";
    beside.best = beside.best || word == "best";
  }
  const double begin = MPI_Wtime();
  const topology machine = probe(MPI_COMM_WORLD);
  const double probed = MPI_Wtime() - begin;
  collectives all(MPI_COMM_WORLD, machine);
  if (all.rank() == 0) {
    std::printf("%s: probed in %.2f s: %zu links, %zu shared resources, unit %s\n", row.c_str(), probed,
                machine.links.size(), machine.resources.size(), machine.unit_name.c_str());
  }
  for (const kind what : kinds_of(argv[2])) {
    const std::vector<forced_algorithm> forced =
        beside.best ? forced_algorithms(what, MPI_COMM_WORLD) : std::vector<forced_algorithm>{};
    for (const std::string& bytes : parts_of(argv[3])) {
      cell now(what, std::atoll(bytes.c_str()), MPI_COMM_WORLD);
      measure_cell(all, now, row + '/' + collective_cells::name_of(what) + '/' + bytes, beside, forced);
      if (what == kind::all_reduce && now.bytes >= large && beside.nothing())
        measure_own_buffers(all, now, row + "/own_buffers/" + bytes);
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  allow_forced_algorithms();
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
