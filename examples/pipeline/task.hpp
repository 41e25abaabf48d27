// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/stages.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace pipeline_example {

namespace ep = espalier;
namespace pl = espalier::pipeline;

/// Stands for a step: samples that no step learns from.
inline constexpr std::int64_t held_out = -1;

/// A model to train and where its samples come from.
struct task {
  std::string title;
  std::unique_ptr<pl::layer_model> model;
  /// Writes sample `sample` of step `step`, or of those that are `held_out`, of the data called `name`.
  std::function<void(const std::string& name, std::int64_t step, int sample, std::byte* row)> fill;
  /// The loss if nothing was learned, in nats.
  double chance = 0;
};

/// The character-level GPT of examples/gpt, narrower, on the project's own text. Its mesh
/// number 0 is one device, number 1 are two that share each layer.
[[nodiscard]] task gpt_task(const pl::training_options& training, const std::string& root);
/// An encoder and a decoder of other width and depth, which writes a sequence backwards. All decoder blocks read what
/// the encoder has found, so it crosses stages.
[[nodiscard]] task reversal_task(const pl::training_options& training);

}  // namespace pipeline_example
