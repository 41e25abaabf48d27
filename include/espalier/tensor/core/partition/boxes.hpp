// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/transfer.hpp>

#include <cstdint>

namespace espalier::detail {

/// Whether windows say where a value's boxes are, and not its layout alone: an exchange, or a slice of what a device
/// has, that brings what windows need, so that boxes may overlap; or dimensions merged, where a part is whole rows.
[[nodiscard]] constexpr bool reads_windows(const instruction& i) {
  return i.op->facts.has_windows && attributes_of<collective_attributes>(i).window_count > 0;
}

/// Whether every device already holds what its window needs of a dimension of `extent` elements that is split by
/// `axes`: where what is needed moves on by as much as what is held, the first two devices tell of all, since beyond
/// the ends of the tensor nothing is needed.
[[nodiscard]] constexpr bool stays_at_home(const mesh_shape& mesh, const placed_window& w, std::int64_t extent,
                                           axis_list axes) {
  if (axes.empty()) return true;
  if (w.wraps) return false;
  if (!axis_list::from_code(w.axes).starts_with(axes)) return false;
  const bool regular = axes.size() == 1 || (divides_evenly(mesh, extent, axes) && divides_evenly(mesh, w.extent, axes));
  const std::int64_t held = local_extent(mesh, extent, axes);
  const std::int64_t part = local_extent(mesh, w.extent, axes);
  // All of it is on the first device, and no other needs it.
  if (held >= extent && w.stride > 0 && w.stride * part - w.low > w.base_dilation * (extent - 1)) return true;
  if (!regular || w.stride * part != w.base_dilation * held) return false;
  const std::int64_t second = w.base_dilation * held - w.low;  // times base_dilation, as the next
  const std::int64_t last_of_first = w.stride * (part - 1) + w.reach() - w.low;
  return second > w.base_dilation * (held - 1) && last_of_first < w.base_dilation * held;
}

/// Replaces, in a box of a tensor, the dimensions that are read through windows by what `device` needs of them.
constexpr void apply_windows(const mesh_shape& mesh, const extents& shape, const placed_window* windows, int count,
                             int device, tensor_box& box) {
  for (int n = 0; n < count; ++n) {
    const placed_window& w = windows[n];
    const interval part = local_interval(mesh, w.extent, axis_list::from_code(w.axes), device);
    box.dim[w.dim] = needed(w, part, shape[w.dim]);
  }
}

/// Calls `f(box)` for what a device holds, as it is, and moved around the circular dimensions in which that box or the
/// box `needed` goes on with the first elements after the end. (A box that is the whole dimension is [0, extent): no
/// box has an element twice.)
template <class F>
constexpr void for_each_turn(const tensor_box& held, const tensor_box& needed, const extents& shape, F&& f) {
  const auto passes_end = [&](const interval& i, int d) { return i.start + i.size > shape[d]; };
  std::int64_t turns = 1;
  for (int d = 0; d < shape.rank; ++d) {
    if (passes_end(held.dim[d], d) || passes_end(needed.dim[d], d)) turns *= 3;
  }
  for (std::int64_t n = 0; n < turns; ++n) {
    tensor_box moved = held;
    std::int64_t rest = n;
    for (int d = 0; d < shape.rank && turns > 1; ++d) {
      if (!passes_end(held.dim[d], d) && !passes_end(needed.dim[d], d)) continue;
      moved.dim[d].start += (rest % 3 == 2 ? -1 : rest % 3) * shape[d];
      rest /= 3;
    }
    f(moved);
  }
}
/// Elements of the box `needed` that are in what a device holds.
[[nodiscard]] constexpr std::int64_t elements_met(const tensor_box& held, const tensor_box& needed,
                                                  const extents& shape) {
  std::int64_t count = 0;
  for_each_turn(held, needed, shape, [&](const tensor_box& box) { count += common_elements(box, needed, shape.rank); });
  return count;
}

/// Returns the box that `device` holds of the whole tensor of which instruction `id` of a partitioned program is a
/// shard.
[[nodiscard]] constexpr tensor_box box_of(const mesh_shape& mesh, graph_view g, int id, int device) {
  const instruction& i = g[id];
  const layout& l = g.annotations[i.annotation];
  tensor_box box = box_of(mesh, l.shape, l.placement, device);
  if (reads_windows(i)) {
    const collective_attributes moves = attributes_of<collective_attributes>(i);
    apply_windows(mesh, l.shape, g.windows + moves.first_window, moves.window_count, device, box);
  }
  return box;
}

/// True if every device has all that windows need of value `id`, though not from the first element on: `stays_at_home`
/// asks for more, and does not look at single devices. On more than a few dozen devices the answer is false unchecked.
[[nodiscard]] constexpr bool none_lacks(const mesh_shape& mesh, graph_view g, int id, const sharding& wanted,
                                        const placed_window* windows, int count) {
  constexpr int most_devices = 64;
  if (mesh.devices() > most_devices) return false;
  const extents& shape = g.annotations[g[id].annotation].shape;
  for (int device = 0; device < mesh.devices(); ++device) {
    tensor_box box = box_of(mesh, shape, wanted, device);
    apply_windows(mesh, shape, windows, count, device, box);
    if (elements_met(box_of(mesh, g, id, device), box, shape) != elements_of(box, wanted.rank)) return false;
  }
  return true;
}

// An exchange does not copy a device's rows of a tensor where they are neighbours in memory: their buffer gets room for
// the rows of neighbours around it, and the result is seen there.

/// The dimension whose rows are neighbours in the buffers of an exchange and of its operand, which differ in how many
/// of them there are and nothing else; -1 if there is none.
[[nodiscard]] constexpr int rows_around(const mesh_shape& mesh, graph_view g, int id) {
  const instruction& i = g[id];
  const instruction& held = g.operand(id, 0);
  int rows = 0;
  while (rows < i.shape.rank && i.shape[rows] == 1 && held.shape[rows] == 1) ++rows;
  if (rows == i.shape.rank) return -1;
  const layout& from = g.annotations[held.annotation];
  const layout& to = g.annotations[i.annotation];
  std::uint32_t windowed = 0;
  const auto moves = attributes_of<collective_attributes>(i);
  for (int n = 0; n < moves.window_count; ++n) {
    const placed_window& w = g.windows[moves.first_window + n];
    windowed |= 1U << static_cast<unsigned>(w.dim);
    if (w.wraps) return -1;
    if (w.dim == rows) continue;
    const bool is_whole = from.placement.dim[w.dim].empty() && w.axes == 0;
    if (!is_whole || needed(w, {0, w.extent}, from.shape[w.dim]).start != 0) return -1;
  }
  for (int d = 0; d < i.shape.rank; ++d) {
    if (d == rows) continue;
    if (i.shape[d] != held.shape[d]) return -1;
    const bool is_windowed = (windowed >> static_cast<unsigned>(d) & 1U) != 0;
    if (!is_windowed && !(from.placement.dim[d] == to.placement.dim[d])) return -1;
  }
  return mesh.devices() <= 64 ? rows : -1;
}
/// Rows from the operand's first to the first that `device` needs.
[[nodiscard]] constexpr std::int64_t rows_to_needed(const mesh_shape& mesh, graph_view g, int id, int rows,
                                                    int device) {
  const interval needed_rows = box_of(mesh, g, id, device).dim[rows];
  return needed_rows.size == 0 ? 0 : needed_rows.start - box_of(mesh, g, g[id].operand[0], device).dim[rows].start;
}

/// The room, in elements, that an operand's buffer needs before and after it; before < 0: it cannot be done, or would
/// be more than another buffer.
struct room_around {
  std::int64_t before = -1;
  std::int64_t after = 0;
};
[[nodiscard]] constexpr room_around room_around_operand(const mesh_shape& mesh, graph_view g, int id) {
  const int rows = rows_around(mesh, g, id);
  if (rows < 0) return {};
  const std::int64_t held = g.operand(id, 0).shape[rows];
  room_around room{0, 0};
  for (int device = 0; device < mesh.devices(); ++device) {
    const std::int64_t first = rows_to_needed(mesh, g, id, rows, device);
    room.before = larger_of(room.before, -first);
    room.after = larger_of(room.after, first + g[id].shape[rows] - held);
  }
  if (room.before + room.after > held) return {};
  const std::int64_t row = stride_of(g[id].shape, rows);
  return {room.before * row, room.after * row};
}

[[nodiscard]] constexpr instruction_boxes boxes_of(const mesh_shape& mesh, graph_view g, int id, int device) {
  instruction_boxes boxes;
  boxes.result = box_of(mesh, g, id, device);
  boxes.whole = g.annotations[g[id].annotation].shape;
  for (int k = 0; k < g[id].operand_count; ++k) boxes.operand[k] = box_of(mesh, g, g.operand_at(g[id], k), device);
  return boxes;
}

/// The axes along which the devices that take part in the exchange of windows `id` hold different boxes. They may take
/// part along more: others travel with it, and along those axes it has copies, which need not be asked.
[[nodiscard]] constexpr axis_list holders_for_windows(graph_view g, int id) {
  const instruction& held = g.operand(id, 0);
  axis_mask split = g.annotations[held.annotation].placement.tiled();
  if (reads_windows(held)) {
    const auto where = attributes_of<collective_attributes>(held);
    for (int n = 0; n < where.window_count; ++n)
      split |= axis_list::from_code(g.windows[where.first_window + n].axes).mask();
  }
  return list_of(attributes_of<collective_attributes>(g[id]).axes & split);
}

/// Calls `f(piece, n)` for every box that `device` receives in the exchange of windows `id`, from itself too; `n`
/// counts those from one sender, which are several only where circular dimensions are read on both sides of a shard: of
/// two devices each is both neighbours of the other. A box that several copies hold comes from the nearest copy, which
/// differs from `device` along the fewest axes: so all copies serve equally many devices.
template <class F>
constexpr void for_each_window_piece(const mesh_shape& mesh, graph_view g, int id, int device, F&& f) {
  const int from = g[id].operand[0];
  const extents& shape = g.annotations[g[from].annotation].shape;
  const axis_list holders = holders_for_windows(g, id);
  const tensor_box mine = box_of(mesh, g, id, device);
  for (int position = 0; position < static_cast<int>(mesh.parts(holders)); ++position) {
    const int source = mesh.member(device, holders, position);
    int n = 0;
    for_each_turn(box_of(mesh, g, from, source), mine, shape, [&](const tensor_box& theirs) {
      const piece p = common_piece(theirs, mine, shape.rank, source);
      if (!is_empty(p, shape.rank)) f(p, n++);
    });
  }
}
/// The number of boxes that one device may send to another in the exchange of windows `id`.
[[nodiscard]] constexpr int most_window_pieces(graph_view g, int id) {
  if (!reads_windows(g[id]) || !is_collective(g[id].op, collective::exchange)) return 1;
  const auto moves = attributes_of<collective_attributes>(g[id]);
  const instruction& held = g.operand(id, 0);
  const extents& shape = g.annotations[held.annotation].shape;
  int most = 1;
  for (int n = 0; n < moves.window_count; ++n) {
    const placed_window& w = g.windows[moves.first_window + n];
    // What one device holds of a circle and what another needs meet at both ends only if they go around it together and
    // have two elements more: also a window of one tap, where a device holds nearly all of the circle, or all of it.
    if (w.wraps && held.shape[w.dim] + g[id].shape[w.dim] >= shape[w.dim] + 2) most *= 2;
  }
  return most;
}

/// The bytes `device` sends to others in the exchange of windows `id`.
[[nodiscard]] constexpr std::int64_t bytes_sent_for_windows(const mesh_shape& mesh, graph_view g, int id, int device) {
  const axis_list group = holders_for_windows(g, id);
  const int from = g[id].operand[0];
  const extents& shape = g.annotations[g[from].annotation].shape;
  const tensor_box held = box_of(mesh, g, from, device);
  std::int64_t elements = 0;
  for (int position = 0; position < static_cast<int>(mesh.parts(group)); ++position) {
    const int receiver = mesh.member(device, group, position);
    if (receiver == device) continue;
    const tensor_box needed = box_of(mesh, g, id, receiver);
    elements += elements_met(held, needed, shape);
  }
  return elements * size_of(g[id].type);
}

/// Returns the largest number of bytes that a device sends for windows. On larger meshes only some devices are looked
/// at, the first and the last among them, so that the time does not grow with the mesh.
[[nodiscard]] constexpr std::int64_t most_bytes_for_windows(const mesh_shape& mesh, graph_view g, int id) {
  const int devices = mesh.devices();
  const int step = devices <= 8 ? 1 : devices / 7;
  std::int64_t most = 0;
  for (int device = 0; device < devices; device += step) {
    most = larger_of(most, bytes_sent_for_windows(mesh, g, id, device));
  }
  return most;
}

}  // namespace espalier::detail
