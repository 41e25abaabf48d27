// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <support/hand_written_layers.hpp>

#include <cmath>
#include <cstddef>
#include <map>
#include <vector>

namespace hand_written {

/// The model of `hand_written::model` on one device: rows as matrices, no layers, no micro-batches.
class loop {
 public:
  using matrix = std::vector<std::vector<double>>;

  loop() {
    for (const int l : {0, 1, 2, 5, 8}) {
      const int inner = l == 0 ? data_features : features;
      const bool biased = l != 2 && l != 5;
      for (int i = 0; i < (inner + (biased ? 1 : 0)) * features; ++i) weights[l].push_back(first_value(l, i));
      velocity[l].assign(weights[l].size(), 0.0);
    }
  }

  std::map<int, std::vector<double>> weights, gradients, velocity;  // by layer: as its block holds them

  /// The mean loss; `gradients` are those of it.
  double differentiate(const batch& data) {
    const std::size_t n = data.x.size() / data_features;
    gradients.clear();
    for (const auto& [l, w] : weights) gradients[l].assign(w.size(), 0.0);
    matrix x(n, std::vector<double>(data_features));
    matrix last(n, std::vector<double>(features));
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t i = 0; i < data_features; ++i) x[r][i] = data.x[r * data_features + i];
    const matrix a0 = dense_of(x, 0);
    const matrix a1 = dense_of(a0, 1);
    const matrix a2 = times(squared(a1), 2, 0);
    const matrix a3 = dense_of(a2, 1);
    const matrix a4 = hadamard(a3, a0);
    const matrix a5 = times(squared(a4), 5, 0);
    const matrix a6 = dense_of(a5, 1);
    const matrix a7 = hadamard(a6, a2);
    const matrix a8 = dense_of(a7, 8);
    double loss = 0;
    for (std::size_t r = 0; r < n; ++r)
      for (std::size_t j = 0; j < features; ++j) {
        const double d = a8[r][j] - data.target[r * features + j];
        loss += d * d / 2 / static_cast<double>(n);
        last[r][j] = d / static_cast<double>(n);
      }
    const matrix d7 = dense_back(a7, a8, last, 8);
    const matrix d6 = hadamard(d7, a2);
    const matrix d5 = dense_back(a5, a6, d6, 1);
    const matrix d4 = square_back(a4, d5, 5);
    const matrix d3 = hadamard(d4, a0);
    const matrix d2 = sum(dense_back(a2, a3, d3, 1), hadamard(d7, a6));
    const matrix d1 = square_back(a1, d2, 2);
    const matrix d0 = sum(dense_back(a0, a1, d1, 1), hadamard(d4, a3));
    (void)dense_back(x, a0, d0, 0);
    return loss;
  }
  double step(const batch& data) {
    const double loss = differentiate(data);
    for (auto& [l, w] : weights)
      for (std::size_t i = 0; i < w.size(); ++i) {
        velocity[l][i] = momentum * velocity[l][i] + gradients[l][i];
        w[i] -= rate * velocity[l][i];
      }
    return loss;
  }

 private:
  static matrix hadamard(const matrix& a, const matrix& b) {
    matrix c = a;
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < a[r].size(); ++i) c[r][i] = a[r][i] * b[r][i];
    return c;
  }
  static matrix squared(const matrix& a) { return hadamard(a, a); }
  static matrix sum(const matrix& a, const matrix& b) {
    matrix c = a;
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < a[r].size(); ++i) c[r][i] += b[r][i];
    return c;
  }
  /// Returns a W, with the bias after W where `biased`.
  matrix times(const matrix& a, int layer, int biased) {
    const std::vector<double>& w = weights[layer];
    matrix c(a.size(), std::vector<double>(features, 0.0));
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t j = 0; j < features; ++j) {
        for (std::size_t i = 0; i < a[r].size(); ++i) c[r][j] += a[r][i] * w[i * features + j];
        if (biased != 0) c[r][j] += w[a[r].size() * features + j];
      }
    return c;
  }
  matrix dense_of(const matrix& a, int layer) {
    matrix c = times(a, layer, 1);
    for (auto& row : c)
      for (double& value : row) value = std::tanh(value);
    return c;
  }
  /// The gradient of a from that of c = a W + b; adds to those of W and b.
  matrix linear_back(const matrix& a, const matrix& dc, int layer) {
    const std::vector<double>& w = weights[layer];
    std::vector<double>& dw = gradients[layer];
    matrix da(a.size(), std::vector<double>(a[0].size(), 0.0));
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < a[r].size(); ++i)
        for (std::size_t j = 0; j < features; ++j) {
          da[r][i] += dc[r][j] * w[i * features + j];
          dw[i * features + j] += a[r][i] * dc[r][j];
        }
    return da;
  }
  matrix dense_back(const matrix& a, const matrix& y, const matrix& dy, int layer) {
    matrix dz = dy;
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t j = 0; j < features; ++j) {
        dz[r][j] *= 1 - y[r][j] * y[r][j];
        gradients[layer][a[r].size() * features + j] += dz[r][j];
      }
    return linear_back(a, dz, layer);
  }
  matrix square_back(const matrix& a, const matrix& dy, int layer) {
    matrix da = linear_back(squared(a), dy, layer);
    for (std::size_t r = 0; r < a.size(); ++r)
      for (std::size_t i = 0; i < a[r].size(); ++i) da[r][i] *= 2 * a[r][i];
    return da;
  }
};

}  // namespace hand_written
