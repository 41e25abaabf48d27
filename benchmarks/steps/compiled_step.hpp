// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "gpt_step.hpp"
#include "models.hpp"

#include <espalier/execute/gather.hpp>
#include <espalier/execute/runner.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace espalier::benchmarks {

/// Number `i` in [0, 1) of a stream, as torch_gpt.py's `draw` with seed 1: splitmix64, the upper 24 bits.
[[nodiscard]] inline double draw(std::uint64_t stream, std::uint64_t i) {
  std::uint64_t z = (std::uint64_t{1} << 52U) + (stream << 32U) + i;
  z = (z + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  z = z ^ (z >> 31U);
  return static_cast<double>(z >> 40U) * 0x1p-24;
}

/// Where torch_gpt.py keeps a parameter: the number of its stream in layer 0, and how the elements of one layer of ours
/// are numbered there. Its query, key and value weights are the columns of one matrix.
struct torch_parameter {
  bool is_weight = true;  // otherwise all elements are `constant`
  double constant = 0;
  bool is_stacked = true;
  std::uint64_t stream = 0;
  std::uint64_t columns = 1;  // of ours
  std::uint64_t row_length = 1;
  std::uint64_t first_column = 0;
};

template <class Config> [[nodiscard]] torch_parameter torch_parameter_of(const nn::leaf_path& path) {
  constexpr std::uint64_t width = Config::width;
  constexpr std::uint64_t hidden = Config::hidden;
  constexpr std::uint64_t streams_per_layer = 12;
  if (path.is("gain")) return {.is_weight = false, .constant = 1};
  if (path.is("bias")) return {.is_weight = false};
  if (path.is("token")) return {.is_stacked = false, .stream = 0};
  if (path.is("position")) return {.is_stacked = false, .stream = 1};
  if (path.is("head")) return {.is_stacked = false, .stream = 4 + streams_per_layer * Config::layers};
  const auto part = [](std::uint64_t stream, std::uint64_t columns, std::uint64_t length, std::uint64_t first) {
    return torch_parameter{.stream = stream, .columns = columns, .row_length = length, .first_column = first};
  };
  if (path.is("query", "weight")) return part(4, width, 3 * width, 0);
  if (path.is("key", "weight")) return part(4, width, 3 * width, width);
  if (path.is("value", "weight")) return part(4, width, 3 * width, 2 * width);
  if (path.is("output", "weight")) return part(6, width, width, 0);
  if (path.is("up", "weight")) return part(10, hidden, hidden, 0);
  if (path.is("down", "weight")) return part(12, width, width, 0);
  throw std::logic_error("torch_gpt.py has no parameter " + path.str());
}

template <class Config, class Array> void fill_as_torch(Array& array, const nn::leaf_path& path) {
  constexpr std::uint64_t streams_per_layer = 12;
  const torch_parameter from = torch_parameter_of<Config>(path);
  const auto whole = static_cast<std::uint64_t>(Array::tensor::shape.elements());
  const std::uint64_t per_layer = from.is_stacked ? whole / Config::layers : whole;
  array.for_each([&](float& element, std::int64_t flat) {
    if (!from.is_weight) {
      element = static_cast<float>(from.constant);
      return;
    }
    const auto i = static_cast<std::uint64_t>(flat);
    const std::uint64_t within = i % per_layer;
    const std::uint64_t there = within / from.columns * from.row_length + from.first_column + within % from.columns;
    const double u = draw(from.stream + streams_per_layer * (i / per_layer), there);
    element = static_cast<float>((2 * u - 1) * (0.02 * std::sqrt(3.0)));
  });
}

template <class Program, class Config> class compiled_step final : public gpt_step {
 public:
  explicit compiled_step(world& where)
      : world_(where), run_(where), state_(run_.template argument<0>()), rate_(run_.template argument<3>()) {
    nn::for_each_named_leaf(state_.parameters, [&](auto& array, const nn::leaf_path& path) {
      parameters_ += std::remove_cvref_t<decltype(array)>::tensor::shape.elements();
      if (path.is("token") || path.is("position")) {
        looked_up_ += std::remove_cvref_t<decltype(array)>::tensor::shape.elements();
      }
      fill_as_torch<Config>(array, path);
    });
    rate_.for_each([](float& element, std::int64_t) { element = 1e-3F; });
    for (int n = 0; n < batches; ++n) {
      const auto token = [n](std::int64_t flat, std::int64_t shift) {
        const std::int64_t i = flat / Config::context * (Config::context + 1) + flat % Config::context + shift;
        const double u = draw(1000 + static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(i));
        return static_cast<std::int32_t>(u * Config::vocabulary);
      };
      tokens_.push_back(run_.template argument<1>());
      targets_.push_back(run_.template argument<2>());
      tokens_.back().for_each([&](std::int32_t& element, std::int64_t i) { element = token(i, 0); });
      targets_.back().for_each([&](std::int32_t& element, std::int64_t i) { element = token(i, 1); });
    }
  }

  [[nodiscard]] step_facts facts() const override {
    step_facts f;
    f.tokens = std::int64_t{Config::batch} * Config::context;
    f.parameters = parameters_;
    const auto flops = [&](std::int64_t parameters) {
      return 6.0 * static_cast<double>(parameters) * static_cast<double>(f.tokens) +
             6.0 * Config::layers * Config::batch * Config::context * Config::context * Config::width;
    };
    f.flops = flops(parameters_);
    f.multiplied_flops = flops(parameters_ - looked_up_);
    f.argument_bytes = Program::argument_bytes();
    f.result_bytes = Program::result_bytes();
    f.arena_bytes = Program::arena_bytes();
    f.peak_bytes = Program::peak_bytes_per_device();
    f.traced_instructions = Program::traced.size;
    f.instructions = Program::code.size;
    return f;
  }
  [[nodiscard]] program_tables tables() const override { return tables_of<Program>(); }

  void run(int number) override {
    const auto n = static_cast<std::size_t>(number % batches);
    last_loss_ = &run_(state_, tokens_[n], targets_[n], rate_).template get<1>();
  }
  [[nodiscard]] double loss() override { return gather(world_, *last_loss_).front(); }

 private:
  using runner_type = runner<Program>;

  world& world_;
  runner_type run_;
  typename runner_type::template argument_type<0> state_;
  typename runner_type::template argument_type<3> rate_;
  std::vector<typename runner_type::template argument_type<1>> tokens_;
  std::vector<typename runner_type::template argument_type<2>> targets_;
  const sharded_array<f32<>>* last_loss_ = nullptr;
  std::int64_t parameters_ = 0;
  std::int64_t looked_up_ = 0;
};

}  // namespace espalier::benchmarks
