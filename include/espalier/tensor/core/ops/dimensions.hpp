// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reasons/dimensions.hpp>
#include <espalier/tensor/core/ops/reduce.hpp>
#include <espalier/tensor/core/ops/slice.hpp>

namespace espalier {

// Dimensions of one element, repetition, triangles, and single elements of a dimension: made of other ops.

namespace detail {

/// Whether each of these dimensions is named once. `dims` is the set of them, and -1 if one does not exist.
template <int... Dims> [[nodiscard]] constexpr bool named_once(std::int64_t dims) {
  int count = 0;
  for (std::int64_t rest = dims; rest > 0; rest &= rest - 1) ++count;
  return count == static_cast<int>(sizeof...(Dims));
}

/// The dimensions of a shape that have one element, as a set.
[[nodiscard]] constexpr std::int64_t dimensions_of_one(const extents& shape) {
  std::int64_t dims = 0;
  for (int d = 0; d < shape.rank; ++d) dims |= shape[d] == 1 ? std::int64_t{1} << d : 0;
  return dims;
}

/// A shape with dimensions of one element at these places, which are counted in the result.
[[nodiscard]] constexpr extents expanded_shape(const extents& from, std::int64_t dims, int added) {
  extents result;
  int next = 0;
  for (int d = 0; d < from.rank + added; ++d) result.append(has_dimension(dims, d) ? 1 : from[next++]);
  return result;
}

}  // namespace detail

/// Removes these dimensions, each of which has one element; removes all such dimensions when none is named.
/// Errors: `no_such_dimension`, `dimension_has_more_elements`.
template <int... Dims, Traced A> constexpr auto squeeze(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    constexpr std::int64_t ones = detail::dimensions_of_one(A::shape);
    constexpr std::int64_t named = sizeof...(Dims) == 0 ? ones : detail::dimension_set<A::rank, Dims...>();
    if constexpr (named < 0) {
      return failed<why::no_such_dimension<typename A::tensor, why::dim<Dims>...>>(where, "squeeze");
    } else if constexpr ((named & ~ones) != 0) {
      return failed<why::dimension_has_more_elements<typename A::tensor, why::dim<Dims>...>>(where);
    } else {
      constexpr extents shape = detail::reduced_shape(A::shape, named, false);
      a.owner->at(where);
      return detail::symbol_like<A, tensor_for<A::type, shape>>(a, emit::reshape(*a.owner, a.id, shape));
    }
  }
}

/// Adds dimensions of one element, which are dimensions Dims of the result: of an f32<4, 8>, expand_dims<0> is an
/// f32<1, 4, 8> and expand_dims<-1> an f32<4, 8, 1>.
/// Errors: `no_such_dimension`, `dimension_named_twice`, `wrong_rank` (of the result).
template <int... Dims, Traced A> constexpr auto expand_dims(const A& a, source_line where = source_line::current()) {
  static_assert(sizeof...(Dims) > 0, "expand_dims: name the dimensions of the result that are new, as expand_dims<0>");
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int rank = A::rank + static_cast<int>(sizeof...(Dims)); rank > max_rank) {
    return failed<why::wrong_rank<typename A::tensor>>(where, "expand_dims");
  } else if constexpr (constexpr std::int64_t named = detail::dimension_set<rank, Dims...>(); named < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dims>...>>(where, "expand_dims");
  } else if constexpr (!detail::named_once<Dims...>(named)) {
    return failed<why::dimension_named_twice<typename A::tensor, why::dim<Dims>...>>(where, "expand_dims");
  } else {
    constexpr extents shape = detail::expanded_shape(A::shape, named, static_cast<int>(sizeof...(Dims)));
    a.owner->at(where);
    return detail::symbol_like<A, tensor_for<A::type, shape>>(a, emit::reshape(*a.owner, a.id, shape));
  }
}

/// Repeated to these extents as NumPy broadcasts: dimensions correspond counted from the right, and where the tensor
/// has one element or no dimension it is repeated. Errors: `shape_mismatch`.
template <int... Extents, Traced A>
constexpr auto broadcast_to(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    using type = typename detail::dtype_row<A::type>::template tensor<Extents...>;
    if constexpr (constexpr extents both = detail::broadcast_shape(A::shape, type::shape);
                  both.rank < 0 || !(both == type::shape)) {
      return failed<why::shape_mismatch<typename A::tensor, type>>(where, "broadcast_to");
    } else {
      a.owner->at(where);
      return detail::symbol_like<A, type>(a, emit::broadcast_to(*a.owner, a.id, type::shape));
    }
  }
}

/// Element Index of dimension Dim, which disappears; a negative index counts from the end. `take<0, -1>(x)` is NumPy's
/// x[-1]. Of a tensor that is split along Dim, only the devices that have the element send it.
/// Errors: `no_such_dimension`, `out_of_bounds`.
template <int Dim, int Index, Traced A> constexpr auto take(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "take");
  } else {
    constexpr int extent = static_cast<int>(A::shape[along]);
    constexpr int index = Index < 0 ? Index + extent : Index;
    if constexpr (index < 0 || index >= extent) {
      return failed<why::out_of_bounds<typename A::tensor, why::dim<Dim>, why::extent<Index>>>(where, "take");
    } else {
      constexpr extents shape = detail::reduced_shape(A::shape, std::int64_t{1} << along, false);
      a.owner->at(where);
      const int element = emit::slice(*a.owner, a.id, along, index, 1);
      return detail::symbol_like<A, tensor_for<A::type, shape>>(a, emit::reshape(*a.owner, element, shape));
    }
  }
}

namespace detail {

/// Keeps a triangle of the last two dimensions: elements [i, j] with j - i <= Diagonal, or those with j - i >=
/// Diagonal.
template <bool Lower, int Diagonal, Traced A> constexpr auto triangle(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (A::rank < 2) {
    return failed<why::wrong_rank<typename A::tensor>>(where, Lower ? "tril" : "triu");
  } else {
    builder& b = *a.owner;
    b.at(where);
    const int column = emit::iota(b, dtype::i32, A::shape, A::rank - 1);
    int row = emit::iota(b, dtype::i32, A::shape, A::rank - 2);
    if constexpr (Diagonal != 0) row = emit::add(b, row, emit::constant_like(b, row, Diagonal));
    const int kept = emit::compare(b, ops::less_equal, Lower ? column : row, Lower ? row : column);
    return symbol_like<A, typename A::tensor>(a, emit::keep_where(b, kept, a.id));
  }
}

}  // namespace detail

/// The lower or upper triangle of the last two dimensions, with zeros elsewhere; diagonal 0 is the main one, 1 the one
/// above it. Errors: `wrong_rank`.
template <int Diagonal = 0, Traced A> constexpr auto tril(const A& a, source_line where = source_line::current()) {
  return detail::triangle<true, Diagonal>(a, where);
}
template <int Diagonal = 0, Traced A> constexpr auto triu(const A& a, source_line where = source_line::current()) {
  return detail::triangle<false, Diagonal>(a, where);
}

}  // namespace espalier
