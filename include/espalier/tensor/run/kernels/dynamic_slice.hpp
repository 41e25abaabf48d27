// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/dynamic_slice.hpp>
#include <espalier/tensor/run/kernels/slice.hpp>

#include <cstdint>

namespace espalier::detail {

/// The start that operand K gives, of a slice of `size` elements.
template <kernels::kernel_key Key, int K>
[[nodiscard]] std::int64_t start_of(const kernels::kernel_call& call, std::int64_t extent, std::int64_t size) {
  using index = storage_t<Key.operand_type[K]>;
  return clamped_start(static_cast<std::int64_t>(*static_cast<const index*>(call.operand[K])), extent, size);
}

/// Copies the rows that a device owns of a slice, and fills the others.
template <class T>
void cut_rows(std::int64_t outer, std::int64_t held, std::int64_t rows, std::int64_t inner, const owned_rows& mine,
              const T* from, T* to) {
  const T other = element_cast<T>(not_owned(dtype_of<T>));
  // A range of the result's rows may begin and end within a slab, the rows that belong together.
  parallel_ranges(outer * rows, outer * rows * inner, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t slab = at / rows;
      const std::int64_t first = at % rows;
      const std::int64_t last = smaller_of(rows, first + end - at);
      const std::int64_t copied = clamped(mine.first, first, last);
      const std::int64_t after = clamped(mine.first + mine.count, copied, last);
      T* const result = to + slab * rows * inner;
      fill_run(result + first * inner, (copied - first) * inner, other);
      copy_run(result + copied * inner, from + (slab * held + mine.from + copied - mine.first) * inner,
               (after - copied) * inner, 1);
      fill_run(result + after * inner, (last - after) * inner, other);
      at += last - first;
    }
  });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::dynamic_slice> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr dynamic_slice_attributes cut = attributes_of<dynamic_slice_attributes>(Key);
    constexpr int along = cut.dim;
    const std::int64_t start = detail::start_of<Key, 1>(call, cut.extent, cut.size);
    const detail::owned_rows mine =
        detail::rows_of_slice(start, call.boxes->result.dim[along], call.boxes->operand[0].dim[along]);
    detail::cut_rows(Key.shape.product(0, along), Key.operand_shape[0][along], Key.shape[along],
                     stride_of(Key.shape, along), mine, static_cast<const element*>(call.operand[0]),
                     static_cast<element*>(call.result));
  }
};

/// The result may be in the buffer of operand 0: then only the slice is written.
template <> struct kernel<&ops::dynamic_update_slice> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr extents update = Key.operand_shape[1];
    detail::copy_all<element>(Key.shape.elements(), call.operand[0], call.result);
    detail::owned_rows mine[max_rank]{};
    for (int d = 0; d < update.rank; ++d) mine[d] = {0, update[d], 0};
    place<Key, 2>(call, mine);
    if constexpr (Key.operand_count > 3) place<Key, 3>(call, mine);
    // Here the result is the larger one: `first` counts in it, `from` in the update.
    const auto* from = static_cast<const element*>(call.operand[1]);
    auto* to = static_cast<element*>(call.result);
    detail::run_nest nest;
    for (int d = 0; d < update.rank; ++d) {
      if (mine[d].count <= 0) return;
      from += mine[d].first * stride_of(update, d);
      to += mine[d].from * stride_of(Key.shape, d);
      nest.append({mine[d].count, stride_of(update, d), stride_of(Key.shape, d)});
    }
    nest.close();
    detail::copy_by<element>(nest, from, to);
  }

 private:
  template <kernel_key Key, int K> static void place(const kernel_call& call, detail::owned_rows* mine) {
    constexpr auto placed = attributes_of<dynamic_update_slice_attributes>(Key);
    constexpr int d = placed.dim_of(K);
    constexpr std::int64_t size = Key.operand_shape[1][d];
    const std::int64_t start = detail::start_of<Key, K>(call, placed.extent_of(K), size);
    mine[d] = detail::rows_of_slice(start, {0, size}, call.boxes->result.dim[d]);
  }
};

}  // namespace espalier::kernels
