// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/network.hpp>
#include <espalier/comm/packing/check.hpp>
#include <espalier/comm/packing/column_generation.hpp>
#include <espalier/comm/packing/columns.hpp>
#include <espalier/comm/packing/fraction.hpp>
#include <espalier/comm/packing/multiplicative_weights.hpp>
#include <espalier/comm/packing/rounding.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::comm::detail {

/// Blink's integer program: the fewest of some trees that reach a rate with whole multiples of a unit, by branch and
/// bound. The prices of a packing tell how much the capacity that is left can still carry at most.
class whole_multiples {
 public:
  /// @pre one group; prices of the rows, such that every tree costs at least `least`
  whole_multiples(const std::vector<tree_column>& columns, std::vector<std::int64_t> capacities,
                  std::vector<std::int64_t> prices, int128 least, std::int64_t wanted,
                  packing_clock::time_point deadline)
      : columns_(columns),
        left_(std::move(capacities)),
        prices_(std::move(prices)),
        least_(least),
        target_(wanted),
        deadline_(deadline),
        counts_(columns.size(), 0) {
    for (std::size_t r = 0; r < left_.size(); ++r) worth_ += int128{prices_[r]} * left_[r];
    best_trees_ = columns.size() + 1;
    descend(0, 0, 0);
  }

  /// How often each tree is taken; empty if the rate is out of reach, or the time was.
  [[nodiscard]] const std::vector<std::int64_t>& best() const { return best_; }

 private:
  void descend(std::size_t next, std::int64_t reached, std::size_t trees) {
    if (reached >= target_) {
      if (trees < best_trees_) best_trees_ = trees, best_ = counts_;
      return;
    }
    if (next == columns_.size() || trees + 1 >= best_trees_ || worth_ < least_ * (target_ - reached)) return;
    if (++visited_ % 1024 == 0 && packing_clock::now() > deadline_) best_trees_ = 0;  // ends every branch
    std::int64_t most = target_ - reached;
    for (const auto& [row, count] : columns_[next].uses)
      most = std::min(most, left_[static_cast<std::size_t>(row)] / count);
    for (std::int64_t n = most; n >= 0; --n) {
      counts_[next] = n;
      take(next, n);
      descend(next + 1, reached + n, trees + (n > 0 ? 1 : 0));
      take(next, -n);
    }
    counts_[next] = 0;
  }

  void take(std::size_t j, std::int64_t n) {
    for (const auto& [row, count] : columns_[j].uses) {
      left_[static_cast<std::size_t>(row)] -= n * count;
      worth_ -= int128{prices_[static_cast<std::size_t>(row)]} * n * count;
    }
  }

  const std::vector<tree_column>& columns_;
  std::vector<std::int64_t> left_;
  std::vector<std::int64_t> prices_;
  int128 least_;
  int128 worth_ = 0;  ///< the cost of the capacity that is left
  std::int64_t target_;
  packing_clock::time_point deadline_;
  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> best_;
  std::size_t best_trees_ = 0;
  std::size_t visited_ = 0;
};

/// The best packing of these trees alone.
[[nodiscard]] inline rough_packing pack_only(const tree_source& source, const std::vector<tree_column>& columns) {
  packing_program program(source);
  rough_packing result;
  for (const auto& column : columns) program.add(result.columns, column);
  (void)program.improve();
  result.rate = program.rate();
  result.prices = program.prices();
  program.read(result, source);
  return result;
}

/// Leaves out the lightest trees for as long as the others carry the rate.
[[nodiscard]] inline rough_packing drop_light_trees(const tree_source& source, rough_packing current, double rate,
                                                    packing_clock::time_point deadline) {
  const double enough = rate * (1 - 1e-10);
  for (bool dropped = true; dropped && packing_clock::now() < deadline;) {
    dropped = false;
    std::vector<std::size_t> order(current.columns.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return current.weights[a] != current.weights[b] ? current.weights[a] < current.weights[b] : a > b;
    });
    for (const std::size_t leave : order) {
      if (packing_clock::now() > deadline) break;
      std::vector<tree_column> others;
      for (std::size_t j = 0; j < current.columns.size(); ++j)
        if (j != leave) others.push_back(current.columns[j]);
      rough_packing less = pack_only(source, others);
      if (less.rate < enough) continue;
      current = std::move(less);
      // Columns that the program left empty are removed at once.
      for (std::size_t j = current.columns.size(); j-- > 0;) {
        if (current.weights[j] > 1e-9 * current.rate) continue;
        const auto at = static_cast<std::ptrdiff_t>(j);
        current.columns.erase(current.columns.begin() + at);
        current.weights.erase(current.weights.begin() + at);
        if (!current.exact_weights.empty()) current.exact_weights.erase(current.exact_weights.begin() + at);
      }
      dropped = true;
      break;
    }
  }
  return current;
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

/// Packs fewer trees, at a rate that is less by at most the part `slack` (Blink allows 0.05): whole multiples of the
/// greatest common capacity, its half and so on where that works out (Blink's integer program), else by leaving out
/// trees while the linear program over the others keeps the rate. The given packing is kept if neither finds fewer in
/// the time given. Bound and prices stay those of the network.
/// @post trees <= those before, rate >= (1 - slack) rate before, check(...) if it was so before
[[nodiscard]] inline packing fewer_trees(const network& net, const packing& trees, double slack, double seconds) {
  if (net.ranks < 2 || trees.trees.size() < 2) return trees;
  const auto start = detail::packing_clock::now();
  const auto part = [&](double share) {
    return start +
           std::chrono::duration_cast<detail::packing_clock::duration>(std::chrono::duration<double>(seconds * share));
  };
  const detail::tree_source source(net, trees.kind, trees.root);
  std::vector<detail::tree_column> columns;
  std::vector<double> weights;
  for (const tree& t : trees.trees) {
    columns.push_back(source.column(source.groups() > 1 ? t.root : 0, t));
    weights.push_back(to_double(t.weight));
  }
  const double wanted = to_double(trees.rate) * (1 - slack);
  packing best = trees;
  const auto consider = [&](packing other) {
    other.kind = trees.kind;
    other.root = trees.root;
    other.bound = trees.bound;
    other.prices = trees.prices;
    if (other.trees.size() < best.trees.size() && to_double(other.rate) >= wanted * (1 - 1e-9) && check(other, net))
      best = std::move(other);
  };

  detail::rough_packing all;
  all.columns = columns;
  all.weights = weights;
  all.rate = to_double(trees.rate);
  const detail::rough_packing fewer = detail::drop_light_trees(source, std::move(all), wanted, part(0.6));
  if (fewer.columns.size() < trees.trees.size())
    consider(detail::make_exact(net, trees.kind, trees.root, source, fewer));

  if (source.groups() > 1) return best;
  // Heavy trees first: few of them go far.
  std::vector<std::size_t> order(columns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return weights[a] != weights[b] ? weights[a] > weights[b] : a < b; });
  order.resize(std::min<std::size_t>(order.size(), 32));
  std::vector<detail::tree_column> heavy;
  for (const std::size_t j : order) heavy.push_back(columns[j]);
  std::int64_t unit = 0;
  for (const std::int64_t c : source.capacities()) unit = std::gcd(unit, c);
  // At the packing's prices every tree costs at least what all capacities cost / the bound.
  const std::vector<std::int64_t> prices = source.row_prices(trees.prices);
  detail::int128 paid = 0;
  for (std::size_t r = 0; r < prices.size(); ++r) paid += detail::int128{prices[r]} * source.capacities()[r];
  const detail::int128 least = paid * trees.bound.denominator / std::max<std::int64_t>(1, trees.bound.numerator);
  for (std::int64_t divisor = 1; divisor <= 4; ++divisor) {
    std::vector<std::int64_t> scaled;
    for (const std::int64_t c : source.capacities()) scaled.push_back(c / unit * divisor);
    const double copies = wanted * static_cast<double>(divisor) / static_cast<double>(unit);
    if (copies > 1000) break;
    const auto count = static_cast<std::int64_t>(std::ceil(copies - 1e-9));
    const detail::whole_multiples multiples(heavy, std::move(scaled), prices, least, count,
                                            part(0.6 + 0.1 * static_cast<double>(divisor)));
    if (multiples.best().empty()) continue;
    packing whole;
    for (std::size_t j = 0; j < heavy.size(); ++j) {
      if (multiples.best()[j] == 0) continue;
      tree t = heavy[j].shape;
      t.weight = detail::make_fraction(detail::int128{multiples.best()[j]} * unit, divisor);
      whole.rate = whole.rate + t.weight;
      whole.trees.push_back(std::move(t));
    }
    consider(std::move(whole));
  }
  return best;
}

}  // namespace espalier::comm
