// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why `vmap` refuses a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct mapped_sizes_differ {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "vmap: the mapped dimensions have different numbers of elements. They are one dimension, and have the "
        "same number in all arguments; an argument that all calls share is named ep::unmapped.");
  };
};
template <class... Details> struct no_dimension_to_map {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "vmap: the argument has no such dimension. Dimensions count from 0, or backwards from -1; an argument "
        "that all calls share is named ep::unmapped.");
  };
};
template <class... Details> struct tree_is_not_stacked {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "vmap: only the first dimension of a parameter tree is mapped, and only where the tree is a stack: "
                  "declare the argument tree<stacked<spec, 12>> and map dimension 0 of it. A tree that all calls share "
                  "is named ep::unmapped.");
  };
};
template <class... Details> struct nothing_is_mapped {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "vmap: every argument is ep::unmapped. Name a dimension of one of them, or call the function.");
  };
};
template <class... Details> struct dimensions_are_not_one_for_each {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "vmap: name one dimension, or ep::unmapped, for each argument: vmap<0, ep::unmapped>(f)(x, w). Without "
        "any, it is dimension 0 of each. Of results, out_dims names one for each, or one for all.");
  };
};
template <class... Details> struct mapped_function_not_callable {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "vmap: the function cannot be called with these, the arguments without their mapped dimensions. Where "
        "the compiler found an error in the function before, mend that one first.");
  };
};
template <class... Details> struct mapped_value_is_not_a_tensor {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "vmap: arguments and results are tensors, parameter trees, or results(...) of these. Let the function "
        "capture a number.");
  };
};
template <class... Details> struct result_is_mapped {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "vmap: this result depends on a mapped argument and differs from call to call, but out_dims names "
                  "ep::unmapped for it. Name the dimension of the result.");
  };
};
template <class... Details> struct no_such_out_dimension {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "vmap: out_dims names a dimension that the result does not have: 0 to its rank in one call, or "
                  "backwards from -1. Of a parameter tree it is 0.");
  };
};
template <class... Details> struct operator_cannot_be_mapped {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "vmap: this operator has no place for one more dimension: it would be the ninth, or its factors do not "
        "let one pass. Say in the operator's op_info how it is mapped (docs/adding-an-op.md), or call it "
        "outside of vmap.");
  };
};

}  // namespace espalier::why
