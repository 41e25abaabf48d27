// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct einsum_size_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "einsum: the same label stands for two different sizes. Make the dimensions equal, or "
                  "give them different labels.");
  };
};
template <class... Details> struct einsum_wrong_rank {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "einsum: an operand has another number of dimensions than labels. Write one label per "
                  "dimension, or ... for any number of them.");
  };
};
template <class... Details> struct einsum_wrong_operand_count {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "einsum: the formula names another number of operands than were given. Separate "
                  "operands by commas, and give one tensor for each.");
  };
};
template <class... Details> struct einsum_bad_formula {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "einsum: the formula is not of the form \"ab,bc->ac\" or \"...ab,bc->...ac\": letters, no letter "
                  "twice in the result, every letter of the result in some operand, and ... in the result just if an "
                  "operand has it.");
  };
};
template <class... Details> struct einsum_batch_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "einsum, matmul: the dimensions that ... stands for, or those before a matrix, do not broadcast "
                  "against each other. Counted from the right, two of them must be equal, or one of them 1.");
  };
};
template <class... Details> struct einsum_too_many_dimensions {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "einsum: the result, or in every order of the products something on the way to it, has more than 8 "
                  "dimensions. Merge some by reshape.");
  };
};
template <class... Details> struct matmul_size_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "matmul: the last dimension of the first operand differs from the last but one of the "
                  "second, or from its only one. Make them equal, or transpose an operand.");
  };
};

}  // namespace espalier::why
