// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/declare.hpp>

namespace espalier {

namespace detail {
constexpr void evaluate_constant(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = e.self->scalar;
}
}  // namespace detail

namespace ops {
/// One value in every element: `scalar`. Each device makes its own part.
inline constexpr op_info constant{.name = "constant",
                                  .spread = propagation::elementwise,
                                  .fuse = fusion::source,
                                  .factors = detail::same_dimensions,
                                  .gradient = detail::no_gradient,
                                  .evaluate = detail::evaluate_constant,
                                  .flops = detail::no_flops};
}  // namespace ops

namespace emit {
constexpr int constant(builder& b, dtype type, const extents& shape, double value) {
  instruction made = builder::make(ops::constant, type, shape);
  made.scalar = value;
  return b.append(made);
}
/// A constant of the type and shape of another value.
constexpr int constant_like(builder& b, int like, double value) {
  return constant(b, b[like].type, b[like].shape, value);
}
}  // namespace emit

/// A tensor of `Type` with `value` in every element, on the mesh of `like`.
template <TensorType Type, Traced Like>
constexpr auto constant(const Like& like, double value, source_line where = source_line::current()) {
  if constexpr (Failed<Like>) {
    return like;
  } else {
    like.owner->at(where);
    return detail::symbol_like<Like, Type>(like, emit::constant(*like.owner, Type::type, Type::shape, value));
  }
}

}  // namespace espalier
