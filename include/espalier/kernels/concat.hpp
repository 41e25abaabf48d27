// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/slice.hpp>
#include <espalier/ops/concat.hpp>

#include <cstdint>

namespace espalier::kernels {

template <> struct kernel<&ops::concat> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) { join<Key, 0, 0>(call); }

 private:
  template <kernel_key Key, int K, std::int64_t Start> static void join(const kernel_call& call) {
    if constexpr (K < Key.operand_count) {
      using element = storage_t<Key.type>;
      constexpr int along = static_cast<int>(Key.attribute[0]);
      constexpr std::int64_t inner = stride_of(Key.shape, along);
      constexpr detail::run_nest nest = detail::pad_nest(Key.operand_shape[K], Key.shape, along, 1);
      detail::copy_by<element, nest>(call.operand[K], static_cast<element*>(call.result) + Start * inner);
      join<Key, K + 1, Start + Key.operand_shape[K][along]>(call);
    }
  }
};

}  // namespace espalier::kernels
