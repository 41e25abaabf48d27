// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/run/kernels/constant.hpp>

#include <cstdint>

namespace espalier::detail {

/// start, start + 1, ...; an index fits 32 bits, which every vector unit converts.
template <class T> ESPALIER_ALWAYS_INLINE void count_run(T* to, std::int64_t count, std::int64_t start) {
  const auto from = static_cast<std::int32_t>(start);
  vector_loop(count, [=](std::int64_t i) { to[i] = element_cast<T>(from + static_cast<std::int32_t>(i)); });
}

template <class T>
void count_along(std::int64_t outer, std::int64_t size, std::int64_t inner, std::int64_t start, T* to) {
  parallel_ranges(outer * size, outer * size * inner, [=](std::int64_t first, std::int64_t last) {
    if (inner == 1) {
      for (std::int64_t i = first; i < last;) {
        const std::int64_t at = i % size;
        const std::int64_t count = smaller_of(size - at, last - i);
        count_run(to + i, count, start + at);
        i += count;
      }
    } else {
      for (std::int64_t i = first; i < last; ++i) {
        fill_run(to + i * inner, inner, element_cast<T>(static_cast<std::int32_t>(start + i % size)));
      }
    }
  });
}

/// Rows whose value follows from their own number: `repeat` rows in turn have the same one, and after `size` values
/// it starts again.
template <class T, std::int64_t Columns>
void count_rows(const kernels::block_call& call, std::int64_t start, std::int64_t repeat, std::int64_t size) {
  auto* to = static_cast<T*>(call.result.data);
  const std::int64_t columns = columns_of_block<Columns>(call);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const std::int64_t at = (call.first_row + r) / repeat % size;
    fill_run(to + r * call.result.row, columns, element_cast<T>(static_cast<std::int32_t>(start + at)));
  }
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::iota> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    constexpr int along = attributes_of<index_attributes>(Key).dim;
    detail::count_along(Key.shape.product(0, along), Key.shape[along], stride_of(Key.shape, along),
                        call.boxes->result.dim[along].start, static_cast<storage_t<Key.type>*>(call.result));
  }
};

/// See `fused_index_attributes`.
template <> struct block_kernel<&ops::iota> {
  template <block_key Key> static void run(const block_call& call) {
    using element = storage_t<Key.type>;
    constexpr auto index = attributes_of<fused_index_attributes>(Key);
    const std::int64_t start = call.boxes->result.dim[index.dim].start;
    if constexpr (index.along_columns) {
      static_assert(Key.result_wide || Key.columns == 1, "an iota along the columns has one element per column");
      auto* to = static_cast<element*>(call.result.data);
      const std::int64_t columns = detail::columns_of_block<Key.columns>(call);
      for (std::int64_t r = 0; r < call.rows; ++r) {
        detail::count_run(to + r * call.result.row, columns, start + call.first_column);
      }
    } else {
      detail::count_rows<element, Key.result_wide ? Key.columns : 1>(call, start, index.repeat, index.size);
    }
  }
};

}  // namespace espalier::kernels
