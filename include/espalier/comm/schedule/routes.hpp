// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/network.hpp>
#include <espalier/comm/schedule/call.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm {

/// A path for a share of what one rank has for another.
struct route {
  int from = 0;
  int to = 0;
  std::vector<int> edges;
  double weight = 0;  ///< share of the pair's data; a pair's weights add up to 1
};

/// Paths for gather, scatter and all-to-all: the whole array takes size / rate / unit seconds for large sizes.
struct routing {
  std::vector<route> routes;
  double rate = 0;             ///< elements of the whole array, in the network's unit
  double bound = 0;            ///< no routing is faster (linear programming duality)
  std::vector<double> prices;  ///< of resources; prove the bound
};

/// How hard `find_routes` tries.
struct routing_options {
  double gap = 0.01;  ///< ends when the rate is this close to the bound
  int most_phases = 1024;
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

// Maximum concurrent flow with shared resources by multiplicative weights (Garg and Könemann; Fleischer): resources
// have prices, every pair sends along its cheapest path, prices rise with use; the average of all rounds is the flow.
// The prices bound every flow: what all resources cost together / what all pairs pay per unit.
class concurrent_flow {
 public:
  struct demand {
    int from;
    int to;
    double share;
  };

  ESPALIER_CONSTEXPR_VECTOR concurrent_flow(const network& net, std::vector<demand> demands)
      : net_(net), demands_(std::move(demands)), out_(static_cast<std::size_t>(net.ranks)) {
    for (std::size_t e = 0; e < net.edges.size(); ++e) {
      out_[static_cast<std::size_t>(net.edges[e].from)].push_back(static_cast<int>(e));
    }
    std::sort(demands_.begin(), demands_.end(),
              [](const demand& a, const demand& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
    price_.assign(net.resources.size(), 0);
    for (std::size_t r = 0; r < price_.size(); ++r) price_[r] = 1.0 / capacity(r);
    flows_.assign(demands_.size(), {});
  }

  /// Restricts every pair to some paths: those of `found` (one run's routes, in its order) with the greatest weights.
  ESPALIER_CONSTEXPR_VECTOR void offer(const std::vector<route>& found, std::size_t most) {
    offered_.assign(demands_.size(), {});
    std::size_t i = 0;
    for (std::size_t d = 0; d < demands_.size(); ++d) {
      std::vector<std::size_t> own;
      for (; i < found.size() && found[i].from == demands_[d].from && found[i].to == demands_[d].to; ++i)
        own.push_back(i);
      std::sort(own.begin(), own.end(), [&](std::size_t a, std::size_t b) {
        return found[a].weight != found[b].weight ? found[a].weight > found[b].weight : a < b;
      });
      for (std::size_t k = 0; k < std::min(most, own.size()); ++k) offered_[d].push_back(found[own[k]].edges);
    }
  }

  ESPALIER_CONSTEXPR_VECTOR routing run(const routing_options& options) {
    routing best;
    best.bound = std::numeric_limits<double>::infinity();
    int epoch_end = 1;
    int epoch = 0;
    double step = 0.5;
    for (int phase = 0; phase < options.most_phases; ++phase) {
      // Early rounds were priced badly: now and then the average starts anew, with smaller steps.
      if (phase == epoch_end) {
        for (auto& paths : flows_) paths.clear();
        load_.assign(load_.size(), 0);
        epoch = 0;
        epoch_end = epoch_end * 3 + 1;
        step = std::max(0.02, step * 0.6);
      }
      load_.resize(price_.size(), 0.0);
      const double bound = send_all(step, best.bound);
      ++epoch;
      if (bound < best.bound) {
        best.bound = bound;
        best.prices = phase_prices_;
      }
      double congestion = 0;
      for (std::size_t r = 0; r < load_.size(); ++r) congestion = std::max(congestion, load_[r] / capacity(r));
      const double rate =
          congestion > 0 ? static_cast<double>(epoch) / congestion : std::numeric_limits<double>::infinity();
      if (rate > best.rate) {
        best.rate = rate;
        keep(best, epoch);
      }
      if (best.rate >= best.bound * (1 - options.gap)) break;
    }
    return best;
  }

 private:
  struct path {
    std::vector<int> edges;
    double weight = 0;
  };

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR double capacity(std::size_t r) const {
    return static_cast<double>(net_.resources[r].capacity);
  }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR double cost(const network::edge& e) const {
    double sum = 0;
    for (const int r : e.resources) sum += price_[static_cast<std::size_t>(r)];
    return sum;
  }

  // One round: every pair once. Returns the bound that the prices before it prove.
  ESPALIER_CONSTEXPR_VECTOR double send_all(double step, double guess) {
    phase_prices_ = price_;
    double budget = 0;
    for (std::size_t r = 0; r < price_.size(); ++r) budget += price_[r] * capacity(r);
    double paid = 0;
    for (std::size_t i = 0; i < demands_.size(); ++i) {
      if (!offered_.empty()) {
        paid += demands_[i].share * cost(cheapest_offer(i));
        continue;
      }
      if (i == 0 || demands_[i].from != demands_[i - 1].from) shortest_from(demands_[i].from);
      const auto target = static_cast<std::size_t>(demands_[i].to);
      if (via_[target] < 0) throw std::invalid_argument("the network has no path between two ranks");
      paid += demands_[i].share * distance_[target];
    }
    const double bound = paid > 0 ? budget / paid : std::numeric_limits<double>::infinity();
    const double pace = step * std::min(guess, bound);
    // Prices rise after each pair where there are few, after each sender where there are many.
    const bool few = demands_.size() <= 2 * out_.size();
    for (std::size_t i = 0; i < demands_.size(); ++i) {
      if (offered_.empty() && (few || i == 0 || demands_[i].from != demands_[i - 1].from)) {
        shortest_from(demands_[i].from);
      }
      send(i, pace);
    }
    double highest = 0;
    for (std::size_t r = 0; r < price_.size(); ++r) highest = std::max(highest, price_[r] * capacity(r));
    for (double& p : price_) p /= highest;
    return bound;
  }

  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR double cost(const std::vector<int>& edges) const {
    double sum = 0;
    for (const int e : edges) sum += cost(net_.edges[static_cast<std::size_t>(e)]);
    return sum;
  }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR const std::vector<int>& cheapest_offer(std::size_t index) const {
    const auto& offers = offered_[index];
    return *std::min_element(offers.begin(), offers.end(),
                             [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  }

  ESPALIER_CONSTEXPR_VECTOR void send(std::size_t index, double pace) {
    const demand& d = demands_[index];
    std::vector<int> edges;
    if (!offered_.empty()) edges = cheapest_offer(index);
    for (int at = d.to; offered_.empty() && at != d.from;
         at = net_.edges[static_cast<std::size_t>(edges.back())].from) {
      edges.push_back(via_[static_cast<std::size_t>(at)]);
    }
    if (offered_.empty()) std::reverse(edges.begin(), edges.end());
    for (const int e : edges) {
      for (const int x : net_.edges[static_cast<std::size_t>(e)].resources) {
        const auto r = static_cast<std::size_t>(x);
        load_[r] += d.share;
        price_[r] *= 1 + pace * d.share / capacity(r);
      }
    }
    auto& paths = flows_[index];
    const auto same = std::find_if(paths.begin(), paths.end(), [&](const path& p) { return p.edges == edges; });
    if (same != paths.end()) {
      same->weight += 1;
    } else {
      paths.push_back({std::move(edges), 1});
    }
  }

  ESPALIER_CONSTEXPR_VECTOR void shortest_from(int source) {
    const auto n = static_cast<std::size_t>(net_.ranks);
    distance_.assign(n, std::numeric_limits<double>::infinity());
    hops_.assign(n, 0);
    via_.assign(n, -1);
    std::vector<char> done(n, 0);
    distance_[static_cast<std::size_t>(source)] = 0;
    for (std::size_t round = 0; round < n; ++round) {
      std::size_t next = n;
      for (std::size_t v = 0; v < n; ++v) {
        if (done[v] != 0 || (via_[v] < 0 && static_cast<int>(v) != source)) continue;
        if (next == n || distance_[v] < distance_[next]) next = v;
      }
      if (next == n) return;
      done[next] = 1;
      for (const int e : out_[next]) {
        const network::edge& edge = net_.edges[static_cast<std::size_t>(e)];
        const auto to = static_cast<std::size_t>(edge.to);
        const double there = distance_[next] + cost(edge);
        // The one with fewer hops of equal ways is kept.
        if (done[to] != 0 || there > distance_[to] || (there == distance_[to] && hops_[next] + 1 >= hops_[to]))
          continue;
        distance_[to] = there;
        hops_[to] = hops_[next] + 1;
        via_[to] = e;
      }
    }
  }

  ESPALIER_CONSTEXPR_VECTOR void keep(routing& best, int rounds) const {
    best.routes.clear();
    for (std::size_t i = 0; i < demands_.size(); ++i) {
      for (const path& p : flows_[i]) {
        best.routes.push_back({demands_[i].from, demands_[i].to, p.edges, p.weight / rounds});
      }
    }
  }

  const network& net_;
  std::vector<demand> demands_;
  std::vector<std::vector<int>> out_;
  std::vector<double> price_;
  std::vector<double> phase_prices_;
  std::vector<double> load_;
  std::vector<double> distance_;
  std::vector<int> hops_;
  std::vector<int> via_;
  std::vector<std::vector<path>> flows_;                // by demand
  std::vector<std::vector<std::vector<int>>> offered_;  // by demand: the paths it may take; none: all
};

// Keeps as few paths per pair as serve: those with the greatest weights, balanced anew.
ESPALIER_CONSTEXPR_VECTOR void take_fewer_routes(const network& net,
                                                 const std::vector<concurrent_flow::demand>& demands, routing& made) {
  if (made.rate == std::numeric_limits<double>::infinity()) return;
  for (std::size_t most = 1; most <= 8 && most * demands.size() < made.routes.size(); ++most) {
    concurrent_flow flow(net, demands);
    flow.offer(made.routes, most);
    routing fewer = flow.run({0.003, 300});
    if (fewer.rate < made.rate * 0.99) continue;
    made.rate = fewer.rate;
    made.routes = std::move(fewer.routes);
    return;
  }
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Paths on which the whole array of a gather, scatter or all-to-all moves as fast as the network allows, up to
/// `options.gap`. Throws std::invalid_argument where two ranks that exchange have no path.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR routing find_routes(const collective_call& call, const network& net,
                                                            const routing_options& options = {}) {
  if (net.ranks != call.ranks) throw std::invalid_argument("the call and the network have different numbers of ranks");
  const call_layout layout(call);
  const auto total = static_cast<double>(layout.total());
  std::vector<detail::concurrent_flow::demand> demands;
  const auto demand = [&](int from, int to, int block) {
    if (from != to && layout.count(block) > 0) {
      demands.push_back({from, to, static_cast<double>(layout.count(block)) / total});
    }
  };
  for (int a = 0; a < call.ranks; ++a) {
    if (call.kind == collective::gather) demand(a, call.root, a);
    if (call.kind == collective::scatter) demand(call.root, a, a);
    for (int b = 0; call.kind == collective::all_to_all && b < call.ranks; ++b) demand(a, b, a * call.ranks + b);
  }
  if (demands.empty()) return {};
  routing made = detail::concurrent_flow(net, demands).run(options);
  detail::take_fewer_routes(net, demands, made);
  // A message with far to go should leave first, and arrive last; senders should not all begin with the same receiver.
  std::sort(made.routes.begin(), made.routes.end(), [&](const route& a, const route& b) {
    if (a.edges.size() != b.edges.size()) return (a.edges.size() < b.edges.size()) == (call.kind == collective::gather);
    const int ahead_a = (a.to - a.from + call.ranks) % call.ranks;
    const int ahead_b = (b.to - b.from + call.ranks) % call.ranks;
    if (ahead_a != ahead_b) return ahead_a < ahead_b;
    return a.edges < b.edges;
  });
  return made;
}

}  // namespace espalier::comm
