// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/graph/graph.hpp>
#include <espalier/partition/collectives.hpp>
#include <espalier/partition/transfer.hpp>

#include <algorithm>
#include <cstdint>

namespace espalier::detail {

/// Whether an exchange, or a slice of what a device has, brings what windows need: boxes overlap, and only the windows
/// say where they are.
[[nodiscard]] constexpr bool reads_windows(const instruction& i) {
  return (is_collective(i.op, collective::exchange) || is_collective(i.op, collective::local_slice)) &&
         attributes_of<collective_attributes>(i).window_count > 0;
}

/// Whether every device already holds what its window needs of a dimension of `extent` elements that is split by
/// `axes`: where what is needed moves on by as much as what is held, the first two devices tell of all, since beyond
/// the ends of the tensor nothing is needed.
[[nodiscard]] constexpr bool stays_at_home(const mesh_shape& mesh, const placed_window& w, std::int64_t extent,
                                           axis_list axes) {
  if (axes.empty()) return true;
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

/// Whether every device has all that windows need of it, though not from the first element on: `stays_at_home` asks for
/// more, and does not look at single devices. On more than a few dozen of these, nobody looks.
[[nodiscard]] constexpr bool nobody_lacks(const mesh_shape& mesh, const layout& from, const sharding& wanted,
                                          const placed_window* windows, int count) {
  constexpr int most_devices = 64;
  if (mesh.devices() > most_devices) return false;
  for (int device = 0; device < mesh.devices(); ++device) {
    tensor_box box = box_of(mesh, from.shape, wanted, device);
    apply_windows(mesh, from.shape, windows, count, device, box);
    const tensor_box held = box_of(mesh, from.shape, from.placement, device);
    if (common_elements(box, held, wanted.rank) != elements_of(box, wanted.rank)) return false;
  }
  return true;
}

/// What `device` holds of the tensor that instruction `id` of a partitioned program is a part of.
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

[[nodiscard]] constexpr instruction_boxes boxes_of(const mesh_shape& mesh, graph_view g, int id, int device) {
  instruction_boxes boxes;
  boxes.result = box_of(mesh, g, id, device);
  boxes.whole = g.annotations[g[id].annotation].shape;
  for (int k = 0; k < g[id].operand_count; ++k) boxes.operand[k] = box_of(mesh, g, g[id].operand[k], device);
  return boxes;
}

/// Calls `f(piece)` for every box that `device` receives in the exchange of windows `id`, from itself too. What copies
/// hold each takes from the one nearest to it, that which differs from it along the fewest axes: so all serve equally
/// many.
template <class F>
constexpr void for_each_window_piece(const mesh_shape& mesh, graph_view g, int id, int device, F&& f) {
  const layout& from = g.annotations[g.operand(id, 0).annotation];
  const axis_list holders = list_of(attributes_of<collective_attributes>(g[id]).axes);
  const tensor_box mine = box_of(mesh, g, id, device);
  for (int position = 0; position < static_cast<int>(mesh.parts(holders)); ++position) {
    const int source = mesh.member(device, holders, position);
    const piece p = common_piece(box_of(mesh, from.shape, from.placement, source), mine, from.shape.rank, source);
    if (!is_empty(p, from.shape.rank)) f(p);
  }
}

/// The bytes `device` sends to others in the exchange of windows `id`.
[[nodiscard]] constexpr std::int64_t bytes_sent_for_windows(const mesh_shape& mesh, graph_view g, int id, int device) {
  const axis_list group = list_of(attributes_of<collective_attributes>(g[id]).axes);
  const layout& from = g.annotations[g.operand(id, 0).annotation];
  const tensor_box held = box_of(mesh, from.shape, from.placement, device);
  std::int64_t elements = 0;
  for (int position = 0; position < static_cast<int>(mesh.parts(group)); ++position) {
    const int receiver = mesh.member(device, group, position);
    if (receiver != device) elements += common_elements(held, box_of(mesh, g, id, receiver), from.shape.rank);
  }
  return elements * size_of(g[id].type);
}

/// What the device that sends most sends then: of a few, among them the first and the last, so that it takes no longer
/// on a larger mesh.
[[nodiscard]] constexpr std::int64_t most_bytes_for_windows(const mesh_shape& mesh, graph_view g, int id) {
  const int devices = mesh.devices();
  const int step = devices <= 8 ? 1 : devices / 7;
  std::int64_t most = 0;
  for (int device = 0; device < devices; device += step) {
    most = std::max(most, bytes_sent_for_windows(mesh, g, id, device));
  }
  return most;
}

}  // namespace espalier::detail
