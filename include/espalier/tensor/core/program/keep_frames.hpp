// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/builder.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/normalise.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// Rewrites one dimension of a graph (`keep_frames`).
///
/// A value is *in a frame* of N rows if it has a few rows less, and row i of it stands for row `offset + i` of the
/// frame. It is computed as a tensor of N rows, of which those beyond its own may be anything.
class frame_keeper {
 public:
  constexpr frame_keeper(graph_view g, int dim) : g_(g), dim_(dim), frame_(g.size, 0), dropped_(g.size, false) {}

  /// Whether there is a value that goes back to its frame.
  [[nodiscard]] constexpr bool find() {
    constexpr int most_rounds = 12;
    for (int round = 0; round < most_rounds; ++round) {
      for (int id = 0; id < g_.size; ++id) frame_[id] = frame_of(id);
      if (!drop_some()) {
        for (int id = 0; id < g_.size; ++id) {
          if (is_back(id)) return true;
        }
        return false;
      }
    }
    return false;
  }
  constexpr graph run() {
    framed_.resize(g_.size, -1);
    offset_.resize(g_.size, 0);
    find_needed_rows();
    graph_editor edit(g_);
    out_.result() = static_cast<graph&&>(edit.now());
    now_.reserve(g_.size);
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      out_.where = i.where;
      out_.region = i.region;
      const int first_new = out_.size();
      now_.push_back(id);
      if (frame_[id] > 0 && !is_cut(id)) {
        put_in_frame(id);
      } else if (is_back(id)) {
        now_[id] = i.op == &ops::pad ? padded(id) : joined(id);
      } else if (is_cut(id) && frame_[id] > 0) {
        framed_[id] = now_[i.operand[0]];
        offset_[id] = attributes_of<slice_attributes>(i).start;
      }
      for (int made = first_new; made < out_.size(); ++made) edit.place(made);
      if (now_[id] == id) {
        edit.place(id);
      } else {
        edit.replace(id, now_[id]);
      }
    }
    edit.now() = static_cast<graph&&>(out_.result());
    return edit.finish();
  }

 private:
  [[nodiscard]] constexpr std::int64_t rows(int id) const { return g_[id].shape[dim_]; }
  /// Whether it is a slice along this dimension that takes neighbouring rows.
  [[nodiscard]] constexpr bool is_cut(int id) const {
    if (g_[id].op != &ops::slice) return false;
    const auto cut = attributes_of<slice_attributes>(g_[id]);
    return cut.dim == dim_ && cut.step == 1;
  }
  /// Whether every element is the same, so that there may be more of them.
  [[nodiscard]] constexpr bool is_uniform(int id) const {
    const instruction& i = g_[id];
    return i.op->facts.values == pattern::uniform || (i.op == &ops::broadcast && g_.operand(id, 0).shape.rank == 0);
  }
  /// Whether an op of the rows' elements gives finite numbers for all that are: rows that nothing reads must not look
  /// like a mistake.
  [[nodiscard]] constexpr bool is_harmless(const instruction& i) const {
    if (i.op->facts.keeps_finite) return true;
    return i.op == &ops::divide && is_floating(i.type) && is_uniform(i.operand[1]);
  }
  /// Whether it moves elements along other dimensions alone.
  [[nodiscard]] constexpr bool moves_elsewhere(const instruction& i) const {
    if (i.op == &ops::slice || i.op == &ops::pad) return attributes_of<slice_attributes>(i).dim != dim_;
    if (i.op == &ops::roll) return attributes_of<roll_attributes>(i).dim != dim_;
    return i.op == &ops::concat && attributes_of<concat_attributes>(i).dim != dim_;
  }

  /// The rows of the frame that a value may be computed in, 0 if there is none.
  [[nodiscard]] constexpr std::int64_t frame_of(int id) const {
    const instruction& i = g_[id];
    if (i.shape.rank <= dim_ || dropped_[id] || i.annotation >= 0) return 0;
    if (is_cut(id)) {
      // The rows that are computed in vain are few.
      const std::int64_t all = rows(i.operand[0]);
      return (all - rows(id)) * 4 <= all ? all : 0;
    }
    if (i.label != nullptr || structure_of(i) != structure::none) return 0;
    if (!is_harmless(i) && !moves_elsewhere(i)) return 0;
    std::int64_t frame = 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      if (is_uniform(operand) && g_[operand].shape.rank == i.shape.rank) continue;
      if (frame_[operand] == 0 || (frame != 0 && frame != frame_[operand])) return 0;
      frame = frame_[operand];
    }
    return frame;
  }
  /// Whether it gives a value in a frame all rows of the frame again.
  [[nodiscard]] constexpr bool is_back(int id) const {
    const instruction& i = g_[id];
    if (i.op == &ops::pad) {
      const auto room = attributes_of<slice_attributes>(i);
      const bool fits = room.start >= 0 && room.start + rows_or_none(i.operand[0]) <= rows_or_none(id);
      return room.dim == dim_ && room.step == 1 && fits && frame_[i.operand[0]] == rows(id);
    }
    if (i.op != &ops::concat || attributes_of<concat_attributes>(i).dim != dim_ || i.type == dtype::boolean)
      return false;
    bool any = false;
    for (int k = 0; k < i.operand_count; ++k) {
      const std::int64_t frame = frame_[g_.operand_at(i, k)];
      if (frame != 0 && frame != rows(id)) return false;
      any = any || frame != 0;
    }
    return any;
  }
  [[nodiscard]] constexpr std::int64_t rows_or_none(int id) const { return g_[id].shape.rank > dim_ ? rows(id) : 0; }

  /// Drops values that something reads for which the rows of the frame are too many; false if there are none.
  constexpr bool drop_some() {
    bool some = false;
    for (int id = 0; id < g_.size; ++id) {
      if (frame_[id] > 0 && !is_cut(id)) continue;
      const bool back = is_back(id);
      for (int k = 0; k < g_[id].operand_count && !back; ++k) {
        const int operand = g_.operand_at(g_[id], k);
        if (frame_[operand] == 0 || is_cut(operand)) continue;
        dropped_[operand] = true;
        some = true;
      }
    }
    return some;
  }

  // --- the new program -----------------------------------------------------------------------------------------------

  /// The value's frame, with row 0 of the value in row `at`.
  constexpr int framed_at(int id, std::int64_t at) {
    return emit::pad(out_, framed_[id], dim_, at - offset_[id], out_[framed_[id]].shape[dim_]);
  }
  constexpr void put_in_frame(int id) {
    instruction i = g_[id];
    i.shape[dim_] = frame_[id];
    offset_[id] = best_offset(id);
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(g_[id], k);
      int made = -1;
      if (frame_[operand] != 0) {
        made = framed_at(operand, offset_[id]);
      } else {
        instruction more = g_[operand];
        more.shape[dim_] = frame_[id];
        more.region = out_.region;
        more.label = nullptr;
        made = out_.result().code.push_back(more);
      }
      i.operand_at(k, out_.result().further.data()) = made;
    }
    i.region = out_.region;
    framed_[id] = now_[id] = out_.result().code.push_back(i);
  }
  /// The row of the frame where a value is computed: where its operands are, if they are all at one, else where its
  /// readers need it, else where most operands are.
  [[nodiscard]] constexpr std::int64_t best_offset(int id) const {
    const instruction& i = g_[id];
    int most = 0;
    int all = 0;
    std::int64_t best = 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      if (frame_[operand] == 0) continue;
      ++all;
      int alike = 0;
      for (int other = 0; other < i.operand_count; ++other) {
        const int second = g_.operand_at(i, other);
        alike += frame_[second] != 0 && offset_[second] == offset_[operand] ? 1 : 0;
      }
      if (alike <= most) continue;
      most = alike;
      best = offset_[operand];
    }
    return most == all || needed_row_[id] < 0 ? best : needed_row_[id];
  }
  /// Finds the row of the frame where all readers of each value need it, -1 where they differ.
  constexpr void find_needed_rows() {
    constexpr std::int64_t nobody = -2;
    needed_row_.resize(g_.size, nobody);
    for (int id = g_.size - 1; id >= 0; --id) {
      const instruction& i = g_[id];
      const bool back = is_back(id);
      std::int64_t start = i.op == &ops::pad && back ? attributes_of<slice_attributes>(i).start : 0;
      for (int k = 0; k < i.operand_count; ++k) {
        const int operand = g_.operand_at(i, k);
        if (frame_[operand] > 0 && (back || frame_[id] > 0)) {
          const std::int64_t here = back ? start : needed_row_[id];
          std::int64_t& wanted = needed_row_[operand];
          wanted = wanted == nobody || wanted == here ? here : -1;
        }
        if (back) start += rows(operand);
      }
    }
  }
  /// Whether a row is before row `end`.
  constexpr int is_before(const extents& shape, std::int64_t end) {
    const int row = emit::iota(out_, dtype::i32, shape, dim_);
    return emit::compare(out_, ops::less, row, emit::constant(out_, dtype::i32, shape, static_cast<double>(end)));
  }
  constexpr int padded(int id) {
    const instruction& i = g_[id];
    const std::int64_t start = attributes_of<slice_attributes>(i).start;
    const std::int64_t end = start + rows(i.operand[0]);
    int made = framed_at(i.operand[0], start);
    const int nothing = emit::constant(out_, i.type, i.shape, 0);
    if (end < rows(id)) made = emit::select(out_, is_before(i.shape, end), made, nothing);
    if (start > 0) made = emit::select(out_, is_before(i.shape, start), nothing, made);
    return labelled(made, i);
  }
  constexpr int joined(int id) {
    const instruction& i = g_[id];
    int made = -1;
    std::int64_t start = 0;
    for (int k = 0; k < i.operand_count; ++k) {
      const int part = g_.operand_at(i, k);
      const int whole = part_at(part, start, i.shape);
      made = k == 0 ? whole : emit::select(out_, is_before(i.shape, start), made, whole);
      start += rows(part);
    }
    return labelled(made, i);
  }
  /// A part of joined tensors as a whole one, that has the part's rows where they are in the join.
  constexpr int part_at(int part, std::int64_t at, const extents& shape) {
    if (frame_[part] != 0) return framed_at(part, at);
    if (is_uniform(part)) {
      instruction more = g_[part];
      more.shape = shape;
      more.region = out_.region;
      more.label = nullptr;
      if (more.op == &ops::broadcast) return emit::broadcast_to(out_, now_[more.operand[0]], shape);
      return out_.result().code.push_back(more);
    }
    if (is_cut(part) && rows(g_[part].operand[0]) == shape[dim_]) {
      return emit::pad(out_, now_[g_[part].operand[0]], dim_, at - attributes_of<slice_attributes>(g_[part]).start,
                       shape[dim_]);
    }
    return emit::pad(out_, now_[part], dim_, at, shape[dim_]);
  }
  constexpr int labelled(int made, const instruction& i) {
    if (i.label != nullptr) out_[made].label = i.label;
    return made;
  }

  graph_view g_;
  int dim_;
  /// The rows of the frame of each value, 0 if it is in none.
  list<std::int64_t> frame_;
  list<bool> dropped_;
  /// The instruction that is each value now, the one that is its frame, and the row of the frame where it begins.
  list<int> now_;
  list<int> framed_;
  list<std::int64_t> offset_;
  list<std::int64_t> needed_row_;
  builder out_;
};

/// Whether a graph cuts a few rows from a tensor, and gives something rows again.
[[nodiscard]] constexpr bool may_have_frames(graph_view g) {
  bool cuts = false;
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    if (i.op == &ops::slice) {
      const auto cut = attributes_of<slice_attributes>(i);
      const std::int64_t all = g.operand(id, 0).shape[cut.dim];
      cuts = cuts || (cut.step == 1 && (all - i.shape[cut.dim]) * 4 <= all);
    }
    if (cuts && (i.op == &ops::pad || i.op == &ops::concat)) return true;
  }
  return false;
}

}  // namespace detail

/// Keeps values in the frame that slices cut them from, where pads and joins put them back into one: the same tensor
/// less a few rows would be split in other places, so that its rows would travel there and back. The inner 24 of 26
/// rows that a stencil computes are rows of 26 on the way, the first and last of which nothing reads.
/// @pre `g` is normalised
/// @post `g` is normalised
constexpr void keep_frames(graph& g) {
  if (!detail::may_have_frames(g)) return;
  bool changes = false;
  for (int dim = 0; dim < max_rank; ++dim) {
    detail::frame_keeper one(g, dim);
    if (!one.find()) continue;
    changes = true;
    graph framed = one.run();
    g = static_cast<graph&&>(framed);
  }
  if (!changes) return;
  graph again = normalise(g);
  g = static_cast<graph&&>(again);
}

}  // namespace espalier
