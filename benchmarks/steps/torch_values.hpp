// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>

/// The numbers that the scripts in benchmarks/peers start with, so that ours and theirs train the same model.
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

/// Token `at` of sample `sample` of batch `number`, of samples of `context` tokens and one more.
[[nodiscard]] inline std::int32_t drawn_token(std::int64_t number, std::int64_t sample, std::int64_t at,
                                              std::int64_t context, int vocabulary) {
  const double u =
      draw(1000 + static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(sample * (context + 1) + at));
  return static_cast<std::int32_t>(u * vocabulary);
}

/// The place where torch_gpt.py keeps a parameter: the number of its stream in layer 0, and how the elements of one
/// layer of ours are numbered there. Its query, key and value weights are the columns of one matrix.
struct torch_parameter {
  static constexpr std::uint64_t streams_per_layer = 12;

  bool is_weight = true;  // otherwise all elements are `constant`
  double constant = 0;
  bool is_of_layer = true;
  std::uint64_t stream = 0;
  std::uint64_t columns = 1;  // of ours
  std::uint64_t row_length = 1;
  std::uint64_t first_column = 0;

  /// Returns the initial value of element `i` of layer `layer`.
  [[nodiscard]] float value(std::uint64_t layer, std::uint64_t i) const {
    if (!is_weight) return static_cast<float>(constant);
    const std::uint64_t there = i / columns * row_length + first_column + i % columns;
    const double u = draw(stream + (is_of_layer ? streams_per_layer * layer : 0), there);
    return static_cast<float>((2 * u - 1) * (0.02 * std::sqrt(3.0)));
  }
};

/// `Path` is an nn::leaf_path or answers `is` as one does.
template <class Config, class Path> [[nodiscard]] torch_parameter torch_parameter_of(const Path& path) {
  constexpr std::uint64_t width = Config::width;
  constexpr std::uint64_t hidden = Config::hidden;
  if (path.is("gain")) return {.is_weight = false, .constant = 1};
  if (path.is("bias")) return {.is_weight = false};
  if (path.is("token")) return {.is_of_layer = false, .stream = 0};
  if (path.is("position")) return {.is_of_layer = false, .stream = 1};
  if (path.is("head")) return {.is_of_layer = false, .stream = 4 + torch_parameter::streams_per_layer * Config::layers};
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

}  // namespace espalier::benchmarks
