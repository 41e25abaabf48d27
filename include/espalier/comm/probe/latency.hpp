// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/probe/wire.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <vector>

namespace espalier::comm::detail {

/// Half the shortest round trip of a small message between this rank and another; both call it at the same time. The
/// first trips open connections.
[[nodiscard]] inline double half_round_trip(probe_wire& wire, int other, double seconds) {
  constexpr int tag = 3;
  constexpr int fewest = 3;
  constexpr int enough = 8;
  constexpr int most = 30;
  constexpr double longest = 10;  // times the intended time, for fewer than enough
  const bool leads = wire.rank() < other;
  const auto began = probe_wire::clock::now();
  double shortest = std::numeric_limits<double>::max();
  std::byte goes_on{1};
  std::vector<MPI_Request> request(1, no_request());
  const auto move = [&](bool send) {
    wire.check(send ? MPI_Isend(&goes_on, 1, bytes_type(), other, tag, wire.communicator(), request.data())
                    : MPI_Irecv(&goes_on, 1, bytes_type(), other, tag, wire.communicator(), request.data()),
               send ? "MPI_Isend" : "MPI_Irecv");
    wire.wait(
        request, [](std::size_t) {},
        [&](std::size_t) {
          return probe_peers{{other}, !send};
        },
        true);
  };
  for (int trip = 0; goes_on != std::byte{0}; ++trip) {
    if (leads) {
      const auto start = probe_wire::clock::now();
      const std::chrono::duration<double> so_far = start - began;
      const double limit = trip >= enough ? seconds : longest * seconds;
      if (trip == most || (trip >= fewest && so_far.count() > limit)) goes_on = std::byte{0};
      move(true);
      if (goes_on == std::byte{0}) break;
      move(false);
      const std::chrono::duration<double> taken = probe_wire::clock::now() - start;
      shortest = std::min(shortest, taken.count() / 2);
    } else {
      move(false);
      if (goes_on != std::byte{0}) move(true);
    }
  }
  return leads ? shortest : 0;
}

}  // namespace espalier::comm::detail
