// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/tensor/core/sharding/box.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::pipeline::detail {

/// The shard of a tensor that one device of a replica holds: a box of the whole tensor, and its strides in the device's
/// memory, in elements.
struct tensor_shard {
  std::vector<std::int64_t> starts, sizes, strides;
  bool is_first = true;  ///< of the devices that hold the same box

  [[nodiscard]] bool is_empty() const {
    for (const std::int64_t size : sizes)
      if (size == 0) return true;
    return false;
  }
};

/// The extents of the whole tensor.
[[nodiscard]] inline std::vector<std::int64_t> whole_shape(const tensor_facts& tensor) {
  if (!tensor.whole) return tensor.shape;
  return {tensor.whole->shape.size, tensor.whole->shape.size + tensor.whole->shape.rank};
}

[[nodiscard]] inline tensor_shard shard_of_tensor(const mesh_shape& mesh, const tensor_facts& tensor, int device) {
  tensor_shard shard;
  shard.sizes = tensor.shape;
  shard.starts.assign(tensor.shape.size(), 0);
  shard.strides.assign(tensor.shape.size(), 1);
  for (std::size_t d = tensor.shape.size(); d-- > 1;) shard.strides[d - 1] = shard.strides[d] * tensor.shape[d];
  const axis_mask splits = tensor.whole ? tensor.whole->placement.tiled() : axis_mask{0};
  for (int axis = 0; axis < mesh.rank; ++axis)
    if ((splits >> static_cast<unsigned>(axis) & 1U) == 0 && mesh.coordinate(device, axis) != 0) shard.is_first = false;
  if (!tensor.whole) return shard;
  const tensor_box box = espalier::detail::box_of(mesh, tensor.whole->shape, tensor.whole->placement, device);
  for (std::size_t d = 0; d < shard.sizes.size(); ++d) {
    shard.starts[d] = box.dim[d].start;
    shard.sizes[d] = box.dim[d].size;
  }
  return shard;
}

/// Calls f(element of the whole tensor, element of the shard's memory) for all elements of a shard.
template <class F>
void for_each_element(const tensor_shard& shard, const std::vector<std::int64_t>& whole, const F& f) {
  if (shard.is_empty()) return;
  std::vector<std::int64_t> index(whole.size(), 0);
  while (true) {
    std::int64_t global = 0;
    std::int64_t local = 0;
    for (std::size_t d = 0; d < whole.size(); ++d) {
      global = global * whole[d] + shard.starts[d] + index[d];
      local += index[d] * shard.strides[d];
    }
    f(global, local);
    std::size_t d = whole.size();
    while (d > 0 && ++index[d - 1] == shard.sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace espalier::pipeline::detail
