// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/topology/topology.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// Returns a probed topology with the declarations of a file or program applied. Vertices are matched by name; those
/// only declared are added (a switch that a probe cannot see). A declared link replaces the probed one between the same
/// vertices (the k-th declared the k-th probed, where there are several), a declared resource the probed one of the
/// same name; others are added. The probed unit stays.
///
/// Errors: `std::invalid_argument` if a name stands for two vertices, or for a rank here and a switch there.
[[nodiscard]] inline topology merge(topology probed, const topology& declared) {
  require_consistent(probed);
  require_consistent(declared);
  const double scale = declared.unit / probed.unit;
  std::map<std::string, int> by_name;
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("merging topologies: " + what); };
  for (std::size_t v = 0; v < probed.vertices.size(); ++v)
    if (!by_name.emplace(probed.vertices[v].name, static_cast<int>(v)).second)
      refuse("two probed vertices are called " + probed.vertices[v].name);

  std::vector<int> place;  // of each declared vertex
  for (const auto& vertex : declared.vertices) {
    const auto [at, is_new] = by_name.emplace(vertex.name, static_cast<int>(probed.vertices.size()));
    if (is_new) {
      probed.vertices.push_back(vertex);
    } else {
      auto& known = probed.vertices[static_cast<std::size_t>(at->second)];
      if (known.is_switch != vertex.is_switch)
        refuse(vertex.name + " is a " + (known.is_switch ? "switch" : "rank") + " in one and a " +
               (vertex.is_switch ? "switch" : "rank") + " in the other");
      if (vertex.host >= 0) known.host = vertex.host;
    }
    if (std::find(place.begin(), place.end(), at->second) != place.end())
      refuse("two declared vertices are called " + vertex.name);
    place.push_back(at->second);
  }

  std::map<std::pair<int, int>, std::vector<int>> channels;
  for (std::size_t l = 0; l < probed.links.size(); ++l)
    channels[{probed.links[l].from, probed.links[l].to}].push_back(static_cast<int>(l));
  std::map<std::pair<int, int>, std::size_t> used;
  std::vector<int> link_place;
  for (const auto& link : declared.links) {
    const topology::link moved{place[static_cast<std::size_t>(link.from)], place[static_cast<std::size_t>(link.to)],
                               link.bandwidth * scale, link.latency};
    const std::pair ends{moved.from, moved.to};
    auto& same = channels[ends];
    const std::size_t k = used[ends]++;
    if (k == same.size()) {
      same.push_back(static_cast<int>(probed.links.size()));
      probed.links.push_back(moved);
    } else {
      auto& known = probed.links[static_cast<std::size_t>(same[k])];
      // A declared link without latency says nothing about it.
      const double latency = moved.latency > 0 ? moved.latency : known.latency;
      known = moved;
      known.latency = latency;
    }
    link_place.push_back(same[k]);
  }

  for (const auto& shared : declared.resources) {
    topology::resource moved{shared.name, shared.bandwidth * scale, {}};
    for (const int l : shared.links) moved.links.push_back(link_place[static_cast<std::size_t>(l)]);
    std::sort(moved.links.begin(), moved.links.end());
    const auto known = std::find_if(probed.resources.begin(), probed.resources.end(),
                                    [&](const auto& other) { return other.name == shared.name; });
    if (known == probed.resources.end() || shared.name.empty()) {
      probed.resources.push_back(std::move(moved));
    } else {
      *known = std::move(moved);
    }
  }
  return probed;
}

}  // namespace espalier::comm
