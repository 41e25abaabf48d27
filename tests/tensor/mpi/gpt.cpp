// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 4

#include <support/mpi_require.hpp>
#include <support/tiny_gpt.hpp>

#include <catch2/catch.hpp>

namespace {

using namespace espalier;
using namespace espalier::test;

TEST_CASE("a GPT on four ranks has the losses of four devices in one process") {
  char name[] = "gpt";
  char* arguments[] = {&name[0], nullptr};
  int count = 1;
  char** values = &arguments[0];
  world ranks(count, values, mesh<data<2>, model<2>>{});
  const std::vector<double> found = tiny_losses<2, 2, f64>(ranks, agreement_steps);
  REQUIRE_ALL(MPI_COMM_WORLD, ranks.uses_mpi());
  REQUIRE_ALL(MPI_COMM_WORLD, largest_difference(tiny_losses<2, 2, f64>(agreement_steps), found) < agreement_f64);
}

}  // namespace
