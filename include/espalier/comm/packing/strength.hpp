// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/graph_packing.hpp>
#include <espalier/comm/packing/max_flow.hpp>
#include <espalier/comm/packing/symmetry.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// An undirected link of a full-duplex network: an edge and its opposite.
struct duplex_link {
  int u = 0;
  int v = 0;
  int edge = 0;  ///< from u to v
  int back = 0;  ///< from v to u
  std::int64_t capacity = 0;
};

/// @pre is_graph(net), opposite = find_mirror(net) exists
[[nodiscard]] inline std::vector<duplex_link> duplex_links(const network& net, const mirror& opposite) {
  std::vector<duplex_link> links;
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    const auto& edge = net.edges[e];
    const int back = opposite.edge[e];
    if (edge.from < edge.to)
      links.push_back({edge.from, edge.to, static_cast<int>(e), back,
                       net.resources[static_cast<std::size_t>(edge.resources[0])].capacity});
  }
  return links;
}

/// A most copious choice of links from which `trees` spanning trees can be made: for every set X of vertices, at most
/// trees * (|X| - 1) lie inside it (Nash-Williams, Tutte). Greedy, since such choices are the independent sets of a
/// polymatroid; the room left for a link is a minimum cut (Cunningham; Padberg and Wolsey).
class forest_choice {
 public:
  forest_choice(int vertices, const std::vector<duplex_link>& links, const fraction& unit, std::int64_t trees)
      : links_(links),
        trees_(trees),
        chosen_(links.size(), 0),
        degree_(static_cast<std::size_t>(vertices), 0),
        part_(static_cast<std::size_t>(vertices)) {
    std::iota(part_.begin(), part_.end(), 0);
    source_ = vertices;
    sink_ = vertices + 1;
    flow_.reset(vertices + 2);
    for (int v = 0; v < vertices; ++v) {
      from_source_.push_back(flow_.add_arc(source_, v, 0));
      to_sink_.push_back(flow_.add_arc(v, sink_, 0));
    }
    for (const auto& link : links) between_.push_back(flow_.add_arc(link.u, link.v, 0));
    for (std::size_t l = 0; l < links.size(); ++l) choose(l, (fraction{links[l].capacity, 1} / unit).numerator);
  }

  [[nodiscard]] const std::vector<std::int64_t>& chosen() const { return chosen_; }

  [[nodiscard]] std::int64_t total() const { return std::accumulate(chosen_.begin(), chosen_.end(), std::int64_t{0}); }

  /// The parts that are full, by vertex: why no more could be chosen. Every link between parts is chosen whole.
  [[nodiscard]] std::vector<int> partition() {
    std::vector<int> parts(part_.size());
    for (std::size_t v = 0; v < parts.size(); ++v) parts[v] = find(static_cast<int>(v));
    return parts;
  }

 private:
  void choose(std::size_t l, std::int64_t wanted) {
    const duplex_link& link = links_[l];
    const auto u = static_cast<std::size_t>(link.u);
    const auto v = static_cast<std::size_t>(link.v);
    if (find(link.u) == find(link.v)) return;  // inside a full set
    // Twice trees * (|X| - 1) - inside(X) = sum over X of (2 trees - degree) + leaving(X) - 2 trees: X is the source's
    // side of a cut, with both ends of the link in it.
    std::int64_t constant = -2 * trees_;
    for (std::size_t w = 0; w < degree_.size(); ++w) {
      const std::int64_t cost = 2 * trees_ - degree_[w];
      if (cost < 0) constant += cost;
      flow_.set_capacity(from_source_[w], w == u || w == v ? max_flow::unlimited : std::max<std::int64_t>(0, -cost));
      flow_.set_capacity(to_sink_[w], std::max<std::int64_t>(0, cost));
    }
    const std::int64_t room = (flow_.solve(source_, sink_) + constant) / 2;
    const std::int64_t taken = std::min(wanted, room);
    chosen_[l] = taken;
    degree_[u] += taken;
    degree_[v] += taken;
    flow_.set_capacities(between_[l], taken, taken);
    if (taken < room) return;
    // Full: full sets that share a vertex make one full set.
    for (int w = 0; w < source_; ++w)
      if (flow_.on_source_side(w)) part_[static_cast<std::size_t>(find(w))] = find(link.u);
  }

  int find(int v) {
    while (part_[static_cast<std::size_t>(v)] != v) {
      int& up = part_[static_cast<std::size_t>(v)];
      up = part_[static_cast<std::size_t>(up)];
      v = up;
    }
    return v;
  }

  const std::vector<duplex_link>& links_;
  std::int64_t trees_;
  std::vector<std::int64_t> chosen_;
  std::vector<std::int64_t> degree_;
  std::vector<int> part_;
  int source_ = 0;
  int sink_ = 0;
  max_flow flow_;
  std::vector<int> from_source_;
  std::vector<int> to_sink_;
  std::vector<int> between_;
};

/// Directions for the chosen links such that `trees` copies arrive at every vertex but the root: then no set of
/// vertices can lack what that many arborescences need (each set X has trees * |X| arrivals, at most trees * (|X| - 1)
/// of them from inside). Returns capacities of the arcs: 2l from u to v of link l, 2l + 1 from v to u.
[[nodiscard]] inline flow_graph orient(int vertices, const std::vector<duplex_link>& links,
                                       const std::vector<std::int64_t>& chosen, std::int64_t trees, int root) {
  const int count = static_cast<int>(links.size());
  max_flow flow(vertices + count + 2);
  const int source = vertices + count;
  const int sink = source + 1;
  std::vector<int> to_u;
  std::vector<int> to_v;
  for (int l = 0; l < count; ++l) {
    const auto& link = links[static_cast<std::size_t>(l)];
    flow.add_arc(source, vertices + l, chosen[static_cast<std::size_t>(l)]);
    to_u.push_back(flow.add_arc(vertices + l, link.u, max_flow::unlimited));
    to_v.push_back(flow.add_arc(vertices + l, link.v, max_flow::unlimited));
  }
  for (int v = 0; v < vertices; ++v) flow.add_arc(v, sink, v == root ? 0 : trees);
  if (flow.solve(source, sink) != trees * (vertices - 1)) throw std::logic_error("packing: links that no trees fill");
  flow_graph graph{vertices, {}};
  for (std::size_t l = 0; l < links.size(); ++l) {
    graph.arcs.push_back({links[l].u, links[l].v, flow.flow(to_v[l])});
    graph.arcs.push_back({links[l].v, links[l].u, flow.flow(to_u[l])});
  }
  return graph;
}

/// A tree of full-duplex edges, as pairs (rank, rank) with the edges of both directions.
struct duplex_tree {
  std::vector<duplex_link> links;

  /// The rank from which the farthest is nearest, and that distance.
  [[nodiscard]] std::pair<int, int> centre(int ranks) const {
    std::vector<std::vector<int>> next(static_cast<std::size_t>(ranks));
    for (const auto& link : links) {
      next[static_cast<std::size_t>(link.u)].push_back(link.v);
      next[static_cast<std::size_t>(link.v)].push_back(link.u);
    }
    // The middle of a longest path, which two searches find.
    std::vector<int> from(static_cast<std::size_t>(ranks));
    const auto farthest = [&](int start) {
      std::vector<int> queue{start};
      from.assign(from.size(), -1);
      from[static_cast<std::size_t>(start)] = start;
      for (std::size_t head = 0; head < queue.size(); ++head)
        for (const int v : next[static_cast<std::size_t>(queue[head])])
          if (from[static_cast<std::size_t>(v)] < 0) {
            from[static_cast<std::size_t>(v)] = queue[head];
            queue.push_back(v);
          }
      return queue.back();
    };
    const int one = farthest(0);
    std::vector<int> path{farthest(one)};
    while (path.back() != one) path.push_back(from[static_cast<std::size_t>(path.back())]);
    return {path[path.size() / 2], static_cast<int>(path.size() / 2)};
  }

  /// Returns it as a tree of an all-reduce, rooted at its centre.
  [[nodiscard]] tree rooted(int ranks, const fraction& weight) const {
    tree t{centre(ranks).first, std::vector<int>(static_cast<std::size_t>(ranks), -1), {}, weight};
    t.up = t.down;
    std::vector<bool> reached(static_cast<std::size_t>(ranks), false);
    reached[static_cast<std::size_t>(t.root)] = true;
    for (bool grew = true; grew;) {
      grew = false;
      for (const auto& link : links) {
        const auto u = static_cast<std::size_t>(link.u);
        const auto v = static_cast<std::size_t>(link.v);
        if (reached[u] == reached[v]) continue;
        grew = reached[u] = true;
        if (!reached[v]) {
          t.down[v] = link.edge;
          t.up[v] = link.back;
        } else {
          t.down[u] = link.back;
          t.up[u] = link.edge;
        }
        reached[v] = true;
      }
    }
    return t;
  }
};

/// All-reduce on full-duplex links: spanning trees whose roots are free, at the strength of the network, the least
/// ratio over all partitions of the capacity between parts to the number of parts less one. Every rank's data crosses
/// between k parts 2(k - 1) times, so that nothing is faster; Tutte and Nash-Williams say that trees reach it.
/// @pre is_graph(net), ranks > 1, opposite = find_mirror(net) exists
[[nodiscard]] inline packing pack_strength(const network& net, const mirror& opposite, int attempts,
                                           packing_clock::time_point deadline) {
  packing result;
  result.kind = collective::all_reduce;
  const std::vector<duplex_link> links = duplex_links(net, opposite);
  std::vector<int> parts(static_cast<std::size_t>(net.ranks));
  std::iota(parts.begin(), parts.end(), 0);
  std::vector<std::int64_t> chosen;
  scaled_graph scaled;
  // Each partition gives a rate; if that is too much, the forests that fail to fit show a partition that is worse.
  while (true) {
    std::int64_t crossing = 0;
    for (const auto& link : links)
      if (parts[static_cast<std::size_t>(link.u)] != parts[static_cast<std::size_t>(link.v)]) crossing += link.capacity;
    std::vector<int> names = parts;
    std::sort(names.begin(), names.end());
    const auto count = std::unique(names.begin(), names.end()) - names.begin();
    result.rate = make_fraction(crossing, count - 1);
    if (crossing == 0) break;
    scaled = scale_to(graph_of(net, false), result.rate);
    forest_choice choice(net.ranks, links, scaled.unit, scaled.trees);
    if (choice.total() == scaled.trees * (net.ranks - 1)) {
      chosen = choice.chosen();
      break;
    }
    parts = choice.partition();
  }
  result.bound = result.rate;
  result.prices.assign(net.resources.size(), 0);
  for (const auto& edge : net.edges)
    if (parts[static_cast<std::size_t>(edge.from)] != parts[static_cast<std::size_t>(edge.to)])
      result.prices[static_cast<std::size_t>(edge.resources[0])] = 1;
  if (result.rate.numerator == 0) return result;

  const auto undirected = [&](const grown_tree& grown) {
    duplex_tree t;
    for (const int a : grown.parent_arc)
      if (a >= 0) t.links.push_back(links[static_cast<std::size_t>(a) / 2]);
    return t;
  };
  const auto cost = [&](const std::vector<grown_tree>& trees) {
    int deepest = 0;
    for (const auto& t : trees) deepest = std::max(deepest, undirected(t).centre(net.ranks).second);
    return 4 * deepest + static_cast<int>(trees.size());
  };
  std::vector<grown_tree> best;
  for (int root = 0; root < net.ranks; ++root) {
    if (root > 0 && (root >= attempts || packing_clock::now() > deadline)) break;
    const flow_graph graph = orient(net.ranks, links, chosen, scaled.trees, root);
    auto trees = grow_best(graph, {{root, scaled.trees}}, std::max(1, attempts / net.ranks), deadline, cost);
    if (best.empty() || cost(trees) < cost(best)) best = std::move(trees);
  }
  for (const auto& grown : best)
    result.trees.push_back(undirected(grown).rooted(net.ranks, fraction{grown.count, 1} * scaled.unit));
  return result;
}

}  // namespace espalier::comm::detail
