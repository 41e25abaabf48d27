// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/layout.hpp>
#include <espalier/partition/collectives.hpp>
#include <espalier/partition/transfer.hpp>

#include <stdexcept>
#include <vector>

namespace espalier::detail {

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
    if (--place < 0) throw std::logic_error("a transfer needs more than four strided dimensions");
    result.extent[place] = p.extent[d];
    result.source_stride[place] = from;
    result.target_stride[place] = to;
  }
  return result;
}

/// What `device` sends and receives when a tensor changes its layout in one step along `axes`.
[[nodiscard]] inline comm::transfer make_transfer(const mesh_shape& mesh, const extents& shape, dtype type,
                                                  const sharding& from, const sharding& to, axis_mask axes,
                                                  bool reduces, int device, int channel) {
  const axis_list group = list_of(axes);
  comm::transfer result;
  result.type = type;
  result.channel = channel;
  const int members = static_cast<int>(mesh.parts(group));
  result.self = mesh.position(device, group);
  for (int k = 0; k < members; ++k) result.members.push_back(mesh.member(device, group, k));
  result.incoming.assign(static_cast<std::size_t>(members), comm::empty_block());
  result.outgoing.assign(static_cast<std::size_t>(members), comm::empty_block());
  const extents source = local_shape(mesh, shape, from);
  const extents target = local_shape(mesh, shape, to);
  const auto visit = [&](int receiver, const auto& f) {
    if (reduces) {
      for_each_term(mesh, shape, from, to, axes, receiver, f);
    } else {
      for_each_piece(mesh, shape, from, to, axes, receiver, f);
    }
  };
  const auto put = [](comm::block& slot, const comm::block& made) {
    if (!slot.empty()) throw std::logic_error("a transfer has two boxes for one pair of devices");
    slot = made;
  };
  visit(device, [&](const piece& p) {
    put(result.incoming[static_cast<std::size_t>(mesh.position(p.source, group))], block_of(p, source, target));
  });
  for (int k = 0; k < members; ++k) {
    visit(result.members[static_cast<std::size_t>(k)], [&](const piece& p) {
      if (p.source == device) put(result.outgoing[static_cast<std::size_t>(k)], block_of(p, source, target));
    });
  }
  return result;
}

}  // namespace espalier::detail
