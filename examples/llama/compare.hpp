// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "language_model.hpp"

#include <espalier/io.hpp>
#include <espalier/runner.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace llama {

/// How far a model's logits are from those that another implementation computed.
struct comparison {
  int tokens = 0;
  double largest = 0;     ///< difference of a logit, tokens read one by one
  double in_chunks = 0;   ///< the same after the last token, all read at once
  int same_tokens = 0;    ///< of the continuation, chosen greedily by this model
  int greedy_tokens = 0;  ///< and how many there are
  [[nodiscard]] bool agree() const { return largest <= 1e-4 && in_chunks <= 1e-4 && same_tokens == greedy_tokens; }
};

/// The likeliest token.
[[nodiscard]] inline std::int32_t best_of(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Compares with a file of `tokens` [n], of which the first `prompt` [1] were given and the others chosen greedily, and
/// `logits` [n - 1, vocabulary]. Collective. Errors: `checkpoint_error`.
[[nodiscard]] inline comparison compare(espalier::world& where, language_model& model, int vocabulary,
                                        const std::filesystem::path& file) {
  std::vector<std::int32_t> tokens;
  std::vector<float> expected;
  std::int32_t prompt = 0;
  espalier::together(where, [&] {
    const espalier::io::safetensors_reader reader(file);
    const auto* const listed = reader.find("tokens");
    const std::int64_t count = listed != nullptr && listed->shape.size() == 1 ? listed->shape[0] : 0;
    const espalier::io::tensor_spec specs[]{{"tokens", espalier::dtype::i32, {count}},
                                            {"logits", espalier::dtype::f32, {count - 1, vocabulary}},
                                            {"prompt", espalier::dtype::i32, {1}}};
    espalier::io::check_matches(reader, specs);
    tokens.resize(static_cast<std::size_t>(count));
    expected.resize(static_cast<std::size_t>((count - 1) * vocabulary));
    reader.read("tokens", tokens.data());
    reader.read("logits", expected.data());
    reader.read("prompt", &prompt);
    if (prompt < 1 || prompt >= count) {
      throw espalier::io::checkpoint_error(file, "a prompt of " + std::to_string(prompt) + " tokens",
                                           "1 to " + std::to_string(count - 1), "write the file again");
    }
  });
  comparison found;
  found.tokens = static_cast<int>(tokens.size());
  const auto difference = [&](const std::vector<float>& logits, std::size_t row) {
    double largest = 0;
    for (std::size_t k = 0; k < logits.size(); ++k) {
      const double here =
          std::abs(static_cast<double>(logits[k]) - static_cast<double>(expected[row * logits.size() + k]));
      largest = here <= largest ? largest : here;  // a NaN stays
    }
    return largest;
  };
  model.restart();
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    const double here = difference(model.read(std::span(tokens).subspan(i, 1)), i);
    found.largest = here <= found.largest ? found.largest : here;
  }
  model.restart();
  found.in_chunks = difference(model.read(std::span(tokens).first(tokens.size() - 1)), tokens.size() - 2);
  model.restart();
  const auto given = static_cast<std::size_t>(prompt);
  std::vector<float> logits = model.read(std::span(tokens).first(given));
  found.greedy_tokens = static_cast<int>(tokens.size() - given);
  for (std::size_t i = given; i < tokens.size(); ++i) {
    const std::int32_t chosen = best_of(logits);
    if (chosen == tokens[i]) ++found.same_tokens;
    if (i + 1 < tokens.size()) logits = model.read(std::span(&chosen, 1));
  }
  return found;
}

}  // namespace llama
