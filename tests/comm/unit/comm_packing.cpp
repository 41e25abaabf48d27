// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// sanitized: no
// processors: 1
// timeout: 300
#include <espalier/comm/packing/pack.hpp>

#include <espalier/comm/topology/json.hpp>
#include <espalier/comm/topology/paths.hpp>

#include "comm_topology_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using espalier::name_of;
using espalier::comm::check;
using espalier::comm::collective;
using espalier::comm::fraction;
using espalier::comm::network;
using espalier::comm::network_of;
using espalier::comm::pack;
using espalier::comm::packing;
using espalier::comm::packing_report;
using espalier::comm::to_double;
using espalier::comm::to_string;
using espalier::comm::topology;

constexpr std::array<collective, 5> collectives{collective::broadcast, collective::reduce, collective::all_reduce,
                                                collective::all_gather, collective::reduce_scatter};

std::string mistakes_of(const packing_report& report) {
  std::string all;
  for (const auto& mistake : report.mistakes) all += mistake + "\n";
  return all;
}

/// Right in every respect; `rate == bound` is for the caller to say.
packing_report require_right(const packing& trees, const network& net) {
  const packing_report report = check(trees, net);
  INFO(name_of(trees.kind) << ", root " << trees.root << ", rate " << to_string(trees.rate) << ", bound "
                           << to_string(trees.bound));
  INFO(mistakes_of(report));
  REQUIRE(report.mistakes.empty());
  if (net.ranks > 1) REQUIRE(report.has_certificate);
  REQUIRE(report.bound == trees.bound);
  return report;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

fraction optimum_of(const topology_data::known_topology& known, collective kind, int root) {
  switch (kind) {
    case collective::broadcast: return known.broadcast[static_cast<std::size_t>(root)];
    case collective::reduce: return known.reduce[static_cast<std::size_t>(root)];
    case collective::all_reduce: return known.all_reduce;
    case collective::all_gather: return known.all_gather;
    case collective::reduce_scatter: return known.reduce_scatter;
    case collective::gather:
    case collective::scatter:
    case collective::all_to_all:
    case collective::local_slice:
    case collective::collective_permute:
    case collective::exchange:
    case collective::reduce_exchange:
    case collective::barrier: break;  // have no trees
  }
  return {};
}

topology duplex_topology(int vertices, const std::vector<std::array<int, 3>>& links, int ranks) {
  std::vector<std::vector<double>> matrix(static_cast<std::size_t>(vertices),
                                          std::vector<double>(static_cast<std::size_t>(vertices), 0));
  for (const auto& [u, v, bandwidth] : links)
    matrix[static_cast<std::size_t>(u)][static_cast<std::size_t>(v)] =
        matrix[static_cast<std::size_t>(v)][static_cast<std::size_t>(u)] = bandwidth;
  std::vector<bool> is_switch(static_cast<std::size_t>(vertices), false);
  for (int v = ranks; v < vertices; ++v) is_switch[static_cast<std::size_t>(v)] = true;
  return espalier::comm::from_adjacency(matrix, is_switch);
}

topology torus8x8() {
  std::vector<std::array<int, 3>> links;
  for (int i = 0; i < 64; ++i) {
    links.push_back({i, (i + 1) % 8 + i / 8 * 8, 1});
    links.push_back({i, (i + 8) % 64, 1});
  }
  return duplex_topology(64, links, 64);
}

/// Four boxes of 16 whose ranks each have a link of bandwidth 1 to one switch.
topology four_mi250_boxes() {
  const topology& box = topology_data::named("mi250_1box");
  std::vector<std::array<int, 3>> links;
  for (int b = 0; b < 4; ++b) {
    for (const auto& link : box.links)
      links.push_back({16 * b + link.from, 16 * b + link.to, static_cast<int>(link.bandwidth)});
    for (int r = 0; r < 16; ++r) links.push_back({16 * b + r, 64, 1});
  }
  return duplex_topology(65, links, 64);
}

/// Eight boxes of eight ranks behind a switch of 300 each; every rank has a card of 25 into one network switch.
topology eight_a100_boxes() {
  std::vector<std::array<int, 3>> links;
  for (int r = 0; r < 64; ++r) {
    links.push_back({r, 64 + r / 8, 300});
    links.push_back({r, 72, 25});
  }
  return duplex_topology(73, links, 64);
}

}  // namespace

TEST_CASE("every known topology is packed at its optimal rate") {
  REQUIRE(topology_data::all().size() == 80);
  std::printf("%-40s %-14s %10s %6s %6s %12s\n", "topology", "collective", "rate", "trees", "depth", "planning");
  for (const auto& known : topology_data::all()) {
    INFO(known.name);
    const network net = network_of(known.machine);
    for (const collective kind : collectives) {
      const bool rooted = kind == collective::broadcast || kind == collective::reduce;
      for (int root = 0; root < (rooted ? net.ranks : 1); ++root) {
        espalier::comm::pack_options options;
        if (root > 0) options.attempts = 3;  // of all roots but one only the rate is of interest
        const auto start = std::chrono::steady_clock::now();
        const packing trees = pack(net, kind, root, options);
        const double seconds = seconds_since(start);
        const packing_report report = require_right(trees, net);
        CHECK(to_string(trees.rate) == to_string(optimum_of(known, kind, root)));
        CHECK(trees.bound == trees.rate);
        if (root == 0)
          std::printf("%-40s %-14s %10s %6zu %6d %9.2f ms\n", known.name.c_str(), name_of(kind),
                      to_string(trees.rate).c_str(), trees.trees.size(), report.depth, seconds * 1e3);
      }
    }
  }
}

TEST_CASE("the packing program agrees with flows and matroids where both apply") {
  for (const auto& known : topology_data::all()) {
    INFO(known.name);
    const network net = network_of(known.machine);
    if (net.ranks > 8) continue;
    for (const collective kind : collectives) {
      const packing trees = espalier::comm::detail::pack_resources(net, kind, 0, {});
      require_right(trees, net);
      CHECK(to_string(trees.rate) == to_string(optimum_of(known, kind, 0)));
      CHECK(trees.bound == trees.rate);
    }
  }
}

TEST_CASE("multiplicative weights come as close as they promise") {
  const auto far = espalier::comm::detail::after(60);
  for (const auto& known : topology_data::all()) {
    INFO(known.name);
    const network net = network_of(known.machine);
    for (const collective kind : collectives) {
      const espalier::comm::detail::tree_source source(net, kind, 0);
      if (!source.connects()) continue;
      const auto rough = espalier::comm::detail::multiplicative_weights(source, 0.05, 0.03, far);
      const packing trees = espalier::comm::detail::make_exact(net, kind, 0, source, rough);
      require_right(trees, net);
      const double optimum = to_double(optimum_of(known, kind, 0));
      CHECK(to_double(trees.rate) <= optimum * (1 + 1e-12));
      CHECK(to_double(trees.rate) >= 0.97 * optimum * (1 - 1e-6));
      CHECK(to_double(trees.bound) >= optimum * (1 - 1e-12));
      CHECK(to_double(trees.bound) <= optimum / 0.97 * (1 + 1e-6));
    }
  }
}

TEST_CASE("weights that a stopped program has are cut where their sums would be too long") {
  network net;
  net.ranks = 2;
  net.host = {0, 1};
  net.resources = {{"there", 200}, {"back", 200}};
  net.edges = {{0, 1, {0}, 0}, {1, 0, {1}, 0}};
  const espalier::comm::detail::tree_source source(net, collective::broadcast, 0);
  espalier::comm::detail::rough_packing stopped;
  stopped.prices = {1, 1};
  // Each weight has a short numerator; their sum, 192 and a little, has 66 bits over 2^58.
  const std::int64_t denominator = std::int64_t{1} << 58;
  for (int j = 0; j < 64; ++j) {
    stopped.columns.push_back(source.cheapest(stopped.prices).columns.at(0));
    stopped.exact_weights.push_back({3 * denominator + 1, denominator});
    stopped.weights.push_back(3);
  }
  const packing trees = espalier::comm::detail::make_exact(net, collective::broadcast, 0, source, stopped);
  require_right(trees, net);
  CHECK(to_double(trees.rate) == Approx(192));
}

TEST_CASE("random networks are packed within their bounds") {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    const topology_data::traits wanted{2 + static_cast<int>(seed % 7), seed % 3 != 0, seed % 2 == 0, seed % 5 == 0};
    const topology machine = topology_data::random_topology(random, wanted);
    const network net = network_of(machine);
    INFO("seed " << seed << "\n" << dump(machine));
    for (const collective kind : collectives) {
      const int root = static_cast<int>(seed) % net.ranks;
      const packing trees = pack(net, kind, root);
      require_right(trees, net);
      CHECK(to_double(trees.rate) >= 0.99 * to_double(trees.bound));
      const packing program = espalier::comm::detail::pack_resources(net, kind, root, {});
      require_right(program, net);
      CHECK(to_double(program.rate) == Approx(to_double(trees.rate)).epsilon(1e-2));
      CHECK(trees.rate <= program.bound);
      CHECK(program.rate <= trees.bound);
    }
  }
}

TEST_CASE("bandwidths with many digits are packed exactly where flows do it") {
  std::mt19937 random(7);
  topology machine = topology_data::random_topology(random, {8, true, false, false});
  for (std::size_t l = 0; l < machine.links.size(); l += 2)
    machine.links[l].bandwidth = machine.links[l + 1].bandwidth =
        1e9 + static_cast<double>(random() % 1'000'000'000) / 7;
  const network net = network_of(machine);
  for (const collective kind : collectives) {
    const packing trees = pack(net, kind, 0);
    require_right(trees, net);
    CHECK(trees.rate == trees.bound);
  }
}

TEST_CASE("large networks are planned in time") {
  struct instance {
    const char* name;
    topology machine;
    double limit;  // seconds; generous, since tests run beside others, and unoptimised
  };
  const std::vector<instance> instances{
      {"2 boxes of 8 A100", topology_data::named("a100_2box"), 1.0},
      {"1 box of 16 MI250", topology_data::named("mi250_1box"), 1.0},
      {"8 x 8 torus", torus8x8(), 10.0},
      {"4 boxes of 16 MI250", four_mi250_boxes(), 20.0},
      {"8 boxes of 8 A100", eight_a100_boxes(), 20.0},
  };
  for (const auto& [name, machine, limit] : instances) {
    const network net = network_of(machine);
    for (const collective kind : collectives) {
      const auto start = std::chrono::steady_clock::now();
      packing trees = pack(net, kind, 0);
      const double seconds = seconds_since(start);
      std::printf("%-22s %-14s rate %10.4f of %10.4f %5zu trees %9.2f ms\n", name, name_of(kind), to_double(trees.rate),
                  to_double(trees.bound), trees.trees.size(), seconds * 1e3);
      INFO(name << ", " << name_of(kind));
      require_right(trees, net);
      CHECK(seconds < limit);
      if (to_double(trees.rate) < 0.99 * to_double(trees.bound)) {
        // Beside other programs, or under a sanitizer, the time that it gives itself may not be enough.
        espalier::comm::pack_options patient;
        patient.most_seconds = 60;
        trees = pack(net, kind, 0, patient);
        require_right(trees, net);
      }
      CHECK(to_double(trees.rate) >= 0.99 * to_double(trees.bound));
    }
  }
}

TEST_CASE("fewer trees for a little of the rate") {
  for (const char* name : {"dgx1v", "mi250_1box", "dgx1v_plus_pcie", "a100_2box", "dgx2_switch", "directed_ring4"}) {
    const network net = network_of(topology_data::named(name));
    for (const collective kind : collectives) {
      const packing all = pack(net, kind, 0);
      std::size_t before = all.trees.size();
      for (const double slack : {0.0, 0.05, 0.2}) {
        INFO(name << ", " << name_of(kind) << ", slack " << slack);
        const packing fewer = espalier::comm::fewer_trees(net, all, slack, 0.2);
        require_right(fewer, net);
        CHECK(fewer.trees.size() <= before);
        CHECK(to_double(fewer.rate) >= (1 - slack) * to_double(all.rate) * (1 - 1e-9));
        before = fewer.trees.size();
      }
    }
  }
  // Blink's example: unit trees on a DGX-1V give 7/8 of the all-reduce.
  espalier::comm::pack_options options;
  options.slack = 0.125;
  const network net = network_of(topology_data::named("dgx1v"));
  const packing units = pack(net, collective::all_reduce, 0, options);
  require_right(units, net);
  CHECK(units.trees.size() == 3);
  CHECK(units.rate == fraction{3, 1});
}

TEST_CASE("the integer program finds the fewest trees, or says that there is no way") {
  using espalier::comm::detail::tree_column;
  using espalier::comm::detail::whole_multiples;
  // Three rows of capacity 4; trees that use one row, and one that uses all.
  const auto far = espalier::comm::detail::after(60);
  std::vector<tree_column> trees(4);
  for (int r = 0; r < 3; ++r) trees[static_cast<std::size_t>(r)].uses = {{r, 1}};
  trees[3].uses = {{0, 1}, {1, 1}, {2, 1}};
  const auto solve = [&](std::int64_t wanted) {
    return whole_multiples(trees, {4, 4, 4}, {1, 1, 1}, 1, wanted, far).best();
  };
  const auto distinct = [](const std::vector<std::int64_t>& counts) {
    return std::count_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; });
  };
  CHECK(distinct(solve(4)) == 1);
  CHECK(distinct(solve(8)) == 2);
  CHECK(distinct(solve(12)) == 3);
  CHECK(solve(13).empty());
}

TEST_CASE("the cheapest arborescence is that of trying all") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(seed % 4);
    const network net = network_of(topology_data::random_topology(random, {ranks, false, false, false}));
    std::vector<std::int64_t> costs;
    for (std::size_t e = 0; e < net.edges.size(); ++e) costs.push_back(static_cast<std::int64_t>(random() % 6));
    const std::vector<double> real(costs.begin(), costs.end());
    const int root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    for (const bool inward : {false, true}) {
      INFO("seed " << seed << ", root " << root << (inward ? ", inward" : ""));
      // Every choice of one edge per rank that hangs on the root.
      std::vector<std::vector<int>> choices(static_cast<std::size_t>(ranks));
      for (std::size_t e = 0; e < net.edges.size(); ++e)
        choices[static_cast<std::size_t>(inward ? net.edges[e].from : net.edges[e].to)].push_back(static_cast<int>(e));
      std::int64_t least = -1;
      std::vector<int> chosen(static_cast<std::size_t>(ranks), -1);
      const auto try_all = [&](const auto& self, int rank) -> void {
        if (rank == ranks) {
          if (!espalier::comm::detail::fault_of_half(net, root, chosen, !inward).empty()) return;
          std::int64_t cost = 0;
          for (const int e : chosen)
            if (e >= 0) cost += costs[static_cast<std::size_t>(e)];
          if (least < 0 || cost < least) least = cost;
          return;
        }
        if (rank == root) return self(self, rank + 1);
        for (const int e : choices[static_cast<std::size_t>(rank)]) {
          chosen[static_cast<std::size_t>(rank)] = e;
          self(self, rank + 1);
        }
      };
      try_all(try_all, 0);
      const auto found = espalier::comm::detail::arborescences<std::int64_t>(net, inward).cheapest(root, costs);
      REQUIRE(found);
      CHECK(found->cost == least);
      CHECK(espalier::comm::detail::fault_of_half(net, root, found->edge, !inward).empty());
      CHECK(espalier::comm::detail::arborescences<double>(net, inward).cheapest(root, real)->cost == Approx(least));
    }
  }
}

TEST_CASE("both linear programs reach the optimum on their own") {
  const auto far = espalier::comm::detail::after(60);
  for (const char* name : {"dgx2_switch", "a100_2box", "dgx1v_plus_pcie_ncclbw",
                           "four_hosts_2ranks_hetero_nics_4_4_4_1", "directed_ring4", "switch_hetero_nics_4_4_1_4"}) {
    const auto& list = topology_data::all();
    const auto known = std::find_if(list.begin(), list.end(), [&](const auto& k) { return k.name == name; });
    const network net = network_of(known->machine);
    for (const collective kind : collectives) {
      INFO(name << ", " << name_of(kind));
      const fraction optimum = optimum_of(*known, kind, 0);
      const packing columns = espalier::comm::detail::pack_by_columns(net, kind, 0, far);
      require_right(columns, net);
      CHECK(columns.rate == optimum);
      CHECK(columns.bound == optimum);
      const packing shares = espalier::comm::detail::pack_by_shares(net, kind, 0, 5, 0.05, far);
      require_right(shares, net);
      CHECK(shares.rate == optimum);
      CHECK(shares.bound == optimum);
    }
  }
}

TEST_CASE("fractions are exact or refuse") {
  using espalier::comm::common_divisor;
  CHECK(fraction{1, 3} + fraction{1, 6} == fraction{1, 2});
  CHECK(fraction{24, 7} * fraction{7, 12} == fraction{2, 1});
  CHECK(fraction{1, 2} / fraction{3, 4} == fraction{2, 3});
  CHECK(fraction{1, 3} < fraction{334, 1001});
  CHECK(common_divisor(fraction{6, 1}, fraction{24, 7}) == fraction{6, 7});
  CHECK(to_string(fraction{24, 7}) == "24/7");
  const std::int64_t large = std::int64_t{1} << 62;
  CHECK((fraction{large, 3} < fraction{large, 2}));
  CHECK(fraction{large, 3} * fraction{3, large} == fraction{1, 1});
  CHECK_THROWS_AS((fraction{large, 1} + fraction{large, 1}), std::overflow_error);
  // 3 x + y = 5, x - 2 y = -3: x = 1, y = 2; and one whose solution is negative.
  const auto solved = espalier::comm::detail::solve_exactly({2, {3, 1, 1, -2}, {5, -3}});
  REQUIRE(solved);
  CHECK((*solved)[0] == fraction{1, 1});
  CHECK((*solved)[1] == fraction{2, 1});
  const auto negative = espalier::comm::detail::solve_exactly({1, {7}, {-3}});
  REQUIRE(negative);
  CHECK((*negative)[0] == fraction{-3, 7});
  CHECK_FALSE(espalier::comm::detail::solve_exactly({2, {1, 2, 2, 4}, {1, 1}}));
}

TEST_CASE("networks at the edge of what there is to pack") {
  SECTION("one rank") {
    const network net = network_of(espalier::comm::from_adjacency({{0}}));
    for (const collective kind : collectives) {
      const packing trees = pack(net, kind, 0);
      REQUIRE(trees.trees.size() == 1);
      CHECK(check(trees, net).mistakes.empty());
    }
  }
  SECTION("two ranks, one direction missing") {
    const network net = network_of(espalier::comm::from_adjacency({{0, 3}, {0, 0}}));
    CHECK(pack(net, collective::broadcast, 0).rate == fraction{3, 1});
    CHECK(pack(net, collective::broadcast, 1).rate == fraction{0, 1});
    CHECK(pack(net, collective::reduce, 1).rate == fraction{3, 1});
    CHECK(pack(net, collective::reduce, 0).rate == fraction{0, 1});
    for (const collective kind : {collective::all_reduce, collective::all_gather, collective::reduce_scatter}) {
      const packing trees = pack(net, kind, 0);
      CHECK(trees.rate == fraction{0, 1});
      CHECK(trees.trees.empty());
      require_right(trees, net);
    }
  }
  SECTION("several channels between one pair") {
    network net;
    net.ranks = 2;
    net.host = {0, 1};
    net.resources = {{"a", 2}, {"b", 3}, {"a back", 2}, {"b back", 3}};
    net.edges = {{0, 1, {0}, 0}, {0, 1, {1}, 0}, {1, 0, {2}, 0}, {1, 0, {3}, 0}};
    for (const collective kind : collectives) {
      const packing trees = pack(net, kind, 0);
      require_right(trees, net);
      // All-reduce: each unit crosses once each way. All-gather: half of the array crosses, each way.
      CHECK(trees.rate == fraction{espalier::comm::has_equal_roots(kind) ? 10 : 5, 1});
    }
  }
  SECTION("a half-duplex bus") {
    network net;
    net.ranks = 3;
    net.host = {0, 1, 2};
    net.resources = {{"bus", 6}};
    for (int u = 0; u < 3; ++u)
      for (int v = 0; v < 3; ++v)
        if (u != v) net.edges.push_back({u, v, {0}, 0});
    // Two transfers reach two ranks: 6 / 2. All-reduce needs four, all-gather two of each third.
    CHECK(pack(net, collective::broadcast, 0).rate == fraction{3, 1});
    CHECK(pack(net, collective::all_reduce).rate == fraction{3, 2});
    CHECK(pack(net, collective::all_gather).rate == fraction{3, 1});
  }
  SECTION("what is no network") {
    network net = network_of(espalier::comm::from_adjacency({{0, 1}, {1, 0}}));
    CHECK_THROWS_WITH(pack(net, collective::broadcast, 2), Catch::Contains("root 2"));
    net.resources[0].capacity = 0;
    CHECK_THROWS_WITH(pack(net, collective::broadcast, 0), Catch::Contains("capacity 0"));
    net.resources[0].capacity = 1;
    net.edges[0].to = 5;
    CHECK_THROWS_WITH(pack(net, collective::broadcast, 0), Catch::Contains("0 -> 5"));
  }
}

TEST_CASE("the checker sees what is wrong with a packing") {
  const network net = network_of(topology_data::named("dgx1v"));
  const packing good = pack(net, collective::all_reduce);
  REQUIRE(check(good, net).mistakes.empty());
  const auto says = [&](const packing& bad, const char* what) {
    const packing_report report = check(bad, net);
    CHECK_FALSE(report);
    CHECK_THAT(mistakes_of(report), Catch::Contains(what));
  };
  packing bad = good;
  bad.trees.pop_back();
  says(bad, "the weights add up to");
  bad = good;
  bad.trees[0].weight = bad.trees[0].weight + fraction{1, 1};
  says(bad, "its capacity is");
  bad = good;
  const int leaf = bad.trees[0].root == 0 ? 1 : 0;
  bad.trees[0].down[static_cast<std::size_t>(leaf)] = -1;
  says(bad, "has no edge for rank");
  bad = good;
  bad.trees[0].root = leaf;
  says(bad, "gives its root");
  bad = good;
  // Two ranks that are each other's parents.
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    const auto& edge = net.edges[e];
    if (edge.from == bad.trees[0].root || edge.to == bad.trees[0].root) continue;
    for (std::size_t b = 0; b < net.edges.size(); ++b) {
      if (net.edges[b].from != edge.to || net.edges[b].to != edge.from) continue;
      bad.trees[0].down[static_cast<std::size_t>(edge.to)] = static_cast<int>(e);
      bad.trees[0].down[static_cast<std::size_t>(edge.from)] = static_cast<int>(b);
    }
    break;
  }
  says(bad, "has a cycle");
  bad = good;
  bad.prices.assign(bad.prices.size(), 0);
  says(bad, "the prices prove no bound");
  bad = good;
  bad.bound = fraction{3, 1};
  says(bad, "the prices prove the bound 24/7, it is said to be 3");
  packing gathered = pack(net, collective::all_gather);
  std::swap(gathered.trees.front().weight, gathered.trees.back().weight);
  gathered.trees.back().weight = gathered.trees.back().weight + fraction{1, 70};
  gathered.rate = gathered.rate + fraction{1, 70};
  says(gathered, "expected an equal share");
}

TEST_CASE("trees for a machine that is declared in a file") {  // docs/topology.md quotes it
  const std::string file = std::filesystem::temp_directory_path() / ("espalier_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << R"({"adjacency": [[0, 2, 1], [2, 0, 1], [1, 1, 0]]})";
  namespace comm = espalier::comm;
  const comm::topology machine = comm::load_topology(file);
  const comm::network net = comm::network_of(machine);  // ranks, paths between them, what paths share
  const comm::packing trees = comm::pack(net, comm::collective::all_reduce);
  const comm::packing_report report = comm::check(trees, net);  // trusts nothing that the packing says
  std::filesystem::remove(file);
  CHECK(report.mistakes.empty());
  CHECK(trees.rate == trees.bound);
  // Nash-Williams: four units of links in both directions, over two edges a tree.
  CHECK((trees.rate == fraction{2, 1}));
}

// The laws that comments state as @post: each test has the name of the function and the law, as they stand there.

TEST_CASE("pack: no resource carries more than its capacity", "[law]") {
  for (unsigned seed = 101; seed <= 130; ++seed) {
    std::mt19937 random(seed);
    const network net = network_of(topology_data::random_topology(
        random, {2 + static_cast<int>(seed % 6), seed % 3 != 0, seed % 2 == 0, seed % 5 == 0}));
    for (const collective kind : collectives) {
      CAPTURE(seed, name_of(kind));
      const packing trees = pack(net, kind, static_cast<int>(seed) % net.ranks);
      REQUIRE(!trees.trees.empty());
      std::vector<fraction> carried(net.resources.size());
      const auto add = [&](const std::vector<int>& edges, const fraction& weight) {
        for (const int edge : edges) {
          if (edge < 0) continue;
          for (const int r : net.edges.at(static_cast<std::size_t>(edge)).resources)
            carried[static_cast<std::size_t>(r)] = carried[static_cast<std::size_t>(r)] + weight;
        }
      };
      for (const auto& tree : trees.trees) {
        add(tree.down, tree.weight);
        add(tree.up, tree.weight);
      }
      bool is_met = false;
      for (std::size_t r = 0; r < carried.size(); ++r) {
        const fraction capacity{net.resources[r].capacity, 1};
        REQUIRE(carried[r] <= capacity);
        is_met = is_met || to_double(carried[r]) > 0.99 * to_double(capacity);
      }
      CHECK(is_met);  // else more could be sent
    }
  }
}

namespace {

fraction random_fraction(std::mt19937& random) {
  const auto numerator = static_cast<std::int64_t>(random() % 200);
  return fraction{numerator, 1} / fraction{static_cast<std::int64_t>(1 + random() % 60), 1};
}

}  // namespace

TEST_CASE("operator-: (a - b) + b == a", "[law]") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 5000; ++trial) {
    const fraction a = random_fraction(random);
    const fraction b = random_fraction(random);
    if (a >= b) REQUIRE((a - b) + b == a);
  }
}

TEST_CASE("operator/: (a / b) * b == a", "[law]") {
  std::mt19937 random(2);
  for (int trial = 0; trial < 5000; ++trial) {
    const fraction a = random_fraction(random);
    const fraction b = random_fraction(random);
    if (b.numerator > 0) REQUIRE((a / b) * b == a);
  }
}

TEST_CASE("common_divisor: a and b are whole multiples of it, and those two numbers have no common divisor", "[law]") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 5000; ++trial) {
    const fraction a = random_fraction(random);
    const fraction b = random_fraction(random);
    if (a.numerator + b.numerator == 0) continue;
    const fraction divisor = espalier::comm::common_divisor(a, b);
    const fraction times_a = a / divisor;
    const fraction times_b = b / divisor;
    REQUIRE((times_a.denominator == 1 && times_b.denominator == 1));
    REQUIRE(std::gcd(times_a.numerator, times_b.numerator) == 1);
  }
}

TEST_CASE(
    "max_flow::solve: below `limit`: it is the capacity of the arcs from the source's side to the other, and "
    "every flow fits its arc",
    "[law]") {
  std::mt19937 random(4);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  for (int trial = 0; trial < 1000; ++trial) {
    struct arc {
      int from;
      int to;
      std::int64_t capacity;
      int id;
    };
    const int vertices = 2 + below(7);
    espalier::comm::detail::max_flow flow(vertices);
    std::vector<arc> arcs;
    for (int n = below(3 * vertices); n > 0; --n) {
      arc one{below(vertices), below(vertices), below(10), 0};
      if (one.from == one.to) continue;
      one.id = flow.add_arc(one.from, one.to, one.capacity);
      arcs.push_back(one);
    }
    const std::int64_t value = flow.solve(0, 1);
    REQUIRE(flow.on_source_side(0));
    REQUIRE_FALSE(flow.on_source_side(1));
    std::int64_t cut = 0;
    std::vector<std::int64_t> leaves(static_cast<std::size_t>(vertices), 0);
    for (const arc& one : arcs) {
      if (flow.on_source_side(one.from) && !flow.on_source_side(one.to)) cut += one.capacity;
      const std::int64_t moved = flow.flow(one.id);
      REQUIRE((moved >= 0 && moved <= one.capacity));
      leaves[static_cast<std::size_t>(one.from)] += moved;
      leaves[static_cast<std::size_t>(one.to)] -= moved;
    }
    REQUIRE(cut == value);
    REQUIRE((leaves[0] == value && leaves[1] == -value));
    for (std::size_t v = 2; v < leaves.size(); ++v) REQUIRE(leaves[v] == 0);
    if (value > 1) REQUIRE(flow.solve(0, 1, value - 1) == value - 1);
  }
}
