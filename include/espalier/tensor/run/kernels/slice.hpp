// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/slice.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

#include <cstdint>

namespace espalier::detail {

/// The loops that copy `count` rows of one dimension of a tensor: every `from_step`th one goes to every `to_step`th.
[[nodiscard]] constexpr run_nest row_nest(const extents& from, const extents& to, int along, std::int64_t from_step,
                                          std::int64_t to_step, std::int64_t count) {
  const std::int64_t inner = stride_of(to, along);
  run_nest nest;
  nest.append({to.product(0, along), from[along] * inner, to[along] * inner});
  nest.append({count, from_step * inner, to_step * inner});
  nest.append({inner, 1, 1});
  nest.close();
  return nest;
}

/// The loops that write `count` rows of one dimension, all from one element.
[[nodiscard]] constexpr run_nest fill_nest(const extents& to, int along, std::int64_t count) {
  const std::int64_t inner = stride_of(to, along);
  run_nest nest;
  nest.append({to.product(0, along), 0, to[along] * inner});
  nest.append({count * inner, 0, 1});
  nest.close();
  return nest;
}

template <class T> inline constexpr T zero_element{};

/// Rows of the operand that this device has and that go into its part of the result: row p of the operand is at
/// `start + step * p`, in whole tensors. A negative step turns their order around.
struct row_run {
  std::int64_t first = 0;  // in the operand's buffer
  std::int64_t count = 0;
  std::int64_t to = 0;  // where the first of them goes, in the result's buffer
};
[[nodiscard]] constexpr row_run common_rows(interval result, interval operand, std::int64_t start, std::int64_t step) {
  // Row p is needed if its place is in the result: with a window of one tap, p = (o - start) / step.
  const placed_window w{1, step < 0 ? -1 : 1, step < 0 ? -start : start, 1, step < 0 ? -step : step, 0, 0, 0, false};
  const interval wanted = needed(w, result, operand.start + operand.size);
  const std::int64_t first = larger_of(wanted.start, operand.start);
  const std::int64_t count = wanted.start + wanted.size - first;
  if (count <= 0) return {};
  return {first - operand.start, count, start + step * first - result.start};
}

/// Copies rows of operand `K` to every `Step`th row of the result. `Along` is the dimension that they are rows of.
template <kernels::kernel_key Key, int K, int Along, std::int64_t Step>
void copy_rows(const row_run& rows, const void* operand, void* result) {
  using element = storage_t<Key.type>;
  constexpr std::int64_t inner = stride_of(Key.shape, Along);
  constexpr std::int64_t all = Key.operand_shape[K][Along];
  const auto* const from = static_cast<const element*>(operand) + rows.first * inner;
  auto* const to = static_cast<element*>(result) + rows.to * inner;
  if (rows.count == all) {
    copy_by<element, row_nest(Key.operand_shape[K], Key.shape, Along, 1, Step, all)>(from, to);
  } else if (rows.count > 0) {
    copy_by<element>(row_nest(Key.operand_shape[K], Key.shape, Along, 1, Step, rows.count), from, to);
  }
}

/// The same of an operand whose shape only the call says.
template <kernels::kernel_key Key, int Along>
void copy_rows(const row_run& rows, const extents& shape, const void* operand, void* result) {
  using element = storage_t<Key.type>;
  constexpr std::int64_t inner = stride_of(Key.shape, Along);
  if (rows.count <= 0) return;
  copy_by<element>(row_nest(shape, Key.shape, Along, 1, 1, rows.count),
                   static_cast<const element*>(operand) + rows.first * inner,
                   static_cast<element*>(result) + rows.to * inner);
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::slice> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr slice_attributes from_whole = attributes_of<slice_attributes>(Key);
    constexpr int along = from_whole.dim;
    constexpr std::int64_t step = from_whole.step;
    constexpr std::int64_t all = Key.shape[along];
    const interval mine = call.boxes->result.dim[along];
    const std::int64_t first = from_whole.start + step * mine.start - call.boxes->operand[0].dim[along].start;
    const auto* const from = static_cast<const element*>(call.operand[0]) + first * stride_of(Key.shape, along);
    if (mine.size == all) {
      detail::copy_by<element, detail::row_nest(Key.operand_shape[0], Key.shape, along, step, 1, all)>(from,
                                                                                                       call.result);
    } else if (mine.size > 0) {
      detail::copy_by<element>(detail::row_nest(Key.operand_shape[0], Key.shape, along, step, 1, mine.size), from,
                               static_cast<element*>(call.result));
    }
  }
};

template <> struct kernel<&ops::pad> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr slice_attributes in_whole = attributes_of<slice_attributes>(Key);
    constexpr int along = in_whole.dim;
    constexpr std::int64_t step = in_whole.step;
    const detail::row_run rows =
        detail::common_rows(call.boxes->result.dim[along], call.boxes->operand[0].dim[along], in_whole.start, step);
    auto* const to = static_cast<element*>(call.result);
    if constexpr (step == 1) {
      zero_rows<element, Key.shape, along>(to, 0, rows.to);
      zero_rows<element, Key.shape, along>(to, rows.to + rows.count, Key.shape[along]);
    } else {
      detail::fill_all(Key.shape.elements(), to, element{});
    }
    detail::copy_rows<Key, 0, along, step>(rows, call.operand[0], call.result);
  }

 private:
  template <class T, extents Shape, int Along> static void zero_rows(T* to, std::int64_t first, std::int64_t last) {
    if (last <= first) return;
    detail::copy_by<T>(detail::fill_nest(Shape, Along, last - first), &detail::zero_element<T>,
                       to + first * stride_of(Shape, Along));
  }
};

}  // namespace espalier::kernels
