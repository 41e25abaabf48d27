// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How shards become a whole tensor: the compiled half of gather.hpp.
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <cstddef>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::vector<shared_buffer> gather_shards(world& where, const any_array& array, source_line line) {
  require_in_world(where, array, "gather: what it is given");
  const extents& shape = array.shape();
  const sharding& placement = array.placed().placement;
  const std::vector<shared_buffer>& shards = array_memory::shards(array);
  std::vector<shared_buffer> whole;
  for (int local = 0; local < where.local_devices(); ++local) {
    whole.emplace_back(shape.elements() * size_of(array.type()));
  }
  const sharding to = sharding::whole(shape.rank);
  constexpr int channel = 0;
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    const named_operation named(communicator, "gather", line);
    const auto at = static_cast<std::size_t>(local);
    const auto moves = make_transfer<false>(array.mesh(), shape, array.type(), placement, to, placement.tiled(),
                                            collective::all_gather, where.device(local), channel);
    communicator.prepare(moves);
    communicator.exchange(moves, shards[at].data(), whole[at].data());
  });
  return whole;
}

}  // namespace espalier::detail
