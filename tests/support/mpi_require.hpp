// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <catch2/catch.hpp>
#include <mpi.h>

namespace espalier::test {

/// Leaves the test case on every rank of `communicator` if the last assertion failed on any. A rank on which it held
/// leaves quietly: those on which it did not have recorded the failure.
inline void fail_together(MPI_Comm communicator) {
  int passed_here = Catch::getResultCapture().lastAssertionPassed() ? 1 : 0;
  int passed_everywhere = 0;
  MPI_Allreduce(&passed_here, &passed_everywhere, 1, MPI_INT, MPI_MIN, communicator);
  if (passed_everywhere == 0) throw Catch::TestFailureException{};
}

}  // namespace espalier::test

/// REQUIRE for code that communicates: collective over `communicator` (an MPI_Comm or what converts to one). If the
/// expression is false on one rank, all ranks leave the test case, so that none waits for the one that failed.
#define REQUIRE_ALL(communicator, ...)               \
  do {                                               \
    CHECK(__VA_ARGS__);                              \
    ::espalier::test::fail_together((communicator)); \
  } while (false)
