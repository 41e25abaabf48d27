// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/routes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

// All-to-all in place: results would overwrite what has not been sent, so everything is put aside first.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<location> put_aside(schedule& plan, const call_layout& layout) {
  std::vector<location> aside;
  if (plan.call.kind != collective::all_to_all || !plan.call.in_place || plan.call.ranks == 1) return aside;
  track_builder copies(0, 0);
  for (int r = 0; r < plan.call.ranks; ++r) {
    copies.rank(r);
    std::int64_t& scratch = plan.scratch[static_cast<std::size_t>(r)];
    aside.push_back({place::scratch, scratch});
    copies.copy({place::output, 0}, aside.back(), layout.output_elements(r));
    scratch += layout.output_elements(r);
  }
  track made = copies.finish();
  if (!made.parts.empty()) plan.tracks.push_back(std::move(made));
  return aside;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// The schedule that moves each pair's data along its routes, in chunks that are passed on through scratch memory.
/// `routes` of one pair must stand in one order on all ranks; their weights say how the data is cut. For gather,
/// scatter and all-to-all.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule from_routes(const collective_call& call, const network& net,
                                                             const std::vector<route>& routes,
                                                             const chunking& cut = {}) {
  const call_layout layout(call);
  if (net.ranks != call.ranks) throw std::invalid_argument("the call and the network have different numbers of ranks");
  if (call.kind != collective::gather && call.kind != collective::scatter && call.kind != collective::all_to_all) {
    throw std::invalid_argument("routes are for gather, scatter and all-to-all; others move along trees: from_trees");
  }
  schedule plan = detail::empty_schedule(call, cut);
  const std::vector<location> aside = detail::put_aside(plan, layout);
  const int phase = aside.empty() ? 0 : 1;
  const auto block_of = [&](int from, int to) {
    return call.kind == collective::gather ? from : call.kind == collective::scatter ? to : from * call.ranks + to;
  };
  // The cuts of each pair's data.
  const auto n = static_cast<std::size_t>(call.ranks);
  std::vector<std::vector<double>> weights(n * n);
  const auto cell = [&](const route& r) {
    return static_cast<std::size_t>(r.from) * n + static_cast<std::size_t>(r.to);
  };
  for (const route& r : routes) weights[cell(r)].push_back(r.weight);
  std::vector<std::vector<std::int64_t>> cuts(n * n);
  std::vector<std::size_t> next(n * n, 0);
  for (int a = 0; a < call.ranks; ++a) {
    for (int b = 0; b < call.ranks; ++b) {
      if (a == b || (call.kind == collective::gather && b != call.root) ||
          (call.kind == collective::scatter && a != call.root)) {
        continue;
      }
      const std::size_t at = static_cast<std::size_t>(a) * n + static_cast<std::size_t>(b);
      const std::int64_t count = layout.count(block_of(a, b));
      if (count > 0 && weights[at].empty()) throw std::invalid_argument("a pair that exchanges has no route");
      if (count > 0) cuts[at] = proportional_cuts(count, weights[at], cut.grain);
    }
  }
  int number = 0;
  for (const route& r : routes) {
    const std::size_t at = cell(r);
    const int tree = number++;
    if (cuts[at].empty()) continue;
    const std::size_t share = next[at]++;
    const std::int64_t begin = cuts[at][share];
    const std::int64_t count = cuts[at][share + 1] - begin;
    if (count == 0) continue;
    const int block = block_of(r.from, r.to);
    const std::int64_t first = layout.first(block) + begin;
    const chunk_grid grid = equal_chunks(count, cut.of(count), cut.grain);
    const int in_flight = cut.in_flight > 0 ? cut.in_flight : cut.credits + 2;
    const std::int64_t slots = std::min<std::int64_t>(in_flight, grid.chunks);
    struct hop {
      int rank;
      int in;
      int out;
    };
    std::vector<hop> hops{{r.from, -1, -1}};
    for (const int e : r.edges) {
      hops.back().out = e;
      hops.push_back({net.edges[static_cast<std::size_t>(e)].to, e, -1});
    }
    if (hops.back().rank != r.to) throw std::invalid_argument("a route does not end where it should");
    std::sort(hops.begin(), hops.end(), [](const hop& a, const hop& b) { return a.rank < b.rank; });
    track_builder track(tree, phase);
    for (const hop& h : hops) {
      track.rank(h.rank);
      location value;
      if (h.in < 0) {
        value = layout.held(h.rank, block, first);
        if (!aside.empty()) value = detail::moved(aside[static_cast<std::size_t>(h.rank)], value.offset);
      } else if (h.out < 0) {
        value = layout.result(block, first);
      } else {
        std::int64_t& scratch = plan.scratch[static_cast<std::size_t>(h.rank)];
        value = {place::scratch, scratch, true};
        scratch += slots * grid.chunk;
      }
      if (h.in >= 0) { track.receive(net.edges[static_cast<std::size_t>(h.in)].from, h.in, value, grid.chunk); }
      if (h.out >= 0) track.send(net.edges[static_cast<std::size_t>(h.out)].to, h.out, value, grid.chunk);
    }
    plan.tracks.push_back(track.finish(grid.chunks, grid.chunk, grid.cut, in_flight));
  }
  detail::add_own_copies(plan, layout, number);
  return plan;
}

/// Gather, scatter and all-to-all with every pair's data sent directly in one way, whatever links there are.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule pairwise(const collective_call& call, const chunking& cut = {}) {
  const call_layout layout(call);
  if (call.kind != collective::gather && call.kind != collective::scatter && call.kind != collective::all_to_all) {
    throw std::invalid_argument("pairwise exchange is for gather, scatter and all-to-all");
  }
  schedule plan = detail::empty_schedule(call, cut);
  const std::vector<location> aside = detail::put_aside(plan, layout);
  // In the d-th turn every rank sends d ranks ahead, so that no rank has two messages to take.
  for (int d = 1; d < call.ranks; ++d) {
    for (int a = 0; a < call.ranks; ++a) {
      const int b = (a + d) % call.ranks;
      if ((call.kind == collective::gather && b != call.root) || (call.kind == collective::scatter && a != call.root)) {
        continue;
      }
      const int block = call.kind == collective::gather ? a : call.kind == collective::scatter ? b : a * call.ranks + b;
      const chunk_grid grid = equal_chunks(layout.count(block), cut.of(layout.count(block)), cut.grain);
      if (grid.chunks == 0) continue;
      location held = layout.held(a, block, layout.first(block));
      if (!aside.empty()) held = detail::moved(aside[static_cast<std::size_t>(a)], held.offset);
      track_builder track(d, aside.empty() ? 0 : 1);
      for (const int r : {std::min(a, b), std::max(a, b)}) {
        track.rank(r);
        if (r == a) {
          track.send(b, step::direct, held, grid.chunk);
        } else {
          track.receive(a, step::direct, layout.result(block, layout.first(block)), grid.chunk);
        }
      }
      plan.tracks.push_back(
          track.finish(grid.chunks, grid.chunk, grid.cut, cut.in_flight > 0 ? cut.in_flight : cut.credits + 2));
    }
  }
  detail::add_own_copies(plan, layout, call.ranks);
  return plan;
}

}  // namespace espalier::comm
