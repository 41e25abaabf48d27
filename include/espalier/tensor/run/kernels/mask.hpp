// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

#include <cstdint>

namespace espalier::detail {

/// Copies the real rows of [outer, rows, inner] and fills the others. In place, only the others are touched.
template <class T>
void mask_rows(std::int64_t outer, std::int64_t rows, std::int64_t inner, std::int64_t real, T value, const T* from,
               T* to) {
  parallel_ranges(outer * rows, outer * rows * inner, [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last;) {
      const std::int64_t row = i % rows;
      const bool is_real = row < real;
      const std::int64_t count = smaller_of((is_real ? real : rows) - row, last - i);
      if (!is_real) {
        fill_run(to + i * inner, count * inner, value);
      } else if (to != from) {
        copy_run(to + i * inner, from + i * inner, count * inner, 1);
      }
      i += count;
    }
  });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::mask> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr int along = attributes_of<mask_attributes>(Key).dim;
    detail::mask_rows(Key.shape.product(0, along), Key.shape[along], stride_of(Key.shape, along),
                      call.boxes->result.dim[along].size, detail::element_of_scalar<element>(call.scalar),
                      static_cast<const element*>(call.operand[0]), static_cast<element*>(call.result));
  }
};

}  // namespace espalier::kernels
