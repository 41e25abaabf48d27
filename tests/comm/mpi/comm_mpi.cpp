// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// dies([comm_abort]): 4 rank 3 of 4 stopped: no such row

#include "../unit/comm_checks.hpp"

#include <espalier/comm/launch.hpp>
#include <espalier/comm/mpi.hpp>

#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>

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

const context instruction{"%7 all_gather", "model.cpp", 56};

/// Runs a check and fails on all ranks together: a rank that goes on alone would wait for the others.
template <class Check> void on_all_ranks(Check check) {
  std::string problem;
  try {
    check();
  } catch (const std::exception& error) { problem = error.what(); }
  int failed = problem.empty() ? 0 : 1;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  INFO("ranks that failed: " << failed << "; here: " << problem);
  REQUIRE(failed == 0);
}

/// Options under which the small test data takes every path: many pieces, several messages a box, with and without
/// the direct swap between two ranks.
std::vector<mpi_options> variants() {
  std::vector<mpi_options> result(4);
  for (mpi_options& options : result) options.deadline = seconds(20);
  result[1].piece_bytes = 64;
  result[1].window = 1;
  result[1].direct_bytes = 0;
  result[1].message_bytes = 40;
  result[2].piece_bytes = 200;
  result[2].window = 3;
  result[2].direct_bytes = 100;
  result[2].message_bytes = 1000;
  result[3].piece_bytes = 50;  // not a whole number of elements
  result[3].window = 4;
  result[3].direct_bytes = 30000;
  result[3].message_bytes = 1 << 20;
  return result;
}

TEST_CASE("MPI ranks exchange boxes", "[comm][mpi]") {
  for (const mpi_options& options : variants()) {
    mpi_communicator device({}, options);
    on_all_ranks([&] { comm_checks::check_exchanges(device); });
  }
}

TEST_CASE("MPI ranks reduce, the same bits everywhere", "[comm][mpi]") {
  for (const mpi_options& options : variants()) {
    mpi_communicator device({}, options);
    on_all_ranks([&] { comm_checks::check_reductions(device); });
  }
}

TEST_CASE("MPI barrier, broadcast and refusals", "[comm][mpi]") {
  for (const mpi_options& options : variants()) {
    mpi_communicator device({}, options);
    on_all_ranks([&] {
      comm_checks::check_barrier_and_broadcast(device);
      comm_checks::check_refuses_bool_sum(device);
    });
  }
}

TEST_CASE("ranks of very different speed stay in step, past the end of the tag space", "[comm][mpi]") {
  mpi_communicator device;
  const transfer_group world = comm_checks::group_of(comm_checks::groupings(device.size())[0], device.rank(), 0);
  device.prepare(world);
  on_all_ranks([&] {
    for (int i = 0; i < 9000; ++i) {
      if (i % 3000 == device.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      double value = i + device.rank();
      device.all_reduce(world, &value, &value, 1, espalier::comm::reducer_of(dtype::f64, reduction::max));
      comm_checks::expect(value == i + device.size() - 1, "wrong maximum in round " + std::to_string(i));
    }
  });
}

TEST_CASE("an expired MPI wait names the ranks, the instruction and its line", "[comm][mpi]") {
  mpi_options options;
  options.deadline = seconds(0.2);
  mpi_communicator device({}, options);
  if (device.size() == 1) return;
  const int late = device.size() - 1;
  on_all_ranks([&] {
    device.set_context(&instruction);
    if (device.rank() == late) return;
    std::string text;
    try {
      device.barrier();
    } catch (const comm_error& error) { text = error.what(); }
    const std::string awaited = " waited 0.2 s in barrier for rank " + std::to_string(late) + "\n";
    comm_checks::expect(text.find(awaited) != std::string::npos, text);
    comm_checks::expect(text.find("instruction: %7 all_gather (model.cpp:56)") != std::string::npos, text);
    try {
      device.barrier();
    } catch (const comm_error& error) { text = error.what(); }
    comm_checks::expect(text.find("earlier operation") != std::string::npos, text);
  });
}

TEST_CASE("MPI ranks in different collectives take none of each other's data, and some are told so", "[comm][mpi]") {
  using espalier::dtype;
  using espalier::reduction;
  if (mpi_communicator().size() == 1) return;
  struct difference {
    std::int64_t count;
    dtype type;
    reduction kind;
    const char* text;
  };
  // The type is the last rank's; the others add up `usual` f32. Small ones take another path than large ones.
  for (const std::int64_t usual : {std::int64_t{4}, std::int64_t{200000}}) {
    for (const difference& d : {difference{usual, dtype::i32, reduction::sum, "all_reduce of i32, sum"},
                                difference{usual, dtype::f32, reduction::max, "all_reduce of f32, max"},
                                difference{usual - 1, dtype::f32, reduction::sum, "of another count or root"}}) {
      mpi_options options;
      options.deadline = seconds(2);
      mpi_communicator device({}, options);
      const transfer_group world = comm_checks::group_of(comm_checks::groupings(device.size())[0], device.rank(), 0);
      device.prepare(world);
      const bool last = device.rank() == device.size() - 1;
      std::vector<float> data(static_cast<std::size_t>(usual), 1);
      on_all_ranks([&] {
        for (int k = 0; k < 3; ++k) {
          device.all_reduce(world, data.data(), data.data(), usual,
                            espalier::comm::reducer_of(dtype::f32, reduction::max));
        }
        std::string text;
        try {
          device.all_reduce(world, data.data(), data.data(), last ? d.count : usual,
                            espalier::comm::reducer_of(last ? d.type : dtype::f32, last ? d.kind : reduction::sum));
        } catch (const comm_error& error) { text = error.what(); }
        // A rank that meets a message of the other call is told; one that waits for one that gave up sees the deadline.
        const bool is_told =
            text.find("different collectives") != std::string::npos && text.find(d.text) != std::string::npos;
        const bool has_waited = text.find(" waited 2 s in all_reduce") != std::string::npos;
        int told = is_told ? 1 : 0;
        MPI_Allreduce(MPI_IN_PLACE, &told, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        comm_checks::expect(is_told || has_waited, text);
        comm_checks::expect(told > 0, "nobody is told");
      });
    }
  }
}

TEST_CASE("a launcher is noticed", "[comm][mpi]") {
  const boost::mpi::communicator world;
  if (world.size() > 1) {
    on_all_ranks([&] {
      comm_checks::expect(under_mpi_launcher(), "no launcher seen");
      comm_checks::expect(launcher_size() == world.size(), "wrong launcher size");
      comm_checks::expect(launcher_rank() == world.rank(), "wrong launcher rank");
    });
  }
}

// Ends the whole job: run by hand or by a test that expects failure, `mpirun ... "[comm_abort]"`.
TEST_CASE("a rank that throws in the middle of a step ends the job", "[.][comm_abort]") {
  mpi_communicator device;
  device.set_context(&instruction);
  run_guarded(device, [&] {
    device.barrier();
    if (device.rank() == device.size() - 1) throw std::runtime_error("no such row");
    device.barrier();
  });
}

}  // namespace
