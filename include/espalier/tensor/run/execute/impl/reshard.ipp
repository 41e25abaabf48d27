// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How an array gets another layout at run time: the compiled half of reshard.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/partition/mesh_transfer.hpp>
#include <espalier/tensor/run/execute/reshard.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <cstddef>
#include <vector>

namespace espalier::detail {

/// Returns the transfer of device `device` if the layouts are on two meshes of the same devices.
[[nodiscard]] inline comm::transfer transfer_between(const any_array& from, const any_array& into, int device) {
  const int devices = from.mesh().devices();
  std::vector<held_box> holders;
  std::vector<held_box> readers;
  for (int d = 0; d < devices; ++d) {
    holders.push_back(held_shard(from.mesh(), from.placed(), d, d));
    readers.push_back(held_shard(into.mesh(), into.placed(), d, d));
  }
  comm::transfer moves;
  moves.type = from.type();
  moves.channel = 0;
  moves.self = device;
  for (int d = 0; d < devices; ++d) moves.members.push_back(d);
  moves.outgoing.assign(static_cast<std::size_t>(devices), comm::empty_block());
  moves.incoming.assign(static_cast<std::size_t>(devices), comm::empty_block());
  for (const moved_piece& one : moved_pieces(holders, readers, from.shape().rank)) {
    const comm::block box = block_of(one.box, holders[one.from].buffer, readers[one.to].buffer);
    const auto sender = static_cast<std::size_t>(holders[one.from].rank);
    const auto receiver = static_cast<std::size_t>(readers[one.to].rank);
    if (holders[one.from].rank == device) moves.outgoing[receiver] = box;
    if (readers[one.to].rank == device) moves.incoming[sender] = box;
  }
  return moves;
}

inline void require_same_devices(const world& where, const any_array& array, const char* what) {
  if (array.empty()) {
    throw argument_error(joined({"reshard: ", what, " is an empty array. Make it with runner::argument<I>()."}));
  }
  array.require_unspent();
  bool same = array.mesh().devices() == where.mesh_value().devices() && array.local_count() == where.local_devices();
  for (int k = 0; same && k < array.local_count(); ++k) same = array.device(k) == where.device(k);
  if (same) return;
  throw argument_error(joined({"reshard: ", what, " lies on ", array_memory::devices_of(array),
                               ", and the world is one of ", array_memory::devices_of(where),
                               ". Both arrays and the world need the same devices, on whatever mesh."}));
}

ESPALIER_INLINE void reshard_array(world& where, const any_array& from, const any_array& into, source_line line) {
  require_same_devices(where, from, "the array to be read");
  require_same_devices(where, into, "the array to be filled");
  const std::vector<shared_buffer>& source = array_memory::shards(from);
  const std::vector<shared_buffer>& target = array_memory::shards(into);
  if (source.front().data() == target.front().data()) return;  // the same array
  const sharding& placement = from.placed().placement;
  // Terms of a sum are written as the whole sum by its first device; until then all of them are copies.
  sharding wanted = into.placed().placement;
  const bool has_terms = wanted.unreduced != 0;
  wanted.unreduced = 0;
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    const named_operation named(communicator, "reshard", line);
    const auto at = static_cast<std::size_t>(local);
    const axis_mask all = (axis_mask{1} << static_cast<unsigned>(from.mesh().rank)) - 1U;
    const comm::transfer moves = same_grid(from.mesh(), into.mesh())
                                     ? make_transfer(from.mesh(), from.shape(), from.type(), placement, wanted, all,
                                                     collective::exchange, from.device(local), 0)
                                     : transfer_between(from, into, from.device(local));
    communicator.prepare(moves);
    communicator.exchange(moves, source[at].data(), target[at].data());
    if (!has_terms) return;
    const int first = into.mesh().position(into.device(local), list_of(into.placed().placement.unreduced));
    if (first != 0) array_memory::begin_writing(into, local);
  });
}

}  // namespace espalier::detail
