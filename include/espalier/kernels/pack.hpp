// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/reshape.hpp>
#include <espalier/partition/merge_collectives.hpp>

#include <cstdint>

namespace espalier::kernels {

template <> struct kernel<&ops::pack> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    auto* to = static_cast<element*>(call.result);
    for (int k = 0; k < Key.operand_count; ++k) {
      const std::int64_t count = call.shape_of(Key, k).elements();
      detail::copy_all<element>(count, call.operand_at(k), to);
      to += count;
    }
  }
};

template <> struct kernel<&ops::unpack> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    constexpr std::int64_t offset = attributes_of<unpack_attributes>(Key).offset;
    detail::copy_all<element>(Key.shape.elements(), static_cast<const element*>(call.operand[0]) + offset, call.result);
  }
};

}  // namespace espalier::kernels
