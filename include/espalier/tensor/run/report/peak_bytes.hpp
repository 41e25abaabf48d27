// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/partition/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::detail {

/// Bytes that a device needs to run a partitioned graph: arguments, results and arena, as
/// `program::peak_bytes_per_device` says of a compiled one.
[[nodiscard]] inline std::int64_t peak_bytes_of(const mesh_shape& mesh, graph_view code) {
  const schedule order = make_schedule(code);
  const memory_outline outline = outline_memory(mesh, code, order);
  const int count = outline.buffers.size();
  std::vector<int> sorted(static_cast<std::size_t>(count));
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(count));
  sort_buffers(outline.buffers.data(), count, sorted.data());
  std::int64_t bytes =
      place_buffers(outline.buffers.data(), sorted.data(), 0, count, order.launches.size(), offsets.data());
  for (int id = 0; id < code.size; ++id) {
    const structure part = structure_of(code[id]);
    if (part == structure::argument || (part == structure::result && code[id].operand_count == 1))
      bytes += bytes_of(code[id]);
  }
  return bytes;
}

}  // namespace espalier::detail
