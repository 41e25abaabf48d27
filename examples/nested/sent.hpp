// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/collectives_along.hpp"
#include "model.hpp"

#include <cstdint>

/// What a device of a mesh of X x Y sends, counted by hand; there are as many stages as devices along x.
namespace nested {

using pipelined::bytes_of_part;
using pipelined::bytes_of_reduce;
using pipelined::sends;
using pipelined::sent;

struct by_hand {
  std::int64_t X;
  std::int64_t Y;

  /// All micro-batches, and one of them; one number for each token; what all experts take of a micro-batch.
  static constexpr std::int64_t all = std::int64_t{4} * T * B * S * M;
  static constexpr std::int64_t one = all / T;
  static constexpr std::int64_t tokens = all / M;
  static constexpr std::int64_t taken = std::int64_t{4} * E * B * C * M;
  [[nodiscard]] constexpr std::int64_t iterations() const { return T + X - 1; }

  // --- forward ------------------------------------------------------------------------------------------------------

  /// Each iteration of both loops hands a micro-batch to the next stage, a Y-th of it on each device. After each loop
  /// the last stage, which hands on nothing, gives the others their part of the batch. Backward the same in reverse:
  /// each device gives the last stage the gradient of its part, then each iteration hands one to the stage before.
  /// (`program::bytes` adds up the most of each exchange if all shards are of one size. With the gradient they are not,
  /// since only the last stage needs the batch's, and the figure is that of the device that sends most.)
  [[nodiscard]] constexpr sent exchanges(bool with_gradient) const {
    const std::int64_t handed_on = 2 * iterations() * one / Y;
    const std::int64_t dealt_out = 2 * bytes_of_part(all / Y, X);
    const std::int64_t given_back = 2 * all / (X * Y);
    if (!with_gradient) return {2 * iterations() + 2, handed_on + dealt_out};
    const std::int64_t first = handed_on + given_back;
    const std::int64_t inner = X > 2 ? handed_on + handed_on + given_back : 0;
    const std::int64_t last = dealt_out + handed_on;
    return {2 * (2 * iterations() + 2), larger(larger(first, inner), last)};
  }
  static constexpr std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
  /// The encoder's tokens travel to their experts and back.
  [[nodiscard]] constexpr sent all_to_alls() const {
    return {2 * iterations(), 2 * iterations() * bytes_of_part(taken / Y, Y)};
  }
  /// Both lookups are sums over y, scattered over the texts.
  [[nodiscard]] constexpr sent reduce_scatters_y() const { return {2, 2 * bytes_of_part(all / X, Y)}; }
  /// Both pipelines' inputs, and what the decoder's stages read, are brought to all stages.
  [[nodiscard]] constexpr sent all_gathers_x() const { return {3, 3 * bytes_of_part(all / Y, X)}; }
  /// The last product needs each text on all parts of the vocabulary.
  [[nodiscard]] constexpr sent all_gathers_y() const { return {1, bytes_of_part(all / X, Y)}; }
  /// Of each token the largest logit; then the sum of the exponentials and the wanted word's logit in one message.
  [[nodiscard]] constexpr sent all_reduces_y() const {
    return {2, bytes_of_reduce(tokens / X, Y) + bytes_of_reduce(2 * tokens / X, Y)};
  }
  [[nodiscard]] constexpr sent all_reduces_x() const { return {1, bytes_of_reduce(4, X)}; }

  // --- backward, besides --------------------------------------------------------------------------------------------

  [[nodiscard]] constexpr sent all_to_alls_back() const { return all_to_alls(); }
  /// What was gathered is scattered. Nothing is summed within a loop.
  [[nodiscard]] constexpr sent reduce_scatters_x_back() const { return all_gathers_x(); }
  [[nodiscard]] constexpr sent reduce_scatters_y_back() const { return all_gathers_y(); }
  [[nodiscard]] constexpr sent all_gathers_y_back() const { return reduce_scatters_y(); }
  /// The three gradients of a device's words are added before they are summed over the batch, once.
  [[nodiscard]] constexpr sent all_reduces_x_back() const { return {1, bytes_of_reduce(4 * V / Y * M, X)}; }
  /// After both loops the gradients of all dense weights of a stage are summed over the texts in one message. Those of
  /// the experts need no collective, and no weight of a stage needs one along x.
  [[nodiscard]] constexpr sent all_reduces_y_back() const {
    constexpr std::int64_t encoder = M + M * M + M * E;
    constexpr std::int64_t decoder = M + M * M + 2 * M * H;
    return {1, bytes_of_reduce(4 * (encoder + decoder), Y)};
  }
};

/// Whether a program, with or without gradient, sends what is said above, and nothing else.
template <class Program, class X, class Y> constexpr bool sends_as_by_hand(bool with_gradient) {
  constexpr by_hand h{X::size, Y::size};
  const auto forward_and = [&](const sent& forward, const sent& backward) {
    return with_gradient ? forward + backward : forward;
  };
  const sent none{};
  const sent exchanges = h.exchanges(with_gradient);
  const sent all_to_alls = forward_and(h.all_to_alls(), h.all_to_alls_back());
  const sent gathers_y = forward_and(h.all_gathers_y(), h.all_gathers_y_back());
  const sent scatters_x = forward_and(none, h.reduce_scatters_x_back());
  const sent scatters_y = forward_and(h.reduce_scatters_y(), h.reduce_scatters_y_back());
  const sent reduces_x = forward_and(h.all_reduces_x(), h.all_reduces_x_back());
  const sent reduces_y = forward_and(h.all_reduces_y(), h.all_reduces_y_back());
  const std::int64_t count = exchanges.count + all_to_alls.count + h.all_gathers_x().count + gathers_y.count +
                             scatters_x.count + scatters_y.count + reduces_x.count + reduces_y.count;
  return sends<Program, ep::exchange, X>() == exchanges && sends<Program, ep::all_to_all, Y>() == all_to_alls &&
         sends<Program, ep::all_gather, X>() == h.all_gathers_x() && sends<Program, ep::all_gather, Y>() == gathers_y &&
         sends<Program, ep::reduce_scatter, X>() == scatters_x &&
         sends<Program, ep::reduce_scatter, Y>() == scatters_y && sends<Program, ep::all_reduce, X>() == reduces_x &&
         sends<Program, ep::all_reduce, Y>() == reduces_y && Program::collectives() == count;
}

}  // namespace nested
