// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/placement_traffic.hpp>
#include <espalier/program/program.hpp>

#include <cstdint>

namespace espalier {

/// What a program communicates per run along which axes of its mesh, for `comm::propose_placement`. Permutations and
/// exchanges count as all-to-alls of the same bytes.
template <class Program> [[nodiscard]] comm::mesh_traffic traffic_of() {
  comm::mesh_traffic all;
  const mesh_shape mesh = Program::mesh::value;
  for (int a = 0; a < mesh.rank; ++a) all.sizes.push_back(mesh.size[a]);
  const graph_view code = Program::code;
  for (int id = 0; id < code.size; ++id) {
    const int kind = detail::collective_index(code[id].op);
    if (kind < 0) continue;
    comm::axis_traffic item;
    switch (static_cast<collective>(kind)) {
      case collective::all_reduce: item.what = comm::operation::all_reduce; break;
      case collective::all_gather: item.what = comm::operation::all_gather; break;
      case collective::reduce_scatter: item.what = comm::operation::reduce_scatter; break;
      case collective::all_to_all:
      case collective::collective_permute:
      case collective::exchange: item.what = comm::operation::all_to_all; break;
      case collective::local_slice: continue;
    }
    item.axes = static_cast<unsigned>(code[id].attribute[0]);
    item.calls = detail::repetitions(code, id);
    item.bytes = static_cast<double>(item.calls) * static_cast<double>(Program::sent_bytes_of(id));
    bool known = false;
    for (comm::axis_traffic& other : all.items) {
      if (other.what != item.what || other.axes != item.axes) continue;
      other.calls += item.calls;
      other.bytes += item.bytes;
      known = true;
    }
    if (!known) all.items.push_back(item);
  }
  return all;
}

}  // namespace espalier
