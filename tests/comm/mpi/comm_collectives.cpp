// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 240
// dies([library_mismatch]): 2 in all_reduce, which the MPI library carries out: rank 1 differs from rank 0 in the
// operation .max, not sum. and the count .50, not 100. dies([library_absent]): 3 in all_reduce, which the MPI library
// carries out: rank 1 did not come.*program.cpp:7

#include <espalier/comm.hpp>

#include <catch2/catch.hpp>
#include <support/comm_calls.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::dtype;
using espalier::reduction;

using espalier::test::call_buffers;
using espalier::test::element_for;
using espalier::test::element_kind;
using espalier::test::fuzz_cases;
using espalier::test::fuzz_random;
using espalier::test::is_as_on_rank_0;
using espalier::test::random_call;
using espalier::test::random_network;
using espalier::test::rank_in;
using espalier::test::size_of;
using espalier::test::text_of;

/// The bytes of a result, to be compared among ranks.
template <class T> std::string bits_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void multiply_matrices(void* in, void* inout, int* count, MPI_Datatype*) {
  // Pairs of integers modulo 2^16 stand for matrices (a b; 0 1): multiplication is associative and does not commute.
  const auto* left = static_cast<const std::uint16_t*>(in);
  auto* right = static_cast<std::uint16_t*>(inout);
  for (int n = 0; n < *count; ++n, left += 2, right += 2) {
    const auto a = static_cast<std::uint16_t>(left[0] * right[0]);
    const auto b = static_cast<std::uint16_t>(left[0] * right[1] + left[1]);
    right[0] = a;
    right[1] = b;
  }
}

}  // namespace

TEST_CASE("random collectives on random networks equal their definitions", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  const std::optional<choice> ways[]{std::nullopt,
                                     choice{method::trees, 64},
                                     choice{method::trees, 1024},
                                     choice{method::trees, 0},
                                     choice{method::low_latency, 0},
                                     choice{method::library, 0},
                                     choice{method::shared, 0},
                                     choice{method::single_copy, 0}};
  const std::vector<element_kind> kinds = espalier::test::element_kinds();
  const long networks = 6;
  for (long n = 0; n < networks; ++n) {
    for (const std::optional<choice>& way : ways) {
      collectives_options options;
      options.forced = way;
      options.fixed_order = n % 3 == 2;
      options.kept = 8;
      collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
      for (long k = 0; k < fuzz_cases(240) / networks; ++k) {
        const element_kind& kind = kinds[random() % kinds.size()];
        call_buffers buffers(random_call(random, ranks, 160000), kind, all.rank());
        all.run(buffers.call(), buffers.input(), buffers.output(), element_for(kind));
        const std::string fault = buffers.fault();
        INFO(text_of(buffers.call(), kind) << ", " << (way ? name_of(way->how) : "automatic") << ": " << fault);
        REQUIRE_ALL(MPI_COMM_WORLD, fault.empty());
      }
    }
  }
}

TEST_CASE("operations that do not commute keep the order of ranks", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  MPI_Datatype pair{};
  MPI_Type_contiguous(4, MPI_BYTE, &pair);
  MPI_Type_commit(&pair);
  MPI_Op product{};
  MPI_Op_create(&multiply_matrices, 0, &product);
  {
    collectives all(MPI_COMM_WORLD, random_network(random, ranks));
    const mpi_element what(pair, product);
    for (const std::int64_t count : {1, 7, 1000, 30000}) {
      const auto of = [&](int rank) {
        std::vector<std::uint16_t> values;
        for (std::int64_t i = 0; i < 2 * count; ++i) values.push_back(static_cast<std::uint16_t>(i * 7 + rank * 5 + 3));
        return values;
      };
      std::vector<std::uint16_t> right = of(ranks - 1);
      int length = static_cast<int>(count);
      for (int r = ranks - 2; r >= 0; --r) multiply_matrices(of(r).data(), right.data(), &length, &pair);
      const std::vector<std::uint16_t> mine = of(all.rank());
      std::vector<std::uint16_t> result(mine.size());
      all.all_reduce(mine.data(), result.data(), count, what.get());
      CAPTURE(count);
      REQUIRE_ALL(MPI_COMM_WORLD, result == right);
    }
  }
  MPI_Op_free(&product);
  MPI_Type_free(&pair);
}

TEST_CASE("a fixed order gives the same bits on every network", "[collectives]") {
  std::mt19937 random = fuzz_random();
  const int ranks = size_of();
  std::vector<float> mine(5000);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = static_cast<float>(1 + rank_in()) / static_cast<float>(3 + i % 97);
  }
  std::vector<float> first;
  for (int n = 0; n < 4; ++n) {
    collectives_options options;
    options.fixed_order = true;
    collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
    std::vector<float> result(mine.size());
    for (int k = 0; k < 3; ++k) {
      all.all_reduce(mine.data(), result.data(), static_cast<std::int64_t>(mine.size()),
                     element_of(dtype::f32, reduction::sum));
      if (first.empty()) first = result;
      REQUIRE_ALL(MPI_COMM_WORLD, first == result);
    }
    REQUIRE_ALL(MPI_COMM_WORLD, is_as_on_rank_0(bits_of(result)));
  }
}

TEST_CASE("tuning settles, alike on all ranks", "[collectives]") {
  const int ranks = size_of();
  std::mt19937 random = fuzz_random();
  collectives all(MPI_COMM_WORLD, random_network(random, ranks));
  const element what = element_of(dtype::f32, reduction::sum);
  std::vector<float> data(100000, 1);
  std::vector<float> result(data.size());
  const collective_call call = uniform_call(collective::all_reduce, ranks, static_cast<std::int64_t>(data.size()));
  int calls = 0;
  do {
    all.all_reduce(data.data(), result.data(), static_cast<std::int64_t>(data.size()), what);
    ++calls;
  } while (!all.settled(call, what) && calls < 300);
  REQUIRE_ALL(MPI_COMM_WORLD, calls < 200);
  const choice found = all.settled(call, what).value_or(choice{});
  REQUIRE_ALL(MPI_COMM_WORLD, is_as_on_rank_0(name_of(found.how) + std::to_string(found.chunk)));
  REQUIRE_ALL(MPI_COMM_WORLD,
              std::all_of(result.begin(), result.end(), [&](float x) { return x == static_cast<float>(ranks); }));
}

TEST_CASE("tuning of short calls settles too, with right results on the way, whatever is called between",
          "[collectives]") {
  const int ranks = size_of();
  std::mt19937 random = fuzz_random();
  collectives all(MPI_COMM_WORLD, random_network(random, ranks));
  const element what = element_of(dtype::f32, reduction::sum);
  const collective_call sum = uniform_call(collective::all_reduce, ranks, 16);
  collective_call copy = uniform_call(collective::broadcast, ranks, 100);
  copy.in_place = true;
  bool right = true;
  int calls = 0;
  for (; calls < 300 && !(all.settled(sum, what) && all.settled(copy, what)); ++calls) {
    const std::vector<float> data(16, static_cast<float>(calls));
    std::vector<float> result(16);
    all.all_reduce(data.data(), result.data(), 16, what);
    const auto total = static_cast<float>(calls * ranks);
    right = right && std::all_of(result.begin(), result.end(), [&](float x) { return x == total; });
    std::vector<float> sent(100, all.rank() == 0 ? static_cast<float>(calls) : -1.0F);
    all.broadcast(sent.data(), 100, what, 0);
    right = right && std::all_of(sent.begin(), sent.end(), [&](float x) { return x == static_cast<float>(calls); });
  }
  REQUIRE_ALL(MPI_COMM_WORLD, right);
  REQUIRE_ALL(MPI_COMM_WORLD, calls < 200);
  for (const collective_call& call : {sum, copy}) {
    const choice found = all.settled(call, what).value_or(choice{});
    REQUIRE_ALL(MPI_COMM_WORLD, is_as_on_rank_0(name_of(found.how) + std::to_string(found.chunk)));
  }
}

namespace {

/// Each method by itself, and all of them.
struct named_way {
  const char* name;
  std::optional<choice> how;
};
const std::vector<named_way>& all_ways() {
  static const std::vector<named_way> ways{{"auto", std::nullopt},
                                           {"trees", choice{method::trees, 1024}},
                                           {"low_latency", choice{method::low_latency, 0}},
                                           {"shared", choice{method::shared, 0}},
                                           {"single_copy", choice{method::single_copy, 0}},
                                           {"library", choice{method::library, 0}}};
  return ways;
}

/// "rank 1 differs from rank 0 in ", "rank 3 differs from ranks 0, 1, 2 in "
std::string last_differs_in() {
  std::string text =
      "rank " + std::to_string(size_of() - 1) + " differs from " + (size_of() > 2 ? "ranks 0" : "rank 0");
  for (int r = 1; r + 1 < size_of(); ++r) text += ", " + std::to_string(r);
  return text + " in ";
}

/// Returns the text that `body` threw; empty if it did not throw an `Error`.
template <class Error, class Body> std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) { return error.what(); }
  return "";
}

}  // namespace

TEST_CASE("ranks with different new calls are all told which rank differs and in what, and can go on",
          "[collectives]") {
  const int ranks = size_of();
  if (ranks == 1) return;
  std::mt19937 random = fuzz_random();
  const element sum = element_of(dtype::f32, reduction::sum);
  const element max = element_of(dtype::f32, reduction::max);
  const element ints = element_of(dtype::i32, reduction::sum);
  const auto rooted = [&](collective what, std::int64_t count, int root) {
    return uniform_call(what, ranks, count, root);
  };
  collective_call uneven = rooted(collective::all_gather, 10, 0);
  uneven.counts.front() = 9;
  collective_call other_uneven = rooted(collective::all_gather, 10, 0);
  other_uneven.counts.back() = 9;
  struct difference {
    collective_call usual;
    collective_call last;
    element by;
    element by_last;
    std::string in;
  };
  const collective_call reduce_all = rooted(collective::all_reduce, 100, 0);
  const std::vector<difference> differences{
      {reduce_all, reduce_all, sum, max, "the operation (max, not sum)"},
      {reduce_all, reduce_all, sum, ints, "the type (i32, not f32)"},
      {reduce_all, reduce_all, ints, max, "the operation (max, not sum) and the type (f32, not i32)"},
      {reduce_all, rooted(collective::all_reduce, 90, 0), sum, sum, "the count (90, not 100)"},
      {rooted(collective::broadcast, 100, 0), rooted(collective::broadcast, 100, 1), sum, sum,
       "the root (rank 1, not rank 0)"},
      {rooted(collective::broadcast, 100, 0), rooted(collective::broadcast, 100, 0), sum, ints,
       "the type (i32, not f32)"},
      {rooted(collective::broadcast, 100, 0), rooted(collective::broadcast, 100, 0), sum, bytes_of_size(4),
       "the type (elements of 4 bytes, not f32)"},
      {rooted(collective::scatter, 10, 0), rooted(collective::reduce, 10, 0), sum, sum,
       "the collective (reduce, not scatter)"},
      {uneven, other_uneven, sum, sum, "the sizes of blocks"}};
  for (const named_way& way : all_ways()) {
    collectives_options options;
    options.deadline = std::chrono::duration<double>(20);
    options.forced = way.how;
    collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
    const bool last = all.rank() == ranks - 1;
    std::vector<float> data(1000, 1);
    std::vector<float> result(1000);
    for (const bool started : {false, true}) {
      for (const difference& d : differences) {
        const collective_call& call = last ? d.last : d.usual;
        const element& by = last ? d.by_last : d.by;
        const std::string said = error_of<mismatched_call>([&] {
          if (started) {
            (void)all.start(call, data.data(), result.data(), by);
          } else {
            all.run(call, data.data(), result.data(), by);
          }
        });
        INFO(way.name << ": " << said);
        REQUIRE_ALL(MPI_COMM_WORLD, said.find(last_differs_in() + d.in + "\n") != std::string::npos);
      }
    }
    // No rank need know with which operation a type is broadcast.
    CHECK_NOTHROW(all.broadcast(data.data(), 100, last ? max : sum, 0));
    // All have seen it, and nothing was moved: they go on.
    all.all_reduce(data.data(), result.data(), 100, sum);
    REQUIRE_ALL(MPI_COMM_WORLD, result[99] == static_cast<float>(ranks));
  }
}

TEST_CASE("ranks that disagree on calls that they have made before get an error soon", "[collectives]") {
  const int ranks = size_of();
  if (ranks == 1) return;
  std::mt19937 random = fuzz_random();
  const element sum = element_of(dtype::f32, reduction::sum);
  const element max = element_of(dtype::f32, reduction::max);
  const element ints = element_of(dtype::i32, reduction::sum);
  struct difference {
    std::int64_t count;
    std::int64_t count_of_last;
    element by_last;
    std::string in;
  };
  // The last rank's call is one that all know, or a new one.
  const std::vector<difference> differences{{100, 100, max, "the operation (max, not sum)"},
                                            {100, 100, ints, "the type (i32, not f32)"},
                                            {20000, 20000, max, "the operation (max, not sum)"},
                                            {100, 20000, sum, "the count (20000, not 100)"},
                                            {100, 77, max, "the operation (max, not sum) and the count (77, not 100)"}};
  for (const named_way& way : all_ways()) {
    for (const difference& d : differences) {
      for (const bool started : {false, true}) {
        collectives_options options;
        options.deadline = std::chrono::duration<double>(20);
        options.forced = way.how;
        collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
        const bool last = all.rank() == ranks - 1;
        std::vector<float> data(20000, 1);
        std::vector<float> result(20000);
        for (const std::int64_t count : {100, 20000}) {
          for (const element& by : {sum, max, ints, sum}) all.all_reduce(data.data(), result.data(), count, by);
        }
        const bool by_library = way.how ? way.how->how == method::library : !started;
        // A rank inside of the library cannot leave it: see below. With a choice of methods it may be there.
        if (by_library && !started && d.count != d.count_of_last) continue;
        const auto start = std::chrono::steady_clock::now();
        const collective_call call = uniform_call(collective::all_reduce, ranks, last ? d.count_of_last : d.count);
        std::string said = error_of<comm_error>([&] {
          if (started) {
            all.start(call, data.data(), result.data(), last ? d.by_last : sum).wait();
          } else {
            all.run(call, data.data(), result.data(), last ? d.by_last : sum);
          }
        });
        INFO(way.name << (started ? ", started: " : ": ") << said);
        // The library's result is compared as soon as there is a new call.
        const bool unseen = by_library && !started;
        if (unseen && said.empty()) {
          said = error_of<comm_error>([&] { all.all_reduce(data.data(), result.data(), 55, sum); });
          REQUIRE_ALL(MPI_COMM_WORLD, said.find("at least one that the MPI library carried out") != std::string::npos);
        } else {
          REQUIRE_ALL(MPI_COMM_WORLD, said.find(last_differs_in() + d.in) != std::string::npos);
        }
        REQUIRE_ALL(MPI_COMM_WORLD, std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
      }
    }
  }
}

TEST_CASE("what the MPI library carried out is compared now and then", "[collectives]") {
  const int ranks = size_of();
  if (ranks == 1) return;
  std::mt19937 random = fuzz_random();
  collectives_options options;
  options.forced = choice{method::library, 0};
  collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
  const element sum = element_of(dtype::f32, reduction::sum);
  const element max = element_of(dtype::f32, reduction::max);
  float one = 1;
  float result = 0;
  for (const element& by : {sum, max}) all.all_reduce(&one, &result, 1, by);
  int calls = 0;
  const std::string said = error_of<comm_error>([&] {
    all.all_reduce(&one, &result, 1, all.rank() == 0 ? max : sum);
    for (; calls < 5000; ++calls) all.all_reduce(&one, &result, 1, sum);
  });
  INFO(said);
  REQUIRE_ALL(MPI_COMM_WORLD, said.find("calls 3 to 40") != std::string::npos);
}

TEST_CASE("a rank that is inside of the MPI library hears who is in another call when it ends",
          "[.][library_mismatch]") {
  std::mt19937 random = fuzz_random();
  collectives_options options;
  options.deadline = std::chrono::duration<double>(0.5);
  options.forced = choice{method::library, 0};
  collectives all(MPI_COMM_WORLD, random_network(random, size_of()), options);
  std::vector<float> data(100, 1);
  std::vector<float> result(data.size());
  const element sum = element_of(dtype::f32, reduction::sum);
  all.all_reduce(data.data(), result.data(), 100, sum);
  if (all.rank() + 1 < all.size()) {
    all.all_reduce(data.data(), result.data(), 100, sum);
  } else {
    const std::string said = error_of<comm_error>(
        [&] { all.all_reduce(data.data(), result.data(), 50, element_of(dtype::f32, reduction::max)); });
    // Says so itself, long before; and leaves the others where they are.
    if (said.find(last_differs_in()) != std::string::npos) std::this_thread::sleep_for(std::chrono::seconds(30));
  }
}

TEST_CASE("an operation that the library does not know for a type is refused before anything is sent",
          "[collectives]") {
  MPI_Errhandler before{};
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK_THROWS_WITH(mpi_element(MPI_FLOAT, MPI_BXOR), Catch::Contains("4 bytes each"));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, before);
  MPI_Errhandler_free(&before);
  // The user's own operations are for any type, and are not called for nothing.
  static int called = 0;
  MPI_Op mine{};
  MPI_Op_create([](void*, void*, int*, MPI_Datatype*) { ++called; }, 1, &mine);
  CHECK_NOTHROW(mpi_element(MPI_FLOAT, mine));
  CHECK(called == 0);
  MPI_Op_free(&mine);
}

TEST_CASE("a rank that does not come is named, with tree and chunk", "[collectives]") {
  const int ranks = size_of();
  if (ranks == 1) return;
  std::mt19937 random = fuzz_random();
  collectives_options options;
  options.deadline = std::chrono::duration<double>(0.3);
  options.forced = choice{method::trees, 1024};
  collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
  std::vector<float> data(10000, 1);
  std::vector<float> result(data.size());
  const element what = element_of(dtype::f32, reduction::sum);
  const auto count = static_cast<std::int64_t>(data.size());
  all.all_reduce(data.data(), result.data(), count, what);
  std::string said;
  if (all.rank() != ranks - 1) {
    try {
      all.all_reduce(data.data(), result.data(), count, what);
    } catch (const comm_error& error) { said = error.what(); }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  INFO(said);
  const bool waited = said.find("waited 0.3 s in all_reduce") != std::string::npos;
  const bool detailed = said.find("pending: tree ") != std::string::npos && said.find("chunk ") != std::string::npos;
  const bool right = all.rank() == ranks - 1 || (waited && detailed);
  REQUIRE_ALL(MPI_COMM_WORLD, right);
}

TEST_CASE("a rank that never comes to the MPI library's own collective ends the program", "[.][library_absent]") {
  std::mt19937 random = fuzz_random();
  collectives_options options;
  options.deadline = std::chrono::duration<double>(0.5);
  options.forced = choice{method::library, 0};
  collectives all(MPI_COMM_WORLD, random_network(random, size_of()), options);
  std::vector<float> data(100, 1);
  std::vector<float> result(data.size());
  const element what = element_of(dtype::f32, reduction::sum);
  const collective_call call = uniform_call(collective::all_reduce, size_of(), static_cast<std::int64_t>(data.size()));
  const context where{"sum_up", "program.cpp", 7};
  all.run(call, data.data(), result.data(), what, &where);
  // As long as ranks come, no matter how late others are, nothing happens.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  all.run(call, data.data(), result.data(), what, &where);
  if (all.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  all.run(call, data.data(), result.data(), what, &where);
}
