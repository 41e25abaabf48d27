// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace espalier::benchmarks {

/// A model of layers, and the samples that it is trained on.
struct layers_to_train {
  std::unique_ptr<pipeline::layer_model> model;
  int samples = 16;     ///< of a step
  int micro_batch = 2;  ///< of them, one of the numbers that the layers are compiled for
  /// The layers at which an equal split into so many stages begins.
  std::function<std::vector<int>(int stages)> equal_split;
  /// Writes sample `sample` of step `step` of a data.
  std::function<void(const std::string& name, std::int64_t step, int sample, std::byte* row)> fill;
  /// Gives an engine's parameters the values that the peer starts with, if there is a peer.
  std::function<void(pipeline::engine& engine)> start;
};

/// Eight blocks of width 256 over 128 tokens, embedding and head: what benchmarks/peers/pipeline/torch_pipeline.py
/// trains.
[[nodiscard]] layers_to_train pipelined_gpt();
/// Six pairs of products, and six that cost three times as much.
[[nodiscard]] layers_to_train uneven_layers();
/// Layers that take microseconds, so that a step is what the runtime does around them.
[[nodiscard]] layers_to_train tiny_layers();

}  // namespace espalier::benchmarks
