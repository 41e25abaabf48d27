// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Schedules are generated, validated and simulated while this compiles. Links have no rates here, except for g++: clang
// cannot evaluate libstdc++ 12's std::string, which a network's resources are named by.

#include <espalier/comm/schedule/from_routes.hpp>
#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/low_latency.hpp>
#include <espalier/comm/schedule/ordered.hpp>
#include <espalier/comm/schedule/price.hpp>
#include <espalier/comm/schedule/simulate.hpp>
#include <espalier/comm/schedule/split.hpp>
#include <espalier/testing/channels.hpp>
#include <espalier/testing/three_phase.hpp>
#include <espalier/testing/validate_schedule.hpp>

#include <comm/unit/comm_schedule_networks.hpp>

#include <cstdint>
#include <vector>

namespace {

using namespace espalier::comm;
using namespace espalier::test;

#ifdef __clang__
constexpr std::int64_t capacity = 0;
#else
constexpr std::int64_t capacity = 1;
#endif
constexpr double unit = 1e6;
constexpr double alpha = 1e-3;

constexpr chunking chunks_of(std::int64_t elements) {
  chunking cut;
  cut.elements = elements;
  return cut;
}

constexpr network line_of(int ranks) {
  return line_network(ranks, unit, alpha, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), capacity));
}

constexpr schedule along_line(collective what, int ranks, std::int64_t count, int root, std::int64_t chunk) {
  const network net = line_of(ranks);
  std::vector<tree> trees;
  for (int r = 0; r < ranks; ++r) {
    if (has_blocks(what) || r == root) trees.push_back(line_tree(net, r));
  }
  return from_trees(uniform_call(what, ranks, count, root), net, trees, chunks_of(chunk));
}

constexpr bool valid_on_line(collective what, int ranks, std::int64_t count, int root = 0, std::int64_t chunk = 3) {
  const schedule plan = along_line(what, ranks, count, root, chunk);
  const network net = line_of(ranks);
  return validate(plan, net) && simulate(plan, net).complete;
}

static_assert(valid_on_line(collective::broadcast, 4, 10, 1));
static_assert(valid_on_line(collective::reduce, 4, 10, 2));
static_assert(valid_on_line(collective::all_reduce, 4, 7, 1));
static_assert(valid_on_line(collective::all_gather, 4, 2));
static_assert(valid_on_line(collective::reduce_scatter, 4, 2));
static_assert(valid_on_line(collective::all_reduce, 1, 5));
static_assert(valid_on_line(collective::all_reduce, 3, 0));

// A chain of three hops and ten chunks: each hop's latency, and its first chunk, then nine chunks more.
constexpr double broadcast_seconds() {
  simulation_options options;
  options.element_bytes = 1;
  return simulate(along_line(collective::broadcast, 4, 10000, 0, 1000), line_of(4), options).seconds;
}
constexpr double on_the_way = capacity == 0 ? 0 : 0.012;
// If there are no rates, only credits hold chunks back: 4 per round trip, so that the last leaves after two of them.
constexpr double held_back = capacity == 0 ? 0.004 : 0;
static_assert(broadcast_seconds() > 0.00299999 + on_the_way + held_back &&
              broadcast_seconds() < 0.00300001 + on_the_way + held_back);
static_assert(pipelined_seconds(10000, 3, 1000, {alpha, 0, unit}) > 0.0149999 &&
              pipelined_seconds(10000, 3, 1000, {alpha, 0, unit}) < 0.0150001);

// A step that is taken out is missed, with its place.
constexpr schedule_fault first_fault_without(int step_index) {
  schedule plan = along_line(collective::broadcast, 3, 4, 0, 2);
  track& t = plan.tracks[0];
  t.steps[static_cast<std::size_t>(step_index)].to.offset = 1;
  return validate(plan).faults[0];
}
static_assert(first_fault_without(1).kind == fault::outside && first_fault_without(1).rank == 1);

constexpr bool valid(const schedule& plan) { return static_cast<bool>(validate(plan)); }

static_assert(valid(binomial(uniform_call(collective::broadcast, 5, 3, 2))));
static_assert(valid(binomial(uniform_call(collective::gather, 5, 2, 3))));
static_assert(valid(binomial(uniform_call(collective::scatter, 6, 1, 4))));
static_assert(valid(doubling(uniform_call(collective::all_reduce, 5, 2))));
static_assert(valid(circulant(uniform_call(collective::all_reduce, 5, 7))));
static_assert(valid(circulant(uniform_call(collective::all_gather, 6, 1))));
static_assert(valid(circulant_blocks(uniform_call(collective::broadcast, 6, 9, 1), 4)));
static_assert(valid(circulant_blocks(uniform_call(collective::reduce, 5, 9, 1), 3)));
static_assert(valid(bruck(uniform_call(collective::all_to_all, 4, 1))));
static_assert(valid(pairwise(uniform_call(collective::all_to_all, 4, 2), chunks_of(1))));
static_assert(valid(from_ordered_trees(uniform_call(collective::all_reduce, 5, 4), chunks_of(2))));
static_assert(circulant_rounds(11, 8).rounds() == 8 - 1 + 4);

constexpr bool gathers_along_routes() {
  const network net = ring_network(4, unit, alpha, capacity);
  const collective_call call = uniform_call(collective::gather, 4, 4);
  routing_options little;
  little.most_phases = 4;
  return valid(from_routes(call, net, find_routes(call, net, little).routes, chunks_of(2)));
}
static_assert(gathers_along_routes());

constexpr bool three_phases() {
  network net = complete_network(4, unit, alpha, capacity);
  net.host = {0, 0, 1, 1};
  return valid(from_trees(uniform_call(collective::all_reduce, 4, 8), net, three_phase_trees(net), chunks_of(1)));
}
static_assert(three_phases());

static_assert(proportional_cuts(7, {2, 1})[1] == 5);
static_assert(split_over_channels(100, {{1, 10}, {1, 0}})[0] == 45);

}  // namespace

int main() {}
