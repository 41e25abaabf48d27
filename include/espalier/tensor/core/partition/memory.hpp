// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/arena.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/buffer_lives.hpp>
#include <espalier/tensor/core/partition/buffer_sharing.hpp>
#include <espalier/tensor/core/partition/copy_order.hpp>
#include <espalier/tensor/core/partition/halo_room.hpp>
#include <espalier/tensor/core/partition/memory_outline.hpp>
#include <espalier/tensor/core/partition/schedule.hpp>

namespace espalier {

/// Gives every stored value of a scheduled program a buffer. `partition/arena.hpp` places the buffers.
[[nodiscard]] constexpr memory_outline outline_memory(const mesh_shape& mesh, graph_view g, const schedule_view& s) {
  const detail::scheduled_program program(g, s);
  detail::shared_buffers shared(g.size);
  detail::halo_room halos(mesh, g, shared);
  halos.find();
  detail::buffer_sharing(program, shared, halos).run();
  halos.place();
  detail::buffer_lives lives(program, shared, halos);
  lives.find_lives();
  lives.place_results();
  detail::copy_order copies(program, shared);
  copies.run();

  memory_outline outline;
  for (int id = 0; id < g.size; ++id) {
    if (copies.saved[id]) outline.buffers.push_back({id, aligned(bytes_of(g[id])), s.launch_of[id], s.launch_of[id]});
    if (shared.root[id] != id || shared.within[id].space != memory_space::arena) continue;
    outline.buffers.push_back({id, halos.room_of(id), lives.first(id), lives.last(id)});
  }
  outline.root = static_cast<detail::list<int>&&>(shared.root);
  outline.within = static_cast<detail::list<location>&&>(shared.within);
  outline.copied = static_cast<detail::list<bool>&&>(shared.copied);
  outline.copies = static_cast<detail::list<int>&&>(copies.copies);
  outline.saved = static_cast<detail::list<bool>&&>(copies.saved);
  return outline;
}

}  // namespace espalier
