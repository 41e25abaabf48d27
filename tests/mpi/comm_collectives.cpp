// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 240

#include <espalier/comm.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_require.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::dtype;
using espalier::reduction;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}
int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Connected, with links of unequal rates, some missing, some in one direction only. The same on all ranks.
network random_network(std::mt19937& random, int ranks) {
  std::vector<std::vector<double>> rate(static_cast<std::size_t>(ranks),
                                        std::vector<double>(static_cast<std::size_t>(ranks), 0));
  for (std::size_t a = 0; a < rate.size(); ++a) {
    for (std::size_t b = 0; b < rate.size(); ++b) {
      const bool ring = b == (a + 1) % rate.size() || a == (b + 1) % rate.size();
      if (a != b && (ring || random() % 2 == 0)) rate[a][b] = static_cast<double>(1 + random() % 4);
    }
  }
  return network_of(from_adjacency(rate));
}

/// Element `i` of what rank `rank` contributes: sums and products of few of these are exact in every type.
std::int64_t value(int rank, std::int64_t i) { return (i * 7 + rank * 5 + 3) % 11 - 4; }

/// The result of a call on one rank, from its definition. Elements that are no result are -100.
template <class Combine> std::vector<double> expected(const collective_call& call, int rank, const Combine& combine) {
  const call_layout layout(call);
  std::vector<double> result(static_cast<std::size_t>(layout.output_elements(rank)), -100);
  for (const piece& p : pieces_wanted(call, layout, rank)) {
    for (std::int64_t i = 0; i < p.count; ++i) {
      const std::int64_t e = p.element + i;
      double here = 0;
      if (p.contributor != piece::everyone) {
        here = static_cast<double>(value(p.contributor, e));
      } else {
        here = static_cast<double>(value(0, e));
        for (int r = 1; r < call.ranks; ++r) here = combine(here, static_cast<double>(value(r, e)));
      }
      result[static_cast<std::size_t>(p.at.offset + i)] = here;
    }
  }
  return result;
}

/// Runs a call and says what is wrong with this rank's result.
template <class T, class Combine>
std::string fault_of(collectives& all, const collective_call& call, const element& what, const Combine& combine) {
  const call_layout layout(call);
  const int rank = all.rank();
  std::vector<T> input(static_cast<std::size_t>(layout.input_elements(rank)), T(77));
  std::vector<T> output(static_cast<std::size_t>(layout.output_elements(rank)), T(-100));
  for (const piece& p : pieces_held(call, layout, rank)) {
    std::vector<T>& memory = p.at.where == place::input ? input : output;
    for (std::int64_t i = 0; i < p.count; ++i) {
      memory[static_cast<std::size_t>(p.at.offset + i)] = static_cast<T>(value(rank, p.element + i));
    }
  }
  const std::vector<T> given = input;
  all.run(call, input.data(), output.data(), what);
  const std::vector<double> right = expected(call, rank, combine);
  if (given != input) return "the input was overwritten";
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (right[i] == -100) continue;  // left over by an operation in place
    if (static_cast<double>(output[i]) != right[i]) {
      return "element " + std::to_string(i) + " is " + std::to_string(static_cast<double>(output[i])) + ", expected " +
             std::to_string(right[i]);
    }
  }
  return "";
}

std::string text_of(const collective_call& call) {
  std::string text = std::string(name_of(call.what)) + " root " + std::to_string(call.root) +
                     (call.in_place ? " in place" : "") + (call.ordered ? " ordered" : "") + " counts";
  for (const std::int64_t count : call.counts) text += ' ' + std::to_string(count);
  return text;
}

collective_call random_call(std::mt19937& random, int ranks) {
  static constexpr operation all[]{operation::broadcast,      operation::reduce,    operation::all_reduce,
                                   operation::all_gather,     operation::gather,    operation::scatter,
                                   operation::reduce_scatter, operation::all_to_all};
  const std::int64_t sizes[]{0, 1, 2, 5, 17, 64, 333, 4096, 20000};
  collective_call call =
      uniform_call(all[random() % 8], ranks, sizes[random() % 9], static_cast<int>(random()) % ranks);
  call.root = std::abs(call.root);
  if (call.counts.size() > 1 && random() % 2 == 0) {
    for (std::int64_t& count : call.counts) count = sizes[random() % 7];
  }
  call.in_place = random() % 3 == 0;
  // In place, two ranks exchange equally much.
  for (int a = 0; call.what == operation::all_to_all && call.in_place && a < ranks; ++a) {
    for (int b = 0; b < a; ++b) {
      call.counts[static_cast<std::size_t>(a * ranks + b)] = call.counts[static_cast<std::size_t>(b * ranks + a)];
    }
  }
  return call;
}

long cases(long usual) {
  const char* text = std::getenv("ESPALIER_FUZZ_CASES");
  return text != nullptr ? std::atol(text) : usual;
}

std::mt19937 seeded() {
  const char* text = std::getenv("ESPALIER_FUZZ_SEED");
  return std::mt19937(text != nullptr ? static_cast<unsigned>(std::atol(text)) : 1U);
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
  std::mt19937 random = seeded();
  const int ranks = world_size();
  const std::optional<choice> ways[]{std::nullopt,
                                     choice{method::trees, 64},
                                     choice{method::trees, 1024},
                                     choice{method::trees, 0},
                                     choice{method::low_latency, 0},
                                     choice{method::library, 0}};
  const long networks = 6;
  for (long n = 0; n < networks; ++n) {
    for (const std::optional<choice>& way : ways) {
      collectives_options options;
      options.forced = way;
      options.fixed_order = n % 3 == 2;
      options.kept = 8;
      collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
      for (long k = 0; k < cases(240) / networks; ++k) {
        const collective_call call = random_call(random, ranks);
        std::string fault;
        const auto sum = [](double a, double b) { return a + b; };
        const auto most = [](double a, double b) { return std::max(a, b); };
        switch (random() % 4) {
          case 0: fault = fault_of<float>(all, call, element_of(dtype::f32, reduction::sum), sum); break;
          case 1: fault = fault_of<double>(all, call, element_of(dtype::f64, reduction::max), most); break;
          case 2: fault = fault_of<std::int32_t>(all, call, element_of(dtype::i32, reduction::sum), sum); break;
          default: fault = fault_of<std::int32_t>(all, call, element_of(dtype::i32, reduction::max), most); break;
        }
        INFO(text_of(call) << ", " << (way ? name_of(way->how) : "automatic") << ": " << fault);
        REQUIRE_ALL(MPI_COMM_WORLD, fault.empty());
      }
    }
  }
}

TEST_CASE("operations that do not commute keep the order of ranks", "[collectives]") {
  std::mt19937 random = seeded();
  const int ranks = world_size();
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
        for (std::int64_t i = 0; i < 2 * count; ++i)
          values.push_back(static_cast<std::uint16_t>(value(rank, i) * 3 + 1));
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
  std::mt19937 random = seeded();
  const int ranks = world_size();
  std::vector<float> mine(5000);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = static_cast<float>(1 + world_rank()) / static_cast<float>(3 + i % 97);
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
    std::vector<float> of_root = result;
    MPI_Bcast(of_root.data(), static_cast<int>(of_root.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
    REQUIRE_ALL(MPI_COMM_WORLD, of_root == result);
  }
}

TEST_CASE("tuning settles, alike on all ranks", "[collectives]") {
  const int ranks = world_size();
  std::mt19937 random = seeded();
  collectives all(MPI_COMM_WORLD, random_network(random, ranks));
  const element what = element_of(dtype::f32, reduction::sum);
  std::vector<float> data(100000, 1);
  std::vector<float> result(data.size());
  const collective_call call = uniform_call(operation::all_reduce, ranks, static_cast<std::int64_t>(data.size()));
  int calls = 0;
  do {
    all.all_reduce(data.data(), result.data(), static_cast<std::int64_t>(data.size()), what);
    ++calls;
  } while (!all.settled(call, what) && calls < 100);
  REQUIRE_ALL(MPI_COMM_WORLD, calls < 60);
  const choice found = all.settled(call, what).value_or(choice{});
  long mine[2]{static_cast<long>(found.how), static_cast<long>(found.chunk)};
  long of_root[2]{mine[0], mine[1]};
  MPI_Bcast(&of_root[0], 2, MPI_LONG, 0, MPI_COMM_WORLD);
  REQUIRE_ALL(MPI_COMM_WORLD, (mine[0] == of_root[0] && mine[1] == of_root[1]));
  REQUIRE_ALL(MPI_COMM_WORLD,
              std::all_of(result.begin(), result.end(), [&](float x) { return x == static_cast<float>(ranks); }));
}

TEST_CASE("ranks with different calls get an error, and none waits for ever", "[collectives]") {
  const int ranks = world_size();
  if (ranks == 1) return;
  std::mt19937 random = seeded();
  collectives_options options;
  options.deadline = std::chrono::duration<double>(5);
  options.forced = choice{method::trees, 1024};
  collectives all(MPI_COMM_WORLD, random_network(random, ranks), options);
  std::vector<float> data(100, 1);
  std::vector<float> result(data.size());
  std::string said;
  try {
    all.all_reduce(data.data(), result.data(), all.rank() == 0 ? 90 : 100, element_of(dtype::f32, reduction::sum));
  } catch (const comm_error& error) { said = error.what(); }
  INFO(said);
  REQUIRE_ALL(MPI_COMM_WORLD, said.find("different plans") != std::string::npos);
}

TEST_CASE("a rank that does not come is named, with tree and chunk", "[collectives]") {
  const int ranks = world_size();
  if (ranks == 1) return;
  std::mt19937 random = seeded();
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
