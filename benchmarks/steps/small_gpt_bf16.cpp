// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "compiled_step.hpp"

namespace espalier::benchmarks {

namespace {

/// `gpt::train_step`, forward and gradient in bf16; parameters, moments and the update in f32.
struct bf16_train_step {
  constexpr auto operator()(const auto& state, const auto& tokens, const auto& targets, const auto& rate) const {
    const auto [value, gradient] =
        value_and_grad(mixed<f32, bf16>(gpt::loss<small_gpt>{}))(state.parameters, tokens, targets);
    return results(nn::adamw_step(state, gradient, rate, small_gpt::optimizer), value);
  }
};
using bf16_step = program<mesh<>, bf16_train_step, donated<gpt::state<small_gpt, spec>>, small_gpt::tokens,
                          small_gpt::tokens, small_gpt::rate>;

}  // namespace

std::unique_ptr<gpt_step> make_small_gpt_bf16(world& where) {
  return std::make_unique<compiled_step<bf16_step, small_gpt>>(where);
}

}  // namespace espalier::benchmarks
