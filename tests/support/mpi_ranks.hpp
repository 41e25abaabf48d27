// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <mpi.h>

#include <string>

namespace espalier::test {

[[nodiscard]] inline int rank_in(MPI_Comm communicator = MPI_COMM_WORLD) {
  int rank = 0;
  MPI_Comm_rank(communicator, &rank);
  return rank;
}
[[nodiscard]] inline int size_of(MPI_Comm communicator = MPI_COMM_WORLD) {
  int size = 0;
  MPI_Comm_size(communicator, &size);
  return size;
}

/// Returns rank 0's text on all ranks.
[[nodiscard]] inline std::string of_rank_0(const std::string& mine, MPI_Comm communicator = MPI_COMM_WORLD) {
  auto length = static_cast<int>(mine.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, communicator);
  std::string text = mine;
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), length, MPI_CHAR, 0, communicator);
  return text;
}

/// Whether this rank has what rank 0 has. Collective.
[[nodiscard]] inline bool is_as_on_rank_0(const std::string& mine, MPI_Comm communicator = MPI_COMM_WORLD) {
  return of_rank_0(mine, communicator) == mine;
}

}  // namespace espalier::test
