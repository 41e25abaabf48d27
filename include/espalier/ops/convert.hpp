// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/elementwise.hpp>
#include <espalier/shape/storage.hpp>

#include <limits>

namespace espalier {

namespace detail {

/// Towards zero; what is beyond the range becomes the nearest integer, a NaN 0.
[[nodiscard]] constexpr std::int32_t nearest_integer(double value) {
  if (value != value) return 0;
  if (value >= std::numeric_limits<std::int32_t>::max()) return std::numeric_limits<std::int32_t>::max();
  if (value <= std::numeric_limits<std::int32_t>::min()) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(value);
}

/// Rounds as a store to the type would.
[[nodiscard]] constexpr double stored_as(dtype type, double value) {
  switch (type) {
    case dtype::f32: return static_cast<double>(static_cast<float>(value));
    case dtype::f64: return value;
    case dtype::bf16: return static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(value))));
    case dtype::i32: return static_cast<double>(nearest_integer(value));
    case dtype::boolean: return value != 0 ? 1 : 0;
  }
  return value;
}
constexpr void evaluate_convert(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = stored_as(e.self->type, e.operand[0][i]);
}
constexpr void convert_gradient(gradient_context& c);

}  // namespace detail

namespace ops {
/// The same values stored as the result's type: floats round to nearest even, floats become integers towards zero.
inline constexpr op_info convert =
    detail::elementwise_op("convert", detail::evaluate_convert, detail::convert_gradient);
}  // namespace ops

namespace emit {
constexpr int convert(builder& b, int a, dtype type) {
  return b[a].type == type ? a : b.append(ops::convert, type, b[a].shape, a);
}
}  // namespace emit

constexpr void detail::convert_gradient(gradient_context& c) {
  const dtype from = c.emit[c.operand(0)].type;
  if (is_floating(from)) c.give(0, emit::convert(c.emit, c.cotangent, from));
}

/// The same values as another element type.
template <dtype Type, Traced A> constexpr auto convert(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else {
    a.owner->at(where);
    return detail::symbol_like<A, tensor_for<Type, A::shape>>(a, emit::convert(*a.owner, a.id, Type));
  }
}

}  // namespace espalier
