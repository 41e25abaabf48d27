// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 1 2 3 4 8
// timeout: 240
// dies([host_death]): 3 rank [01] waited 0.5 s in all_reduce for rank 2

#include <espalier/comm/host/collectives.hpp>

#include <catch2/catch.hpp>
#include <espalier/testing/random_calls.hpp>
#include <support/mpi_require.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::dtype;
using espalier::reduction;
using espalier::test::call_buffers;
using espalier::test::element_kind;

int rank_in(MPI_Comm communicator) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}
int size_of(MPI_Comm communicator) {
  int size = 0;
  MPI_Comm_size(communicator, &size);
  return size;
}

element element_of_kind(const element_kind& kind) {
  element made;
  made.by = kind.by;
  return made;
}

/// Hands out pieces of one buffer of the library.
class arena {
 public:
  arena(host_collectives& all, std::int64_t bytes)
      : all_(all), memory_(static_cast<std::byte*>(all.allocate(bytes))), bytes_(bytes) {}
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() { all_.deallocate(memory_); }

  void clear() { used_ = 0; }
  /// Null if there is no room left.
  std::byte* take(std::int64_t bytes) {
    const std::int64_t at = used_;
    if (at + bytes > bytes_) return nullptr;
    used_ = at + (bytes + 15) / 16 * 16;
    return memory_ + at;
  }

 private:
  host_collectives& all_;
  std::byte* memory_;
  std::int64_t bytes_;
  std::int64_t used_ = 0;
};

/// Makes calls one after another, checked after the last, from private and the library's buffers; ranks dawdle. `how`:
/// none, for each call another.
void random_calls(MPI_Comm communicator, const host_options& options, std::optional<private_memory> how, unsigned seed,
                  long count) {
  const std::vector<element_kind> kinds = espalier::test::element_kinds();
  host_collectives all(communicator, options);
  arena ours(all, std::int64_t{6} << 20);
  std::mt19937 random(seed);                                                // the same on all ranks
  std::mt19937 own(seed + static_cast<unsigned>(1000 * (all.rank() + 1)));  // each its own
  for (long done = 0; done < count;) {
    std::vector<call_buffers> series;
    ours.clear();
    // Which buffers are the library's: none, all ranks', or some ranks' and not others'.
    const auto way = random() % 3;
    for (auto n = 1 + random() % 10; n > 0; --n, ++done) {
      const element_kind& kind = kinds[random() % kinds.size()];
      const collective_call call = espalier::test::random_call(random, all.size(), random() % 3 == 0 ? 200000 : 3000);
      std::byte* in = nullptr;
      std::byte* out = nullptr;
      if (way == 1 || (way == 2 && own() % 2 == 0)) {
        in = ours.take(call_buffers::needed_for_input(call, kind, all.rank()));
      }
      if (way == 1 || (way == 2 && own() % 2 == 0)) {
        out = ours.take(call_buffers::needed_for_output(call, kind, all.rank()));
      }
      series.emplace_back(call, kind, all.rank(), in, out);
    }
    for (call_buffers& b : series) {
      if (own() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
      const element what = element_of_kind(b.kind());
      REQUIRE(all.serves(b.call(), what));
      const bool kernel = random() % 2 == 0;
      all.run(b.call(), b.input(), b.output(), what, nullptr,
              how.value_or(kernel ? private_memory::kernel : private_memory::staged));
    }
    for (const call_buffers& b : series) {
      const std::string fault = b.fault();
      INFO(espalier::test::text_of(b.call(), b.kind()) << ": " << fault);
      REQUIRE_ALL(communicator, fault.empty());
    }
  }
}

host::sizes narrow() {
  host::sizes how;  // many rounds, rooms used again at once
  how.region = 1;
  how.chunk = 2048;
  how.least_chunk = 512;
  how.split_from = 64;
  return how;
}

}  // namespace

TEST_CASE("random collectives of processes equal their definitions", "[host]") {
  const auto seed = static_cast<unsigned>(espalier::test::fuzz_random()());
  const long count = espalier::test::fuzz_cases(500);
  host_options options;
  random_calls(MPI_COMM_WORLD, options, std::nullopt, seed, count);
  random_calls(MPI_COMM_WORLD, options, private_memory::staged, seed + 1, count);
  options.sizes.expose_from = 256;
  random_calls(MPI_COMM_WORLD, options, private_memory::kernel, seed + 2, count);
  options.sizes = narrow();
  options.sizes.expose_from = 256;
  random_calls(MPI_COMM_WORLD, options, std::nullopt, seed + 3, count);
  options.sizes.stream_from = 500;
  random_calls(MPI_COMM_WORLD, options, private_memory::staged, seed + 4, count);
  options.sizes.stage_by = host::store::streaming;
  random_calls(MPI_COMM_WORLD, options, private_memory::staged, seed + 5, count);
}

TEST_CASE("parts of a communicator have their own collectives, at the same time", "[host]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  const int rank = rank_in(MPI_COMM_WORLD);
  std::mt19937 random(11);
  for (int round = 0; round < 4; ++round) {
    // Groups that interleave, in another order of ranks.
    std::vector<int> colour(static_cast<std::size_t>(ranks));
    for (int& c : colour) c = static_cast<int>(random() % 3);
    MPI_Comm part{};
    MPI_Comm_split(MPI_COMM_WORLD, colour[static_cast<std::size_t>(rank)], ranks - rank, &part);
    random_calls(part, {}, std::nullopt, static_cast<unsigned>(round), 40);
    MPI_Comm_free(&part);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("types and operations of MPI's are combined, the user's own in the order of ranks", "[host]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  const int rank = rank_in(MPI_COMM_WORLD);
  host_collectives all(MPI_COMM_WORLD);
  MPI_Datatype pair{};
  MPI_Type_contiguous(3, MPI_UINT32_T, &pair);
  MPI_Type_commit(&pair);
  MPI_Op product{};
  const auto multiply = [](void* in, void* inout, int* count, MPI_Datatype*) {
    auto* const left = static_cast<std::byte*>(in);
    auto* const right = static_cast<std::byte*>(inout);
    for (int i = 0; i < *count; ++i) {
      std::byte result[12];
      std::copy_n(left + 12 * i, 12, &result[0]);
      espalier::test::elements::join_matrices(&result[0], right + 12 * i);
      std::copy_n(&result[0], 12, right + 12 * i);
    }
  };
  MPI_Op_create(multiply, 0, &product);
  {
    const mpi_element matrices(pair, product);
    const element_kind kind = espalier::test::element_kinds().back();
    for (const collective what : {collective::all_reduce, collective::reduce, collective::reduce_scatter}) {
      for (const std::int64_t count : {1, 7, 1000, 30000}) {
        call_buffers b(uniform_call(what, ranks, count, ranks - 1), kind, rank);
        all.run(b.call(), b.input(), b.output(), matrices.get());
        INFO(b.fault());
        REQUIRE_ALL(MPI_COMM_WORLD, b.fault().empty());
      }
    }
    const mpi_element integers(MPI_INT, MPI_SUM);
    const mpi_element longs(MPI_LONG, MPI_MAX);
    std::vector<int> mine(5000);
    std::vector<long> mine_long(5000);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = rank + static_cast<int>(i);
      mine_long[i] = static_cast<long>(rank == static_cast<int>(i) % ranks ? i : 0);
    }
    std::vector<int> sums(mine.size());
    std::vector<long> largest(mine.size());
    const collective_call call = uniform_call(collective::all_reduce, ranks, 5000);
    all.run(call, mine.data(), sums.data(), integers.get());
    all.run(call, mine_long.data(), largest.data(), longs.get());
    bool right = true;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      right = right && sums[i] == ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i);
      right = right && largest[i] == static_cast<long>(i);
    }
    REQUIRE_ALL(MPI_COMM_WORLD, right);
  }
  MPI_Op_free(&product);
  MPI_Type_free(&pair);
}

TEST_CASE("buffers of the library are given out and given back", "[host]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  host_collectives all(MPI_COMM_WORLD);
  const collective_call call = uniform_call(collective::all_reduce, ranks, 100000);
  const element what = element_of(dtype::f32, reduction::sum);
  for (int k = 0; k < 3; ++k) {
    std::vector<float*> buffers;
    for (int b = 0; b < 3; ++b) buffers.push_back(static_cast<float*>(all.allocate(400000)));
    bool fine = true;
    for (float* const b : buffers) {
      fine = fine && reinterpret_cast<std::uintptr_t>(b) % 64 == 0 && b[0] == 0 && b[99999] == 0;
    }
    REQUIRE_ALL(MPI_COMM_WORLD, fine);
    std::fill_n(buffers[0], 100000, 1.0F);
    all.run(call, buffers[0], buffers[1], what);
    all.run(call, buffers[1], buffers[2], what);
    collective_call in_place = call;
    in_place.in_place = true;
    all.run(in_place, nullptr, buffers[2], what);
    const float cube = static_cast<float>(ranks * ranks * ranks);
    REQUIRE_ALL(MPI_COMM_WORLD, std::all_of(buffers[2], buffers[2] + 100000, [&](float x) { return x == cube; }));
    for (const int b : {1, 0, 2}) all.deallocate(buffers[static_cast<std::size_t>(b)]);
    CHECK_THROWS_AS(all.deallocate(buffers[0]), std::invalid_argument);
  }
}

TEST_CASE("in place, nobody overwrites what a slow process still has to read", "[host]") {
  for (const private_memory how : {private_memory::staged, private_memory::kernel}) {
    host_collectives all(MPI_COMM_WORLD);
    // Sums of 32-bit numbers; all but the first rank take their time with every chunk.
    combiner slow;
    slow.element_bytes = 4;
    const bool late = all.rank() > 0;
    slow.state = &late;
    slow.combine = [](const void* state, void* target, const void* own, void* incoming, std::int64_t count, bool) {
      if (*static_cast<const bool*>(state)) std::this_thread::sleep_for(std::chrono::microseconds(300));
      const auto* const a = static_cast<const std::int32_t*>(own);
      const auto* const b = static_cast<const std::int32_t*>(incoming);
      for (std::int64_t i = 0; i < count; ++i) static_cast<std::int32_t*>(target)[i] = a[i] + b[i];
    };
    element what;
    what.by = slow;
    constexpr std::int64_t count = 1 << 19;
    std::vector<std::int32_t> data(static_cast<std::size_t>(count), all.rank() + 1);
    collective_call call = uniform_call(collective::all_reduce, all.size(), count);
    call.in_place = true;
    all.run(call, nullptr, data.data(), what, nullptr, how);
    const std::int32_t sum = all.size() * (all.size() + 1) / 2;
    CHECK(std::count(data.begin(), data.end(), sum) == count);
  }
}

TEST_CASE("a process that does not come is named, on all that waited", "[host]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  const int rank = rank_in(MPI_COMM_WORLD);
  if (ranks == 1) return;
  const int absent = ranks - 1;
  for (const bool library : {false, true}) {
    for (const std::int64_t count : {1, 1000, 300000}) {
      host_options options;
      options.deadline = std::chrono::duration<double>(0.3);
      host_collectives all(MPI_COMM_WORLD, options);
      std::vector<float> own(static_cast<std::size_t>(2 * count), 1);
      auto* const data = library ? static_cast<float*>(all.allocate(8 * count)) : own.data();
      const collective_call call = uniform_call(collective::all_reduce, ranks, count);
      const element what = element_of(dtype::f32, reduction::sum);
      all.run(call, data, data + count, what);
      MPI_Barrier(MPI_COMM_WORLD);
      std::string said;
      if (rank != absent) {
        try {
          all.run(call, data, data + count, what);
        } catch (const comm_error& error) { said = error.what(); }
      }
      MPI_Barrier(MPI_COMM_WORLD);
      INFO(said);
      const bool named =
          said.find("waited 0.3 s in all_reduce for rank " + std::to_string(absent)) != std::string::npos;
      const bool chunk = said.find("chunk 0 of ") != std::string::npos;
      REQUIRE_ALL(MPI_COMM_WORLD, (rank == absent || (named && chunk)));
      // Who comes too late hears that, instead of waiting.
      if (rank == absent) {
        try {
          all.run(call, data, data + count, what);
          // The others' data may be complete; then the next call fails.
          all.run(call, data, data + count, what);
        } catch (const comm_error& error) { said = error.what(); }
      }
      INFO(said);
      REQUIRE_ALL(MPI_COMM_WORLD, !said.empty());
    }
  }
}

TEST_CASE("processes meet, between any collectives, and none leaves before the last has come", "[host]") {
  host_options options;
  options.deadline = std::chrono::duration<double>(30);
  host_collectives all(MPI_COMM_WORLD, options);
  const element what = element_of(dtype::f64, reduction::max);
  // One clock for the host.
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  bool right = true;
  for (int n = 0; n < 200; ++n) {
    if (n % 20 == all.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const double came = now();
    all.meet("a test");
    const double left = now();
    double last = 0;
    if (n % 3 == 0) all.meet("a test");
    all.run(uniform_call(collective::all_reduce, all.size(), 1), &came, &last, what);
    right = right && left >= last && last >= came;
  }
  REQUIRE_ALL(MPI_COMM_WORLD, right);
}

TEST_CASE("who does not come to a meeting is named", "[host]") {
  const int absent = size_of(MPI_COMM_WORLD) - 1;
  if (absent == 0) return;
  host_options options;
  options.deadline = std::chrono::duration<double>(0.3);
  host_collectives all(MPI_COMM_WORLD, options);
  all.meet("broadcast");
  MPI_Barrier(MPI_COMM_WORLD);
  std::string said;
  if (all.rank() != absent) {
    try {
      all.meet("broadcast");
    } catch (const comm_error& error) { said = error.what(); }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  INFO(said);
  const bool named = said.find("waited 0.3 s in broadcast for rank " + std::to_string(absent)) != std::string::npos;
  REQUIRE_ALL(MPI_COMM_WORLD, (all.rank() == absent || named));
}

TEST_CASE("processes in different collectives are told so", "[host]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  if (ranks == 1) return;
  host_options options;
  options.deadline = std::chrono::duration<double>(10);
  // Rank 0 does one element less, or moves the same bytes in one copy.
  for (const std::int64_t count : {2, 100, 100000, 100001}) {
    host_collectives all(MPI_COMM_WORLD, options);
    const bool other = all.rank() == 0;
    const bool copies = count == 100001;
    if (copies && !all.has_kernel(count)) continue;
    std::vector<float> data(static_cast<std::size_t>(count), 1);
    std::vector<float> result(data.size());
    std::string said;
    const auto start = std::chrono::steady_clock::now();
    try {
      all.run(uniform_call(collective::all_reduce, ranks, other && !copies ? count - 1 : count), data.data(),
              result.data(), element_of(dtype::f32, reduction::sum), nullptr,
              other && copies ? private_memory::kernel : private_memory::staged);
    } catch (const comm_error& error) { said = error.what(); }
    INFO(count << ": " << said);
    REQUIRE_ALL(MPI_COMM_WORLD, said.find("different collectives") != std::string::npos);
    const std::string in = copies ? "how memory is read"
                                  : "the count (" + std::to_string(ranks > 2 ? count - 1 : count) + ", not " +
                                        std::to_string(ranks > 2 ? count : count - 1) + ")";
    REQUIRE_ALL(MPI_COMM_WORLD, said.find(" in " + in) != std::string::npos);
    REQUIRE_ALL(MPI_COMM_WORLD, std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  }
}

TEST_CASE("processes that combine by different operations, or different types, are told so", "[host]") {
  const int ranks = size_of(MPI_COMM_WORLD);
  if (ranks == 1) return;
  host_options options;
  options.deadline = std::chrono::duration<double>(10);
  const element sum = element_of(dtype::f32, reduction::sum);
  const mpi_element largest(MPI_FLOAT, MPI_MAX);
  const mpi_element integers(MPI_INT, MPI_SUM);
  for (const std::int64_t count : {1, 100, 100000}) {
    for (const element* const other : {&largest.get(), &integers.get()}) {
      host_collectives all(MPI_COMM_WORLD, options);
      const bool last = all.rank() == ranks - 1;
      std::vector<float> data(static_cast<std::size_t>(count), 1);
      std::vector<float> result(data.size(), -1);
      const collective_call call = uniform_call(collective::all_reduce, ranks, count);
      for (const element* const by : {&sum, other}) all.run(call, data.data(), result.data(), *by);
      std::string said;
      try {
        all.run(call, data.data(), result.data(), last ? *other : sum);
      } catch (const comm_error& error) { said = error.what(); }
      INFO(count << ": " << said);
      const std::string in = other == &largest.get() ? "the operation (max, not sum)" : "the type (i32, not f32)";
      REQUIRE_ALL(MPI_COMM_WORLD,
                  said.find("rank " + std::to_string(ranks - 1) + " differs from rank") != std::string::npos);
      REQUIRE_ALL(MPI_COMM_WORLD, said.find(" in " + in) != std::string::npos);
    }
    // Who only sends cannot see it; the others take nothing of another type.
    host_collectives all(MPI_COMM_WORLD, options);
    std::vector<float> data(static_cast<std::size_t>(count), 1);
    std::string said;
    try {
      all.run(uniform_call(collective::broadcast, ranks, count), data.data(), data.data(),
              all.rank() == 0 ? sum : integers.get());
    } catch (const comm_error& error) { said = error.what(); }
    INFO(count << ": " << said);
    REQUIRE_ALL(MPI_COMM_WORLD, (all.rank() == 0 || said.find("f32") != std::string::npos));
  }
}

TEST_CASE("elements too long for a chunk are not served", "[host]") {
  host_collectives all(MPI_COMM_WORLD);
  const element_kind kind = espalier::test::element_kinds().back();
  element what;
  what.by = kind.by;
  const collective_call sum = uniform_call(collective::all_reduce, all.size(), 1);
  CHECK(all.serves(sum, what));
  what.by.element_bytes = 1 << 24;
  CHECK_FALSE(all.serves(sum, what));
  CHECK(all.serves(uniform_call(collective::broadcast, all.size(), 1), what));
  CHECK_FALSE(all.serves(uniform_call(collective::broadcast, all.size() + 1, 1), what));
  CHECK_FALSE(all.serves(sum, bytes_of_size(4)));
}

TEST_CASE("a process that dies is named by the others", "[.][host_death]") {
  host_options options;
  options.deadline = std::chrono::duration<double>(0.5);
  auto all = std::make_unique<host_collectives>(MPI_COMM_WORLD, options);
  std::vector<float> data(300000, 1);
  std::vector<float> result(data.size());
  const collective_call call = uniform_call(collective::all_reduce, all->size(), 300000);
  const element what = element_of(dtype::f32, reduction::sum);
  all->run(call, data.data(), result.data(), what);
  if (all->rank() == all->size() - 1) {
    std::raise(SIGSTOP);  // mpirun would end the others before they can say anything, were it SIGKILL
  }
  try {
    all->run(call, data.data(), result.data(), what);
  } catch (const comm_error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
