// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/layers/pool.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>
#include <espalier/pipeline/stages/plan/routes.hpp>
#include <espalier/pipeline/stages/plan/stage_bytes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace espalier::pipeline::detail {

/// The services of the engine that a stage uses.
class stage_host {
 public:
  stage_host() = default;
  stage_host(const stage_host&) = delete;
  stage_host& operator=(const stage_host&) = delete;

  /// A block of that size; waits until one is free.
  [[nodiscard]] virtual int take(int size) = 0;
  /// So many more bytes of activations are held than before.
  virtual void count(std::int64_t change) = 0;
  virtual void entering(int layer) = 0;
  /// The first of the rows that the user gave this step, by number of the data.
  [[nodiscard]] virtual const std::byte* data(std::size_t number) const = 0;

 protected:
  ~stage_host() = default;
};

/// A layer threw: its text says which, and what it threw is nested.
struct layer_failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Blocks of one micro-batch in a stage.
struct micro_batch_blocks {
  std::vector<int> incoming;            ///< by route into the stage
  std::vector<int> incoming_gradients;  ///< the same: what goes back
  std::vector<int> arrived;             ///< by route out of the stage: gradients that came back
  std::vector<int> outputs, output_gradients, kept, kept_through, kept_between;  ///< by layer of the stage
  std::int64_t held = 0;  ///< bytes of activations, as last counted
};

/// A layer of a stage, with what follows from its facts and its place there.
struct held_layer {
  /// The route of an input that comes from the same stage.
  static constexpr std::size_t inside = static_cast<std::size_t>(-1);

  int index = 0;
  bool trained = false;
  part needed = part::forward;  ///< of its output, within the stage
  int last_reader = 0;          ///< in the stage; itself, where there is none
  bool leaves = false;          ///< some later stage reads its output
  int output_size = 0, kept_size = 0, through_size = 0, between_size = 0;
  std::unique_ptr<layer> object;
  std::vector<const std::byte*> parameters;
  std::vector<std::byte*> gradients;
  std::vector<std::size_t> incoming;  ///< by input: route into the stage, or `inside`
  std::vector<std::size_t> data;      ///< by data: number among the model's
  std::vector<const std::byte*> input_memory, data_memory;
  std::vector<std::byte*> gradient_memory;
  std::vector<int> extra;  ///< by input: the block of a gradient that is to be added to another one
};

/// Finds that out, and the sizes of its blocks for the largest of a replica's `rows`.
[[nodiscard]] inline held_layer place_layer(const layer_model& model, const routes& paths, int stage,
                                            const layer_run& run, int mesh, int l,
                                            const std::vector<row_interval>& rows_of,
                                            const std::vector<data_facts>& data, block_pool& pool) {
  int most = 0;
  for (const row_interval& rows : rows_of) most = std::max(most, rows.count());
  const layer_facts& facts = model.facts(l, mesh);
  held_layer one;
  one.index = l;
  one.trained = !facts.parameters_of.empty();
  one.needed = output_needed_in_stage(model, run, l, mesh);
  one.last_reader = l;
  for (int reader = l + 1; reader < run.last; ++reader)
    for (const input_facts& input : model.facts(reader, mesh).inputs)
      if (input.layer == l) one.last_reader = reader;
  for (const int r : paths.out_of(stage)) one.leaves = one.leaves || paths.value(r).layer == l;
  kept_facts largest;
  for (const row_interval& rows : rows_of) {
    if (rows.count() == 0) continue;
    const kept_facts& kept = kept_of(facts, rows.count());
    largest.kept_bytes = std::max(largest.kept_bytes, kept.kept_bytes);
    largest.kept_through_bytes = std::max(largest.kept_through_bytes, kept.kept_through_bytes);
    largest.kept_between_bytes = std::max(largest.kept_between_bytes, kept.kept_between_bytes);
  }
  one.output_size = pool.size_class(output_bytes(model, l, mesh, most));
  one.kept_size = pool.size_class(largest.kept_bytes);
  one.through_size = pool.size_class(largest.kept_through_bytes);
  one.between_size = pool.size_class(largest.kept_between_bytes);
  for (const input_facts& input : facts.inputs) {
    std::size_t route = held_layer::inside;
    for (std::size_t k = 0; k < paths.into(stage).size(); ++k)
      if (paths.value(paths.into(stage)[k]).layer == input.layer) route = k;
    one.incoming.push_back(route);
  }
  for (const data_facts& wanted : facts.data)
    for (std::size_t d = 0; d < data.size(); ++d)
      if (data[d].name == wanted.name) one.data.push_back(d);
  one.input_memory.resize(facts.inputs.size());
  one.gradient_memory.resize(facts.inputs.size());
  one.extra.assign(facts.inputs.size(), block_pool::none);
  one.data_memory.resize(facts.data.size());
  return one;
}

}  // namespace espalier::pipeline::detail
