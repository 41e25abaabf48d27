// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace conformer {

/// The loss in plain loops, recording by recording and layer by layer.
class plain_model {
 public:
  using tensor = std::vector<double>;

  /// @param leaves the weights in the order of their declaration, each in row-major order
  plain_model(const std::vector<tensor>& leaves, std::size_t layers) : leaves_(leaves), layers_(layers) {}

  double loss(const std::vector<float>& input, const std::vector<float>& target) const {
    double sum = 0;
    for (std::size_t at = 0; at < T * B; ++at) {
      frames x;
      for (std::size_t s = 0; s < S; ++s) {
        for (std::size_t m = 0; m < M; ++m) x[s][m] = static_cast<double>(input[(at * S + s) * M + m]);
      }
      for (std::size_t l = 0; l < layers_; ++l) apply(x, l);
      for (std::size_t s = 0; s < S; ++s) {
        for (std::size_t m = 0; m < M; ++m) {
          const double difference = x[s][m] - static_cast<double>(target[(at * S + s) * M + m]);
          sum += difference * difference;
        }
      }
    }
    return sum / (T * B * S * M);
  }

 private:
  using frame = std::array<double, M>;
  using frames = std::array<frame, S>;
  /// The leaves of a layer, each of all layers.
  enum leaf : std::size_t {
    first_gain,
    first_bias,
    first_up,
    first_down,
    attention_gain,
    attention_bias,
    qkv,
    joined,
    convolution_gain,
    convolution_bias,
    gated,
    filter,
    filtered_gain,
    filtered_bias,
    mixed,
    second_gain,
    second_bias,
    second_up,
    second_down,
    last_gain,
    last_bias
  };

  double of(leaf which, std::size_t l, std::size_t at) const {
    return leaves_[which][leaves_[which].size() / layers_ * l + at];
  }
  static double sigmoid(double a) { return 1 / (1 + std::exp(-a)); }
  frame normed(const frame& x, leaf gain, leaf bias, std::size_t l) const {
    double mean = 0;
    double variance = 0;
    for (const double one : x) mean += one / M;
    for (const double one : x) variance += (one - mean) * (one - mean) / M;
    frame n;
    for (std::size_t m = 0; m < M; ++m)
      n[m] = (x[m] - mean) / std::sqrt(variance + ep::nn::norm_epsilon) * of(gain, l, m) + of(bias, l, m);
    return n;
  }
  template <std::size_t Columns, std::size_t Rows>
  std::array<double, Columns> product(const std::array<double, Rows>& x, leaf matrix, std::size_t l) const {
    std::array<double, Columns> y{};
    for (std::size_t r = 0; r < Rows; ++r) {
      for (std::size_t c = 0; c < Columns; ++c) y[c] += x[r] * of(matrix, l, r * Columns + c);
    }
    return y;
  }
  void half_step(frames& x, leaf gain, leaf bias, leaf up, leaf down, std::size_t l) const {
    for (frame& one : x) {
      auto hidden = product<H>(normed(one, gain, bias, l), up, l);
      for (double& h : hidden) h *= sigmoid(h);
      const frame change = product<M>(hidden, down, l);
      for (std::size_t m = 0; m < M; ++m) one[m] += 0.5 * change[m];
    }
  }
  void attend(frames& x, std::size_t l) const {
    frames part[3]{};  // queries, keys, values; features are heads times their dimension
    for (std::size_t s = 0; s < S; ++s) {
      const frame n = normed(x[s], attention_gain, attention_bias, l);
      for (std::size_t c = 0; c < 3; ++c) {
        for (std::size_t m = 0; m < M; ++m) {
          for (std::size_t k = 0; k < M; ++k) part[c][s][k] += n[m] * of(qkv, l, (c * M + m) * M + k);
        }
      }
    }
    frames seen{};
    for (std::size_t head = 0; head < N; ++head) {
      for (std::size_t s = 0; s < S; ++s) {
        std::array<double, S> weight{};
        double sum = 0;
        for (std::size_t t = 0; t < S; ++t) {
          double score = 0;
          for (std::size_t d = head * D; d < (head + 1) * D; ++d) score += part[0][s][d] * part[1][t][d];
          sum += weight[t] = std::exp(score / std::sqrt(D));
        }
        for (std::size_t t = 0; t < S; ++t) {
          for (std::size_t d = head * D; d < (head + 1) * D; ++d) seen[s][d] += weight[t] / sum * part[2][t][d];
        }
      }
    }
    for (std::size_t s = 0; s < S; ++s) {
      const frame change = product<M>(seen[s], joined, l);
      for (std::size_t m = 0; m < M; ++m) x[s][m] += change[m];
    }
  }
  void convolve(frames& x, std::size_t l) const {
    frames open;
    for (std::size_t s = 0; s < S; ++s) {
      const auto both = product<2 * M>(normed(x[s], convolution_gain, convolution_bias, l), gated, l);
      for (std::size_t m = 0; m < M; ++m) open[s][m] = both[m] * sigmoid(both[M + m]);
    }
    for (std::size_t s = 0; s < S; ++s) {
      frame sum{};
      for (std::size_t k = 0; k < K; ++k) {
        if (s + k < K / 2 || s + k >= S + K / 2) continue;
        for (std::size_t m = 0; m < M; ++m) sum[m] += open[s + k - K / 2][m] * of(filter, l, k * M + m);
      }
      frame active = normed(sum, filtered_gain, filtered_bias, l);
      for (double& one : active) one *= sigmoid(one);
      const frame change = product<M>(active, mixed, l);
      for (std::size_t m = 0; m < M; ++m) x[s][m] += change[m];
    }
  }
  void apply(frames& x, std::size_t l) const {
    half_step(x, first_gain, first_bias, first_up, first_down, l);
    attend(x, l);
    convolve(x, l);
    half_step(x, second_gain, second_bias, second_up, second_down, l);
    for (frame& one : x) one = normed(one, last_gain, last_bias, l);
  }

  const std::vector<tensor>& leaves_;
  std::size_t layers_;
};

}  // namespace conformer
