// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/core/partition/scheduler.hpp>

namespace espalier {

namespace detail {

/// Whether a program has scores that are worked on a few rows at a time (partition/row_regions.hpp).
[[nodiscard]] constexpr bool has_scores(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op->facts.contracts && makes_scores(g, id)) return true;
  }
  return false;
}

/// Makes the values of scores again where a gradient reads them, and masks where they are read.
class row_recomputation {
 public:
  constexpr explicit row_recomputation(graph_view g) : g_(g), number_(g.size, -1), family_(g.size, -1) {}

  constexpr graph run() {
    for (int id = 0; id < g_.size; ++id) {
      if (g_[id].op->facts.contracts && makes_scores(g_, id)) find_family(id);
    }
    result_.code.reserve(g_.size + 64);
    copy_tables(result_, g_);
    for (int id = 0; id < g_.size; ++id) append(id);
    drop_unread();
    return static_cast<graph&&>(result_);
  }

 private:
  /// What is computed from a product row by row, before anything that needs all of its rows.
  struct family {
    int product = -1;
    /// Some of it is read later: it is made again for these.
    bool is_read_late = false;
    /// Where the copies of its values are that have been made.
    list<int> copy_of;
  };

  [[nodiscard]] constexpr bool is_row_step(int id, const extents& space) const {
    const instruction& i = g_[id];
    if (i.op->fuse == fusion::reduction) {
      return reduction_role(i, g_[i.operand[0]].shape, false) == fused_role::narrow && g_[i.operand[0]].shape == space;
    }
    if (i.op->fuse == fusion::broadcast) return i.shape == space && repeats_rows(i, g_[i.operand[0]].shape);
    return i.op->fuse == fusion::elementwise && (i.shape == space || i.shape == leading(space));
  }

  constexpr void find_family(int product) {
    if (family_[product] >= 0) return;
    const int number = families_.size();
    const extents& space = g_[product].shape;
    family made;
    made.product = product;
    list<bool> late(g_.size - product, false);
    family_[product] = number;
    bool is_used = false;
    for (int id = product + 1; id < g_.size; ++id) {
      const instruction& i = g_[id];
      bool reads = false;
      bool is_late = false;
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = g_.operand_at(i, k);
        if (o < product) continue;
        reads = reads || family_[o] == number;
        is_late = is_late || late[o - product];
      }
      const bool is_step = i.loop == g_[product].loop && is_row_step(id, space);
      if (!reads) {
        late[id - product] = is_late;
      } else if (is_late) {
        late[id - product] = true;
        made.is_read_late = made.is_read_late || is_step || role_of(id, number, product) != row_role::none;
      } else if (is_step && family_[id] < 0) {
        family_[id] = number;
      } else {
        late[id - product] = true;
        is_used = is_used || role_of(id, number, product) != row_role::none;
      }
    }
    made.is_read_late = made.is_read_late && is_used;
    is_late_.push_back(static_cast<list<bool>&&>(late));
    if (made.is_read_late) made.copy_of.resize(g_.size, -1);
    families_.push_back(static_cast<family&&>(made));
  }

  /// The role of a product that reads scores of the family `number`, which begins with `product`.
  [[nodiscard]] constexpr row_role role_of(int id, int number, int product) const {
    const instruction& i = g_[id];
    if (!i.op->facts.contracts) return row_role::none;
    const int scores = family_[i.operand[0]] == number ? 0 : 1;
    if (!(g_[i.operand[scores]].shape == g_[product].shape)) return row_role::none;
    return row_product_of(g_, id, scores).role;
  }

  constexpr void append(int id) {
    instruction i = g_[id];
    for (int k = 0; k < i.operand_count; ++k) {
      int& operand = i.operand_at(k, result_.further.data());
      const int o = operand;
      operand = number_[o];
      if (const int f = family_[o]; f >= 0 && families_[f].is_read_late && reads_late(id, f)) operand = again(f, o);
    }
    sink_masks(i, id);
    if (i.loop >= 0) i.loop = number_[i.loop];
    number_[id] = result_.code.push_back(i);
  }
  /// Whether an instruction that reads a family also needs what waits for all of its rows.
  [[nodiscard]] constexpr bool reads_late(int id, int f) const {
    const int product = families_[f].product;
    if (family_[id] == f || !is_late_[f][id - product]) return false;
    const instruction& i = g_[id];
    const bool is_step = i.loop == g_[product].loop && is_row_step(id, g_[product].shape);
    if (!is_step && role_of(id, f, product) == row_role::none) return false;
    bool late = false;
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = g_.operand_at(i, k);
      late = late || (o >= product && is_late_[f][o - product]);
    }
    return late;
  }

  /// The copy of a value of a family, with all that it needs of the family.
  constexpr int again(int f, int id) {
    if (families_[f].copy_of[id] >= 0) return families_[f].copy_of[id];
    instruction i = g_[id];
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = g_.operand_at(g_[id], k);
      const int made = family_[o] == f ? again(f, o) : number_[o];
      i.operand[k] = made;
    }
    i.label = nullptr;
    sink_masks(i, id);
    if (i.loop >= 0) i.loop = number_[i.loop];
    return families_[f].copy_of[id] = result_.code.push_back(i);
  }

  // --- masks --------------------------------------------------------------------------------------------------------

  /// A mask that follows from the numbers of rows and keys is computed where it is read: in memory it would take an
  /// element for each row and key.
  constexpr void sink_masks(instruction& i, int id) {
    if (i.op->fuse != fusion::elementwise || !has_many_scores(i.shape) || !is_of_scores(i.shape)) return;
    for (int k = 0; k < i.operand_count && k < inline_operands; ++k) {
      const int o = g_[id].operand[k];
      if (g_[o].op->fuse != fusion::broadcast) continue;
      const instruction& from = g_[g_[o].operand[0]];
      if (from.op->fuse != fusion::elementwise || !has_many_scores(from.shape)) continue;
      axis_list targets;
      for (int d = 0; d < from.shape.rank; ++d) targets = targets.with(broadcast_target(g_[o], d));
      int steps = 0;
      if (!follows_from_indices(g_[o].operand[0], i, targets, steps)) continue;
      i.operand[k] = spread(g_[o].operand[0], i, targets);
    }
  }
  [[nodiscard]] constexpr bool is_of_scores(const extents& space) const {
    for (const family& f : families_) {
      if (g_[f.product].shape == space) return true;
    }
    return false;
  }
  /// `targets`: the dimensions of the reader along which those of the value lie.
  [[nodiscard]] constexpr bool follows_from_indices(int id, const instruction& reader, axis_list targets,
                                                    int& steps) const {
    constexpr int most_steps = 12;
    const instruction& i = g_[id];
    if (++steps > most_steps) return false;
    if (i.op->facts.values == pattern::uniform) return true;
    if (i.op->facts.values == pattern::index) {
      const int dim = attributes_of<index_attributes>(i).dim;
      if (i.shape[dim] != reader.shape[targets[dim]] || i.annotation < 0 || reader.annotation < 0) return false;
      return g_.annotations[i.annotation].placement.dim[dim] ==
             g_.annotations[reader.annotation].placement.dim[targets[dim]];
    }
    if (i.op->fuse != fusion::elementwise || i.operand_count == 0 || i.operand_count > 3) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      if (!follows_from_indices(i.operand[k], reader, targets, steps)) return false;
    }
    return true;
  }
  /// The same value in the shape of its reader.
  constexpr int spread(int id, const instruction& reader, axis_list targets) {
    instruction i = g_[id];
    if (i.op->facts.values == pattern::index)
      set_attributes(i, index_attributes{targets[attributes_of<index_attributes>(i).dim]});
    for (int k = 0; k < i.operand_count; ++k) i.operand[k] = spread(g_[id].operand[k], reader, targets);
    i.shape = reader.shape;
    i.annotation = reader.annotation;
    i.label = nullptr;
    // The reader's own loop is renumbered after this.
    i.loop = reader.loop >= 0 ? number_[reader.loop] : -1;
    return result_.code.push_back(i);
  }

  /// Removes the masks that nothing reads any more.
  constexpr void drop_unread() {
    const int size = result_.code.size();
    list<bool> is_read(size, false);
    for (int id = size - 1; id >= 0; --id) {
      const instruction& i = result_.code[id];
      if (may_go(i) && !is_read[id]) continue;
      for (int k = 0; k < i.operand_count; ++k) is_read[i.operand_at(k, result_.further.data())] = true;
    }
    list<int> at(size, -1);
    int kept = 0;
    for (int id = 0; id < size; ++id) {
      if (may_go(result_.code[id]) && !is_read[id]) continue;
      instruction i = result_.code[id];
      for (int k = 0; k < i.operand_count; ++k) {
        int& operand = i.operand_at(k, result_.further.data());
        operand = at[operand];
      }
      at[id] = kept;
      if (i.loop >= 0) i.loop = at[i.loop];
      result_.code[kept++] = i;
    }
    while (result_.code.size() > kept) result_.code.pop_back();
  }
  [[nodiscard]] static constexpr bool may_go(const instruction& i) {
    const fusion fuse = i.op->fuse;
    return fuse == fusion::elementwise || fuse == fusion::broadcast || fuse == fusion::source;
  }

  graph_view g_;
  graph result_;
  /// The place of an instruction in the result.
  list<int> number_;
  /// The family that a value belongs to, or -1.
  list<int> family_;
  list<family> families_;
  /// For each family, from its product on: whether a value needs all rows of something in it.
  list<list<bool>> is_late_;
};

}  // namespace detail

/// The same program, whose gradients compute scores (row by row: partition/row_regions.hpp) again rather than read what
/// the values did, and in which nothing that has an element for each row and key follows from their numbers alone.
/// @pre the graph is partitioned, and collectives are where they start
[[nodiscard]] constexpr graph recompute_rows(graph_view g) { return detail::row_recomputation(g).run(); }

}  // namespace espalier
