// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// The reasons why a program does not compile. Each reason is a type that carries the tensors involved, and one
/// sentence that says what happened and what to do; docs/errors.md explains each. `raise` holds the assertion:
/// `program` needs its definition once, for the first mistake. These reasons are those of several operators or of a
/// program as a whole; an operator's own are in ops/reasons/. An op of your own may bring its own reason: any template
/// with such a member does.
///
/// All names here appear in compiler messages, so they read as words. Two habits keep the messages short: `Where::ok`
/// is all that is asserted, because clang prints the whole condition before the sentence; and no macro writes these
/// classes, because compilers add a message for each macro they passed through.
namespace espalier::why {

/// Letters that name something: an einsum label, an op.
template <char... Letters> struct text {};
template <char... Letters> struct op {};
template <int Number> struct line {};
template <int Value> struct dim {};
template <int Value> struct extent {};
template <int Value> struct count {};
template <long long Value> struct bytes {};
/// The number of arguments that a function takes, and the number that it was given.
template <int Count> struct takes {};
template <int Count> struct given {};
/// The needs of a program, and the limits of its budget.
template <long long Value> struct needs {};
template <long long Value> struct allowed {};
template <long long Value> struct needs_bytes {};
template <long long Value> struct allowed_bytes {};
/// The least that is known: of the program as it is, or without the annotations of one line.
template <long long Value, class... WithoutLine> struct least_bytes {};
/// The annotation of a tensor, in the words of `shard<...>`.
template <class... Entries> struct annotated {};
/// The axes that a collective runs along.
template <class... Axes> struct along {};
/// A layout that a result may have, the bytes that a device sends for it, and the operands that have to be moved for it
/// before, each with its layout then.
template <class Layout, class Bytes, class... Moved> struct output {};
template <class Operand, class Layout> struct moved {};
template <int Number> struct operand {};
/// A part of an axis that is cut: the product of the sizes of its parts before it, and its own.
template <class Axis, class Before, class Size> struct sub_axis {};
template <int Value> struct before {};
template <int Value> struct size {};
/// Memory of one device for a tensor, and where the tensor is made.
template <class Tensor, class Bytes, class Where> struct buffer {};
struct no_buffer {};
/// A leaf of a parameter tree, by its name in letters; or that one tree has none where the other has.
template <class Name, class Tensor> struct leaf {};
struct no_leaf {};

/// The place in the user's source: `at<line<17>, 'm', 'l', 'p', '.', 'h', 'p', 'p'>`.
template <class Line, char... File> struct at { static constexpr bool ok = false; };
/// The place is a call of this op, where the reason is not one op's own: `in<op<'s', 'u', 'm'>, at<...>>`.
template <class Op, class Where> struct in { static constexpr bool ok = false; };
/// The place is the program's argument of this number, counted from 0.
template <int Index> struct argument { static constexpr bool ok = false; };
/// The place is leaf number Index of all arguments, as for `argument_layout(Index)`: a tensor counts as one leaf.
template <int Index> struct argument_leaf { static constexpr bool ok = false; };
/// The place is the program as a whole.
struct array {
  static constexpr bool ok = false;
};
struct program {
  static constexpr bool ok = false;
};

// The assertions where a tensor is used in the place of a C++ value; the sentence is there.
template <class Tensor, class As> struct value_of { static constexpr bool is_known_while_compiling = false; };
template <class Kind> inline constexpr bool is_named_so = false;
template <class Program> struct is_made_of { static constexpr bool this_program = false; };
template <class Tensor> struct rows_of { static constexpr bool are_known_while_compiling = false; };

// Element by element.
template <class... Details> struct shape_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "elementwise: these shapes do not broadcast against each other. Counted from the right, "
                  "two dimensions must be equal, or one of them 1: reshape an operand.");
  };
};
template <class... Details> struct dtype_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "these tensors have different element types. None is converted silently, which would hide where "
                  "precision or memory is lost: use convert<dtype> on one of them.");
  };
};
template <class... Details> struct operand_is_not_floating {
  template <class Where> struct raise {
    static_assert(Where::ok, "this op needs a floating-point tensor. Use convert<dtype>.");
  };
};
template <class... Details> struct result_type_cannot_hold_sums {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "sums of these elements cannot have this type. Of floats it is a float, of integers an integer, and it "
        "is at least as wide as what they are added up in: f32 for sixteen bits, else their own type. Convert "
        "the operands, or the result.");
  };
};
template <class... Details> struct operand_is_boolean {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "this op computes with numbers, and the tensor holds truth values. Use convert<dtype::i32> to "
                  "count them, or another element type.");
  };
};
template <class... Details> struct number_is_no_integer {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "the tensor holds integers, and the number is a float: it would lose its fraction. Write an integer, "
                  "or use convert<dtype::f32> on the tensor.");
  };
};
template <class... Details> struct number_out_of_range {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "the tensor's integers are not so large, or have no sign: this number is none of them. Use convert<...> on "
        "the tensor, or another number.");
  };
};
template <class... Details> struct assigned_another_type {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "=, +=: a variable keeps its type, and this tensor has another one: first the variable's, then the "
                  "tensor's. Start a new variable with auto.");
  };
};
template <class... Details> struct tensor_has_no_subscript {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "x[...]: tensors have no subscripts. Use take<0, 3>(x) for x[3], slice<0, 2, 5>(x) for x[2:5], "
                  "gather<0>(x, indices) for a tensor of indices.");
  };
};
// Dimensions and indices.
template <class... Details> struct wrong_rank {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a tensor has another number of dimensions than this op needs. Use reshape to add or "
                  "merge dimensions.");
  };
};
template <class... Details> struct no_such_dimension {
  template <class Where> struct raise {
    static_assert(Where::ok, "the tensor has no dimension of this number. They count from 0, or from -1 backwards.");
  };
};
template <class... Details> struct dimension_named_twice {
  template <class Where> struct raise {
    static_assert(Where::ok, "a dimension is named twice. Name each once; -1 is the last one.");
  };
};
// Annotations, of values and of arguments.
template <class... Details> struct annotation_of_wrong_rank {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "annotation: another number of entries than the tensor has dimensions. Write one per "
                  "dimension: a mesh axis, axes<...>, none or open.");
  };
};
template <class... Details> struct unknown_mesh_axis {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "annotation: this axis does not belong to the program's mesh. Add it to the mesh, or "
                  "name one of the mesh's axes.");
  };
};
template <class... Details> struct axis_name_is_a_function {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "annotation: an axis is a type, and the name given here is a function's, as pipe, read, link and time "
        "are in C. Write struct pipe, or put the axes into a namespace.");
  };
};
template <class... Details> struct axis_used_twice {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "annotation: one mesh axis cannot split two dimensions of the same tensor. Use it once, "
                  "and none or another axis elsewhere.");
  };
};
template <class... Details> struct no_such_priority {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "annotation: priorities are 0 to 255. Annotations of priority 0, or without one, are passed on first.");
  };
};
template <class... Details> struct conflicting_annotations {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "two annotations of the same tensor contradict each other. Remove one of the two lines, "
                  "or use reshard<...> where the layout is meant to change.");
  };
};
template <class... Details> struct laid_out_as_another_shape {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "these tensors, or the leaves of two trees, have different shapes or names, and can't have the same "
                  "layout. Give two of the same shape, or write shard<...> of each.");
  };
};
template <class... Details> struct not_a_pending_sum {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "annotation: unreduced<...> keeps a sum pending, and this is no sum along these axes. Split a "
                  "dimension that is summed over along them first, or leave unreduced<...> out.");
  };
};
template <class... Details> struct pending_sum_dropped {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "this op cannot work on the terms of a sum, but its operand is annotated unreduced: the "
                  "result would be wrong. Carry the sum out first, with reshard<...>.");
  };
};
// Ops.
template <class... Details> struct op_without_rule {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "this op has no partition rule, and nothing is replicated silently. Give its op_info "
                  "the function `factors`.");
  };
};
template <class... Details> struct op_without_gradient {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "this op has no gradient. Give its op_info the function `gradient`, or put "
                  "stop_gradient before it.");
  };
};
// Functions of functions.
template <class... Details> struct loss_is_not_scalar {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "value_and_grad: the function must return one floating-point scalar. Reduce the loss "
                  "with mean or sum.");
  };
};
template <class... Details> struct tangent_of_another_type {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "jvp: the direction must have the type of the point. Give a tensor of the same shape and element "
                  "type for each tensor, and results(...) for both if there are several arguments.");
  };
};
template <class... Details> struct tensor_of_another_trace {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a tensor does not belong to this program: it comes from the trace of another one, or was declared "
                  "and never given a value. Pass it in as an argument, or assign it.");
  };
};
// Optimizers.
template <class... Details> struct not_an_optimizer_state {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "adamw_step, sgd_step: the first argument is no state of this optimizer. Give adamw<tree>::state or "
                  "sgd<tree>::state, with the tree of the parameters.");
  };
};
template <class... Details> struct gradients_of_another_tree {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "an optimizer's step: the gradients are not of the tree whose parameters the state holds; the first "
                  "leaves that differ stand here, the state's and then the gradients'. Make both from one tree.");
  };
};
template <class... Details> struct rate_is_no_scalar {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "an optimizer's step: the learning rate must be a floating-point scalar tensor, f32<>. Give the "
                  "program an argument of this type, or make one: constant<f32<>>(loss, 0.001), for any tensor loss.");
  };
};
// The program's border.
template <class... Details> struct wrong_argument_count {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: the function takes another number of arguments. Name one argument type for "
                  "each.");
  };
};
template <class... Details> struct function_not_callable {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "program: the function cannot be called with these arguments. Take its parameters as auto, as many as "
        "there are arguments: tensors of a trace are not of the types that describe them, f32<8, 6> x.");
  };
};
template <class... Details> struct results_in_another_class {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: the function returns several results in a class of the standard library. Return "
                  "espalier::results(a, b), which can be taken apart in the same way.");
  };
};
template <class... Details> struct function_returns_nothing {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "the function returns nothing. Return a tensor, a parameter tree, or results(...) of these; "
                  "where the compiler found an error in it before, mend that one first.");
  };
};
template <class... Details> struct function_with_captures {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "custom_gradient, checkpoint: the function that the gradient calls keeps values of its own. Use a "
                  "lambda without captures, or a struct without members; pass everything as arguments.");
  };
};
template <class... Details> struct gradient_of_another_type {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "custom_gradient: the gradient must return a tensor (or tree) of its argument's type, or, for several "
        "arguments, results<...> of these in their order. In a region by hand, what flows back to an argument that "
        "is the same on all devices is the same, too: psum<axis>(x).");
  };
};
template <class... Details> struct function_without_default {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: the function has no default constructor. Use a struct without members, or a "
                  "lambda without captures; pass data as arguments.");
  };
};
template <class... Details> struct argument_is_not_a_tensor {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: an argument must be a tensor type, sharded<...>, a parameter tree of these, "
                  "or donated<...>: for example f32<64, 256>.");
  };
};
template <class... Details> struct extent_is_not_positive {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: the extents of a tensor are numbers from 1 on, since it is compiled for them. Write "
                  "f32<64, 6> for f32<-1, 6>, and pad a batch that varies to one size. (-1 is for reshape<-1, 6>(x).)");
  };
};
template <class... Details> struct parameter_is_a_tensor_type {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: the function's parameters are tensors of a trace, not of the types that describe them. "
                  "Write auto: constexpr auto operator()(auto x, auto w) const. The types stand in program<...> only.");
  };
};
template <class... Details> struct member_is_no_leaf {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a parameter tree: this member is the same whatever the leaves are, so that it is no tensor of a "
                  "trace and no array. Write leaf<Leaf, f32<8, 6>> for f32<8, 6>, and part<Leaf> for a tree in it.");
  };
};
template <class... Details> struct donated_without_result {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "donated: no result takes this argument's memory, since none is left that is of its type. Return a "
                  "tensor (or tree) of that type for it, or declare the argument without donated<...>.");
  };
};
template <class... Details> struct run_takes_other_arguments {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "run: the program takes another number of arguments. Give one array, or tree of arrays, for each "
                  "argument of the program, in their order.");
  };
};
template <class... Details> struct array_is_not_indexed {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "array: its elements are spread over devices, so it has no x[i] and no loop over its rows. "
        "ep::gather(world, x)[i] is element i of the whole tensor; x.for_each(f) calls f(element, i) for those "
        "of this process.");
  };
};
template <class... Details> struct run_argument_of_another_type {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "run: this argument is not what the program declares: first what was given, then what it takes. Make "
                  "it with argument<number>() of the runner, and give the arguments in the program's order.");
  };
};
template <class... Details> struct not_a_tensor {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "program: the function must return a tensor, a parameter tree, or results<...> of "
                  "these.");
  };
};
// Explicit mode, see program/explicit_mode.hpp.
template <class... Details> struct communication_not_written {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "explicit mode: this line communicates, and nothing says that it may. Write shard<...> of its result "
                  "with a layout of those listed as output<layout, bytes that a device sends>, after reshard<...> of "
                  "the operands that are listed as moved<...>; or allow the kind: explicit_mode<kind>, auto_mode.");
  };
};
// Budgets, see program/budget.hpp.
template <class... Details> struct too_many_collectives {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "budget: this line needs one more collective of this kind than the budget allows. "
                  "Annotate the tensors before it so that their layouts fit together, or raise the limit.");
  };
};
template <class... Details> struct too_many_bytes {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "budget: collectives of this kind send more bytes per device than the budget allows; "
                  "the largest stands here. Annotate the tensors before it so that their layouts fit "
                  "together, or raise the limit.");
  };
};
template <class... Details> struct does_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "budget: a device needs more memory than the budget allows; the largest buffer stands "
                  "here. Split it over another mesh axis, use recompute in scan, or raise the limit.");
  };
};

}  // namespace espalier::why
