// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline.hpp>

#include <string>

namespace plan_example {

/// A translation model whose layers differ: an embedding that is large but quick, six encoder layers, six decoder
/// layers that read the encoder's output and take twice as long, and a projection to the vocabulary. Four samples of
/// 256 tokens, as on a device of 50 TFLOP/s.
[[nodiscard]] inline espalier::pipeline::profile built_in_profile() {
  constexpr double samples = 4;
  constexpr double tokens = samples * 256;
  constexpr double width = 1024;
  constexpr double vocabulary = 32000;
  constexpr double rate = 50e12;
  constexpr double bytes = 4;
  constexpr double stream = tokens * width * bytes;  // what one layer hands to the next
  espalier::pipeline::profile model{"encoder-decoder", samples, {}};
  const auto add = [&](const std::string& name, double parameters, double products, double kept, double output) {
    const double forward = 2 * products * tokens / rate;  // a product of every token with each of them
    model.layers.push_back({name, forward, products > 0 ? forward : 0, forward, kept, parameters * bytes, output});
  };
  add("embedding", vocabulary * width, 0, stream, stream);
  for (int k = 0; k < 6; ++k)
    add("encoder " + std::to_string(k), 12 * width * width, 12 * width * width, 14 * stream, stream);
  for (int k = 0; k < 6; ++k)
    add("decoder " + std::to_string(k), 16 * width * width, 24 * width * width, 24 * stream,
        k == 5 ? stream : 2 * stream);
  add("vocabulary", vocabulary * width, vocabulary * width, tokens * vocabulary * bytes, 0);
  return model;
}

}  // namespace plan_example
