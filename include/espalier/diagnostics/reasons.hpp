// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/detail/fixed_string.hpp>
#include <espalier/graph/symbol.hpp>

/// Why a program does not compile. Each reason is a type that carries the tensors involved, and one sentence that
/// says what happened and what to do. `raise` holds the assertion: it is instantiated once, by `program`.
///
/// All names here appear in compiler messages, so they read as words.
namespace espalier::why {

template <class... Parts> inline constexpr bool no_error = false;

/// A character that names something: an einsum label, a letter of a file's name.
template <char... Letters> struct text {};
template <int Number> struct line {};
template <int Value> struct dim {};
template <int Value> struct extent {};
template <int Value> struct count {};
/// Where in the user's source.
template <class File, class Line> struct at {};

#define ESPALIER_REASON(name, sentence)                                       \
  template <class... Details> struct name {                                   \
    template <class Where> struct raise {                                     \
      static_assert(no_error<name<Details...>, Where>, sentence);     \
    };                                                                        \
  }

ESPALIER_REASON(einsum_size_mismatch,
                "einsum: the same label stands for two different sizes. Make the dimensions equal, or give them "
                "different labels.");
ESPALIER_REASON(einsum_wrong_rank,
                "einsum: an operand has another number of dimensions than its labels. Write one label per dimension.");
ESPALIER_REASON(einsum_wrong_operand_count,
                "einsum: the formula names another number of operands than were given. Separate operands by commas.");
ESPALIER_REASON(einsum_bad_formula,
                "einsum: the formula is not of the form \"ab,bc->ac\": letters only, no letter twice in one term, "
                "every letter of the result in some operand.");
ESPALIER_REASON(matmul_size_mismatch,
                "matmul: the last dimension of the first operand differs from the last but one of the second.");
ESPALIER_REASON(shape_mismatch,
                "elementwise: these shapes do not broadcast against each other. Counted from the right, two "
                "dimensions must be equal or one of them 1.");
ESPALIER_REASON(dtype_mismatch, "these tensors have different element types. Use convert<dtype> on one of them.");
ESPALIER_REASON(wrong_rank, "the tensor has another number of dimensions than this op needs.");
ESPALIER_REASON(no_such_dimension, "the tensor has no dimension of this number.");
ESPALIER_REASON(reshape_size_mismatch, "reshape: the new shape holds another number of elements.");
ESPALIER_REASON(bad_permutation, "transpose: name every dimension exactly once.");
ESPALIER_REASON(out_of_bounds, "slice: the range leaves the dimension.");
ESPALIER_REASON(concat_shape_mismatch, "concat: all dimensions except the joined one must be equal.");
ESPALIER_REASON(indices_are_not_integers, "gather and one_hot need i32 indices.");
ESPALIER_REASON(operand_is_not_floating, "this op needs a floating-point tensor. Use convert<dtype>.");
ESPALIER_REASON(condition_is_not_boolean, "select: the condition must be a boolean tensor, such as a comparison.");
ESPALIER_REASON(annotation_of_wrong_rank,
                "shard: name one entry per dimension of the tensor: a mesh axis, axes<...>, none or open.");
ESPALIER_REASON(unknown_mesh_axis, "shard: this axis does not belong to the program's mesh.");
ESPALIER_REASON(axis_used_twice, "shard: one mesh axis cannot split two dimensions of the same tensor.");
ESPALIER_REASON(conflicting_annotations,
                "the same tensor is annotated with two different shardings. Remove one, or use reshard<...> where the "
                "layout is meant to change.");
ESPALIER_REASON(op_without_rule,
                "this op has no partition rule, and the library never replicates silently. Give its op_info the "
                "function `factors`.");
ESPALIER_REASON(op_without_gradient,
                "this op has no gradient rule. Give its op_info the function `gradient`, or use stop_gradient.");
ESPALIER_REASON(pending_sum_dropped,
                "this op is not linear, but one of its operands is annotated as a pending sum: the result would be "
                "wrong. Reduce it first, with reshard<...>.");
ESPALIER_REASON(loss_is_not_scalar, "value_and_grad: the function must return one floating-point scalar.");
ESPALIER_REASON(carry_changes_type, "scan: the body must return a carry of the type it was given.");
ESPALIER_REASON(stacked_sizes_differ, "scan: all stacked tensors need the same first dimension.");
ESPALIER_REASON(not_a_tensor, "the program returned something that is not a tensor, a parameter struct or results<...>.");

#undef ESPALIER_REASON

}  // namespace espalier::why
