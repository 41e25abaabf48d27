// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <espalier/core.hpp>

// A program is compiled for its sizes. `examples/run --width 256` sets these and builds again.
#ifndef GPT_WIDTH
#define GPT_WIDTH 192
#endif
#ifndef GPT_HEADS
#define GPT_HEADS 6
#endif
#ifndef GPT_LAYERS
#define GPT_LAYERS 4
#endif
#ifndef GPT_CONTEXT
#define GPT_CONTEXT 96
#endif
#ifndef GPT_BATCH
#define GPT_BATCH 8
#endif
#ifndef GPT_VOCABULARY
#define GPT_VOCABULARY 128
#endif
#ifndef GPT_DATA
#define GPT_DATA 2
#endif
#ifndef GPT_MODEL
#define GPT_MODEL 2
#endif

namespace gpt {

struct data : ep::axis<"data", GPT_DATA> {};
struct model : ep::axis<"model", GPT_MODEL> {};
using mesh = ep::mesh<data, model>;

/// The model that this program trains.
struct settings : config<GPT_VOCABULARY, GPT_WIDTH, GPT_HEADS, GPT_LAYERS, GPT_CONTEXT, GPT_BATCH> {
  /// If a step has few tokens, a shorter memory of squared gradients learns faster.
  static constexpr ep::nn::adamw_settings optimizer{.beta2 = 0.99, .weight_decay = 0.1};
  /// GPT-2's 0.02 belongs to widths of 768 and more: a narrow model starts faster from larger numbers.
  static constexpr double start = 0.06;
};
using placement = megatron<data, model>;

template <class Leaf> using model_state = state<settings, Leaf>;
template <class Leaf> using model_parameters = parameters<settings, Leaf>;

/// (state, tokens, targets, learning rate) -> (next state, loss)
using training_program = ep::program<mesh, train_step<settings, placement>, ep::donated<model_state<ep::spec>>,
                                     settings::tokens, settings::tokens, settings::rate>;
/// (parameters, tokens, targets) -> loss, for held-out text
using evaluation_program =
    ep::program<mesh, loss<settings, placement>, model_parameters<ep::spec>, settings::tokens, settings::tokens>;
/// (parameters, tokens) -> logits, for one text at a time
using sampling_program =
    ep::program<mesh, forward<settings, placement>, model_parameters<ep::spec>, ep::i32<1, settings::context>>;

inline constexpr std::int64_t tokens_per_step = std::int64_t{settings::batch} * settings::context;

/// How many parameters the model has.
[[nodiscard]] constexpr std::int64_t parameter_count() {
  std::int64_t count = 0;
  const model_parameters<ep::spec> tree{};
  ep::detail::for_each_leaf(tree,
                            [&](const auto& leaf) { count += std::remove_cvref_t<decltype(leaf)>::shape.elements(); });
  return count;
}

/// Floating-point operations of a training step per token, as is customary: 6 per parameter, and in attention, forward
/// and twice that backward, a multiplication and an addition per element of queries times keys and of weights times
/// values, of which the causal half counts.
[[nodiscard]] constexpr double flops_per_token() {
  return 6.0 * static_cast<double>(parameter_count()) + 6.0 * settings::layers * settings::context * settings::width;
}

}  // namespace gpt
