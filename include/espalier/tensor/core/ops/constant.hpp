// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/declare.hpp>

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
                                  .facts = {.values = pattern::uniform, .attributes = "value:scalar"},
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

namespace detail {

/// Notes, in both traces, that one uses a tensor of the other, or one that belongs to none. Zeros stand in for it.
constexpr int stand_in(builder& b, builder* other, dtype type, const extents& shape, source_line where) {
  const failed<why::tensor_of_another_trace<>> mistake(where);
  b.note(mistake);
  if (other != nullptr) other->note(mistake);
  return emit::constant(b, type, shape, 0);
}
/// The instruction of a tensor that an op appended to `b` is to read: every op of several tensors asks so.
template <Symbol S> constexpr int operand_of(builder& b, const S& operand, source_line where) {
  return operand.owner == &b ? operand.id : stand_in(b, operand.owner, S::type, S::shape, where);
}
template <Symbol S> constexpr int operand_of(builder& b, const S& operand) { return operand_of(b, operand, b.where); }
/// The same, of an op whose result is on `Mesh` (`operands_mesh`).
template <class Mesh, Symbol S> constexpr int operand_on(builder& b, const S& operand) {
  if constexpr (std::is_same_v<Mesh, typename S::mesh> || !requires { Mesh::template operand<S>(b, operand); }) {
    return operand_of(b, operand, b.where);
  } else {
    return Mesh::template operand<S>(b, operand);
  }
}

}  // namespace detail

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
