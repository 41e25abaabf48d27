// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/object_vector.hpp>
#include <espalier/base/light_std/plain_vector.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <cstddef>
#include <cstdint>

namespace espalier::detail {

/// A collective that travels with others: its boxes, and where in the messages they are. (Of one that sends several
/// boxes to one device there are several, each with one of those.)
struct travelling_collective {
  int id = -1;
  /// The boxes that this device sends and receives, in the buffers of operand and result, by member of the group.
  comm::transfer boxes;
  /// Elements from where the memory of what is sent or received begins; -1 if that member's box is in no message.
  plain_vector<std::int64_t> sent_at;
  plain_vector<std::int64_t> received_at;
};

/// The blocks that one device sends and receives in collectives that travel together. It has one message for each other
/// member, with the boxes of all of them back to back. As a transfer it is one between two blocks of memory, where all
/// boxes lie in one piece. (Types may differ if they have the same size: the first one's is used for all.)
struct message_table {
  object_vector<travelling_collective> collectives;
  /// The transfer as the communicator gets it.
  comm::transfer moves;
  /// Elements of the two blocks.
  std::int64_t sent = 0;
  std::int64_t received = 0;
};

/// The kinds of transfers that need code of their own: a program brings that for those it has.
struct transfer_kinds {
  bool windows = false;
  bool exchanges = false;  ///< of whole layouts
  bool together = false;   ///< messages: see `has_messages`

  [[nodiscard]] static constexpr transfer_kinds all() { return {true, true, true}; }
};

/// Whether a collective's boxes go through messages of their own, on all devices: if others travel with it, if it may
/// send several boxes to one device, or if it combines less than whole buffers, where parts are uneven.
[[nodiscard]] constexpr bool has_messages(const mesh_shape& mesh, graph_view g, int id) {
  if (travelling_together(g.code, g.size, id) > 1 || most_window_pieces(g, id) > 1) return true;
  if (!is_collective(g[id].op, collective::all_reduce)) return false;
  const layout& l = g.annotations[g[id].annotation];
  for (int d = 0; d < l.placement.rank; ++d) {
    if (!divides_evenly(mesh, l.shape[d], l.placement.dim[d])) return true;
  }
  return false;
}

[[nodiscard]] constexpr transfer_kinds transfer_kinds_in(const mesh_shape& mesh, graph_view g) {
  transfer_kinds found;
  for (int id = 0; id < g.size; ++id) {
    if (collective_index(g[id].op) < 0) continue;
    found.windows = found.windows || reads_windows(g[id]);
    found.exchanges = found.exchanges || (is_collective(g[id].op, collective::exchange) && !reads_windows(g[id]));
    found.together = found.together || has_messages(mesh, g, id);
  }
  return found;
}

/// The real elements of a device's buffer as an all_reduce moves them: the same on both sides and for all members.
[[nodiscard]] inline comm::transfer make_all_reduce_transfer(const mesh_shape& mesh, graph_view g, int id, int device,
                                                             int channel) {
  const extents& shape = g[id].shape;
  const tensor_box held = box_of(mesh, g, g[id].operand[0], device);
  piece all;
  all.source = device;
  for (int d = 0; d < shape.rank; ++d) all.extent[d] = held.dim[d].size;
  transfer_maker made(mesh, g[id].type, attributes_of<collective_attributes>(g[id]).axes, shape, shape, device,
                      channel);
  made.receive(all);
  made.send(device, all);
  return made.finish();
}

/// Returns the transfer of `device` in one collective, which is of one of these kinds: of several boxes to one device
/// number `which`.
template <transfer_kinds Kinds>
[[nodiscard]] comm::transfer make_transfer_of(const mesh_shape& mesh, graph_view g, int id, int device, int channel,
                                              int which) {
  const auto kind = static_cast<collective>(collective_index(g[id].op));
  if constexpr (Kinds.windows) {
    if (reads_windows(g[id])) {
      return kind == collective::local_slice ? make_window_slice(mesh, g, id, device, channel)
                                             : make_window_transfer(mesh, g, id, device, channel, which);
    }
  }
  // What one device sends to all others is as large on all of them as what they add up.
  if (kind == collective::all_reduce || has_owner(g[id])) return make_all_reduce_transfer(mesh, g, id, device, channel);
  const layout& to = g.annotations[g[id].annotation];
  const layout& from = g.annotations[g.operand(id, 0).annotation];
  const axis_mask axes =
      kind == collective::local_slice ? axis_mask{0} : attributes_of<collective_attributes>(g[id]).axes;
  return make_transfer<Kinds.exchanges>(mesh, to.shape, g[id].type, from.placement, to.placement, axes, kind, device,
                                        channel);
}

/// Adds to `before`, for each member of the group, the elements that it sends in collective `id` to members in front of
/// this device.
template <transfer_kinds Kinds>
void add_elements_before(const mesh_shape& mesh, graph_view g, int id, const comm::transfer_group& group,
                         plain_vector<std::int64_t>& before) {
  const instruction& i = g[id];
  const auto kind = static_cast<collective>(collective_index(i.op));
  const axis_mask axes = attributes_of<collective_attributes>(i).axes;
  const axis_list along = list_of(axes);
  const layout& to = g.annotations[i.annotation];
  const layout& from = g.annotations[g.operand(id, 0).annotation];
  const bool reduces = facts_of(kind).reduces;
  const auto note = [&](int receiver, const piece& p) {
    if (p.source == receiver && !reduces) return;
    before[static_cast<std::size_t>(mesh.position(p.source, along))] += elements_of(p, to.shape.rank);
  };
  if constexpr (Kinds.exchanges) {
    if (kind == collective::exchange && !reads_windows(i)) {
      const shared_sending shares(mesh, to.shape, from.placement, to.placement, axes);
      for (const int sender : group.members) {
        shares.for_each_sent(sender, [&](int receiver, const piece& p) {
          if (mesh.position(receiver, along) < group.self) note(receiver, p);
        });
      }
      return;
    }
  }
  for (int k = 0; k < group.self; ++k) {
    const int receiver = group.members[static_cast<std::size_t>(k)];
    const auto received = [&](const piece& p) { note(receiver, p); };
    if (Kinds.windows && reads_windows(i)) {
      if constexpr (Kinds.windows) {
        for_each_window_piece(mesh, g, id, receiver, [&](const piece& p, int) { received(p); });
      }
    } else if (kind == collective::reduce_scatter) {
      for_each_term(mesh, to.shape, from.placement, to.placement, axes, receiver, received);
    } else {
      for_each_piece(mesh, to.shape, from.placement, to.placement, axes, receiver, received);
    }
  }
}

/// The messages of collective `id` and those that travel with it.
/// @post what the device sends to others are `sent_in_messages` bytes
template <transfer_kinds Kinds>
[[nodiscard]] message_table make_messages(const mesh_shape& mesh, graph_view g, int id, int device, int channel) {
  const auto kind = static_cast<collective>(collective_index(g[id].op));
  const bool has_one_place = facts_of(kind).reduces || has_owner(g[id]);
  message_table made;
  for (int travelling = id; travelling < id + travelling_together(g.code, g.size, id); ++travelling) {
    for (int which = 0; which < most_window_pieces(g, travelling); ++which) {
      made.collectives.push_back(
          {travelling, make_transfer_of<Kinds>(mesh, g, travelling, device, channel, which), {}, {}});
    }
  }
  comm::transfer& moves = made.moves;
  static_cast<comm::transfer_group&>(moves) = made.collectives.front().boxes;
  moves.type = g[id].type;
  const std::size_t members = moves.members.size();
  const auto self = static_cast<std::size_t>(moves.self);
  plain_vector<std::int64_t> before(members, 0);
  int counted = -1;
  for (travelling_collective& one : made.collectives) {
    one.sent_at.assign(members, -1);
    one.received_at.assign(members, -1);
    if (kind == collective::all_reduce || has_owner(g[id]) || one.id == counted) continue;
    counted = one.id;
    add_elements_before<Kinds>(mesh, g, one.id, moves, before);
  }
  for (std::size_t k = 0; k < members; ++k) {
    const std::int64_t first_sent = made.sent;
    const std::int64_t first_received = made.received;
    for (travelling_collective& one : made.collectives) {
      // A device's own elements go through a message only to be combined; all that is combined, or that comes from one
      // device, has one place.
      if (k == self && !has_one_place) continue;
      if (!one.boxes.outgoing[k].empty()) one.sent_at[k] = made.sent;
      made.sent += one.boxes.outgoing[k].elements();
      if (has_one_place && k != self) continue;
      if (!one.boxes.incoming[k].empty()) one.received_at[k] = made.received;
      made.received += one.boxes.incoming[k].elements();
    }
    moves.outgoing.push_back(comm::contiguous_block(made.sent - first_sent, first_sent));
    moves.incoming.push_back(comm::contiguous_block(made.received - first_received, before[k], first_received));
  }
  if (kind == collective::reduce_scatter) {
    for (std::size_t k = 0; k < members; ++k) moves.incoming[k] = comm::contiguous_block(made.received, before[k]);
  }
  return made;
}

/// The functions that make a program's transfers.
struct transfer_functions {
  /// Makes the transfer of a collective without messages.
  comm::transfer (*one)(const mesh_shape& mesh, graph_view g, int id, int device, int channel, int which);
  message_table (*together)(const mesh_shape& mesh, graph_view g, int id, int device, int channel);
};
template <transfer_kinds Kinds> [[nodiscard]] constexpr transfer_functions transfers_of_kinds() {
  transfer_functions made{&make_transfer_of<Kinds>, nullptr};
  if constexpr (Kinds.together) made.together = &make_messages<Kinds>;
  return made;
}

/// Returns the functions for all kinds of transfers.
#if defined(ESPALIER_COMPILED)
[[nodiscard]] transfer_functions all_transfers();
#else
// A template: a function would have the compiler read the code for all even where it is not called.
template <transfer_kinds Kinds = transfer_kinds::all()> [[nodiscard]] transfer_functions all_transfers() {
  return transfers_of_kinds<Kinds>();
}
#endif

}  // namespace espalier::detail
