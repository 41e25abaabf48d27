// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/mpi.hpp>
#include <espalier/comm/placement.hpp>
#include <espalier/comm/run/engine.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace espalier::comm {

/// The placement that `propose_placement` finds on rank 0, handed to all ranks, so that they agree although it depends
/// on time. Collective.
/// @pre the network's ranks are the communicator's
[[nodiscard]] inline placement place_ranks(const mpi_communicator& ranks, const network& net,
                                           const mesh_traffic& traffic) {
  detail::agreement together(ranks.base(), ranks.options().deadline, true);
  const detail::plan_words words = together.from_root("for rank 0's placement", [&] {
    const placement proposed = propose_placement(net, traffic);
    detail::plan_words sent;
    detail::put(sent, proposed.rank_of);
    sent.push_back(std::bit_cast<std::int64_t>(proposed.before));
    sent.push_back(std::bit_cast<std::int64_t>(proposed.after));
    sent.push_back(proposed.best ? 1 : 0);
    return sent;
  });
  std::size_t at = 0;
  placement chosen;
  chosen.rank_of = detail::take_list(words, at);
  chosen.before = std::bit_cast<double>(words.at(at));
  chosen.after = std::bit_cast<double>(words.at(at + 1));
  chosen.best = words.at(at + 2) != 0;
  return chosen;
}

}  // namespace espalier::comm
