// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/collective.hpp>
#include <espalier/comm/packing/fraction.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::comm {

/// The resources that the collectives of one group may use: ranks, and the transfers between them.
///
/// A transfer from one rank to another occupies every resource on its way: the link, a network card that all ranks of a
/// host share, an uplink of a switch (Blink's links, generalised: reference/blink.md, 1.9). Two transfers that share no
/// resource don't slow each other down. Switches are not ranks: they appear only as resources.
struct network {
  /// Something with a rate that transfers share.
  struct resource {
    std::string name;
    std::int64_t capacity = 0;  ///< in `unit` bytes per second, > 0
  };

  /// A directed transfer between two ranks. Several between the same pair are several channels.
  struct edge {
    int from = 0;
    int to = 0;
    std::vector<int> resources;  ///< indices, each at most once, ascending
    double latency = 0.0;        ///< seconds until the first byte arrives
  };

  int ranks = 0;
  double unit = 1.0;  ///< bytes per second of capacity 1
  std::vector<resource> resources;
  std::vector<edge> edges;
  std::vector<int> host;  ///< of each rank; ranks of a host share memory
};

/// A spanning tree over the ranks of a network, with the share of the data it carries.
///
/// `down[r]` is the edge by which rank r receives from its parent, `up[r]` the one by which it sends to its parent; -1
/// at the root, and in the half that the collective does not use (broadcast and all-gather use `down`, reduce and
/// reduce-scatter `up`, all-reduce both; there a rank's two parents may differ).
struct tree {
  int root = 0;
  std::vector<int> down;
  std::vector<int> up;
  fraction weight;  ///< rate of this tree in the network's unit
};

using espalier::collective;

/// Whether trees are packed for it: for all calls but those in which a block is meant for one rank alone, or comes from
/// one. The data of these moves along routes.
[[nodiscard]] constexpr bool has_trees(collective kind) {
  const collective_facts& facts = facts_of(kind);
  const bool has_blocks = facts.before == array_share::block || facts.after == array_share::block;
  const bool has_root = facts.before == array_share::whole_at_root || facts.after == array_share::whole_at_root;
  return facts.before != array_share::none && facts.before != array_share::cells && !(has_blocks && has_root);
}

/// Trees that together keep within every resource's capacity.
///
/// `rate` is what the collective reaches for large data: size / rate / unit seconds. The size is that of the whole
/// array: what the root sends (broadcast), what every rank holds before (all-reduce, reduce, reduce-scatter) or after
/// (all-gather).
///
/// @post sum of weights = rate (all-gather and reduce-scatter: for each root, rate / ranks)
/// @post for each resource: sum over trees of weight x (edges of the tree that use it) <= capacity
struct packing {
  collective kind = collective::broadcast;
  int root = 0;  ///< of broadcast and reduce
  std::vector<tree> trees;
  fraction rate;
  fraction bound;  ///< no packing of this network is faster; equal to `rate` where the packing is optimal
  /// Why no packing is faster (linear programming duality): a price of each resource. If the cheapest tree (all-reduce:
  /// both directions together) costs z, and all capacities together cost C, no rate exceeds C / z; for all-gather and
  /// reduce-scatter C * ranks / (sum of z over the roots). `check` in comm/packing/check.hpp recomputes all of it.
  /// Prices of a minimum cut are 1 on the cut.
  std::vector<std::int64_t> prices;
};

/// The part of a network that a group of its ranks can use by itself, in the group's order. Data does not pass through
/// ranks outside.
/// @pre members are different ranks of the network
[[nodiscard]] inline network restricted(const network& whole, const std::vector<int>& members) {
  network part;
  part.ranks = static_cast<int>(members.size());
  part.unit = whole.unit;
  part.resources = whole.resources;
  std::vector<int> number(static_cast<std::size_t>(whole.ranks), -1);
  for (std::size_t k = 0; k < members.size(); ++k) {
    number.at(static_cast<std::size_t>(members[k])) = static_cast<int>(k);
    if (!whole.host.empty()) part.host.push_back(whole.host.at(static_cast<std::size_t>(members[k])));
  }
  for (const network::edge& e : whole.edges) {
    const int from = number[static_cast<std::size_t>(e.from)];
    const int to = number[static_cast<std::size_t>(e.to)];
    if (from >= 0 && to >= 0) part.edges.push_back({from, to, e.resources, e.latency});
  }
  return part;
}

}  // namespace espalier::comm
