// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How partial sums of arrays are carried out: the compiled half of reduce_terms.hpp.
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/comm/layout.hpp>
#include <espalier/tensor/run/execute/reduce_terms.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::detail {

ESPALIER_INLINE std::atomic<terms_reducer>& reducer_of_terms() {
  static std::atomic<terms_reducer> reducer{nullptr};
  return reducer;
}

ESPALIER_INLINE void expect_partial_sums() { reducer_of_terms().store(&reduce_terms); }

ESPALIER_INLINE void reduce_terms(world& where, any_array& array, term_adder add, source_line line) {
  const sharding placement = array.placed().placement;
  require_in_world(where, array, "an array of pending sums");
  const std::vector<shared_buffer> terms = array_memory::shards(array);
  sharding summed = placement;
  summed.unreduced = 0;
  array_memory::place(array, where, array.parts(), summed);
  array_memory::handle(array).own_memory();
  std::vector<shared_buffer>& sums = array_memory::shards(array);
  for (const shared_buffer& term : terms) sums.emplace_back(term.bytes());
  const mesh_shape& mesh = array.mesh();
  const axis_list group = list_of(placement.unreduced);
  const std::int64_t element = size_of(array.type());
  where.on_devices([&](int local, comm::any_communicator& communicator) {
    const named_operation named(communicator, "the sum of an array's terms", line);
    const auto at = static_cast<std::size_t>(local);
    const int device = array.device(local);
    const int members = static_cast<int>(mesh.parts(group));
    const std::int64_t count = terms[at].bytes() / element;
    const std::int64_t share = (count + members - 1) / members;
    const auto begin = [&](int k) { return smaller_of(count, k * share); };
    const auto size = [&](int k) { return begin(k + 1) - begin(k); };
    comm::transfer scatter;
    scatter.type = array.type();
    scatter.channel = 0;
    scatter.self = mesh.position(device, group);
    for (int k = 0; k < members; ++k) scatter.members.push_back(mesh.member(device, group, k));
    comm::transfer collect = scatter;
    const std::int64_t mine = size(scatter.self);
    for (int k = 0; k < members; ++k) {
      scatter.outgoing.push_back(comm::contiguous_block(size(k), begin(k)));
      scatter.incoming.push_back(comm::contiguous_block(mine, begin(scatter.self), k * mine));
      collect.outgoing.push_back(comm::contiguous_block(mine));
      collect.incoming.push_back(comm::contiguous_block(size(k), 0, begin(k)));
    }
    const shared_buffer received(members * mine * element);
    const shared_buffer sum(mine * element);
    communicator.prepare(scatter);
    communicator.exchange(scatter, terms[at].data(), received.data());
    add(sum.data(), received.data(), mine, members);
    communicator.prepare(collect);
    communicator.exchange(collect, sum.data(), sums[at].data());
  });
}

}  // namespace espalier::detail
