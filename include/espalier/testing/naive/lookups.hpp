// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/naive/windows.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

/// The meanings of ops that read or write at computed indices.
namespace espalier::test::naive {

/// Meanings of gathers, scatters and dynamic slices.
class lookup_equations : protected window_equations {
 protected:
  using window_equations::window_equations;

  /// The index of the row that is looked up for element `i` of what was looked up: dimensions `dim`, `dim` + 1, ...
  /// of it are those of the indices, after the first `batch`.
  [[nodiscard]] static double row_of(const tensor_value& indices, const gather_attributes& how, const place_in& i) {
    place_in at;
    for (int d = 0; d < indices.shape.rank; ++d) at[d] = d < how.batch ? i[d] : i[how.dim + d - how.batch];
    return element(indices, at);
  }
  /// The same element's index in the table.
  [[nodiscard]] static place_in in_table(const extents& table, const extents& indices, const gather_attributes& how,
                                         const place_in& i, double row) {
    place_in at;
    for (int d = 0; d < table.rank; ++d) {
      if (d < how.dim) at[d] = i[d];
      if (d > how.dim) at[d] = i[d + indices.rank - how.batch - 1];
    }
    at[how.dim] = static_cast<std::int64_t>(row);
    return at;
  }

  tensor_value gather(int id) {
    const tensor_value& table = operand(id, 0);
    const tensor_value& indices = operand(id, 1);
    const auto how = attributes_of<gather_attributes>(g_[id]);
    return tensor_of(g_[id].shape, [&](const place_in& i) {
      const double row = row_of(indices, how, i);
      if (row < 0 || row >= static_cast<double>(table.shape[how.dim])) return 0.0;
      return element(table, in_table(table.shape, indices.shape, how, i, row));
    });
  }

  tensor_value scatter_add(int id) {
    const tensor_value& indices = operand(id, 0);
    const tensor_value& updates = operand(id, 1);
    const extents& table = g_[id].shape;
    const auto how = attributes_of<gather_attributes>(g_[id]);
    tensor_value made = tensor_of(table, [](const place_in&) { return 0.0; });
    std::vector<double> sizes(made.data.size(), 0.0);
    for_each_index(updates.shape, [&](const place_in& i) {
      const double row = row_of(indices, how, i);
      if (row < 0 || row >= static_cast<double>(table[how.dim])) return;
      const place_in to = in_table(table, indices.shape, how, i, row);
      std::int64_t at = 0;
      for (int d = 0; d < table.rank; ++d) at = at * table[d] + to[d];
      made.data.at(static_cast<std::size_t>(at)) += element(updates, i);
      sizes.at(static_cast<std::size_t>(at)) += std::abs(element(updates, i));
    });
    for (std::size_t i = 0; i < sizes.size(); ++i) note(g_[id].type, made.data[i], sizes[i]);
    return made;
  }

  /// The first of `size` neighbours among `extent` elements: `start`, or what is nearest to it.
  [[nodiscard]] static std::int64_t first_of(double start, std::int64_t extent, std::int64_t size) {
    std::int64_t nearest = 0;
    for (std::int64_t at = 0; at + size <= extent; ++at) {
      const double distance = std::abs(static_cast<double>(at) - start);
      if (distance < std::abs(static_cast<double>(nearest) - start)) nearest = at;
    }
    return nearest;
  }

  tensor_value dynamic_slice(int id) {
    const tensor_value& from = operand(id, 0);
    const int along = attributes_of<dynamic_slice_attributes>(g_[id]).dim;
    const std::int64_t first = first_of(operand(id, 1).data.at(0), from.shape[along], g_[id].shape[along]);
    return tensor_of(g_[id].shape, [&](place_in i) {
      i[along] += first;
      return element(from, i);
    });
  }

  tensor_value dynamic_update_slice(int id) {
    const tensor_value& update = operand(id, 1);
    place_in first;
    for (int k = 2; k < g_[id].operand_count; ++k) {
      const auto placed = attributes_of<dynamic_update_slice_attributes>(g_[id]);
      const int d = k == 2 ? placed.dim : placed.second_dim;
      first[d] = first_of(operand(id, k).data.at(0), g_[id].shape[d], update.shape[d]);
    }
    const tensor_value& before = operand(id, 0);
    return tensor_of(g_[id].shape, [&](const place_in& to) {
      place_in i = to;
      for (int d = 0; d < update.shape.rank; ++d) {
        i[d] -= first[d];
        if (i[d] < 0 || i[d] >= update.shape[d]) return element(before, to);
      }
      return element(update, i);
    });
  }
};

}  // namespace espalier::test::naive
