// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How copies of arrays are compared and made equal: the compiled half of replicas.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>
#include <espalier/tensor/run/execute/replicas.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE axis_list replica_axes(const any_array& array) {
  const sharding& placement = array.placed().placement;
  const axis_mask all = (axis_mask{1} << static_cast<unsigned>(array.mesh().rank)) - 1U;
  return list_of(static_cast<axis_mask>(all & ~placement.tiled() & ~placement.unreduced));
}

[[nodiscard]] inline std::uint64_t hash_of_shard(const any_array& array, int local) {
  const std::int64_t element = size_of(array.type());
  const char* const first =
      static_cast<const char*>(array_memory::shards(array)[static_cast<std::size_t>(local)].data());
  std::uint64_t hash = 0x9E3779B97F4A7C15U;
  for (shard_rows row(array, local); row.any; row.next()) {
    const char* at = first + row.at * element;
    std::int64_t left = row.length * element;
    while (left > 0) {
      const std::int64_t step = left < 8 ? left : 8;
      std::uint64_t word = 0;
      std::memcpy(&word, at, static_cast<std::size_t>(step));
      hash = (hash ^ word) * 0xD6E8FEB86659FD93U;
      hash ^= hash >> 29U;
      at += step;
      left -= step;
    }
  }
  return hash;
}

/// "(2, 1)" of a flat index in a whole tensor.
[[nodiscard]] inline std::string place_in_tensor(const extents& shape, std::int64_t flat) {
  std::string text = "(";
  for (int d = 0; d < shape.rank; ++d) {
    append_text(text, {d == 0 ? "" : ", ", flat / stride_of(shape, d) % shape[d]});
  }
  return text + ")";
}

ESPALIER_INLINE void compare_replicas(world& where, const std::vector<const any_array*>& all,
                                      function_ref<std::string(int)> name_of, source_line line) {
  const int devices = where.mesh_value().devices();
  const auto count = all.size();
  if (devices == 1 || count == 0) return;
  std::string text;  // written by this process's first device
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    const named_operation named(communicator, "ESPALIER_CHECK=replicas", line);
    const int self = where.device(local);
    plain_vector<std::uint64_t> hashes(count * static_cast<std::size_t>(devices));
    const auto of = [&](int device) { return &hashes[count * static_cast<std::size_t>(device)]; };
    for (std::size_t k = 0; k < count; ++k) of(self)[k] = hash_of_shard(*all[k], local);
    for (int d = 0; d < devices; ++d) {
      communicator.broadcast(of(d), static_cast<std::int64_t>(count * sizeof(std::uint64_t)), d);
    }
    for (std::size_t k = 0; k < count; ++k) {
      const any_array& array = *all[k];
      const axis_list group = replica_axes(array);
      const auto first_of = [&](int device) { return array.mesh().member(device, group, 0); };
      int root = -1;
      int other = -1;
      std::string ranks;
      for (int d = 0; d < devices; ++d) {
        if (of(d)[k] == of(first_of(d))[k] || (root >= 0 && first_of(d) != root)) continue;
        if (root < 0) other = d;
        root = first_of(d);
        append_text(ranks, {ranks.empty() ? "" : ", ", d});
      }
      if (root < 0) continue;
      const std::vector<shared_buffer>& shards = array_memory::shards(array);
      const shared_buffer& mine = shards[static_cast<std::size_t>(local)];
      const std::int64_t element = size_of(array.type());
      const shared_buffer theirs(mine.bytes());
      if (self == root) std::memcpy(theirs.data(), mine.data(), static_cast<std::size_t>(mine.bytes()));
      communicator.broadcast(theirs.data(), mine.bytes(), root);
      // The first element that differs on the first other device: its place, and what it is.
      struct difference {
        std::int64_t flat = -1;
        char here[16]{};
        char there[16]{};
      } found;
      if (self == other) {
        for (shard_rows row(array, local); row.any && found.flat < 0; row.next()) {
          for (std::int64_t n = 0; n < row.length && found.flat < 0; ++n) {
            const auto size = static_cast<std::size_t>(element);
            const char* const here = static_cast<const char*>(mine.data()) + (row.at + n) * element;
            const char* const there = static_cast<const char*>(theirs.data()) + (row.at + n) * element;
            if (std::memcmp(here, there, size) == 0) continue;
            found.flat = row.flat + n;
            std::memcpy(&found.here[0], here, size);
            std::memcpy(&found.there[0], there, size);
          }
        }
      }
      communicator.broadcast(&found, sizeof(found), other);
      if (local == 0) {
        text = joined({"ESPALIER_CHECK=replicas: ", name_of(static_cast<int>(k)), ", ", array.text(),
                       ", differs between ranks that hold the same elements: on rank ", ranks, " it is not as on rank ",
                       root, ". The first element that differs is ", place_in_tensor(array.shape(), found.flat), ": ",
                       element_text(array.type(), &found.there[0]), " on rank ", root, ", ",
                       element_text(array.type(), &found.here[0]), " on rank ", other,
                       ". Fill arrays alike on all ranks, as nn::initialise does, or call ep::broadcast_from_root"});
      }
      return;
    }
  });
  if (!text.empty()) throw replica_error(text);
}

ESPALIER_INLINE void broadcast_replicas(world& where, const any_array& array, source_line line) {
  require_in_world(where, array, "broadcast_from_root: what it is given");
  const axis_list group = replica_axes(array);
  const mesh_shape& mesh = array.mesh();
  const int members = static_cast<int>(mesh.parts(group));
  if (members == 1) return;
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    const named_operation named(communicator, "broadcast_from_root", line);
    const shared_buffer& shard = array_memory::shards(array)[static_cast<std::size_t>(local)];
    const std::int64_t count = shard.bytes() / size_of(array.type());
    comm::transfer moves;
    moves.type = array.type();
    moves.channel = 0;
    moves.self = mesh.position(array.device(local), group);
    for (int k = 0; k < members; ++k) {
      moves.members.push_back(mesh.member(array.device(local), group, k));
      moves.outgoing.push_back(comm::contiguous_block(moves.self == 0 && k > 0 ? count : 0));
      moves.incoming.push_back(comm::contiguous_block(moves.self > 0 && k == 0 ? count : 0));
    }
    const shared_buffer received(moves.self == 0 ? 0 : shard.bytes());
    communicator.prepare(moves);
    communicator.exchange(moves, shard.data(), received.data());
    if (moves.self > 0) std::memcpy(shard.data(), received.data(), static_cast<std::size_t>(shard.bytes()));
  });
}

}  // namespace espalier::detail
