// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/movement.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// The meanings of reductions, cumulative sums and einsums.
namespace espalier::test::naive {

/// The letters of an einsum's term: eight bits each.
[[nodiscard]] inline std::string letters_of(std::int64_t code) {
  std::string letters;
  for (auto rest = static_cast<std::uint64_t>(code); rest != 0; rest >>= 8U) {
    letters += static_cast<char>(rest & 255U);
  }
  return letters;
}

/// Meanings of ops that combine the elements of a dimension.
class sum_equations : protected movement_equations {
 protected:
  using movement_equations::movement_equations;

  tensor_value reduce(int id) {
    const tensor_value& from = operand(id, 0);
    const std::int64_t dims = attributes_of<reduction_attributes>(g_[id]).dims;
    const reduction kind = attributes_of<reduction_attributes>(g_[id]).kind;
    std::vector<int> kept;
    std::vector<int> gone;
    extents rest;
    for (int d = 0; d < from.shape.rank; ++d) {
      const bool goes = (dims >> d & 1) == 1;
      (goes ? gone : kept).push_back(d);
      if (goes) rest.append(from.shape[d]);
    }
    const double most = std::numeric_limits<double>::infinity();
    const double none = kind == reduction::sum    ? 0
                        : kind == reduction::prod ? 1
                        : kind == reduction::max  ? -most
                                                  : most;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (std::size_t d = 0; d < kept.size(); ++d) i[kept[d]] = to[static_cast<int>(d)];
      double sum = none;
      double size = 0;
      for_each_index(rest, [&](const place_in& along) {
        for (std::size_t d = 0; d < gone.size(); ++d) i[gone[d]] = along[static_cast<int>(d)];
        const double x = element(from, i);
        size += std::abs(x);
        switch (kind) {
          case reduction::sum: sum += x; break;
          case reduction::prod: sum *= x; break;
          case reduction::max: sum = larger(sum, x); break;
          case reduction::min: sum = smaller(sum, x); break;
        }
      });
      if (kind == reduction::sum) note(g_[id].type, sum, size);
      return sum;
    });
  }

  /// Each element from the start again.
  tensor_value cumulate(int id) {
    const instruction& self = g_[id];
    const cumulate_attributes how = attributes_of<cumulate_attributes>(self);
    const tensor_value& x = operand(id, 0);
    const tensor_value& terms = self.operand_count == 2 ? operand(id, 1) : x;
    const std::int64_t extent = self.shape[how.dim];
    constexpr double most = std::numeric_limits<double>::infinity();
    return tensor_of(self.shape, [&](const place_in& to) {
      const std::int64_t before = how.reverse ? extent - 1 - to[how.dim] : to[how.dim];
      double sum = how.kind == cumulation::prod  ? 1
                   : how.kind == cumulation::max ? -most
                   : how.kind == cumulation::min ? most
                                                 : 0;
      double size = std::isinf(sum) ? 0 : sum;
      place_in i = to;
      for (std::int64_t n = 0; n < before + (how.exclusive ? 0 : 1); ++n) {
        i[how.dim] = how.reverse ? extent - 1 - n : n;
        const double factor = element(x, i);
        const double term = element(terms, i);
        switch (how.kind) {
          case cumulation::sum:
            sum += factor;
            size += std::abs(factor);
            break;
          case cumulation::prod:
            sum *= factor;
            size *= std::abs(factor);
            break;
          case cumulation::max: sum = larger(sum, factor); break;
          case cumulation::min: sum = smaller(sum, factor); break;
          case cumulation::recurrence:
            sum = factor * sum + term;
            size = std::abs(factor) * size + std::abs(term);
            break;
          case cumulation::late_recurrence:
            // The factor is for the elements after this one.
            sum = (n == before ? 1 : factor) * (sum + term);
            size = (n == before ? 1 : std::abs(factor)) * (size + std::abs(term));
            break;
        }
      }
      if (how.kind != cumulation::max && how.kind != cumulation::min) note(self.type, sum, size);
      return sum;
    });
  }

  tensor_value einsum(int id) {
    const tensor_value& x = operand(id, 0);
    const tensor_value& y = operand(id, 1);
    const einsum_attributes letters = attributes_of<einsum_attributes>(g_[id]);
    const std::string left = letters_of(letters.left.code());
    const std::string right = letters_of(letters.right.code());
    const std::string result = letters_of(letters.result.code());
    std::string summed;
    std::array<std::int64_t, 256> size{};
    std::array<std::int64_t, 256> at{};
    const auto number = [](char letter) { return static_cast<std::size_t>(static_cast<unsigned char>(letter)); };
    const auto read = [&](const std::string& term, const extents& shape) {
      for (std::size_t d = 0; d < term.size(); ++d) {
        size[number(term[d])] = shape[static_cast<int>(d)];
        const bool is_new = result.find(term[d]) == std::string::npos && summed.find(term[d]) == std::string::npos;
        if (is_new) summed += term[d];
      }
    };
    read(left, x.shape);
    read(right, y.shape);
    const auto here = [&](const std::string& term) {
      place_in i;
      for (std::size_t d = 0; d < term.size(); ++d) i[static_cast<int>(d)] = at[number(term[d])];
      return i;
    };
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      for (std::size_t d = 0; d < result.size(); ++d) at[number(result[d])] = to[static_cast<int>(d)];
      std::int64_t terms = 1;
      for (const char letter : summed) terms *= size[number(letter)];
      double sum = 0;
      double size_of_terms = 0;
      for (std::int64_t n = 0; n < terms; ++n) {
        // The letters are the digits of n.
        std::int64_t rest = n;
        for (const char letter : summed) {
          at[number(letter)] = rest % size[number(letter)];
          rest /= size[number(letter)];
        }
        const double term = element(x, here(left)) * element(y, here(right));
        sum += term;
        size_of_terms += std::abs(term);
      }
      note(g_[id].type, sum, size_of_terms);
      return sum;
    });
  }
};

}  // namespace espalier::test::naive
