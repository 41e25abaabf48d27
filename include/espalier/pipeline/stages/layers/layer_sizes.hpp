// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// Sizes that follow from the facts of layers alone, whatever the stages.
namespace espalier::pipeline::detail {

/// Returns the fields of a step's data that the layers read, in the order of layers.
[[nodiscard]] inline std::vector<data_facts> data_of(const layer_model& model) {
  std::vector<data_facts> all;
  for (int l = 0; l < model.layers(); ++l)
    for (const data_facts& wanted : model.facts(l).data)
      if (std::none_of(all.begin(), all.end(), [&](const data_facts& one) { return one.name == wanted.name; }))
        all.push_back(wanted);
  return all;
}

/// How a replica's devices share so many rows of a layer's output.
[[nodiscard]] inline layout output_layout(const layer_model& model, int layer, int mesh, int rows) {
  const layer_facts& facts = model.facts(layer, mesh);
  layout made;
  if (facts.whole_output) {
    made = *facts.whole_output;
  } else {
    made.shape.append(1);
    for (const std::int64_t extent : facts.output.shape) made.shape.append(extent);
    made.placement = sharding::whole(made.shape.rank);
  }
  made.shape[0] = rows;
  return made;
}
/// Bytes of a device's buffer for so many rows of a layer's output; the loss is one element.
[[nodiscard]] inline std::int64_t output_bytes(const layer_model& model, int layer, int mesh, int rows) {
  const layer_facts& facts = model.facts(layer, mesh);
  if (layer + 1 == model.layers()) return size_of(facts.output.type);
  const std::int64_t here =
      facts.whole_output ? local_extent(model.replica_mesh(mesh), rows, facts.whole_output->placement.dim[0]) : rows;
  return here * facts.output.bytes();
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

/// Throws std::invalid_argument, on behalf of `who`, unless the model is compiled for a mesh of that number.
inline void require_mesh(const layer_model& model, int mesh, const char* who) {
  if (mesh < 0 || mesh >= model.meshes())
    throw std::invalid_argument(std::string(who) + ": mesh " + std::to_string(mesh) +
                                " of a model that is compiled for " + std::to_string(model.meshes()) +
                                ": choose one of its list, from 0");
}

/// @pre the layer is compiled for so many rows
[[nodiscard]] inline const kept_facts& kept_of(const layer_facts& facts, int rows) {
  const auto at = std::find(facts.batches.begin(), facts.batches.end(), rows) - facts.batches.begin();
  return facts.kept[static_cast<std::size_t>(at)];
}

/// Bytes that a layer holds from its F on for so many rows: what it keeps, and its output where some later part reads
/// it.
[[nodiscard]] inline std::int64_t activation_bytes(const layer_model& model, int layer, int mesh, int rows) {
  const layer_facts& own = model.facts(layer, mesh);
  bool is_held = own.output_needed != part::forward;
  for (int reader = layer + 1; reader < model.layers(); ++reader)
    for (const input_facts& input : model.facts(reader, mesh).inputs)
      is_held = is_held || (input.layer == layer && input.needed != part::forward);
  const kept_facts& kept = kept_of(own, rows);
  return kept.kept_bytes + kept.kept_through_bytes + (is_held ? output_bytes(model, layer, mesh, rows) : 0);
}

/// Bytes that cross to other stages where the model is cut after a layer: the outputs up to there that some later layer
/// reads, each once however many read it. Nothing crosses after the last layer.
[[nodiscard]] inline std::int64_t crossing_bytes(const layer_model& model, int layer, int mesh, int rows) {
  std::vector<bool> crosses(static_cast<std::size_t>(layer) + 1, false);
  for (int reader = layer + 1; reader < model.layers(); ++reader)
    for (const input_facts& input : model.facts(reader, mesh).inputs)
      if (input.layer <= layer) crosses[static_cast<std::size_t>(input.layer)] = true;
  std::int64_t bytes = 0;
  for (int l = 0; l <= layer; ++l)
    if (crosses[static_cast<std::size_t>(l)]) bytes += output_bytes(model, l, mesh, rows);
  return bytes;
}

}  // namespace espalier::pipeline::detail
