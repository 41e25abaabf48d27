// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/constant.hpp>
#include <espalier/tensor/core/ops/reasons/slice.hpp>

namespace espalier {

/// The elements start, start + step, ... of one dimension, which `slice` reads and `pad` writes. What a pad would write
/// before the first element or after the last is lost: with start -1 and step 1 every element moves one place down.
struct slice_attributes {
  int dim = 0;
  std::int64_t start = 0;
  /// The distance between elements; may be negative.
  std::int64_t step = 1;
};

namespace detail {

/// Element o of the result of a slice is element start + step * o.
[[nodiscard]] constexpr std::uint32_t slice_windows(op_view v, int /*operand*/, window* of_dimension) {
  const auto [dim, start, step] = attributes_of<slice_attributes>(v);
  of_dimension[dim] = {.stride = step, .low = -start};
  return 1U << static_cast<unsigned>(dim);
}
/// Element start + step * p of the result of a pad is element p.
[[nodiscard]] constexpr std::uint32_t pad_windows(op_view v, int /*operand*/, window* of_dimension) {
  const auto [dim, start, step] = attributes_of<slice_attributes>(v);
  of_dimension[dim] = step < 0 ? window{.stride = -1, .low = -start, .base_dilation = -step}
                               : window{.low = start, .base_dilation = step};
  return 1U << static_cast<unsigned>(dim);
}

[[nodiscard]] constexpr element_shift slice_shifts(op_view v) {
  const auto [dim, start, step] = attributes_of<slice_attributes>(v);
  return step == 1 ? element_shift{dim, start} : element_shift{};
}
[[nodiscard]] constexpr element_shift pad_shifts(op_view v) {
  const auto [dim, start, step] = attributes_of<slice_attributes>(v);
  return step == 1 ? element_shift{dim, -start} : element_shift{};
}

constexpr void slice_gradient(gradient_context& c);
constexpr void pad_gradient(gradient_context& c);

constexpr void evaluate_slice(const evaluation& e) {
  const auto [along, start, step] = attributes_of<slice_attributes>(*e.self);
  const std::int64_t inner = stride_of(e.self->shape, along);
  const std::int64_t size = e.self->shape[along];
  const std::int64_t from = (*e.operand_shape[0])[along];
  const interval mine = e.boxes->result.dim[along];
  const interval held = e.boxes->operand[0].dim[along];
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const std::int64_t outer = i / (inner * size);
    const std::int64_t row = i / inner % size;
    const std::int64_t at = start + (mine.start + row) * step - held.start;
    e.result[i] = row < mine.size ? e.operand[0][(outer * from + at) * inner + i % inner] : 0;
  }
}

constexpr void evaluate_pad(const evaluation& e) {
  const auto [along, start, step] = attributes_of<slice_attributes>(*e.self);
  const std::int64_t inner = stride_of(e.self->shape, along);
  const std::int64_t size = (*e.operand_shape[0])[along];
  const std::int64_t to = e.self->shape[along];
  const interval mine = e.boxes->result.dim[along];
  const interval held = e.boxes->operand[0].dim[along];
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for (std::int64_t i = 0; i < e.operand_shape[0]->elements(); ++i) {
    const std::int64_t outer = i / (inner * size);
    const std::int64_t row = i / inner % size;
    const std::int64_t at = start + (held.start + row) * step - mine.start;
    if (row >= held.size || at < 0 || at >= mine.size) continue;
    e.result[(outer * to + at) * inner + i % inner] = e.operand[0][i];
  }
}

/// True if the slice is its operand. A slice that runs backwards is not, nor a pad that moves what it has.
[[nodiscard]] constexpr bool slices_everything(op_view v) {
  const slice_attributes which = attributes_of<slice_attributes>(v);
  return which.step > 0 && which.start == 0 && has_type_and_shape_of_operand(v);
}
}  // namespace detail

namespace ops {
/// Some elements of one dimension: see `slice_attributes`.
inline constexpr op_info slice{
    .name = "slice",
    .spread = propagation::dimensional,
    .linear = linearity::first,
    .facts = {.is_operand = detail::slices_everything, .attributes = "dim:dimension start step"},
    .factors = detail::same_dimensions,
    .gradient = detail::slice_gradient,
    .evaluate = detail::evaluate_slice,
    .flops = detail::no_flops,
    .windows = detail::slice_windows,
    .positional = true,
    .shifts = detail::slice_shifts};
/// The reverse of `slice`, with the same attributes: zeros, except where a slice of the result would read.
inline constexpr op_info pad{
    .name = "pad",
    .spread = propagation::dimensional,
    .linear = linearity::first,
    .facts = {.is_operand = detail::slices_everything, .attributes = "dim:dimension start step"},
    .factors = detail::same_dimensions,
    .gradient = detail::pad_gradient,
    .evaluate = detail::evaluate_pad,
    .flops = detail::no_flops,
    .windows = detail::pad_windows,
    .positional = true,
    .shifts = detail::pad_shifts};
}  // namespace ops

namespace emit {
constexpr int slice(builder& b, int a, int dim, std::int64_t start, std::int64_t size, std::int64_t step = 1) {
  extents shape = b[a].shape;
  if (start == 0 && size == shape[dim]) return a;
  shape[dim] = size;
  return b.append(with_attributes(builder::make(ops::slice, b[a].type, shape, a), slice_attributes{dim, start, step}));
}
/// The elements that a slice left are moved from where they were: a slice and a pad are one step, as long as the pad
/// has no room for what the slice took away.
constexpr int pad(builder& b, int a, int dim, std::int64_t start, std::int64_t size, std::int64_t step = 1) {
  extents shape = b[a].shape;
  if (start == 0 && size == shape[dim]) return a;
  if (step == 1 && b[a].op == &ops::slice) {
    const slice_attributes cut = attributes_of<slice_attributes>(b[a]);
    const int whole = b[a].operand[0];
    const std::int64_t end = cut.start + shape[dim];
    const bool hides_first = cut.start == 0 || start <= 0;
    const bool hides_last = end == b[whole].shape[dim] || start + shape[dim] >= size;
    if (cut.dim == dim && cut.step == 1 && b[whole].region == b[a].region && hides_first && hides_last) {
      return pad(b, whole, dim, start - cut.start, size);
    }
  }
  shape[dim] = size;
  return b.append(with_attributes(builder::make(ops::pad, b[a].type, shape, a), slice_attributes{dim, start, step}));
}
}  // namespace emit

constexpr void detail::slice_gradient(gradient_context& c) {
  const auto [along, start, step] = attributes_of<slice_attributes>(c);
  c.give(0, emit::pad(c.emit, c.cotangent, along, start, c.emit[c.operand(0)].shape[along], step));
}
constexpr void detail::pad_gradient(gradient_context& c) {
  const auto [along, start, step] = attributes_of<slice_attributes>(c);
  const std::int64_t own = c.emit[c.operand(0)].shape[along];
  const std::int64_t room = c.emit[c.cotangent].shape[along];
  const bool loses = step == 1 && (start < 0 || start + own > room);
  c.give(0, loses ? emit::pad(c.emit, c.cotangent, along, -start, own)
                  : emit::slice(c.emit, c.cotangent, along, start, own, step));
}

namespace detail {
[[nodiscard]] constexpr extents with_extent(extents shape, int dim, std::int64_t size) {
  shape[dim] = size;
  return shape;
}
}  // namespace detail

/// The elements Start, Start + Step, ... below Stop of dimension Dim. Errors: `no_such_dimension`, `out_of_bounds`.
template <int Dim, int Start, int Stop, int Step = 1, Traced A>
constexpr auto slice(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "slice");
  } else if constexpr (Start < 0 || Stop > A::shape[along] || Start >= Stop || Step < 1) {
    return failed<why::out_of_bounds<typename A::tensor, why::dim<Dim>, why::extent<Start>, why::extent<Stop>>>(
        where, "slice");
  } else {
    constexpr std::int64_t size = ceil_div(Stop - Start, Step);
    a.owner->at(where);
    return detail::symbol_like<A, tensor_for<A::type, detail::with_extent(A::shape, along, size)>>(
        a, emit::slice(*a.owner, a.id, along, Start, size, Step));
  }
}

}  // namespace espalier
