// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/comm/placement_traffic.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/core/program/sent_bytes.hpp>
#include <espalier/tensor/core/program/without_rules.hpp>

namespace espalier {

/// Returns the bytes that a program communicates per run along each set of axes of its mesh, for
/// `comm::propose_placement`.
template <class Program> [[nodiscard]] comm::mesh_traffic traffic_of() {
  comm::mesh_traffic all;
  const mesh_shape mesh = Program::device_mesh::value;
  for (int a = 0; a < mesh.rank; ++a) all.sizes.push_back(mesh.size[a]);
  const graph_view code = detail::without_rules<Program::code>::value;
  for (int id = 0; id < code.size; ++id) {
    if (!starts_collective(code[id])) continue;
    comm::axis_traffic item;
    item.kind = static_cast<collective>(detail::collective_index(code[id].op));
    item.axes = attributes_of<collective_attributes>(code[id]).axes;
    item.calls = detail::repetitions(code, id);
    item.bytes = static_cast<double>(item.calls) * static_cast<double>(detail::sent_bytes_table<Program>::value.of[id]);
    bool known = false;
    for (comm::axis_traffic& other : all.items) {
      if (other.kind != item.kind || other.axes != item.axes) continue;
      other.calls += item.calls;
      other.bytes += item.bytes;
      known = true;
    }
    if (!known) all.items.push_back(item);
  }
  return all;
}

}  // namespace espalier
