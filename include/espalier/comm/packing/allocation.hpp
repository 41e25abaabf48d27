// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/graph_packing.hpp>
#include <espalier/comm/packing/max_flow.hpp>
#include <espalier/comm/packing/rounding.hpp>
#include <espalier/comm/packing/simplex.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Gives each edge a share of the resources that it competes for, such that trees fit best; what remains is a network
/// of links, which flows pack exactly.
///
/// Trees with given roots fit a graph if what enters each set X of ranks is at least the weight of the roots outside of
/// X (Edmonds). So the shares solve a linear program with a row per set, and a maximum flow finds the sets that matter:
/// far fewer than the trees that a packing program would have to look at. In all-reduce, whose roots are free, each
/// edge has two shares, for the way in and the way out, and the roots' weights are variables as well.
class allocation {
 public:
  allocation(const network& net, collective kind, int root) : net_(net), kind_(kind), root_(root), solver_({}) {
    build();
  }

  /// False if the linear program was given up: there are no shares then.
  bool solve(packing_clock::time_point deadline) {
    solver_.stop_at(deadline);
    if (!solver_.improve()) return false;
    while (cut())
      if (!solver_.repair() || !solver_.improve()) return false;
    // The small costs that kept the steps from going in circles are removed.
    for (int j = 0; j < next_column_; ++j)
      if (j >= root_columns_) solver_.set_objective(j, 0);
    return solver_.improve() && !cut();
  }

  /// Trees on the shares, and prices that prove the bound.
  [[nodiscard]] packing pack(int attempts, packing_clock::time_point deadline) {
    packing result;
    const std::optional<simplex::exact_solution> exact = solver_.solve_exactly(whole_limits_);
    std::optional<whole_weights> shares;
    if (exact) shares = over_one_denominator(exact->values);
    // Denominators beyond this make a bundle of trees of every digit.
    if (shares && shares->denominator <= 5040) result = pack_shares(*shares, attempts, deadline);
    if (result.trees.empty()) result = pack_shares(rounded_shares(), attempts, deadline);
    set_bound_from_duals(net_, result, solver_.duals(), exact, [&](const auto& duals) { return prices(duals); });
    return result;
  }

 private:
  struct half {
    bool inward = false;
    flow_graph graph;         ///< arc i is edge i, turned so that data flows from the roots
    std::vector<int> column;  ///< of each edge; -1: no tree competes for it, it has all of its capacity
    std::set<std::vector<bool>> cuts;
  };
  struct cut_row {
    std::size_t half;
    std::size_t row;
    std::vector<bool> inside;
  };

  void build() {
    const bool two_way = kind_ == collective::all_reduce;
    std::vector<int> users(net_.resources.size(), 0);
    for (const auto& edge : net_.edges)
      for (const int r : edge.resources) ++users[static_cast<std::size_t>(r)];
    std::vector<bool> is_free(net_.edges.size(), false);
    std::vector<int> row(net_.resources.size(), -1);
    std::vector<double> limits;
    for (std::size_t e = 0; e < net_.edges.size(); ++e) {
      const auto& uses = net_.edges[e].resources;
      is_free[e] = !two_way && uses.size() == 1 && users[static_cast<std::size_t>(uses[0])] == 1;
      for (const int r : uses) {
        int& place = row[static_cast<std::size_t>(r)];
        if (is_free[e] || place >= 0) continue;
        place = static_cast<int>(limits.size());
        row_resource_.push_back(r);
        whole_limits_.push_back(net_.resources[static_cast<std::size_t>(r)].capacity);
        limits.push_back(static_cast<double>(whole_limits_.back()));
      }
    }
    solver_ = simplex(std::move(limits));
    root_columns_ = two_way ? net_.ranks : 1;
    for (int i = 0; i < root_columns_; ++i) solver_.add(has_equal_roots(kind_) ? net_.ranks : 1, {});
    next_column_ = root_columns_;
    std::uint32_t state = 1;
    for (const bool inward : {false, true}) {
      if (inward ? !uses_up(kind_) : !uses_down(kind_)) continue;
      half h{inward, {net_.ranks, {}}, std::vector<int>(net_.edges.size(), -1), {}};
      for (std::size_t e = 0; e < net_.edges.size(); ++e) {
        const auto& edge = net_.edges[e];
        const auto capacity = net_.resources[static_cast<std::size_t>(edge.resources[0])].capacity;
        h.graph.arcs.push_back({inward ? edge.to : edge.from, inward ? edge.from : edge.to, capacity});
        if (is_free[e]) continue;
        std::vector<std::pair<int, double>> entries;
        for (const int r : edge.resources) entries.emplace_back(row[static_cast<std::size_t>(r)], 1.0);
        state = state * 1664525U + 1013904223U;
        const double part = 0.5 + static_cast<double>(state >> 8U) / static_cast<double>(1U << 25U);
        h.column[e] = next_column_++;
        solver_.add(-1e-7 * part, std::move(entries));
      }
      halves_.push_back(std::move(h));
    }
    for (std::size_t h = 0; h < halves_.size(); ++h)
      for (int v = 0; v < net_.ranks; ++v) {
        std::vector<bool> alone(static_cast<std::size_t>(net_.ranks), false);
        alone[static_cast<std::size_t>(v)] = true;
        add_cut(h, std::move(alone));
      }
  }

  /// Requires that at least the weight of the roots outside a set enters it. False if the cut is known, or constrains
  /// nothing.
  bool add_cut(std::size_t which, std::vector<bool> inside) {
    half& h = halves_[which];
    std::vector<std::pair<int, double>> entries;
    if (kind_ == collective::all_reduce) {
      for (int r = 0; r < net_.ranks; ++r)
        if (!inside[static_cast<std::size_t>(r)]) entries.emplace_back(r, 1.0);
    } else {
      const auto outside = std::count(inside.begin(), inside.end(), false);
      const double roots = has_equal_roots(kind_)                    ? static_cast<double>(outside)
                           : inside[static_cast<std::size_t>(root_)] ? 0.0
                                                                     : 1.0;
      if (roots > 0) entries.emplace_back(0, roots);
    }
    if (entries.empty() || !h.cuts.insert(inside).second) return false;
    std::int64_t free = 0;
    for (std::size_t e = 0; e < h.graph.arcs.size(); ++e) {
      const auto& arc = h.graph.arcs[e];
      if (inside[static_cast<std::size_t>(arc.from)] || !inside[static_cast<std::size_t>(arc.to)]) continue;
      if (h.column[e] < 0) {
        free += arc.capacity;
      } else {
        entries.emplace_back(h.column[e], -1.0);
      }
    }
    rows_.push_back({which, whole_limits_.size(), std::move(inside)});
    whole_limits_.push_back(free);
    solver_.add_row(entries, static_cast<double>(free));
    return true;
  }

  /// The weight of each root, and of each edge's share, in units of 1 / denominator.
  struct shares_of_half {
    std::vector<std::int64_t> roots;
    flow_graph graph;
  };
  [[nodiscard]] shares_of_half read(const half& h, const whole_weights& values) const {
    shares_of_half read{std::vector<std::int64_t>(static_cast<std::size_t>(net_.ranks), 0), h.graph};
    for (int r = 0; r < net_.ranks; ++r) {
      std::int64_t& weight = read.roots[static_cast<std::size_t>(r)];
      if (kind_ == collective::all_reduce) {
        weight = values.numerators[static_cast<std::size_t>(r)];
      } else if (has_equal_roots(kind_) || r == root_) {
        weight = values.numerators[0];
      }
    }
    for (std::size_t e = 0; e < h.column.size(); ++e)
      read.graph.arcs[e].capacity = h.column[e] < 0 ? h.graph.arcs[e].capacity * values.denominator
                                                    : values.numerators[static_cast<std::size_t>(h.column[e])];
    return read;
  }

  /// Shares cut down to whole multiples of a part of the rate.
  [[nodiscard]] whole_weights rounded_shares(int digits = 24) {
    const std::vector<double> values = solver_.values();
    double rate = 0;
    for (int r = 0; r < root_columns_; ++r) rate += values[static_cast<std::size_t>(r)];
    whole_weights result;
    const int exponent = rate > 0 ? std::clamp(digits - std::ilogb(rate), 0, 30) : 0;
    result.denominator = std::int64_t{1} << exponent;
    for (const double v : values)
      result.numerators.push_back(
          static_cast<std::int64_t>(std::max(0.0, v) * static_cast<double>(result.denominator) + 1e-3));
    return result;
  }

  static max_flow flow_of(const shares_of_half& shares, int ranks) {
    max_flow flow(ranks + 1);
    for (const auto& arc : shares.graph.arcs) flow.add_arc(arc.from, arc.to, arc.capacity);
    for (int r = 0; r < ranks; ++r)
      if (shares.roots[static_cast<std::size_t>(r)] > 0)
        flow.add_arc(ranks, r, shares.roots[static_cast<std::size_t>(r)]);
    return flow;
  }

  /// Adds the sets that the present shares violate. False if there is none.
  bool cut() {
    const whole_weights values = rounded_shares();
    bool added = false;
    for (std::size_t h = 0; h < halves_.size(); ++h) {
      const shares_of_half shares = read(halves_[h], values);
      max_flow flow = flow_of(shares, net_.ranks);
      std::int64_t wanted = 0;
      for (const std::int64_t r : shares.roots) wanted += r;
      const std::int64_t enough = wanted - wanted / 200000 - static_cast<std::int64_t>(net_.edges.size());
      for (int v = 0; v < net_.ranks; ++v) {
        if (flow.solve(net_.ranks, v, wanted) >= enough) continue;
        std::vector<bool> inside(static_cast<std::size_t>(net_.ranks));
        for (int w = 0; w < net_.ranks; ++w) inside[static_cast<std::size_t>(w)] = !flow.on_source_side(w);
        added = add_cut(h, std::move(inside)) || added;
      }
    }
    return added;
  }

  /// Trees on the shares; none if they don't carry any.
  [[nodiscard]] packing pack_shares(const whole_weights& values, int attempts,
                                    packing_clock::time_point deadline) const {
    packing result;
    if (kind_ == collective::all_reduce) {
      result = pack_two_way(values, attempts, deadline);
    } else {
      // The shares as a network of links of its own.
      network links = net_;
      links.resources.clear();
      const shares_of_half shares = read(halves_[0], values);
      std::vector<int> place;
      std::vector<network::edge> edges;
      for (std::size_t e = 0; e < net_.edges.size(); ++e) {
        if (shares.graph.arcs[e].capacity == 0) continue;
        place.push_back(static_cast<int>(e));
        edges.push_back({net_.edges[e].from, net_.edges[e].to, {static_cast<int>(links.resources.size())}, 0});
        links.resources.push_back({"", shares.graph.arcs[e].capacity});
      }
      links.edges = std::move(edges);
      result = has_equal_roots(kind_) ? pack_forest_graph(links, kind_, attempts, deadline)
                                      : pack_rooted_graph(links, kind_, root_, attempts, deadline);
      for (tree& t : result.trees) {
        for (auto* edges_of_half : {&t.down, &t.up})
          for (int& e : *edges_of_half)
            if (e >= 0) e = place[static_cast<std::size_t>(e)];
        t.weight = t.weight / fraction{values.denominator, 1};
      }
      result.rate = result.rate / fraction{values.denominator, 1};
    }
    result.kind = kind_;
    result.root = kind_ == collective::broadcast || kind_ == collective::reduce ? root_ : 0;
    return result;
  }

  /// All-reduce: trees in and trees out with the same weight of each root, joined piece by piece.
  [[nodiscard]] packing pack_two_way(const whole_weights& values, int attempts,
                                     packing_clock::time_point deadline) const {
    packing result;
    std::vector<std::int64_t> roots = read(halves_[0], values).roots;
    // Rounding may have left a little less than the roots need.
    for (int lost = 0; !carry(values, roots); ++lost) {
      if (lost == 20) return result;
      for (auto& r : roots) r -= std::min(r, (r >> 18) + (std::int64_t{1} << lost));
    }
    std::int64_t divisor = 0;
    for (const std::int64_t r : roots) divisor = std::gcd(divisor, r);
    std::array<std::vector<grown_tree>, 2> grown;
    for (std::size_t h = 0; h < 2; ++h) {
      const shares_of_half shares = read(halves_[h], values);
      for (const auto& arc : shares.graph.arcs) divisor = std::gcd(divisor, arc.capacity);
    }
    if (divisor == 0) return result;
    for (std::size_t h = 0; h < 2; ++h) {
      shares_of_half shares = read(halves_[h], values);
      for (auto& arc : shares.graph.arcs) arc.capacity /= divisor;
      std::vector<demand> demands;
      for (int r = 0; r < net_.ranks; ++r)
        if (roots[static_cast<std::size_t>(r)] > 0)
          demands.push_back({r, roots[static_cast<std::size_t>(r)] / divisor});
      grown[h] = grow_best(shares.graph, demands, attempts, deadline, weight_of);
    }
    for (auto& out : grown[0])
      for (auto& in : grown[1]) {
        if (in.root != out.root) continue;
        const std::int64_t both = std::min(in.count, out.count);
        if (both == 0) continue;
        in.count -= both;
        out.count -= both;
        result.trees.push_back(
            {out.root, out.parent_arc, in.parent_arc, make_fraction(int128{both} * divisor, values.denominator)});
        result.rate = result.rate + result.trees.back().weight;
      }
    return result;
  }

  /// Whether trees with these roots fit the shares of both halves.
  [[nodiscard]] bool carry(const whole_weights& values, const std::vector<std::int64_t>& roots) const {
    for (const half& h : halves_) {
      shares_of_half shares = read(h, values);
      shares.roots = roots;
      max_flow flow = flow_of(shares, net_.ranks);
      std::int64_t wanted = 0;
      for (const std::int64_t r : roots) wanted += r;
      for (int v = 0; v < net_.ranks; ++v)
        if (flow.solve(net_.ranks, v, wanted) < wanted) return false;
    }
    return true;
  }

  /// A resource's price is its row's; an edge without competition costs what the sets that it enters cost together.
  template <class Number> [[nodiscard]] std::vector<Number> prices(const std::vector<Number>& of_rows) const {
    std::vector<Number> prices(net_.resources.size(), Number{});
    for (std::size_t i = 0; i < row_resource_.size(); ++i)
      prices[static_cast<std::size_t>(row_resource_[i])] = of_rows[i];
    for (const cut_row& row : rows_) {
      const half& h = halves_[row.half];
      for (std::size_t e = 0; e < h.graph.arcs.size(); ++e) {
        const auto& arc = h.graph.arcs[e];
        if (h.column[e] >= 0 || row.inside[static_cast<std::size_t>(arc.from)] ||
            !row.inside[static_cast<std::size_t>(arc.to)])
          continue;
        auto& price = prices[static_cast<std::size_t>(net_.edges[e].resources[0])];
        price = price + of_rows[row.row];
      }
    }
    return prices;
  }

  const network& net_;
  collective kind_;
  int root_;
  simplex solver_;
  std::vector<half> halves_;
  std::vector<int> row_resource_;           ///< of the first rows
  std::vector<std::int64_t> whole_limits_;  ///< of all rows
  std::vector<cut_row> rows_;
  int root_columns_ = 0;
  int next_column_ = 0;
};

}  // namespace espalier::comm::detail
