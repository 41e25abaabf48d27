// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/concat.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/operand_list.hpp>
#include <espalier/tensor/core/ops/reasons/rearrange.hpp>
#include <espalier/tensor/core/ops/reshape.hpp>
#include <espalier/tensor/core/ops/roll.hpp>

#include <array>
#include <cstddef>
#include <utility>

namespace espalier {

// Ops that consist of slices, pads and joins. Along a dimension that is split only the elements that change their
// device move: a shift by one of 8 elements on 4 devices sends one element to each neighbour.

namespace emit {
/// x[n - 1], ..., x[0] along one dimension.
constexpr int reverse(builder& b, int a, int dim) {
  const std::int64_t n = b[a].shape[dim];
  return n == 1 ? a : slice(b, a, dim, n - 1, n, -1);
}
/// Zeros before, after and between the elements of one dimension; negative numbers of them before or after take
/// elements (or zeros in between) away. Elements are taken away first, so they need not move.
constexpr int pad_around(builder& b, int a, int dim, std::int64_t low, std::int64_t high, std::int64_t between) {
  const std::int64_t step = between + 1;
  const std::int64_t n = b[a].shape[dim];
  extents shape = b[a].shape;
  shape[dim] = (n - 1) * step + 1 + low + high;
  const std::int64_t first = low < 0 ? ceil_div(-low, step) : 0;
  const std::int64_t room = shape[dim] - 1 - low;
  const std::int64_t last = room < 0 ? -1 : room / step < n - 1 ? room / step : n - 1;
  if (last < first) return constant(b, b[a].type, shape, 0);
  // Elements that are moved keep the layout of the dimension: a tensor of some fewer would be split in other places.
  if (step == 1 && (low > 0 || high > 0)) return pad(b, a, dim, low, shape[dim]);
  const int kept = slice(b, a, dim, first, last - first + 1);
  return pad(b, kept, dim, low + first * step, shape[dim], step);
}
}  // namespace emit

/// The elements of dimension Dim in reverse order. Errors: `no_such_dimension`.
template <int Dim, Traced A> constexpr auto reverse(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "reverse");
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, typename A::tensor>(a, emit::reverse(*a.owner, a.id, along));
  }
}

/// Dimension Dim with Low elements of `value` before it, High after it and Between between each two of its own.
/// Negative Low and High take elements away. Errors: `no_such_dimension`, `nothing_is_left`, `too_many_elements`.
template <int Dim, int Low, int High, int Between = 0, Traced A>
constexpr auto pad(const A& a, double value = 0, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "pad");
  } else {
    constexpr std::int64_t size = (A::shape[along] - 1) * (Between + 1) + 1 + Low + High;
    if constexpr (size < 1 || Between < 0) {
      return failed<why::nothing_is_left<typename A::tensor, why::dim<Dim>>>(where, "pad");
    } else if constexpr (size > most_extent) {
      return failed<why::too_many_elements<typename A::tensor, why::dim<Dim>>>(where, "pad");
    } else {
      builder& b = *a.owner;
      b.at(where);
      constexpr extents shape = detail::with_extent(A::shape, along, size);
      int made = emit::pad_around(b, a.id, along, Low, High, Between);
      if (value != 0) {
        // An index that is not a multiple of the distance, or lies outside, is padding.
        const int index = emit::iota(b, dtype::i32, shape, along);
        const int at = emit::subtract(b, index, emit::constant(b, dtype::i32, shape, Low));
        const int nearest =
            emit::scale(b, emit::divide(b, at, emit::constant(b, dtype::i32, shape, Between + 1)), Between + 1);
        const int real = emit::compare(b, ops::equal, nearest, at);
        const int inside = emit::compare(
            b, ops::less_equal, at,
            emit::constant(b, dtype::i32, shape, static_cast<double>((A::shape[along] - 1) * (Between + 1))));
        const int from_start = emit::compare(b, ops::less_equal, emit::constant(b, dtype::i32, shape, 0), at);
        const int fill = emit::constant(b, A::type, shape, value);
        made = emit::select(b, real, emit::select(b, inside, emit::select(b, from_start, made, fill), fill), fill);
      }
      return detail::symbol_like<A, tensor_for<A::type, shape>>(a, made);
    }
  }
}

/// Element i of dimension Dim goes to i + By; zeros come in, and what leaves is lost.
/// Errors: `no_such_dimension`, `nothing_is_left`.
template <int Dim, int By, Traced A> constexpr auto shift(const A& a, source_line where = source_line::current()) {
  if constexpr (!Failed<A>) {
    if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along >= 0) {
      if constexpr (By >= A::shape[along] || -By >= A::shape[along]) {
        return failed<why::nothing_is_left<typename A::tensor, why::dim<Dim>>>(where, "shift");
      } else {
        return pad<Dim, By, -By>(a, 0, where);
      }
    } else {
      return pad<Dim, By, -By>(a, 0, where);
    }
  } else {
    return a;
  }
}

/// Dimension Dim in Parts equal parts, as an array of tensors. Errors: `no_such_dimension`, `parts_do_not_divide`.
template <int Dim, int Parts, Traced A> constexpr auto split(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "split");
  } else if constexpr (Parts < 1 || A::shape[along] % Parts != 0) {
    return failed<why::parts_do_not_divide<typename A::tensor, why::dim<Dim>, why::count<Parts>>>(where);
  } else {
    constexpr std::int64_t size = A::shape[along] / Parts;
    using part = symbol<typename A::mesh, tensor_for<A::type, detail::with_extent(A::shape, along, size)>>;
    a.owner->at(where);
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return std::array<part, static_cast<std::size_t>(Parts)>{
          part(*a.owner, emit::slice(*a.owner, a.id, along, static_cast<std::int64_t>(K) * size, size))...};
    }
    (std::make_index_sequence<static_cast<std::size_t>(Parts)>{});
  }
}

namespace detail {
/// `shape` with a dimension of one element before dimension `dim`.
[[nodiscard]] constexpr extents with_dimension(const extents& shape, int dim) {
  extents result;
  for (int d = 0; d < shape.rank; ++d) {
    if (d == dim) result.append(1);
    result.append(shape[d]);
  }
  if (dim == shape.rank) result.append(1);
  return result;
}

template <int Dim> struct stack_along {
  template <Traced First, Traced... Rest>
  static constexpr auto of(source_line where, const First& first, const Rest&... rest) {
    if constexpr (Failed<First> || (Failed<Rest> || ...)) {
      return first_failure(first, rest...);
    } else if constexpr (constexpr int along = dimension(Dim, First::rank + 1); along < 0 || First::rank >= max_rank) {
      return failed<why::no_such_dimension<typename First::tensor, why::dim<Dim>>>(where, "stack");
    } else if constexpr (!((First::shape == Rest::shape) && ...)) {
      return failed<why::concat_shape_mismatch<typename First::tensor, typename Rest::tensor...>>(where, "stack");
    } else if constexpr (!((First::type == Rest::type) && ...)) {
      return failed<why::dtype_mismatch<typename First::tensor, typename Rest::tensor...>>(where, "stack");
    } else {
      constexpr extents one = with_dimension(First::shape, along);
      builder& b = *first.owner;
      b.at(where);
      using on = operands_mesh<First, Rest...>;
      const int parts[]{emit::reshape(b, operand_on<on>(b, first), one),
                        emit::reshape(b, operand_on<on>(b, rest), one)...};
      constexpr int count = 1 + static_cast<int>(sizeof...(Rest));
      return symbol_like<First, tensor_for<First::type, with_extent(one, along, count)>>(
          first, emit::concat(b, &parts[0], count, along), rest...);
    }
  }
};
}  // namespace detail

/// Tensors of equal shape, of which there may be any number, as the elements of a new dimension Dim of the result.
/// Errors: `no_such_dimension`, `concat_shape_mismatch`, `dtype_mismatch`.
template <int Dim, Traced A, Traced B, detail::OperandOrNone C = detail::no_operand,
          detail::OperandOrNone D = detail::no_operand>
constexpr auto stack(const A& a, const B& b, const C& c = {}, const D& d = {},
                     source_line where = source_line::current()) {
  return detail::of_present<detail::stack_along<Dim>>(where, a, b, c, d);
}
template <int Dim, Traced First, Traced... Rest>
  requires(sizeof...(Rest) >= 4)
constexpr auto stack(First first, Rest... rest) { return detail::of_many<detail::stack_along<Dim>>(first, rest...); }

}  // namespace espalier
