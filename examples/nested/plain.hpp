// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nested {

/// The loss in plain loops, text by text and layer by layer: no pipeline, and no masks of experts.
class plain_model {
 public:
  using tensor = std::vector<double>;

  /// @param leaves the parameters in the order of their declaration, each in row-major order
  plain_model(const std::vector<tensor>& leaves, std::size_t layers) : leaves_(leaves), layers_(layers) {}

  double loss(const std::vector<std::int32_t>& source, const std::vector<std::int32_t>& written,
              const std::vector<std::int32_t>& wanted) const {
    double sum = 0;
    for (std::size_t text = 0; text < T * B; ++text) {
      rows x = embedded(source, text);
      for (std::size_t l = 0; l < layers_; ++l) encode(x, l);
      const rows memory = x;
      x = embedded(written, text);
      for (std::size_t l = 0; l < layers_; ++l) decode(x, memory, l);
      for (std::size_t s = 0; s < S; ++s) sum += surprise(x[s], static_cast<std::size_t>(wanted[text * S + s]));
    }
    return sum / (T * B * S);
  }

 private:
  using row = std::array<double, M>;
  using rows = std::array<row, S>;

  rows embedded(const std::vector<std::int32_t>& text, std::size_t number) const {
    rows x;
    for (std::size_t s = 0; s < S; ++s) {
      const auto word = static_cast<std::size_t>(text[number * S + s]);
      for (std::size_t m = 0; m < M; ++m) x[s][m] = leaves_[0][word * M + m];
    }
    return x;
  }
  row normed(const row& x, std::size_t leaf, std::size_t l) const {
    double squares = 0;
    for (const double one : x) squares += one * one;
    row n;
    for (std::size_t m = 0; m < M; ++m)
      n[m] = x[m] / std::sqrt(squares / M + ep::nn::norm_epsilon) * leaves_[leaf][l * M + m];
    return n;
  }
  /// The product of x and matrix `which` of a leaf that has matrices of x.size() rows.
  template <std::size_t Columns, std::size_t Rows>
  std::array<double, Columns> product(const std::array<double, Rows>& x, std::size_t leaf, std::size_t which) const {
    std::array<double, Columns> y{};
    const double* w = &leaves_[leaf][which * Rows * Columns];
    for (std::size_t r = 0; r < Rows; ++r) {
      for (std::size_t c = 0; c < Columns; ++c) y[c] += x[r] * w[r * Columns + c];
    }
    return y;
  }
  template <std::size_t Size> static std::array<double, Size> rectified(std::array<double, Size> x) {
    for (double& one : x) one = std::max(one, 0.0);
    return x;
  }
  static void softmax(double* x, std::size_t size) {
    const double largest = *std::max_element(x, x + size);
    double sum = 0;
    for (std::size_t n = 0; n < size; ++n) sum += x[n] = std::exp(x[n] - largest);
    for (std::size_t n = 0; n < size; ++n) x[n] /= sum;
  }

  void encode(rows& x, std::size_t l) const {
    std::array<int, E> taken{};
    for (row& token : x) {
      const row dense = product<M>(normed(token, 1, l), 2, l);
      for (std::size_t m = 0; m < M; ++m) token[m] += std::tanh(dense[m]);
      std::array<double, E> odds = product<E>(token, 3, l);
      softmax(odds.data(), E);
      const auto e = static_cast<std::size_t>(std::max_element(odds.begin(), odds.end()) - odds.begin());
      if (taken[e]++ >= C) continue;
      const row answer = product<M>(rectified(product<H>(token, 4, l * E + e)), 5, l * E + e);
      for (std::size_t m = 0; m < M; ++m) token[m] += odds[e] * answer[m];
    }
  }
  void decode(rows& x, const rows& memory, std::size_t l) const {
    for (row& token : x) {
      const row query = product<M>(normed(token, 6, l), 7, l);
      std::array<double, S> seen{};
      for (std::size_t t = 0; t < S; ++t) {
        for (std::size_t m = 0; m < M; ++m) seen[t] += 0.2 * query[m] * memory[t][m];
      }
      softmax(seen.data(), S);
      for (std::size_t t = 0; t < S; ++t) {
        for (std::size_t m = 0; m < M; ++m) token[m] += seen[t] * memory[t][m];
      }
      const row change = product<M>(rectified(product<H>(token, 8, l)), 9, l);
      for (std::size_t m = 0; m < M; ++m) token[m] += change[m];
    }
  }
  /// Minus the logarithm of the probability of a word.
  double surprise(const row& x, std::size_t word) const {
    std::vector<double> odds(V);
    for (std::size_t v = 0; v < V; ++v) {
      for (std::size_t m = 0; m < M; ++m) odds[v] += x[m] * leaves_[0][v * M + m];
    }
    softmax(odds.data(), V);
    return -std::log(odds[word]);
  }

  const std::vector<tensor>& leaves_;
  std::size_t layers_;
};

}  // namespace nested
