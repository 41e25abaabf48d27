// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/row_product.hpp>
#include <espalier/tensor/core/partition/scheduler.hpp>
#include <espalier/tensor/core/program/split_rows.hpp>

namespace espalier {

namespace detail {

/// Whether a program has scores that are worked on a few rows at a time (partition/row_regions.hpp).
[[nodiscard]] constexpr bool has_scores(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op->facts.contracts && makes_scores(g, id)) return true;
  }
  return false;
}

/// Makes the values of scores again where something reads them that has to wait for all of their rows, and masks where
/// they are read.
///
/// A value has a *level*: how often, on the way to it, something had to wait until a row region
/// (partition/row_regions.hpp) was over, since it reads what the region sums up, or what devices combine of its rows.
/// Values of one level may be in one region. Those of a later level compute scores again, from what takes less memory;
/// a number for each row, such as the maximum or the sum of a softmax, is kept.
class row_recomputation {
 public:
  constexpr explicit row_recomputation(graph_view g)
      : g_(g), edit_(g), space_(g.size, -1), is_late_(g.size, false), level_(g.size, 0), kept_(g.size, false) {}

  constexpr graph run() {
    for (int id = 0; id < g_.size; ++id) find_level(id);
    for (int id = 0; id < g_.size; ++id) place(id);
    edit_.drop_unread(may_go);
    return edit_.finish();
  }

 private:
  /// Scores of one shape in one loop (or outside of all).
  struct score_space {
    extents shape;
    int region = -1;
    /// A product reads some of them.
    bool is_used = false;
  };
  struct score_copy {
    int value = -1;
    int level = 0;
    int made = -1;
  };

  [[nodiscard]] constexpr bool is_row_step(int id, const extents& space) const {
    const instruction& i = g_[id];
    if (i.op->fuse == fusion::reduction) {
      return reduction_role(i, g_[i.operand[0]].shape, false) == fused_role::narrow && g_[i.operand[0]].shape == space;
    }
    if (i.op->fuse == fusion::broadcast) return i.shape == space && repeats_rows(i, g_[i.operand[0]].shape);
    return i.op->fuse == fusion::elementwise && (i.shape == space || i.shape == leading(space));
  }
  /// Whether a product reads scores of a space, for a few rows at a time.
  [[nodiscard]] constexpr bool is_row_reader(int id, int space) const {
    const instruction& i = g_[id];
    if (!i.op->facts.contracts || i.region != spaces_[space].region) return false;
    const int scores = space_[i.operand[0]] == space ? 0 : 1;
    if (!(g_[i.operand[scores]].shape == spaces_[space].shape)) return false;
    return row_product_of(g_, id, scores).role != row_role::none;
  }

  constexpr void find_level(int id) {
    const instruction& i = g_[id];
    int space = -1;
    for (int k = 0; k < i.operand_count && space < 0; ++k) space = space_[g_.operand_at(i, k)];
    const bool is_step = space >= 0 && i.region == spaces_[space].region && is_row_step(id, spaces_[space].shape);
    const bool reads = space >= 0 && !is_step && is_row_reader(id, space);
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = g_.operand_at(i, k);
      const bool by_rows = space_[o] >= 0 && space_[o] == space && (is_step || reads);
      const bool waits = is_late_[o] || (space_[o] >= 0 && !by_rows);
      level_[id] = larger_of(level_[id], level_[o] + (waits ? 1 : 0));
      if (space_[o] >= 0 && !by_rows && g_[o].op->fuse != fusion::broadcast) kept_[o] = true;
    }
    if (reads) {
      spaces_[space].is_used = true;
      is_late_[id] = true;
    } else if (is_step) {
      space_[id] = space;
    } else if (i.op->facts.contracts && makes_scores(g_, id)) {
      space_[id] = find_space(g_[id].shape, i.region);
    }
  }
  constexpr int find_space(const extents& shape, int region) {
    for (int s = 0; s < spaces_.size(); ++s) {
      if (spaces_[s].shape == shape && spaces_[s].region == region) return s;
    }
    return spaces_.push_back({shape, region, false});
  }

  constexpr void place(int id) {
    instruction i = g_[id];
    if (space_[id] >= 0 || is_late_[id]) {
      for (int k = 0; k < i.operand_count; ++k) {
        int& operand = edit_.operand_at(i, k);
        operand = at_level(operand, level_[id], space_[id]);
      }
    }
    sink_masks(i, id);
    edit_[id] = i;
    edit_.place(id);
  }

  /// The value of an instruction where one of space `reader`, or of none, reads it at this level: made again if it is
  /// one of scores that would have to be stored for it, or a mask.
  constexpr int at_level(int id, int level, int reader) {
    int space = space_[id];
    if (space < 0) {
      int steps = 0;
      if (reader < 0 || !follows_from_rows(id, spaces_[reader], steps)) return id;
      space = reader;
    } else if (level_[id] == level || kept_[id]) {
      return id;
    }
    if (!spaces_[space].is_used || !(g_[id].shape == spaces_[space].shape)) return id;
    for (int n = copies_.size() - 1; n >= 0 && n >= copies_.size() - most_copies; --n) {
      if (copies_[n].value == id && copies_[n].level == level) return copies_[n].made;
    }
    instruction i = g_[id];
    for (int k = 0; k < i.operand_count; ++k) {
      const int made = at_level(g_.operand_at(g_[id], k), level, space);
      i.operand[k] = made;
    }
    // Scores are read as they were, too; of a mask, the first that is made has its name.
    i.label = space_[id] < 0 ? take_label(id) : nullptr;
    sink_masks(i, id);
    const int made = edit_.append(i);
    copies_.push_back({id, level, made});
    return made;
  }
  constexpr const char* take_label(int id) {
    const char* const label = edit_[id].label;
    edit_[id].label = nullptr;
    return label;
  }
  /// Whether a value that does not follow from scores has an element for each of them, and is made of numbers that are
  /// repeated along rows or columns, as a truth value that tells the target among logits.
  [[nodiscard]] constexpr bool follows_from_rows(int id, const score_space& space, int& steps) const {
    constexpr int most_steps = 12;
    const instruction& i = g_[id];
    if (++steps > most_steps || i.op->fuse != fusion::elementwise || i.region != space.region) return false;
    if (!(i.shape == space.shape) || i.operand_count == 0 || i.operand_count > 3) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      const instruction& from = g_[i.operand[k]];
      if (from.op->fuse == fusion::source) continue;
      if (from.op->fuse == fusion::broadcast) {
        if (g_[from.operand[0]].shape.elements() == from.shape.elements()) return false;
      } else if (!follows_from_rows(i.operand[k], space, steps)) {
        return false;
      }
    }
    return true;
  }
  /// Readers of one level are not far from each other.
  static constexpr int most_copies = 64;

  // --- masks --------------------------------------------------------------------------------------------------------

  /// A mask that follows from the numbers of rows and keys is computed where it is read: in memory it would take an
  /// element for each row and key. (That of matrices has the shape of their scores; any other is repeated.)
  constexpr void sink_masks(instruction& i, int id) {
    if (i.op->fuse != fusion::elementwise || !has_many_scores(i.shape) || !is_of_scores(i.shape)) return;
    for (int k = 0; k < i.operand_count && k < inline_operands; ++k) {
      const int o = g_[id].operand[k];
      const bool is_repeated = g_[o].op->fuse == fusion::broadcast;
      if (!is_repeated && space_[id] < 0) continue;
      const int mask = is_repeated ? g_[o].operand[0] : o;
      const instruction& from = g_[mask];
      if (from.op->fuse != fusion::elementwise || !has_many_scores(from.shape)) continue;
      axis_list targets;
      for (int d = 0; d < from.shape.rank; ++d) targets = targets.with(is_repeated ? broadcast_target(g_[o], d) : d);
      int steps = 0;
      if (!follows_from_indices(mask, i, targets, steps)) continue;
      i.operand[k] = spread(mask, i, targets);
    }
  }
  [[nodiscard]] constexpr bool is_of_scores(const extents& shape) const {
    for (const score_space& s : spaces_) {
      if (s.shape == shape) return true;
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
    i.label = i.shape == reader.shape ? take_label(id) : nullptr;
    i.shape = reader.shape;
    i.annotation = reader.annotation;
    i.region = reader.region;
    return edit_.append(i);
  }

  /// Masks and scores, if nothing reads them any more.
  [[nodiscard]] static constexpr bool may_go(const instruction& i, const instruction*) {
    const fusion fuse = i.op->fuse;
    return fuse == fusion::elementwise || fuse == fusion::broadcast || fuse == fusion::source ||
           fuse == fusion::reduction || i.op->facts.contracts;
  }

  graph_view g_;
  graph_editor edit_;
  list<score_space> spaces_;
  /// By value: the space whose scores, or numbers for each of whose rows, it is, if it follows from scores row by row.
  list<int> space_;
  /// It is what a product makes of scores: complete when all rows have been read.
  list<bool> is_late_;
  list<int> level_;
  /// Something reads it in another way than row by row, so it is stored.
  list<bool> kept_;
  list<score_copy> copies_;
};

}  // namespace detail

/// The same program, in which what waits for all rows of scores, as gradients do, computes them again (row by row:
/// partition/row_regions.hpp) rather than read what was computed before, and in which nothing that has an element for
/// each row and key follows from their numbers alone. Where keys are split over devices, each works with the maxima of
/// its own (`split_row_preparation`).
/// @pre the graph is partitioned, and collectives are where they start
[[nodiscard]] constexpr graph recompute_rows(graph_view g) {
  detail::split_row_preparation preparation(g);
  if (!preparation.is_needed()) return detail::row_recomputation(g).run();
  const graph prepared = preparation.run();
  return detail::row_recomputation(prepared).run();
}

}  // namespace espalier
