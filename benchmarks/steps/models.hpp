// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../../examples/gpt/model.hpp"

#include <espalier/tensor/core/program/program.hpp>

namespace espalier::benchmarks {

/// The GPT of the row `gpt_step_vs_blas`.
using large_gpt = gpt::config<256, 512, 8, 4, 256, 8>;

/// The GPT that benchmarks/peers/torch_gpt.py trains: PyTorch's projections have biases, its Adam no weight decay.
struct small_gpt : gpt::config<1024, 256, 8, 2, 128, 16> {
  static constexpr bool attention_bias = true;
  static constexpr nn::adamw_settings optimizer{.weight_decay = 0};
};

template <class Mesh, class Config, class Layout>
using training_step = program<Mesh, gpt::train_step<Config, Layout>, donated<gpt::state<Config, spec>>,
                              typename Config::tokens, typename Config::tokens, typename Config::rate>;

}  // namespace espalier::benchmarks
