// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <catch2/catch.hpp>
#include <support/world_parts.hpp>

#include <thread>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ep = espalier;

using Catch::Contains;

namespace {

int threads_here() {
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

template <class Program> void check_runs(ep::world& world) {
  const testing::comparison seen = testing::run_and_compare<Program>(world, 2);
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst < 1e-12);
}

}  // namespace

TEST_CASE("parts of a world compute on meshes of their own, the world on all devices", "[world]") {
  ep::world world(testing::whole_mesh::value);
  check_runs<testing::whole_program>(world);
  auto [single, part] = world.divide(testing::single_mesh{}, testing::part_mesh{});
  REQUIRE(single.has_value());
  REQUIRE(part.has_value());
  CHECK(part->local_devices() == 3);
  CHECK(part->device(2) == 2);
  CHECK(part->threads_per_device() == world.threads_per_device());
  // Also a device that is alone in its part has no more than its share of the threads.
  int threads = 0;
  single->on_devices([&](int, auto& /*communicator*/) { threads = threads_here(); });
  CHECK(threads == world.threads_per_device());
  check_runs<testing::single_program>(*single);
  check_runs<testing::part_program>(*part);
  check_runs<testing::whole_program>(world);
}

TEST_CASE("parts of a world work at once", "[world]") {
  ep::world world(testing::whole_mesh::value);
  auto [one, rest] = world.divide(testing::single_mesh{}, testing::part_mesh{});
  testing::comparison of_one;
  testing::comparison of_rest;
  std::thread other([&, &single = *one] { of_one = testing::run_and_compare<testing::single_program>(single, 20); });
  of_rest = testing::run_and_compare<testing::part_program>(*rest, 20);
  other.join();
  for (const testing::comparison& seen : {of_one, of_rest}) {
    CHECK(seen.compared > 0);
    CHECK(seen.worst < 1e-12);
  }
}

TEST_CASE("parts have all devices of the world, and no more", "[world]") {
  ep::world world(testing::whole_mesh::value);
  CHECK_THROWS_WITH(world.divide(testing::single_mesh{}, testing::single_mesh{}),
                    Contains("divide: the parts (one device; one device) have 2 devices together, and the world "
                             "(whole 4) has 4. Give each of its devices to one part"));
  CHECK_THROWS_AS(world.divide(testing::part_mesh{}, testing::part_mesh{}), ep::launch_error);
  CHECK_THROWS_WITH(world.divide({}), Contains("divide: the parts (none) have 0 devices"));
}
