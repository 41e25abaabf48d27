// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/cheapest_tree.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/strength.hpp>
#include <espalier/comm/packing/symmetry.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// A tree as a column of the packing program: what a unit of its weight takes from each row.
struct tree_column {
  int group = 0;
  tree shape;
  std::vector<std::pair<int, int>> uses;  ///< row, how many edges of the tree occupy it
};

/// The trees to be packed, which are far too many to list: the solver asks for the cheapest at some prices. Trees come
/// in groups, to which a packing gives equal weights; rows are the limits for which the trees compete.
class column_source {
 public:
  column_source() = default;
  column_source(const column_source&) = delete;
  column_source& operator=(const column_source&) = delete;
  virtual ~column_source() = default;

  struct offer {
    std::vector<tree_column> columns;  ///< the cheapest of each group first; others of interest may follow
    std::vector<double> cost;          ///< of the cheapest of each group
  };

  [[nodiscard]] virtual int groups() const = 0;
  [[nodiscard]] virtual const std::vector<std::int64_t>& capacities() const = 0;
  /// @pre there are trees in every group; prices are >= 0, one per row
  [[nodiscard]] virtual offer cheapest(const std::vector<double>& prices) const = 0;
};

/// The trees of one collective on one network.
///
/// Rows are resources. For all-reduce on a full-duplex network a resource and its opposite are one row and a tree is
/// used in both directions: optimal prices can be taken to be symmetric, and then the cheapest way in and the cheapest
/// way out are the same tree. Groups are the roots of all-gather and reduce-scatter, which have equal shares.
class tree_source : public column_source {
 public:
  tree_source(const network& net, collective kind, int root)
      : tree_source(net, kind, root, kind == collective::all_reduce ? find_mirror(net) : mirror{}) {}

  /// @pre `opposites` is of this network, or none
  tree_source(const network& net, collective kind, int root, mirror opposites)
      : net_(net), kind_(kind), root_(root), out_(net, false), in_(net, true), mirror_(std::move(opposites)) {
    row_.assign(net.resources.size(), -1);
    for (std::size_t r = 0; r < net.resources.size(); ++r) {
      const int other = mirror_ ? mirror_.resource[r] : static_cast<int>(r);
      if (other < static_cast<int>(r)) {
        row_[r] = row_[static_cast<std::size_t>(other)];
        continue;
      }
      row_[r] = static_cast<int>(capacities_.size());
      capacities_.push_back(net.resources[r].capacity);
      width_.push_back(other == static_cast<int>(r) ? 1 : 2);
    }
    if (mirror_)
      for (std::size_t e = 0; e < net.edges.size(); ++e)
        if (net.edges[e].from < net.edges[e].to) forward_.push_back(static_cast<int>(e));
  }

  [[nodiscard]] int groups() const override { return has_equal_roots(kind_) ? net_.ranks : 1; }
  [[nodiscard]] const std::vector<std::int64_t>& capacities() const override { return capacities_; }

  [[nodiscard]] bool connects() const {
    const auto spans = [&](int r) {
      return (!uses_down(kind_) || out_.spans_from(r)) && (!uses_up(kind_) || in_.spans_from(r));
    };
    if (kind_ == collective::broadcast || kind_ == collective::reduce) return spans(root_);
    // If every rank is a root, or both halves are needed, the network is strongly connected or not at all.
    for (int r = 0; r < net_.ranks; ++r)
      if (!spans(r)) return false;
    return true;
  }

  [[nodiscard]] offer cheapest(const std::vector<double>& prices) const override {
    std::vector<double> of_resource(net_.resources.size());
    for (std::size_t r = 0; r < of_resource.size(); ++r) {
      const auto row = static_cast<std::size_t>(row_[r]);
      of_resource[r] = prices[row] / width_[row];
    }
    const std::vector<double> costs = edge_costs(net_, of_resource);
    offer result;
    if (mirror_) {
      add_duplex(result, costs);
    } else if (kind_ == collective::all_reduce) {
      add_pairs(result, costs);
    } else {
      const bool inward = uses_up(kind_);
      const int first = groups() == 1 ? root_ : 0;
      for (int g = 0; g < groups(); ++g) {
        auto best = (inward ? in_ : out_).cheapest(first + g, costs);
        tree t = empty(first + g);
        (inward ? t.up : t.down) = std::move(best->edge);
        result.cost.push_back(best->cost);
        result.columns.push_back(column(g, std::move(t)));
      }
    }
    return result;
  }

  [[nodiscard]] tree_column column(int group, tree shape) const {
    tree_column c{group, std::move(shape), {}};
    std::vector<int> rows;
    const auto half = [&](const std::vector<int>& edges) {
      for (const int e : edges)
        if (e >= 0)
          for (const int r : net_.edges[static_cast<std::size_t>(e)].resources) {
            const auto at = static_cast<std::size_t>(r);
            // A resource and its opposite carry the same load; the first represents both.
            if (!mirror_ || mirror_.resource[at] >= r) rows.push_back(row_[at]);
          }
    };
    half(c.shape.down);
    half(c.shape.up);
    std::sort(rows.begin(), rows.end());
    for (const int row : rows) {
      if (c.uses.empty() || c.uses.back().first != row) c.uses.emplace_back(row, 0);
      ++c.uses.back().second;
    }
    return c;
  }

  /// The other way round, for prices that are the same for a resource and its opposite. Rows then cost what both cost.
  [[nodiscard]] std::vector<std::int64_t> row_prices(const std::vector<std::int64_t>& of_resources) const {
    std::vector<std::int64_t> prices(capacities_.size(), 0);
    for (std::size_t r = 0; r < of_resources.size(); ++r) prices[static_cast<std::size_t>(row_[r])] += of_resources[r];
    return prices;
  }

  /// Prices of resources in the proportions of prices of rows.
  template <class Number> [[nodiscard]] std::vector<Number> resource_prices(const std::vector<Number>& of_rows) const {
    std::vector<Number> prices(net_.resources.size());
    for (std::size_t r = 0; r < prices.size(); ++r) {
      const auto row = static_cast<std::size_t>(row_[r]);
      prices[r] = of_rows[row];
      // A resource that is its own opposite counts once; others count twice.
      if (mirror_ && width_[row] == 1) prices[r] = prices[r] + of_rows[row];
    }
    return prices;
  }

 private:
  [[nodiscard]] tree empty(int root) const {
    const std::vector<int> none(static_cast<std::size_t>(net_.ranks), -1);
    return {root, none, none, {}};
  }

  /// One tree in both directions: Prim's, from each rank the nearest first.
  void add_duplex(offer& result, const std::vector<double>& costs) const {
    const auto ranks = static_cast<std::size_t>(net_.ranks);
    std::vector<std::vector<int>> at(ranks);
    for (const int e : forward_) {
      at[static_cast<std::size_t>(net_.edges[static_cast<std::size_t>(e)].from)].push_back(e);
      at[static_cast<std::size_t>(net_.edges[static_cast<std::size_t>(e)].to)].push_back(e);
    }
    const auto price = [&](int e) {
      return costs[static_cast<std::size_t>(e)] +
             costs[static_cast<std::size_t>(mirror_.edge[static_cast<std::size_t>(e)])];
    };
    constexpr double never = std::numeric_limits<double>::infinity();
    struct reach {
      double cost = never;
      int depth = 0;
      int edge = -1;
    };
    std::vector<reach> nearest(ranks);
    std::vector<bool> inside(ranks, false);
    std::vector<int> depths(ranks, 0);
    duplex_tree links;
    double total = 0;
    for (std::size_t added = 0, v = 0; added < ranks; ++added) {
      inside[v] = true;
      for (const int e : at[v]) {
        const auto& edge = net_.edges[static_cast<std::size_t>(e)];
        const auto other = static_cast<std::size_t>(edge.from) == v ? static_cast<std::size_t>(edge.to)
                                                                    : static_cast<std::size_t>(edge.from);
        const double cost = price(e);
        if (!inside[other] && std::pair(cost, depths[v]) < std::pair(nearest[other].cost, nearest[other].depth))
          nearest[other] = {cost, depths[v], e};
      }
      std::size_t next = ranks;
      for (std::size_t w = 0; w < ranks; ++w)
        if (!inside[w] && nearest[w].edge >= 0 &&
            (next == ranks ||
             std::pair(nearest[w].cost, nearest[w].depth) < std::pair(nearest[next].cost, nearest[next].depth)))
          next = w;
      if (next == ranks) break;
      const int e = nearest[next].edge;
      const auto& edge = net_.edges[static_cast<std::size_t>(e)];
      links.links.push_back({edge.from, edge.to, e, mirror_.edge[static_cast<std::size_t>(e)], 0});
      total += nearest[next].cost;
      depths[next] = nearest[next].depth + 1;
      v = next;
    }
    result.cost.push_back(total);
    result.columns.push_back(column(0, links.rooted(net_.ranks, {})));
  }

  /// The cheapest way in and the cheapest way out, for each root.
  void add_pairs(offer& result, const std::vector<double>& costs) const {
    std::vector<std::pair<double, tree>> pairs;
    for (int r = 0; r < net_.ranks; ++r) {
      auto down = out_.cheapest(r, costs);
      auto up = in_.cheapest(r, costs);
      tree t{r, std::move(down->edge), std::move(up->edge), {}};
      pairs.emplace_back(down->cost + up->cost, std::move(t));
    }
    std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.second.root) < std::pair(b.first, b.second.root);
    });
    result.cost.push_back(pairs.front().first);
    for (auto& [cost, t] : pairs) result.columns.push_back(column(0, std::move(t)));
  }

  const network& net_;
  collective kind_;
  int root_;
  arborescences<double> out_;
  arborescences<double> in_;
  mirror mirror_;
  std::vector<int> row_;  ///< of each resource
  std::vector<std::int64_t> capacities_;
  std::vector<int> width_;    ///< how many resources a row stands for
  std::vector<int> forward_;  ///< one edge of each pair of opposites
};

}  // namespace espalier::comm::detail
