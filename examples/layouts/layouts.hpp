// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <espalier/core.hpp>

#include <cstdint>

/// Five layouts of the model on one mesh, and what each sends in a step of training, counted by hand.
namespace layouts {

struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 4> {};
using mesh = ep::mesh<x, y>;
using ep::none;
using ep::shard;

/// Annotates nothing. Layouts derive from it and say what they place.
struct as_it_is {
  static constexpr auto mnd(const auto& weight) { return weight; }
  static constexpr auto ndm(const auto& weight) { return weight; }
  static constexpr auto mh(const auto& weight) { return weight; }
  static constexpr auto hm(const auto& weight) { return weight; }
  static constexpr auto bsm(const auto& v) { return v; }
  static constexpr auto bsnd(const auto& v) { return v; }
  static constexpr auto bsh(const auto& v) { return v; }
};

/// Each device has some rows of the batch, and all weights.
struct data_parallel : as_it_is {
  static constexpr auto bsm(const auto& v) { return shard<ep::axes<x, y>, none, none>(v); }
};
/// Each device has some heads and some hidden units, and their weights (Megatron-LM, arXiv 1909.08053).
struct model_parallel : as_it_is {
  static constexpr auto bsm(const auto& v) { return shard<none, none, none>(v); }
  static constexpr auto bsnd(const auto& v) { return shard<none, none, ep::axes<x, y>, none>(v); }
  static constexpr auto bsh(const auto& v) { return shard<none, none, ep::axes<x, y>>(v); }
};

/// What the paper's three layouts in two dimensions (its Table 1) have in common: the weights are split over all
/// devices.
struct two_dimensions : as_it_is {
  static constexpr auto mnd(const auto& weight) { return shard<x, y, none>(weight); }
  static constexpr auto ndm(const auto& weight) { return shard<y, none, x>(weight); }
  static constexpr auto mh(const auto& weight) { return shard<x, y>(weight); }
  static constexpr auto hm(const auto& weight) { return shard<y, x>(weight); }
};
/// No weight moves. What lives long is split over one axis only.
struct attempt_1 : two_dimensions {
  static constexpr auto bsm(const auto& v) { return shard<none, none, x>(v); }
  static constexpr auto bsnd(const auto& v) { return shard<none, none, y, none>(v); }
  static constexpr auto bsh(const auto& v) { return shard<none, none, y>(v); }
};
/// The batch over x: weights are gathered along x when they are needed.
struct attempt_2 : two_dimensions {
  static constexpr auto bsm(const auto& v) { return shard<x, none, none>(v); }
  static constexpr auto bsnd(const auto& v) { return shard<x, none, y, none>(v); }
  static constexpr auto bsh(const auto& v) { return shard<x, none, y>(v); }
};
/// The same, and the residual stream is split over y as well: gathered before a product, and scattered after it, in
/// place of the sum.
struct finalized : attempt_2 {
  static constexpr auto bsm(const auto& v) { return shard<x, none, y>(v); }
};

// The bytes that a device sends in a step, by hand. An all-gather to n bytes over d devices, and a reduce-scatter of n
// bytes, send n (d - 1) / d; an all-reduce is one after the other. Where its elements cannot be divided equally, the
// device with one more sends most: all others' elements in the first half, and its own to all others in the second.
inline constexpr std::int64_t X = 2;
inline constexpr std::int64_t Y = 4;
constexpr std::int64_t gather(std::int64_t bytes, std::int64_t devices) { return bytes / devices * (devices - 1); }
constexpr std::int64_t scatter(std::int64_t bytes, std::int64_t devices) { return gather(bytes, devices); }
constexpr std::int64_t reduce(std::int64_t bytes, std::int64_t devices) {
  const std::int64_t elements = bytes / 4;
  const std::int64_t own = (elements + devices - 1) / devices;
  return 4 * (elements - own + own * (devices - 1));
}

// The bytes of whole tensors: the residual stream; queries, or keys, or values; hidden units; one number for each row,
// of which a norm has the mean square; of a layer, weights and gains; and the loss.
inline constexpr std::int64_t residual = 4 * B * S * M;
inline constexpr std::int64_t heads = 4 * B * S * N * D;
inline constexpr std::int64_t hidden = 4 * B * S * H;
inline constexpr std::int64_t rows = 4 * B * S;
inline constexpr std::int64_t weights = 4 * (4 * M * N * D + 2 * M * H);
inline constexpr std::int64_t gains = 4 * 2 * M;
inline constexpr std::int64_t one = 4;
inline constexpr std::int64_t L = layer_count;

/// The collectives of a step by kind, what a device sends in them, and its arguments: weights, x and target.
struct figures {
  std::int64_t all_reduces = 0;
  std::int64_t all_gathers = 0;
  std::int64_t reduce_scatters = 0;
  std::int64_t bytes = 0;
  std::int64_t argument_bytes = 0;

  constexpr bool operator==(const figures&) const = default;
};
template <class Program> [[nodiscard]] constexpr figures figures_of() {
  return {Program::template collectives<ep::all_reduce>(), Program::template collectives<ep::all_gather>(),
          Program::template collectives<ep::reduce_scatter>(),
          Program::template bytes<ep::all_reduce>() + Program::template bytes<ep::all_gather>() +
              Program::template bytes<ep::reduce_scatter>(),
          Program::argument_bytes()};
}
/// And nothing else moves.
template <class Program> [[nodiscard]] constexpr bool has_figures(const figures& expected) {
  const figures found = figures_of<Program>();
  return found == expected && Program::collectives() == found.all_reduces + found.all_gathers + found.reduce_scatters;
}

// Nothing moves in a layer. After the loop the gradients of the six stacked weights are summed, each large enough for a
// message of its own, and in one more those of the gains with the loss.
using data_parallel_step = training<mesh, data_parallel>;
static_assert(has_figures<data_parallel_step>({
    .all_reduces = 6 + 1,
    .bytes = reduce(L * (weights + gains) + one, X* Y),
    .argument_bytes = L * (weights + gains) + 2 * residual / (X * Y),
}));

// Attention and feed-forward network each end with a sum over heads or hidden units; so do, backward, the gradients of
// what they begin with.
using model_parallel_step = training<mesh, model_parallel>;
static_assert(has_figures<model_parallel_step>({
    .all_reduces = L * 4,
    .bytes = L * 4 * reduce(residual, X* Y),
    .argument_bytes = L * (weights / (X * Y) + gains) + 2 * residual,
}));

// Forward: query, key, value and hidden units are sums over M, which is split by x; the two terms of the residual
// stream are sums over heads and hidden units, split by y. Backward: likewise the gradients of hidden units and of
// attention's result, over x; and of what the projections of attention, and `up`, read, over y. (Those of query, key
// and value are summed before they move.) Each norm sums squares over x, and so does its gradient.
using attempt_1_step = training<mesh, attempt_1>;
static_assert(has_figures<attempt_1_step>({
    .all_reduces = L * (6 + 4 + 4) + 1,
    .bytes = L * (4 * reduce(heads / Y, X) + 2 * reduce(hidden / Y, X) + 4 * reduce(residual / X, Y) +
                  4 * reduce(rows, X)) +
             reduce(one, X),
    .argument_bytes = L * (weights / (X * Y) + gains / X) + 2 * residual / X,
}));

// Six weights are gathered along x, those of attention in one message, and again for the gradient, which is scattered
// along x in as many messages. The residual stream and its gradient are summed over y as in Megatron's layout. After
// the loop, the gradients of the gains and the loss are summed over the batch.
using attempt_2_step = training<mesh, attempt_2>;
static_assert(has_figures<attempt_2_step>({
    .all_reduces = L * 4 + 1,
    .all_gathers = L * 6,
    .reduce_scatters = L * 3,
    .bytes = L * (2 * gather(weights / Y, X) + scatter(weights / Y, X) + 4 * reduce(residual / X, Y)) +
             reduce(L * gains + one, X),
    .argument_bytes = L * (weights / (X * Y) + gains) + 2 * residual / X,
}));

// Each of attempt 2's four sums over y is an all-gather before and a reduce-scatter after. Backward, two more
// all-gathers bring the operands of attention and of `up` again, of which only shards were kept: that is the price of
// less memory. Each norm sums squares over y, and so does its gradient. The loss is summed over all devices.
using finalized_step = training<mesh, finalized>;
static_assert(has_figures<finalized_step>({
    .all_reduces = L * 4 + 2,
    .all_gathers = L * (6 + 4 + 2),
    .reduce_scatters = L * (3 + 4),
    .bytes = L * (2 * gather(weights / Y, X) + scatter(weights / Y, X) + 6 * gather(residual / X, Y) +
                  4 * scatter(residual / X, Y) + 4 * reduce(rows / X, Y)) +
             reduce(L * gains / Y, X) + reduce(one, X* Y),
    .argument_bytes = L * (weights / (X * Y) + gains / Y) + 2 * residual / (X * Y),
}));

// The order of the paper: each attempt in two dimensions takes less memory than the one before, the last less than half
// of what one dimension takes.
static_assert(finalized_step::peak_bytes_per_device() < attempt_2_step::peak_bytes_per_device());
static_assert(attempt_2_step::peak_bytes_per_device() < attempt_1_step::peak_bytes_per_device());
static_assert(finalized_step::peak_bytes_per_device() < data_parallel_step::peak_bytes_per_device() / 2);
static_assert(finalized_step::peak_bytes_per_device() < model_parallel_step::peak_bytes_per_device() / 2);

}  // namespace layouts
