// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/packing/exact_solve.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Linear programs max c x, A x <= b, x >= 0 with b >= 0, whose columns come one at a time: the revised simplex method
/// with a dense inverse of the basis, for some hundreds of rows.
///
/// The right-hand side is shifted by tiny amounts against cycling; `values` are those of the right-hand side as given.
class simplex {
 public:
  explicit simplex(std::vector<double> limits) : limits_(std::move(limits)), rows_(limits_.size()) {
    inverse_.assign(rows_ * rows_, 0);
    basis_.resize(rows_);
    duals_.assign(rows_, 0);
    double largest = 1;
    for (const double b : limits_) largest = std::max(largest, b);
    for (std::size_t i = 0; i < rows_; ++i) {
      inverse_[i * rows_ + i] = 1;
      basis_[i] = -1 - static_cast<int>(i);
      shifted_.push_back(shifted(limits_[i], largest));
    }
    basic_ = shifted_;
  }

  /// `improve` and `repair` stop then, and say false.
  void stop_at(std::chrono::steady_clock::time_point deadline) { deadline_ = deadline; }

  int add(double objective, std::vector<std::pair<int, double>> entries) {
    columns_.push_back({objective, std::move(entries), false});
    return static_cast<int>(columns_.size()) - 1;
  }

  /// Adds a constraint sum entry x <= limit on known columns. If the basis now violates it, `repair` mends that.
  void add_row(const std::vector<std::pair<int, double>>& entries, double limit) {
    const auto row = static_cast<int>(rows_);
    std::vector<double> coefficient(columns_.size(), 0);
    for (const auto& [j, entry] : entries) {
      columns_[static_cast<std::size_t>(j)].entries.emplace_back(row, entry);
      coefficient[static_cast<std::size_t>(j)] = entry;
    }
    // The slack of the new row is basic: its row of the inverse takes the others away.
    std::vector<double> inverse((rows_ + 1) * (rows_ + 1), 0);
    for (std::size_t i = 0; i < rows_; ++i) {
      const double* const from = &inverse_[i * rows_];
      std::copy(from, from + rows_, &inverse[i * (rows_ + 1)]);
      const double c = basis_[i] >= 0 ? coefficient[static_cast<std::size_t>(basis_[i])] : 0;
      if (c == 0) continue;
      for (std::size_t k = 0; k < rows_; ++k) inverse[rows_ * (rows_ + 1) + k] -= c * from[k];
    }
    inverse.back() = 1;
    inverse_ = std::move(inverse);
    limits_.push_back(limit);
    shifted_.push_back(shifted(limit, *std::max_element(limits_.begin(), limits_.end())));
    double value = 0;
    for (std::size_t k = 0; k <= rows_; ++k) value += inverse_[rows_ * (rows_ + 1) + k] * shifted_[k];
    basic_.push_back(value);
    basis_.push_back(-1 - row);
    duals_.push_back(0);
    ++rows_;
  }

  /// Makes a basis feasible again whose columns don't gain (the dual simplex method), as `add_row` leaves it after
  /// `improve`. False if it stopped for another reason.
  bool repair() {
    for (int pivots = 0; pivots < most_pivots; ++pivots) {
      if (pivots % 16 == 15 && std::chrono::steady_clock::now() > deadline_) return false;
      const auto worst = std::min_element(basic_.begin(), basic_.end());
      if (*worst >= -1e-9) return true;
      const auto leaving = static_cast<std::size_t>(worst - basic_.begin());
      const double* const row = &inverse_[leaving * rows_];
      int entering = 0;
      bool found = false;
      double least = 0;
      double divisor = 0;
      const auto consider = [&](int candidate, double alpha, double loss) {
        if (alpha >= -1e-9) return;
        const double ratio = std::max(0.0, loss) / -alpha;
        if (!found || ratio < least - 1e-13 || (ratio <= least + 1e-13 && alpha < divisor))
          entering = candidate, least = ratio, divisor = alpha, found = true;
      };
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        if (columns_[j].basic) continue;
        double alpha = 0;
        double loss = -columns_[j].objective;
        for (const auto& [i, entry] : columns_[j].entries) {
          alpha += row[i] * entry;
          loss += duals_[static_cast<std::size_t>(i)] * entry;
        }
        consider(static_cast<int>(j), alpha, loss);
      }
      for (std::size_t i = 0; i < rows_; ++i) consider(-1 - static_cast<int>(i), row[i], duals_[i]);
      if (!found) return false;  // no point satisfies all rows
      direct(entering);
      pivot(entering, -least * -divisor, leaving);
      if (++since_refactor_ >= 150 && !refactor()) return false;
    }
    return false;
  }

  [[nodiscard]] const std::vector<double>& duals() const { return duals_; }

  /// Changes what a column contributes. Afterwards call `improve`.
  void set_objective(int j, double objective) {
    columns_[static_cast<std::size_t>(j)].objective = objective;
    refresh_ = true;
  }

  /// Returns by how much the objective would grow per unit of the column at these duals.
  [[nodiscard]] double gain(int j) const {
    const column& c = columns_[static_cast<std::size_t>(j)];
    double value = c.objective;
    for (const auto& [row, entry] : c.entries) value -= entry * duals_[static_cast<std::size_t>(row)];
    return value;
  }

  /// Pivots until no known column gains. False if it stopped for another reason: numbers that no longer make sense.
  bool improve() {
    if (refresh_ && !refactor()) return false;
    for (int pivots = 0; pivots < most_pivots; ++pivots) {
      if (pivots % 16 == 15 && std::chrono::steady_clock::now() > deadline_) return false;
      // Numbered like the basis: >= 0 a column, -1 - i the slack of row i. The best of a part of the columns is good
      // enough; the next pivot looks at the next part.
      int entering = 0;
      double best = tolerance;
      bool found = false;
      for (std::size_t i = 0; i < rows_; ++i)
        if (-duals_[i] > best) best = -duals_[i], entering = -1 - static_cast<int>(i), found = true;
      const std::size_t part = std::max<std::size_t>(200, columns_.size() / 8);
      for (std::size_t looked = 0; looked < columns_.size() && (looked < part || !found); ++looked) {
        if (++cursor_ >= columns_.size()) cursor_ = 0;
        if (columns_[cursor_].basic) continue;
        if (const double g = gain(static_cast<int>(cursor_)); g > best)
          best = g, entering = static_cast<int>(cursor_), found = true;
      }
      if (!found) return true;
      if (!pivot(entering, best)) return false;
      if (++since_refactor_ >= 150 && !refactor()) return false;
    }
    return false;
  }

  /// The value of each column at the limits as given.
  [[nodiscard]] std::vector<double> values() {
    refactor();
    std::vector<double> result(columns_.size(), 0);
    for (std::size_t i = 0; i < rows_; ++i) {
      if (basis_[i] < 0) continue;
      double value = 0;
      for (std::size_t k = 0; k < rows_; ++k) value += inverse_[i * rows_ + k] * limits_[k];
      result[static_cast<std::size_t>(basis_[i])] = value;
    }
    return result;
  }

  /// The basis at these whole limits, solved in fractions: the value of each column and the price of each row. Nothing
  /// where the fractions are too long.
  /// @pre entries and objectives are whole
  struct exact_solution {
    std::vector<fraction> values;
    std::vector<fraction> duals;
  };
  [[nodiscard]] std::optional<exact_solution> solve_exactly(const std::vector<std::int64_t>& limits) const {
    // Rows whose slack is in the basis don't bind: what remains is square.
    std::vector<std::size_t> place(rows_, 0);
    std::vector<std::size_t> binding;
    std::vector<int> chosen;
    for (const int b : basis_) {
      if (b >= 0) {
        chosen.push_back(b);
      } else {
        place[static_cast<std::size_t>(-1 - b)] = rows_;
      }
    }
    for (std::size_t i = 0; i < rows_; ++i) {
      if (place[i] == rows_) continue;
      place[i] = binding.size();
      binding.push_back(i);
    }
    const std::size_t n = chosen.size();
    whole_system primal{n, std::vector<std::int64_t>(n * n, 0), {}};
    whole_system dual = primal;
    for (const std::size_t i : binding) primal.right.push_back(limits[i]);
    for (std::size_t j = 0; j < n; ++j) {
      const column& c = columns_[static_cast<std::size_t>(chosen[j])];
      dual.right.push_back(std::llround(c.objective));
      for (const auto& [row, entry] : c.entries) {
        const std::size_t i = place[static_cast<std::size_t>(row)];
        if (i == rows_) continue;
        primal.matrix[i * n + j] = dual.matrix[j * n + i] = std::llround(entry);
      }
    }
    const auto values = detail::solve_exactly(primal);
    const auto duals = detail::solve_exactly(dual);
    if (!values || !duals) return std::nullopt;
    exact_solution result{std::vector<fraction>(columns_.size()), std::vector<fraction>(rows_)};
    for (std::size_t j = 0; j < n; ++j) result.values[static_cast<std::size_t>(chosen[j])] = (*values)[j];
    for (std::size_t i = 0; i < n; ++i) result.duals[binding[i]] = (*duals)[i];
    return result;
  }

  [[nodiscard]] double objective() const {
    double value = 0;
    for (std::size_t i = 0; i < rows_; ++i) value += duals_[i] * limits_[i];
    return value;
  }

 private:
  static constexpr double tolerance = 1e-10;
  static constexpr int most_pivots = 20000;

  struct column {
    double objective;
    std::vector<std::pair<int, double>> entries;
    bool basic;
  };

  [[nodiscard]] double shifted(double limit, double largest) {
    state_ = state_ * 1664525U + 1013904223U;
    const double part = 0.5 + static_cast<double>(state_ >> 8U) / static_cast<double>(1U << 25U);
    return limit + 1e-7 * part * std::max(limit, 1e-3 * largest);
  }

  /// How the basic variables shrink as the entering one grows.
  void direct(int entering) {
    direction_.assign(rows_, 0);
    if (entering < 0) {
      const auto k = static_cast<std::size_t>(-1 - entering);
      for (std::size_t i = 0; i < rows_; ++i) direction_[i] = inverse_[i * rows_ + k];
      return;
    }
    const auto& entries = columns_[static_cast<std::size_t>(entering)].entries;
    for (std::size_t i = 0; i < rows_; ++i)
      for (const auto& [row, entry] : entries)
        direction_[i] += inverse_[i * rows_ + static_cast<std::size_t>(row)] * entry;
  }

  bool pivot(int entering, double gained) {
    direct(entering);
    // The first basic variable to reach zero; among nearly equal ones, the largest divisor.
    std::size_t leaving = rows_;
    double step = 0;
    for (std::size_t i = 0; i < rows_; ++i) {
      if (direction_[i] <= 1e-9) continue;
      const double ratio = std::max(0.0, basic_[i]) / direction_[i];
      if (leaving == rows_ || ratio < step * (1 - 1e-12) ||
          (ratio <= step * (1 + 1e-12) && direction_[i] > direction_[leaving])) {
        leaving = i;
        step = ratio;
      }
    }
    if (leaving == rows_) return false;  // unbounded: impossible while every column uses some row
    pivot(entering, gained, leaving);
    return true;
  }

  void pivot(int entering, double gained, std::size_t leaving) {
    const double step = basic_[leaving] / direction_[leaving];
    const double divisor = direction_[leaving];
    double* const row = &inverse_[leaving * rows_];
    for (std::size_t k = 0; k < rows_; ++k) {
      row[k] /= divisor;
      duals_[k] += gained * row[k];
    }
    for (std::size_t i = 0; i < rows_; ++i) {
      if (i == leaving || direction_[i] == 0) continue;
      double* const other = &inverse_[i * rows_];
      for (std::size_t k = 0; k < rows_; ++k) other[k] -= direction_[i] * row[k];
      basic_[i] -= direction_[i] * step;
    }
    basic_[leaving] = step;
    if (basis_[leaving] >= 0) columns_[static_cast<std::size_t>(basis_[leaving])].basic = false;
    if (entering >= 0) columns_[static_cast<std::size_t>(entering)].basic = true;
    basis_[leaving] = entering;
  }

  /// Computes inverse, basic values and duals afresh.
  bool refactor() {
    since_refactor_ = 0;
    refresh_ = false;
    const std::size_t width = 2 * rows_;
    std::vector<double> work(rows_ * width, 0);
    for (std::size_t i = 0; i < rows_; ++i) {
      work[i * width + rows_ + i] = 1;
      if (basis_[i] < 0) {
        work[static_cast<std::size_t>(-1 - basis_[i]) * width + i] = 1;
      } else {
        for (const auto& [row, entry] : columns_[static_cast<std::size_t>(basis_[i])].entries)
          work[static_cast<std::size_t>(row) * width + i] = entry;
      }
    }
    for (std::size_t p = 0; p < rows_; ++p) {
      std::size_t best = p;
      for (std::size_t i = p + 1; i < rows_; ++i)
        if (std::abs(work[i * width + p]) > std::abs(work[best * width + p])) best = i;
      if (std::abs(work[best * width + p]) < 1e-11) return false;
      if (best != p) std::swap_ranges(&work[p * width], &work[p * width] + width, &work[best * width]);
      const double divisor = work[p * width + p];
      for (std::size_t k = p; k < width; ++k) work[p * width + k] /= divisor;
      for (std::size_t i = 0; i < rows_; ++i) {
        const double factor = work[i * width + p];
        if (i == p || factor == 0) continue;
        for (std::size_t k = p; k < width; ++k) work[i * width + k] -= factor * work[p * width + k];
      }
    }
    duals_.assign(rows_, 0);
    for (std::size_t i = 0; i < rows_; ++i) {
      basic_[i] = 0;
      const double objective = basis_[i] < 0 ? 0 : columns_[static_cast<std::size_t>(basis_[i])].objective;
      for (std::size_t k = 0; k < rows_; ++k) {
        const double x = work[i * width + rows_ + k];
        inverse_[i * rows_ + k] = x;
        basic_[i] += x * shifted_[k];
        duals_[k] += objective * x;
      }
    }
    return true;
  }

  std::vector<double> limits_;
  std::vector<double> shifted_;
  std::size_t rows_;
  std::vector<double> inverse_;  ///< of the basis, row by row
  std::vector<int> basis_;
  std::vector<double> basic_;
  std::vector<double> duals_;
  std::vector<double> direction_;
  std::vector<column> columns_;
  int since_refactor_ = 0;
  bool refresh_ = false;
  std::size_t cursor_ = 0;
  std::uint32_t state_ = 12345;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
};

}  // namespace espalier::comm::detail
