// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/einsum/formula.hpp>

#include <bit>
#include <cstdint>

namespace espalier::detail {

/// The order in which operands are multiplied: two at a time, product n as value number `operands` + n. For three
/// operands, `left = {0, 3}` and `right = {1, 2}` is x0 * x1 as value 3, then value 3 * x2.
struct einsum_order {
  bool exists = true;
  int left[max_einsum_operands]{};
  int right[max_einsum_operands]{};
};

/// The order that multiplies and stores the fewest elements, of all orders: for each set of operands the cheapest
/// route to their product, by the cost of its two halves (Pfeifer, Haegeman, Verstraete, 2014). Among equals, from left
/// to right. No order exists if each of them has a product of more than `max_rank` dimensions on its way.
class einsum_orders {
 public:
  constexpr einsum_orders(const einsum_formula& f, const einsum_shapes& shapes, const std::int64_t* repeated)
      : operands_(f.operands) {
    for (int k = 0; k < f.operands; ++k) {
      for (int d = 0, at = 0; d < shapes[k].rank; ++d) {
        if ((repeated[k] >> d & 1) == 0) size_[number(f.operand[k][at++])] = static_cast<double>(shapes[k][d]);
      }
    }
    const unsigned all = (1U << static_cast<unsigned>(operands_)) - 1;
    std::uint64_t named[1U << max_einsum_operands]{};
    for (unsigned set = 1; set <= all; ++set) {
      const int k = std::countr_zero(set);
      named[set] = named[set & (set - 1)] | letters(f.operand[k]);
    }
    const std::uint64_t result = letters(f.result);
    for (unsigned set = 1; set <= all; ++set) kept_[set] = named[set] & (result | named[all & ~set]);
    for (unsigned set = 1; set <= all; ++set) {
      if ((set & (set - 1)) != 0) choose_halves(set);
    }
  }

  [[nodiscard]] constexpr einsum_order best() const {
    einsum_order order;
    int products = 0;
    order.exists = emit((1U << static_cast<unsigned>(operands_)) - 1, order, products) >= 0;
    return order;
  }

 private:
  [[nodiscard]] static constexpr int number(char letter) {
    if (letter >= 'a') return letter - 'a';
    return letter >= 'A' ? 26 + letter - 'A' : 52 + letter - '0';
  }
  [[nodiscard]] static constexpr std::uint64_t letters(einsum_term term) {
    std::uint64_t set = 0;
    for (int d = 0; d < term.size(); ++d) set |= std::uint64_t{1} << static_cast<unsigned>(number(term[d]));
    return set;
  }
  [[nodiscard]] constexpr double elements(std::uint64_t set) const {
    double count = 1;
    for (; set != 0; set &= set - 1) count *= size_[std::countr_zero(set)];
    return count;
  }

  constexpr void choose_halves(unsigned set) {
    if (std::popcount(kept_[set]) > max_rank) return;
    // The half without the first operand: the last one alone, then all others.
    const unsigned last = std::bit_floor(set);
    try_half(set, last);
    const unsigned rest = set & (set - 1);
    for (unsigned half = rest; half != 0; half = (half - 1) & rest) try_half(set, half);
  }
  constexpr void try_half(unsigned set, unsigned half) {
    const unsigned other = set & ~half;
    if (!has_product(half) || !has_product(other)) return;
    const double cost = cost_[half] + cost_[other] + elements(kept_[half] | kept_[other]) + elements(kept_[set]);
    if (half_[set] != 0 && cost >= cost_[set]) return;
    half_[set] = half;
    cost_[set] = cost;
  }
  [[nodiscard]] constexpr bool has_product(unsigned set) const { return (set & (set - 1)) == 0 || half_[set] != 0; }

  /// Lists the products that a set needs, and returns the number of its value.
  constexpr int emit(unsigned set, einsum_order& order, int& products) const {
    if ((set & (set - 1)) == 0) return std::countr_zero(set);
    if (half_[set] == 0) return -1;
    const int left = emit(set & ~half_[set], order, products);
    const int right = emit(half_[set], order, products);
    order.left[products] = left;
    order.right[products] = right;
    return operands_ + products++;
  }

  int operands_;
  double size_[64]{};
  /// Each list has an entry for each set of operands: the letters of its product, its cost, and one of the two sets
  /// that it is the product of.
  std::uint64_t kept_[1U << max_einsum_operands]{};
  double cost_[1U << max_einsum_operands]{};
  unsigned half_[1U << max_einsum_operands]{};
};

[[nodiscard]] constexpr einsum_order order_of(const einsum_reading& r, const einsum_shapes& shapes) {
  if (r.formula.operands == 1) return {};
  if (r.formula.operands == 2) return {.left = {0}, .right = {1}};
  return einsum_orders(r.formula, shapes, &r.repeated[0]).best();
}

}  // namespace espalier::detail
