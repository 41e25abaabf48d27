// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/table.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>

namespace espalier::kernels {

/// Every table is an op of its own, which knows where its elements are.
template <const op_info* Op>
  requires(Op->fill != nullptr)
struct kernel<Op> : no_scratch {
  template <kernel_key Key> static void run(const kernel_call& call) {
    Op->fill(call.result, Key.shape, call.boxes->whole, call.boxes->result);
  }
};

}  // namespace espalier::kernels
