// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/reshape.hpp>
#include <espalier/ops/slice.hpp>

#include <cstdint>

namespace espalier::detail {

/// The loops that read every `step`th row of one dimension of a tensor, from the first.
[[nodiscard]] constexpr run_nest slice_nest(const extents& from, const extents& to, int along, std::int64_t step) {
  const std::int64_t inner = stride_of(to, along);
  run_nest nest;
  nest.append({to.product(0, along), from[along] * inner, to[along] * inner});
  nest.append({to[along], step * inner, inner});
  nest.append({inner, 1, 1});
  nest.close();
  return nest;
}

/// The loops that write them.
[[nodiscard]] constexpr run_nest pad_nest(const extents& from, const extents& to, int along, std::int64_t step) {
  const std::int64_t inner = stride_of(to, along);
  run_nest nest;
  nest.append({to.product(0, along), from[along] * inner, to[along] * inner});
  nest.append({from[along], inner, step * inner});
  nest.append({inner, 1, 1});
  nest.close();
  return nest;
}

/// The loops that write rows [first, last) of one dimension, all from one element.
[[nodiscard]] constexpr run_nest fill_nest(const extents& to, int along, std::int64_t count) {
  const std::int64_t inner = stride_of(to, along);
  run_nest nest;
  nest.append({to.product(0, along), 0, to[along] * inner});
  nest.append({count * inner, 0, 1});
  nest.close();
  return nest;
}

template <class T> inline constexpr T zero_element{};

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::slice> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr int along = static_cast<int>(Key.attribute[0]);
    constexpr detail::run_nest nest = detail::slice_nest(Key.operand_shape[0], Key.shape, along, Key.attribute[2]);
    const auto* from = static_cast<const element*>(call.operand[0]) + Key.attribute[1] * stride_of(Key.shape, along);
    detail::copy_by<element, nest>(from, call.result);
  }
};

template <> struct kernel<&ops::pad> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr int along = static_cast<int>(Key.attribute[0]);
    constexpr std::int64_t inner = stride_of(Key.shape, along);
    constexpr std::int64_t start = Key.attribute[1];
    constexpr std::int64_t step = Key.attribute[2];
    constexpr detail::run_nest nest = detail::pad_nest(Key.operand_shape[0], Key.shape, along, step);
    auto* to = static_cast<element*>(call.result);
    if constexpr (step == 1) {
      constexpr std::int64_t end = start + Key.operand_shape[0][along];
      zero_rows<element, detail::fill_nest(Key.shape, along, start), start>(to);
      zero_rows<element, detail::fill_nest(Key.shape, along, Key.shape[along] - end), Key.shape[along] - end>(
          to + end * inner);
    } else {
      detail::fill_all(Key.shape.elements(), to, element{});
    }
    detail::copy_by<element, nest>(call.operand[0], to + start * inner);
  }

 private:
  template <class T, detail::run_nest Nest, std::int64_t Count> static void zero_rows(T* to) {
    if constexpr (Count > 0) detail::copy_nest<T, 0>(Nest, &detail::zero_element<T>, to);
  }
};

}  // namespace espalier::kernels
