// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/simulate.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

/// The cost of messages over one hop. A message occupies its way for `overhead` + bytes / `rate`, and is there
/// `latency` later.
struct hop_cost {
  double latency = 0;   ///< seconds
  double overhead = 0;  ///< seconds
  double rate = 0;      ///< bytes per second
};

/// Sizes that messages may have.
struct chunk_limits {
  std::int64_t least = 1024;    ///< bytes
  std::int64_t most = 4 << 20;  ///< bytes
  /// Bytes from which the transport asks the receiver first; 0: none known. Chunks stay below 3/4 of it or at twice it
  /// and above: right there Open MPI's TCP transport reaches half its rate (reference/blink.md, 2.1).
  std::int64_t eager = 0;
  int credits = 4;  ///< per stream: so many chunks must cover a round trip
};

/// A chunk size and what it is expected to cost.
struct chunk_price {
  std::int64_t bytes = 0;
  double seconds = 0;
};

/// Seconds that `bytes` take down `depth` hops in chunks of `chunk` bytes: each hop's latency once, and the time of one
/// chunk for every hop and every further chunk (reference/blink.md, 2.4). With `credits`, no more chunks than that are
/// sent per round trip.
[[nodiscard]] constexpr double pipelined_seconds(double bytes, double depth, double chunk, const hop_cost& hop,
                                                 int credits = 0) {
  if (bytes <= 0 || depth <= 0) return 0;
  const double size = std::min(chunk, bytes);
  const double chunks = bytes / size;
  const double one = hop.overhead + size / hop.rate;
  const double round_trip = credits > 0 ? (2 * hop.latency + one) / credits : 0;
  return depth * (hop.latency + one) + (chunks - 1) * std::max(one, round_trip);
}

/// The chunk size with the least `pipelined_seconds` that the limits allow: near sqrt(bytes x rate x overhead / depth).
[[nodiscard]] constexpr chunk_price best_chunk(std::int64_t bytes, int depth, const hop_cost& hop,
                                               const chunk_limits& limits = {}) {
  const auto all = static_cast<double>(bytes);
  const double hops = std::max(depth, 1);
  const auto price = [&](double chunk) { return pipelined_seconds(all, hops, chunk, hop); };
  // Newton's square root: the library's is no constant expression.
  const auto root = [](double x) {
    if (x <= 0) return 0.0;
    double guess = x > 1 ? x : 1;
    for (int i = 0; i < 60; ++i) guess = (guess + x / guess) / 2;
    return guess;
  };
  const double covers = 2 * (hop.latency + hop.overhead) * hop.rate / std::max(1, limits.credits);
  const double least = std::max(static_cast<double>(limits.least), covers);
  const double most = std::max(least, static_cast<double>(limits.most));
  double chunk = hops > 1 ? root(all * hop.rate * hop.overhead / (hops - 1)) : all;
  chunk = std::clamp(chunk, least, most);
  const double low = static_cast<double>(limits.eager) * 0.75;
  const double high = static_cast<double>(limits.eager) * 2;
  if (chunk > low && chunk < high) {
    const bool below = static_cast<double>(limits.least) <= low;
    const bool above = high <= static_cast<double>(limits.most);
    if (below && (!above || price(low) <= price(high))) {
      chunk = low;
    } else if (above) {
      chunk = high;
    }
  }
  const auto whole = static_cast<std::int64_t>(chunk);
  return {std::max<std::int64_t>(1, std::min(whole, std::max<std::int64_t>(bytes, 1))), price(chunk)};
}

/// Hops and latency of the longest way through a tree, in the directions that a collective uses.
struct tree_depth {
  int hops = 0;
  double latency = 0;
};

[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR tree_depth depth_of(const network& net, const tree& t, collective what) {
  tree_depth all;
  for (const direction way : {direction::to_root, direction::from_root}) {
    const bool used = way == direction::to_root ? reduces(what) : !reduces(what) || what == collective::all_reduce;
    if (!used) continue;
    const rooted_tree read = read_tree(net, t, way);
    tree_depth longest;
    for (std::size_t r = 0; r < read.parent.size(); ++r) {
      double latency = 0;
      for (std::size_t at = r; read.parent[at] >= 0; at = static_cast<std::size_t>(read.parent[at])) {
        latency += net.edges[static_cast<std::size_t>(read.edge[at])].latency;
      }
      longest.hops = std::max(longest.hops, read.depth[r]);
      longest.latency = std::max(longest.latency, latency);
    }
    all.hops += longest.hops;
    all.latency += longest.latency;
  }
  return all;
}

/// The best chunk size for trees that share `bytes` (of the whole array) at their weights, and how long the slowest
/// tree then takes. `overhead` is what a message costs beside its bytes; `pieces` and `least` (here in bytes) as in
/// `chunking`.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR chunk_price price_trees(const network& net, const std::vector<tree>& trees,
                                                                collective what, std::int64_t bytes, double overhead,
                                                                const chunk_limits& limits = {},
                                                                std::int64_t pieces = 1) {
  struct share {
    double bytes;
    double depth;
    hop_cost hop;
    double first_rate;  // of a tree's first chunk: not held up by its own pace, but by those of other trees
  };
  // Weights add up to the rate; of all-gather and its like they do so block by block, and blocks are moved at once.
  double total = 0;
  for (const tree& t : trees) total += to_double(t.weight);
  if (total <= 0) throw std::invalid_argument("trees without weight have no price");
  std::vector<share> shares;
  for (const tree& t : trees) {
    const double weight = to_double(t.weight);
    const tree_depth depth = depth_of(net, t, what);
    // Even one hop pays for its chunk, where trees share the hops before and after it.
    const int hops = std::max(2, depth.hops);
    shares.push_back({static_cast<double>(bytes) * weight / total,
                      static_cast<double>(hops),
                      {depth.latency / hops, overhead, weight * net.unit},
                      std::max(weight, total / static_cast<double>(trees.size())) * net.unit});
  }
  const auto seconds = [&](double chunk) {
    double slowest = 0;
    for (const share& s : shares) {
      const double size =
          std::min(chunk, std::max(static_cast<double>(limits.least), s.bytes / static_cast<double>(pieces)));
      const double held_up = s.depth * std::min(size, s.bytes) * (1 / s.hop.rate - 1 / s.first_rate);
      slowest = std::max(slowest, pipelined_seconds(s.bytes, s.depth, size, s.hop, limits.credits) - held_up);
    }
    return slowest;
  };
  chunk_price best;
  const auto most = std::max(limits.least, std::min(limits.most, bytes));
  for (std::int64_t chunk = std::max<std::int64_t>(1, limits.least);;) {
    const bool near_eager = limits.eager > 0 && chunk > limits.eager * 3 / 4 && chunk < 2 * limits.eager;
    const auto here = seconds(static_cast<double>(chunk));
    if (!near_eager && (best.bytes == 0 || here < best.seconds)) best = {chunk, here};
    if (chunk >= most) break;
    chunk = std::min(most, chunk + std::max<std::int64_t>(1, chunk / 4));
  }
  if (best.bytes == 0) best = {limits.least, seconds(static_cast<double>(limits.least))};
  return best;
}

/// A call of the collective that a packing is for, on an array of `elements`, cut into blocks as equal as can be.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR collective_call call_for(const network& net, const packing& trees,
                                                                 std::int64_t elements) {
  collective_call call = uniform_call(trees.kind, net.ranks, elements);
  if (has_root(call.kind)) call.root = trees.root;
  if (!has_blocks(call.kind)) return call;
  for (int b = 0; b < net.ranks; ++b) {
    call.counts[static_cast<std::size_t>(b)] = elements / net.ranks + (b < elements % net.ranks ? 1 : 0);
  }
  return call;
}

/// The schedule of a packing for an array of `bytes` bytes, where messages cost nothing beside their bytes: chunks so
/// small that filling the pipeline takes no more than 1 / `fill` of the time.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule pipelined_schedule(const network& net, const packing& trees,
                                                                    std::int64_t bytes, std::int64_t fill = 60) {
  const collective_call call = call_for(net, trees, bytes);
  chunking cut;
  cut.element_bytes = 1;
  if (net.ranks > 1 && bytes > 0) {
    int depth = 1;
    for (const tree& t : trees.trees) depth = std::max(depth, depth_of(net, t, call.kind).hops);
    cut.pieces = fill * depth;
    chunk_limits limits;
    limits.credits = cut.credits;
    limits.least = std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(trees.trees.size()) / cut.pieces);
    cut.least = std::max<std::int64_t>(1, limits.least / 16);
    cut.elements = price_trees(net, trees.trees, call.kind, bytes, 0, limits, cut.pieces).bytes;
  }
  return from_trees(call, net, trees.trees, cut);
}

/// Seconds that an array of `bytes` bytes takes along a packing's trees, by simulation of its pipelined schedule.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR double simulated_seconds(const network& net, const packing& trees,
                                                                 std::int64_t bytes) {
  simulation_options options;
  options.element_bytes = 1;
  return simulate(pipelined_schedule(net, trees, bytes), net, options).seconds;
}

}  // namespace espalier::comm
