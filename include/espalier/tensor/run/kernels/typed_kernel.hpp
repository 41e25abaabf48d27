// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/run/kernels/kernel_set.hpp>

// Kernels whose code depends on element types and not on extents: calls of equal types share it, and kernel sets may
// have it.

namespace espalier::kernels {

/// The base of the kernel of such an op, which then has no `run<Key>` but `run_typed<Types>`:
///
///     template <> struct kernel<&ops::max_pool> : typed_kernel<&ops::max_pool>, no_scratch {
///       static constexpr kernel_types shared[]{of_types(dtype::f32, {dtype::f32})};
///       template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call);
///     };
///
/// `shared` lists the types for which kernel sets have the kernel. For any others, and without such a list, a program
/// has its own code.
template <const op_info* Op> struct typed_kernel {
  /// Returns what the code is specialised for. A kernel may have its own: types that are only moved are words, and
  /// attributes may choose a variant.
  [[nodiscard]] static constexpr kernel_types types_of(const kernel_key& key) { return all_types_of(key); }

  template <kernel_key Key> static void run(const kernel_call& call) {
    using self = kernel<Op>;
    static constexpr kernel_key key = Key;
    constexpr kernel_types types = self::types_of(Key);
    if constexpr (shares_kernels && has_shared_types<self>(types)) {
      static const typed_function function = processor_kernels().kernel(Op->name, types);
      function(key, call);
    } else {
      self::template run_typed<types>(key, call);
    }
  }
};

}  // namespace espalier::kernels
