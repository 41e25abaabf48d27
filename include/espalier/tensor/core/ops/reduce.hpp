// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/convert.hpp>

namespace espalier {

namespace detail {
constexpr void reduce_gradient(gradient_context& c);
}  // namespace detail

namespace ops {
/// Combines the elements along some dimensions, which disappear, to their product, maximum or minimum. (Sums are
/// `reduce_sum`, which is linear.)
inline constexpr op_info reduce{.name = "reduce",
                                .spread = propagation::dimensional,
                                .fuse = fusion::reduction,
                                .facts = {.attributes = "dims:set kind:sum|prod|max|min"},
                                .factors = detail::reduce_factors,
                                .gradient = detail::reduce_gradient,
                                .evaluate = detail::evaluate_reduce,
                                .flops = detail::reduce_flops,
                                .identity = detail::reduce_identity};
}  // namespace ops

namespace emit {
constexpr int reduce(builder& b, reduction kind, int a, std::int64_t dims) {
  return reduce_with(b, kind == reduction::sum ? ops::reduce_sum : ops::reduce, kind, a, dims);
}
}  // namespace emit

namespace detail {

/// A maximum's or minimum's cotangent goes to the elements that equal it, in equal parts; that of a NaN to all, so that
/// none of them hides it.
constexpr void extremum_gradient(gradient_context& c) {
  builder& b = c.emit;
  const int from = c.operand(0);
  const auto [dims, kind] = attributes_of<reduction_attributes>(c);
  const extents shape = b[from].shape;
  const int extremum = emit::broadcast_along(b, c.id, shape, dims);
  const bool is_max = kind == reduction::max;
  const int beaten = emit::compare(b, ops::less, is_max ? from : extremum, is_max ? extremum : from);
  const int one = emit::constant(b, facts_of(b[from].type).accumulate, shape, 1);
  const int ties = emit::reduce_sum(b, emit::drop_where(b, beaten, one), dims);
  const int share = emit::convert(b, emit::divide(b, emit::widen(b, c.cotangent), ties), b[from].type);
  c.give(0, emit::drop_where(b, beaten, emit::broadcast_along(b, share, shape, dims)));
}

/// The derivative of a product by one factor is the product of the others. Dividing by the factor gives it, unless
/// the factor is 0: then it is the product of the rest if this is the only zero, else 0.
constexpr void product_gradient(gradient_context& c) {
  builder& b = c.emit;
  const int from = emit::widen(b, c.operand(0));
  const dtype type = b[c.operand(0)].type;
  const std::int64_t dims = attributes_of<reduction_attributes>(c).dims;
  const extents shape = b[from].shape;
  const int zero = emit::constant_like(b, from, 0);
  const int one = emit::constant_like(b, from, 1);
  const int is_zero = emit::compare(b, ops::equal, from, zero);
  const int nonzero = emit::select(b, is_zero, one, from);
  const int rest = emit::broadcast_along(b, emit::reduce(b, reduction::prod, nonzero, dims), shape, dims);
  const int zeros = emit::reduce_sum(b, emit::convert(b, is_zero, b[from].type), dims);
  const int count = emit::broadcast_along(b, zeros, shape, dims);
  const int without_zero =
      emit::keep_where(b, emit::compare(b, ops::equal, count, zero), emit::divide(b, rest, nonzero));
  const int only_zero = emit::keep_where(b, emit::compare(b, ops::equal, count, one), rest);
  const int slope = emit::select(b, is_zero, only_zero, without_zero);
  const int cotangent = emit::broadcast_along(b, emit::widen(b, c.cotangent), shape, dims);
  c.give(0, emit::convert(b, emit::multiply(b, cotangent, slope), type));
}

constexpr void reduce_gradient(gradient_context& c) {
  if (attributes_of<reduction_attributes>(c).kind == reduction::prod) {
    product_gradient(c);
  } else {
    extremum_gradient(c);
  }
}

/// The dimensions named by Dims as a bit set; none named means all; -1 if one does not exist.
template <int Rank, int... Dims> [[nodiscard]] constexpr std::int64_t dimension_set() {
  if constexpr (sizeof...(Dims) == 0) {
    return (std::int64_t{1} << Rank) - 1;
  } else {
    const bool exist = ((dimension(Dims, Rank) >= 0) && ...);
    return exist ? (std::int64_t{0} | ... | (std::int64_t{1} << (dimension(Dims, Rank) & 31))) : -1;
  }
}

}  // namespace detail

/// Asks a reduction to keep the dimensions it reduces, with size 1.
struct keep_dims_t {};
inline constexpr keep_dims_t keep_dims{};

namespace detail {

/// The sum of all elements of some dimensions, of type `Type`.
template <dtype Type, bool Keep, int... Dims, Traced A>
constexpr auto sum_as(const A& a, source_line where, const char* op) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr std::int64_t set = dimension_set<A::rank, Dims...>(); set < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dims>...>>(where, op);
  } else if constexpr (!can_hold_sums(Type, A::type)) {
    return failed<why::result_type_cannot_hold_sums<tensor_for<Type, extents{}>, typename A::tensor>>(where, op);
  } else {
    constexpr extents shape = reduced_shape(A::shape, set, Keep);
    builder& b = *a.owner;
    b.at(where);
    const int value = set == 0 ? emit::convert(b, a.id, Type) : emit::reduce_sum(b, a.id, set, Type);
    return symbol_like<A, tensor_for<Type, shape>>(a, emit::reshape(b, value, shape));
  }
}

template <reduction Kind, bool Keep, int... Dims, Traced A>
constexpr auto reduce(const A& a, source_line where, const char* op) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr std::int64_t set = dimension_set<A::rank, Dims...>(); set < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dims>...>>(where, op);
  } else if constexpr (!Numbers<A> && (Kind == reduction::sum || Kind == reduction::prod)) {
    return operand_is_boolean<A>(where, op);
  } else {
    constexpr extents shape = reduced_shape(A::shape, set, Keep);
    a.owner->at(where);
    const int value = emit::reduce(*a.owner, Kind, a.id, set);
    return symbol_like<A, tensor_for<A::type, shape>>(a, emit::reshape(*a.owner, value, shape));
  }
}

}  // namespace detail

/// Reductions over the named dimensions, which disappear; over all when none is named. Negative dimensions count
/// from the end. Of truth values `max` says whether any holds, `min` whether all do; to count them, convert them.
/// Errors: `no_such_dimension`, `operand_is_boolean` (sums and products).
template <int... Dims, Traced A> constexpr auto sum(const A& a, source_line where = source_line::current()) {
  return detail::reduce<reduction::sum, false, Dims...>(a, where, "sum");
}
template <int... Dims, Traced A> constexpr auto max(const A& a, source_line where = source_line::current()) {
  return detail::reduce<reduction::max, false, Dims...>(a, where, "max");
}
template <int... Dims, Traced A> constexpr auto min(const A& a, source_line where = source_line::current()) {
  return detail::reduce<reduction::min, false, Dims...>(a, where, "min");
}
template <int... Dims, Traced A> constexpr auto prod(const A& a, source_line where = source_line::current()) {
  return detail::reduce<reduction::prod, false, Dims...>(a, where, "prod");
}
template <int... Dims, Traced A>
constexpr auto sum(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::reduce<reduction::sum, true, Dims...>(a, where, "sum");
}
template <int... Dims, Traced A>
constexpr auto max(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::reduce<reduction::max, true, Dims...>(a, where, "max");
}
template <int... Dims, Traced A>
constexpr auto min(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::reduce<reduction::min, true, Dims...>(a, where, "min");
}
template <int... Dims, Traced A>
constexpr auto prod(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::reduce<reduction::prod, true, Dims...>(a, where, "prod");
}

/// A sum of another element type than its operand's, in which it is added up, also over devices: `sum<dtype::i32,
/// 1>(x)` of an i8<4, 300> full of 100 is an i32<4> of 30,000, and `sum<dtype::i32>(x < 0.F)` counts. Floats have sums
/// of floats, integers and truth values of integers. The gradient has the operand's type. Errors: `no_such_dimension`,
/// `result_type_cannot_hold_sums`.
template <dtype Result, int... Dims, Traced A>
constexpr auto sum(const A& a, source_line where = source_line::current()) {
  return detail::sum_as<Result, false, Dims...>(a, where, "sum");
}
template <dtype Result, int... Dims, Traced A>
constexpr auto sum(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::sum_as<Result, true, Dims...>(a, where, "sum");
}

namespace detail {
/// Added up and divided in `accumulate` of the result's type, and rounded once.
template <dtype Type, bool Keep, int... Dims, Traced A> constexpr auto mean_as(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (!is_floating(A::type)) {
    return failed<why::operand_is_not_floating<typename A::tensor>>(where, "mean");
  } else if constexpr (!can_hold_sums(Type, A::type)) {
    return failed<why::result_type_cannot_hold_sums<tensor_for<Type, extents{}>, typename A::tensor>>(where, "mean");
  } else {
    const auto total = sum_as<facts_of(Type).accumulate, Keep, Dims...>(a, where, "mean");
    using total_t = std::remove_cv_t<decltype(total)>;
    if constexpr (Failed<total_t>) {
      return total;
    } else {
      constexpr double count =
          static_cast<double>(A::shape.elements()) / static_cast<double>(total_t::shape.elements());
      const int quotient = emit::scale(*a.owner, total.id, 1 / count);
      return symbol_like<A, tensor_for<Type, total_t::shape>>(a, emit::convert(*a.owner, quotient, Type));
    }
  }
}
template <bool Keep, int... Dims, Traced A> constexpr auto mean_of(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    return mean_as<A::type, Keep, Dims...>(a, where);
  }
}
}  // namespace detail

/// The arithmetic mean of a floating-point tensor; dimensions as for `sum`. It is added up, also over devices, and
/// divided in the type's `accumulate` type, and rounded once: of an f16<2> of {40000, 40000} it is 40000.
/// Errors: `no_such_dimension`, `operand_is_not_floating`.
template <int... Dims, Traced A> constexpr auto mean(const A& a, source_line where = source_line::current()) {
  return detail::mean_of<false, Dims...>(a, where);
}
template <int... Dims, Traced A>
constexpr auto mean(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::mean_of<true, Dims...>(a, where);
}
/// Computes the mean in another type of float: `mean<dtype::f32, 1>(x)` of a bf16<4, 300> is an f32<4>.
/// Errors: `no_such_dimension`, `operand_is_not_floating`, `result_type_cannot_hold_sums`.
template <dtype Result, int... Dims, Traced A>
constexpr auto mean(const A& a, source_line where = source_line::current()) {
  return detail::mean_as<Result, false, Dims...>(a, where);
}
template <dtype Result, int... Dims, Traced A>
constexpr auto mean(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::mean_as<Result, true, Dims...>(a, where);
}

}  // namespace espalier
