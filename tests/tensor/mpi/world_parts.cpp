// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// ranks: 4
// dies([other_parts]): 4 divide: rank 0 divides the world into .one device; part 3., this rank into .part 3; one
// device.

#include <catch2/catch.hpp>
#include <support/mpi_require.hpp>
#include <support/world_parts.hpp>

#include <optional>

namespace ep = espalier;

namespace {

ep::world world_of_all_ranks() {
  int argc = 0;
  char** argv = nullptr;
  return {argc, argv, testing::whole_mesh{}};
}

template <class Program> bool runs(ep::world& world) {
  const testing::comparison seen = testing::run_and_compare<Program>(world, 3);
  return seen.finite && seen.compared > 0 && seen.worst < 1e-12;
}

}  // namespace

TEST_CASE("parts of a world of ranks compute on meshes of their own at once", "[world]") {
  ep::world world = world_of_all_ranks();
  const int rank = world.device(0);
  auto [single, part] = world.divide(testing::single_mesh{}, testing::part_mesh{});
  REQUIRE_ALL(MPI_COMM_WORLD, single.has_value() == (rank == 0));
  REQUIRE_ALL(MPI_COMM_WORLD, part.has_value() == (rank > 0));
  if (part) CHECK(part->device(0) == rank - 1);
  CHECK((single ? *single : *part).is_root() == (rank < 2));
  const bool here = single ? runs<testing::single_program>(*single) : runs<testing::part_program>(*part);
  REQUIRE_ALL(MPI_COMM_WORLD, here);
  REQUIRE_ALL(MPI_COMM_WORLD, runs<testing::whole_program>(world));
}

TEST_CASE("a part of a world outlives it", "[world]") {
  std::optional<ep::world> world = world_of_all_ranks();
  auto [part, single] = world->divide(testing::part_mesh{}, testing::single_mesh{});
  world.reset();
  const bool here = single ? runs<testing::single_program>(*single) : runs<testing::part_program>(*part);
  REQUIRE_ALL(MPI_COMM_WORLD, here);
}

TEST_CASE("parts that do not fit are refused on every rank", "[world]") {
  ep::world world = world_of_all_ranks();
  CHECK_THROWS_AS(world.divide(testing::part_mesh{}, testing::part_mesh{}), ep::launch_error);
  REQUIRE_ALL(MPI_COMM_WORLD, runs<testing::whole_program>(world));
}

TEST_CASE("a rank that divides the world in another way is named", "[.][other_parts]") {
  ep::world world = world_of_all_ranks();
  if (world.device(0) == 2) {
    static_cast<void>(world.divide(testing::part_mesh{}, testing::single_mesh{}));
  } else {
    static_cast<void>(world.divide(testing::single_mesh{}, testing::part_mesh{}));
  }
}
