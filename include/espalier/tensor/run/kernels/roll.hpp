// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/roll.hpp>
#include <espalier/tensor/run/kernels/slice.hpp>

#include <cstdint>

namespace espalier::kernels {

template <> struct kernel<&ops::roll> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    constexpr roll_attributes turned = attributes_of<roll_attributes>(Key);
    constexpr int along = turned.dim;
    const interval mine = call.boxes->result.dim[along];
    const std::int64_t extent = call.boxes->whole[along];
    const std::int64_t first = detail::first_rolled(mine, call.boxes->operand[0].dim[along], turned.by, extent);
    const std::int64_t before_end = espalier::detail::smaller_of(mine.size, extent - first);
    copy_rows<Key, along>(call, {first, before_end, 0});
    copy_rows<Key, along>(call, {0, mine.size - before_end, before_end});
  }

 private:
  template <kernel_key Key, int Along> static void copy_rows(const kernel_call& call, const detail::row_run& rows) {
    using element = storage_t<Key.type>;
    constexpr std::int64_t inner = stride_of(Key.shape, Along);
    if (rows.count <= 0) return;
    detail::copy_by<element>(detail::row_nest(Key.operand_shape[0], Key.shape, Along, 1, 1, rows.count),
                             static_cast<const element*>(call.operand[0]) + rows.first * inner,
                             static_cast<element*>(call.result) + rows.to * inner);
  }
};

}  // namespace espalier::kernels
