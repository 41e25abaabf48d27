// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/slice.hpp>

namespace espalier {

namespace detail {

constexpr void concat_gradient(gradient_context& c);

/// Where operand k starts in the result.
[[nodiscard]] constexpr std::int64_t concat_start(const instruction& self, int k) {
  return k == 0 ? 0 : self.attribute[k];
}
/// Element p of operand k is element start + p of the result.
[[nodiscard]] constexpr std::uint32_t concat_windows(op_view v, int k, window* of_dimension) {
  const instruction& self = v.self();
  of_dimension[self.attribute[0]] = {.low = concat_start(self, k)};
  return 1U << static_cast<unsigned>(self.attribute[0]);
}

constexpr void evaluate_concat(const evaluation& e) {
  const int along = static_cast<int>(e.self->attribute[0]);
  const std::int64_t inner = stride_of(e.self->shape, along);
  const std::int64_t outer = e.self->shape.product(0, along);
  const interval mine = e.boxes->result.dim[along];
  for (int k = 0; k < e.self->operand_count; ++k) {
    const std::int64_t rows = (*e.operand_shape[k])[along];
    const interval held = e.boxes->operand[k].dim[along];
    for (std::int64_t row = 0; row < held.size; ++row) {
      const std::int64_t at = concat_start(*e.self, k) + held.start + row - mine.start;
      if (at < 0 || at >= mine.size) continue;
      for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t i = 0; i < inner; ++i) {
          e.result[(o * e.self->shape[along] + at) * inner + i] = e.operand[k][(o * rows + row) * inner + i];
        }
      }
    }
  }
}

}  // namespace detail

namespace ops {
/// Joins up to four tensors along dimension attribute[0]; attribute[k] says where operand k > 0 starts.
inline constexpr op_info concat{.name = "concat",
                                .spread = propagation::dimensional,
                                .linear = linearity::joint,
                                .factors = detail::same_dimensions,
                                .gradient = detail::concat_gradient,
                                .evaluate = detail::evaluate_concat,
                                .flops = detail::no_flops,
                                .windows = detail::concat_windows,
                                .positional = true};
}  // namespace ops

namespace emit {
/// Joins any number of tensors, four at a time.
constexpr int concat(builder& b, const int* parts, int count, int dim) {
  if (count == 1) return parts[0];
  int group[max_operands]{-1, -1, -1, -1};
  const int taken = count < max_operands ? count : max_operands;
  extents shape = b[parts[0]].shape;
  shape[dim] = 0;
  for (int k = 0; k < taken; ++k) {
    // The first group members are single tensors; the last one stands for all that remain.
    const bool last = k + 1 == taken;
    group[k] = last ? concat(b, parts + k, count - k, dim) : parts[k];
    shape[dim] += b[group[k]].shape[dim];
  }
  instruction made = builder::make(ops::concat, b[parts[0]].type, shape, group[0], group[1], group[2], group[3]);
  made.attribute[0] = dim;
  for (int k = 1; k < taken; ++k) made.attribute[k] = (k == 1 ? 0 : made.attribute[k - 1]) + b[group[k - 1]].shape[dim];
  return b.append(made);
}
}  // namespace emit

constexpr void detail::concat_gradient(gradient_context& c) {
  const instruction self = c.self();
  const int along = static_cast<int>(self.attribute[0]);
  for (int k = 0; k < self.operand_count; ++k) {
    const std::int64_t size = c.emit[self.operand[k]].shape[along];
    c.give(k, emit::slice(c.emit, c.cotangent, along, concat_start(self, k), size));
  }
}

namespace detail {
[[nodiscard]] constexpr bool joinable(const extents& a, const extents& b, int dim) {
  return a.rank == b.rank && with_extent(a, dim, 1) == with_extent(b, dim, 1);
}

template <int Dim, Traced First, Traced... Rest>
constexpr auto joined(source_line where, const First& first, const Rest&... rest) {
  if constexpr (Failed<First> || (Failed<Rest> || ...)) {
    return first_failure(first, rest...);
  } else if constexpr (constexpr int along = dimension(Dim, First::rank); along < 0) {
    return failed<why::no_such_dimension<typename First::tensor, why::dim<Dim>>>(where);
  } else if constexpr (!(joinable(First::shape, Rest::shape, along) && ...)) {
    return failed<why::concat_shape_mismatch<typename First::tensor, typename Rest::tensor...>>(where);
  } else if constexpr (!((First::type == Rest::type) && ...)) {
    return failed<why::dtype_mismatch<typename First::tensor, typename Rest::tensor...>>(where);
  } else {
    constexpr std::int64_t size = (First::shape[along] + ... + Rest::shape[along]);
    builder& b = *first.owner;
    b.at(where);
    const int parts[]{first.id, operand_of(b, rest)...};
    return symbol_like<First, tensor_for<First::type, with_extent(First::shape, along, size)>>(
        first, emit::concat(b, &parts[0], 1 + static_cast<int>(sizeof...(Rest)), along));
  }
}
}  // namespace detail

/// Joins tensors along dimension Dim. Errors: `no_such_dimension`, `concat_shape_mismatch`, `dtype_mismatch`.
template <int Dim, Traced A> constexpr auto concat(const A& a, source_line where = source_line::current()) {
  return detail::joined<Dim>(where, a);
}
template <int Dim, Traced A, Traced B>
constexpr auto concat(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::joined<Dim>(where, a, b);
}
template <int Dim, Traced A, Traced B, Traced C>
constexpr auto concat(const A& a, const B& b, const C& c, source_line where = source_line::current()) {
  return detail::joined<Dim>(where, a, b, c);
}
template <int Dim, Traced A, Traced B, Traced C, Traced D>
constexpr auto concat(const A& a, const B& b, const C& c, const D& d, source_line where = source_line::current()) {
  return detail::joined<Dim>(where, a, b, c, d);
}
/// More than four: behind a pack there is no room for a default argument, so the line is that on which the first was
/// copied (see `symbol`); of the result of a call, the line of that call.
template <int Dim, Traced First, Traced... Rest>
  requires(sizeof...(Rest) >= 4)
constexpr auto concat(First first, Rest... rest) {
  if constexpr (Failed<First>) {
    return first;
  } else {
    return detail::joined<Dim>(first.seen, first, rest...);
  }
}

}  // namespace espalier
