// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/machine.hpp>
#include <espalier/tensor/core/partition/messages.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// Finds rows that one device of a group has and all others lack, and has it send them.
class owner_sending {
 public:
  constexpr owner_sending(const mesh_shape& mesh, graph_view g) : mesh_(mesh), g_(g), edit_(g) {}

  /// Whether a program has rows that may be sent so.
  [[nodiscard]] static constexpr bool are_possible(graph_view g) {
    bool rows = false;
    bool sums = false;
    for (int id = 0; id < g.size; ++id) {
      const op_info& op = *g[id].op;
      if (is_collective(&op, collective::all_gather) && g.operand(id, 0).op == &ops::slice) return true;
      if (is_exchanged_row(g, id)) return true;
      rows = rows || (op.facts.row_of != nullptr && op.facts.row_of(g.view(id)) >= 0);
      sums = sums || is_collective(&op, collective::all_reduce);
    }
    return rows && sums;
  }

  constexpr graph run() {
    list<row> rows(g_.size);
    for (int id = 0; id < g_.size; ++id) {
      rows[id] = is_collective(g_[id].op, collective::all_reduce)   ? summed_row(id)
                 : is_collective(g_[id].op, collective::all_gather) ? cut_row(id, g_[id].operand[0], id)
                 : is_exchanged_row(g_, id)                         ? cut_row(id, id, g_[id].operand[0])
                                                                    : row{};
    }
    list<bool> stays(g_.size, false);
    for (int id = 0; id < g_.size; ++id) stays[id] = rows[id].number >= 0 && !pays(id, rows);
    for (int id = 0; id < g_.size; ++id) {
      if (stays[id]) rows[id] = row{};
    }
    drop_unread(rows);
    for (int id = 0; id < g_.size; ++id) {
      if (is_dropped(id)) continue;
      if (rows[id].source < 0) {
        edit_.place(id);
      } else {
        send(id, rows[id]);
      }
    }
    return edit_.finish();
  }

 private:
  /// A row of `source` along a dimension: `number` is the instruction that says which, or, if that is known, -1.
  struct row {
    int source = -1;
    int dim = 0;
    int number = -1;
    std::int64_t known = 0;
    axis_mask axes = 0;
  };

  /// Whether it is a slice of one element along a dimension, of what an exchange brings to all devices.
  [[nodiscard]] static constexpr bool is_exchanged_row(graph_view g, int id) {
    const instruction& i = g[id];
    if (i.op != &ops::slice || i.shape[attributes_of<slice_attributes>(i).dim] != 1) return false;
    const instruction& from = g[i.operand[0]];
    return is_collective(from.op, collective::exchange) && reads_windows(from) && from.region == i.region;
  }

  [[nodiscard]] constexpr const layout& layout_of(int id) const { return g_.annotations[g_[id].annotation]; }
  [[nodiscard]] constexpr axis_mask axes_of(int id) const { return attributes_of<collective_attributes>(g_[id]).axes; }

  /// Returns the row that an all_reduce adds up, if it is one device's and nothing of all others.
  [[nodiscard]] constexpr row summed_row(int id) const {
    if (g_[id].op->facts.travels_along) return {};
    int from = g_[id].operand[0];
    for (int next = from; next >= 0; next = computed_from(from, axes_of(id))) from = next;
    const instruction& i = g_[from];
    const int dim = i.op->facts.row_of == nullptr ? -1 : i.op->facts.row_of(g_.view(from));
    if (dim < 0 || i.region != g_[id].region || layout_of(from).placement.unreduced != axes_of(id)) return {};
    const dtype type = g_[i.operand[1]].type;
    const row found{i.operand[0], dim, i.operand[1], 0, axes_of(id)};
    return (type == dtype::i32 || type == dtype::i64) && is_owned(found, axes_of(id)) && is_even(id) ? found : row{};
  }
  /// The one partial that a linear op of its loop has as operand, or -1: of nothing it makes nothing.
  [[nodiscard]] constexpr int computed_from(int id, axis_mask axes) const {
    const instruction& i = g_[id];
    if (i.op->linear == linearity::none || i.op->facts.row_of != nullptr || structure_of(i) != structure::none)
      return -1;
    int partial = -1;
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      if (layout_of(operand).placement.unreduced == 0) continue;
      if (partial >= 0 || layout_of(operand).placement.unreduced != axes || g_[operand].region != i.region) return -1;
      partial = operand;
    }
    return partial;
  }
  /// Small sums travel with others, and a row with those of the same number: a row among other sums stays one.
  [[nodiscard]] constexpr bool pays(int id, const list<row>& rows) const {
    if (g_[id].shape.elements() * size_of(g_[id].type) > collective_latency) return true;
    for (int other = 0; other < g_.size; ++other) {
      const bool may_join = g_[other].region == g_[id].region && is_collective(g_[other].op, collective::all_reduce) &&
                            axes_of(other) == axes_of(id) && size_of(g_[other].type) == size_of(g_[id].type);
      if (may_join && (rows[other].source < 0 || rows[other].number != rows[id].number)) return false;
    }
    return true;
  }

  /// The row that is whole in `id`, if it was cut out of a split tensor by the slice `cut`, and `moves` brings it to
  /// the devices.
  [[nodiscard]] constexpr row cut_row(int id, int cut, int moves) const {
    const instruction& i = g_[cut];
    if (g_[moves].op->facts.travels_along || i.op != &ops::slice || i.region != g_[id].region) return {};
    const auto slice = attributes_of<slice_attributes>(i);
    if (layout_of(cut).shape[slice.dim] != 1) return {};
    int from = i.operand[0];
    if (communicates(g_[from]) && reads_windows(g_[from])) from = g_[from].operand[0];
    const row found{from, slice.dim, -1, slice.start, axes_of(moves)};
    bool is_alike = layout_of(id).placement.dim[slice.dim].empty();
    for (int d = 0; d < layout_of(id).shape.rank; ++d) {
      const bool is_split_so = layout_of(id).placement.dim[d] == layout_of(from).placement.dim[d];
      is_alike = is_alike && (d == slice.dim || is_split_so);
    }
    return is_alike && is_owned(found, found.axes) && is_even(id) ? found : row{};
  }

  /// Whether the devices of a group have as many rows each, in order.
  [[nodiscard]] constexpr bool is_owned(const row& one, axis_mask axes) const {
    const layout& all = layout_of(one.source);
    const axis_list split = all.placement.dim[one.dim];
    return all.placement.unreduced == 0 && split == list_of(axes) &&
           (split.size() == 1 || divides_evenly(mesh_, all.shape[one.dim], split));
  }
  [[nodiscard]] constexpr bool is_even(int id) const {
    const layout& l = layout_of(id);
    for (int d = 0; d < l.shape.rank; ++d) {
      if (!divides_evenly(mesh_, l.shape[d], l.placement.dim[d])) return false;
    }
    return l.placement.unreduced == 0 && g_[id].shape.elements() > 0;
  }

  /// Drops the values that only cut rows were made from.
  constexpr void drop_unread(const list<row>& rows) {
    readers_.resize(g_.size, 0);
    for (int id = 0; id < g_.size; ++id) {
      for (int k = 0; k < g_[id].operand_count; ++k) ++readers_[g_.operand_at(g_[id], k)];
    }
    dropped_.resize(g_.size, false);
    for (int id = 0; id < g_.size; ++id) {
      if (rows[id].source < 0 || rows[id].number >= 0) continue;
      int cut = g_[id].operand[0];
      while (cut != rows[id].source && --readers_[cut] == 0) {
        dropped_[cut] = true;
        cut = g_[cut].operand[0];
      }
    }
  }
  [[nodiscard]] constexpr bool is_dropped(int id) const { return dropped_[id]; }

  constexpr int append_at(int id, instruction made, const extents& shape, const sharding& placement) {
    made.shape = local_shape(mesh_, shape, placement);
    made.annotation = edit_.annotate({shape, placement});
    made.origin = g_[id].origin;
    made.where = g_[id].where;
    made.region = g_[id].region;
    return edit_.append(made);
  }
  constexpr void send(int id, const row& one) {
    const layout& all = layout_of(one.source);
    int value = -1;
    int number = -1;
    if (one.number >= 0) {
      value = g_[id].operand[0];
      number = one.number;
    } else {
      instruction start = builder::make(ops::constant, dtype::i32, extents{});
      start.scalar = static_cast<double>(one.known);
      number = append_at(id, start, extents{}, sharding::whole(0));
      instruction slice = builder::make(ops::dynamic_slice, g_[id].type, extents{}, one.source, number);
      set_attributes(slice, dynamic_slice_attributes{.dim = one.dim, .extent = all.shape[one.dim], .size = 1});
      sharding partial = layout_of(id).placement;
      partial.unreduced = one.axes;
      value = append_at(id, slice, layout_of(id).shape, partial);
    }
    instruction sent = builder::make(ops::exchange_from_owner, g_[id].type, extents{}, value, number);
    set_attributes(sent, owner_attributes{.axes = one.axes,
                                          .rows = local_extent(mesh_, all.shape[one.dim], all.placement.dim[one.dim]),
                                          .extent = all.shape[one.dim]});
    const int made = append_at(id, sent, layout_of(id).shape, layout_of(id).placement);
    edit_[made].label = g_[id].label;
    edit_.replace(id, made);
  }

  const mesh_shape& mesh_;
  graph_view g_;
  graph_editor edit_;
  list<int> readers_;
  list<bool> dropped_;
};

}  // namespace detail

/// The same program in which a row that one device of a group has is sent by that device, where it was summed over the
/// group with nothing from all others, or moved to the first device to be gathered from there.
///
/// A row of 4,096 bytes on four devices takes 4,096 bytes of whoever sends most, not the 6,144 of an all_reduce. The
/// rows of a stack, one in each iteration, take half the bytes of as many all_reduces.
/// @pre the graph is partitioned, and no collectives are merged yet
[[nodiscard]] constexpr graph send_from_owners(const mesh_shape& mesh, graph_view g) {
  return detail::owner_sending(mesh, g).run();
}

}  // namespace espalier
