// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/espalier.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace pipelined {

/// Some steps of a program (parameters, batch...) -> (next parameters, loss): losses, and all parameters before and
/// after. It is compared with the same on other devices, and with plain loops.
struct training_run {
  using tensors = std::vector<std::vector<float>>;
  std::vector<double> losses;
  tensors before;
  tensors after_one;
  tensors after;

  [[nodiscard]] bool falls() const { return std::is_sorted(losses.rbegin(), losses.rend()); }
};

/// Trains on numbers that are the same whatever the layout: `start(parameters)` and `fill(batch...)` write them.
/// Collective.
template <class Program, class Start, class Fill>
training_run train(espalier::world& where, int steps, const Start& start, const Fill& fill) {
  espalier::runner<Program> run(where);
  auto parameters = run.template argument<0>();
  start(parameters);
  training_run result;
  const auto read = [&] {
    training_run::tensors all;
    espalier::nn::for_each_named_leaf(parameters,
                                      [&](auto& array, const auto&) { all.push_back(espalier::gather(where, array)); });
    return all;
  };
  result.before = read();
  const auto train_on = [&](auto... batch) {
    fill(batch...);
    for (int step = 0; step < steps; ++step) {
      const auto& out = run(parameters, batch...);
      result.losses.push_back(static_cast<double>(espalier::gather(where, out.template get<1>())[0]));
      if (step == 0) result.after_one = read();
    }
  };
  [&]<std::size_t... N>(std::index_sequence<N...>) { train_on(run.template argument<static_cast<int>(N) + 1>()...); }
  (std::make_index_sequence<Program::arity - 1>{});
  result.after = read();
  return result;
}

/// The largest difference between two runs: of losses, and of moves of weights relative to the largest move of the same
/// tensor.
inline double difference(const training_run& expected, const training_run& found) {
  double largest = 0;
  const auto count = [&](double one) {
    largest = std::isfinite(one) ? std::max(largest, one) : std::numeric_limits<double>::infinity();
  };
  for (std::size_t n = 0; n < expected.losses.size(); ++n) count(std::abs(found.losses[n] - expected.losses[n]));
  for (std::size_t leaf = 0; leaf < expected.after.size(); ++leaf) {
    const auto moved = [&](const training_run& in, std::size_t n) {
      return static_cast<double>(in.after[leaf][n]) - static_cast<double>(in.before[leaf][n]);
    };
    double size = 0;
    for (std::size_t n = 0; n < expected.after[leaf].size(); ++n) size = std::max(size, std::abs(moved(expected, n)));
    for (std::size_t n = 0; n < expected.after[leaf].size(); ++n)
      count(std::abs(moved(found, n) - moved(expected, n)) / size);
  }
  return largest;
}

/// Whether the first loss is `loss(parameters)`, a plain function in double precision, and the first step, which is
/// minus `rate` times the gradient, changes it as it should: its derivative along the gradient is the square of the
/// gradient's length.
template <class Loss> bool is_as_plain(const training_run& run, double rate, const Loss& loss) {
  double squares = 0;
  const auto loss_after = [&](double steps) {
    std::vector<std::vector<double>> leaves(run.before.size());
    squares = 0;
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      for (std::size_t n = 0; n < run.before[leaf].size(); ++n) {
        const auto before = static_cast<double>(run.before[leaf][n]);
        const double gradient = (before - static_cast<double>(run.after_one[leaf][n])) / rate;
        leaves[leaf].push_back(before - steps * gradient);
        squares += gradient * gradient;
      }
    }
    return loss(leaves);
  };
  const double slope = (loss_after(1e-4) - loss_after(-1e-4)) / 2e-4;
  return std::abs(loss_after(0) - run.losses.front()) < 1e-5 && std::abs(slope + squares) < 1e-3 * squares;
}

}  // namespace pipelined
