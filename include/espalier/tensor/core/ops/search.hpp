// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reduce.hpp>

namespace espalier {

// The place of the largest element, and whether any holds: made of other ops.

namespace detail {

/// Row-major number of each element within the dimensions of `dims`.
constexpr int number_within(builder& b, dtype type, const extents& shape, std::int64_t dims) {
  int number = -1;
  std::int64_t stride = 1;
  for (int d = shape.rank - 1; d >= 0; --d) {
    if (!has_dimension(dims, d)) continue;
    int term = emit::iota(b, type, shape, d);
    if (stride != 1) term = emit::scale(b, term, static_cast<double>(stride));
    number = number < 0 ? term : emit::add(b, number, term);
    stride *= shape[d];
  }
  return number < 0 ? emit::constant(b, type, shape, 0) : number;
}

template <reduction Kind, bool Keep, int... Dims, Traced A>
constexpr auto find_extremum(const A& a, source_line where) {
  static_assert(sizeof...(Dims) <= 1, "argmax, argmin: name one dimension, or none for the number in the whole tensor");
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr std::int64_t set = dimension_set<A::rank, Dims...>(); set < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dims>...>>(
        where, Kind == reduction::max ? "argmax" : "argmin");
  } else {
    constexpr std::int64_t count = A::shape.elements() / reduced_shape(A::shape, set, false).elements();
    constexpr dtype type = count <= 0x7fffffff ? dtype::i32 : dtype::i64;
    constexpr extents shape = reduced_shape(A::shape, set, Keep);
    builder& b = *a.owner;
    b.at(where);
    const int extremum = emit::broadcast_along(b, emit::reduce(b, Kind, a.id, set), A::shape, set);
    int found = emit::compare(b, ops::equal, a.id, extremum);
    // A NaN is the extremum, and equals nothing.
    if constexpr (is_floating(A::type)) {
      found = b.append(ops::logical_or, dtype::boolean, A::shape, found, emit::compare(b, ops::not_equal, a.id, a.id));
    }
    const int number = number_within(b, type, A::shape, set);
    const int elsewhere = emit::constant_like(b, number, static_cast<double>(count));
    const int first = emit::reduce(b, reduction::min, emit::select(b, found, number, elsewhere), set);
    return symbol_like<A, tensor_for<type, shape>>(a, emit::reshape(b, first, shape));
  }
}

template <reduction Kind, bool Keep, int... Dims, Traced A> constexpr auto holds(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (A::type == dtype::boolean) {
    return reduce<Kind, Keep, Dims...>(a, where, Kind == reduction::max ? "any" : "all");
  } else {
    builder& b = *a.owner;
    b.at(where);
    const int nonzero = emit::compare(b, ops::not_equal, a.id, emit::constant_like(b, a.id, 0));
    return reduce<Kind, Keep, Dims...>(symbol_like<A, tensor_for<dtype::boolean, A::shape>>(a, nonzero), where,
                                       Kind == reduction::max ? "any" : "all");
  }
}

}  // namespace detail

/// The index along a dimension, which disappears, of the first of its largest (smallest) elements, as an i32; without a
/// dimension, the row-major number in the whole tensor. As in NumPy, a NaN is larger and smaller than all others.
/// Errors: `no_such_dimension`.
template <int... Dim, Traced A> constexpr auto argmax(const A& a, source_line where = source_line::current()) {
  return detail::find_extremum<reduction::max, false, Dim...>(a, where);
}
template <int... Dim, Traced A> constexpr auto argmin(const A& a, source_line where = source_line::current()) {
  return detail::find_extremum<reduction::min, false, Dim...>(a, where);
}
template <int... Dim, Traced A>
constexpr auto argmax(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::find_extremum<reduction::max, true, Dim...>(a, where);
}
template <int... Dim, Traced A>
constexpr auto argmin(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::find_extremum<reduction::min, true, Dim...>(a, where);
}

/// Whether any element, or each, is true along the named dimensions, which disappear (over all when none is named). A
/// number is true unless it is 0. Errors: `no_such_dimension`.
template <int... Dims, Traced A> constexpr auto any(const A& a, source_line where = source_line::current()) {
  return detail::holds<reduction::max, false, Dims...>(a, where);
}
template <int... Dims, Traced A> constexpr auto all(const A& a, source_line where = source_line::current()) {
  return detail::holds<reduction::min, false, Dims...>(a, where);
}
template <int... Dims, Traced A>
constexpr auto any(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::holds<reduction::max, true, Dims...>(a, where);
}
template <int... Dims, Traced A>
constexpr auto all(const A& a, keep_dims_t, source_line where = source_line::current()) {
  return detail::holds<reduction::min, true, Dims...>(a, where);
}

}  // namespace espalier
