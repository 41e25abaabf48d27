// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <cstdlib>
#include <initializer_list>

namespace espalier::comm::detail {

/// The value of the first of the variables that holds a number >= `least`, else `fallback`.
template <class... Name> [[nodiscard]] int first_number(int least, int fallback, Name... names) {
  for (const char* name : {names...}) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= least && value <= 1 << 30) return static_cast<int>(value);
  }
  return fallback;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Whether an MPI launcher (mpirun, mpiexec, srun with a PMI) started this process. Known before MPI is initialised.
/// Slurm's own variables do not count: a plain shell inside an allocation has them too.
[[nodiscard]] inline bool under_mpi_launcher() {
  return detail::first_number(0, -1, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                              "MPI_LOCALRANKID") >= 0;
}

/// Ranks the launcher started, from its environment; 1 without a launcher, 0 when it does not say.
[[nodiscard]] inline int launcher_size() {
  if (!under_mpi_launcher()) return 1;
  return detail::first_number(1, 0, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS");
}

/// Ranks it started on this process's host; 0 without a launcher, or when it does not say.
[[nodiscard]] inline int launcher_local_size() {
  return detail::first_number(1, 0, "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE");
}

/// This process's rank, from the launcher's environment; 0 without a launcher.
[[nodiscard]] inline int launcher_rank() {
  return detail::first_number(0, 0, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK",
                              "SLURM_PROCID");
}

}  // namespace espalier::comm
