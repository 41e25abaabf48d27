// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>

/// Programs over as many MPI ranks as there are, against the interpreter.
namespace testing {

template <int Data, int Model> struct on {
  struct data : espalier::axis<"data", Data> {};
  struct model : espalier::axis<"model", Model> {};
  using mesh = espalier::mesh<data, model>;
  template <template <class, class, class> class Program> using program = Program<mesh, data, model>;
};

struct nothing {
  template <class World> void operator()(World& /*world*/) const {}
};

/// Collective over all ranks. `prepare(world)` comes before everything else that is done with the world.
template <class Program, class Prepare = nothing> void require_agreement(int times = 1, const Prepare& prepare = {}) {
  int argc = 0;
  char** argv = nullptr;
  espalier::world world(argc, argv, typename Program::mesh{});
  prepare(world);
  const comparison seen = run_and_compare<Program>(world, times);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.finite);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.compared > 0);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.worst < 1e-11);
}

/// The program on a mesh of as many devices as there are ranks: 1, 2, 4 or 8, or of these `LeastRanks` and more, where
/// a test is run with no fewer.
template <template <class, class, class> class Program, int LeastRanks = 1, class Prepare = nothing>
void require_agreement_on_all_ranks(int times = 1, const Prepare& prepare = {}) {
  const int ranks = espalier::test::size_of();
  REQUIRE_ALL(MPI_COMM_WORLD, ranks >= LeastRanks);
  if constexpr (LeastRanks == 1) {
    if (ranks == 1) require_agreement<typename on<1, 1>::template program<Program>>(times, prepare);
  }
  if (ranks == 2) require_agreement<typename on<1, 2>::template program<Program>>(times, prepare);
  if (ranks == 4) require_agreement<typename on<2, 2>::template program<Program>>(times, prepare);
  if (ranks == 8) require_agreement<typename on<4, 2>::template program<Program>>(times, prepare);
}

}  // namespace testing
