// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/top_k.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>

namespace espalier::detail {

/// Calls `f(from, to)` for the first elements of all rows along a dimension of a tensor of `Shape` and of one that has
/// `other` elements there: shared out to threads, whose work is that of `elements` elements.
template <extents Shape, int Along, class F>
void for_each_row_shared(std::int64_t other, std::int64_t elements, const F& f) {
  constexpr std::int64_t step = stride_of(Shape, Along);
  constexpr std::int64_t rows = Shape.product(0, Along) * step;
  parallel_ranges(rows, elements, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::int64_t outer = row / step;
      const std::int64_t inner = row % step;
      f(outer * other * step + inner, outer * Shape[Along] * step + inner);
    }
  });
}

/// Calls `f(elements, values, places, from)` for all rows of a call that finds the largest elements: with where those
/// of a row are and go, and the place of the first one in the operand.
template <kernels::kernel_key Key, class F> void for_each_row_of_top(const kernels::kernel_call& call, const F& f) {
  using element = storage_t<Key.type>;
  constexpr int along = attributes_of<along_attributes>(Key).dim;
  const auto* const x = static_cast<const element*>(call.operand[0]);
  auto* const values = static_cast<element*>(call.result);
  auto* const places = static_cast<std::int32_t*>(call.further_results[0].data);
  for_each_row_shared<Key.shape, along>(
      Key.operand_shape[0][along], Key.operand_shape[0].elements(),
      [&](std::int64_t from, std::int64_t to) { f(x + from, values + to, places + to, from); });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::top_k> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    constexpr int along = attributes_of<along_attributes>(Key).dim;
    detail::for_each_row_of_top<Key>(call, [&](const auto* x, auto* values, auto* places, std::int64_t from) {
      const std::int32_t* given = nullptr;
      if constexpr (Key.operand_count > 1) given = static_cast<const std::int32_t*>(call.operand[1]) + from;
      static_cast<void>(detail::select_top<computed_t<storage_t<Key.type>>>(
          x, Key.operand_shape[0][along], stride_of(Key.shape, along), Key.shape[along], values, places, 0, given));
    });
  }
};

template <> struct kernel<&ops::part_of_top_k> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    constexpr int along = attributes_of<along_attributes>(Key).dim;
    const auto& part = call.boxes->operand[0].dim[along];
    detail::for_each_row_of_top<Key>(call, [&](const auto* x, auto* values, auto* places, std::int64_t /*from*/) {
      detail::select_top_of_part<computed_t<storage_t<Key.type>>>(x, part.size, stride_of(Key.shape, along),
                                                                  Key.shape[along], values, places, part.start);
    });
  }
};

template <> struct kernel<&ops::take_along> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr int along = attributes_of<along_attributes>(Key).dim;
    constexpr std::int64_t size = Key.operand_shape[0][along];
    constexpr std::int64_t step = stride_of(Key.shape, along);
    const auto* const x = static_cast<const element*>(call.operand[0]);
    const auto* const places = static_cast<const std::int32_t*>(call.operand[1]);
    auto* const result = static_cast<element*>(call.result);
    detail::for_each_row_shared<Key.shape, along>(size, Key.shape.elements(), [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t j = 0; j < Key.shape[along]; ++j) {
        const std::int64_t at = places[to + j * step];
        result[to + j * step] = at >= 0 && at < size ? x[from + at * step] : element{};
      }
    });
  }
};

template <> struct kernel<&ops::put_along> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr int along = attributes_of<along_attributes>(Key).dim;
    constexpr std::int64_t count = Key.operand_shape[0][along];
    constexpr std::int64_t size = Key.shape[along];
    constexpr std::int64_t step = stride_of(Key.shape, along);
    const auto* const x = static_cast<const element*>(call.operand[0]);
    const auto* const places = static_cast<const std::int32_t*>(call.operand[1]);
    auto* const result = static_cast<element*>(call.result);
    detail::for_each_row_shared<Key.shape, along>(count, Key.shape.elements(), [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t j = 0; j < size; ++j) result[to + j * step] = element{};
      for (std::int64_t j = 0; j < count; ++j) {
        const std::int64_t at = places[from + j * step];
        if (at >= 0 && at < size) result[to + at * step] = x[from + j * step];
      }
    });
  }
};

}  // namespace espalier::kernels
