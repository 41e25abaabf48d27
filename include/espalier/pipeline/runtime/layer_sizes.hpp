// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/runtime/layer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// What follows from the facts of layers alone, whatever the stages.
namespace espalier::pipeline::detail {

/// What all layers read of a step's data, in the order of layers.
[[nodiscard]] inline std::vector<data_facts> data_of(const layer_model& model) {
  std::vector<data_facts> all;
  for (int l = 0; l < model.layers(); ++l)
    for (const data_facts& wanted : model.facts(l).data)
      if (std::none_of(all.begin(), all.end(), [&](const data_facts& one) { return one.name == wanted.name; }))
        all.push_back(wanted);
  return all;
}

/// Bytes of so many rows of a layer's output; the loss is one element.
[[nodiscard]] inline std::int64_t output_bytes(const layer_model& model, int layer, int rows) {
  const row_facts& row = model.facts(layer).output;
  return layer + 1 == model.layers() ? size_of(row.type) : rows * row.bytes();
}

/// Which of the numbers of rows that a layer is compiled for.
/// Throws std::invalid_argument, on behalf of `who`, if it is none.
[[nodiscard]] inline std::ptrdiff_t index_of_rows(const layer_facts& facts, int rows, const char* who) {
  const auto at = std::find(facts.batches.begin(), facts.batches.end(), rows);
  if (at == facts.batches.end())
    throw std::invalid_argument(std::string(who) + ": layer \"" + facts.name + "\" is not compiled for " +
                                std::to_string(rows) + " rows: choose a number of the model's batches<...>");
  return at - facts.batches.begin();
}

/// @pre the layer is compiled for so many rows
[[nodiscard]] inline const kept_facts& kept_of(const layer_facts& facts, int rows) {
  const auto at = std::find(facts.batches.begin(), facts.batches.end(), rows) - facts.batches.begin();
  return facts.kept[static_cast<std::size_t>(at)];
}

/// Bytes that a layer holds from its F on for so many rows: what it keeps, and its output where some later part reads
/// it.
[[nodiscard]] inline std::int64_t activation_bytes(const layer_model& model, int layer, int rows) {
  const layer_facts& own = model.facts(layer);
  bool is_held = own.output_needed != part::forward;
  for (int reader = layer + 1; reader < model.layers(); ++reader)
    for (const input_facts& input : model.facts(reader).inputs)
      is_held = is_held || (input.layer == layer && input.needed != part::forward);
  const kept_facts& kept = kept_of(own, rows);
  return kept.kept_bytes + kept.kept_through_bytes + (is_held ? output_bytes(model, layer, rows) : 0);
}

}  // namespace espalier::pipeline::detail
