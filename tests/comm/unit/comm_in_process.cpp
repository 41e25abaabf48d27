// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// together: schedule

#include "comm_checks.hpp"

#include <espalier/comm/in_process.hpp>
#include <espalier/comm/launch.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::comm;
using Catch::Matchers::Contains;
using seconds = std::chrono::duration<double>;

const context first_instruction{"%1 all_reduce", "model.cpp", 12};
const context second_instruction{"%2 matmul", "model.cpp", 34};

transfer_group everybody(const in_process_communicator& device) {
  return comm_checks::group_of(comm_checks::groupings(device.size())[0], device.rank(), 0);
}

void reduce_once(in_process_communicator& device) {
  float value = 1;
  device.all_reduce(everybody(device), &value, &value, 1, espalier::comm::reducer_of(dtype::f32, reduction::sum));
  comm_checks::expect(value == static_cast<float>(device.size()), "wrong sum");
}

TEST_CASE("in-process devices exchange boxes", "[comm][in_process]") {
  const int size = GENERATE(1, 2, 3, 4, 8);
  REQUIRE_NOTHROW(run_devices(size, [](auto& device) { comm_checks::check_exchanges(device); }));
}

TEST_CASE("in-process devices reduce, the same bits everywhere", "[comm][in_process]") {
  const int size = GENERATE(1, 2, 3, 4, 8);
  REQUIRE_NOTHROW(run_devices(size, [](auto& device) { comm_checks::check_reductions(device); }));
}

TEST_CASE("in-process barrier, broadcast and refusals", "[comm][in_process]") {
  const int size = GENERATE(1, 2, 3, 4, 8);
  REQUIRE_NOTHROW(run_devices(size, [](auto& device) {
    comm_checks::check_barrier_and_broadcast(device);
    comm_checks::check_refuses_bool_sum(device);
  }));
}

TEST_CASE("devices of very different speed stay in step", "[comm][in_process]") {
  REQUIRE_NOTHROW(run_devices(8, [](auto& device) {
    for (int i = 0; i < 2000; ++i) {
      if (i % 500 == device.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      reduce_once(device);
    }
  }));
}

TEST_CASE("a device that throws ends everybody's waits with its rank and its reason", "[comm][in_process]") {
  const int size = GENERATE(2, 3, 8);
  in_process_group group(size);
  std::vector<std::string> seen(static_cast<std::size_t>(size));
  const auto start = std::chrono::steady_clock::now();
  const auto body = [&](in_process_communicator& device) {
    for (int i = 0;; ++i) {
      if (device.rank() == 1 && i == 50) throw std::out_of_range("no such row");
      try {
        reduce_once(device);
      } catch (const comm_error& error) {
        seen[static_cast<std::size_t>(device.rank())] = error.what();
        throw;
      }
    }
  };
  REQUIRE_THROWS_AS(run_devices(group, body), std::out_of_range);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == 1) continue;
    CHECK_THAT(seen[static_cast<std::size_t>(rank)], Contains("rank 1 failed: no such row"));
    CHECK_THAT(seen[static_cast<std::size_t>(rank)], Contains("noticed by rank " + std::to_string(rank)));
  }
  CHECK(seconds(std::chrono::steady_clock::now() - start).count() < 10);
}

TEST_CASE("buffers outlive a failure elsewhere while peers still read them", "[comm][in_process]") {
  // Rank 0 has nothing to do but wait until rank 1 has read all of its buffer, slowly; meanwhile rank 2 fails.
  constexpr std::int64_t side = 3000;
  block transposed = contiguous_block(side);
  transposed.extent[block_rank - 2] = side;
  transposed.source_stride[block_rank - 2] = 1;
  transposed.source_stride[block_rank - 1] = side;
  transposed.target_stride[block_rank - 2] = side;
  in_process_group group(3);
  std::atomic<bool> reading{false};
  std::atomic<bool> complete{false};
  const auto body = [&](in_process_communicator& device) {
    if (device.rank() == 2) {
      while (!reading) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      throw std::runtime_error("rank 2 is gone");
    }
    transfer moves;
    moves.members = {0, 1};
    moves.self = device.rank();
    moves.outgoing = {empty_block(), device.rank() == 0 ? transposed : empty_block()};
    moves.incoming = {device.rank() == 1 ? transposed : empty_block(), empty_block()};
    std::vector<float> source(device.rank() == 0 ? side * side : 0, 3.0F);
    std::vector<float> target(device.rank() == 1 ? side * side : 0, -1.0F);
    if (device.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // rank 0 waits by now: reading starts at once
      reading = true;
    }
    device.exchange(moves, source.data(), target.data());
    if (device.rank() == 1) complete = target.front() == 3.0F && target.back() == 3.0F;
  };
  REQUIRE_THROWS_WITH(run_devices(group, body), Contains("rank 2 is gone"));
  REQUIRE(complete);
}

/// A transfer in which member k sends `counts[k]` elements to each: every second one of its source, to where they
/// follow one another.
transfer every_second(const std::vector<std::int64_t>& counts, int self) {
  transfer moves;
  moves.self = self;
  std::int64_t at = 0;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    block box = contiguous_block(counts[k], 0, at);
    box.source_stride[block_rank - 1] = 2;
    moves.members.push_back(static_cast<int>(k));
    moves.incoming.push_back(box);
    block mine = contiguous_block(counts[static_cast<std::size_t>(self)]);
    mine.source_stride[block_rank - 1] = 2;
    moves.outgoing.push_back(mine);
    at += counts[k];
  }
  return moves;
}

TEST_CASE("a source may be overwritten as soon as its exchange returns, however slow the readers",
          "[comm][in_process]") {
  // Little is packed, much is read where it stands, and members need not do alike: 256 elements are what is packed.
  const std::vector<std::vector<std::int64_t>> all_counts{{1, 1, 1},     {256, 256, 256}, {257, 3, 3},
                                                          {3, 60000, 0}, {0, 0, 5},       {40000, 40000, 40000}};
  for (const std::vector<std::int64_t>& counts : all_counts) {
    CAPTURE(counts);
    REQUIRE_NOTHROW(run_devices(3, [&](auto& device) {
      const transfer moves = every_second(counts, device.rank());
      device.prepare(moves);
      const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(device.rank())]);
      std::vector<float> source(2 * own + 1);
      std::vector<float> target(120005);
      for (int round = 0; round < 60; ++round) {
        std::fill(source.begin(), source.end(), static_cast<float>(1000 * device.rank() + round));
        if ((round + device.rank()) % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        device.exchange(moves, source.data(), target.data());
        std::fill(source.begin(), source.end(), -1.0F);
        std::size_t at = 0;
        for (std::size_t k = 0; k < counts.size(); ++k) {
          for (std::int64_t i = 0; i < counts[k]; ++i, ++at) {
            if (target[at] == static_cast<float>(1000 * k) + static_cast<float>(round)) continue;
            comm_checks::expect(false, "element " + std::to_string(i) + " of member " + std::to_string(k));
          }
        }
      }
    }));
  }
}

TEST_CASE("devices in transfers of different elements are told so", "[comm][in_process]") {
  in_process_group group(2);
  std::vector<std::string> seen(2);
  const auto body = [&](in_process_communicator& device) {
    device.set_context(device.rank() == 1 ? &second_instruction : &first_instruction);
    transfer moves = every_second({100, 100}, device.rank());
    if (device.rank() == 1) moves.type = dtype::f64;
    std::vector<double> source(400, 1);
    std::vector<double> target(400, -1);
    try {
      device.exchange(moves, source.data(), target.data());
    } catch (const comm_error& error) {
      seen[static_cast<std::size_t>(device.rank())] = error.what();
      const auto untouched = std::count(target.begin(), target.end(), -1.0);
      comm_checks::expect(untouched == 400, "something was moved all the same");
      throw;
    }
  };
  REQUIRE_THROWS_WITH(run_devices(group, body), Contains("not in the same collective") &&
                                                    Contains("was last seen in") &&
                                                    Contains("rank 1 differs from rank 0 in the type (f64, not f32)"));
  CHECK(!seen[0].empty());
  CHECK(!seen[1].empty());
}

TEST_CASE("an expired wait names the ranks, the instruction and its line", "[comm][in_process]") {
  in_process_group group(4, seconds(0.2));
  const auto body = [&](in_process_communicator& device) {
    device.set_context(device.rank() == 2 ? &second_instruction : &first_instruction);
    reduce_once(device);
    if (device.rank() == 2) std::this_thread::sleep_for(seconds(1.0));
    reduce_once(device);
  };
  try {
    run_devices(group, body);
    FAIL("nothing was thrown");
  } catch (const comm_error& error) {
    CHECK_THAT(error.what(), Contains("waited 0.2 s in all_reduce for rank 2\n"));
    CHECK_THAT(error.what(), Contains("instruction: %1 all_reduce (model.cpp:12)"));
    CHECK_THAT(error.what(), Contains("rank 2 was last seen in %2 matmul (model.cpp:34)"));
    CHECK_THAT(error.what(), Contains("ESPALIER_DEADLINE_SECONDS"));
  }
}

TEST_CASE("a failure names the device's place and the instruction", "[comm][in_process]") {
  in_process_group group(2);
  group.set_places({"data 0", "data 1"});
  std::string noticed;
  const auto body = [&](in_process_communicator& device) {
    device.set_context(device.rank() == 1 ? &second_instruction : &first_instruction);
    reduce_once(device);
    if (device.rank() == 1) throw std::out_of_range("no such row");
    try {
      reduce_once(device);
    } catch (const comm_error& error) {
      noticed = error.what();
      throw;
    }
  };
  REQUIRE_THROWS_AS(run_devices(group, body), std::out_of_range);
  CHECK(group.abort_reason() ==
        "rank 1 (data 1) failed: no such row\n  in or after instruction: %2 matmul (model.cpp:34)");
  CHECK_THAT(noticed, Contains("noticed by rank 0 (data 0)\n  instruction: %1 all_reduce (model.cpp:12)"));
}

TEST_CASE("an instruction that an error names already is not named twice", "[comm][in_process]") {
  in_process_group group(2);
  const auto body = [&](in_process_communicator& device) {
    device.set_context(&first_instruction);
    bool truth = true;
    transfer_group all;
    all.members = {0, 1};
    all.self = device.rank();
    device.all_reduce(all, &truth, &truth, 1,
                      espalier::comm::reducer_of(espalier::dtype::boolean, espalier::reduction::sum));
  };
  REQUIRE_THROWS_WITH(run_devices(group, body), Contains("cannot reduce"));
  const std::string reason = group.abort_reason();
  CHECK(reason.find("%1 all_reduce") == reason.rfind("%1 all_reduce"));
}

TEST_CASE("devices in different collectives are told which differs, and in what", "[comm][in_process]") {
  struct difference {
    std::int64_t count;
    dtype type;
    reduction kind;
    const char* in;
  };
  // The difference is device 4's; the others add four f32. A group need not have all devices, nor in their order.
  const auto other = GENERATE(values<difference>({{8, dtype::f32, reduction::sum, "the count (8, not 4)"},
                                                  {4, dtype::i32, reduction::sum, "the type (i32, not f32)"},
                                                  {4, dtype::f32, reduction::max, "the operation (max, not sum)"},
                                                  {2, dtype::f64, reduction::sum, "the type (f64, not f32)"}}));
  const int calls_before = GENERATE(0, 3);
  in_process_group group(5);
  std::vector<std::string> seen(5);
  const auto body = [&](in_process_communicator& device) {
    device.set_context(&first_instruction);
    if (device.rank() == 0 || device.rank() == 1) return;
    transfer_group some;
    some.members = {2, 3, 4};
    some.self = device.rank() - 2;
    double values[8] = {};
    for (int k = 0; k < calls_before; ++k) {
      device.all_reduce(some, values, values, 4, espalier::comm::reducer_of(dtype::f32, reduction::sum));
      device.all_reduce(some, values, values, other.count, espalier::comm::reducer_of(other.type, other.kind));
    }
    const bool differs = device.rank() == 4;
    try {
      device.all_reduce(
          some, values, values, differs ? other.count : 4,
          espalier::comm::reducer_of(differs ? other.type : dtype::f32, differs ? other.kind : reduction::sum));
    } catch (const comm_error& error) {
      seen[static_cast<std::size_t>(device.rank())] = error.what();
      throw;
    }
  };
  REQUIRE_THROWS_WITH(
      run_devices(group, body),
      Contains("not in the same collective") && Contains(std::string("rank 4 differs from ranks 2, 3 in ") + other.in));
  for (const std::size_t rank : {2U, 3U, 4U}) CHECK(!seen[rank].empty());
}

TEST_CASE("calls of one size have different fingerprints in 16 bits, and in the ten that part message tags",
          "[comm][in_process]") {
  std::vector<std::uint64_t> kinds;
  std::vector<std::uint64_t> short_ones;
  for (unsigned type = 0; type <= static_cast<unsigned>(element_class::pair_of_short); ++type) {
    for (unsigned by = 0; by <= static_cast<unsigned>(element_operation::min_place); ++by) {
      combiner with = moves_only(4);
      with.type = static_cast<element_class>(type);
      with.operation = static_cast<element_operation>(by);
      for (const collective what : {collective::all_reduce, collective::reduce, collective::reduce_scatter}) {
        const call_summary said = espalier::comm::detail::summary_of(uniform_call(what, 2, 100), with);
        short_ones.push_back(espalier::comm::detail::short_fingerprint(said));
        if (what == collective::reduce) kinds.push_back(short_ones.back() % 1024);
      }
    }
  }
  for (std::vector<std::uint64_t>* const all : {&kinds, &short_ones}) {
    std::sort(all->begin(), all->end());
    CHECK(std::adjacent_find(all->begin(), all->end()) == all->end());
  }
}

TEST_CASE("a group that does not contain the device is refused", "[comm][in_process]") {
  in_process_group group(2);
  in_process_communicator device = group.device(0);
  transfer_group other;
  other.members = {1, 0};
  other.self = 0;
  REQUIRE_THROWS_AS(device.prepare(other), comm_error);
  REQUIRE_THROWS_AS(group.device(2), comm_error);
}

TEST_CASE("the deadline and the launcher are read from the environment", "[comm][launch]") {
  REQUIRE(default_deadline().count() == 60.0);
  setenv("ESPALIER_DEADLINE_SECONDS", "2.5", 1);
  REQUIRE(default_deadline().count() == 2.5);
  setenv("ESPALIER_DEADLINE_SECONDS", "soon", 1);
  REQUIRE_THROWS_WITH(default_deadline(), Contains("\"soon\""));
  unsetenv("ESPALIER_DEADLINE_SECONDS");
  REQUIRE_FALSE(under_mpi_launcher());
  REQUIRE(launcher_size() == 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  REQUIRE(under_mpi_launcher());
  REQUIRE(launcher_size() == 4);
  REQUIRE(launcher_rank() == 3);
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("OMPI_COMM_WORLD_RANK");
}

}  // namespace
