// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>

#include <support/pipeline_model.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace pipeline_model {

/// Memory of the given size between guards; all ones at first, so that an unwritten element is a NaN.
class guarded {
 public:
  explicit guarded(std::int64_t bytes = 0) : bytes_(bytes), memory_(static_cast<std::size_t>(bytes) + 2 * guard + 64) {
    std::fill(memory_.begin(), memory_.end(), std::byte{0xff});
  }
  [[nodiscard]] std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(memory_.data() + guard);
    return memory_.data() + guard + (64 - at % 64) % 64;
  }
  [[nodiscard]] std::int64_t size() const { return bytes_; }
  void poison() { std::memset(data(), 0xff, static_cast<std::size_t>(bytes_)); }
  void clear() { std::memset(data(), 0, static_cast<std::size_t>(bytes_)); }
  /// Whether nothing was written around it.
  [[nodiscard]] bool is_intact() {
    const std::byte* const begin = memory_.data();
    const std::byte* const first = data();
    const auto untouched = [](std::byte b) { return b == std::byte{0xff}; };
    return std::all_of(begin, first, untouched) && std::all_of(first + bytes_, begin + memory_.size(), untouched);
  }
  [[nodiscard]] std::vector<std::byte> copy() { return {data(), data() + bytes_}; }
  [[nodiscard]] double* numbers() { return reinterpret_cast<double*>(data()); }

 private:
  static constexpr std::size_t guard = 128;
  std::int64_t bytes_;
  std::vector<std::byte> memory_;
};

/// All layers of a model on one device. What a part may no longer read is overwritten.
struct harness {
  struct one_layer {
    std::unique_ptr<pl::layer> object;
    guarded parameters, gradients, state;
  };
  const pl::layer_model& model;
  pl::no_peers alone;
  std::vector<one_layer> layers;
  double loss = 0;
  bool recompute = false;
  bool is_intact = true;

  explicit harness(const pl::layer_model& of) : model(of) {
    for (int k = 0; k < model.layers(); ++k) {
      const pl::layer_facts& facts = model.facts(k);
      one_layer made{model.make(k, 0, alone), guarded(facts.parameter_bytes), guarded(facts.parameter_bytes),
                     guarded(facts.state_bytes)};
      made.gradients.clear();
      made.object->initialise(made.parameters.data(), made.state.data());
      for (const int rows : facts.batches) made.object->prepare(rows);
      layers.push_back(std::move(made));
    }
  }

  struct call {
    guarded output, output_gradient, kept, through, between;
    std::vector<guarded> data;
    std::vector<const std::byte*> parameter_list, input_list, data_list;
    std::vector<std::byte*> input_gradient_list, gradient_list;
    std::vector<guarded> input_gradients;
  };

  [[nodiscard]] pl::layer_memory memory(call& c, int rows) const {
    return {rows,
            c.parameter_list,
            c.input_list,
            c.data_list,
            c.output.data(),
            c.kept.data(),
            c.through.data(),
            c.between.data(),
            c.output_gradient.data(),
            c.input_gradient_list,
            c.gradient_list};
  }

  /// F, B and W of samples [first, first + rows), with `weight` as the gradient of their losses.
  void run(int first, int rows, double weight) {
    const int count = model.layers();
    std::vector<call> calls(static_cast<std::size_t>(count));
    for (int k = 0; k < count; ++k) start(calls, k, first, rows);
    for (int k = 0; k < count; ++k) {
      call& c = calls[static_cast<std::size_t>(k)];
      layer(k).forward(memory(c, rows));
      if (!recompute) continue;
      const std::vector<std::byte> before[] = {c.output.copy(), c.kept.copy(), c.through.copy()};
      c.output.poison();
      c.kept.poison();
      c.through.poison();
      pl::layer_memory again = memory(c, rows);
      again.is_again = true;
      layer(k).forward(again);
      CHECK((before[0] == c.output.copy() && before[1] == c.kept.copy() && before[2] == c.through.copy()));
    }
    loss += *calls.back().output.numbers();
    forget_outputs(calls, pl::part::forward);
    *calls.back().output_gradient.numbers() = weight;
    for (int k = count - 1; k >= 0; --k) {
      call& c = calls[static_cast<std::size_t>(k)];
      layer(k).input_gradient(memory(c, rows));
      c.kept.poison();
      if (model.facts(k).output_gradient_needed == pl::part::input_gradient) c.output_gradient.poison();
      for (std::size_t n = 0; n < model.facts(k).inputs.size(); ++n) {
        const pl::input_facts& input = model.facts(k).inputs[n];
        call& from = calls[static_cast<std::size_t>(input.layer)];
        for (std::int64_t i = 0; i < from.output.size() / 8; ++i)
          from.output_gradient.numbers()[i] += c.input_gradients[n].numbers()[i];
      }
    }
    forget_outputs(calls, pl::part::input_gradient);
    // Any order will do.
    for (int k = 0; k < count; ++k)
      if (!model.facts(k).parameters_of.empty())
        layer(k).weight_gradient(memory(calls[static_cast<std::size_t>(k)], rows));
    for (call& c : calls) {
      for (guarded* one : {&c.output, &c.output_gradient, &c.kept, &c.through, &c.between})
        is_intact = is_intact && one->is_intact();
      for (guarded& one : c.input_gradients) is_intact = is_intact && one.is_intact();
    }
    for (one_layer& one : layers) is_intact = is_intact && one.parameters.is_intact() && one.gradients.is_intact();
  }

 private:
  [[nodiscard]] pl::layer& layer(int k) { return *layers[static_cast<std::size_t>(k)].object; }

  void start(std::vector<call>& calls, int k, int first, int rows) {
    const pl::layer_facts& facts = model.facts(k);
    const auto at = std::find(facts.batches.begin(), facts.batches.end(), rows) - facts.batches.begin();
    const pl::kept_facts& kept = facts.kept[static_cast<std::size_t>(at)];
    call& c = calls[static_cast<std::size_t>(k)];
    const std::int64_t bytes = facts.output.bytes() * (k + 1 == model.layers() ? 1 : rows);
    c.output = guarded(bytes);
    c.output_gradient = guarded(bytes);
    c.output_gradient.clear();
    c.kept = guarded(kept.kept_bytes);
    c.through = guarded(kept.kept_through_bytes);
    c.between = guarded(kept.kept_between_bytes);
    for (const int from : facts.parameters_of) {
      c.parameter_list.push_back(layers[static_cast<std::size_t>(from)].parameters.data());
      c.gradient_list.push_back(layers[static_cast<std::size_t>(from)].gradients.data());
    }
    c.input_gradients.reserve(facts.inputs.size());
    for (const pl::input_facts& input : facts.inputs) {
      call& from = calls[static_cast<std::size_t>(input.layer)];
      c.input_list.push_back(from.output.data());
      c.input_gradients.emplace_back(from.output.size());
      c.input_gradient_list.push_back(c.input_gradients.back().data());
    }
    c.data.reserve(facts.data.size());
    for (const pl::data_facts& data : facts.data) {
      c.data.emplace_back(data.row.bytes() * rows);
      auto* const to = reinterpret_cast<std::int32_t*>(c.data.back().data());
      const int shift = data.name == "targets" ? 1 : 0;
      for (int s = 0; s < rows; ++s)
        for (int p = 0; p < context; ++p) to[s * context + p] = word(first + s, p + shift);
      c.data_list.push_back(c.data.back().data());
    }
  }

  /// Outputs that no later part reads.
  void forget_outputs(std::vector<call>& calls, pl::part done) {
    for (int k = 0; k + 1 < model.layers(); ++k) {
      pl::part last = model.facts(k).output_needed;
      for (int reader = k + 1; reader < model.layers(); ++reader)
        for (const pl::input_facts& input : model.facts(reader).inputs)
          if (input.layer == k) last = std::max(last, input.needed);
      if (last <= done) calls[static_cast<std::size_t>(k)].output.poison();
    }
  }
};

}  // namespace pipeline_model
