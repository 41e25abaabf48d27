// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// ranks: 1 2 4 8
// dies([probe_absent]): 4 waited 0.5 s in the probe of the topology [(]one of these has not called it[)] for rank
// lab([lab_star]): star "400mbit 400mbit 100mbit 400mbit"
// lab([lab_links]): links 4 "0-1:400mbit 2-3:400mbit *:50mbit"
// lab([lab_bus]): links 4 "0-1:200mbit 2-3:200mbit *:bus" bus 50mbit
// lab([lab_eight]): topology data/topologies/dgx1v.json 100mbit bus 50mbit
// timeout: 120
// skips: skipped: the machine was busy

#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/probe/probe.hpp>
#include <espalier/comm/topology/paths.hpp>
#include <espalier/comm/topology/table.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>
#include <support/quiet_machine.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace espalier::comm;

using espalier::test::is_as_on_rank_0;
using espalier::test::rank_in;
using espalier::test::size_of;

struct timed {
  topology machine;
  double seconds = 0;
};
timed timed_probe(MPI_Comm communicator) {
  MPI_Barrier(communicator);
  const double start = MPI_Wtime();
  topology machine = probe(communicator);
  return {std::move(machine), MPI_Wtime() - start};
}

void check_sound(const topology& machine, MPI_Comm communicator) {
  const auto ranks = static_cast<std::size_t>(size_of(communicator));
  REQUIRE_NOTHROW(require_consistent(machine));
  REQUIRE_ALL(communicator, is_as_on_rank_0(dump(machine), communicator));
  REQUIRE_ALL(communicator, rank_vertices(machine).size() == ranks);
  REQUIRE_ALL(communicator, machine.links.size() == ranks * (ranks - 1));
  for (const auto& link : machine.links) REQUIRE_ALL(communicator, (link.latency > 0 && link.latency < 1));
}

/// The rate of a collective that its trees reach on a topology, in Mbit/s.
double rate_of(const topology& machine, collective kind) {
  const network net = network_of(machine);
  const packing packed = pack(net, kind);
  return static_cast<double>(packed.rate.numerator) / static_cast<double>(packed.rate.denominator) * net.unit * 8e-6;
}

void print(const timed& probed, const char* what) {
  if (rank_in(MPI_COMM_WORLD) != 0) return;
  std::cerr << what << ": probed in " << probed.seconds << " s\n" << describe(probed.machine);
}

TEST_CASE("ranks of one host find that they share it", "[comm][probe]") {
  const timed probed = timed_probe(MPI_COMM_WORLD);
  check_sound(probed.machine, MPI_COMM_WORLD);
  for (const auto& vertex : probed.machine.vertices) REQUIRE_ALL(MPI_COMM_WORLD, vertex.host == 0);
  // Links inside a host are taken to be alike.
  for (const auto& link : probed.machine.links)
    REQUIRE_ALL(MPI_COMM_WORLD, link.bandwidth == probed.machine.links.front().bandwidth);
  if (size_of(MPI_COMM_WORLD) > 1) {
    const double rate = rate_of(probed.machine, collective::all_reduce);
    REQUIRE_ALL(MPI_COMM_WORLD, rate > 100);
  }
  INFO("seconds: " << probed.seconds);
  REQUIRE_ALL(MPI_COMM_WORLD, probed.seconds < 10);
}

TEST_CASE("a part of the ranks can be probed, and the caller's own messages wait", "[comm][probe]") {
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  if (size < 2) return;
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
  int received = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(&received, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, part, &request);
  const timed probed = timed_probe(part);
  check_sound(probed.machine, part);
  const int sent = 17;
  MPI_Send(&sent, 1, MPI_INT, (rank_in(part) + 1) % size_of(part), 5, part);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  REQUIRE_ALL(MPI_COMM_WORLD, received == 17);
  MPI_Comm_free(&part);
}

TEST_CASE("a rank that does not come to the probe is missed", "[.][probe_absent]") {
  if (rank_in(MPI_COMM_WORLD) == 2) std::this_thread::sleep_for(std::chrono::seconds(20));
  probe_options options;
  options.deadline = std::chrono::duration<double>(0.5);
  (void)probe(MPI_COMM_WORLD, options);
}

// --- Emulated hosts -------------------------------------------------------------------------------------------------

using espalier::test::verdict;

/// The share of a token bucket's rate that is left without the headers of TCP, IP and Ethernet.
constexpr double payload = 0.956;

/// Probes until `is_as_set` holds of what is found, or does not although the machine was quiet.
verdict probe_lab(const char* what, const std::function<bool(const topology&)>& is_as_set) {
  return espalier::test::quiet_machine(MPI_COMM_WORLD).judge([&] {
    const timed probed = timed_probe(MPI_COMM_WORLD);
    check_sound(probed.machine, MPI_COMM_WORLD);
    // Rank 0's clock decides for all: the topology is the same on all ranks, the seconds are not.
    int right = probed.seconds < 2 && is_as_set(probed.machine) ? 1 : 0;
    MPI_Bcast(&right, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (right == 0) print(probed, what);
    return right == 1;
  });
}

bool is_about(double rate, double expected, double tolerance) { return rate == Approx(expected).epsilon(tolerance); }

TEST_CASE("a slow card of one host among four at a switch", "[.][lab_star]") {
  const verdict found = probe_lab("400/400/100/400 Mbit/s", [](const topology& machine) {
    for (const auto& vertex : machine.vertices)
      if (vertex.host != static_cast<int>(&vertex - machine.vertices.data())) return false;
    return is_about(rate_of(machine, collective::all_reduce), payload * 100, 0.1);
  });
  REQUIRE_ALL(MPI_COMM_WORLD, found != verdict::wrong);
}

TEST_CASE("four hosts with a link of its own for each pair", "[.][lab_links]") {
  const verdict found = probe_lab("two links of 400 Mbit/s, four of 50", [](const topology& machine) {
    // Two parts of two hosts with four slow links between them.
    return is_about(rate_of(machine, collective::all_reduce), payload * 200, 0.12);
  });
  REQUIRE_ALL(MPI_COMM_WORLD, found != verdict::wrong);
}

TEST_CASE("direct links beside a bus that each host shares", "[.][lab_bus]") {
  const verdict found = probe_lab("two links of 200 Mbit/s, a bus of 50", [](const topology& machine) {
    for (int host = 0; host < 4; ++host) {
      const auto& shared = machine.resources;
      const std::string name = "host " + std::to_string(host) + " (lab" + std::to_string(host) + ") out";
      const auto bus = std::find_if(shared.begin(), shared.end(), [&](const auto& r) { return r.name == name; });
      if (bus == shared.end() || bus->links.size() != 2) return false;
    }
    // Each host sends 50 Mbit/s to the other part, however many peers it has there: four such links between two parts,
    // of which a broadcast uses the two that leave the root's.
    return is_about(rate_of(machine, collective::broadcast), payload * 100, 0.12);
  });
  REQUIRE_ALL(MPI_COMM_WORLD, found != verdict::wrong);
}

TEST_CASE("what eight hosts share is found in one probe, whatever passes as a burst", "[.][lab_eight]") {
  // Each host has four links of its own, and sends to the other three over a bus. What else the machine does for some
  // milliseconds may spoil one probe.
  constexpr int probes = 5;
  int wrong = 0;
  for (int n = 0; n < probes; ++n) {
    const verdict found = probe_lab("a DGX-1V with lanes of 100 Mbit/s and a bus of 50", [](const topology& machine) {
      const auto& shared = machine.resources;
      const bool all_buses = shared.size() == 8 && std::all_of(shared.begin(), shared.end(), [](const auto& r) {
                               return r.links.size() == 3 && r.name.ends_with(" out");
                             });
      // The most that the root can send at all: its links and its bus.
      return all_buses && is_about(rate_of(machine, collective::broadcast), payload * 650, 0.06);
    });
    if (found == verdict::machine_was_busy) return;
    if (found == verdict::wrong) ++wrong;
  }
  REQUIRE_ALL(MPI_COMM_WORLD, wrong <= 1);
}

}  // namespace
