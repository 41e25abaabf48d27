// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Why a program does not compile. Each reason is a type that carries the tensors involved, and one sentence that
/// says what happened and what to do; docs/errors.md explains each. `raise` holds the assertion: `program` needs its
/// definition once, for the first mistake. An op of your own may bring its own reason: any template with such a
/// member does.
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
/// How many arguments a function takes, and how many it was given.
template <int Count> struct takes {};
template <int Count> struct given {};
/// What a program needs, and what its budget allows.
template <long long Value> struct needs {};
template <long long Value> struct allowed {};
template <long long Value> struct needs_bytes {};
template <long long Value> struct allowed_bytes {};
/// How a tensor is annotated, in the words of `shard<...>`.
template <class... Entries> struct annotated {};
/// The axes that a collective runs along.
template <class... Axes> struct along {};
/// Memory of one device for a tensor, and where the tensor is made.
template <class Tensor, class Bytes, class Where> struct buffer {};
struct no_buffer {};
/// A leaf of a parameter tree, by its name in letters; or that one tree has none where the other has.
template <class Name, class Tensor> struct leaf {};
struct no_leaf {};

/// Where in the user's source: `at<line<17>, 'm', 'l', 'p', '.', 'h', 'p', 'p'>`.
template <class Line, char... File> struct at { static constexpr bool ok = false; };
/// In a call of this op, where the reason is not one op's own: `in<op<'s', 'u', 'm'>, at<...>>`.
template <class Op, class Where> struct in { static constexpr bool ok = false; };
/// In the program's argument of this number, counted from 0.
template <int Index> struct argument { static constexpr bool ok = false; };
/// In leaf number Index of all arguments, as for `argument_layout(Index)`: a tensor counts as one leaf.
template <int Index> struct argument_leaf { static constexpr bool ok = false; };
/// In the program as a whole.
struct array {
  static constexpr bool ok = false;
};
struct program {
  static constexpr bool ok = false;
};

// What is asserted where a tensor stands in the place of a C++ value; the sentence is there.
template <class Tensor, class As> struct value_of { static constexpr bool is_known_while_compiling = false; };
template <class Kind> inline constexpr bool is_named_so = false;
template <class Program> struct is_made_of { static constexpr bool this_program = false; };
template <class Tensor> struct rows_of { static constexpr bool are_known_while_compiling = false; };

// Products.
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
// Windows.
template <class... Details> struct window_is_larger_than_input {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "along this dimension the window is larger than the padded input, so that it fits nowhere. Use a "
                  "smaller filter or less dilation, or pad more.");
  };
};
template <class... Details> struct step_is_not_positive {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "strides and dilations are at least 1. A stride of 1 moves the window by one element, a dilation of 1 "
        "has no gaps.");
  };
};
template <class... Details> struct groups_do_not_divide {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "convolution: the number of groups must divide the input's channels and the filter's features. Groups "
        "as many as channels give a depthwise convolution.");
  };
};
template <class... Details> struct norm_groups_do_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "group_norm: the number of groups must divide the channels, the last dimension. As many groups as "
                  "channels give an instance norm.");
  };
};
template <class... Details> struct batch_groups_do_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "convolution: the number of batch groups must divide the input's batch, its first dimension, and the "
                  "filter's features; and there can't be feature groups as well.");
  };
};
template <class... Details> struct channels_differ {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "convolution: the last dimension of the input must be the last but one of the filter times the number "
        "of groups. Inputs are [n, spatial ..., channels], filters [taps ..., channels of a group, features].");
  };
};
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
template <class... Details> struct operand_is_not_integer {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "this op works on the bits of integers. Use convert<dtype::i32> on the numbers, or "
                  "bit_cast<dtype::i32> on the bits of a float.");
  };
};
template <class... Details> struct bit_cast_size_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "bit_cast: an element of the new type has another number of bits. Choose one of the same size, or "
                  "use convert<dtype> to keep the values.");
  };
};
template <class... Details> struct condition_is_not_boolean {
  template <class Where> struct raise {
    static_assert(Where::ok, "a condition must be a boolean tensor. Compare first: x > 0.");
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
template <class... Details> struct table_size_mismatch {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "constant: the table has another number of elements than the tensor. Give the tensor as many, or leave "
        "its type out: constant<table>(like) has the table's shape.");
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
template <class... Details> struct dimension_has_more_elements {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "squeeze: this dimension has more than one element. Name dimensions of one element, or use take, sum "
                  "or reshape.");
  };
};
template <class... Details> struct dimension_named_twice {
  template <class Where> struct raise {
    static_assert(Where::ok, "a dimension is named twice. Name each once; -1 is the last one.");
  };
};
template <class... Details> struct reshape_size_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "reshape: the new shape holds another number of elements. Choose extents with the same "
                  "product.");
  };
};
template <class... Details> struct reshape_infers_several {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "reshape: -1 is there several times, and only one extent can follow from the others. Write the "
                  "others as numbers: reshape<-1, 8>(x).");
  };
};
template <class... Details> struct reshape_does_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "reshape: the product of the other extents does not divide the number of elements, so that -1 stands "
                  "for no whole number. Choose extents that divide it.");
  };
};
template <class... Details> struct bad_permutation {
  template <class Where> struct raise {
    static_assert(Where::ok, "transpose: not a permutation. Name every dimension exactly once.");
  };
};
template <class... Details> struct out_of_bounds {
  template <class Where> struct raise {
    static_assert(Where::ok, "slice: the range leaves the dimension. Choose 0 <= start < stop <= extent.");
  };
};
template <class... Details> struct top_k_out_of_range {
  template <class Where> struct raise {
    static_assert(Where::ok, "top_k: so many elements cannot be chosen. Choose 1 <= count <= extent of the dimension.");
  };
};
template <class... Details> struct nothing_is_left {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "pad, shift: along this dimension no element is left, or a negative number of elements is to be put "
                  "between the others. Take fewer away.");
  };
};
template <class... Details> struct too_many_elements {
  template <class Where> struct raise {
    static_assert(
        Where::ok,
        "concat, pad: this dimension would have more than 2147483647 elements, which no int can count. Make two "
        "dimensions of it with reshape, or work on it in parts.");
  };
};
template <class... Details> struct parts_do_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "split: the number of parts does not divide the dimension. Choose another number, or use slice for "
                  "parts of different sizes.");
  };
};
template <class... Details> struct concat_shape_mismatch {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "concat: the shapes differ in another dimension than the joined one. Make all others "
                  "equal.");
  };
};
template <class... Details> struct start_is_not_an_integer_scalar {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "dynamic_slice, dynamic_update_slice: a start is one integer, a scalar like i32<>. Use "
                  "convert<dtype::i32>; of a tensor of starts, reshape<> one element to a scalar.");
  };
};
template <class... Details> struct slice_does_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "dynamic_slice, dynamic_update_slice: along this dimension the slice is larger than the tensor that "
                  "it is cut from or written into, or empty. Choose a size from 1 to the tensor's extent.");
  };
};
template <class... Details> struct update_does_not_fit {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "dynamic_update_slice: the update needs the tensor's extents in all dimensions but those that have a "
                  "start, which differ. Reshape it, or name the dimension and give its start.");
  };
};
template <class... Details> struct indices_are_not_integers {
  template <class Where> struct raise {
    static_assert(Where::ok, "indices must be integers. Use convert<dtype::i32>, or swap the arguments.");
  };
};
// Random numbers.
template <class... Details> struct not_a_random_key {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a random key is two words, a u32<2>. Make one with random_key(x, seed) or fold_in, take a row of "
                  "split_key, or give the function an argument of that type.");
  };
};
template <class... Details> struct random_bits_are_words {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "random_bits: the elements are words, u32 or i32. Use uniform, normal or bernoulli for other types.");
  };
};
template <class... Details> struct not_one_integer {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "fold_in: the number must be an integer, or a tensor i32<> or u32<>. Fold several in one after the "
                  "other.");
  };
};
template <class... Details> struct range_is_empty {
  template <class Where> struct raise {
    static_assert(Where::ok, "uniform: the lower bound must be less than the upper one. Swap them.");
  };
};
template <class... Details> struct not_a_probability {
  template <class Where> struct raise {
    static_assert(Where::ok, "bernoulli, dropout: a probability is a number from 0 to 1.");
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
template <class... Details> struct conflicting_annotations {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "two annotations of the same tensor contradict each other. Remove one of the two lines, "
                  "or use reshard<...> where the layout is meant to change.");
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
template <class... Details> struct tensor_of_another_trace {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a tensor does not belong to this program: it comes from the trace of another one, or was declared "
                  "and never given a value. Pass it in as an argument, or assign it.");
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
        "arguments, results<...> of these in their order.");
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
