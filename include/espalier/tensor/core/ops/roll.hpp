// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/slice.hpp>

namespace espalier {

struct roll_attributes {
  int dim = 0;
  /// The distance by which elements go forward; positive, and below the extent.
  std::int64_t by = 0;
};

namespace detail {

/// Element o of the result is element o - by, modulo the extent: a part of the result needs one interval of a circle.
[[nodiscard]] constexpr std::uint32_t roll_windows(op_view v, int /*operand*/, window* of_dimension) {
  const auto [dim, by] = attributes_of<roll_attributes>(v);
  of_dimension[dim] = {.low = by, .wraps = true};
  return 1U << static_cast<unsigned>(dim);
}

[[nodiscard]] constexpr element_shift roll_shifts(op_view v) {
  const auto [dim, by] = attributes_of<roll_attributes>(v);
  return {dim, -by, true};
}

constexpr void roll_gradient(gradient_context& c);

/// Returns the place, in the operand's shard, of the first element of the result's shard.
[[nodiscard]] constexpr std::int64_t first_rolled(interval result, interval operand, std::int64_t by,
                                                  std::int64_t extent) {
  const std::int64_t at = (result.start - by - operand.start) % extent;
  return at < 0 ? at + extent : at;
}

constexpr void evaluate_roll(const evaluation& e) {
  const auto [along, by] = attributes_of<roll_attributes>(*e.self);
  const std::int64_t inner = stride_of(e.self->shape, along);
  const std::int64_t size = e.self->shape[along];
  const std::int64_t from = (*e.operand_shape[0])[along];
  const std::int64_t extent = e.boxes->whole[along];
  const interval mine = e.boxes->result.dim[along];
  const std::int64_t first = first_rolled(mine, e.boxes->operand[0].dim[along], by, extent);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const std::int64_t outer = i / (inner * size);
    const std::int64_t row = i / inner % size;
    const std::int64_t at = (first + row) % extent;
    e.result[i] = row < mine.size ? e.operand[0][(outer * from + at) * inner + i % inner] : 0;
  }
}

}  // namespace detail

namespace ops {
/// Element i of a dimension goes to i + by, modulo the extent. Where the dimension is split, a device receives what
/// enters its part at one end, and nothing else.
inline constexpr op_info roll{.name = "roll",
                              .spread = propagation::dimensional,
                              .linear = linearity::first,
                              .facts = {.attributes = "dim:dimension by"},
                              .factors = detail::same_dimensions,
                              .gradient = detail::roll_gradient,
                              .evaluate = detail::evaluate_roll,
                              .flops = detail::no_flops,
                              .windows = detail::roll_windows,
                              .positional = true,
                              .shifts = detail::roll_shifts};
}  // namespace ops

namespace emit {
/// Element i goes to i + by, modulo the extent.
constexpr int roll(builder& b, int a, int dim, std::int64_t by) {
  const std::int64_t n = b[a].shape[dim];
  by = n == 0 ? 0 : (by % n + n) % n;
  if (by == 0) return a;
  return b.append(with_attributes(builder::make(ops::roll, b[a].type, b[a].shape, a), roll_attributes{dim, by}));
}
}  // namespace emit

constexpr void detail::roll_gradient(gradient_context& c) {
  const auto [dim, by] = attributes_of<roll_attributes>(c);
  c.give(0, emit::roll(c.emit, c.cotangent, dim, -by));
}

/// Element i of dimension Dim goes to i + By; what leaves at one end comes in at the other. Errors:
/// `no_such_dimension`.
template <int Dim, int By, Traced A> constexpr auto roll(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = detail::dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "roll");
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, typename A::tensor>(a, emit::roll(*a.owner, a.id, along, By));
  }
}

}  // namespace espalier
