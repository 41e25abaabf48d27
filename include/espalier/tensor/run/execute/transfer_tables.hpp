// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/transfer.hpp>

#include <stdexcept>
#include <utility>
#include <vector>

namespace espalier::detail {

static_assert(comm::block_rank >= max_rank);

/// A box in two local buffers, with neighbouring dimensions joined where both sides continue.
[[nodiscard]] inline comm::block block_of(const piece& p, const extents& source, const extents& target) {
  comm::block result = comm::empty_block();
  std::int64_t offset_in_source = 0;
  std::int64_t offset_in_target = 0;
  for (int d = 0; d < source.rank; ++d) {
    if (p.extent[d] == 0) return result;
    offset_in_source += p.source_start[d] * stride_of(source, d);
    offset_in_target += p.target_start[d] * stride_of(target, d);
  }
  result = comm::contiguous_block(1, offset_in_source, offset_in_target);
  int place = comm::block_rank;
  for (int d = source.rank - 1; d >= 0; --d) {
    if (p.extent[d] == 1) continue;
    const std::int64_t from = stride_of(source, d);
    const std::int64_t to = stride_of(target, d);
    if (place < comm::block_rank && from == result.source_stride[place] * result.extent[place] &&
        to == result.target_stride[place] * result.extent[place]) {
      result.extent[place] *= p.extent[d];
      continue;
    }
    if (--place < 0) throw std::logic_error("a transfer has more strided dimensions than a tensor may have");
    result.extent[place] = p.extent[d];
    result.source_stride[place] = from;
    result.target_stride[place] = to;
  }
  return result;
}

/// Puts together what one device sends and receives: at most one box for each other device.
class transfer_maker {
 public:
  /// @param source, target the shapes of the buffers before and after
  transfer_maker(const mesh_shape& mesh, dtype type, axis_mask axes, const extents& source, const extents& target,
                 int device, int channel)
      : mesh_(mesh), group_(list_of(axes)), source_(source), target_(target) {
    transfer_.type = type;
    transfer_.channel = channel;
    const int members = static_cast<int>(mesh.parts(group_));
    transfer_.self = mesh.position(device, group_);
    for (int k = 0; k < members; ++k) transfer_.members.push_back(mesh.member(device, group_, k));
    transfer_.incoming.assign(static_cast<std::size_t>(members), comm::empty_block());
    transfer_.outgoing.assign(static_cast<std::size_t>(members), comm::empty_block());
  }

  [[nodiscard]] const std::vector<int>& members() const { return transfer_.members; }
  void receive(const piece& p) { put(transfer_.incoming, p.source, p); }
  void send(int receiver, const piece& p) { put(transfer_.outgoing, receiver, p); }
  [[nodiscard]] comm::transfer finish() { return std::move(transfer_); }

 private:
  void put(plain_vector<comm::block>& slots, int other, const piece& p) {
    comm::block& slot = slots[static_cast<std::size_t>(mesh_.position(other, group_))];
    if (!slot.empty()) throw std::logic_error("a transfer has two boxes for one pair of devices");
    slot = block_of(p, source_, target_);
  }

  const mesh_shape& mesh_;
  axis_list group_;
  extents source_;
  extents target_;
  comm::transfer transfer_;
};

/// The boxes that `device` receives from and sends to the members of its group along `axes`. `visit(receiver, f)` calls
/// `f(piece)` for every box that a device receives, from itself too.
template <class Visit>
[[nodiscard]] comm::transfer make_transfer(const mesh_shape& mesh, dtype type, axis_mask axes, const extents& source,
                                           const extents& target, int device, int channel, const Visit& visit) {
  transfer_maker made(mesh, type, axes, source, target, device, channel);
  visit(device, [&](const piece& p) { made.receive(p); });
  for (const int member : made.members()) {
    visit(member, [&](const piece& p) {
      if (p.source == device) made.send(member, p);
    });
  }
  return made.finish();
}

/// The elements that `device` sends and receives when a tensor changes its layout in one step of this kind along
/// `axes`.
/// @tparam Exchanges whether `kind` may be an exchange
/// @pre `kind` is no all_reduce
template <bool Exchanges = true>
[[nodiscard]] comm::transfer make_transfer(const mesh_shape& mesh, const extents& shape, dtype type,
                                           const sharding& from, const sharding& to, axis_mask axes, collective kind,
                                           int device, int channel) {
  const extents source = local_shape(mesh, shape, from);
  const extents target = local_shape(mesh, shape, to);
  if constexpr (Exchanges) {
    if (kind == collective::exchange) {
      transfer_maker made(mesh, type, axes, source, target, device, channel);
      const shared_sending shares(mesh, shape, from, to, axes);
      shares.for_each_received(device, [&](const piece& p) {
        made.receive(p);
        if (p.source == device) made.send(device, p);
      });
      shares.for_each_sent(device, [&](int receiver, const piece& p) { made.send(receiver, p); });
      return made.finish();
    }
  }
  return make_transfer(mesh, type, axes, source, target, device, channel, [&](int receiver, const auto& f) {
    if (kind == collective::reduce_scatter) {
      for_each_term(mesh, shape, from, to, axes, receiver, f);
    } else {
      for_each_piece(mesh, shape, from, to, axes, receiver, f);
    }
  });
}

/// The boxes of what it has that a device keeps in a slice of what windows need: several on a circle.
[[nodiscard]] inline comm::transfer make_window_slice(const mesh_shape& mesh, graph_view g, int id, int device,
                                                      int channel) {
  comm::transfer made;
  made.type = g[id].type;
  made.channel = channel;
  made.members = {device};
  made.outgoing = {comm::empty_block()};
  for_each_window_piece(mesh, g, id, device, [&](const piece& p, int) {
    made.incoming.push_back(block_of(p, g.operand(id, 0).shape, g[id].shape));
  });
  if (made.incoming.empty()) made.incoming.push_back(comm::empty_block());
  return made;
}

/// The same of an exchange of what windows need: of the boxes from one device to another, number `which`.
[[nodiscard]] inline comm::transfer make_window_transfer(const mesh_shape& mesh, graph_view g, int id, int device,
                                                         int channel, int which = 0) {
  return make_transfer(mesh, g[id].type, attributes_of<collective_attributes>(g[id]).axes, g.operand(id, 0).shape,
                       g[id].shape, device, channel, [&](int receiver, const auto& f) {
                         for_each_window_piece(mesh, g, id, receiver, [&](const piece& p, int n) {
                           if (n == which) f(p);
                         });
                       });
}

}  // namespace espalier::detail
