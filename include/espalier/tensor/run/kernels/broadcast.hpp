// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/broadcast.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

#include <cstdint>

namespace espalier::detail {

[[nodiscard]] constexpr run_nest broadcast_nest(const extents& from, const extents& to, axis_list target) {
  std::int64_t stride[max_rank]{};
  for (int d = 0; d < from.rank; ++d) {
    if (from[d] != 1) stride[target[d]] = stride_of(from, d);
  }
  run_nest nest;
  for (int d = 0; d < to.rank; ++d) nest.append({to[d], stride[d], stride_of(to, d)});
  nest.close();
  return nest;
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::broadcast> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    constexpr detail::run_nest nest =
        detail::broadcast_nest(Key.operand_shape[0], Key.shape, attributes_of<broadcast_attributes>(Key).target);
    detail::copy_by<storage_t<Key.type>, nest>(call.operand[0], call.result);
  }
};

/// Inside a group an operand's own width and row distance say where it repeats.
template <> struct block_kernel<&ops::broadcast> : detail::copy_block {};

}  // namespace espalier::kernels
