// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// An MPI library's own collectives, and nothing else: compiled with MPICH it is the second peer on one host.
//
//     mpirun.mpich -n 2 collectives_mpich ROW all|OPERATION,... BYTES,...

#include "cells.hpp"

#include <cstdlib>

int main(int argc, char** argv) {
  using namespace collective_cells;
  MPI_Init(&argc, &argv);
  int length = 0;
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  MPI_Get_library_version(version, &length);
  const std::string text = version;
  const std::string who = text.find("MPICH") != std::string::npos ? "MPICH" : "Open MPI";
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s ROW all|OPERATION,... BYTES,...\n", argv[0]);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  for (const kind what : kinds_of(argv[2])) {
    for (const std::string& bytes : parts_of(argv[3])) {
      cell now(what, std::atoll(bytes.c_str()), MPI_COMM_WORLD);
      const measured found = measure({[&] { now.library(MPI_COMM_WORLD); }}, {}, MPI_COMM_WORLD);
      if (now.rank != 0) continue;
      // Ours is measured in its own buffers, too; the library has no others.
      if (what == kind::all_reduce && now.bytes >= 64LL << 20)
        report(std::string(argv[1]) + "/own_buffers/" + bytes, who, found.seconds[0], found.apart);
      report(std::string(argv[1]) + '/' + name_of(what) + '/' + bytes, who, found.seconds[0], found.apart);
    }
  }
  MPI_Finalize();
}
