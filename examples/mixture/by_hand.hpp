// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace mixture {

/// The loss in plain loops: tokens are handed to experts one after the other, without masks.
class by_hand {
 public:
  /// @param tensors the parameters in the order of their declaration, each in row-major order
  by_hand(const std::vector<std::vector<float>>& tensors, const std::vector<float>& input,
          const std::vector<float>& target) {
    const auto& dense = tensors[0];
    const auto& gate = tensors[1];
    std::vector<double> asked(E);
    std::vector<double> probability(E);
    double squares = 0;
    for (std::size_t b = 0; b < B; ++b) {
      std::vector<std::array<double, M>> h(S);
      std::vector<std::array<double, E>> odds(S);
      std::vector<std::array<std::size_t, 2>> chosen(S);
      for (std::size_t s = 0; s < S; ++s) {
        for (std::size_t n = 0; n < M; ++n) {
          double sum = 0;
          for (std::size_t m = 0; m < M; ++m) sum += at(input, (b * S + s) * M + m) * at(dense, m * M + n);
          h[s][n] = std::max(sum, 0.0);
        }
        odds[s] = odds_of(h[s], gate);
        for (std::size_t e = 0; e < E; ++e) probability[e] += odds[s][e] / (B * S);
        chosen[s] = best_two(odds[s]);
        asked[chosen[s][0]] += 1.0 / (B * S);
      }
      std::vector<std::array<double, M>> y = h;
      std::vector<int> taken(E);
      for (std::size_t choice = 0; choice < 2; ++choice) {
        for (std::size_t s = 0; s < S; ++s) {
          const std::size_t e = chosen[s][choice];
          if (taken[e]++ >= C) {
            ++turned_away_;
            continue;
          }
          const double weight = odds[s][e] / (odds[s][chosen[s][0]] + odds[s][chosen[s][1]]);
          add_answer(weight, e, h[s], tensors, y[s]);
        }
      }
      for (std::size_t s = 0; s < S; ++s) {
        for (std::size_t m = 0; m < M; ++m) {
          const double difference = y[s][m] - at(target, (b * S + s) * M + m);
          squares += difference * difference;
        }
      }
    }
    double balance = 0;
    for (std::size_t e = 0; e < E; ++e) balance += E * asked[e] * probability[e];
    loss_ = squares / (B * S * M) + 0.01 * balance;
  }

  [[nodiscard]] double loss() const { return loss_; }
  [[nodiscard]] int turned_away() const { return turned_away_; }

 private:
  static double at(const std::vector<float>& tensor, std::size_t index) { return static_cast<double>(tensor[index]); }

  static std::array<double, E> odds_of(const std::array<double, M>& h, const std::vector<float>& gate) {
    std::array<double, E> odds{};
    double sum = 0;
    for (std::size_t e = 0; e < E; ++e) {
      for (std::size_t m = 0; m < M; ++m) odds[e] += h[m] * at(gate, m * E + e);
      odds[e] = std::exp(odds[e]);
      sum += odds[e];
    }
    for (double& one : odds) one /= sum;
    return odds;
  }
  static std::array<std::size_t, 2> best_two(const std::array<double, E>& odds) {
    std::array<std::size_t, 2> best{0, 1};
    if (odds[1] > odds[0]) best = {1, 0};
    for (std::size_t e = 2; e < E; ++e) {
      if (odds[e] > odds[best[0]]) {
        best = {e, best[0]};
      } else if (odds[e] > odds[best[1]]) {
        best[1] = e;
      }
    }
    return best;
  }
  static void add_answer(double weight, std::size_t e, const std::array<double, M>& h,
                         const std::vector<std::vector<float>>& tensors, std::array<double, M>& y) {
    for (std::size_t k = 0; k < H; ++k) {
      double hidden = 0;
      for (std::size_t m = 0; m < M; ++m) hidden += h[m] * at(tensors[2], (e * M + m) * H + k);
      if (hidden <= 0) continue;
      for (std::size_t m = 0; m < M; ++m) y[m] += weight * hidden * at(tensors[3], (e * H + k) * M + m);
    }
  }

  double loss_ = 0;
  int turned_away_ = 0;
};

}  // namespace mixture
