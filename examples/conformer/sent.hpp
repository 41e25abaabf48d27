// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/collectives_along.hpp"
#include "model.hpp"

#include <algorithm>
#include <cstdint>

/// What a device of a mesh of X x Y sends, counted by hand; there are as many stages as devices along x.
namespace conformer {

using pipelined::bytes_of_part;
using pipelined::bytes_of_reduce;
using pipelined::sends;
using pipelined::sent;

/// The bytes of a layer's weights: thirteen vectors and matrices of the feed-forward networks, attention and the
/// convolution.
inline constexpr std::int64_t layer_bytes = 4 * (12 * M + 4 * M * H + 4 * M * M + 2 * M * M + K * M + M * M);

/// Whether a program, with or without gradient, sends this and nothing else:
///
/// * Its input is brought to all stages, a Y-th of each micro-batch.
/// * Each iteration hands a micro-batch to the next stage, a Y-th of it on each device, in one exchange. After the loop
///   the last stage, which hands on nothing, gives the others their part of the batch. No weight moves.
/// * Backward the same in reverse: each device gives the last stage the gradient of its part, then each iteration hands
///   one to the stage before. (Nothing asks for the gradient of the input. `program::bytes` adds up the most of each
///   exchange if all shards are of one size. With the gradient they are not, since only the last stage needs the
///   batch's, and the figure is that of the device that sends most.)
/// * After the loop the gradients of all weights of a stage are summed over the recordings, in one message, and nothing
///   along x. The loss is summed over all.
template <class Program, class X, class Y> constexpr bool sends_as_by_hand(bool with_gradient) {
  constexpr std::int64_t stages = X::size;
  constexpr std::int64_t all =
      std::int64_t{4} * T * B * S * M / Y::size;  // all micro-batches on the devices of a stage
  constexpr std::int64_t iterations = T + stages - 1;
  constexpr std::int64_t handed_on = iterations * all / T;
  constexpr std::int64_t dealt_out = bytes_of_part(all, stages);
  constexpr std::int64_t given_back = all / stages;
  constexpr std::int64_t first = handed_on + given_back;
  constexpr std::int64_t inner = stages > 2 ? 2 * handed_on + given_back : 0;
  constexpr std::int64_t last = dealt_out + handed_on;
  const sent exchanges = with_gradient ? sent{2 * (iterations + 1), std::max({first, inner, last})}
                                       : sent{iterations + 1, handed_on + dealt_out};
  const sent of_weights = with_gradient ? sent{1, bytes_of_reduce(layer_bytes, Y::size)} : sent{};
  constexpr sent of_loss{1, bytes_of_reduce(4, stages * Y::size)};
  return sends<Program, ep::all_gather, X>() == sent{1, bytes_of_part(all, stages)} &&
         sends<Program, ep::exchange, X>() == exchanges && sends<Program, ep::all_reduce, X>() == of_loss &&
         sends<Program, ep::all_reduce, Y>() == of_weights + of_loss &&
         Program::collectives() == 1 + exchanges.count + of_weights.count + 1;
}

}  // namespace conformer
