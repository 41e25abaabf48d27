// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm.hpp>

#include <espalier/testing/random_calls.hpp>

#include <cstddef>
#include <random>
#include <vector>

// The calls of random_calls.hpp, for `collectives`.
namespace espalier::test {

/// Connected, with links of unequal rates, some missing, some in one direction only. The same on all ranks.
[[nodiscard]] inline comm::network random_network(std::mt19937& random, int ranks) {
  std::vector<std::vector<double>> rate(static_cast<std::size_t>(ranks),
                                        std::vector<double>(static_cast<std::size_t>(ranks), 0));
  for (std::size_t a = 0; a < rate.size(); ++a) {
    for (std::size_t b = 0; b < rate.size(); ++b) {
      const bool ring = b == (a + 1) % rate.size() || a == (b + 1) % rate.size();
      if (a != b && (ring || random() % 2 == 0)) rate[a][b] = static_cast<double>(1 + random() % 4);
    }
  }
  return comm::network_of(comm::from_adjacency(rate));
}

/// Returns the element with the MPI library's names of type and operation, if it has some.
[[nodiscard]] inline comm::element element_for(const element_kind& kind) {
  comm::element made;
  made.by = kind.by;
  made.commutes = false;
  if (kind.library_type < 0) return made;
  const auto type = static_cast<dtype>(kind.library_type);
  for (const reduction how : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
    if (!comm::is_reducible(type, how) || comm::combiner_of(comm::reducer_of(type, how)).combine != kind.by.combine)
      continue;
    return comm::element_of(type, how);
  }
  return made;
}

}  // namespace espalier::test
