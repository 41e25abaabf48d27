// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/slice.hpp>
#include <espalier/ops/concat.hpp>

#include <cstdint>

namespace espalier::kernels {

template <> struct kernel<&ops::concat> {
  static constexpr std::int64_t scratch_bytes(const kernel_key&) { return 0; }
  template <kernel_key Key> static void run(const kernel_call& call) { join<Key, 0>(call); }

 private:
  template <kernel_key Key, int K> static void join(const kernel_call& call) {
    if constexpr (K < Key.operand_count) {
      constexpr concat_attributes places = attributes_of<concat_attributes>(Key);
      constexpr int along = places.dim;
      const detail::row_run rows =
          detail::common_rows(call.boxes->result.dim[along], call.boxes->operand[K].dim[along], places.start(K), 1);
      detail::copy_rows<Key, K, along, 1>(rows, call.operand[K], call.result);
      join<Key, K + 1>(call);
    }
  }
};

}  // namespace espalier::kernels
