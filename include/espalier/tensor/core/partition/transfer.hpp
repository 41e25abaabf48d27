// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/sharding/box.hpp>

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

/// Returns the intersection of two boxes, as the piece that the holder of `theirs` contributes to `mine`.
/// @post it is contained in both boxes, and has all their common elements
[[nodiscard]] constexpr piece common_piece(const tensor_box& theirs, const tensor_box& mine, int rank, int source) {
  piece result;
  result.source = source;
  for (int d = 0; d < rank; ++d) {
    const interval from = theirs.dim[d];
    const interval to = mine.dim[d];
    const std::int64_t first = larger_of(from.start, to.start);
    result.extent[d] = larger_of<std::int64_t>(smaller_of(from.start + from.size, to.start + to.size) - first, 0);
    result.source_start[d] = first - from.start;
    result.target_start[d] = first - to.start;
  }
  return result;
}

[[nodiscard]] constexpr std::int64_t elements_of(const piece& p, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= p.extent[d];
  return count;
}

[[nodiscard]] constexpr bool is_empty(const piece& p, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (p.extent[d] == 0) return true;
  }
  return false;
}

/// The choice of senders within a group of a named collective: its members differ along `holders` in the data they
/// hold, along `copies` only in which copy of it.
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

/// The same for an exchange, where any number of members may want some part of the same data, and not the same part.
///
/// The holders of one copy each share the work: what all others want of the data is laid out on a line, member after
/// member, and cut into equal shares, none smaller than the largest box; each holder sends one share. A box that a cut
/// goes through is cut along its longest dimension, so that still one box goes from any device to any other. (The rule
/// is McNaughton's for jobs that may be interrupted: no other assignment has a smaller largest share.)
/// @post a holder sends at most max(wanted of its data / copies, largest box), plus half a layer of a box at each cut
class shared_sending {
 public:
  constexpr shared_sending(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to,
                           axis_mask axes)
      : mesh_(mesh),
        shape_(shape),
        from_(from),
        to_(to),
        members_(list_of(axes)),
        holders_(list_of(axes & from.tiled())),
        copies_(list_of(axes & ~from.tiled())),
        size_(static_cast<int>(mesh.parts(members_))) {}

  /// Calls `f(receiver, piece)` for every box of `holder`'s data that other devices receive, from whichever copy.
  template <class F> constexpr void for_each_wanted(int holder, F&& f) const {
    const int position = mesh_.position(holder, holders_);
    const tensor_box theirs = box_of(mesh_, shape_, from_, holder);
    std::int64_t total = 0;
    std::int64_t largest = 0;
    for (int k = 0; k < size_; ++k) {
      const int receiver = mesh_.member(holder, members_, k);
      if (mesh_.position(receiver, holders_) == position) continue;  // has it already
      const std::int64_t count = common_elements(theirs, box_of(mesh_, shape_, to_, receiver), shape_.rank);
      total += count;
      largest = larger_of(largest, count);
    }
    if (total == 0) return;
    const std::int64_t share = larger_of(largest, ceil_div(total, mesh_.parts(copies_)));
    std::int64_t before = 0;
    for (int k = 0; k < size_; ++k) {
      const int receiver = mesh_.member(holder, members_, k);
      if (mesh_.position(receiver, holders_) == position) continue;
      const tensor_box mine = box_of(mesh_, shape_, to_, receiver);
      const std::int64_t count = common_elements(theirs, mine, shape_.rank);
      if (count == 0) continue;
      piece p = common_piece(theirs, mine, shape_.rank, holder);
      const int longest = longest_dim(p);
      const std::int64_t layers = p.extent[longest];
      const int copy = static_cast<int>(before / share);
      const std::int64_t room = (copy + 1) * share - before;
      const std::int64_t here = count <= room ? layers : (2 * room * layers + count) / (2 * count);
      if (here > 0) {
        p.source = mesh_.member(holder, copies_, copy);
        p.extent[longest] = here;
        f(receiver, p);
      }
      if (here < layers) {
        p.source = mesh_.member(holder, copies_, copy + 1);
        p.extent[longest] = layers - here;
        p.source_start[longest] += here;
        p.target_start[longest] += here;
        f(receiver, p);
      }
      before += count;
    }
  }

  /// Calls `f(piece)` for every box that `device` receives, its own included.
  template <class F> constexpr void for_each_received(int device, F&& f) const {
    const tensor_box mine = box_of(mesh_, shape_, to_, device);
    const int own = mesh_.position(device, holders_);
    const int count = static_cast<int>(mesh_.parts(holders_));
    for (int position = 0; position < count; ++position) {
      const int holder = mesh_.member(device, holders_, position);
      const piece p = common_piece(box_of(mesh_, shape_, from_, holder), mine, shape_.rank, holder);
      if (is_empty(p, shape_.rank)) continue;
      if (position == own) {
        f(p);
        continue;
      }
      for_each_wanted(holder, [&](int receiver, const piece& wanted) {
        if (receiver == device) f(wanted);
      });
    }
  }

  /// Calls `f(receiver, piece)` for every box that `device` sends to others.
  template <class F> constexpr void for_each_sent(int device, F&& f) const {
    for_each_wanted(device, [&](int receiver, const piece& wanted) {
      if (wanted.source == device) f(receiver, wanted);
    });
  }

 private:
  [[nodiscard]] constexpr int longest_dim(const piece& p) const {
    int longest = 0;
    for (int d = 1; d < shape_.rank; ++d) longest = p.extent[d] > p.extent[longest] ? d : longest;
    return longest;
  }

  const mesh_shape& mesh_;
  const extents& shape_;
  const sharding& from_;
  const sharding& to_;
  axis_list members_;
  axis_list holders_;
  axis_list copies_;
  int size_;
};

}  // namespace detail

/// Calls `f(piece)` for every box that `device` receives, from itself too, when a tensor changes from `from` to `to` by
/// one step (all_gather, all_to_all, collective_permute, local_slice) whose groups span `axes`. Senders are members of
/// the device's group, in group order of what they hold.
/// @pre every device of a group finds all of its new shard within the group; neither layout uses `axes` for a sum.
/// @post the boxes cover the real elements of the device's new shard, each exactly once
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

/// The same for an exchange. Of what several devices hold each sends its share; what `device` holds comes from itself.
/// @post the boxes cover the new shard, each element exactly once
/// @post at most one box from each device, and none from others that `device` held already.
template <class F>
constexpr void for_each_exchanged_piece(const mesh_shape& mesh, const extents& shape, const sharding& from,
                                        const sharding& to, axis_mask axes, int device, F&& f) {
  detail::shared_sending(mesh, shape, from, to, axes).for_each_received(device, f);
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
