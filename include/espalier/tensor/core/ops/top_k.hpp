// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/lowering.hpp>
#include <espalier/tensor/core/ops/further_result.hpp>
#include <espalier/tensor/core/ops/reasons/top_k.hpp>
#include <espalier/tensor/core/ops/reshape.hpp>
#include <espalier/tensor/core/ops/slice.hpp>

// The largest elements along a dimension, and where they are: two results of one op. Where the dimension is split, each
// device finds the largest of its shard, and all devices the largest of those; every other dimension may be split
// anyhow. The cotangent goes to where the elements were taken from (`put_along`), and the gradient of that takes it
// from there again (`take_along`).

namespace espalier {

/// Attributes of `top_k`, and of what moves elements along a dimension to and from places in it.
struct along_attributes {
  int dim = 0;
};

namespace detail {

/// True if element a comes before b although b has the earlier place: a is larger, or is a NaN, which is before all
/// numbers.
template <class T> [[nodiscard]] constexpr bool is_above(T a, T b) { return a > b || (a != a && b == b); }

/// Operands and results have the same dimensions, but for one, in which each has all of its own.
[[nodiscard]] constexpr factor_rule along_factors(op_view v) {
  factor_rule rule;
  const instruction& self = v.self();
  const int along = attributes_of<along_attributes>(v).dim;
  for (int d = 0; d < self.shape.rank; ++d) {
    if (d == along) continue;
    rule.result[d] = factor_list(rule.add(self.shape[d]));
    for (int k = 0; k < self.operand_count; ++k) rule.operand[k][d] = rule.result[d];
  }
  rule.result[along] = factor_list(rule.add(self.shape[along], factor_kind::blocked));
  for (int k = 0; k < self.operand_count; ++k) {
    rule.operand[k][along] = factor_list(rule.add(v.operand(k).shape[along], factor_kind::blocked));
  }
  return rule;
}

/// Calls `f(row, from, to)` for every row along dimension `along`, where two tensors that are alike otherwise have
/// `from_size` and `to_size` elements: with the places of its first elements. Neighbours in a row are `step` apart.
template <class F> constexpr void for_each_row(const extents& shape, int along, std::int64_t from_size, const F& f) {
  const std::int64_t step = stride_of(shape, along);
  const std::int64_t rows = shape.product(0, along) * step;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t outer = row / step;
    const std::int64_t inner = row % step;
    f(outer * from_size * step + inner, outer * shape[along] * step + inner, step);
  }
}

/// Selects the first `count` of `size` elements in their order and writes values and places to `to` and `places`. The
/// place of an element is its number plus `first`; or the entry of `given`, of which a negative one says that there is
/// no element. Elements of a row are `step` apart. Returns the number of selected elements, `count` at most.
template <class Compute, class T, class Index>
constexpr std::int64_t select_top(const T* from, std::int64_t size, std::int64_t step, std::int64_t count, T* to,
                                  Index* places, std::int64_t first = 0, const Index* given = nullptr) {
  std::int64_t kept = 0;
  for (std::int64_t n = 0; n < size; ++n) {
    if (given != nullptr && given[n * step] < 0) continue;
    const T element = from[n * step];
    const auto value = static_cast<Compute>(element);
    if (kept == count && !is_above(value, static_cast<Compute>(to[(count - 1) * step]))) continue;
    std::int64_t at = kept < count ? kept++ : count - 1;
    for (; at > 0 && is_above(value, static_cast<Compute>(to[(at - 1) * step])); --at) {
      to[at * step] = to[(at - 1) * step];
      places[at * step] = places[(at - 1) * step];
    }
    to[at * step] = element;
    places[at * step] = given != nullptr ? given[n * step] : static_cast<Index>(first + n);
  }
  return kept;
}
/// The same of a part of `valid` elements, whose first one has place `first`: what is missing has place -1.
template <class Compute, class T, class Index>
constexpr void select_top_of_part(const T* from, std::int64_t valid, std::int64_t step, std::int64_t count, T* to,
                                  Index* places, std::int64_t first) {
  for (std::int64_t n = select_top<Compute>(from, valid, step, count, to, places, first); n < count; ++n) {
    to[n * step] = T{};
    places[n * step] = Index{-1};
  }
}

constexpr void evaluate_top_k(const evaluation& e) {
  const int along = attributes_of<along_attributes>(*e.self).dim;
  const std::int64_t size = (*e.operand_shape[0])[along];
  const bool is_told_places = e.self->operand_count > 1;
  for_each_row(e.self->shape, along, size, [&](std::int64_t from, std::int64_t to, std::int64_t step) {
    const double* const given = is_told_places ? e.operand[1] + from : nullptr;
    static_cast<void>(select_top<double>(e.operand[0] + from, size, step, e.self->shape[along], e.result + to,
                                         e.further_result[0] + to, 0, given));
  });
}
constexpr void evaluate_part_of_top_k(const evaluation& e) {
  const int along = attributes_of<along_attributes>(*e.self).dim;
  const auto& part = e.boxes->operand[0].dim[along];
  for_each_row(e.self->shape, along, (*e.operand_shape[0])[along],
               [&](std::int64_t from, std::int64_t to, std::int64_t step) {
                 select_top_of_part<double>(e.operand[0] + from, part.size, step, e.self->shape[along], e.result + to,
                                            e.further_result[0] + to, part.start);
               });
}

/// Element j of a row is the one at place indices[j] of the operand's row; 0 if there is none.
constexpr void evaluate_take_along(const evaluation& e) {
  const int along = attributes_of<along_attributes>(*e.self).dim;
  const std::int64_t size = (*e.operand_shape[0])[along];
  for_each_row(e.self->shape, along, size, [&](std::int64_t from, std::int64_t to, std::int64_t step) {
    for (std::int64_t j = 0; j < e.self->shape[along]; ++j) {
      const double at = e.operand[1][to + j * step];
      const bool is_there = at >= 0 && at < static_cast<double>(size);
      e.result[to + j * step] = is_there ? e.operand[0][from + static_cast<std::int64_t>(at) * step] : 0;
    }
  });
}
/// Element j of the operand's row goes to place indices[j] of the result's, whose other elements are 0.
constexpr void evaluate_put_along(const evaluation& e) {
  const int along = attributes_of<along_attributes>(*e.self).dim;
  const std::int64_t size = e.self->shape[along];
  const std::int64_t count = (*e.operand_shape[0])[along];
  for (std::int64_t n = 0; n < e.self->shape.elements(); ++n) e.result[n] = 0;
  for_each_row(e.self->shape, along, count, [&](std::int64_t from, std::int64_t to, std::int64_t step) {
    for (std::int64_t j = 0; j < count; ++j) {
      const double at = e.operand[1][from + j * step];
      if (at >= 0 && at < static_cast<double>(size)) {
        e.result[to + static_cast<std::int64_t>(at) * step] = e.operand[0][from + j * step];
      }
    }
  });
}

constexpr void top_k_gradient(gradient_context& c);
constexpr void take_along_gradient(gradient_context& c);
constexpr void put_along_gradient(gradient_context& c);

[[nodiscard]] constexpr int lower_top_k(partition_context& context);

/// Each element is compared once, and those that are selected with a few of the others.
[[nodiscard]] constexpr std::int64_t top_k_flops(op_view v) { return v.operand(0).shape.elements(); }

}  // namespace detail

namespace ops {
/// Result 0 has the largest elements of operand 0 along a dimension, the largest first; result 1, i32, where they are.
/// On a device that found them in parts of the dimension, after its operand: the places of its elements.
inline constexpr op_info top_k{.name = "top_k",
                               .spread = propagation::dimensional,
                               .facts = {.attributes = "dim:dimension"},
                               .factors = detail::along_factors,
                               .gradient = detail::top_k_gradient,
                               .evaluate = detail::evaluate_top_k,
                               .flops = detail::top_k_flops,
                               .lower = detail::lower_top_k};
/// The largest elements of a device's part of a dimension, as many for each part, and their places in the whole of it,
/// -1 where the part has fewer.
inline constexpr op_info part_of_top_k{.name = "part_of_top_k",
                                       .spread = propagation::none,
                                       .facts = {.attributes = "dim:dimension"},
                                       .factors = detail::along_factors,
                                       .evaluate = detail::evaluate_part_of_top_k,
                                       .flops = detail::top_k_flops,
                                       .positional = true};
/// Elements of operand 0 from the places along a dimension that operand 1 says.
/// @pre those of one row are distinct
inline constexpr op_info take_along{.name = "take_along",
                                    .spread = propagation::dimensional,
                                    .linear = linearity::first,
                                    .facts = {.attributes = "dim:dimension"},
                                    .factors = detail::along_factors,
                                    .gradient = detail::take_along_gradient,
                                    .evaluate = detail::evaluate_take_along,
                                    .flops = detail::no_flops};
/// Elements of operand 0 at the places along a dimension that operand 1 says, and zeros.
/// @pre those of one row are distinct
inline constexpr op_info put_along{.name = "put_along",
                                   .spread = propagation::dimensional,
                                   .linear = linearity::first,
                                   .facts = {.attributes = "dim:dimension"},
                                   .factors = detail::along_factors,
                                   .gradient = detail::put_along_gradient,
                                   .evaluate = detail::evaluate_put_along,
                                   .flops = detail::no_flops};
}  // namespace ops

namespace emit {
/// The values; their places are the next instruction's.
constexpr int top_k(builder& b, int x, int dim, std::int64_t count) {
  extents shape = b[x].shape;
  shape[dim] = count;
  const int values = b.append(with_attributes(builder::make(ops::top_k, b[x].type, shape, x), along_attributes{dim}));
  further_result(b, values, 1, dtype::i32, shape);
  return values;
}
constexpr int take_along(builder& b, int x, int places, int dim) {
  return b.append(
      with_attributes(builder::make(ops::take_along, b[x].type, b[places].shape, x, places), along_attributes{dim}));
}
constexpr int put_along(builder& b, int x, int places, int dim, std::int64_t extent) {
  extents shape = b[x].shape;
  shape[dim] = extent;
  return b.append(with_attributes(builder::make(ops::put_along, b[x].type, shape, x, places), along_attributes{dim}));
}
}  // namespace emit

/// Lowers `top_k` along a dimension that is split, if few elements are wanted: the largest of each shard, and their
/// places, go to all devices, and the largest of these are those of the whole. Returns -1 if less moves when the
/// dimension is made whole, or split elsewhere.
[[nodiscard]] constexpr int detail::lower_top_k(partition_context& context) {
  instruction self = context.op().self();
  const int along = attributes_of<along_attributes>(self).dim;
  const extents from = context.op().operand(0).shape;
  const sharding placed = context.layout_of(context.operand(0)).placement;
  const mesh_shape& mesh = context.mesh();
  const std::int64_t parts = mesh.parts(placed.dim[along]);
  const std::int64_t wanted = self.shape[along];
  if (parts <= 1 || placed.unreduced != 0) return -1;
  // Bytes that a device receives, for each row of those that it has.
  const std::int64_t part = local_extent(mesh, from[along], placed.dim[along]);
  const std::int64_t pair = size_of(self.type) + size_of(dtype::i32);
  const std::int64_t of_candidates = (parts - 1) * wanted * pair;
  std::int64_t otherwise = (from[along] - part) * size_of(self.type);
  if (sharding elsewhere = placed; split_elsewhere(mesh, from, along, elsewhere)) {
    bool stays = true;
    for (int d = 0; d < from.rank; ++d)
      stays = stays && context.completed_layout().dim[d].mask() == elsewhere.dim[d].mask();
    const std::int64_t there = part * size_of(self.type) + (stays ? 0 : wanted * pair);
    otherwise = there * (parts - 1) / parts;
  }
  if (of_candidates >= otherwise) return -1;

  const auto places_of = [&](int value, const extents& shape, const sharding& how) {
    return context.append(
        with_attributes(builder::make(ops::further_result, dtype::i32, extents{}, value), further_result_attributes{1}),
        shape, how);
  };
  extents candidates = self.shape;
  candidates[along] = parts * wanted;
  instruction mine = self;
  mine.op = &ops::part_of_top_k;
  mine.operand[0] = context.operand(0);
  const int values = context.append(mine, candidates, placed);
  const int places = places_of(values, candidates, placed);
  sharding whole = placed;
  whole.dim[along] = {};
  self.operand[0] = context.reshard(values, whole);
  self.operand[1] = context.reshard(places, whole);
  self.operand_count = 2;
  const int top = context.append(self, self.shape, whole);
  context.give(1, places_of(top, self.shape, whole));
  return top;
}

constexpr void detail::top_k_gradient(gradient_context& c) {
  const int along = attributes_of<along_attributes>(c).dim;
  const std::int64_t extent = c.emit[c.operand(0)].shape[along];
  c.give(0, emit::put_along(c.emit, c.cotangent, c.id + 1, along, extent));
}
constexpr void detail::take_along_gradient(gradient_context& c) {
  const int along = attributes_of<along_attributes>(c).dim;
  const std::int64_t extent = c.emit[c.operand(0)].shape[along];
  c.give(0, emit::put_along(c.emit, c.cotangent, c.operand(1), along, extent));
}
constexpr void detail::put_along_gradient(gradient_context& c) {
  c.give(0, emit::take_along(c.emit, c.cotangent, c.operand(1), attributes_of<along_attributes>(c).dim));
}

/// The result of `top_k` and `max_with_index`.
template <class Values, class Indices> struct top_elements {
  Values values;
  Indices indices;
};

/// The Count largest elements along dimension Dim, the largest first, and their indices, i32. Of equal elements the
/// first comes first; a NaN is above all numbers. The cotangent of the values goes to those elements.
/// Errors: `no_such_dimension`, `top_k_out_of_range`.
template <int Dim, int Count, Traced A> constexpr auto top_k(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return top_elements<A, A>{a, a};
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    using reason = failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>;
    return top_elements<reason, reason>{reason(where, "top_k"), reason(where, "top_k")};
  } else if constexpr (Count < 1 || Count > A::shape[along]) {
    using reason = failed<why::top_k_out_of_range<typename A::tensor, why::dim<Dim>, why::count<Count>>>;
    return top_elements<reason, reason>{reason(where), reason(where)};
  } else {
    builder& b = *a.owner;
    b.at(where);
    constexpr extents shape = detail::with_extent(A::shape, along, Count);
    const int values = emit::top_k(b, a.id, along, Count);
    return top_elements<symbol<typename A::mesh, tensor_for<A::type, shape>>,
                        symbol<typename A::mesh, tensor_for<dtype::i32, shape>>>{{b, values}, {b, values + 1}};
  }
}

/// The largest element along dimension Dim, which disappears, and its index, i32: of equal ones the first, and the
/// first NaN if there is one. Errors: `no_such_dimension`, `top_k_out_of_range` where the dimension is empty.
template <int Dim, Traced A> constexpr auto max_with_index(const A& a, source_line where = source_line::current()) {
  const auto top = top_k<Dim, 1>(a, where);
  if constexpr (Failed<std::remove_cvref_t<decltype(top.values)>>) {
    return top;
  } else {
    constexpr extents shape = [] {
      extents rest;
      for (int d = 0; d < A::rank; ++d) {
        if (d != detail::dimension(Dim, A::rank)) rest.append(A::shape[d]);
      }
      return rest;
    }();
    builder& b = *a.owner;
    const int values = emit::reshape(b, top.values.id, shape);
    const int indices = emit::reshape(b, top.indices.id, shape);
    return top_elements<symbol<typename A::mesh, tensor_for<A::type, shape>>,
                        symbol<typename A::mesh, tensor_for<dtype::i32, shape>>>{{b, values}, {b, indices}};
  }
}

}  // namespace espalier
