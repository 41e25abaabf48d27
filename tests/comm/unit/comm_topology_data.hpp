// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The topologies of tests/data/topologies with the exact optimal rates that stand in their files, and random ones.

#include <espalier/comm/network.hpp>
#include <espalier/comm/topology/json.hpp>
#include <espalier/comm/topology/topology.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

template <> struct Catch::StringMaker<espalier::comm::fraction> {
  static std::string convert(const espalier::comm::fraction& value) { return to_string(value); }
};

namespace topology_data {

using espalier::comm::fraction;
using espalier::comm::topology;

struct known_topology {
  std::string name;
  std::string text;
  topology machine;
  std::vector<fraction> broadcast;  ///< of each root
  std::vector<fraction> reduce;
  fraction all_gather;
  fraction reduce_scatter;
  fraction all_reduce;
};

/// "24/7" or "3".
inline fraction to_fraction(const std::string& text) {
  const auto slash = text.find('/');
  return {std::stoll(text), slash == std::string::npos ? 1 : std::stoll(text.substr(slash + 1))};
}

inline std::filesystem::path folder() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "topologies";
}

inline known_topology read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  known_topology known;
  known.name = path.stem().string();
  known.text = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  known.machine = espalier::comm::parse_topology(known.text, path.filename().string());
  const auto error = [](const auto&, const std::string& found, const std::string& expected) {
    return std::runtime_error("found " + found + ", expected " + expected);
  };
  espalier::detail::json_reader json(known.text, error);
  json.object([&](const std::string& key) {
    if (key != "optimum") return json.skip_value();
    json.object([&](const std::string& what) {
      const auto list = [&](std::vector<fraction>& values) {
        json.array([&](std::size_t) { values.push_back({json.whole_number(), 1}); });
      };
      if (what == "broadcast") list(known.broadcast);
      if (what == "reduce") list(known.reduce);
      if (what == "all_gather") known.all_gather = to_fraction(json.string());
      if (what == "reduce_scatter") known.reduce_scatter = to_fraction(json.string());
      if (what == "all_reduce") known.all_reduce = to_fraction(json.string());
    });
  });
  return known;
}

/// All of them, by name.
inline const std::vector<known_topology>& all() {
  static const std::vector<known_topology> known = [] {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<known_topology> list;
    for (const auto& path : paths) list.push_back(read(path));
    return list;
  }();
  return known;
}

inline const topology& named(const std::string& name) {
  for (const auto& known : all())
    if (known.name == name) return known.machine;
  throw std::runtime_error("there is no topology " + name);
}

/// The properties of a random topology.
struct traits {
  int ranks = 6;
  bool duplex = true;     ///< every link in both directions, with the same bandwidth
  bool switches = false;  ///< some links end at switches
  bool shared = false;    ///< some ranks share a card each way
};

inline topology random_topology(std::mt19937& random, const traits& wanted) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  topology machine;
  const int switches = wanted.switches ? 1 + below(3) : 0;
  const int vertices = wanted.ranks + switches;
  for (int v = 0; v < vertices; ++v) machine.vertices.push_back({std::to_string(v), v >= wanted.ranks, -1});
  const int variety = 1 + below(12);
  const auto connect = [&](int u, int v) {
    const double there = 1 + below(variety);
    machine.links.push_back({u, v, there, 0});
    machine.links.push_back({v, u, wanted.duplex ? there : 1.0 + below(variety), 0});
  };
  for (int v = 1; v < vertices; ++v) connect(v, below(v));  // connected
  for (int extra = below(2 * vertices); extra > 0; --extra) {
    const int u = below(vertices);
    const int v = below(vertices);
    const bool known = std::any_of(machine.links.begin(), machine.links.end(),
                                   [&](const auto& link) { return link.from == u && link.to == v; });
    if (u != v && !known) connect(u, v);
  }
  if (wanted.shared) {
    const int half = wanted.ranks / 2;
    std::vector<int> members;
    for (int r = 0; r < half; ++r) members.push_back(r);
    const double card = 1 + below(2 * variety);
    espalier::comm::share(machine, "card out", card, members, espalier::comm::side::out);
    espalier::comm::share(machine, "card in", card, members, espalier::comm::side::in);
  }
  return machine;
}

}  // namespace topology_data
