// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/allocation.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/column_generation.hpp>
#include <espalier/comm/packing/columns.hpp>
#include <espalier/comm/packing/duplex_allocation.hpp>
#include <espalier/comm/packing/fewer_trees.hpp>
#include <espalier/comm/packing/graph_packing.hpp>
#include <espalier/comm/packing/multiplicative_weights.hpp>
#include <espalier/comm/packing/rounding.hpp>
#include <espalier/comm/packing/strength.hpp>
#include <espalier/comm/packing/symmetry.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier::comm {

struct pack_options {
  /// How long to look for fewer and shallower trees of the same rate, and after how long a linear program is stopped
  /// where it is. A plan is made on one rank for all, since time limits need not end alike.
  double seconds = 0.03;
  double most_seconds = 1.3;
  int attempts = 60;  ///< at fewer and shallower trees
  /// How much of the rate may be given for fewer trees (Blink: 0.05).
  double slack = 0;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

inline void require_packable(const network& net, collective kind, int root) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("packing: " + what); };
  if (!has_trees(kind)) refuse(std::string("no trees are packed for ") + name_of(kind));
  if (net.ranks < 1) refuse("a network of " + std::to_string(net.ranks) + " ranks, expected at least one");
  if ((kind == collective::broadcast || kind == collective::reduce) && (root < 0 || root >= net.ranks))
    refuse("root " + std::to_string(root) + ", expected a rank from 0 to " + std::to_string(net.ranks - 1));
  for (const auto& resource : net.resources)
    if (resource.capacity <= 0)
      refuse("resource " + resource.name + " has capacity " + std::to_string(resource.capacity) + ", expected > 0");
  for (const auto& edge : net.edges) {
    const std::string name = "edge " + std::to_string(edge.from) + " -> " + std::to_string(edge.to);
    if (edge.from < 0 || edge.from >= net.ranks || edge.to < 0 || edge.to >= net.ranks || edge.from == edge.to)
      refuse(name + ", expected two different ranks below " + std::to_string(net.ranks));
    if (edge.resources.empty()) refuse(name + " uses no resource: its rate would have no limit");
    int last = -1;
    for (const int r : edge.resources) {
      if (r <= last || r >= static_cast<int>(net.resources.size()))
        refuse(name + " uses resource " + std::to_string(r) + " after " + std::to_string(last) +
               ", expected ascending indices below " + std::to_string(net.resources.size()));
      last = r;
    }
  }
}

[[nodiscard]] inline packing_clock::time_point after(double seconds) {
  return packing_clock::now() +
         std::chrono::duration_cast<packing_clock::duration>(std::chrono::duration<double>(seconds));
}

/// Any collective on any network, by the packing program over trees: multiplicative weights for the first trees and
/// prices, then column generation to the optimum.
[[nodiscard]] inline packing pack_by_columns(const network& net, collective kind, int root,
                                             packing_clock::time_point deadline) {
  const tree_source source(net, kind, root);
  rough_packing rough = multiplicative_weights(source, 0.1, 0.02, deadline, 40);
  rough = generate_columns(source, std::move(rough), 1e-11, deadline);
  return make_exact(net, kind, root, source, rough);
}

/// The same by shares of the resources for each edge, and flows on those. No trees if it was given up.
[[nodiscard]] inline packing pack_by_shares(const network& net, collective kind, int root, int attempts,
                                            double seconds_for_trees, packing_clock::time_point deadline) {
  packing result;
  const mirror opposite = kind == collective::all_reduce ? find_mirror(net) : mirror{};
  if (opposite) {
    duplex_allocation shares(net, opposite);
    if (!shares.solve(deadline)) return {};
    result = shares.pack(attempts, after(seconds_for_trees));
  } else {
    allocation shares(net, kind, root);
    if (!shares.solve(deadline)) return {};
    result = shares.pack(attempts, after(seconds_for_trees));
  }
  // Its steps are long: what rounding did to them is not taken on trust.
  return check(result, net) ? result : packing{};
}

[[nodiscard]] inline int weight_of(const network& net, const packing& trees) {
  return 4 * depth(net, trees) + static_cast<int>(trees.trees.size());
}

/// Any collective on any network. Trees found by their prices are shallow, so they come first; shares solve the large
/// and stiff cases that those do not finish, and give fewer trees.
[[nodiscard]] inline packing pack_resources(const network& net, collective kind, int root,
                                            const pack_options& options) {
  if (!tree_source(net, kind, root).connects()) {
    packing none;
    none.kind = kind;
    none.root = root;
    none.prices.assign(net.resources.size(), 1);
    return none;
  }
  const auto start = packing_clock::now();
  const auto end = after(options.most_seconds);
  const double size = net.ranks / 64.0;
  packing best = pack_by_columns(net, kind, root, after(options.most_seconds * std::min(0.5, 0.5 * size * size)));
  const auto good = [&] { return to_double(best.rate) >= 0.995 * to_double(best.bound); };
  if (good() && packing_clock::now() - start > std::chrono::duration<double>(options.seconds)) return best;

  packing other = pack_by_shares(net, kind, root, options.attempts, options.seconds,
                                 good() ? std::min(end, after(options.seconds)) : end);
  if (other.trees.empty()) {
    // Neither ended in its time: the first one with all that is left.
    return good() || packing_clock::now() > end ? best : pack_by_columns(net, kind, root, end);
  }
  if (other.bound < best.bound) {
    best.bound = other.bound;
    best.prices = other.prices;
  } else {
    other.bound = best.bound;
    other.prices = best.prices;
  }
  if (other.rate > best.rate || (other.rate == best.rate && weight_of(net, other) < weight_of(net, best)))
    best = std::move(other);
  return best;
}

/// Packs at the greatest rate, by the method that the network allows.
[[nodiscard]] inline packing pack_best(const network& net, collective kind, int root, const pack_options& options) {
  if (is_graph(net)) {
    const auto deadline = after(options.seconds);
    if (kind == collective::broadcast || kind == collective::reduce)
      return pack_rooted_graph(net, kind, root, options.attempts, deadline);
    if (has_equal_roots(kind)) return pack_forest_graph(net, kind, options.attempts, deadline);
    if (const mirror opposite = find_mirror(net)) return pack_strength(net, opposite, options.attempts, deadline);
  }
  return pack_resources(net, kind, root, options);
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Trees for a collective, at the greatest rate that the network allows.
///
/// Where every link is its own (no switches, no shared cards), the rate and its trees are exact for broadcast, reduce,
/// all-gather and reduce-scatter, and, if the links are full duplex, for all-reduce: flows and matroids. Elsewhere a
/// linear program over resources is solved; `rate == bound` tells that it was solved exactly.
///
/// A network that does not connect the ranks gets rate 0 and no trees. One rank alone gets one tree without edges.
///
/// @post check(pack(net, kind, root), net)
/// @post no resource carries more than its capacity
[[nodiscard]] inline packing pack(const network& net, collective kind, int root = 0, const pack_options& options = {}) {
  detail::require_packable(net, kind, root);
  if (net.ranks == 1) {
    packing alone;
    alone.kind = kind;
    alone.trees.push_back({0, {-1}, {-1}, {1, 1}});
    alone.rate = alone.bound = {1, 1};
    alone.prices.assign(net.resources.size(), 0);
    return alone;
  }
  packing best = detail::pack_best(net, kind, root, options);
  // Flows and matroids give few trees; linear programs as many as they have rows that bind.
  const bool many = !detail::is_graph(net) && net.ranks <= 16;
  return many || options.slack > 0 ? fewer_trees(net, best, options.slack, options.seconds) : best;
}

}  // namespace espalier::comm
