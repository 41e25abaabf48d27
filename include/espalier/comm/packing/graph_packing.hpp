// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/grow.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

using packing_clock = std::chrono::steady_clock;

/// A network of links only as a graph: arc i is edge i, turned around if data flows to the root.
/// @pre is_graph(net)
[[nodiscard]] inline flow_graph graph_of(const network& net, bool inward) {
  flow_graph graph{net.ranks, {}};
  for (const auto& edge : net.edges) {
    const auto capacity = net.resources[static_cast<std::size_t>(edge.resources[0])].capacity;
    graph.arcs.push_back({inward ? edge.to : edge.from, inward ? edge.from : edge.to, capacity});
  }
  return graph;
}

/// Whole capacities such that `per_root` trees per root are whole too, and what one of those trees carries.
struct scaled_graph {
  flow_graph graph;
  std::int64_t trees = 0;
  fraction unit;
};

[[nodiscard]] inline scaled_graph scale_to(flow_graph graph, const fraction& per_root) {
  std::int64_t divisor = 0;
  for (const auto& arc : graph.arcs) divisor = std::gcd(divisor, arc.capacity);
  const fraction unit = common_divisor(fraction{divisor, 1}, per_root);
  for (auto& arc : graph.arcs) arc.capacity = (fraction{arc.capacity, 1} / unit).numerator;
  return {std::move(graph), (per_root / unit).numerator, unit};
}

/// Deep trees cost latency in every chunk's way, many trees cost messages: one level weighs as much as four trees.
[[nodiscard]] inline int weight_of(const std::vector<grown_tree>& trees) {
  int deepest = 0;
  for (const auto& t : trees) deepest = std::max(deepest, t.height());
  return 4 * deepest + static_cast<int>(trees.size());
}

/// Depths of the vertices from the arcs to their parents; false if there is a cycle.
[[nodiscard]] inline bool measure(const flow_graph& graph, grown_tree& tree) {
  std::fill(tree.depth.begin(), tree.depth.end(), -1);
  tree.depth[static_cast<std::size_t>(tree.root)] = 0;
  std::vector<std::size_t> way;
  for (std::size_t v = 0; v < tree.depth.size(); ++v) {
    way.clear();
    std::size_t u = v;
    while (tree.depth[u] < 0) {
      if (way.size() > tree.depth.size()) return false;
      way.push_back(u);
      u = static_cast<std::size_t>(graph.arcs[static_cast<std::size_t>(tree.parent_arc[u])].from);
    }
    for (int d = tree.depth[u]; !way.empty(); way.pop_back()) tree.depth[way.back()] = ++d;
  }
  return true;
}

/// Makes trees lower: two of equal weight exchange a vertex's parents where that helps.
inline void lower(const flow_graph& graph, std::vector<grown_tree>& trees, packing_clock::time_point deadline) {
  const auto height = [](const grown_tree& a, const grown_tree& b) {
    const int ha = a.height();
    const int hb = b.height();
    return std::array<int, 3>{
        std::max(ha, hb), ha + hb,
        std::accumulate(a.depth.begin(), a.depth.end(), 0) + std::accumulate(b.depth.begin(), b.depth.end(), 0)};
  };
  for (bool better = true; better;) {
    better = false;
    for (std::size_t i = 0; i < trees.size(); ++i)
      for (std::size_t j = i + 1; j < trees.size(); ++j) {
        if (trees[i].count != trees[j].count) continue;
        if (packing_clock::now() > deadline) return;
        auto before = height(trees[i], trees[j]);
        for (std::size_t v = 0; v < trees[i].depth.size(); ++v) {
          int& one = trees[i].parent_arc[v];
          int& other = trees[j].parent_arc[v];
          if (one == other || one < 0 || other < 0) continue;
          std::swap(one, other);
          if (measure(graph, trees[i]) && measure(graph, trees[j])) {
            if (const auto now = height(trees[i], trees[j]); now < before) {
              before = now;
              better = true;
              continue;
            }
          }
          std::swap(one, other);
          (void)measure(graph, trees[i]);
          (void)measure(graph, trees[j]);
        }
      }
  }
}

/// Grows several times in different orders and keeps the shallowest and fewest trees; rates are the same. The order of
/// attempts is fixed, the deadline ends it: packings may differ between runs, so one rank decides.
template <class Cost>
[[nodiscard]] std::vector<grown_tree> grow_best(const flow_graph& graph, const std::vector<demand>& demands,
                                                int attempts, packing_clock::time_point deadline, const Cost& cost) {
  std::vector<grown_tree> best = growth(graph, demands, {}).run();
  int lowest = 0;  // no tree can be lower than the farthest vertex is
  {
    std::vector<std::vector<int>> next(static_cast<std::size_t>(graph.vertices));
    for (const auto& arc : graph.arcs)
      if (arc.capacity > 0) next[static_cast<std::size_t>(arc.from)].push_back(arc.to);
    for (const demand& d : demands) {
      std::vector<int> hops(static_cast<std::size_t>(graph.vertices), -1);
      std::vector<int> queue{d.root};
      hops[static_cast<std::size_t>(d.root)] = 0;
      for (std::size_t head = 0; head < queue.size(); ++head)
        for (const int v : next[static_cast<std::size_t>(queue[head])])
          if (hops[static_cast<std::size_t>(v)] < 0) {
            hops[static_cast<std::size_t>(v)] = hops[static_cast<std::size_t>(queue[head])] + 1;
            queue.push_back(v);
          }
      lowest = std::max(lowest, *std::max_element(hops.begin(), hops.end()));
    }
  }
  for (int attempt = 1; attempt < attempts && packing_clock::now() < deadline; ++attempt) {
    const int slack = attempt / 2 % 5;
    const growth_order order{slack == 4 ? 0 : lowest + slack, attempt % 2 == 1,
                             attempt < 10 ? 0 : static_cast<std::uint32_t>(attempt)};
    auto trees = growth(graph, demands, order).run();
    if (trees.size() <= 16) lower(graph, trees, deadline);
    if (cost(trees) < cost(best)) best = std::move(trees);
  }
  lower(graph, best, deadline);
  return best;
}

/// Prices 1 on the resources that cross from the source's side of the last flow to the other.
[[nodiscard]] inline std::vector<std::int64_t> prices_of_cut(const network& net, const flow_graph& graph,
                                                             const max_flow& flow) {
  std::vector<std::int64_t> prices(net.resources.size(), 0);
  for (std::size_t a = 0; a < graph.arcs.size(); ++a)
    if (flow.on_source_side(graph.arcs[a].from) && !flow.on_source_side(graph.arcs[a].to))
      prices[static_cast<std::size_t>(net.edges[a].resources[0])] = 1;
  return prices;
}

inline void append(packing& result, const network& net, const std::vector<grown_tree>& grown, const fraction& unit,
                   bool inward) {
  for (const auto& g : grown) {
    tree t{g.root, std::vector<int>(static_cast<std::size_t>(net.ranks), -1), {}, fraction{g.count, 1} * unit};
    t.up = t.down;
    (inward ? t.up : t.down) = g.parent_arc;
    result.trees.push_back(std::move(t));
  }
}

/// Broadcast or reduce on a network of links: the exact optimum, min over v of maxflow(root, v) (Edmonds 1973).
/// @pre is_graph(net), ranks > 1
[[nodiscard]] inline packing pack_rooted_graph(const network& net, collective kind, int root, int attempts,
                                               packing_clock::time_point deadline) {
  const bool inward = kind == collective::reduce;
  packing result;
  result.kind = kind;
  result.root = root;
  const flow_graph graph = graph_of(net, inward);
  max_flow flow(net.ranks);
  for (const auto& arc : graph.arcs) flow.add_arc(arc.from, arc.to, arc.capacity);
  std::int64_t rate = max_flow::unlimited;
  for (int v = 0; v < net.ranks; ++v) {
    if (v == root) continue;
    const std::int64_t value = flow.solve(root, v, rate);
    if (value >= rate) continue;
    rate = value;
    result.prices = prices_of_cut(net, graph, flow);
  }
  result.rate = result.bound = fraction{rate, 1};
  if (rate == 0) return result;
  const scaled_graph scaled = scale_to(graph, result.rate);
  append(result, net, grow_best(scaled.graph, {{root, scaled.trees}}, attempts, deadline, weight_of), scaled.unit,
         inward);
  return result;
}

/// All-gather or reduce-scatter on a network of links: ForestColl's construction (Zhao et al., arXiv 2402.06787). The
/// share x of each root is the least ratio of what enters a set of ranks to the number of roots outside; Dinkelbach's
/// iteration finds it: the set that a share violates most gives the next share.
/// @pre is_graph(net), ranks > 1
[[nodiscard]] inline packing pack_forest_graph(const network& net, collective kind, int attempts,
                                               packing_clock::time_point deadline) {
  const bool inward = kind == collective::reduce_scatter;
  packing result;
  result.kind = kind;
  const flow_graph graph = graph_of(net, inward);

  // Start from the cuts around single ranks.
  std::vector<std::int64_t> entering(static_cast<std::size_t>(net.ranks), 0);
  for (const auto& arc : graph.arcs) entering[static_cast<std::size_t>(arc.to)] += arc.capacity;
  const auto narrow = std::min_element(entering.begin(), entering.end());
  fraction share = make_fraction(*narrow, net.ranks - 1);
  result.prices.assign(net.resources.size(), 0);
  for (std::size_t a = 0; a < graph.arcs.size(); ++a)
    if (graph.arcs[a].to == static_cast<int>(narrow - entering.begin()))
      result.prices[static_cast<std::size_t>(net.edges[a].resources[0])] = 1;

  for (bool improved = true; improved && share.numerator > 0;) {
    improved = false;
    max_flow flow(net.ranks + 1);
    const int source = net.ranks;
    for (const auto& arc : graph.arcs) flow.add_arc(arc.from, arc.to, arc.capacity * share.denominator);
    for (int v = 0; v < net.ranks; ++v) flow.add_arc(source, v, share.numerator);
    const std::int64_t wanted = share.numerator * net.ranks;
    for (int v = 0; v < net.ranks && !improved; ++v) {
      if (flow.solve(source, v, wanted) >= wanted) continue;
      std::int64_t crossing = 0;
      int roots = 0;
      for (const auto& arc : graph.arcs)
        if (flow.on_source_side(arc.from) && !flow.on_source_side(arc.to)) crossing += arc.capacity;
      for (int r = 0; r < net.ranks; ++r) roots += flow.on_source_side(r) ? 1 : 0;
      share = make_fraction(crossing, roots);
      result.prices = prices_of_cut(net, graph, flow);
      improved = true;
    }
  }
  result.rate = result.bound = share * fraction{net.ranks, 1};
  if (share.numerator == 0) return result;
  const scaled_graph scaled = scale_to(graph, share);
  std::vector<demand> demands;
  for (int r = net.ranks - 1; r >= 0; --r) demands.push_back({r, scaled.trees});
  append(result, net, grow_best(scaled.graph, demands, attempts, deadline, weight_of), scaled.unit, inward);
  return result;
}

}  // namespace espalier::comm::detail
