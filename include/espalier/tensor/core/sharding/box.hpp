// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <cstdint>

namespace espalier {

/// The part of a tensor that one device holds, in elements of the whole tensor.
struct tensor_box {
  interval dim[max_rank]{};
};

namespace detail {

using espalier::tensor_box;

[[nodiscard]] constexpr tensor_box box_of(const mesh_shape& mesh, const extents& shape, const sharding& placement,
                                          int device) {
  tensor_box result;
  for (int d = 0; d < shape.rank; ++d) {
    // g++ 12 cannot copy an empty list out of a constexpr sharding ("modification of ... is not constant").
    const bool whole = placement.dim[d].empty();
    result.dim[d] = whole ? interval{0, shape[d]} : local_interval(mesh, shape[d], placement.dim[d], device);
  }
  return result;
}

/// A device that has the first shard, which is the largest: device 0, unless the mesh counts in another order too.
[[nodiscard]] constexpr int holder_of_first(const mesh_shape& mesh, const sharding& placement) {
  int device = 0;
  for (int d = 0; mesh.ordered != 0 && d < placement.rank; ++d) device = mesh.member(device, placement.dim[d], 0);
  return device;
}

/// All of a tensor.
[[nodiscard]] constexpr tensor_box whole_box(const extents& shape) {
  tensor_box result;
  for (int d = 0; d < shape.rank; ++d) result.dim[d] = {0, shape[d]};
  return result;
}

[[nodiscard]] constexpr std::int64_t elements_of(const tensor_box& box, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= box.dim[d].size;
  return count;
}

/// @post the number of elements that are in both boxes
[[nodiscard]] constexpr std::int64_t common_elements(const tensor_box& a, const tensor_box& b, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    const std::int64_t first = larger_of(a.dim[d].start, b.dim[d].start);
    const std::int64_t last = smaller_of(a.dim[d].start + a.dim[d].size, b.dim[d].start + b.dim[d].size);
    count *= larger_of<std::int64_t>(last - first, 0);
  }
  return count;
}

}  // namespace detail

}  // namespace espalier
