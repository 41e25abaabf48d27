// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/concat.hpp>
#include <espalier/tensor/run/kernels/slice.hpp>

#include <cstdint>

namespace espalier::kernels {

template <> struct kernel<&ops::concat> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    join<Key, 0>(call);
    for (int k = inline_operands; k < Key.operand_count; ++k) {
      detail::copy_rows<Key, along<Key>>(rows_of<Key>(call, k), call.shape_of(Key, k), call.operand_at(k), call.result);
    }
  }

 private:
  template <kernel_key Key> static constexpr int along = attributes_of<concat_attributes>(Key).dim;

  template <kernel_key Key> [[nodiscard]] static detail::row_run rows_of(const kernel_call& call, int k) {
    const std::int64_t start = attributes_of<concat_attributes>(Key).start(call.windows, k);
    return detail::common_rows(call.boxes->result.dim[along<Key>], call.boxes->operand[k].dim[along<Key>], start, 1);
  }
  /// Those whose shapes are known here.
  template <kernel_key Key, int K> static void join(const kernel_call& call) {
    if constexpr (K < Key.operand_count && K < inline_operands) {
      detail::copy_rows<Key, K, along<Key>, 1>(rows_of<Key>(call, K), call.operand[K], call.result);
      join<Key, K + 1>(call);
    }
  }
};

}  // namespace espalier::kernels
