// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// A picture of the machine that ranks run on: probed, declared in a file, or both.
///
/// Data moves along directed links; a full-duplex cable is two of them, and several between one pair are several
/// channels. Switches forward and hold no data. A limit that several links share (a network card of a host, a bus, the
/// inside of a switch) is a resource that names them.
struct topology {
  struct vertex {
    std::string name;
    bool is_switch = false;
    int host = -1;  ///< ranks with equal numbers share memory; -1: shared with no rank

    friend bool operator==(const vertex&, const vertex&) = default;
  };

  struct link {
    int from = 0;
    int to = 0;
    double bandwidth = 0;  ///< in `unit`s, > 0
    double latency = 0;    ///< seconds

    friend bool operator==(const link&, const link&) = default;
  };

  struct resource {
    std::string name;
    double bandwidth = 0;    ///< of all its links together, in `unit`s, > 0
    std::vector<int> links;  ///< indices, ascending, each once

    friend bool operator==(const resource&, const resource&) = default;
  };

  double unit = 1e9;      ///< bytes per second of bandwidth 1
  std::string unit_name;  ///< the name of bandwidth 1, for people
  std::vector<vertex> vertices;
  std::vector<link> links;
  std::vector<resource> resources;

  friend bool operator==(const topology&, const topology&) = default;
};

/// The vertex of each rank: those that are no switches, in their order.
[[nodiscard]] inline std::vector<int> rank_vertices(const topology& machine) {
  std::vector<int> vertices;
  for (std::size_t v = 0; v < machine.vertices.size(); ++v)
    if (!machine.vertices[v].is_switch) vertices.push_back(static_cast<int>(v));
  return vertices;
}

/// Throws `std::invalid_argument` with the mistake of a topology that a program has put together. Files are checked
/// while they are read, with the line (topology/json.hpp).
inline void require_consistent(const topology& machine) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("topology: " + what); };
  const auto is_vertex = [&](int v) { return v >= 0 && v < static_cast<int>(machine.vertices.size()); };
  if (!(machine.unit > 0)) refuse("the unit is " + std::to_string(machine.unit) + " bytes/s, expected more than 0");
  for (std::size_t l = 0; l < machine.links.size(); ++l) {
    const topology::link& link = machine.links[l];
    const std::string name =
        "link " + std::to_string(l) + " from " + std::to_string(link.from) + " to " + std::to_string(link.to);
    if (!is_vertex(link.from) || !is_vertex(link.to) || link.from == link.to)
      refuse(name + ": expected two of the vertices 0 to " + std::to_string(machine.vertices.size()) + " - 1");
    if (!(link.bandwidth > 0)) refuse(name + " has bandwidth " + std::to_string(link.bandwidth) + ", expected > 0");
    if (!(link.latency >= 0)) refuse(name + " has latency " + std::to_string(link.latency) + " s, expected >= 0");
  }
  for (const topology::resource& shared : machine.resources) {
    if (!(shared.bandwidth > 0))
      refuse("resource " + shared.name + " has bandwidth " + std::to_string(shared.bandwidth) + ", expected > 0");
    int last = -1;
    for (const int l : shared.links) {
      if (l <= last || l >= static_cast<int>(machine.links.size()))
        refuse("resource " + shared.name + " names link " + std::to_string(l) + " after " + std::to_string(last) +
               ": expected ascending indices below " + std::to_string(machine.links.size()));
      last = l;
    }
  }
}

/// A topology of ranks and switches from a matrix of bandwidths: `adjacency[u][v]` from u to v, 0 where there is no
/// link. Vertices are named by their numbers.
[[nodiscard]] inline topology from_adjacency(const std::vector<std::vector<double>>& adjacency,
                                             const std::vector<bool>& is_switch = {}) {
  topology machine;
  for (std::size_t u = 0; u < adjacency.size(); ++u)
    machine.vertices.push_back({std::to_string(u), u < is_switch.size() && is_switch[u], -1});
  for (std::size_t u = 0; u < adjacency.size(); ++u)
    for (std::size_t v = 0; v < adjacency[u].size(); ++v)
      if (adjacency[u][v] > 0) machine.links.push_back({static_cast<int>(u), static_cast<int>(v), adjacency[u][v], 0});
  require_consistent(machine);
  return machine;
}

/// The links into, out of, or at a vertex.
enum class side { in, out, both };

/// The links at each vertex, by number. Made once for a topology with many resources, which would otherwise all read
/// all of its links: 1,024 ranks have a million.
class links_by_vertex {
 public:
  explicit links_by_vertex(const topology& machine) : out_(machine.vertices.size()), in_(machine.vertices.size()) {
    for (std::size_t l = 0; l < machine.links.size(); ++l) {
      out_.at(static_cast<std::size_t>(machine.links[l].from)).push_back(static_cast<int>(l));
      in_.at(static_cast<std::size_t>(machine.links[l].to)).push_back(static_cast<int>(l));
    }
  }

  [[nodiscard]] const std::vector<int>& out_of(int vertex) const { return out_.at(static_cast<std::size_t>(vertex)); }
  [[nodiscard]] const std::vector<int>& into(int vertex) const { return in_.at(static_cast<std::size_t>(vertex)); }

 private:
  std::vector<std::vector<int>> out_;
  std::vector<std::vector<int>> in_;
};

/// Adds a resource shared by all links at the given vertices: a card that sends for all ranks of a host is
/// `share(machine, "card out", 10, {0, 1, 2, 3}, side::out)`. Links between the vertices themselves stay out of
/// it unless `inner`. `links` are those of `machine`.
inline void share(topology& machine, std::string name, double bandwidth, const std::vector<int>& vertices, side way,
                  bool inner, const links_by_vertex& links) {
  std::vector<bool> chosen(machine.vertices.size(), false);
  for (const int v : vertices) chosen.at(static_cast<std::size_t>(v)) = true;
  const auto is_inner = [&](int l) {
    const topology::link& one = machine.links[static_cast<std::size_t>(l)];
    return chosen[static_cast<std::size_t>(one.from)] && chosen[static_cast<std::size_t>(one.to)];
  };
  topology::resource shared{std::move(name), bandwidth, {}};
  const auto add = [&](const std::vector<int>& some) {
    for (const int l : some)
      if (inner || vertices.size() <= 1 || !is_inner(l)) shared.links.push_back(l);
  };
  for (const int v : vertices) {
    if (way != side::in) add(links.out_of(v));
    if (way != side::out) add(links.into(v));
  }
  std::sort(shared.links.begin(), shared.links.end());
  shared.links.erase(std::unique(shared.links.begin(), shared.links.end()), shared.links.end());
  machine.resources.push_back(std::move(shared));
}
inline void share(topology& machine, std::string name, double bandwidth, const std::vector<int>& vertices, side way,
                  bool inner = false) {
  share(machine, std::move(name), bandwidth, vertices, way, inner, links_by_vertex(machine));
}

}  // namespace espalier::comm
