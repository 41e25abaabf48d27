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
#include <iterator>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm {

/// The methods that make a schedule: `detail::algorithms` has a row for each.
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

/// A method for a call, and its expected cost.
struct candidate {
  algorithm how = algorithm::trees;
  chunking cut;             ///< of trees, ordered trees, routes and pairwise exchange
  std::int64_t blocks = 1;  ///< of circulant blocks
  int shares = 1;           ///< of an all-reduce along ordered trees
  double seconds = 0;
};

/// The costs, limits and trees that the choice among schedules depends on.
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
  for (const network_path& w : all_paths(net)) {
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

/// The candidates for one call, as the rows of `algorithms` propose them.
class proposals {
 public:
  ESPALIER_CONSTEXPR_VECTOR proposals(const collective_call& of, const network& on, const selection_input& with)
      : call(of),
        net(on),
        given(with),
        bytes(static_cast<std::int64_t>(static_cast<double>(total_elements(of)) * with.element_bytes)),
        hop(usual_hop(on, with.overhead)),
        keeps_root_order(!of.ordered || of.kind == collective::broadcast || !reduces(of.kind)) {}

  /// Adds a candidate at the price that the simulator finds.
  ESPALIER_CONSTEXPR_VECTOR void add(candidate one);
  ESPALIER_CONSTEXPR_VECTOR void add(algorithm how) {
    candidate one;
    one.how = how;
    add(one);
  }
  ESPALIER_CONSTEXPR_VECTOR void add_priced(const candidate& one) { all_.push_back(one); }
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR double simulated_seconds(const candidate& one) const;

  /// The cheapest first.
  [[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<candidate> sorted() {
    std::sort(all_.begin(), all_.end(), [](const candidate& a, const candidate& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.how < b.how;
    });
    return std::move(all_);
  }

  const collective_call& call;
  const network& net;
  const selection_input& given;
  std::int64_t bytes;
  hop_cost hop;
  bool keeps_root_order;

 private:
  std::vector<candidate> all_;
};

ESPALIER_CONSTEXPR_VECTOR void propose_trees(proposals& to) {
  const selection_input& given = to.given;
  if (given.trees == nullptr || given.trees->empty() || exchanges(to.call.kind) || to.call.ordered) return;
  const chunk_price best = price_trees(to.net, *given.trees, to.call.kind, to.bytes, given.overhead, given.limits);
  candidate one;
  one.cut = chunks_of(best, given);
  one.seconds = best.seconds;
  to.add_priced(one);
}

ESPALIER_CONSTEXPR_VECTOR void propose_ordered_trees(proposals& to) {
  const collective_call& call = to.call;
  if (!reduces(call.kind) || !call.ordered) return;
  for (const int shares : {1, call.ranks}) {
    if (shares > 1 && call.kind != collective::all_reduce) continue;
    candidate one;
    one.how = algorithm::ordered_trees;
    one.shares = shares;
    const chunk_price best = best_chunk(to.bytes / shares, 1 + rounds_of(call.ranks), to.hop, to.given.limits);
    one.cut = chunks_of(best, to.given);
    // Inner ranks take two children's values; many shares with roots everywhere load all ranks like one.
    const double up_and_down = call.kind == collective::all_reduce ? 2 : 1;
    one.seconds = up_and_down * (shares == 1 && !has_blocks(call.kind) ? 2 : 1) * best.seconds * shares;
    to.add_priced(one);
  }
}

ESPALIER_CONSTEXPR_VECTOR void propose_binomial(proposals& to) {
  const collective kind = to.call.kind;
  const bool whole = kind == collective::broadcast || kind == collective::reduce;
  const bool blocks = kind == collective::gather || kind == collective::scatter;
  if (blocks || (whole && (to.keeps_root_order || to.call.root == 0))) to.add(algorithm::binomial);
}

ESPALIER_CONSTEXPR_VECTOR void propose_circulant_blocks(proposals& to) {
  const collective kind = to.call.kind;
  if ((kind != collective::broadcast && kind != collective::reduce) || !to.keeps_root_order) return;
  // One block takes the fewest rounds; many blocks move as much as possible at once.
  const std::int64_t most = std::min<std::int64_t>(64, to.bytes / std::max<std::int64_t>(1, to.given.limits.least));
  candidate best;
  best.how = algorithm::circulant_blocks;
  for (candidate one = best; one.blocks == 1 || one.blocks <= most; one.blocks *= 2) {
    one.seconds = to.simulated_seconds(one);
    if (one.blocks == 1 || one.seconds < best.seconds) best = one;
  }
  to.add_priced(best);
}

ESPALIER_CONSTEXPR_VECTOR void propose_doubling(proposals& to) {
  if (to.call.kind == collective::all_reduce) to.add(algorithm::doubling);
}

ESPALIER_CONSTEXPR_VECTOR void propose_circulant(proposals& to) {
  const collective kind = to.call.kind;
  const bool folds = kind == collective::all_reduce || kind == collective::reduce_scatter;
  if (kind == collective::all_gather || (folds && !to.call.ordered)) to.add(algorithm::circulant);
}

ESPALIER_CONSTEXPR_VECTOR void propose_flat(proposals& to) {
  // With many ranks the messages at a root, or of all pairs, cost more than any number of rounds.
  constexpr int few = 32;
  if (!exchanges(to.call.kind) && to.call.ranks > 2 && to.call.ranks <= few) to.add(algorithm::flat);
}

ESPALIER_CONSTEXPR_VECTOR void propose_bruck(proposals& to) {
  if (to.call.kind == collective::all_to_all) to.add(algorithm::bruck);
}

ESPALIER_CONSTEXPR_VECTOR void propose_routes(proposals& to) {
  if (!exchanges(to.call.kind) || to.given.routes == nullptr) return;
  candidate one;
  one.how = algorithm::routes;
  one.cut = chunks_of(best_chunk(to.bytes, 3, to.hop, to.given.limits), to.given);
  to.add(one);
}

ESPALIER_CONSTEXPR_VECTOR void propose_pairwise(proposals& to) {
  if (!exchanges(to.call.kind)) return;
  candidate one;
  one.how = algorithm::pairwise;
  one.cut = chunks_of(best_chunk(to.bytes, 1, to.hop, to.given.limits), to.given);
  to.add(one);
}

/// One call of `make`: everything that a schedule is made from.
struct schedule_order {
  const candidate& chosen;
  const collective_call& call;
  const network& net;
  const selection_input& given;
};

[[noreturn]] inline void require_paths() {
  throw std::invalid_argument("the candidate needs trees or routes, and none are given");
}

/// An algorithm: its name, the schedule of a candidate, and the candidates that it has for a call of two ranks or more.
struct algorithm_row {
  const char* name;
  schedule (*make)(const schedule_order& of);
  void (*propose)(proposals& to);
};
/// All of them, in the order of the enumeration.
inline constexpr algorithm_row algorithms[]{
    {"trees",
     [](const schedule_order& of) {
       if (of.given.trees == nullptr) require_paths();
       return from_trees(of.call, of.net, *of.given.trees, of.chosen.cut);
     },
     propose_trees},
    {"ordered_trees",
     [](const schedule_order& of) { return from_ordered_trees(of.call, of.chosen.cut, of.chosen.shares); },
     propose_ordered_trees},
    {"binomial", [](const schedule_order& of) { return binomial(of.call); }, propose_binomial},
    {"circulant_blocks", [](const schedule_order& of) { return circulant_blocks(of.call, of.chosen.blocks); },
     propose_circulant_blocks},
    {"doubling", [](const schedule_order& of) { return doubling(of.call); }, propose_doubling},
    {"circulant", [](const schedule_order& of) { return circulant(of.call); }, propose_circulant},
    {"flat",
     [](const schedule_order& of) {
       return flat(of.call, of.call.kind == collective::all_reduce ? best_hub(of.call, of.net, of.given) : 0);
     },
     propose_flat},
    {"bruck", [](const schedule_order& of) { return bruck(of.call); }, propose_bruck},
    {"routes",
     [](const schedule_order& of) {
       if (of.given.routes == nullptr) require_paths();
       return from_routes(of.call, of.net, *of.given.routes, of.chosen.cut);
     },
     propose_routes},
    {"pairwise", [](const schedule_order& of) { return pairwise(of.call, of.chosen.cut); }, propose_pairwise},
};
static_assert(std::size(algorithms) == static_cast<std::size_t>(algorithm::pairwise) + 1);

[[nodiscard]] constexpr const algorithm_row& row_of(algorithm how) { return algorithms[static_cast<std::size_t>(how)]; }

}  // namespace espalier::comm::detail

namespace espalier::comm {

[[nodiscard]] constexpr const char* name_of(algorithm how) { return detail::row_of(how).name; }

/// The schedule of a candidate. Throws std::invalid_argument where it does not serve the call.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule schedule_of(const candidate& chosen, const collective_call& call,
                                                             const network& net, const selection_input& given = {}) {
  return detail::row_of(chosen.how).make({chosen, call, net, given});
}

}  // namespace espalier::comm

namespace espalier::comm::detail {

ESPALIER_CONSTEXPR_VECTOR double proposals::simulated_seconds(const candidate& one) const {
  return simulate(schedule_of(one, call, net, given), net, costs_of(given)).seconds;
}
ESPALIER_CONSTEXPR_VECTOR void proposals::add(candidate one) {
  one.seconds = simulated_seconds(one);
  all_.push_back(one);
}

/// The algorithm for a rank that is alone.
[[nodiscard]] constexpr algorithm algorithm_alone(const collective_call& call) {
  if (exchanges(call.kind)) return algorithm::pairwise;
  if (reduces(call.kind) && call.ordered) return algorithm::ordered_trees;
  return call.kind == collective::broadcast || call.kind == collective::reduce ? algorithm::binomial
                                                                               : algorithm::circulant;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// All candidates for a call, the cheapest first. Pipelined trees are priced by formula (`price_trees`), which also
/// gives their chunk size; algorithms of a few rounds by simulating their few messages, which knows what they share.
/// A call that is `ordered` gets candidates that keep the order of ranks.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<candidate> candidates(const collective_call& call,
                                                                          const network& net,
                                                                          const selection_input& given = {}) {
  detail::proposals all(call, net, given);
  if (call.ranks == 1) {
    all.add(detail::algorithm_alone(call));
  } else {
    for (const detail::algorithm_row& row : detail::algorithms) row.propose(all);
  }
  return all.sorted();
}

}  // namespace espalier::comm
