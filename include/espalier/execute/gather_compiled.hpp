// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How shards become a whole tensor: the compiled half of gather.hpp.
#include <espalier/execute/gather.hpp>
#include <espalier/execute/transfer_tables.hpp>

#include <cstddef>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::vector<shared_buffer> gather_shards(world& where, const mesh_shape& mesh, const extents& shape,
                                                         dtype type, const sharding& placement,
                                                         const std::vector<shared_buffer>& shards) {
  std::vector<shared_buffer> whole;
  for (int local = 0; local < where.local_devices(); ++local) whole.emplace_back(shape.elements() * size_of(type));
  const sharding to = sharding::whole(shape.rank);
  constexpr int channel = 0;
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    const auto at = static_cast<std::size_t>(local);
    const auto moves = make_transfer(mesh, shape, type, placement, to, placement.tiled(), collective::all_gather,
                                     where.device(local), channel);
    communicator.prepare(moves);
    communicator.exchange(moves, shards[at].data(), whole[at].data());
  });
  return whole;
}

}  // namespace espalier::detail
