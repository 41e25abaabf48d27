// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// This is a file of its own, because generating collectives takes as long to compile as a small model.
#include "topology.hpp"

#if defined(ESPALIER_USE_MPI)
#include <espalier/comm.hpp>
#include <espalier/runner.hpp>
#include <espalier/tensor/run/execute/placement.hpp>
#endif

#include <cstddef>
#include <cstdio>
#include <string>

namespace gpt {

#if defined(ESPALIER_USE_MPI)
namespace {

/// "placement: ranks 0 2 | 1 3, predicted 4 ms -> 2 ms": which rank each row of the mesh is on, and what that is worth.
std::string describe(const espalier::comm::placement& chosen, int row) {
  std::string ranks;
  for (std::size_t d = 0; d < chosen.rank_of.size(); ++d) {
    if (d > 0) ranks += static_cast<int>(d) % row == 0 ? " | " : " ";
    ranks += std::to_string(chosen.rank_of[d]);
  }
  char times[96];
  std::snprintf(times, sizeof times, "predicted %.3g ms -> %.3g ms", chosen.before * 1e3, chosen.after * 1e3);
  return "placement: ranks " + ranks + ", " + times + " of communication a step" +
         (chosen.best ? "" : " (the best that was found in time)");
}

}  // namespace
#endif

std::string use_topology([[maybe_unused]] espalier::world& where, [[maybe_unused]] const std::string& source,
                         [[maybe_unused]] const espalier::comm::mesh_traffic* traffic) {
#if defined(ESPALIER_USE_MPI)
  if (espalier::comm::mpi_communicator* const ranks = where.ranks(); ranks != nullptr) {
    espalier::comm::topology machine;
    if (source == "probe") {
      machine = espalier::comm::probe(ranks->base());
    } else {
      espalier::together(where, [&] { machine = espalier::comm::load_topology(source); });
    }
    std::string found =
        std::to_string(machine.links.size()) + " links" + (source == "probe" ? ", probed" : " of " + source);
    if (traffic == nullptr) {
      espalier::comm::use_topology(*ranks, machine);
      return found;
    }
    const espalier::comm::placement chosen = espalier::place_on(where, machine, *traffic);
    return found + '\n' + describe(chosen, traffic->sizes.back());
  }
#endif
  return "not used inside one process";
}

}  // namespace gpt
