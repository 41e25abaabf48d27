// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct carry_changes_type {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "scan, repeat: the body must return a carry of the type it was given. Convert or reshape "
                  "what it returns.");
  };
};
template <class... Details> struct loop_value_is_not_a_tensor {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "scan, repeat: the body comes first, then the carry, then scan's layers: each of these a tensor, a "
        "parameter tree, or results(...) of these. Of a number, constant<f32<>>(x, number) makes one, for any "
        "tensor x.");
  };
};
template <class... Details> struct body_not_callable {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "scan, repeat: the body cannot be called with these. scan calls body(carry, layer), repeat body(carry) "
        "or body(carry, step): take as many, of any type or of these. Where the compiler found an error in the body "
        "before, mend that one first.");
  };
};
template <class... Details> struct stacked_sizes_differ {
  template <class Where> struct raise {
    static_assert(Where::ok, "scan: all stacked tensors need the same first dimension, the number of iterations.");
  };
};
template <class... Details> struct leaves_are_not_stacked {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "scan: the tree is one layer, and not a stack of them. Declare a layer, without the dimension over "
                  "which scan runs, and make the argument layer<stacked<spec, 12>>: 12 of them.");
  };
};

}  // namespace espalier::why
