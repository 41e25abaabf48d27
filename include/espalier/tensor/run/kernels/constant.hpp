// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/constant.hpp>
#include <espalier/tensor/run/kernels/reshape.hpp>

#include <cstdint>

namespace espalier::detail {

template <class T> void fill_rows(const kernels::block_call& call, std::int64_t columns, T value) {
  auto* to = static_cast<T*>(call.result.data);
  if (call.result.row == columns) {
    fill_run(to, call.rows * columns, value);
  } else {
    for (std::int64_t r = 0; r < call.rows; ++r) fill_run(to + r * call.result.row, columns, value);
  }
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::constant> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    using element = storage_t<Key.type>;
    detail::fill_all(Key.shape.elements(), static_cast<element*>(call.result),
                     detail::element_of_scalar<element>(call.scalar));
  }
};

template <> struct block_kernel<&ops::constant> {
  template <block_key Key> static void run(const block_call& call) {
    using element = storage_t<Key.type>;
    detail::fill_rows(call, Key.result_wide ? detail::columns_of_block<Key.columns>(call) : 1,
                      detail::element_of_scalar<element>(call.scalar));
  }
};

}  // namespace espalier::kernels
