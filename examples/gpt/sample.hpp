// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "corpus.hpp"
#include "trainer.hpp"

#include <espalier/nn.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

/// Draws a symbol from softmax(logits / temperature); `random` is uniform in (0, 1).
[[nodiscard]] inline std::int32_t draw(const float* logits, int symbols, double temperature, double random) {
  const float highest = *std::max_element(logits, logits + symbols);
  const auto weight = [&](int k) { return std::exp(static_cast<double>(logits[k] - highest) / temperature); };
  double total = 0;
  for (int k = 0; k < symbols; ++k) total += weight(k);
  double rest = random * total;
  for (int k = 0; k + 1 < symbols; ++k) {
    rest -= weight(k);
    if (rest < 0) return k;
  }
  return symbols - 1;
}

/// Continues `prompt` by `length` characters. Each comes from a whole forward pass over the last `context` characters.
[[nodiscard]] inline std::string generate(ep::world& where, const model_parameters<ep::arrays>& parameters,
                                          const vocabulary& symbols, const std::string& prompt, std::int64_t length,
                                          double temperature, std::uint64_t seed) {
  constexpr std::int64_t context = settings::context;
  ep::runner<sampling_program> predict(where);
  const auto tokens = predict.argument<1>();
  std::vector<std::int32_t> text = symbols.encode(prompt);
  const auto given = static_cast<std::int64_t>(text.size());
  while (static_cast<std::int64_t>(text.size()) < given + length) {
    const auto size = static_cast<std::int64_t>(text.size());
    const std::int64_t begin = std::max<std::int64_t>(0, size - context);
    // The tokens after the text's end do not matter: attention is causal.
    fill(tokens,
         [&](std::int64_t index) { return begin + index < size ? text[static_cast<std::size_t>(begin + index)] : 0; });
    const auto logits = ep::gather(where, predict(parameters, tokens));  // [1, context, vocabulary]
    const float* const last = logits.data() + (size - 1 - begin) * settings::vocabulary;
    const double random = ep::nn::uniform_at(seed, 0xFFFFU, static_cast<std::uint64_t>(size))[0];
    text.push_back(draw(last, symbols.size(), temperature, random));
  }
  return symbols.decode(text);
}

}  // namespace gpt
