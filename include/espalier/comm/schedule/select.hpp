// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/from_routes.hpp>
#include <espalier/comm/schedule/low_latency.hpp>
#include <espalier/comm/schedule/ordered.hpp>
#include <espalier/comm/schedule/price.hpp>
#include <espalier/comm/schedule/simulate.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

/// The ways to make a schedule.
enum class algorithm : std::uint8_t {
  trees,          ///< `from_trees`, along a packing
  ordered_trees,  ///< `from_ordered_trees`
  binomial,
  circulant_blocks,
  doubling,
  circulant,
  flat,
  bruck,
  routes,  ///< `from_routes`
  pairwise
};

[[nodiscard]] constexpr const char* name_of(algorithm how) {
  switch (how) {
    case algorithm::trees: return "trees";
    case algorithm::ordered_trees: return "ordered_trees";
    case algorithm::binomial: return "binomial";
    case algorithm::circulant_blocks: return "circulant_blocks";
    case algorithm::doubling: return "doubling";
    case algorithm::circulant: return "circulant";
    case algorithm::flat: return "flat";
    case algorithm::bruck: return "bruck";
    case algorithm::routes: return "routes";
    case algorithm::pairwise: return "pairwise";
  }
  return "?";
}

/// One way to do a call, and what it is expected to cost.
struct candidate {
  algorithm how = algorithm::trees;
  chunking cut;             ///< of trees, ordered trees, routes and pairwise exchange
  std::int64_t blocks = 1;  ///< of circulant blocks
  int shares = 1;           ///< of an all-reduce along ordered trees
  double seconds = 0;
};

/// What the choice among schedules rests on.
struct selection_input {
  double element_bytes = 4;
  double overhead = 1e-6;  ///< seconds of a rank per message, at each end
  double reduce_seconds_per_byte = 0;
  double copy_seconds_per_byte = 0;
  chunk_limits limits;
  const std::vector<tree>* trees = nullptr;    ///< a packing of the collective, if there is one
  const std::vector<route>* routes = nullptr;  ///< of gather, scatter, all-to-all, if there are
};

}  // namespace espalier::comm

namespace espalier::comm::detail {

[[nodiscard]] constexpr bool exchanges(collective what) {
  return what == collective::gather || what == collective::scatter || what == collective::all_to_all;
}

[[nodiscard]] constexpr chunking chunks_of(const chunk_price& price, const selection_input& given) {
  chunking cut;
  cut.elements =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(price.bytes) / given.element_bytes));
  cut.credits = given.limits.credits;
  cut.element_bytes = given.element_bytes;
  return cut;
}

// The latency and rate of a usual message that goes directly: those that half of all pairs stay under.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR hop_cost usual_hop(const network& net, double overhead) {
  std::vector<double> latencies;
  std::vector<double> rates;
  for (const way& w : all_ways(net)) {
    if (w.rate <= 0) continue;
    latencies.push_back(w.latency);
    rates.push_back(w.rate);
  }
  if (rates.empty()) return {0, overhead, 1};
  std::sort(latencies.begin(), latencies.end());
  std::sort(rates.begin(), rates.end());
  return {latencies[latencies.size() / 2], overhead, rates[rates.size() / 2]};
}

[[nodiscard]] constexpr simulation_options costs_of(const selection_input& given) {
  simulation_options costs;
  costs.element_bytes = given.element_bytes;
  costs.message_seconds = given.overhead;
  costs.reduce_seconds_per_byte = given.reduce_seconds_per_byte;
  costs.copy_seconds_per_byte = given.copy_seconds_per_byte;
  return costs;
}

// The rank over which a flat all-reduce takes least: one with a wide card, near to all. All ranks find the same.
[[nodiscard]] constexpr int best_hub(const collective_call& call, const network& net, const selection_input& given) {
  int best = 0;
  double least = 0;
  for (int hub = 0; hub < call.ranks; ++hub) {
    const double seconds = simulate(flat(call, hub), net, costs_of(given)).seconds;
    if (hub > 0 && seconds >= least) continue;
    best = hub;
    least = seconds;
  }
  return best;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// The schedule of a candidate. Throws std::invalid_argument where it does not serve the call.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule schedule_of(const candidate& chosen, const collective_call& call,
                                                             const network& net, const selection_input& given = {}) {
  switch (chosen.how) {
    case algorithm::trees:
      if (given.trees == nullptr) break;
      return from_trees(call, net, *given.trees, chosen.cut);
    case algorithm::ordered_trees: return from_ordered_trees(call, chosen.cut, chosen.shares);
    case algorithm::binomial: return binomial(call);
    case algorithm::circulant_blocks: return circulant_blocks(call, chosen.blocks);
    case algorithm::doubling: return doubling(call);
    case algorithm::circulant: return circulant(call);
    case algorithm::flat:
      return flat(call, call.what == collective::all_reduce ? detail::best_hub(call, net, given) : 0);
    case algorithm::bruck: return bruck(call);
    case algorithm::routes:
      if (given.routes == nullptr) break;
      return from_routes(call, net, *given.routes, chosen.cut);
    case algorithm::pairwise: return pairwise(call, chosen.cut);
  }
  throw std::invalid_argument("the candidate needs trees or routes, and none are given");
}

/// All ways to do a call, the cheapest first. Pipelined trees are priced by formula (`price_trees`), which also gives
/// their chunk size; algorithms of a few rounds by simulating their few messages, which knows what they share.
/// A call that is `ordered` gets candidates that keep the order of ranks.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<candidate> candidates(const collective_call& call,
                                                                          const network& net,
                                                                          const selection_input& given = {}) {
  std::vector<candidate> all;
  const std::int64_t elements = total_elements(call);
  const auto bytes = static_cast<std::int64_t>(static_cast<double>(elements) * given.element_bytes);
  const hop_cost hop = detail::usual_hop(net, given.overhead);
  const simulation_options costs = detail::costs_of(given);
  const auto add = [&](candidate c) {
    c.seconds = simulate(schedule_of(c, call, net, given), net, costs).seconds;
    all.push_back(c);
  };
  const auto with = [&](algorithm how) {
    candidate c;
    c.how = how;
    return c;
  };
  const bool keeps_root_order = !call.ordered || (call.what == collective::broadcast || !reduces(call.what));
  if (call.ranks == 1) {
    add(detail::exchanges(call.what)                                            ? with(algorithm::pairwise)
        : reduces(call.what) && call.ordered                                    ? with(algorithm::ordered_trees)
        : call.what == collective::broadcast || call.what == collective::reduce ? with(algorithm::binomial)
                                                                                : with(algorithm::circulant));
    return all;
  }
  switch (call.what) {
    case collective::broadcast:
    case collective::reduce:
      if (keeps_root_order || call.root == 0) add(with(algorithm::binomial));
      if (keeps_root_order) {
        // As few rounds as possible with one block, as much at once as possible with many.
        const std::int64_t most = std::min<std::int64_t>(64, bytes / std::max<std::int64_t>(1, given.limits.least));
        candidate best = with(algorithm::circulant_blocks);
        for (candidate c = best; c.blocks == 1 || c.blocks <= most; c.blocks *= 2) {
          c.seconds = simulate(schedule_of(c, call, net, given), net, costs).seconds;
          if (c.blocks == 1 || c.seconds < best.seconds) best = c;
        }
        all.push_back(best);
      }
      break;
    case collective::all_reduce:
      add(with(algorithm::doubling));
      if (!call.ordered) add(with(algorithm::circulant));
      break;
    case collective::all_gather: add(with(algorithm::circulant)); break;
    case collective::reduce_scatter:
      if (!call.ordered) add(with(algorithm::circulant));
      break;
    case collective::gather:
    case collective::scatter: add(with(algorithm::binomial)); break;
    case collective::all_to_all: add(with(algorithm::bruck)); break;
    default: break;  // trees, or routes
  }
  // With many ranks the messages at a root, or of all pairs, cost more than any number of rounds.
  constexpr int few = 32;
  if (!detail::exchanges(call.what) && call.ranks > 2 && call.ranks <= few) add(with(algorithm::flat));
  if (detail::exchanges(call.what)) {
    const chunk_price direct = best_chunk(bytes, 1, hop, given.limits);
    candidate c = with(algorithm::pairwise);
    c.cut = detail::chunks_of(direct, given);
    add(c);
    if (given.routes != nullptr) {
      c.how = algorithm::routes;
      c.cut = detail::chunks_of(best_chunk(bytes, 3, hop, given.limits), given);
      add(c);
    }
  } else if (reduces(call.what) && call.ordered) {
    for (const int shares : {1, call.ranks}) {
      if (shares > 1 && call.what != collective::all_reduce) continue;
      candidate c = with(algorithm::ordered_trees);
      c.shares = shares;
      const chunk_price best = best_chunk(bytes / shares, 1 + detail::rounds_of(call.ranks), hop, given.limits);
      c.cut = detail::chunks_of(best, given);
      // Inner ranks take two children's values; many shares with roots everywhere load all ranks like one.
      const double up_and_down = call.what == collective::all_reduce ? 2 : 1;
      c.seconds = up_and_down * (shares == 1 && !has_blocks(call.what) ? 2 : 1) * best.seconds * shares;
      all.push_back(c);
    }
  }
  if (given.trees != nullptr && !detail::exchanges(call.what) && !call.ordered && !given.trees->empty()) {
    candidate c = with(algorithm::trees);
    const chunk_price best = price_trees(net, *given.trees, call.what, bytes, given.overhead, given.limits);
    c.cut = detail::chunks_of(best, given);
    c.seconds = best.seconds;
    all.push_back(c);
  }
  std::sort(all.begin(), all.end(), [](const candidate& a, const candidate& b) {
    return a.seconds != b.seconds ? a.seconds < b.seconds : a.how < b.how;
  });
  return all;
}

}  // namespace espalier::comm
