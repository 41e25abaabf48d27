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
template <class... Details> struct state_changes_type {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "while_loop: the body must return a state of the type it was given. Convert or reshape what it "
                  "returns; outputs of every iteration cannot be stacked, since nobody knows how many there are.");
  };
};
template <class... Details> struct state_is_not_a_tensor {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "while_loop: condition and body come first, then the state: a tensor, a parameter tree, or "
                  "results(...) of these. Of a number, constant<f32<>>(x, number) makes one, for any tensor x.");
  };
};
template <class... Details> struct state_does_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "while_loop: condition(state) and body(state) are called with the state alone: take it, of any type "
                  "or of this. Where the compiler found an error in one of them before, mend that one first.");
  };
};
template <class... Details> struct condition_is_no_truth_value {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "while_loop: the condition must be one truth value for all devices, a boolean<>, as x < y of two "
                  "tensors without dimensions is. Of many, max(...) says whether any holds, min(...) whether all do.");
  };
};
template <class... Details> struct while_loop_has_no_gradient {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "value_and_grad: the loss depends on a while_loop, which has no gradient. Use repeat<N>, and select "
                  "for what no longer changes; or stop_gradient for what the loop finds.");
  };
};

}  // namespace espalier::why
