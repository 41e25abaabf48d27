// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/fraction.hpp>
#include <espalier/comm/schedule/from_trees.hpp>
#include <espalier/comm/schedule/split.hpp>
#include <espalier/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace espalier::comm {

/// One of several ways for the same data.
struct channel_cost {
  double rate = 0;     ///< bytes per second
  double startup = 0;  ///< seconds before the first byte
};

/// How many of `bytes` each channel takes so that all that take part end together: rate x max(0, end - startup) with
/// the end chosen so that nothing is left (reference/blink.md, 1.7; Blink section 4.3 for two channels).
/// @post the sum is `bytes`
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR std::vector<std::int64_t> split_over_channels(
    std::int64_t bytes, const std::vector<channel_cost>& channels, std::int64_t grain = 1) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    if (channels[i].rate > 0) order.push_back(i);
  }
  if (order.empty()) throw std::invalid_argument("no channel has a rate above zero");
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return channels[a].startup != channels[b].startup ? channels[a].startup < channels[b].startup : a < b;
  });
  // Channels join in the order of their start-up while the water stands above it.
  double rate = 0;
  double offset = 0;
  double end = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const channel_cost& c = channels[order[i]];
    if (i > 0 && end <= c.startup) break;
    rate += c.rate;
    offset += c.rate * c.startup;
    end = (static_cast<double>(bytes) + offset) / rate;
  }
  std::vector<double> weights;
  weights.reserve(channels.size());
  for (const channel_cost& c : channels) weights.push_back(c.rate > 0 ? c.rate * std::max(0.0, end - c.startup) : 0.0);
  if (bytes == 0) weights[order[0]] = 1;
  const std::vector<std::int64_t> cuts = proportional_cuts(bytes, weights, grain);
  std::vector<std::int64_t> shares;
  for (std::size_t i = 0; i < channels.size(); ++i) shares.push_back(cuts[i + 1] - cuts[i]);
  return shares;
}

/// Trees of several packings of one network that use different channels, which start after `startup` seconds each
/// (Blink's hybrid transfers): every packing gets the share with which all end together.
/// `bytes` is the size of the whole array.
[[nodiscard]] ESPALIER_CONSTEXPR_VECTOR schedule from_channels(const collective_call& call, const network& net,
                                                               const std::vector<packing>& channels,
                                                               const std::vector<double>& startup, std::int64_t bytes,
                                                               const chunking& cut = {}) {
  if (channels.size() != startup.size()) throw std::invalid_argument("channels need one start-up cost each");
  std::vector<channel_cost> costs;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    costs.push_back({to_double(channels[i].rate) * net.unit, startup[i]});
  }
  const std::vector<std::int64_t> shares = split_over_channels(bytes, costs);
  std::vector<tree> trees;
  std::vector<double> weights;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const double all = to_double(channels[i].rate);
    for (const tree& t : channels[i].trees) {
      if (shares[i] == 0) continue;
      trees.push_back(t);
      weights.push_back(static_cast<double>(shares[i]) * to_double(t.weight) / all);
    }
  }
  return from_trees(call, net, trees, weights, cut);
}

}  // namespace espalier::comm
