// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/execute/world.hpp>

#if defined(ESPALIER_USE_MPI)

#include <espalier/comm/placement.hpp>
#include <espalier/comm/run/engine.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace espalier {

/// Puts the devices of a world on the ranks where a program that communicates so much (`traffic_of<Program>()`) takes
/// the least time for it on this machine, and gives it collectives made for the machine. Every rank calls it, before
/// anything else is made with the world. Planned on rank 0.
/// @pre `where.uses_mpi()`
inline comm::placement place_on(world& where, const comm::topology& machine, const comm::mesh_traffic& traffic) {
  const comm::network net = comm::network_of(machine);
  comm::mpi_communicator& ranks = *where.ranks();
  comm::detail::agreement together(ranks.base(), ranks.options().deadline, true);
  const comm::detail::plan_words said = together.from_root("for rank 0's placement", [&] {
    const comm::placement found = comm::propose_placement(net, traffic);
    comm::detail::plan_words mine;
    comm::detail::put(mine, found.rank_of);
    mine.push_back(std::bit_cast<std::int64_t>(found.before));
    mine.push_back(std::bit_cast<std::int64_t>(found.after));
    mine.push_back(found.best ? 1 : 0);
    return mine;
  });
  std::size_t at = 0;
  comm::placement chosen;
  chosen.rank_of = comm::detail::take_list(said, at);
  chosen.before = std::bit_cast<double>(said.at(at));
  chosen.after = std::bit_cast<double>(said.at(at + 1));
  chosen.best = said.at(at + 2) != 0;
  where.reorder(chosen.rank_of);
  comm::use_network(*where.ranks(), comm::placed(net, chosen.rank_of));
  return chosen;
}

}  // namespace espalier

#endif
