// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// timeout: 300
// together: blocks

#include "reshard_layouts.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <optional>
#include <tuple>

namespace {

using namespace reshard_checks;

/// The costs by which plans are compared: bytes (with latency), collectives.
using cost = std::tuple<std::int64_t, int>;

cost operator+(const cost& a, const cost& b) {
  return {std::get<0>(a) + std::get<0>(b), std::get<1>(a) + std::get<1>(b)};
}

constexpr cost unreachable{std::numeric_limits<std::int64_t>::max() / 4, 0};
constexpr cost for_free{0, 0};

// The cost model once more, written as the definition of each move and without a line of the planner's: a pair of
// placements in, the cost of the one step between them out.
struct move_model {
  mesh_shape mesh;
  extents shape;
  std::int64_t latency = 0;

  std::int64_t parts(axis_mask axes) const {
    std::int64_t n = 1;
    for (int axis = 0; axis < mesh.rank; ++axis) n *= (axes >> axis & 1U) != 0 ? mesh.size[axis] : 1;
    return n;
  }
  // Device 0 holds the first and so the largest part of everything.
  std::int64_t buffer_bytes(const sharding& s) const {
    std::int64_t bytes = 4;
    for (int d = 0; d < shape.rank; ++d) bytes *= local_interval(mesh, shape[d], s.dim[d], 0).size;
    return bytes;
  }
  cost paid(std::int64_t numerator, std::int64_t denominator = 1) const {
    return {(numerator + denominator - 1) / denominator + latency, 1};
  }
  bool only_who_holds_what_changes(const sharding& s, const sharding& t) const {
    for (int d = 0; d < s.rank; ++d) {
      const auto sorted = [&](axis_list axes) {
        std::vector<std::pair<std::int64_t, std::int64_t>> held(static_cast<std::size_t>(parts(axes.mask())));
        for (int device = 0; device < mesh.devices(); ++device) {
          const interval i = local_interval(mesh, shape[d], axes, device);
          held[static_cast<std::size_t>(mesh.position(device, axes))] = {i.start, i.size};
        }
        return held;
      };
      if (sorted(s.dim[d]) != sorted(t.dim[d])) return false;
    }
    return true;
  }

  /// The bytes that any device may lack and, were copies divided evenly, send.
  cost exchange(const sharding& s, const sharding& t) const {
    const std::int64_t held = buffer_bytes(s);
    const std::int64_t wanted = buffer_bytes(t);
    std::int64_t lost = 1;
    std::int64_t gained = 1;
    std::int64_t common = 4;
    for (int d = 0; d < s.rank; ++d) {
      const axis_list a = s.dim[d];
      const axis_list b = t.dim[d];
      if (!a.starts_with(b) && !b.starts_with(a)) {
        const std::int64_t served = parts(t.tiled());
        return paid(std::max(wanted, (held * parts(s.tiled()) + served - 1) / served));
      }
      std::int64_t overlap = shape[d];
      for (int device = 0; device < mesh.devices(); ++device) {
        const interval before = local_interval(mesh, shape[d], a, device);
        const interval after = local_interval(mesh, shape[d], b, device);
        if (after.start == 0 && a.size() > b.size()) overlap = std::min(overlap, before.size);
      }
      common *= a.size() > b.size() ? overlap : local_interval(mesh, shape[d], b, 0).size;
      (a.size() > b.size() ? lost : gained) *=
          parts((a.size() > b.size() ? a.without_first(b.size()) : b.without_first(a.size())).mask());
    }
    return paid(std::max(wanted - common, (held * (lost - 1) + gained - 1) / gained));
  }

  std::optional<cost> step(const sharding& s, const sharding& t) const {
    std::vector<int> changed;
    for (int d = 0; d < s.rank; ++d) {
      if (s.dim[d] != t.dim[d]) changed.push_back(d);
    }
    const std::int64_t local = buffer_bytes(s);
    if (s.unreduced != t.unreduced) {
      if ((t.unreduced & ~s.unreduced) != 0) return {};
      const axis_mask reduced = s.unreduced & ~t.unreduced;
      const std::int64_t n = parts(reduced);
      if (changed.empty()) return paid(2 * local * (n - 1), n);
      const int d = changed[0];
      if (changed.size() > 1 || !t.dim[d].starts_with(s.dim[d])) return {};
      if (t.dim[d].without_first(s.dim[d].size()).mask() != reduced) return {};
      return paid(local * (n - 1), n);
    }
    std::optional<cost> best;
    const auto consider = [&](const cost& c) { best = best ? std::min(*best, c) : c; };
    if (changed.size() == 1) {
      const axis_list a = s.dim[changed[0]];
      const axis_list b = t.dim[changed[0]];
      if (b.starts_with(a) && b.size() == a.size() + 1) consider(for_free);
    }
    if (!changed.empty()) {
      axis_mask gathered = 0;
      bool gathers = true;
      for (const int d : changed) {
        gathers = gathers && s.dim[d].starts_with(t.dim[d]);
        if (gathers) gathered |= s.dim[d].without_first(t.dim[d].size()).mask();
      }
      if (gathers) consider(paid(local * (parts(gathered) - 1)));
    }
    if (changed.size() == 2) {
      for (const auto& [i, j] : {std::pair{changed[0], changed[1]}, std::pair{changed[1], changed[0]}}) {
        if (!s.dim[i].starts_with(t.dim[i])) continue;
        const axis_list moved = s.dim[i].without_first(t.dim[i].size());
        const std::int64_t n = parts(moved.mask());
        if (s.dim[j].followed_by(moved) == t.dim[j]) consider(paid(local * (n - 1), n));
      }
    }
    if (only_who_holds_what_changes(s, t)) consider(paid(local));
    return best;
  }
};

struct edge {
  int from = 0;
  int to = 0;
  cost price;
  bool gathers_several = false;
};

/// The steps other than exchanges. Several dimensions are gathered at once only where no sum is partial.
std::vector<edge> edges_of(const move_model& model, const std::vector<sharding>& layouts) {
  std::vector<edge> edges;
  for (int i = 0; i < static_cast<int>(layouts.size()); ++i) {
    for (int j = 0; j < static_cast<int>(layouts.size()); ++j) {
      if (i == j) continue;
      const auto price = model.step(layouts[static_cast<std::size_t>(i)], layouts[static_cast<std::size_t>(j)]);
      if (!price) continue;
      const sharding& s = layouts[static_cast<std::size_t>(i)];
      const sharding& t = layouts[static_cast<std::size_t>(j)];
      int shrunk = 0;
      bool others = s.unreduced != t.unreduced;
      for (int d = 0; d < s.rank; ++d) {
        if (s.dim[d] == t.dim[d]) continue;
        ++shrunk;
        others = others || !s.dim[d].starts_with(t.dim[d]);
      }
      edges.push_back({i, j, *price, shrunk > 1 && !others});
    }
  }
  return edges;
}

int index_of(const std::vector<sharding>& layouts, const sharding& wanted) {
  const auto found =
      std::find_if(layouts.begin(), layouts.end(), [&](const sharding& s) { return s.same_layout(wanted); });
  return static_cast<int>(found - layouts.begin());
}

/// Returns from each placement the one exchange that may be on the way to `target`: to the target's lists, up to the
/// first axis that has terms of a sum.
std::vector<edge> exchanges_towards(const sharding& target, const move_model& model,
                                    const std::vector<sharding>& layouts) {
  std::vector<edge> edges;
  for (int i = 0; i < static_cast<int>(layouts.size()); ++i) {
    const sharding& s = layouts[static_cast<std::size_t>(i)];
    if (!reachable(s, target)) continue;
    sharding t = target;
    t.unreduced = s.unreduced;
    for (int d = 0; d < t.rank; ++d) {
      int kept = 0;
      while (kept < target.dim[d].size() && !has_axis(s.unreduced, target.dim[d][kept])) ++kept;
      t.dim[d] = target.dim[d].first(kept);
    }
    if (!t.same_layout(s)) edges.push_back({i, index_of(layouts, t), model.exchange(s, t)});
  }
  return edges;
}

/// True if a plan without sums may contain the move: slices towards the target, then at most one collective.
bool ends_at(const edge& e, int target, const std::vector<sharding>& layouts) {
  if (e.to == target) return true;
  if (e.price != for_free) return false;
  for (int d = 0; d < layouts[0].rank; ++d) {
    const sharding& reached = layouts[static_cast<std::size_t>(e.to)];
    const bool sliced = reached.dim[d] != layouts[static_cast<std::size_t>(e.from)].dim[d];
    if (sliced && !layouts[static_cast<std::size_t>(target)].dim[d].starts_with(reached.dim[d])) return false;
  }
  return true;
}

/// Returns the cost of the cheapest plan from each placement to `target`. While a sum remains, any steps will do.
std::vector<cost> cheapest_to(int target, const std::vector<sharding>& layouts, const std::vector<edge>& named,
                              const std::vector<edge>& exchanges) {
  const axis_mask kept = layouts[static_cast<std::size_t>(target)].unreduced;
  std::vector<cost> best(layouts.size(), unreachable);
  best[static_cast<std::size_t>(target)] = for_free;
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::vector<edge>* edges : {&named, &exchanges}) {
      for (const edge& e : *edges) {
        const bool partial = (layouts[static_cast<std::size_t>(e.from)].unreduced & ~kept) != 0;
        if (partial ? e.gathers_several : !ends_at(e, target, layouts)) continue;
        const cost reached = best[static_cast<std::size_t>(e.to)] + e.price;
        if (reached >= best[static_cast<std::size_t>(e.from)]) continue;
        best[static_cast<std::size_t>(e.from)] = reached;
        changed = true;
      }
    }
  }
  return best;
}

cost cost_of(const reshard_plan& plan, std::int64_t latency) {
  cost total{plan.bytes, 0};
  for (int i = 0; i < plan.count; ++i) {
    if (plan.step[i].kind != collective::local_slice) total = total + cost{latency, 1};
  }
  return total;
}

/// Returns the least that the device that lacks most of its shard must receive, for a tensor without partial sums.
std::int64_t bytes_missing(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to) {
  std::int64_t most = 0;
  for (int device = 0; device < mesh.devices(); ++device) {
    const detail::tensor_box wanted = detail::box_of(mesh, shape, to, device);
    const detail::tensor_box held = detail::box_of(mesh, shape, from, device);
    most = std::max(most, detail::elements_of(wanted, shape.rank) - detail::common_elements(wanted, held, shape.rank));
  }
  return 4 * most;
}

struct worst_case {
  double ratio = 1;
  std::string where;
  int pairs = 0;
  int at_minimum = 0;
};

void check_all_pairs(const mesh_shape& mesh, const extents& shape, std::int64_t latency, worst_case& worst) {
  const std::vector<sharding> layouts = all_layouts(mesh, shape.rank);
  const move_model model{mesh, shape, latency};
  const std::vector<edge> named = edges_of(model, layouts);
  for (std::size_t j = 0; j < layouts.size(); ++j) {
    const std::vector<cost> best =
        cheapest_to(static_cast<int>(j), layouts, named, exchanges_towards(layouts[j], model, layouts));
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (!reachable(layouts[i], layouts[j])) continue;
      const reshard_plan plan = plan_reshard(mesh, shape, dtype::f32, layouts[i], layouts[j], latency);
      INFO(text_of(mesh, shape, layouts[i], layouts[j]) << ", latency " << latency);
      INFO(text_of(mesh, plan));
      if (i == j) {
        REQUIRE(plan.count == 0);
      } else {
        REQUIRE(plan.step[plan.count - 1].after.same_layout(layouts[j]));
      }
      REQUIRE(cost_of(plan, latency) == best[i]);
      REQUIRE(reshard_bytes(mesh, shape, dtype::f32, layouts[i], layouts[j], latency) == plan.bytes);
      if (latency != 0 || layouts[i].unreduced != layouts[j].unreduced) continue;
      const std::int64_t minimum = bytes_missing(mesh, shape, layouts[i], layouts[j]);
      ++worst.pairs;
      if (plan.bytes <= minimum) ++worst.at_minimum;
      if (minimum == 0 || static_cast<double>(plan.bytes) <= worst.ratio * static_cast<double>(minimum)) continue;
      worst.ratio = static_cast<double>(plan.bytes) / static_cast<double>(minimum);
      worst.where = text_of(mesh, shape, layouts[i], layouts[j]) + ": " + text_of(mesh, plan);
    }
  }
}

void report(const char* what, const worst_case& worst) {
  std::cout << what << ": " << worst.pairs << " reshards without sums, " << worst.at_minimum
            << " send no more than the neediest device lacks, the worst sends " << worst.ratio << " times that ("
            << worst.where << ")\n";
}

TEST_CASE("every plan is a cheapest path through the graph of all placements", "[reshard]") {
  worst_case even;
  worst_case uneven;
  for (const std::int64_t latency : {0, 7, 100000}) {
    for (const auto& mesh : {mesh_of({2}), mesh_of({4}), mesh_of({2, 2}), mesh_of({2, 3}), mesh_of({4, 2})}) {
      for (const auto& shape : {shape_of({24}), shape_of({24, 48}), shape_of({24, 24, 48})}) {
        check_all_pairs(mesh, shape, latency, even);
      }
      for (const auto& shape : {shape_of({7}), shape_of({1}), shape_of({7, 5}), shape_of({24, 5}), shape_of({2, 1, 4}),
                                shape_of({3, 5, 2})}) {
        check_all_pairs(mesh, shape, latency, uneven);
      }
    }
  }
  report("even splits", even);
  report("uneven splits", uneven);
}

TEST_CASE("plans on eight devices in three axes are cheapest paths too", "[reshard]") {
  worst_case even;
  worst_case uneven;
  const auto mesh = mesh_of({2, 2, 2});
  check_all_pairs(mesh, shape_of({16}), 0, even);
  check_all_pairs(mesh, shape_of({16, 8}), 0, even);
  check_all_pairs(mesh, shape_of({16, 8}), 50, even);
  check_all_pairs(mesh, shape_of({8, 8, 8}), 0, even);
  check_all_pairs(mesh, shape_of({7, 5}), 0, uneven);
  report("even splits on 2x2x2", even);
  report("uneven splits on 2x2x2", uneven);
}

TEST_CASE("a sum cannot become pending", "[reshard]") {
  const auto mesh = mesh_of({2, 1});
  const auto shape = shape_of({8});
  sharding partial = sharding::whole(1);
  partial.unreduced = bit_of(0);
  CHECK_THROWS_AS(plan_reshard(mesh, shape, dtype::f32, sharding::whole(1), partial), impossible_reshard);
  CHECK_THROWS_AS(reshard_bytes(mesh, shape, dtype::f32, sharding::whole(1), sharding::whole(2)), impossible_reshard);
  // A "sum" over the one device of an axis is complete as it is.
  partial.unreduced = bit_of(1);
  CHECK(plan_reshard(mesh, shape, dtype::f32, sharding::whole(1), partial).bytes == 0);
}

}  // namespace
