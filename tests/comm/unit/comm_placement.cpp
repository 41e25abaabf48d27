// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// timeout: 300
// sanitized: no

#include <espalier/comm/placement.hpp>
#include <espalier/comm/topology/paths.hpp>
#include <espalier/tensor/run/execute/traffic.hpp>

#include <support/programs.hpp>

#include "comm_topology_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace espalier::comm;

/// Hosts given by the ranks on each; links of 10 inside, and a switch between the hosts' cards of 1.
network hosts(const std::vector<std::vector<int>>& ranks_of) {
  topology machine;
  int ranks = 0;
  for (const auto& host : ranks_of) ranks += static_cast<int>(host.size());
  machine.unit = 1e9;
  machine.vertices.resize(static_cast<std::size_t>(ranks));
  for (std::size_t h = 0; h < ranks_of.size(); ++h)
    for (const int r : ranks_of[h])
      machine.vertices[static_cast<std::size_t>(r)] = {std::to_string(r), false, static_cast<int>(h)};
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b) {
      const bool same =
          machine.vertices[static_cast<std::size_t>(a)].host == machine.vertices[static_cast<std::size_t>(b)].host;
      if (a != b) machine.links.push_back({a, b, same ? 10.0 : 1.0, same ? 0 : 1e-5});
    }
  for (const auto& host : ranks_of) {
    share(machine, "out", 1, host, side::out);
    share(machine, "in", 1, host, side::in);
  }
  return network_of(machine);
}

mesh_traffic two_axes(int data, int model, double along_data, double along_model) {
  return {{data, model}, {{collective::all_reduce, 1U, 1, along_data}, {collective::all_reduce, 2U, 1, along_model}}};
}

/// The groups of an axis, as sets of ranks.
std::vector<std::vector<int>> ranks_along(const mesh_traffic& mesh, unsigned axes, const std::vector<int>& rank_of) {
  std::vector<std::vector<int>> groups = detail::groups_along(mesh.sizes, axes);
  for (auto& group : groups) {
    for (int& device : group) device = rank_of[static_cast<std::size_t>(device)];
    std::sort(group.begin(), group.end());
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

}  // namespace

TEST_CASE("groups along axes are those of a mesh") {
  CHECK(detail::groups_along({2, 3}, 1U) == std::vector<std::vector<int>>{{0, 3}, {1, 4}, {2, 5}});
  CHECK(detail::groups_along({2, 3}, 2U) == std::vector<std::vector<int>>{{0, 1, 2}, {3, 4, 5}});
  CHECK(detail::groups_along({2, 2, 2}, 5U) == std::vector<std::vector<int>>{{0, 1, 4, 5}, {2, 3, 6, 7}});
}

TEST_CASE("the axis with most traffic goes inside the hosts") {
  const network net = hosts({{0, 1}, {2, 3}});
  // Along model, which is inside the hosts as it is: stays.
  const mesh_traffic model_heavy = two_axes(2, 2, 1e6, 100e6);
  const placement stays = propose_placement(net, model_heavy);
  CHECK(stays.best);
  CHECK(stays.rank_of == std::vector<int>{0, 1, 2, 3});
  CHECK(stays.after == stays.before);
  // A sum over two: the array is as long as what is sent. 100e6 at 10e9 and 1e6, for two groups, at 1e9 with 2 x 10 us.
  CHECK(stays.after == Approx(100e6 / 10e9 + 2 * 1e6 / 1e9 + 2e-5));

  const mesh_traffic data_heavy = two_axes(2, 2, 100e6, 1e6);
  const placement turned = propose_placement(net, data_heavy);
  CHECK(turned.best);
  CHECK(turned.before == Approx(2 * 100e6 / 1e9 + 1e6 / 10e9 + 2e-5));
  CHECK(turned.after == Approx(stays.after));
  CHECK(turned.rank_of.front() == 0);
  CHECK(ranks_along(data_heavy, 1U, turned.rank_of) == std::vector<std::vector<int>>{{0, 1}, {2, 3}});
}

TEST_CASE("ranks that a launcher dealt out in turn are brought together") {
  const network net = hosts({{0, 2, 4, 6}, {1, 3, 5, 7}});
  const mesh_traffic mesh = two_axes(2, 4, 1e6, 100e6);
  const placement found = propose_placement(net, mesh);
  CHECK(found.best);
  CHECK(found.after < found.before / 10);
  CHECK(ranks_along(mesh, 2U, found.rank_of) == std::vector<std::vector<int>>{{0, 2, 4, 6}, {1, 3, 5, 7}});
}

TEST_CASE("ranks are alike if the network is the same with them exchanged") {
  CHECK(detail::classes_of_ranks(hosts({{0, 2}, {1, 3}})) == std::vector<int>{0, 1, 0, 1});
  CHECK(detail::classes_of_ranks(network_of(topology_data::named("complete4"))) == std::vector<int>{0, 0, 0, 0});
  CHECK(detail::classes_of_ranks(network_of(topology_data::named("ring8"))) ==
        std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("rank 0 can be device 0 without a change of groups") {
  std::mt19937 random(3);
  const mesh_traffic mesh{{2, 3, 2}, {}};
  std::vector<int> rank_of(12);
  std::iota(rank_of.begin(), rank_of.end(), 0);
  for (int n = 0; n < 50; ++n) {
    std::shuffle(rank_of.begin(), rank_of.end(), random);
    const std::vector<int> turned = detail::with_first_rank_first(mesh.sizes, rank_of);
    CHECK(turned.front() == 0);
    for (unsigned axes = 1; axes < 8; ++axes)
      CHECK(ranks_along(mesh, axes, turned) == ranks_along(mesh, axes, rank_of));
  }
}

TEST_CASE("proposals are the best of all permutations on small random networks") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    const int ranks = seed % 3 == 0 ? 6 : 4;
    const network net = network_of(topology_data::random_topology(random, {ranks, seed % 2 == 0, false, true}));
    mesh_traffic mesh;
    mesh.sizes = {2, ranks / 2};
    constexpr collective kinds[]{collective::all_reduce, collective::all_gather, collective::reduce_scatter,
                                 collective::all_to_all};
    for (unsigned axes = 1; axes <= 3; ++axes)
      mesh.items.push_back({kinds[random() % 4], axes, 1, static_cast<double>(1 + random() % 100) * 1e6});
    placement_options patient;
    patient.seconds = 60;
    const placement found = propose_placement(net, mesh, patient);
    CHECK(found.best);
    CHECK(found.rank_of.front() == 0);
    std::vector<int> sorted = found.rank_of;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    CHECK(sorted == order);
    // Every permutation, by a price that knows nothing of classes.
    detail::placement_price price(net, mesh);
    CHECK((price.seconds(order) == found.before || std::abs(price.seconds(order) / found.before - 1) < 1e-9));
    double least = price.seconds(order);
    do {
      network seen = placed(net, order);
      detail::placement_price alone(seen, mesh);
      std::vector<int> same(order.size());
      std::iota(same.begin(), same.end(), 0);
      least = std::min(least, alone.seconds(same));
    } while (std::next_permutation(order.begin(), order.end()));
    INFO("seed " << seed << ": " << found.before << " -> " << found.after << ", least " << least);
    // Routes are found up to a hundredth.
    if (std::isinf(least)) {
      CHECK(std::isinf(found.after));
    } else {
      CHECK(found.after <= least * 1.011);
      CHECK(found.after >= least * (1 - 1e-9));
    }
  }
}

TEST_CASE("a search that cannot look at everything finds what is plain") {
  // Sixteen ranks on four hosts, dealt out in turn.
  const network net = hosts({{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
  placement_options options;
  options.most = 1000;
  options.seconds = 20;
  const mesh_traffic mesh = two_axes(4, 4, 1e6, 100e6);
  const placement found = propose_placement(net, mesh, options);
  std::printf("16 ranks on 4 hosts: %.3f ms -> %.3f ms\n", found.before * 1e3, found.after * 1e3);
  CHECK_FALSE(found.best);
  CHECK(found.after < found.before / 10);
  CHECK(ranks_along(mesh, 2U, found.rank_of) ==
        std::vector<std::vector<int>>{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}});
}

TEST_CASE("a mesh of another size is refused") {
  CHECK_THROWS_WITH(propose_placement(hosts({{0, 1}, {2, 3}}), two_axes(2, 4, 1, 1)),
                    Catch::Contains("4 ranks") && Catch::Contains("8 devices"));
}

TEST_CASE("a program says what it communicates") {
  struct data : espalier::axis<"data", 2> {};
  struct model : espalier::axis<"model", 2> {};
  using program = testing::programs::attention_program<espalier::mesh<data, model>, data, model>;
  const mesh_traffic traffic = espalier::traffic_of<program>();
  CHECK(traffic.sizes == std::vector<int>{2, 2});
  std::int64_t calls = 0;
  double bytes = 0;
  for (const axis_traffic& item : traffic.items) {
    CHECK(item.axes > 0);
    CHECK(item.axes < 4);
    calls += item.calls;
    if (item.kind == collective::all_reduce) bytes += item.bytes;
  }
  CHECK(calls == program::collectives());
  CHECK(calls > 0);
  CHECK(bytes == Approx(static_cast<double>(program::bytes<espalier::all_reduce>())));
}
