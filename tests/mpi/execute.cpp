// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300
// dies([killed_rank]): 4 rank [0-2] of 4 was ended after [a-z_]+ .[^ ]*programs.hpp:[0-9]+. began: another rank died

#include <catch2/catch.hpp>
#include <support/mpi_require.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>

#include <chrono>
#include <csignal>
#include <thread>

namespace ep = espalier;

namespace {

template <int Data, int Model> struct on {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  using mesh = ep::mesh<data, model>;
  template <template <class, class, class> class Program> using program = Program<mesh, data, model>;
};

template <class Program> void agrees(int times) {
  int argc = 0;
  char** argv = nullptr;
  ep::world world(argc, argv, typename Program::mesh{});
  const testing::comparison seen = testing::run_and_compare<Program>(world, times);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.finite);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.compared > 0);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.worst < 1e-11);
}

/// The program on a mesh of as many devices as there are ranks.
template <template <class, class, class> class Program> void agrees_on_all_ranks(int times = 1) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) agrees<typename on<1, 1>::template program<Program>>(times);
  if (ranks == 2) agrees<typename on<1, 2>::template program<Program>>(times);
  if (ranks == 4) agrees<typename on<2, 2>::template program<Program>>(times);
  if (ranks == 8) agrees<typename on<4, 2>::template program<Program>>(times);
}

template <class Mesh, class Data, class Model>
using training = testing::programs::training_program<Mesh, Data, Model, false>;

}  // namespace

TEST_CASE("a training step on ranks computes what the interpreter does", "[execute]") {
  agrees_on_all_ranks<training>(3);
}

TEST_CASE("attention on ranks computes what the interpreter does", "[execute]") {
  agrees_on_all_ranks<testing::programs::attention_program>();
}

TEST_CASE("a mesh of another size than the number of ranks is refused on all of them", "[execute]") {
  struct wide : ep::axis<"wide", 16> {};
  int argc = 0;
  char** argv = nullptr;
  CHECK_THROWS_WITH(ep::world(argc, argv, ep::mesh<wide>{}),
                    Catch::Contains("16 devices") && Catch::Contains("mpirun -n 16"));
}

// The job ends: run by `dies` above.
TEST_CASE("when a rank is killed in the middle of a step, the others say where they were", "[.][killed_rank]") {
  std::signal(SIGTERM, SIG_DFL);  // the test's own main has a handler
  using program = on<2, 2>::program<training>;
  int argc = 0;
  char** argv = nullptr;
  ep::world world(argc, argv, program::mesh{});
  std::thread killer;
  if (world.device(0) == 3) {
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      std::raise(SIGKILL);
    });
  }
  for (int n = 0; n < 1000000; ++n) (void)testing::run_and_compare<program>(world, 1000);
  killer.join();
}
