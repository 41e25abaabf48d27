// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/einsum.hpp>

#include <cstdint>

namespace espalier {

/// What a product has to do with a tensor of scores [items..., rows, keys]. With x [items, rows, features] and
/// y [items, keys, features]:
enum class row_role : std::uint8_t {
  none,
  /// scores = x y^T
  makes,
  /// x = scores y: each of its rows comes from the same row of scores.
  keeps,
  /// y = scores^T x, a sum over rows.
  sums,
};

/// What a product multiplies the elements of an operand with, or divides them by, before it computes with them: rounded
/// as a value of the operand's type would be.
struct operand_scale {
  bool is_needed = false;
  bool divides = false;
  double number = 1;
};

/// A product as one of matrices, an item after the other, that may be computed for a few rows of scores at a time.
/// Strides are in elements.
struct row_product {
  row_role role = row_role::none;
  /// The numbers of the three tensors: 0 and 1 are operands, 2 is the result.
  int scores = 2;
  int x = 0;
  int y = 1;
  std::int64_t rows = 1;
  std::int64_t keys = 1;
  std::int64_t features = 1;
  std::int64_t x_row = 0;
  std::int64_t x_feature = 1;
  std::int64_t y_key = 0;
  std::int64_t y_feature = 1;
  int item_dims = 0;
  /// Items have a y of their own, some of them or all.
  bool has_own_y = false;
  std::int64_t item_extent[max_rank]{};
  /// 0 where items share what they read or sum up.
  std::int64_t x_item[max_rank]{};
  std::int64_t y_item[max_rank]{};
  /// Of the operands.
  operand_scale scale[2]{};

  /// Neighbouring items that read and sum up the same y.
  [[nodiscard]] constexpr std::int64_t items_of_y() const {
    std::int64_t count = 1;
    for (int d = item_dims - 1; d >= 0 && y_item[d] == 0; --d) count *= item_extent[d];
    return count;
  }
};

namespace detail {

/// `scores`: which of the three tensors, left, right and result, has the scores. Without a role if it is not such a
/// product.
[[nodiscard]] constexpr row_product row_product_of(const einsum_attributes& terms, const extents& left,
                                                   const extents& right, const extents& result, int scores) {
  const einsum_term term[3]{terms.left, terms.right, terms.result};
  const extents* const shape[3]{&left, &right, &result};
  const row_product none;
  row_product p;
  p.scores = scores;
  const einsum_term square = term[scores];
  const extents& space = *shape[scores];
  if (space.rank < 2) return none;
  const char row = square[space.rank - 2];
  const char key = square[space.rank - 1];
  p.rows = space[space.rank - 2];
  p.keys = space[space.rank - 1];
  p.x = p.y = -1;
  for (int t = 0; t < 3; ++t) {
    if (t == scores) continue;
    const bool has_row = term[t].contains(row);
    if (has_row == term[t].contains(key)) return none;
    (has_row ? p.x : p.y) = t;
  }
  if (p.x < 0 || p.y < 0) return none;
  const auto stride_in = [&](int t, char letter) {
    const int d = term[t].find(letter);
    return d < 0 || (*shape[t])[d] == 1 ? std::int64_t{0} : stride_of(*shape[t], d);
  };
  p.x_row = stride_in(p.x, row);
  p.y_key = stride_in(p.y, key);
  p.item_dims = space.rank - 2;
  bool shared = false;
  for (int d = p.item_dims - 1; d >= 0; --d) {
    p.has_own_y = p.has_own_y || term[p.y].contains(square[d]);
    p.item_extent[d] = space[d];
    p.x_item[d] = stride_in(p.x, square[d]);
    p.y_item[d] = stride_in(p.y, square[d]);
    if (p.x_item[d] == 0 && space[d] > 1 && p.x == 2) return none;
    // What items sum up together, neighbours do.
    if (p.y == 2 && space[d] > 1 && p.y_item[d] != 0) shared = true;
    if (p.y == 2 && space[d] > 1 && p.y_item[d] == 0 && shared) return none;
  }
  // A matrix of weights, which all rows of a batch have in common, is no y: it is better read once. What tells the keys
  // of a lone head from weights is around them (program/lone_heads.hpp).
  if (!p.has_own_y && !terms.of_lone_head) return none;
  // The letters that the scores do not have, all of one stride.
  const einsum_term of_x = term[p.x];
  int found = 0;
  for (int d = 0; d < of_x.size(); ++d) {
    if (square.contains(of_x[d])) continue;
    if (!term[p.y].contains(of_x[d]) || ++found > 1) return none;
    p.features = (*shape[p.x])[d];
    p.x_feature = stride_of(*shape[p.x], d);
    p.y_feature = stride_in(p.y, of_x[d]);
    if (p.features == 1) p.x_feature = p.y_feature = 1;
  }
  for (int d = 0; d < term[p.y].size(); ++d) {
    if (!square.contains(term[p.y][d]) && !of_x.contains(term[p.y][d])) return none;
  }
  // A result is written along its rows; sums are when the last row has been added, in any order.
  if (p.x == 2 && p.x_feature != 1) return none;
  p.role = scores == 2 ? row_role::makes : p.x == 2 ? row_role::keeps : row_role::sums;
  return p;
}
[[nodiscard]] constexpr row_product row_product_of(graph_view g, int id, int scores) {
  return row_product_of(attributes_of<einsum_attributes>(g[id]), g.operand(id, 0).shape, g.operand(id, 1).shape,
                        g[id].shape, scores);
}

/// Scores of so many elements an item, and more, do not stay in the second-level cache: they are worked on a few rows
/// at a time.
inline constexpr std::int64_t least_scores = std::int64_t{1} << 18;

[[nodiscard]] constexpr bool has_many_scores(const extents& space) {
  return space.rank >= 2 && space[space.rank - 2] * space[space.rank - 1] >= least_scores;
}
/// The scores of a lone head have at least so many elements for each that they come from: a layer of weights that makes
/// its rows up to four times as wide, as in transformers, has less, of any number of rows.
inline constexpr std::int64_t least_share_of_lone_head = 4;
/// With fewer, little memory is saved.
inline constexpr std::int64_t least_share_of_scores = 2;

/// A product from which scores may come that are worked on a few rows at a time: they take more memory than what they
/// come from.
[[nodiscard]] constexpr bool makes_scores(graph_view g, int id) {
  const instruction& i = g[id];
  if (!i.op->facts.contracts || !is_floating(i.type) || !has_many_scores(i.shape)) return false;
  if (!is_floating(g.operand(id, 0).type) || !is_floating(g.operand(id, 1).type)) return false;
  const std::int64_t read = g.operand(id, 0).shape.elements() + g.operand(id, 1).shape.elements();
  return least_share_of_scores * read <= i.shape.elements() && row_product_of(g, id, 2).role == row_role::makes;
}

/// Whether a value follows from what is made of nothing, as the mask of a triangle.
[[nodiscard]] constexpr bool follows_from_sources(graph_view g, int id, int& looks) {
  constexpr int most_looks = 64;
  const instruction& i = g[id];
  if (++looks > most_looks || i.op->fuse != fusion::elementwise || i.operand_count == 0 || i.operand_count > 3)
    return i.op->fuse == fusion::source && i.operand_count == 0 && structure_of(i) == structure::none;
  for (int k = 0; k < i.operand_count; ++k) {
    if (!follows_from_sources(g, i.operand[k], looks)) return false;
  }
  return true;
}
/// Whether a value is of scores, or a number for each of their rows, and follows row by row from a product that makes
/// scores: a gradient computes it again, from what takes less memory.
[[nodiscard]] constexpr bool follows_from_scores(graph_view g, int id, int& looks) {
  constexpr int most_looks = 64;
  const instruction& i = g[id];
  if (++looks > most_looks || i.operand_count == 0 || i.operand_count > 3) return false;
  if (i.op->facts.contracts) return makes_scores(g, id);
  if (i.op->fuse == fusion::reduction) {
    const extents& from = g[i.operand[0]].shape;
    const bool is_of_rows = attributes_of<reduction_attributes>(i).dims == std::int64_t{1} << (from.rank - 1);
    return is_of_rows && has_many_scores(from) && follows_from_scores(g, i.operand[0], looks);
  }
  if (i.op->fuse != fusion::elementwise) return false;
  // A number for each row is one or two steps away from a sum or a maximum over it.
  if (!has_many_scores(i.shape)) looks += most_looks / 4;
  bool follows = false;
  for (int k = 0; k < i.operand_count; ++k) {
    const instruction& from = g[i.operand[k]];
    if (from.op->fuse == fusion::source) continue;
    if (from.op->fuse == fusion::broadcast) {
      // What it repeats is kept, unless it follows, too.
      if (g[from.operand[0]].shape.elements() < from.shape.elements()) continue;
      return false;
    }
    if (from.op->fuse == fusion::elementwise && follows_from_sources(g, i.operand[k], looks)) continue;
    if (!follows_from_scores(g, i.operand[k], looks)) return false;
    follows = true;
  }
  return follows;
}

}  // namespace detail

}  // namespace espalier
