// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/arithmetic.hpp>

#include <cstdint>

namespace mine {

/// What an instruction of this op says beyond its operand.
struct curvature_attributes {
  /// Rows from one of the three that are compared to the next.
  std::int64_t distance = 1;
};

/// Row o of the result is computed from rows o - distance, o and o + distance. Nothing more is needed to split rows
/// over devices.
constexpr std::uint32_t curvature_windows(espalier::op_view op, int /*operand*/, espalier::window* of_dimension) {
  const std::int64_t distance = espalier::attributes_of<curvature_attributes>(op).distance;
  of_dimension[0] = {.size = 3, .low = distance, .dilation = distance};
  return 1U << 0U;
}

constexpr void curvature_gradient(espalier::gradient_context& c);

/// A device has some of the rows, and of the operand those that its part of the result needs: the boxes say which.
constexpr void evaluate_curvature(const espalier::evaluation& e) {
  const espalier::interval rows = e.boxes->result.dim[0];
  const espalier::interval held = e.boxes->operand[0].dim[0];
  const std::int64_t columns = espalier::stride_of(e.self->shape, 0);
  const std::int64_t distance = espalier::attributes_of<curvature_attributes>(*e.self).distance;
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    const std::int64_t row = i / columns;
    const auto x = [&](std::int64_t shift) {
      const std::int64_t at = rows.start + row + shift - held.start;
      return at >= 0 && at < held.size ? e.operand[0][at * columns + i % columns] : 0.0;
    };
    e.result[i] = row < rows.size ? x(-distance) - 2 * x(0) + x(distance) : 0;
  }
}
constexpr std::int64_t curvature_flops(espalier::op_view v) { return 3 * v.self().shape.elements(); }

inline constexpr espalier::op_info curvature_op{.name = "curvature",
                                                .spread = espalier::propagation::elementwise,
                                                .linear = espalier::linearity::first,
                                                .factors = espalier::detail::same_dimensions,
                                                .gradient = curvature_gradient,
                                                .evaluate = evaluate_curvature,
                                                .flops = curvature_flops,
                                                .windows = curvature_windows,
                                                .positional = true};

constexpr int emit_curvature(espalier::builder& b, int x, const curvature_attributes& attributes) {
  espalier::instruction i = espalier::builder::make(curvature_op, b[x].type, b[x].shape, x);
  espalier::set_attributes(i, attributes);
  return b.append(i);
}

/// What x(o - d) - 2 x(o) + x(o + d) takes from its operand it gives back to it: the map is symmetric.
constexpr void curvature_gradient(espalier::gradient_context& c) {
  c.give(0, emit_curvature(c.emit, c.cotangent, espalier::attributes_of<curvature_attributes>(c)));
}

/// Second differences along dimension 0, of rows that are `Distance` apart, with zeros outside of the tensor. Errors:
/// `wrong_rank`, `operand_is_not_floating`.
template <int Distance = 1, espalier::Traced A>
constexpr auto curvature(const A& a, espalier::source_line where = espalier::source_line::current()) {
  static_assert(Distance > 0, "rows are at least one apart");
  if constexpr (espalier::Failed<A>) {
    return a;
  } else if constexpr (A::rank < 1) {
    return espalier::failed<espalier::why::wrong_rank<typename A::tensor>>(where, "curvature");
  } else if constexpr (!espalier::is_floating(A::type)) {
    return espalier::failed<espalier::why::operand_is_not_floating<typename A::tensor>>(where, "curvature");
  } else {
    a.owner->at(where);
    return espalier::detail::symbol_like<A, typename A::tensor>(a, emit_curvature(*a.owner, a.id, {Distance}));
  }
}

}  // namespace mine
