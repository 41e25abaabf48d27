// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// sanitized: no
// processors: 1

// Schedules of all collectives on all topologies and fragments of tests/data/topologies, along the packings that the
// library finds, in the simulator: within 5 % + depth x alpha of the bound for large messages.

#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/schedule/from_routes.hpp>
#include <espalier/comm/schedule/price.hpp>
#include <espalier/comm/schedule/simulate.hpp>
#include <espalier/comm/topology/paths.hpp>
#include <espalier/testing/validate_schedule.hpp>

#include "comm_topology_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace espalier::comm;

constexpr double alpha = 5e-6;
constexpr std::int64_t bytes = 64 << 20;

// The widest link carries 1 GB/s, every hop takes alpha.
network timed_network(const topology& machine) {
  network net = network_of(machine);
  std::int64_t widest = 1;
  for (const auto& resource : net.resources) widest = std::max(widest, resource.capacity);
  net.unit = 1e9 / static_cast<double>(widest);
  for (auto& edge : net.edges) edge.latency = alpha;
  return net;
}

// How much longer than the bound it takes, in parts of the bound, with depth x alpha left out.
void check_run(const std::string& what, const schedule& plan, const network& net, double bound, int depth) {
  const schedule_report report = validate(plan, net);
  INFO(what << (report ? "" : describe(report.faults[0])));
  CHECK(report);
  simulation_options options;
  options.element_bytes = 1;
  const simulation run = simulate(plan, net, options);
  CHECK(run.complete);
  CHECK(run.seconds >= bound * 0.9999);
  CHECK(run.seconds <= 1.05 * bound + depth * alpha);
  for (const double used : run.utilisation) CHECK(used < 1.0001);
  if (std::getenv("ESPALIER_TEST_TABLE") != nullptr) {
    std::printf("%-52s %4d tracks, depth %2d, %8.3f ms, %.4f of the bound\n", what.c_str(),
                static_cast<int>(plan.tracks.size()), depth, run.seconds * 1e3, run.seconds / bound);
  }
}

void check_packing(const std::string& name, const network& net, const packing& trees) {
  if (trees.trees.empty()) return;  // not connected
  int depth = 0;
  for (const tree& t : trees.trees) depth = std::max(depth, depth_of(net, t, trees.kind).hops);
  const double bound = static_cast<double>(bytes) / (to_double(trees.bound) * net.unit);
  check_run(name + " " + name_of(trees.kind) + " " + std::to_string(trees.root), pipelined_schedule(net, trees, bytes),
            net, bound, depth);
}

}  // namespace

TEST_CASE("tree collectives of all topologies reach their bound in the simulator", "[schedule]") {
  for (const auto& known : topology_data::all()) {
    const network net = timed_network(known.machine);
    for (int root = 0; root < net.ranks; root += std::max(1, net.ranks / 3)) {
      check_packing(known.name, net, pack(net, collective::broadcast, root));
      check_packing(known.name, net, pack(net, collective::reduce, root));
    }
    for (const collective kind : {collective::all_reduce, collective::all_gather, collective::reduce_scatter}) {
      check_packing(known.name, net, pack(net, kind));
    }
  }
}

TEST_CASE("gather, scatter and all-to-all of all topologies reach their bound in the simulator", "[schedule]") {
  for (const auto& known : topology_data::all()) {
    const network net = timed_network(known.machine);
    if (pack(net, collective::all_gather).trees.empty()) continue;  // not connected
    for (const collective what : {collective::gather, collective::scatter, collective::all_to_all}) {
      const std::int64_t blocks = what == collective::all_to_all ? net.ranks * net.ranks : net.ranks;
      const collective_call call = uniform_call(what, net.ranks, bytes / blocks, net.ranks / 2);
      const routing found = find_routes(call, net);
      INFO(known.name << ": rate " << found.rate << " of " << found.bound);
      CHECK(found.rate <= found.bound * 1.0001);
      std::size_t depth = 0;
      for (const route& r : found.routes) depth = std::max(depth, r.edges.size());
      chunking cut;
      cut.elements = 16384;
      check_run(known.name + " " + name_of(what), from_routes(call, net, found.routes, cut), net,
                static_cast<double>(total_elements(call)) / (found.bound * net.unit), static_cast<int>(depth));
    }
  }
}

TEST_CASE("the bound of routes is proved by their prices", "[schedule]") {
  // Independent of the search: at these prices every pair's cheapest path costs what it costs, and no routing can pay
  // less than all pairs together nor use more than all resources hold.
  for (const char* name : {"dgx1v", "mi250_1box", "switch_hetero_nics_4_4_1_4", "slow_leaf4"}) {
    const network net = timed_network(topology_data::named(name));
    const collective_call call = uniform_call(collective::all_to_all, net.ranks, 1);
    const routing found = find_routes(call, net);
    REQUIRE(found.prices.size() == net.resources.size());
    const auto n = static_cast<std::size_t>(net.ranks);
    std::vector<double> cost(n * n, 1e300);
    for (const auto& e : net.edges) {
      double sum = 0;
      for (const int r : e.resources) sum += found.prices[static_cast<std::size_t>(r)];
      double& cell = cost[static_cast<std::size_t>(e.from) * n + static_cast<std::size_t>(e.to)];
      cell = std::min(cell, sum);
    }
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j)
          cost[i * n + j] = std::min(cost[i * n + j], cost[i * n + k] + cost[k * n + j]);
      }
    }
    double paid = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) paid += i == j ? 0 : cost[i * n + j] / static_cast<double>(n * n);
    }
    double budget = 0;
    for (std::size_t r = 0; r < net.resources.size(); ++r) {
      budget += found.prices[r] * static_cast<double>(net.resources[r].capacity);
    }
    CHECK(found.bound == Approx(budget / paid).epsilon(1e-9));
  }
}
