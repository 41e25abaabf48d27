// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "corpus.hpp"
#include "settings.hpp"

#include <espalier/nn.hpp>
#include <espalier/runner.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

/// The one element of a scalar that every device has.
template <class Tensor> [[nodiscard]] double value_of(const ep::sharded_array<Tensor>& scalar) {
  return static_cast<double>(*scalar.data(0));
}

/// Sets each element that this process holds to `value(flat index in the whole tensor)`.
template <class Tensor, class F> void fill(const ep::sharded_array<Tensor>& array, const F& value) {
  using element = typename ep::sharded_array<Tensor>::value_type;
  array.for_each([&](element& e, std::int64_t index) { e = static_cast<element>(value(index)); });
}

/// The model in training: its state on the devices, and the programs that change and use it.
class trainer {
 public:
  trainer(ep::world& where, const corpus& text, std::uint64_t seed)
      : where_(where),
        text_(text),
        seed_(seed),
        train_(where),
        evaluate_(where),
        state_(train_.argument<0>()),
        tokens_(train_.argument<1>()),
        targets_(train_.argument<2>()),
        rate_(train_.argument<3>()),
        begin_of_row_(settings::batch) {
    // Every element has its own random number, so that the model does not depend on the mesh.
    const auto choose = [](const ep::leaf_path& path) {
      ep::nn::initial chosen = initial<settings>(path);
      chosen.deviation *= settings::start / 0.02;
      return chosen;
    };
    ep::nn::initialise(state_.parameters, seed, choose, [](auto& array, const auto& value) {
      fill(array, [&](std::int64_t index) { return value(static_cast<std::uint64_t>(index)); });
    });
  }

  /// Parameters, moments and the number of steps done.
  [[nodiscard]] model_state<ep::arrays>& state() { return state_; }

  /// Whether every element of the state that this process holds is a number.
  [[nodiscard]] bool is_finite() const {
    bool finite = true;
    ep::detail::for_each_leaf(state_, [&](const auto& array) {
      array.for_each(
          [&](const auto& element, std::int64_t) { finite = finite && std::isfinite(static_cast<double>(element)); });
    });
    return finite;
  }

  /// One step on the batch that belongs to its number; returns the loss before it.
  double step(std::int64_t number, double rate) {
    load([&](std::int64_t row) { return text_.training_window(seed_, number, row); });
    fill(rate_, [&](std::int64_t) { return rate; });
    return value_of(train_(state_, tokens_, targets_, rate_).template get<1>());
  }

  /// The held-out windows that fill whole batches.
  [[nodiscard]] std::int64_t evaluated_windows() const {
    return text_.held_out_windows() / settings::batch * settings::batch;
  }
  /// The mean loss on these, in nats per character.
  double held_out_loss() {
    double sum = 0;
    const std::int64_t windows = evaluated_windows();
    for (std::int64_t first = 0; first < windows; first += settings::batch) {
      load([&](std::int64_t row) { return text_.held_out_window(first + row); });
      sum += value_of(evaluate_(state_.parameters, tokens_, targets_));
    }
    return sum / static_cast<double>(windows / settings::batch);
  }

 private:
  /// Fills tokens and targets with the windows that start at `begin(row)`. Each device gets its own rows.
  template <class Begin> void load(const Begin& begin) {
    for (std::int64_t row = 0; row < settings::batch; ++row) begin_of_row_[static_cast<std::size_t>(row)] = begin(row);
    const auto character = [&](std::int64_t index, std::int64_t shift) {
      const std::int64_t start = begin_of_row_[static_cast<std::size_t>(index / settings::context)];
      return text_.tokens()[static_cast<std::size_t>(start + index % settings::context + shift)];
    };
    fill(tokens_, [&](std::int64_t index) { return character(index, 0); });
    fill(targets_, [&](std::int64_t index) { return character(index, 1); });
  }

  ep::world& where_;
  const corpus& text_;
  std::uint64_t seed_;
  ep::runner<training_program> train_;
  ep::runner<evaluation_program> evaluate_;
  model_state<ep::arrays> state_;
  ep::sharded_array<settings::tokens> tokens_;
  ep::sharded_array<settings::tokens> targets_;
  ep::sharded_array<settings::rate> rate_;
  std::vector<std::int64_t> begin_of_row_;
};

}  // namespace gpt
