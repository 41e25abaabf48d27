// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// By itself, because generating collectives takes as long to compile as a small model.
#include "topology.hpp"

#if defined(ESPALIER_USE_MPI)
#include <espalier/comm.hpp>
#include <espalier/execute/together.hpp>
#endif

namespace gpt {

std::string use_topology([[maybe_unused]] espalier::world& where, [[maybe_unused]] const std::string& source) {
#if defined(ESPALIER_USE_MPI)
  if (espalier::comm::mpi_communicator* const ranks = where.ranks(); ranks != nullptr) {
    espalier::comm::topology machine;
    if (source == "probe") {
      machine = espalier::comm::probe(ranks->base());
    } else {
      espalier::together(where, [&] { machine = espalier::comm::load_topology(source); });
    }
    espalier::comm::use_topology(*ranks, machine);
    return std::to_string(machine.links.size()) + " links" + (source == "probe" ? ", probed" : " of " + source);
  }
#endif
  return "not used inside one process";
}

}  // namespace gpt
