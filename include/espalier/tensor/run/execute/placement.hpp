// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/run/execute/world.hpp>

#if defined(ESPALIER_USE_MPI)

#include <espalier/comm/place_ranks.hpp>

namespace espalier {

/// Puts the devices of a world on the ranks where a program that communicates so much (`traffic_of<Program>()`) takes
/// the least time for it on this machine, and gives it collectives made for the machine. Every rank calls it, before
/// anything else is made with the world. Planned on rank 0.
/// @pre `where.uses_mpi()`
inline comm::placement place_on(world& where, const comm::topology& machine, const comm::mesh_traffic& traffic) {
  const comm::network net = comm::network_of(machine);
  const comm::placement chosen = comm::place_ranks(*where.ranks(), net, traffic);
  where.reorder(chosen.rank_of);
  comm::use_network(*where.ranks(), comm::placed(net, chosen.rank_of));
  return chosen;
}

}  // namespace espalier

#endif
