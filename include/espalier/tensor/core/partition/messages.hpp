// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>

#include <cstdint>

// Collectives that travel together (partition/merge_collectives.hpp) are instructions of their own, each with its
// operand, its layouts and its windows, and directly after one another. A device sends each peer one message for all of
// them: the boxes of the first, then those of the second, and so on. So whatever boxes collectives of a kind move,
// between whatever shapes, any of them can share messages.

namespace espalier::detail {

[[nodiscard]] constexpr reshard_step step_of(graph_view g, int id) {
  return {static_cast<collective>(collective_index(g[id].op)), attributes_of<collective_attributes>(g[id]).axes,
          g.annotations[g[id].annotation].placement};
}

/// Bytes that a device sends in one exchange from an owner, and what travels with it: the whole rows, if it is the
/// owner. In a loop over all rows each device is as often, and the mean is what counts: of n bytes on d devices n (d -
/// 1) / d.
[[nodiscard]] constexpr std::int64_t sent_for_owner(const mesh_shape& mesh, graph_view g, int id) {
  const owner_attributes owners = attributes_of<owner_attributes>(g[id]);
  const std::int64_t devices = mesh.parts(list_of(owners.axes));
  std::int64_t bytes = 0;
  for (int part = id; part < id + travelling_together(g.code, g.size, id); ++part)
    bytes += g[part].shape.elements() * size_of(g[part].type);
  const instruction& row = g.operand(id, 1);
  const bool takes_turns = structure_of(row) == structure::loop_slice && row.region == g[id].region &&
                           g[row.operand[0]].op->facts.values == pattern::index &&
                           attributes_of<region_attributes>(g[row.region]).iterations == devices * owners.rows;
  return takes_turns ? ceil_div(bytes * (devices - 1), devices) : bytes;
}

/// Bytes that `device` sends in the messages of collective `id`, all that travel with it included; 0 if it is one that
/// travels with another.
[[nodiscard]] constexpr std::int64_t sent_in_messages(const mesh_shape& mesh, graph_view g, int id, int device) {
  const int together = travelling_together(g.code, g.size, id);
  if (together == 0) return 0;
  if (has_owner(g[id])) return sent_for_owner(mesh, g, id);
  std::int64_t bytes = 0;
  if (is_collective(g[id].op, collective::all_reduce)) {
    // Shares of all elements together are shared out, not of each tensor's.
    const axis_list group = list_of(attributes_of<collective_attributes>(g[id]).axes);
    const std::int64_t n = mesh.parts(group);
    std::int64_t elements = 0;
    for (int part = id; part < id + together; ++part) {
      elements += elements_of(box_of(mesh, g, g[part].operand[0], device), g[part].shape.rank);
    }
    const std::int64_t share = elements / n + (mesh.position(device, group) < elements % n ? 1 : 0);
    return (elements + share * (n - 2)) * size_of(g[id].type);
  }
  for (int part = id; part < id + together; ++part) {
    const layout& from = g.annotations[g.operand(part, 0).annotation];
    bytes += reads_windows(g[part])
                 ? bytes_sent_for_windows(mesh, g, part, device)
                 : sent_bytes(mesh, from.shape, g[part].type, step_of(g, part), from.placement, device);
  }
  return bytes;
}

/// Returns the bytes that the device that moves most sends in these messages, or receives if they are permutations or
/// exchanges. (If shards are uneven the first device holds the largest.)
[[nodiscard]] constexpr std::int64_t most_sent_in_messages(const mesh_shape& mesh, graph_view g, int id) {
  if (is_collective(g[id].op, collective::all_reduce) || has_owner(g[id]))
    return sent_in_messages(mesh, g, id, holder_of_first(mesh, g.annotations[g.operand(id, 0).annotation].placement));
  std::int64_t bytes = 0;
  for (int part = id; part < id + travelling_together(g.code, g.size, id); ++part) {
    const layout& from = g.annotations[g.operand(part, 0).annotation];
    bytes += reads_windows(g[part]) ? most_bytes_for_windows(mesh, g, part)
                                    : most_sent_bytes(mesh, from.shape, g[part].type, step_of(g, part), from.placement);
  }
  return bytes;
}

}  // namespace espalier::detail
