// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi/mpi_compat.hpp>

#include <cstddef>
#include <numeric>
#include <vector>

namespace espalier::comm::detail {

/// The ranks in `whole` of those of `part`, in their order.
/// @pre all are in both
[[nodiscard]] inline std::vector<int> ranks_in(MPI_Comm part, MPI_Comm whole) {
  MPI_Group from{};
  MPI_Group to{};
  MPI_Comm_group(part, &from);
  MPI_Comm_group(whole, &to);
  int size = 0;
  MPI_Comm_size(part, &size);
  std::vector<int> own(static_cast<std::size_t>(size));
  std::iota(own.begin(), own.end(), 0);
  std::vector<int> ranks(own.size());
  MPI_Group_translate_ranks(from, size, own.data(), to, ranks.data());
  MPI_Group_free(&from);
  MPI_Group_free(&to);
  return ranks;
}

/// Returns, by rank of the communicator, whether it is on this rank's host (true for this rank itself). Collective.
[[nodiscard]] inline std::vector<bool> ranks_of_this_host(MPI_Comm communicator) {
  MPI_Comm host{};
  int size = 0;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(communicator, &size);
  std::vector<bool> made(static_cast<std::size_t>(size));
  for (const int rank : ranks_in(host, communicator)) made[static_cast<std::size_t>(rank)] = true;
  MPI_Comm_free(&host);
  return made;
}

}  // namespace espalier::comm::detail
