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
template <class... Details> struct predicate_is_no_truth_value {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "cond: the predicate must be one truth value for all devices, a boolean<>, as x < y of two tensors "
                  "without dimensions is. To choose for each element, select(condition, yes, no).");
  };
};
template <class... Details> struct index_is_no_whole_number {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "switch_case: the index comes first, an i32<> or another integer without dimensions, and then one "
                  "function for each number from 0.");
  };
};
template <class... Details> struct branch_takes_arguments {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "cond, switch_case: branches are functions without parameters: [&] { return 2 * x; } uses the x "
                  "around it. Where the compiler found an error in a branch before, mend that one first.");
  };
};
template <class... Details> struct branch_gives_no_tensor {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "cond, switch_case: a branch must return a tensor, a parameter tree, or results(...) of these. Of a "
                  "number, constant<f32<>>(x, number) makes one, for any tensor x.");
  };
};
template <class... Details> struct branches_differ {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "cond, switch_case: all branches must return the same type. Convert or reshape what one of them "
                  "returns.");
  };
};
template <class... Details> struct while_loop_has_no_gradient {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "value_and_grad: the loss depends on a while_loop without a largest number of iterations, of which "
        "nobody knows how much its gradient would have to keep. Add at_most_iterations<N> as its last argument, or "
        "stop_gradient to what it finds.");
  };
};

}  // namespace espalier::why
