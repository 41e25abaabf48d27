// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/cheapest_tree.hpp>
#include <espalier/comm/packing/fraction.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::comm {

/// Edges on the longest way from a root to a rank.
[[nodiscard]] inline int depth(const network& net, const tree& t) {
  int deepest = 0;
  const auto walk = [&](const std::vector<int>& edges, bool down) {
    for (std::size_t r = 0; r < edges.size(); ++r) {
      int steps = 0;
      for (std::size_t v = r; edges[v] >= 0 && steps <= net.ranks; ++steps) {
        const auto& edge = net.edges[static_cast<std::size_t>(edges[v])];
        v = static_cast<std::size_t>(down ? edge.from : edge.to);
      }
      deepest = std::max(deepest, steps);
    }
  };
  walk(t.down, true);
  walk(t.up, false);
  return deepest;
}

[[nodiscard]] inline int depth(const network& net, const packing& trees) {
  int deepest = 0;
  for (const tree& t : trees.trees) deepest = std::max(deepest, depth(net, t));
  return deepest;
}

/// Which halves of a tree a collective uses.
[[nodiscard]] constexpr bool uses_down(collective kind) {
  return kind == collective::broadcast || kind == collective::all_gather || kind == collective::all_reduce;
}
[[nodiscard]] constexpr bool uses_up(collective kind) {
  return kind == collective::reduce || kind == collective::reduce_scatter || kind == collective::all_reduce;
}
/// Whether every rank is the root of the same share.
[[nodiscard]] constexpr bool has_equal_roots(collective kind) {
  return kind == collective::all_gather || kind == collective::reduce_scatter;
}

/// The result of `check` for a packing.
struct packing_report {
  std::vector<std::string> mistakes;  ///< one sentence each, with the values; empty: the packing is right
  std::vector<fraction> loads;        ///< of each resource
  fraction rate;                      ///< sum of the weights
  fraction bound;                     ///< the bound that the prices prove; only if `has_certificate`
  bool has_certificate = false;
  int depth = 0;

  [[nodiscard]] explicit operator bool() const { return mistakes.empty(); }
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

/// Says why `edges` is no spanning arborescence with this root, or nothing.
[[nodiscard]] inline std::string fault_of_half(const network& net, int root, const std::vector<int>& edges, bool down) {
  const auto count = static_cast<std::size_t>(net.ranks);
  if (edges.size() != count)
    return "names " + std::to_string(edges.size()) + " edges for " + std::to_string(net.ranks) + " ranks";
  for (std::size_t r = 0; r < count; ++r) {
    const std::string rank = "rank " + std::to_string(r);
    const int e = edges[r];
    if (static_cast<int>(r) == root) {
      if (e != -1) return "gives its root, " + rank + ", edge " + std::to_string(e);
      continue;
    }
    if (e < 0 || e >= static_cast<int>(net.edges.size())) return "has no edge for " + rank;
    const auto& edge = net.edges[static_cast<std::size_t>(e)];
    if ((down ? edge.to : edge.from) != static_cast<int>(r))
      return "gives " + rank + " edge " + std::to_string(e) + ", which joins ranks " + std::to_string(edge.from) +
             " and " + std::to_string(edge.to);
  }
  for (std::size_t r = 0; r < count; ++r) {
    auto v = r;
    for (int steps = 0; static_cast<int>(v) != root; ++steps) {
      if (steps > net.ranks) return "has a cycle through rank " + std::to_string(v);
      const auto& edge = net.edges[static_cast<std::size_t>(edges[v])];
      v = static_cast<std::size_t>(down ? edge.from : edge.to);
    }
  }
  return "";
}

/// The bound that prices prove for every packing of this collective; not valid if they are no certificate. A network
/// that does not connect the ranks has bound 0.
struct proof {
  bool valid = false;
  fraction bound;
};

/// Returns the least cost of a unit of the collective's rate, with these costs of the edges; times the number of ranks
/// where roots have equal shares. Nothing if the network does not connect the ranks.
[[nodiscard]] inline std::optional<int128> cheapest_unit(const network& net, collective kind, int root,
                                                         const std::vector<int128>& costs) {
  const arborescences<int128> out(net, false);
  const arborescences<int128> in(net, true);
  int128 cheapest = -1;
  for (int r = 0; r < net.ranks; ++r) {
    const bool rooted = kind == collective::broadcast || kind == collective::reduce;
    if (rooted && r != root) continue;
    int128 cost = 0;
    if (uses_down(kind)) {
      const auto best = out.cheapest(r, costs);
      if (!best) return std::nullopt;
      cost += best->cost;
    }
    if (uses_up(kind)) {
      const auto best = in.cheapest(r, costs);
      if (!best) return std::nullopt;
      cost += best->cost;
    }
    if (has_equal_roots(kind)) {
      cheapest = (cheapest < 0 ? 0 : cheapest) + cost;
    } else if (cheapest < 0 || cost < cheapest) {
      cheapest = cost;
    }
  }
  return cheapest;
}

/// Returns the cost of all capacities; nothing if a price is negative.
[[nodiscard]] inline std::optional<int128> cost_of_capacities(const network& net, const std::vector<int128>& prices) {
  int128 paid = 0;
  for (std::size_t r = 0; r < net.resources.size(); ++r) {
    if (prices[r] < 0) return std::nullopt;
    paid += prices[r] * net.resources[r].capacity;
  }
  return paid;
}

/// `paid` / `cost` > 0 as a fraction, or a little more where that needs fewer digits.
[[nodiscard]] inline fraction fraction_above(int128 paid, int128 cost) {
  if (const auto exact = try_fraction(paid, cost)) return *exact;
  // A result beyond 64 bits becomes the next larger fraction with a denominator of 2^20, or whole number. Prices from a
  // search that was stopped early may prove next to nothing: then the largest number there is, which no rate exceeds.
  for (const int128 denominator : {int128{1} << 20, int128{1}}) {
    if (const auto near = try_fraction((paid * denominator + cost - 1) / cost, denominator)) return *near;
  }
  return {std::numeric_limits<std::int64_t>::max(), 1};
}

[[nodiscard]] inline proof bound_of_prices(const network& net, collective kind, int root,
                                           const std::vector<std::int64_t>& prices) {
  std::vector<int128> wide_prices(prices.begin(), prices.end());
  wide_prices.resize(net.resources.size(), 0);
  const std::optional<int128> paid = cost_of_capacities(net, wide_prices);
  if (!paid) return {};
  const std::optional<int128> cheapest = cheapest_unit(net, kind, root, edge_costs(net, wide_prices));
  if (!cheapest) return {true, {0, 1}};
  if (*cheapest <= 0 || prices.size() != net.resources.size()) return {};
  return {true, fraction_above(*paid * (has_equal_roots(kind) ? net.ranks : 1), *cheapest)};
}

/// Adds a sentence for each resource whose load exceeds its capacity.
inline void find_overloads(const network& net, const std::vector<fraction>& loads, std::vector<std::string>& mistakes) {
  for (std::size_t r = 0; r < net.resources.size(); ++r) {
    if (!(loads[r] > fraction{net.resources[r].capacity, 1})) continue;
    mistakes.push_back("resource " + std::to_string(r) + " (" + net.resources[r].name + ") carries " +
                       to_string(loads[r]) + ", its capacity is " + std::to_string(net.resources[r].capacity));
  }
}
/// Adds a sentence for each mistake in a bound that is said to be proved, and in a rate below it.
inline void find_false_bound(const proof& proved, const fraction& rate, const fraction& bound,
                             std::vector<std::string>& mistakes) {
  if (!proved.valid) {
    mistakes.emplace_back("the prices prove no bound");
  } else if (proved.bound > bound) {
    mistakes.push_back("the prices prove the bound " + to_string(proved.bound) + ", it is said to be " +
                       to_string(bound));
  }
  if (rate > bound) mistakes.push_back("the rate " + to_string(rate) + " is above the bound " + to_string(bound));
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Checks a packing from first principles: every tree spans, loads keep within capacities, weights add up to the rate
/// (per root where roots have equal shares), and the prices prove the bound. Trusts nothing that the packing says.
[[nodiscard]] inline packing_report check(const packing& trees, const network& net) {
  packing_report report;
  const auto mistake = [&](std::string what) { report.mistakes.push_back(std::move(what)); };
  const collective kind = trees.kind;
  report.loads.assign(net.resources.size(), fraction{0, 1});
  std::vector<fraction> share(static_cast<std::size_t>(net.ranks), fraction{0, 1});
  for (std::size_t i = 0; i < trees.trees.size(); ++i) {
    const tree& t = trees.trees[i];
    const std::string name = "tree " + std::to_string(i);
    if (t.root < 0 || t.root >= net.ranks) {
      mistake(name + " has root " + std::to_string(t.root));
      continue;
    }
    if (!(t.weight > fraction{0, 1})) mistake(name + " has weight " + to_string(t.weight));
    const auto half = [&](const std::vector<int>& edges, bool down, bool used) {
      if (!used) {
        if (std::any_of(edges.begin(), edges.end(), [](int e) { return e != -1; }))
          mistake(name + " has edges in the half that " + name_of(kind) + " does not use");
        return;
      }
      if (const std::string fault = detail::fault_of_half(net, t.root, edges, down); !fault.empty()) {
        std::string text = name;
        mistake(text.append(down ? " (down) " : " (up) ").append(fault));
        return;
      }
      for (const int e : edges) {
        if (e < 0) continue;
        for (const int r : net.edges[static_cast<std::size_t>(e)].resources) {
          fraction& load = report.loads[static_cast<std::size_t>(r)];
          load = load + t.weight;
        }
      }
    };
    half(t.down, true, uses_down(kind));
    half(t.up, false, uses_up(kind));
    report.rate = report.rate + t.weight;
    fraction& mine = share[static_cast<std::size_t>(t.root)];
    mine = mine + t.weight;
    if (report.mistakes.empty()) report.depth = std::max(report.depth, depth(net, t));
  }
  if (report.rate != trees.rate)
    mistake("the weights add up to " + to_string(report.rate) + ", the rate is said to be " + to_string(trees.rate));
  detail::find_overloads(net, report.loads, report.mistakes);
  if (kind == collective::broadcast || kind == collective::reduce) {
    for (const tree& t : trees.trees)
      if (t.root != trees.root)
        mistake("a tree has root " + std::to_string(t.root) + ", the collective has root " +
                std::to_string(trees.root));
  } else if (has_equal_roots(kind)) {
    const fraction equal = trees.rate / fraction{std::max(net.ranks, 1), 1};
    for (std::size_t r = 0; r < share.size(); ++r)
      if (share[r] != equal)
        mistake("rank " + std::to_string(r) + " is the root of " + to_string(share[r]) + ", expected an equal share, " +
                to_string(equal));
  }
  if (net.ranks > 1) {
    const detail::proof proved = detail::bound_of_prices(net, kind, trees.root, trees.prices);
    report.has_certificate = proved.valid;
    report.bound = proved.bound;
    detail::find_false_bound(proved, trees.rate, trees.bound, report.mistakes);
  }
  return report;
}

}  // namespace espalier::comm
