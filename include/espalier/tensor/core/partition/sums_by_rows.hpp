// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
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
  graph_editor edit(from);
  for (int id = 0; id < from.size; ++id) {
    if (detail::reduces_by_rows(from, id)) {
      const extents& shape = from.operand(id, 0).shape;
      const auto [dims, kind] = attributes_of<reduction_attributes>(from[id]);
      instruction rows = from[id];
      rows.label = nullptr;
      if (kind == reduction::sum) rows.type = facts_of(rows.type).accumulate;
      rows.shape = detail::reduced_shape(shape, std::int64_t{1} << (shape.rank - 1), false);
      set_attributes(rows, reduction_attributes{std::int64_t{1} << (shape.rank - 1), kind});
      // All rows of the buffer are read, also those that a mask has made.
      rows.annotation = edit.annotate({rows.shape, sharding::whole(rows.shape.rank)});
      const int of_rows = edit.append(rows);
      edit[id].operand[0] = of_rows;
      set_attributes(edit[id], reduction_attributes{dims >> 1, kind});
    }
    edit.place(id);
  }
  graph made = edit.finish();
  g = static_cast<graph&&>(made);
}

}  // namespace espalier
