// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// Shorter rows are better taken together, by the kernel of the whole reduction.
inline constexpr std::int64_t least_columns_by_rows = 64;

/// Whether an instruction reduces all dimensions of what a fused chain makes, and may do so row by row: with one more
/// rounding in between, a product of sixteen-bit floats would be another one.
[[nodiscard]] constexpr bool reduces_by_rows(graph_view g, int id) {
  const instruction& i = g[id];
  if (i.op->fuse != fusion::reduction) return false;
  const instruction& from = g.operand(id, 0);
  const extents& shape = from.shape;
  const auto [dims, kind] = attributes_of<reduction_attributes>(i);
  if (shape.rank < 2 || dims != (std::int64_t{1} << shape.rank) - 1) return false;
  const std::int64_t columns = shape[shape.rank - 1];
  if (columns < least_columns_by_rows || shape.elements() < 2 * columns) return false;
  if (kind == reduction::prod && is_for_storage(i.type)) return false;
  return from.op->fuse == fusion::elementwise && from.region == i.region;
}

}  // namespace detail

/// Reduces in two steps what is computed by a fused chain and reduced to one number, as an inner product is: the rows,
/// which is part of the chain, so that the elements are never in memory; and the column of the rows' results, which is
/// small. Of the sum over a f32<512, 1024>, first 512 sums of 1024 elements.
/// @pre the graph is partitioned
constexpr void reduce_by_rows(graph& g) {
  const graph_view from = g;
  int first = 0;
  while (first < from.size && !detail::reduces_by_rows(from, first)) ++first;
  if (first == from.size) return;
  graph made;
  detail::copy_tables(made, from);
  made.code.reserve(from.size + 8);
  detail::list<int> number(from.size, -1);
  for (int id = 0; id < from.size; ++id) {
    instruction i = from[id];
    renumber(i, number, made.further.data());
    if (detail::reduces_by_rows(from, id)) {
      const extents& shape = from.operand(id, 0).shape;
      const auto [dims, kind] = attributes_of<reduction_attributes>(i);
      instruction rows = i;
      rows.label = nullptr;
      if (kind == reduction::sum) rows.type = facts_of(i.type).accumulate;
      rows.shape = detail::reduced_shape(shape, std::int64_t{1} << (shape.rank - 1), false);
      set_attributes(rows, reduction_attributes{std::int64_t{1} << (shape.rank - 1), kind});
      // All rows of the buffer are read, also those that a mask has made.
      rows.annotation = made.annotations.push_back({rows.shape, sharding::whole(rows.shape.rank)});
      i.operand[0] = made.code.push_back(rows);
      set_attributes(i, reduction_attributes{dims >> 1, kind});
    }
    number[id] = made.code.push_back(i);
  }
  g = static_cast<graph&&>(made);
}

}  // namespace espalier
