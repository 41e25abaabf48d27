// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/slice.hpp>

#include "../ops/curvature.hpp"

#include <cstdint>

template <> struct espalier::kernels::kernel<&mine::curvature_op> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& /*key*/) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    using computed = computed_t<element>;  // float for bf16
    constexpr std::int64_t columns = stride_of(Key.shape, 0);
    constexpr std::int64_t distance = attributes_of<mine::curvature_attributes>(Key).distance;
    const interval rows = call.boxes->result.dim[0];
    const interval held = call.boxes->operand[0].dim[0];
    const auto* const from = static_cast<const element*>(call.operand[0]);
    auto* const to = static_cast<element*>(call.result);
    detail::parallel_ranges(rows.size, rows.size * columns, [=](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t at = rows.start + row - held.start;
        const element* const here = from + at * columns;
        const bool has_above = at >= distance;
        const bool has_below = at + distance < held.size;
        for (std::int64_t i = 0; i < columns; ++i) {
          const computed above = has_above ? static_cast<computed>(here[i - distance * columns]) : computed{0};
          const computed below = has_below ? static_cast<computed>(here[i + distance * columns]) : computed{0};
          to[row * columns + i] = detail::element_cast<element>(above - 2 * static_cast<computed>(here[i]) + below);
        }
      }
    });
  }
};
