// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/sharding/sharding.hpp>

#include <algorithm>
#include <cstdint>

namespace espalier {

/// A box that one device sends to another, in elements. `source_start` and `target_start` are relative to the local
/// buffers of the sender (laid out as before the step) and of the receiver (as after it).
struct piece {
  int source = 0;
  std::int64_t extent[max_rank]{};
  std::int64_t source_start[max_rank]{};
  std::int64_t target_start[max_rank]{};
};

namespace detail {

/// The part of a tensor that one device holds, in elements of the whole tensor.
struct tensor_box {
  interval dim[max_rank]{};
};

[[nodiscard]] constexpr tensor_box box_of(const mesh_shape& mesh, const extents& shape, const sharding& placement,
                                          int device) {
  tensor_box result;
  for (int d = 0; d < shape.rank; ++d) {
    // g++ 12 cannot copy an empty list out of a constexpr sharding ("modification of ... is not constant").
    const bool whole = placement.dim[d].empty();
    result.dim[d] = whole ? interval{0, shape[d]} : local_interval(mesh, shape[d], placement.dim[d], device);
  }
  return result;
}

[[nodiscard]] constexpr std::int64_t elements_of(const tensor_box& box, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= box.dim[d].size;
  return count;
}

[[nodiscard]] constexpr std::int64_t common_elements(const tensor_box& a, const tensor_box& b, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t first = std::max(a.dim[d].start, b.dim[d].start);
    const std::int64_t last = std::min(a.dim[d].start + a.dim[d].size, b.dim[d].start + b.dim[d].size);
    count *= std::max<std::int64_t>(last - first, 0);
  }
  return count;
}

/// What two boxes have in common, as the piece that the holder of `theirs` contributes to `mine`.
[[nodiscard]] constexpr piece common_piece(const tensor_box& theirs, const tensor_box& mine, int rank, int source) {
  piece result;
  result.source = source;
  for (int d = 0; d < rank; ++d) {
    const interval from = theirs.dim[d];
    const interval to = mine.dim[d];
    const std::int64_t first = std::max(from.start, to.start);
    result.extent[d] = std::max<std::int64_t>(std::min(from.start + from.size, to.start + to.size) - first, 0);
    result.source_start[d] = first - from.start;
    result.target_start[d] = first - to.start;
  }
  return result;
}

[[nodiscard]] constexpr bool is_empty(const piece& p, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (p.extent[d] == 0) return true;
  }
  return false;
}

/// Who sends what within a group: its members differ along `holders` in the data they hold, along `copies` only in
/// which copy of it.
struct sender_choice {
  axis_list holders;
  axis_list copies;
  axis_list takers;

  constexpr sender_choice(const sharding& from, const sharding& to, axis_mask axes)
      : holders(list_of(axes & from.tiled())),
        copies(list_of(axes & ~from.tiled())),
        takers(list_of(axes & ~to.tiled())) {}

  /// The member holding data number `position` that serves `device`: the device itself if it can; otherwise the
  /// devices that want the same data take its copies in turn, so that every copy serves equally many.
  [[nodiscard]] constexpr int sender(const mesh_shape& mesh, int device, int position) const {
    const int holder = mesh.member(device, holders, position);
    if (holder == device || copies.empty()) return holder;
    return mesh.member(holder, copies, mesh.position(device, takers) % static_cast<int>(mesh.parts(copies)));
  }
};

}  // namespace detail

/// Calls `f(piece)` for every box that `device` receives, from itself too, when a tensor changes from `from` to `to` by
/// one step (all_gather, all_to_all, collective_permute, local_slice) whose groups span `axes`. Senders are members of
/// the device's group, in group order of what they hold.
/// @pre every device of a group finds all of its new shard within the group; neither layout uses `axes` for a sum.
/// @post the boxes cover the real elements of the device's new shard, each exactly once.
template <class F>
constexpr void for_each_piece(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to,
                              axis_mask axes, int device, F&& f) {
  const detail::sender_choice choice(from, to, axes);
  const detail::tensor_box mine = detail::box_of(mesh, shape, to, device);
  const int holders = static_cast<int>(mesh.parts(choice.holders));
  for (int position = 0; position < holders; ++position) {
    const int source = choice.sender(mesh, device, position);
    const piece p = detail::common_piece(detail::box_of(mesh, shape, from, source), mine, shape.rank, source);
    if (!detail::is_empty(p, shape.rank)) f(p);
  }
}

/// Calls `f(piece)` once per member of the device's group along `axes`, in group order: the terms that a reduce_scatter
/// adds up to the device's new shard. A device whose new shard is empty receives none.
/// @pre `axes` are unreduced in `from` and not in `to`.
template <class F>
constexpr void for_each_term(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to,
                             axis_mask axes, int device, F&& f) {
  const axis_list group = list_of(axes);
  const detail::tensor_box mine = detail::box_of(mesh, shape, to, device);
  // The members differ only along axes that hold terms of a sum, so they all hold the same part of the tensor.
  piece p = detail::common_piece(detail::box_of(mesh, shape, from, device), mine, shape.rank, device);
  if (detail::is_empty(p, shape.rank)) return;
  const int members = static_cast<int>(mesh.parts(group));
  for (int position = 0; position < members; ++position) {
    p.source = mesh.member(device, group, position);
    f(p);
  }
}

}  // namespace espalier
