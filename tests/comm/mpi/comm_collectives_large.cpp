// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 2
// timeout: 400
// skips: skipped: [0-9.]+ GB of memory

#include <espalier/comm.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace espalier::comm;
using espalier::test::rank_in;
using espalier::test::size_of;

/// 2.2 GB: beyond what an `int` counts.
constexpr std::int64_t length = 2'200'000'000;

/// GB that programs can get without others being moved out; huge where the system does not say.
double available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kilobytes = 0;
  std::string unit;
  while (file >> name >> kilobytes >> unit) {
    if (name == "MemAvailable:") return kilobytes * 1024 / 1e9;
  }
  return std::numeric_limits<double>::infinity();
}

/// Says that a test is skipped (CMake looks for the words) where two ranks with such buffers would not fit well.
bool is_short_of_memory(double needed) {
  double there = available_memory();
  MPI_Bcast(&there, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (there >= needed) return false;
  WARN("skipped: " << there << " GB of memory are available, " << needed << " are wanted");
  return true;
}

network pair_of_ranks() { return network_of(from_adjacency({{0, 10}, {10, 0}})); }

std::uint8_t byte_at(std::int64_t i) { return static_cast<std::uint8_t>(i + (i >> 16) * 3 + (i >> 24) * 7); }

void fill(std::uint8_t* memory, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) memory[i] = byte_at(begin + i);
}
bool is_filled(const std::uint8_t* memory, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (memory[i] != byte_at(begin + i)) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("more bytes than an int counts are gathered and reduced, in place", "[collectives]") {
  if (is_short_of_memory(8)) return;
  collectives all(MPI_COMM_WORLD, pair_of_ranks());
  const auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(length));
  std::memset(memory.get(), 1, static_cast<std::size_t>(length));
  collective_call gather = uniform_call(collective::all_gather, 2, length / 2);
  gather.in_place = true;
  const std::int64_t mine = all.rank() * (length / 2);
  fill(memory.get() + mine, mine, length / 2);
  all.run(gather, nullptr, memory.get(), bytes_of_size(1));
  REQUIRE_ALL(MPI_COMM_WORLD, is_filled(memory.get(), 0, length));

  const auto numbers = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(length / 4));
  for (std::int64_t i = 0; i < length / 4; ++i)
    numbers[static_cast<std::size_t>(i)] = static_cast<float>(i % 1000 + all.rank());
  all.all_reduce(numbers.get(), numbers.get(), length / 4, element_of(espalier::dtype::f32, espalier::reduction::sum));
  bool right = true;
  for (std::int64_t i = 0; i < length / 4; ++i) {
    right = right && numbers[static_cast<std::size_t>(i)] == static_cast<float>(2 * (i % 1000) + 1);
  }
  REQUIRE_ALL(MPI_COMM_WORLD, right);
}

TEST_CASE("schedules of few rounds give way where their messages would be too long", "[collectives]") {
  if (is_short_of_memory(8)) return;
  collectives_options options;
  options.forced = choice{method::low_latency, 0, algorithm::binomial};
  collectives all(MPI_COMM_WORLD, pair_of_ranks(), options);
  const auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(length));
  std::memset(memory.get(), 1, static_cast<std::size_t>(length));
  if (all.rank() == 0) fill(memory.get(), 0, length);
  collective_call call = uniform_call(collective::broadcast, 2, length);
  call.in_place = true;
  started_collective handle = all.start(call, nullptr, memory.get(), bytes_of_size(1));
  handle.wait();
  REQUIRE_ALL(MPI_COMM_WORLD, is_filled(memory.get(), 0, length));
}
