// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>

/// Parts that examples of pipelines share.
namespace pipelined {

/// A pipeline of L stages as one program (GSPMD, arXiv 2105.04663, section 3.3): a buffer has a place for each stage,
/// split over Stage. In each iteration every stage computes on what the stage before it computed in the last one, and
/// the first on the next micro-batch; until the buffer is full, stages compute what nothing reads.
///
///     shifting_buffer<4, x, y>([&](auto state, auto t) { return ep::vmap(layer)(state, weights); }, inputs)
///
/// @param stages (state, t) -> next state: all stages in iteration t, state [L, B, S, M] with B split over Split
/// @param inputs [T, B, S, M], T micro-batches that all stages have
/// @return the same of the last stage, [T, B, S, M]
template <int L, class Stage, class Split, class Stages, class Inputs>
constexpr auto shifting_buffer(const Stages& stages, const Inputs& inputs) {
  namespace ep = espalier;
  constexpr auto extent = [](int d) { return static_cast<int>(Inputs::shape[d]); };
  constexpr int T = extent(0), B = extent(1), S = extent(2), M = extent(3);
  constexpr int iterations = T + L - 1;
  const auto buffer = [](const auto& v) { return ep::shard<Stage, Split, ep::none, ep::none>(v); };
  const auto is_first = ep::iota<ep::i32<L, B, S, M>, 0>(inputs) == 0;
  const auto iteration = [&](auto state, auto given) {
    const auto [input, t] = given;
    const auto fed = ep::select(is_first, ep::broadcast_to<L, B, S, M>(input), ep::shift<0, 1>(state));
    const auto next = buffer(stages(fed, t));
    return ep::results(next, next);
  };
  const auto empty = buffer(ep::constant<ep::f32<L, B, S, M>>(inputs, 0));
  const auto fed = ep::results(ep::pad<0, 0, L - 1>(inputs), ep::iota<ep::i32<iterations>, 0>(inputs));
  const auto all = ep::scan(iteration, empty, fed).template get<1>();
  return ep::take<1, -1>(ep::slice<0, L - 1, iterations>(all));
}

}  // namespace pipelined
