// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: host

#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/probe/arrivals.hpp>
#include <espalier/comm/probe/equalise.hpp>
#include <espalier/comm/probe/explain.hpp>
#include <espalier/comm/probe/tournament.hpp>
#include <espalier/comm/topology/paths.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace espalier::comm;
using namespace espalier::comm::detail;

TEST_CASE("in a tournament each meets each once, and at most one at a time", "[comm][probe]") {
  for (int players = 0; players <= 17; ++players) {
    std::vector<int> meetings(static_cast<std::size_t>(players * players), 0);
    for (int round = 0; round < tournament_rounds(players); ++round)
      for (int player = 0; player < players; ++player) {
        const int other = opponent(players, round, player);
        if (other < 0) continue;
        REQUIRE(other < players);
        REQUIRE(other != player);
        REQUIRE(opponent(players, round, other) == player);
        ++meetings[static_cast<std::size_t>(player * players + other)];
      }
    for (int a = 0; a < players; ++a)
      for (int b = 0; b < players; ++b)
        REQUIRE(meetings[static_cast<std::size_t>(a * players + b)] == (a == b ? 0 : 1));
  }
}

TEST_CASE("the rate of a flow is what it keeps up after a burst", "[comm][probe]") {
  // 60 messages pass ten times as fast, then one comes every millisecond, seen in batches of one to four.
  for (const int batch : {1, 2, 3, 4}) {
    arrivals log;
    for (int i = 0; i < 60; ++i) log.add(5.0 + 1e-4 * i);
    for (int i = 1; i <= 40; ++i) log.add(5.006 + 1e-3 * std::ceil(static_cast<double>(i) / batch) * batch);
    CHECK(log.rate() == Approx(1000).epsilon(0.06));
    CHECK(log.rate(5.02, 5.046) == Approx(1000).epsilon(0.1));
  }
  // Who looked away finds many messages waiting: they did not come all at once.
  arrivals away;
  away.add(0);
  for (int i = 1; i <= 50; ++i) away.add(0.05 + 1e-6 * i);
  CHECK(away.rate() == Approx(1000).epsilon(0.01));
  arrivals nothing;
  CHECK(nothing.rate() == 0);
  CHECK(nothing.rate(0, 1) == 0);
  arrivals one;
  one.add(1);
  CHECK(one.rate() == 0);
  CHECK(one.rate(0, 2) == 0.5);
}

TEST_CASE("values that differ by noise become equal, others stay apart", "[comm][probe]") {
  std::vector<double> values{383, 379, 95, 386, 97, 0, 96, 381, 47.5, 345};
  std::vector<double*> places;
  for (double& value : values) places.push_back(&value);
  equalise(places, 0.05, 0.12);
  CHECK(values == std::vector<double>{383, 383, 96, 383, 96, 0, 96, 383, 47.5, 383});

  const double measure = common_measure(values, 0.025);
  for (const double value : values) CHECK(value == Approx(measure * std::round(value / measure)).epsilon(0.026));
  CHECK(measure == Approx(47.8).epsilon(0.01));
  CHECK(common_measure({7}, 0.02) == 7);
  CHECK(common_measure({2, 3}, 0.02) == Approx(1));
  CHECK(common_measure({}, 0.02) == 1);
}

/// Hosts of one rank each, and what their flows occupy: the simulated machine that a probe looks at.
struct machine {
  int hosts = 0;
  std::vector<double> capacity;
  std::vector<std::vector<std::vector<int>>> uses;  // of each ordered pair
};

/// Flows at the same time share fairly: the narrowest resource first gives all its flows the same (max-min fairness).
std::vector<double> fair_rates(const machine& m, const std::vector<std::pair<int, int>>& flows) {
  std::vector<double> left = m.capacity;
  std::vector<double> rates(flows.size(), -1);
  const auto used = [&](std::size_t f) -> const std::vector<int>& {
    return m.uses[static_cast<std::size_t>(flows[f].first)][static_cast<std::size_t>(flows[f].second)];
  };
  for (std::size_t settled = 0; settled < flows.size();) {
    double least = std::numeric_limits<double>::max();
    std::size_t narrowest = 0;
    for (std::size_t r = 0; r < left.size(); ++r) {
      double count = 0;
      for (std::size_t f = 0; f < flows.size(); ++f)
        if (rates[f] < 0 && std::find(used(f).begin(), used(f).end(), static_cast<int>(r)) != used(f).end()) ++count;
      if (count > 0 && left[r] / count < least) {
        least = left[r] / count;
        narrowest = r;
      }
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (rates[f] >= 0 || std::find(used(f).begin(), used(f).end(), static_cast<int>(narrowest)) == used(f).end())
        continue;
      rates[f] = least;
      ++settled;
      for (const int r : used(f)) left[static_cast<std::size_t>(r)] -= least;
    }
  }
  return rates;
}

machine empty_machine(int hosts) {
  machine m;
  m.hosts = hosts;
  m.uses.assign(static_cast<std::size_t>(hosts), std::vector<std::vector<int>>(static_cast<std::size_t>(hosts)));
  return m;
}
int add(machine& m, double capacity) {
  m.capacity.push_back(capacity);
  return static_cast<int>(m.capacity.size()) - 1;
}
machine star(const std::vector<double>& cards) {
  machine m = empty_machine(static_cast<int>(cards.size()));
  for (std::size_t a = 0; a < cards.size(); ++a) {
    const int out = add(m, cards[a]);
    const int in = add(m, cards[a]);
    for (std::size_t b = 0; b < cards.size(); ++b) {
      if (a == b) continue;
      m.uses[a][b].push_back(out);
      m.uses[b][a].push_back(in);
    }
  }
  return m;
}
/// Links where `rate` is more than 0, and a bus that each host sends to for the rest.
machine linked(const std::vector<std::vector<double>>& rate, double bus) {
  machine m = empty_machine(static_cast<int>(rate.size()));
  for (std::size_t a = 0; a < rate.size(); ++a) {
    const int out = add(m, bus);
    for (std::size_t b = 0; b < rate.size(); ++b)
      if (a != b) m.uses[a][b].push_back(rate[a][b] > 0 ? add(m, rate[a][b]) : out);
  }
  return m;
}

/// Returns the topology that a probe of the simulated machine concludes, if measurements are off by up to `noise`.
topology probed(const machine& m, double noise, std::mt19937& random) {
  std::uniform_real_distribution<double> slip(1 - noise, 1 + noise);
  probe_hosts hosts;
  probe_figures figures;
  figures.latency = pair_table(m.hosts);
  figures.single = pair_table(m.hosts);
  figures.in_host.resize(static_cast<std::size_t>(m.hosts));
  const auto measure = [&](probe_figures::concurrent& what) {
    std::vector<std::pair<int, int>> flows;
    for (const int peer : what.peers)
      flows.push_back(what.direction == toward::others ? std::pair{what.host, peer} : std::pair{peer, what.host});
    what.rates = fair_rates(m, flows);
    for (double& rate : what.rates) rate *= slip(random);
  };
  for (int a = 0; a < m.hosts; ++a) {
    hosts.ranks.push_back({a});
    hosts.names.push_back("h");
    hosts.of.push_back(a);
    for (int b = 0; b < m.hosts; ++b)
      if (a != b) figures.single(a, b) = fair_rates(m, {{a, b}})[0] * slip(random);
  }
  figures.together = figures.single;
  for (int a = 0; a < m.hosts; ++a)
    for (const toward direction : {toward::others, toward::host}) {
      probe_figures::concurrent fan{a, direction, {}, {}};
      for (int b = 0; b < m.hosts; ++b)
        if (a != b) fan.peers.push_back(b);
      measure(fan);
      const shared_peers found = explain_fan(figures.together, fan);
      figures.fans.push_back(fan);
      if (!found.in_doubt) continue;
      probe_figures::concurrent part{a, direction, found.peers, {}};
      measure(part);
      figures.parts.push_back(part);
    }
  return topology_of_figures(hosts, figures).make();
}

double rate_of(const topology& seen, collective kind) {
  const network net = network_of(seen);
  const packing packed = pack(net, kind);
  return static_cast<double>(packed.rate.numerator) / static_cast<double>(packed.rate.denominator) * net.unit;
}

/// The packing on the machine itself.
double exact_rate(const machine& m, collective kind) {
  network net;
  net.ranks = m.hosts;
  for (const double capacity : m.capacity) net.resources.push_back({"r", static_cast<std::int64_t>(capacity)});
  for (int a = 0; a < m.hosts; ++a) {
    net.host.push_back(a);
    for (int b = 0; b < m.hosts; ++b)
      if (a != b) net.edges.push_back({a, b, m.uses[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)], 0});
  }
  const packing packed = pack(net, kind);
  return static_cast<double>(packed.rate.numerator) / static_cast<double>(packed.rate.denominator);
}

TEST_CASE("a probe finds the rates of machines that share cards, buses and nothing", "[comm][probe]") {
  std::mt19937 random(20261121);
  const std::vector<std::vector<double>> dgx1v{{0, 100, 100, 200, 200, 0, 0, 0}, {100, 0, 200, 100, 0, 200, 0, 0},
                                               {100, 200, 0, 200, 0, 0, 100, 0}, {200, 100, 200, 0, 0, 0, 0, 100},
                                               {200, 0, 0, 0, 0, 100, 100, 200}, {0, 200, 0, 0, 100, 0, 200, 100},
                                               {0, 0, 100, 0, 100, 200, 0, 200}, {0, 0, 0, 100, 200, 100, 200, 0}};
  const std::vector<std::pair<std::string, machine>> machines{
      {"a slow card", star({400, 400, 100, 400})},
      {"equal cards", star({400, 400, 400, 400})},
      {"cards of many rates", star({1000, 400, 100, 250, 1000})},
      {"own links", linked({{0, 400, 50, 50}, {400, 0, 50, 50}, {50, 50, 0, 400}, {50, 50, 400, 0}}, 1)},
      {"links beside a bus", linked(dgx1v, 50)},
  };
  for (const auto& [name, m] : machines) {
    for (const double noise : {0.0, 0.02, 0.05}) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const topology seen = probed(m, noise, random);
        for (const collective kind : {collective::broadcast, collective::all_reduce}) {
          INFO(name << ", noise " << noise << ", collective " << static_cast<int>(kind));
          CHECK(rate_of(seen, kind) == Approx(exact_rate(m, kind)).epsilon(0.03 + 2 * noise));
        }
      }
    }
  }
}

/// The rates of a host to others, as a probe of eight hosts linked like a DGX-1V, each with a bus beside its links,
/// measured it on a busy machine: MB/s alone, and at once.
struct measured_fan {
  std::vector<double> alone;
  std::vector<double> at_once;
};
probe_figures::concurrent fan_of(const measured_fan& what, int host, pair_table& alone) {
  probe_figures::concurrent fan{host, toward::others, {}, what.at_once};
  for (int peer = 0, k = 0; k < static_cast<int>(what.alone.size()); ++peer) {
    if (peer == host) continue;
    fan.peers.push_back(peer);
    alone(host, peer) = what.alone[static_cast<std::size_t>(k++)];
  }
  return fan;
}

TEST_CASE("a disturbed measurement does not hide what a host shares", "[comm][probe]") {
  const std::vector<measured_fan> buses{
      // One of the direct links got much less than it can; or the bus more, or less.
      {{5.92, 23.91, 5.87, 5.91, 11.87, 24.08, 11.91}, {1.58, 23.68, 1.68, 1.58, 11.64, 23.16, 8.34}},
      {{5.95, 23.83, 5.96, 5.73, 11.95, 23.96, 11.92}, {2.3, 23.8, 2.3, 2.2, 11.82, 24.15, 11.81}},
      {{5.95, 23.83, 5.96, 5.73, 11.95, 23.96, 11.92}, {1.5, 21.9, 1.7, 1.6, 11.82, 20.5, 11.81}},
      // One of those that share the bus holds up the others.
      {{5.87, 23.91, 5.92, 5.86, 11.73, 23.86, 11.92}, {5.17, 24.16, 0.99, 1.37, 11.72, 23.89, 11.88}},
      {{5.82, 23.90, 5.85, 5.89, 11.95, 23.76, 11.57}, {0.59, 24.01, 5.81, 0.98, 12.12, 23.33, 13.24}},
  };
  for (const measured_fan& what : buses) {
    pair_table alone(8);
    const probe_figures::concurrent fan = fan_of(what, 5, alone);
    const shared_peers found = explain_fan(alone, fan);
    CHECK(found.peers == std::vector<int>{0, 2, 3});
    CHECK(found.capacity == Approx(5.9).epsilon(0.02));
    CHECK_FALSE(found.in_doubt);
  }
  // A card that is wider than any peer's is no disturbance.
  pair_table alone(3);
  const probe_figures::concurrent wide = fan_of({{400, 400}, {240, 240}}, 0, alone);
  CHECK(explain_fan(alone, wide).peers.size() == 2);
  CHECK(explain_fan(alone, wide).capacity == Approx(480));
}

TEST_CASE("what its explanation leaves open is measured again, and nothing else", "[comm][probe]") {
  pair_table alone(8);
  std::vector<probe_figures::concurrent> fans;
  for (int host = 0; host < 8; ++host) {
    // Seven hosts share nothing; the last was held up.
    std::vector<double> at_once{5.92, 24.05, 11.84, 23.95, 11.82, 6.01, 11.95};
    if (host == 7) {
      for (double& rate : at_once) rate *= 0.8;
    }
    fans.push_back(fan_of({{5.9, 24, 11.9, 23.9, 11.8, 5.9, 11.9}, at_once}, host, alone));
  }
  const usual_fans usual(alone, fans);
  for (int host = 0; host < 8; ++host) {
    CAPTURE(host);
    CHECK((unexplained(alone, usual, fans[static_cast<std::size_t>(host)]) > tolerated_misfit) == (host == 7));
  }
  // More than a way can carry: a burst was not over, and hides what is shared.
  const probe_figures::concurrent early =
      fan_of({{5.9, 24, 11.9, 23.9, 11.8, 5.9, 11.9}, {9.1, 38.6, 11.8, 24.1, 17.3, 8.8, 12}}, 2, alone);
  CHECK(explain_fan(alone, early).peers.empty());
  CHECK(unexplained(alone, usual_fans(alone, {early}), early) > tolerated_misfit);
  // The usual noise of a bus, and a link that lost a third beside it.
  for (const double other : {23.8, 15.1}) {
    const probe_figures::concurrent fan = fan_of({{5.95, 23.83, 5.96, 5.73, 11.95, 23.96, 11.92},  //
                                                  {1.59, other, 1.87, 1.67, 11.82, 24.15, 11.81}},
                                                 5, alone);
    CHECK((unexplained(alone, usual_fans(alone, {fan}), fan) > tolerated_misfit) == (other < 20));
  }
}

TEST_CASE("several ranks of a host share its card", "[comm][probe]") {
  probe_hosts hosts{{{0, 1}, {2, 3}}, {"a", "b"}, {0, 0, 1, 1}};
  probe_figures figures;
  figures.latency = pair_table(4);
  figures.single = pair_table(2);
  figures.together = pair_table(2);
  figures.in_host = {{1000, 1000, 1000, 1600}, {1000, 1000, 1000, 1600}};
  for (const auto& [a, b] : {std::pair{0, 1}, std::pair{1, 0}}) figures.single(a, b) = figures.together(a, b) = 10;
  // Either direction carries 10, whichever ranks use it.
  CHECK(rate_of(topology_of_figures(hosts, figures).make(), collective::all_reduce) == Approx(10).epsilon(0.03));
  // With a card for each rank, twice that.
  for (const auto& [a, b] : {std::pair{0, 1}, std::pair{1, 0}}) figures.together(a, b) = 20;
  CHECK(rate_of(topology_of_figures(hosts, figures).make(), collective::all_reduce) == Approx(20).epsilon(0.03));
}

}  // namespace
