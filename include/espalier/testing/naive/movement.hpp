// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/elementwise.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

/// The meanings of ops that move elements.
namespace espalier::test::naive {

/// Entry d of a list of dimensions: four bits each, counted from one.
[[nodiscard]] inline int listed_dimension(std::int64_t code, int d) {
  return static_cast<int>(code >> (4 * d) & 15) - 1;
}

/// Meanings of ops whose elements are elements of their operands, at indices that are known or follow from an order.
class movement_equations : protected element_equations {
 protected:
  using element_equations::element_equations;

  tensor_value broadcast(int id) {
    const tensor_value& from = operand(id, 0);
    const axis_list target = attributes_of<broadcast_attributes>(g_[id]).target;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (int d = 0; d < from.shape.rank; ++d) {
        i[d] = from.shape[d] == 1 ? 0 : to[listed_dimension(target.code(), d)];
      }
      return element(from, i);
    });
  }

  tensor_value transpose(int id) {
    const tensor_value& from = operand(id, 0);
    const axis_list source = attributes_of<transpose_attributes>(g_[id]).source;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i;
      for (int d = 0; d < from.shape.rank; ++d) i[listed_dimension(source.code(), d)] = to[d];
      return element(from, i);
    });
  }

  tensor_value slice(int id) {
    const tensor_value& from = operand(id, 0);
    const auto read = attributes_of<slice_attributes>(g_[id]);
    return tensor_of(g_[id].shape, [&](place_in i) {
      i[read.dim] = read.start + read.step * i[read.dim];
      return element(from, i);
    });
  }

  tensor_value roll(int id) {
    const tensor_value& from = operand(id, 0);
    const auto [along, by] = attributes_of<roll_attributes>(g_[id]);
    return tensor_of(g_[id].shape, [&, dim = along, shift = by](place_in i) {
      i[dim] -= shift;
      if (i[dim] < 0) i[dim] += from.shape[dim];
      return element(from, i);
    });
  }

  tensor_value pad(int id) {
    const tensor_value& from = operand(id, 0);
    const auto written = attributes_of<slice_attributes>(g_[id]);
    const int along = written.dim;
    return tensor_of(g_[id].shape, [&](place_in i) {
      const std::int64_t offset = i[along] - written.start;
      const std::int64_t row = offset / written.step;
      if (offset % written.step != 0 || row < 0 || row >= from.shape[along]) return 0.0;
      i[along] = row;
      return element(from, i);
    });
  }

  tensor_value concat(int id) {
    const int along = attributes_of<concat_attributes>(g_[id]).dim;
    for (int k = 0; k < g_[id].operand_count; ++k) operand(id, k);
    return tensor_of(g_[id].shape, [&](place_in i) {
      int k = 0;
      while (i[along] >= operand(id, k).shape[along]) i[along] -= operand(id, k++).shape[along];
      return element(operand(id, k), i);
    });
  }

  /// The element that exactly j others of its row come before: larger ones, NaNs, and equal ones that stand before it.
  tensor_value top_k(int id, int op, bool wants_index) {
    const int along = attributes_of<along_attributes>(g_[op]).dim;
    const tensor_value& x = operand(op, 0);
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i = to;
      const auto at = [&](std::int64_t n) {
        i[along] = n;
        return element(x, i);
      };
      for (std::int64_t n = 0; n < x.shape[along]; ++n) {
        const double mine = at(n);
        std::int64_t before = 0;
        for (std::int64_t m = 0; m < x.shape[along]; ++m) {
          const double other = at(m);
          const bool equal = other == mine || (std::isnan(other) && std::isnan(mine));
          const bool larger = std::isnan(other) ? !std::isnan(mine) : other > mine;
          before += larger || (equal && m < n) ? 1 : 0;
        }
        if (before == to[along]) return wants_index ? static_cast<double>(n) : mine;
      }
      return std::numeric_limits<double>::quiet_NaN();
    });
  }

  tensor_value moved_along(int id) {
    const int along = attributes_of<along_attributes>(g_[id]).dim;
    const tensor_value& x = operand(id, 0);
    const tensor_value& places = operand(id, 1);
    const bool takes = g_[id].op == &ops::take_along;
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i = to;
      if (takes) {
        const double from = element(places, to);
        if (!(from >= 0 && from < static_cast<double>(x.shape[along]))) return 0.0;
        i[along] = static_cast<std::int64_t>(from);
        return element(x, i);
      }
      for (std::int64_t n = 0; n < x.shape[along]; ++n) {
        i[along] = n;
        if (element(places, i) == static_cast<double>(to[along])) return element(x, i);
      }
      return 0.0;
    });
  }
};

}  // namespace espalier::test::naive
