// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/probe/explain.hpp>
#include <espalier/comm/probe/measure.hpp>
#include <espalier/comm/probe/wire.hpp>
#include <espalier/comm/topology/json.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::comm::detail {

/// FNV-1a, cut to what a double holds exactly.
[[nodiscard]] inline double short_digest(const std::string& text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  constexpr unsigned spare_bits = 12;
  return static_cast<double>(hash >> spare_bits);
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Learns what connects the ranks of a communicator: which ranks share memory, latency and bandwidth of each ordered
/// pair, and what several of them share (a card of a host, a bus, memory). Collective; the same result on all ranks,
/// decided on rank 0. Vertices are called by rank. About 0.1 s for ranks of one host, below 2 s for 8 hosts; nothing
/// else should be sent in the meantime.
///
/// Hosts are measured in a tournament of disjoint pairs, then each with all others at once, in both directions; where
/// the rates at once are below those alone, a resource explains the difference. Ranks of a host are taken to be alike.
///
/// Errors: `comm_error` after a wait without progress, naming the ranks and the phase. After one, the communicator is
/// unusable: the program ends.
/// Source: Blink, section 3 (probing); reference/blink.md, 1.9.
[[nodiscard]] inline topology probe(MPI_Comm communicator, const probe_options& options = {}) {
  detail::probe_wire wire(communicator, options.deadline);
  detail::topology_measurement measurement(wire, options);
  measurement.run();

  wire.begin("what was found is handed out");
  std::string text;
  if (wire.rank() == 0) text = dump(detail::topology_of_figures(measurement.hosts(), measurement.figures()).make());
  wire.hand_out(text);
  topology machine = parse_topology(text, "the probed topology");

  // Ranks that plan from different topologies wait for each other for ever.
  const double mine = detail::short_digest(dump(machine));
  std::vector<int> different;
  const std::vector<double> all = wire.gather(mine);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r] != all[0]) different.push_back(static_cast<int>(r));
  if (!different.empty())
    throw comm_error("the probe of the topology: " + detail::list_ranks(different) +
                     " read another topology than rank 0; run all ranks from one build");
  wire.close();
  return machine;
}

}  // namespace espalier::comm
