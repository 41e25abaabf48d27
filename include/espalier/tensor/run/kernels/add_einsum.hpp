// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/add_einsum.hpp>
#include <espalier/tensor/run/kernels/einsum.hpp>

#include <cstdint>

namespace espalier::kernels {

/// The product is added where the addend lies; where that is elsewhere, the addend is copied first.
template <> struct kernel<&ops::add_einsum> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    return kernels::scratch_bytes(detail::contraction_for(key), key.operand_type[0], key.operand_type[1], key.type);
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using left = storage_t<Key.operand_type[0]>;
    using right = storage_t<Key.operand_type[1]>;
    using element = storage_t<Key.type>;
    static_assert(is_floating(Key.type), "integers are multiplied and added in two steps");
    constexpr contraction plan = detail::contraction_for(Key);
    detail::copy_all<element>(Key.shape.elements(), call.operand[2], call.result);
    contract<plan>(static_cast<const left*>(call.operand[0]), static_cast<const right*>(call.operand[1]),
                   static_cast<element*>(call.result), 1, 1, call.scratch, call.tail);
  }
};

}  // namespace espalier::kernels
