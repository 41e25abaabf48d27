// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1
#include <espalier/comm/topology/topology.hpp>

#include <espalier/comm/packing/pack.hpp>
#include <espalier/comm/topology/json.hpp>
#include <espalier/comm/topology/merge.hpp>
#include <espalier/comm/topology/paths.hpp>
#include <espalier/comm/topology/svg.hpp>
#include <espalier/comm/topology/table.hpp>

#include "comm_topology_data.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using espalier::comm::collective;
using espalier::comm::fraction;
using espalier::comm::network;
using espalier::comm::network_of;
using espalier::comm::pack;
using espalier::comm::parse_topology;
using espalier::comm::side;
using espalier::comm::topology;
using espalier::comm::topology_error;

/// The error of a text, or what is wrong about it.
std::string error_of(const std::string& text) {
  try {
    (void)parse_topology(text, "t.json");
  } catch (const topology_error& error) { return error.what(); }
  return "no error";
}

}  // namespace

TEST_CASE("a topology is dumped and loaded without a difference") {
  for (const auto& known : topology_data::all()) {
    INFO(known.name);
    CHECK(parse_topology(dump(known.machine)) == known.machine);
  }
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    topology machine = topology_data::random_topology(random, {5, false, true, true});
    machine.unit = std::ldexp(1.0 + i / 3.0, i);
    machine.unit_name = "a \"name\"\n\twith everything \\ é";
    machine.vertices[1].name = "";
    machine.vertices[2].host = i;
    for (auto& link : machine.links) {
      link.bandwidth /= 3;
      link.latency = std::ldexp(1.0 / 7, -i);
    }
    CHECK(parse_topology(dump(machine)) == machine);
  }
}

TEST_CASE("a topology of 256 ranks is read in one pass") {
  // 65,536 numbers on as many lines: counting lines at each of them took 14 s, a pass takes 0.01 s (0.2 s
  // instrumented).
  constexpr int ranks = 256;
  std::string text = "{\"adjacency\": [";
  for (int from = 0; from < ranks; ++from) {
    text += from == 0 ? "[" : ",[";
    for (int to = 0; to < ranks; ++to) text += (to == 0 ? "\n" : ",\n") + std::string(from == to ? "0" : "1");
    text += "]";
  }
  text += "],\n\"resources\": [";
  for (int r = 0; r < ranks; ++r)
    text += (r == 0 ? "" : ",") + std::string("{\"bandwidth\": 5, \"links\": [[") + std::to_string(r) + ", " +
            std::to_string((r + 1) % ranks) + "]]}";
  text += "]}";
  const auto start = std::chrono::steady_clock::now();
  const topology machine = parse_topology(text);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(4));
  CHECK(machine.links.size() == ranks * (ranks - 1));
  REQUIRE(machine.resources.size() == ranks);
  // Links are numbered row by row, and no rank has one to itself: rank 2's to rank 3 is its third.
  CHECK(machine.resources[2].links == std::vector<int>{2 * (ranks - 1) + 2});
  CHECK(machine.resources[ranks - 1].links == std::vector<int>{(ranks - 1) * (ranks - 1)});
  // An error still names its line: 256 lines a row, and the brackets share them.
  CHECK(error_of(text + "x").find("line 65538, column") != std::string::npos);
}

TEST_CASE("the adjacency form says what a topology has") {
  const topology machine = parse_topology(R"({
    "source": "other keys are ignored, whatever they hold: [1, {\"a\": null}]", "x": [1, {"a": [true, null]}],
    "unit": "1 cable", "bytes_per_second": 2.5e9, "latency": 1e-6,
    "adjacency": [[0, 2.5, 1], [2.5, 0, 1], [1, 1, 0]],
    "compute_nodes": [0, 1], "names": ["a", "b", "s"], "hosts": [0, 0, -1],
    "resources": [{"name": "card", "bandwidth": 1.5, "vertices": [0, 1], "direction": "out"},
                  {"name": "pair", "capacity": 2, "links": [[0, 1], [1, 0]]},
                  {"name": "one", "bandwidth": 3, "links": [0]}]
  })");
  CHECK(machine.unit == 2.5e9);
  CHECK(machine.unit_name == "1 cable");
  REQUIRE(machine.vertices.size() == 3);
  CHECK(machine.vertices[2] == topology::vertex{"s", true, -1});
  CHECK(machine.vertices[1] == topology::vertex{"b", false, 0});
  REQUIRE(machine.links.size() == 6);
  CHECK(machine.links[0] == topology::link{0, 1, 2.5, 1e-6});
  REQUIRE(machine.resources.size() == 3);
  CHECK(machine.resources[0].links == std::vector<int>{1, 3});  // to the switch, not between the two
  CHECK(machine.resources[1].links == std::vector<int>{0, 2});
  CHECK(machine.resources[2].links == std::vector<int>{0});
}

TEST_CASE("a damaged topology file is refused with its line, or is a machine with finite numbers") {
  std::mt19937 random(20291879);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::vector<std::string> values{
      "0",     "-1",   "1e300", "1e-300",    "1.7e308", "1e400", "1e30",
      "1e-30", "null", "\"\"",  "[]",        "{}",      "true",  "99999999999999999999",
      "0.5",   "1e15", "1e-9",  "2147483648"};
  const std::string signs = "0123456789,[]{}\":-.eE \n";
  // Half of the damage is to numbers, which is where a file stays one.
  const auto damaged = [&](std::string text) {
    const std::size_t at = below(text.size());
    const auto digit = text.find_first_of("0123456789", at);
    const auto end = digit == std::string::npos ? digit : text.find_first_not_of("0123456789.eE+-", digit);
    switch (below(6)) {
      case 0: return text.erase(at, 1 + below(5));
      case 1: return text.insert(at, 1, signs[below(signs.size())]);
      case 2: return text.erase(at);
      default:
        if (digit == std::string::npos) return text;
        return text.replace(digit, end == std::string::npos ? end : end - digit, values[below(values.size())]);
    }
  };
  const std::string with_all =
      "{\"bytes_per_second\": 1e9, \"unit\": \"GB/s\",\n \"adjacency\": [[0, 2, 0], [1, 0, 3.5], [0, 1, 0]],\n"
      " \"hosts\": [0, 0, -1], \"names\": [\"a\", \"b\", \"c\"],\n \"latency\": [[0, 1e-6, 0], [1e-5, 0, 0], [0, 0, "
      "0]],\n \"resources\": [{\"name\": \"card\", \"bandwidth\": 2, \"vertices\": [0, 1], \"direction\": \"out\"}]}";
  const auto is_finite = [](const std::string& text) {
    return text.find("inf") == std::string::npos && text.find("nan") == std::string::npos;
  };
  int refused = 0;
  int taken = 0;
  for (int n = 0; n < 3000; ++n) {
    const auto& files = topology_data::all();
    std::string text = damaged(n % 3 == 0 ? with_all : files[below(files.size())].text);
    if (n % 4 == 0) text = damaged(text + "\n");
    topology machine;
    try {
      machine = parse_topology(text, "t.json");
    } catch (const std::exception& error) {
      ++refused;
      INFO(text << "\n" << error.what());
      REQUIRE_THAT(error.what(), Catch::StartsWith("t.json, line "));
      continue;
    }
    ++taken;
    INFO(text);
    std::string told = describe(machine);
    for (const topology::vertex& v : machine.vertices) {  // names may say anything
      if (!is_finite(v.name)) told.clear();
    }
    REQUIRE(is_finite(told));
    if (machine.vertices.size() > 8) continue;
    const network net = network_of(machine);
    REQUIRE((net.unit > 0 && std::isfinite(net.unit)));
    double slowest = 1e300;
    for (const network::resource& r : net.resources) {
      REQUIRE((r.capacity >= 1 && r.capacity <= 1'000'000'000));
      slowest = std::min(slowest, static_cast<double>(r.capacity) * net.unit);
    }
    double latency = 0;
    for (const network::edge& e : net.edges) latency += e.latency;
    REQUIRE(std::isfinite(latency));
    // A time is made of this: a terabyte over the slowest way.
    REQUIRE((net.resources.empty() || std::isfinite(1e12 / slowest)));
  }
  CHECK(refused > 500);
  CHECK(taken > 500);
}

TEST_CASE("a malformed topology is refused with line, column and what was expected") {
  CHECK(error_of("") == "t.json, line 1, column 1: found the end of the text, expected an object, '{'");
  CHECK(error_of("{\"adjacency\": [[0, 1],\n  [x, 0]]}") ==
        "t.json, line 2, column 4: found 'x', expected a bandwidth, 0 or more");
  CHECK(error_of("{\"adjacency\": [[0, 1],\n [1, 0, 2]]}") ==
        "t.json, line 2, column 2: found row 1 with 3 numbers, expected 2, as there are rows");
  CHECK(error_of("{\"adjacency\": [[0, 1]\n [1, 0]]}") == "t.json, line 2, column 2: found '[', expected ',' or ']'");
  CHECK(error_of("{\n\"adjacency\": [[0, -1], [1, 0]]}") ==
        "t.json, line 2, column 19: found -1, expected a bandwidth, 0 or more");
  CHECK_THAT(error_of("{\"adjacency\": [[1, 1], [1, 0]]}"), Catch::Contains("needs no link to itself"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, 1], [1, 0]], \n\n\"compute_nodes\": [0, 2]}"),
             Catch::Contains("line 3, column 22: found vertex 2, expected one of 0 to 1"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, 1], [1, 0]], \"compute_nodes\": [0, 0]}"), Catch::Contains("0 twice"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, 1], [1, 0]], \"compute_nodes\": [0.5]}"),
             Catch::Contains("found 0.5, expected the number of a vertex"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, 1], [1, 0]]\n} x"),
             Catch::Contains("line 2, column 3: found 'x', expected nothing"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, 1], [1, 0]], \"adjacency\": [[0]]}"),
             Catch::Contains("a second \"adjacency\""));
  CHECK_THAT(error_of("{}"), Catch::Contains("expected \"adjacency\", or \"vertices\""));
  CHECK_THAT(error_of("{\"adjacency\": []}"), Catch::Contains("at least one vertex that is a rank"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, 1e999], [1, 0]]}"), Catch::Contains("beyond the range"));
  CHECK_THAT(error_of("{\"adjacency\": [[0, nan], [1, 0]]}"), Catch::Contains("found 'nan'"));
  CHECK_THAT(error_of("{\"a\": \"x\ny\"}"), Catch::Contains("end of the string"));
  CHECK_THAT(error_of("{\"a\": \"\\u12g4\"}"), Catch::Contains("four hexadecimal digits"));
  CHECK_THAT(error_of(std::string(5000, '[')), Catch::Contains("expected an object"));
  CHECK_THAT(error_of("{\"a\": " + std::string(5000, '[')), Catch::Contains("less nesting"));
  const std::string two = "{\"vertices\": [{}, {\"kind\": \"switch\"}], ";
  CHECK_THAT(error_of(two + "\"links\": [{\"from\": 0, \"to\": 2, \"bandwidth\": 1}]}"),
             Catch::Contains("found vertex 2"));
  CHECK_THAT(error_of(two + "\"links\": [{\"from\": 0, \"bandwidth\": 1}]}"), Catch::Contains("without to"));
  CHECK_THAT(error_of(two + "\"links\": [{\"from\": 0, \"to\": 1, \"bandwith\": 1}]}"),
             Catch::Contains("the key \"bandwith\""));
  CHECK_THAT(error_of(two + "\"resources\": [{\"name\": \"a\", \"bandwidth\": 1}]}"), Catch::Contains("nothing uses"));
  CHECK_THAT(error_of("{\"vertices\": [{\"kind\": \"router\"}]}"), Catch::Contains("\"rank\" or \"switch\""));
  CHECK_THROWS_WITH(espalier::comm::load_topology("/no/such/file.json"), Catch::Contains("/no/such/file.json"));

  // Cut anywhere, or with any byte replaced, a text is refused or read; it never ends the program.
  const std::string text = topology_data::all().front().text;
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    (void)error_of(text.substr(0, cut));
    for (const char c : {'[', '}', '"', '-', '9', '\\'}) {
      std::string changed = text;
      changed[cut] = c;
      (void)error_of(changed);
    }
  }
}

TEST_CASE("ranks reach each other through switches, over every path that could help") {
  SECTION("a star: one edge a pair, which occupies a port at each end") {
    const network net = network_of(topology_data::named("switch_hetero_nics_4_4_1_4"));
    CHECK(net.ranks == 4);
    CHECK(net.edges.size() == 12);
    CHECK(net.resources.size() == 8);
    for (const auto& edge : net.edges) CHECK(edge.resources.size() == 2);
  }
  SECTION("two spines are two paths") {
    // ranks 0 and 1 at leaves 2 and 3, spines 4 and 5
    topology machine;
    for (int v = 0; v < 6; ++v) machine.vertices.push_back({std::to_string(v), v >= 2, -1});
    const auto connect = [&](int u, int v, double bandwidth) {
      machine.links.push_back({u, v, bandwidth, 1e-6});
      machine.links.push_back({v, u, bandwidth, 1e-6});
    };
    connect(0, 2, 3);
    connect(1, 3, 3);
    for (const int spine : {4, 5}) {
      connect(2, spine, 1);
      connect(3, spine, 1);
    }
    const network net = network_of(machine);
    CHECK(net.edges.size() == 4);
    CHECK(net.edges[0].latency == Approx(4e-6));
    const auto trees = pack(net, collective::broadcast, 0);
    CHECK(trees.rate == fraction{2, 1});
    CHECK(check(trees, net));
  }
  SECTION("ranks don't forward for others on a path") {
    const network net = network_of(topology_data::named("line5"));
    CHECK(net.edges.size() == 8);
  }
  SECTION("decimals become whole capacities, and rates keep their unit") {
    topology machine = espalier::comm::from_adjacency({{0, 2.5}, {2.5, 0}});
    const network net = network_of(machine);
    CHECK(net.resources[0].capacity == 25);
    CHECK(net.unit == Approx(machine.unit / 10));
    machine.links[0].bandwidth = machine.links[1].bandwidth = 3.2e11;
    const network wide = network_of(machine);
    CHECK(static_cast<double>(wide.resources[0].capacity) * wide.unit == Approx(3.2e11 * machine.unit));
  }
  SECTION("a card that ranks share") {
    topology machine = espalier::comm::from_adjacency({{0, 9, 4, 4}, {9, 0, 4, 4}, {4, 4, 0, 9}, {4, 4, 9, 0}});
    CHECK(pack(network_of(machine), collective::broadcast, 0).rate == fraction{16, 1});
    share(machine, "card of 0 and 1", 5, {0, 1}, side::out);
    const network net = network_of(machine);
    const auto trees = pack(net, collective::broadcast, 0);
    CHECK(trees.rate == fraction{5, 1});
    CHECK(check(trees, net));
  }
}

TEST_CASE("a declared topology overrides a probed one") {
  topology probed = espalier::comm::from_adjacency({{0, 10, 3}, {10, 0, 3}, {3, 3, 0}});
  probed.links[1].latency = 5e-6;
  topology declared;
  declared.unit = probed.unit / 2;
  declared.vertices = {{"2", false, 7}, {"0", false, -1}, {"switch", true, -1}};
  declared.links = {{1, 0, 8, 0}, {0, 2, 6, 1e-6}};
  declared.resources = {{"card", 4, {0, 1}}};
  const topology merged = merge(probed, declared);
  CHECK(merged.unit == probed.unit);
  REQUIRE(merged.vertices.size() == 4);
  CHECK(merged.vertices[2].host == 7);
  CHECK(merged.vertices[3].is_switch);
  REQUIRE(merged.links.size() == 7);
  CHECK(merged.links[1] == topology::link{0, 2, 4, 5e-6});  // in the probed unit, with the probed latency
  CHECK(merged.links[6] == topology::link{2, 3, 3, 1e-6});
  REQUIRE(merged.resources.size() == 1);
  CHECK(merged.resources[0] == topology::resource{"card", 2, {1, 6}});
  // Again: nothing is added twice.
  CHECK(merge(merged, declared) == merged);

  topology wrong = declared;
  wrong.vertices[0].is_switch = true;
  CHECK_THROWS_WITH(merge(probed, wrong), Catch::Contains("2 is a rank in one and a switch in the other"));
  wrong = declared;
  wrong.vertices[1].name = "2";
  CHECK_THROWS_WITH(merge(probed, wrong), Catch::Contains("two declared vertices are called 2"));
}

TEST_CASE("a table and a picture show every vertex and link") {
  topology machine = parse_topology(R"({"adjacency": [[0, 2, 5], [2, 0, 5], [5, 5, 0]], "compute_nodes": [0, 1],
                                        "names": ["first", "<b>", "s"]})");
  share(machine, "card", 5, {0, 1}, side::out);
  CHECK(describe(machine) ==
        "2 ranks, 1 switch, 6 links; bandwidth 1 is 1e+09 bytes/s\n"
        "            first  <b>  s\n"
        "first           x    2  5\n"
        "<b>             2    x  5\n"
        "s (switch)      5    5  x\n"
        "card: 5, shared by 2 links\n");
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  };
  const std::string plain = svg(machine);
  CHECK(count(plain, "<circle") == 2);
  CHECK(count(plain, "<line") == 3);
  CHECK(count(plain, "&lt;b&gt;") == 1);
  CHECK(count(plain, "<b>") == 0);
  const network net = network_of(machine);
  const auto trees = pack(net, collective::broadcast, 0);
  const std::string with_trees = svg(machine, net, trees);
  const int panels = 1 + static_cast<int>(trees.trees.size());
  CHECK(count(with_trees, "<g ") == panels);
  CHECK(count(with_trees, "</g>") == panels);
  CHECK(count(with_trees, "<polygon") == static_cast<int>(trees.trees.size()));  // one arrow to the other rank
  CHECK(count(with_trees, "of " + std::to_string(trees.trees.size()) + ": rate") == panels - 1);
}
