// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/pipeline/stages/plan/execution_plan.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::pipeline::detail {

/// Returns a plan as numbers, with each list after its length. Ranks send each other these numbers, and checksums are
/// taken of them.
/// taken of.
[[nodiscard]] inline std::vector<std::int64_t> words_of(const execution_plan& plan) {
  std::vector<std::int64_t> words;
  const auto add = [&](auto value) { words.push_back(static_cast<std::int64_t>(value)); };
  const auto add_all = [&](const auto& list) {
    add(list.size());
    for (const auto value : list) add(value);
  };
  add_all(plan.order.name);
  add(plan.order.micro_batches);
  add_all(plan.order.rank_of);
  add_all(plan.order.recomputed);
  add(plan.order.lists.size());
  for (const auto& list : plan.order.lists) {
    add(list.size());
    for (const instruction& step : list) {
      add(step.kind);
      add(step.stage);
      add(step.micro_batch);
    }
  }
  add(plan.stages.size());
  for (const layer_run& run : plan.stages) {
    add(run.first);
    add(run.last);
  }
  add(plan.groups.size());
  for (const replica_group& group : plan.groups) {
    add_all(group.ranks);
    add_all(group.shares);
    add(group.mesh);
    add(group.devices);
  }
  add_all(plan.micro_batch_rows);
  add(plan.trains);
  return words;
}

/// The plan of `words_of`. Throws std::invalid_argument where the numbers are none.
[[nodiscard]] inline execution_plan plan_of(std::span<const std::int64_t> words) {
  std::size_t at = 0;
  const auto next = [&] {
    if (at >= words.size()) throw std::invalid_argument("a plan that was sent ends too early");
    return words[at++];
  };
  const auto count = [&] {
    const std::int64_t value = next();
    if (value < 0 || static_cast<std::size_t>(value) > words.size())
      throw std::invalid_argument("a plan that was sent has a list of " + std::to_string(value) + " entries");
    return static_cast<std::size_t>(value);
  };
  const auto number = [&] { return static_cast<int>(next()); };
  const auto numbers = [&] {
    std::vector<int> list(count());
    for (int& value : list) value = number();
    return list;
  };
  execution_plan plan;
  plan.order.name.resize(count());
  for (char& letter : plan.order.name) letter = static_cast<char>(next());
  plan.order.micro_batches = number();
  plan.order.rank_of = numbers();
  const std::vector<int> recomputed = numbers();
  plan.order.recomputed.assign(recomputed.begin(), recomputed.end());
  plan.order.lists.resize(count());
  for (auto& list : plan.order.lists) {
    list.resize(count());
    for (instruction& step : list) {
      step.kind = static_cast<action>(number());
      step.stage = number();
      step.micro_batch = number();
    }
  }
  plan.stages.resize(count());
  for (layer_run& run : plan.stages) {
    run.first = number();
    run.last = number();
  }
  plan.groups.resize(count());
  for (replica_group& group : plan.groups) {
    group.ranks = numbers();
    group.shares = numbers();
    group.mesh = number();
    group.devices = number();
  }
  plan.micro_batch_rows = numbers();
  plan.trains = next() != 0;
  return plan;
}

/// FNV-1a over the bytes of numbers and texts.
class checksum {
 public:
  void add(std::int64_t word) {
    const auto bits = static_cast<std::uint64_t>(word);
    for (int byte = 0; byte < 8; ++byte) {
      hash_ ^= bits >> (8 * byte) & 0xFFU;
      hash_ *= 0x100000001B3U;
    }
  }
  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    for (const char letter : text) add(static_cast<std::int64_t>(letter));
  }
  [[nodiscard]] std::int64_t value() const { return static_cast<std::int64_t>(hash_); }

 private:
  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

[[nodiscard]] inline std::int64_t checksum_of(const execution_plan& plan) {
  checksum sum;
  for (const std::int64_t word : words_of(plan)) sum.add(word);
  return sum.value();
}

/// Returns a checksum of everything that ranks must agree on about a model: names, rows, blocks, tensors.
[[nodiscard]] inline std::int64_t checksum_of(const layer_model& model) {
  checksum sum;
  const auto add_row = [&](const row_facts& row) {
    sum.add(static_cast<std::int64_t>(row.type));
    sum.add(row.bytes());
  };
  const auto add_tensors = [&](const std::vector<tensor_facts>& tensors) {
    for (const tensor_facts& one : tensors) {
      sum.add(one.name);
      sum.add(static_cast<std::int64_t>(one.type));
      for (const std::int64_t extent : one.shape) sum.add(extent);
      sum.add(one.offset);
    }
  };
  sum.add(model.layers());
  sum.add(model.meshes());
  const auto add_layer = [&](const layer_facts& facts) {
    sum.add(facts.name);
    for (const int rows : facts.batches) sum.add(rows);
    for (const input_facts& input : facts.inputs) {
      sum.add(input.layer);
      sum.add(static_cast<std::int64_t>(input.needed) * 2 + (input.has_gradient ? 1 : 0));
    }
    for (const data_facts& data : facts.data) {
      sum.add(data.name);
      add_row(data.row);
    }
    add_row(facts.output);
    for (const int owner : facts.parameters_of) sum.add(owner);
    add_tensors(facts.parameters);
    add_tensors(facts.state);
    sum.add(facts.parameter_bytes);
    sum.add(facts.state_bytes);
  };
  for (int mesh = 0; mesh < model.meshes(); ++mesh) {
    sum.add(model.devices(mesh));
    for (int l = 0; l < model.layers(); ++l) add_layer(model.facts(l, mesh));
  }
  return sum.value();
}

}  // namespace espalier::pipeline::detail
