// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/gather.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reasons/dynamic_slice.hpp>
#include <espalier/tensor/core/ops/slice.hpp>

#include <cstdint>

// Slices that start where a number says that is known only when the program runs: one page of a cache, one layer of a
// stack. The tensor never moves: a device that owns elements of the slice hands them out or overwrites them.

namespace espalier {

/// The slice that `dynamic_slice` cuts out.
struct dynamic_slice_attributes {
  int dim = 0;
  /// Elements of that dimension in the whole tensor, and in the whole slice.
  std::int64_t extent = 0;
  std::int64_t size = 0;
};

/// The dimensions along which `dynamic_update_slice` writes an update that is smaller than the tensor there, and the
/// number of elements they have in the whole tensor. Operand 2 is the start along the first of them, operand 3, if
/// there is one, along the second.
struct dynamic_update_slice_attributes {
  int dim = 0;
  std::int64_t extent = 0;
  int second_dim = 0;
  std::int64_t second_extent = 0;

  [[nodiscard]] constexpr int dim_of(int start) const { return start == 2 ? dim : second_dim; }
  [[nodiscard]] constexpr std::int64_t extent_of(int start) const { return start == 2 ? extent : second_extent; }
};

namespace detail {

/// Returns the start of a slice of `size` elements that is to start at `start`: as in XLA, the nearest place at which
/// all of it lies inside a dimension of `extent` elements. (4 of 10 from 8 on start at 6, from -3 on at 0.)
[[nodiscard]] constexpr std::int64_t clamped_start(std::int64_t start, std::int64_t extent, std::int64_t size) {
  const std::int64_t last = extent - size;
  return start < 0 ? 0 : start > last ? last : start;
}

/// The elements of the slice that a device has to give are real rows [first, first + count) of its part of the result;
/// `from` is the first of them in its part of the operand. Both may be split: the slice [6, 10) is rows [1, 4) of a
/// device with elements [7, 14), and of those the device with rows [2, 4) of the slice has [0, 2).
struct owned_rows {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t from = 0;
};
[[nodiscard]] constexpr owned_rows rows_of_slice(std::int64_t start, interval slice, interval held) {
  const std::int64_t offset = start + slice.start - held.start;  // of the slice's first row, in the operand's part
  const std::int64_t first = offset < 0 ? -offset : 0;
  const std::int64_t end = held.size - offset < slice.size ? held.size - offset : slice.size;
  if (end <= first) return {};
  return {first, end - first, offset + first};
}

/// Returns the value that a device gives for elements that it does not own: added to any element, it leaves every bit
/// of it. (0 would turn -0 into 0.)
[[nodiscard]] constexpr double not_owned(dtype type) { return is_floating(type) ? -0.0 : 0.0; }

[[nodiscard]] constexpr int row_of_slice(op_view v) {
  const auto slice = attributes_of<dynamic_slice_attributes>(v);
  return slice.size == 1 ? slice.dim : -1;
}

/// `shc,->sKc`: operand 0 is the tensor, operand 1 the start. A device that holds part of the sliced dimension gives
/// the elements it owns, and `not_owned` for the others, so that the results of all devices add up, as of `gather`; of
/// truth values, any that is true counts. The slice itself may be split over axes that do not split the tensor there.
[[nodiscard]] constexpr factor_rule dynamic_slice_factors(op_view v) {
  factor_rule rule;
  const extents& from = v.operand(0).shape;
  const int along = attributes_of<dynamic_slice_attributes>(v).dim;
  if (v.self().type == dtype::boolean) rule.combine = reduction::max;
  for (int d = 0; d < from.rank; ++d) {
    if (d == along) {
      rule.operand[0][d] = factor_list(rule.add(from[d], factor_kind::reduce));
      rule.result[d] = factor_list(rule.add(v.self().shape[d]));
    } else {
      rule.operand[0][d] = rule.result[d] = factor_list(rule.add(from[d]));
    }
  }
  return rule;
}

/// Whether `dynamic_update_slice` writes only some elements of dimension d.
[[nodiscard]] constexpr bool is_placed(const instruction& update_slice, int d) {
  const auto placed = attributes_of<dynamic_update_slice_attributes>(update_slice);
  for (int k = 2; k < update_slice.operand_count; ++k) {
    if (placed.dim_of(k) == d) return true;
  }
  return false;
}

/// `shc,sKc,->shc`: operand 0 is the tensor, operand 1 the update, the others are starts. The result is laid out as the
/// tensor; each device overwrites what it owns, for which it needs all of the update along the placed dimensions.
[[nodiscard]] constexpr factor_rule dynamic_update_slice_factors(op_view v) {
  factor_rule rule;
  const extents& to = v.self().shape;
  for (int d = 0; d < to.rank; ++d) {
    rule.operand[0][d] = rule.result[d] = factor_list(rule.add(to[d]));
    rule.operand[1][d] =
        is_placed(v.self(), d) ? factor_list(rule.add(v.operand(1).shape[d], factor_kind::blocked)) : rule.result[d];
  }
  return rule;
}

constexpr void dynamic_slice_gradient(gradient_context& c);
constexpr void dynamic_update_slice_gradient(gradient_context& c);
constexpr mapped_value map_dynamic_slice(map_context& c);
constexpr mapped_value map_dynamic_update_slice(map_context& c);

constexpr void evaluate_dynamic_slice(const evaluation& e) {
  const instruction& self = *e.self;
  const auto [along, extent, size] = attributes_of<dynamic_slice_attributes>(self);
  const std::int64_t start = clamped_start(static_cast<std::int64_t>(e.operand[1][0]), extent, size);
  const interval slice = e.boxes->result.dim[along];
  const interval held = e.boxes->operand[0].dim[along];
  const std::int64_t inner = stride_of(self.shape, along);
  const std::int64_t rows = self.shape[along];
  for (std::int64_t i = 0; i < self.shape.elements(); ++i) {
    const std::int64_t outer = i / (inner * rows);
    const std::int64_t row = i / inner % rows;
    const std::int64_t at = start + slice.start + row - held.start;
    const bool mine = row < slice.size && at >= 0 && at < held.size;
    e.result[i] =
        mine ? e.operand[0][(outer * (*e.operand_shape[0])[along] + at) * inner + i % inner] : not_owned(self.type);
  }
}

constexpr void evaluate_dynamic_update_slice(const evaluation& e) {
  const instruction& self = *e.self;
  const extents& update = *e.operand_shape[1];
  const auto placed = attributes_of<dynamic_update_slice_attributes>(self);
  std::int64_t first[max_rank]{};
  for (int k = 2; k < self.operand_count; ++k) {
    const int d = placed.dim_of(k);
    first[d] = clamped_start(static_cast<std::int64_t>(e.operand[k][0]), placed.extent_of(k), update[d]) -
               e.boxes->result.dim[d].start;
  }
  for (std::int64_t i = 0; i < self.shape.elements(); ++i) {
    bool written = true;
    std::int64_t from = 0;
    for (int d = 0; d < self.shape.rank; ++d) {
      const std::int64_t at = i / stride_of(self.shape, d) % self.shape[d];
      written = written && at >= first[d] && at < first[d] + update[d] && at < e.boxes->result.dim[d].size;
      from += (at - first[d]) * stride_of(update, d);
    }
    e.result[i] = written ? e.operand[1][from] : e.operand[0][i];
  }
}

}  // namespace detail

namespace ops {
/// Some elements of one dimension of operand 0, from operand 1 on.
inline constexpr op_info dynamic_slice{
    .name = "dynamic_slice",
    .spread = propagation::dimensional,
    .linear = linearity::first,
    .facts = {.row_of = detail::row_of_slice, .attributes = "dim:dimension extent size"},
    .factors = detail::dynamic_slice_factors,
    .gradient = detail::dynamic_slice_gradient,
    .evaluate = detail::evaluate_dynamic_slice,
    .flops = detail::no_flops,
    .positional = true,
    .map = detail::map_dynamic_slice};
/// Operand 0 with operand 1 written into it, from operand 2 on along one dimension and, if there is an operand 3, from
/// there on along another. Writes nothing else where operand 0 is not needed any more.
inline constexpr op_info dynamic_update_slice{
    .name = "dynamic_update_slice",
    .spread = propagation::dimensional,
    .facts = {.overwrites = 0, .attributes = "dim:dimension extent second_dim:dimension second_extent"},
    .factors = detail::dynamic_update_slice_factors,
    .gradient = detail::dynamic_update_slice_gradient,
    .evaluate = detail::evaluate_dynamic_update_slice,
    .flops = detail::no_flops,
    .positional = true,
    .map = detail::map_dynamic_update_slice};
}  // namespace ops

namespace emit {
constexpr int dynamic_slice(builder& b, int a, int start, int dim, std::int64_t size) {
  extents shape = b[a].shape;
  if (size == shape[dim]) return a;
  return b.append(
      with_attributes(builder::make(ops::dynamic_slice, b[a].type, detail::with_extent(shape, dim, size), a, start),
                      dynamic_slice_attributes{dim, shape[dim], size}));
}

/// The place of an update along one dimension.
struct placed_at {
  int dim = -1;
  int start = -1;
};
/// The tensor that an update was cut out of, if it is written where it was cut: at a start that is known, along one
/// dimension. Then every element stays where it is, and nothing has to move. Otherwise -1.
[[nodiscard]] constexpr int cut_in_place(const builder& b, int a, int update, placed_at at) {
  const instruction& cut = b[update];
  const instruction& start = b[at.start];
  if (start.op != &ops::constant || cut.op != &ops::slice) return -1;
  const auto from_whole = attributes_of<slice_attributes>(cut);
  if (from_whole.dim != at.dim || from_whole.step != 1) return -1;
  const std::int64_t from =
      detail::clamped_start(static_cast<std::int64_t>(start.scalar), b[a].shape[at.dim], cut.shape[at.dim]);
  return from_whole.start == from && b[cut.operand[0]].shape == b[a].shape ? cut.operand[0] : -1;
}

/// @pre the update has the tensor's extents in all dimensions but those of `first` and `second`, which differ.
constexpr int dynamic_update_slice(builder& b, int a, int update, placed_at first, placed_at second = {}) {
  if (const int whole = second.dim < 0 && first.dim >= 0 ? cut_in_place(b, a, update, first) : -1; whole >= 0) {
    const extents shape = b[a].shape;
    const std::int64_t start = attributes_of<slice_attributes>(b[update]).start;
    const int index = iota(b, dtype::i32, shape, first.dim);
    const auto limit = [&](std::int64_t at) { return constant(b, dtype::i32, shape, static_cast<double>(at)); };
    const int after = compare(b, ops::less, index, limit(start + b[update].shape[first.dim]));
    const int before = compare(b, ops::less, index, limit(start));
    return select(b, before, a, select(b, after, whole, a));
  }
  instruction made = builder::make(ops::dynamic_update_slice, b[a].type, b[a].shape, a, update);
  dynamic_update_slice_attributes placed;
  for (const placed_at& one : {first, second}) {
    // An update that has all elements of a dimension can start nowhere but at 0.
    if (one.dim < 0 || b[update].shape[one.dim] == b[a].shape[one.dim]) continue;
    const bool is_first = made.operand_count == 2;
    (is_first ? placed.dim : placed.second_dim) = one.dim;
    (is_first ? placed.extent : placed.second_extent) = b[a].shape[one.dim];
    made.operand[made.operand_count++] = one.start;
  }
  set_attributes(made, placed);
  return made.operand_count == 2 ? detail::unchanged(b, update) : b.append(made);
}
}  // namespace emit

constexpr void detail::dynamic_slice_gradient(gradient_context& c) {
  const int zeros = emit::constant_like(c.emit, c.operand(0), 0);
  c.give(0, emit::dynamic_update_slice(c.emit, zeros, c.cotangent,
                                       {attributes_of<dynamic_slice_attributes>(c).dim, c.operand(1)}));
}
constexpr void detail::dynamic_update_slice_gradient(gradient_context& c) {
  const instruction self = c.self();
  emit::placed_at at[2];
  const auto placed = attributes_of<dynamic_update_slice_attributes>(self);
  for (int k = 2; k < self.operand_count; ++k) at[k - 2] = {placed.dim_of(k), c.operand(k)};
  const int zeros = emit::constant_like(c.emit, self.operand[1], 0);
  c.give(0, emit::dynamic_update_slice(c.emit, c.cotangent, zeros, at[0], at[1]));
  int written = c.cotangent;
  for (int k = 2; k < self.operand_count; ++k) {
    const int d = at[k - 2].dim;
    written = emit::dynamic_slice(c.emit, written, at[k - 2].start, d, c.emit[self.operand[1]].shape[d]);
  }
  c.give(1, written);
}

namespace detail {
/// Of each lane's start, where its slice of `size` elements lies inside of `extent`: as `clamped_start`.
constexpr int clamped_starts(builder& b, int starts, std::int64_t extent, std::int64_t size) {
  const int from = emit::convert(b, starts, index_type(b[starts].type));
  const int least = emit::constant_like(b, from, 0);
  const int most = emit::constant_like(b, from, static_cast<double>(extent - size));
  const int above = b.append(ops::maximum, b[from].type, b[from].shape, from, least);
  return b.append(ops::minimum, b[from].type, b[from].shape, above, most);
}
/// Starts [lanes] as [lanes, count], with the numbers 0 ... count - 1 added, or taken away from those.
constexpr int counted_from(builder& b, int starts, std::int64_t count, bool is_difference) {
  const extents shape = with_dimension(b[starts].shape, 1, count);
  const int first = emit::broadcast_along(b, starts, shape, 0b10);
  const int index = emit::iota(b, b[starts].type, shape, 1);
  return is_difference ? b.append(ops::subtract, b[starts].type, shape, index, first)
                       : b.append(ops::add, b[starts].type, shape, first, index);
}

/// Where each lane has a start of its own, a slice is a lookup of as many rows.
constexpr mapped_value map_dynamic_slice(map_context& c) {
  builder& b = c.emit();
  instruction made = c.op().self();
  auto slice = attributes_of<dynamic_slice_attributes>(made);
  if (c.is_mapped(1)) {
    const int starts = clamped_starts(b, c.operand(1, 0), slice.extent, slice.size);
    const int rows = counted_from(b, starts, slice.size, false);
    if (c.is_mapped(0)) return {emit::gather(b, c.operand(0, 0), rows, slice.dim + 1, 1), 0};
    return {emit::gather(b, c.operand(0), rows, slice.dim), slice.dim};
  }
  ++slice.dim;
  made.operand[0] = c.operand(0, 0);
  made.operand[1] = c.operand(1);
  made.shape = with_dimension(made.shape, 0, c.lanes());
  set_attributes(made, slice);
  return {b.append(made), 0};
}
/// Where each lane has a start of its own, an element comes from the update, looked up, or from the tensor.
constexpr mapped_value map_dynamic_update_slice(map_context& c) {
  builder& b = c.emit();
  instruction made = c.op().self();
  auto placed = attributes_of<dynamic_update_slice_attributes>(made);
  const int tensor = c.operand(0, 0);
  int update = c.operand(1, 0);
  bool has_starts = false;
  for (int k = 2; k < made.operand_count; ++k) has_starts = has_starts || c.is_mapped(k);
  if (!has_starts) {
    ++placed.dim;
    if (made.operand_count > 3) ++placed.second_dim;
    made.operand[0] = tensor;
    made.operand[1] = update;
    for (int k = 2; k < made.operand_count; ++k) made.operand[k] = c.operand(k);
    made.shape = with_dimension(made.shape, 0, c.lanes());
    set_attributes(made, placed);
    return {b.append(made), 0};
  }
  const extents shape = b[tensor].shape;
  int is_written = -1;
  for (int k = 2; k < made.operand_count; ++k) {
    const int dim = placed.dim_of(k) + 1;
    const std::int64_t extent = shape[dim];
    const std::int64_t size = b[update].shape[dim];
    const int rows = counted_from(b, clamped_starts(b, c.operand(k, 0), extent, size), extent, true);
    update = emit::gather(b, update, rows, dim, 1);
    const auto limit = [&](std::int64_t at) { return emit::constant_like(b, rows, static_cast<double>(at)); };
    const int after = emit::compare(b, ops::less_equal, limit(0), rows);
    const int before = emit::compare(b, ops::less, rows, limit(size));
    const int inside = b.append(ops::logical_and, dtype::boolean, b[rows].shape, after, before);
    const std::int64_t others = ((std::int64_t{1} << shape.rank) - 1) & ~(std::int64_t{1} | std::int64_t{1} << dim);
    const int here = emit::broadcast_along(b, inside, shape, others);
    is_written = is_written < 0 ? here : b.append(ops::logical_and, dtype::boolean, shape, is_written, here);
  }
  return {emit::select(b, is_written, update, tensor), 0};
}

template <class Start> [[nodiscard]] constexpr bool is_start() { return Start::rank == 0 && is_integer(Start::type); }

/// Whether an update has a tensor's extents in all dimensions but these two. (The second may be -1.)
[[nodiscard]] constexpr bool fits_beside(const extents& update, const extents& to, int first, int second) {
  if (update.rank != to.rank || first == second) return false;
  for (int d = 0; d < to.rank; ++d) {
    if (d != first && d != second && update[d] != to[d]) return false;
  }
  return true;
}
[[nodiscard]] constexpr bool is_part(std::int64_t size, std::int64_t extent) { return size >= 1 && size <= extent; }

/// Returns the mistake that `dynamic_update_slice` reports for one of its dimensions, or void.
template <class A, class Update, int Dim, class Start> [[nodiscard]] constexpr auto placing_mistake() {
  constexpr int along = dimension(Dim, A::rank);
  if constexpr (along < 0) {
    return std::type_identity<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>{};
  } else if constexpr (!is_start<Start>()) {
    return std::type_identity<why::start_is_not_an_integer_scalar<typename Start::tensor>>{};
  } else if constexpr (Update::rank == A::rank && !is_part(Update::shape[along], A::shape[along])) {
    return std::type_identity<why::slice_does_not_fit<typename A::tensor, why::dim<Dim>, typename Update::tensor>>{};
  } else {
    return std::type_identity<void>{};
  }
}
}  // namespace detail

/// Size elements of dimension Dim, from element `start` on, an integer scalar that is known when the program runs. A
/// start from which the slice would leave the tensor is moved to the nearest one from which it does not, as in XLA.
/// Along several dimensions: one after the other.
/// A tensor that is split along Dim stays where it is. A slice of one element is sent by its owner; of a longer one,
/// what its owners have is added up, bit by bit the same on any number of devices.
/// Errors: `no_such_dimension`, `start_is_not_an_integer_scalar`, `slice_does_not_fit`.
template <int Dim, int Size, Traced A, Traced Start>
constexpr auto dynamic_slice(const A& a, const Start& start, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<Start>) {
    return detail::first_failure(a, start);
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "dynamic_slice");
  } else if constexpr (!detail::is_start<Start>()) {
    return failed<why::start_is_not_an_integer_scalar<typename Start::tensor>>(where);
  } else if constexpr (!detail::is_part(Size, A::shape[along])) {
    return failed<why::slice_does_not_fit<typename A::tensor, why::dim<Dim>, why::extent<Size>>>(where);
  } else {
    builder& b = *a.owner;
    b.at(where);
    using on = detail::operands_mesh<A, Start>;
    return detail::symbol_like<A, tensor_for<A::type, detail::with_extent(A::shape, along, Size)>>(
        a, emit::dynamic_slice(b, detail::operand_on<on>(b, a), detail::operand_of(b, start), along, Size), start);
  }
}

/// `a` with `update` in place of as many of its elements along dimension Dim, from element `start` on, which is moved
/// as `dynamic_slice` moves it. In all other dimensions the update has the extents of `a`.
/// A tensor that is split along Dim stays where it is: each device overwrites what it owns. Where nothing reads `a`
/// afterwards (the carry of a loop, a donated argument) nothing else is written.
/// Errors: `no_such_dimension`, `start_is_not_an_integer_scalar`, `slice_does_not_fit`, `update_does_not_fit`,
/// `dtype_mismatch`.
template <int Dim, Traced A, Traced Update, Traced Start>
constexpr auto dynamic_update_slice(const A& a, const Update& update, const Start& start,
                                    source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<Update> || Failed<Start>) {
    return detail::first_failure(a, update, start);
  } else {
    using mistake = typename decltype(detail::placing_mistake<A, Update, Dim, Start>())::type;
    constexpr int along = detail::dimension(Dim, A::rank);
    if constexpr (!std::is_void_v<mistake>) {
      return failed<mistake>(where);
    } else if constexpr (!detail::fits_beside(Update::shape, A::shape, along, -1)) {
      return failed<why::update_does_not_fit<typename A::tensor, typename Update::tensor>>(where);
    } else if constexpr (Update::type != A::type) {
      return failed<why::dtype_mismatch<typename A::tensor, typename Update::tensor>>(where, "dynamic_update_slice");
    } else {
      builder& b = *a.owner;
      b.at(where);
      using on = detail::operands_mesh<A, Update, Start>;
      return detail::symbol_like<A, typename A::tensor>(
          a,
          emit::dynamic_update_slice(b, detail::operand_on<on>(b, a), detail::operand_on<on>(b, update),
                                     {along, detail::operand_of(b, start)}),
          update, start);
    }
  }
}

/// The same along two dimensions at once, each with a start of its own: `dynamic_update_slice<0, 2>(cache, keys, layer,
/// position)`. Errors: the same.
template <int First, int Second, Traced A, Traced Update, Traced Start, Traced SecondStart>
constexpr auto dynamic_update_slice(const A& a, const Update& update, const Start& start,
                                    const SecondStart& second_start, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<Update> || Failed<Start> || Failed<SecondStart>) {
    return detail::first_failure(a, update, start, second_start);
  } else {
    using mistake = typename decltype(detail::placing_mistake<A, Update, First, Start>())::type;
    using second_mistake = typename decltype(detail::placing_mistake<A, Update, Second, SecondStart>())::type;
    constexpr int first = detail::dimension(First, A::rank);
    constexpr int second = detail::dimension(Second, A::rank);
    if constexpr (!std::is_void_v<mistake>) {
      return failed<mistake>(where);
    } else if constexpr (!std::is_void_v<second_mistake>) {
      return failed<second_mistake>(where);
    } else if constexpr (!detail::fits_beside(Update::shape, A::shape, first, second)) {
      return failed<why::update_does_not_fit<typename A::tensor, typename Update::tensor>>(where);
    } else if constexpr (Update::type != A::type) {
      return failed<why::dtype_mismatch<typename A::tensor, typename Update::tensor>>(where, "dynamic_update_slice");
    } else {
      builder& b = *a.owner;
      b.at(where);
      using on = detail::operands_mesh<A, Update, Start, SecondStart>;
      return detail::symbol_like<A, typename A::tensor>(
          a,
          emit::dynamic_update_slice(b, detail::operand_on<on>(b, a), detail::operand_on<on>(b, update),
                                     {first, detail::operand_of(b, start)},
                                     {second, detail::operand_of(b, second_start)}),
          update, start, second_start);
    }
  }
}

}  // namespace espalier
