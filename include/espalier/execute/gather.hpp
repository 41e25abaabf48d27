// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/execute/array.hpp>
#include <espalier/execute/transfer_tables.hpp>

#include <vector>

namespace espalier {

/// The whole tensor, row-major, on every process. Collective: all ranks call it.
///
/// Errors: `argument_error` if the array is empty or of another world.
template <class Tensor>
[[nodiscard]] std::vector<storage_t<Tensor::type>> gather(world& where, const sharded_array<Tensor>& array) {
  using element = storage_t<Tensor::type>;
  detail::require_in_world(where, array, "gather: what it is given");
  // Through plain memory: a vector<bool> has none.
  std::vector<shared_buffer> whole;
  for (int local = 0; local < where.local_devices(); ++local) {
    whole.emplace_back(Tensor::shape.elements() * size_of(Tensor::type));
  }
  const sharding from = array.placed().placement;
  sharding to = sharding::whole(Tensor::rank);
  constexpr int channel = 0;
  where.on_devices([&](int local, auto& communicator) {
    const auto moves = detail::make_transfer(where.mesh_value(), Tensor::shape, Tensor::type, from, to, from.tiled(),
                                             collective::all_gather, where.device(local), channel);
    communicator.prepare(moves);
    communicator.exchange(moves, array.data(local), whole[static_cast<std::size_t>(local)].data());
  });
  const auto* const first = static_cast<const element*>(whole.front().data());
  return std::vector<element>(first, first + Tensor::shape.elements());
}

}  // namespace espalier
