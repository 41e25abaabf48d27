// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/operand_list.hpp>
#include <espalier/tensor/core/ops/reasons/concat.hpp>
#include <espalier/tensor/core/ops/roll.hpp>

namespace espalier {

/// Tensors are joined one after the other along one dimension.
struct concat_attributes {
  int dim = 0;
  /// The index of their windows, one for each operand, in the graph's table (`builder::add_windows`).
  int first_window = 0;

  /// The index in the result at which operand k starts.
  [[nodiscard]] constexpr std::int64_t start(const placed_window* table, int k) const {
    return table[first_window + k].low;
  }
};

namespace detail {

constexpr void concat_gradient(gradient_context& c);

/// Element p of operand k is element start + p of the result.
[[nodiscard]] constexpr std::uint32_t concat_windows(op_view v, int k, window* of_dimension) {
  const concat_attributes places = attributes_of<concat_attributes>(v);
  of_dimension[places.dim] = {.low = places.start(v.windows, k)};
  return 1U << static_cast<unsigned>(places.dim);
}

constexpr void evaluate_concat(const evaluation& e) {
  const concat_attributes places = attributes_of<concat_attributes>(*e.self);
  const int along = places.dim;
  const std::int64_t inner = stride_of(e.self->shape, along);
  const std::int64_t outer = e.self->shape.product(0, along);
  const interval mine = e.boxes->result.dim[along];
  for (int k = 0; k < e.self->operand_count; ++k) {
    const std::int64_t rows = (*e.operand_shape[k])[along];
    const interval held = e.boxes->operand[k].dim[along];
    for (std::int64_t row = 0; row < held.size; ++row) {
      const std::int64_t at = places.start(e.windows, k) + held.start + row - mine.start;
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
/// Any number of tensors as one: see `concat_attributes`.
inline constexpr op_info concat{.name = "concat",
                                .spread = propagation::dimensional,
                                .linear = linearity::joint,
                                .facts = {.attributes = "dim:dimension windows:windows"},
                                .factors = detail::same_dimensions,
                                .gradient = detail::concat_gradient,
                                .evaluate = detail::evaluate_concat,
                                .flops = detail::no_flops,
                                .windows = detail::concat_windows,
                                .positional = true};
}  // namespace ops

namespace emit {
/// The distance by which the first of two parts of one tensor, the end and then the beginning of dimension `dim`,
/// moved; 0 if they are something else: what is cut like this and joined again is a tensor in another order, which
/// takes one exchange instead of three.
[[nodiscard]] constexpr std::int64_t rolled_by(const builder& b, int end, int beginning, int dim) {
  const auto cuts = [&](int part) {
    if (b[part].op != &ops::slice) return false;
    const auto cut = attributes_of<slice_attributes>(b[part]);
    return cut.dim == dim && cut.step == 1;
  };
  if (!cuts(end) || !cuts(beginning) || b[end].operand[0] != b[beginning].operand[0]) return 0;
  const std::int64_t first = attributes_of<slice_attributes>(b[end]).start;
  const bool in_turn = attributes_of<slice_attributes>(b[beginning]).start == 0 && b[beginning].shape[dim] == first;
  const std::int64_t extent = b[b[end].operand[0]].shape[dim];
  return in_turn && first + b[end].shape[dim] == extent ? extent - first : 0;
}

/// Joins any number of tensors.
constexpr int concat(builder& b, const int* parts, int count, int dim) {
  if (count == 1) return parts[0];
  if (count == 2) {
    const std::int64_t by = rolled_by(b, parts[0], parts[1], dim);
    if (by != 0) return roll(b, b[parts[0]].operand[0], dim, by);
  }
  detail::list<placed_window> windows;
  extents shape = b[parts[0]].shape;
  shape[dim] = 0;
  for (int k = 0; k < count; ++k) {
    const std::int64_t size = b[parts[k]].shape[dim];
    windows.push_back(place_window({.low = shape[dim]}, dim, size, axis_list{}));
    shape[dim] += size;
  }
  return b.append(with_attributes(builder::make(ops::concat, b[parts[0]].type, shape),
                                  concat_attributes{.dim = dim, .first_window = b.add_windows(windows.data(), count)}),
                  parts, count);
}
}  // namespace emit

constexpr void detail::concat_gradient(gradient_context& c) {
  const instruction self = c.self();
  const concat_attributes places = attributes_of<concat_attributes>(self);
  for (int k = 0; k < self.operand_count; ++k) {
    const std::int64_t size = c.emit[c.operand(k)].shape[places.dim];
    const std::int64_t start = places.start(c.emit.result().windows.data(), k);
    c.give(k, emit::slice(c.emit, c.cotangent, places.dim, start, size));
  }
}

namespace detail {
[[nodiscard]] constexpr bool joinable(const extents& a, const extents& b, int dim) {
  return a.rank == b.rank && with_extent(a, dim, 1) == with_extent(b, dim, 1);
}

template <int Dim> struct concat_along {
  template <Traced First, Traced... Rest>
  static constexpr auto of(source_line where, const First& first, const Rest&... rest) {
    if constexpr (Failed<First> || (Failed<Rest> || ...)) {
      return first_failure(first, rest...);
    } else if constexpr (constexpr int along = dimension(Dim, First::rank); along < 0) {
      return failed<why::no_such_dimension<typename First::tensor, why::dim<Dim>>>(where, ops::concat.name);
    } else if constexpr (!(joinable(First::shape, Rest::shape, along) && ...)) {
      return failed<why::concat_shape_mismatch<typename First::tensor, typename Rest::tensor...>>(where,
                                                                                                  ops::concat.name);
    } else if constexpr (!((First::type == Rest::type) && ...)) {
      return failed<why::dtype_mismatch<typename First::tensor, typename Rest::tensor...>>(where, ops::concat.name);
    } else if constexpr (constexpr std::int64_t size = (First::shape[along] + ... + Rest::shape[along]);
                         size > most_extent) {
      return failed<why::too_many_elements<typename First::tensor, typename Rest::tensor...>>(where, ops::concat.name);
    } else {
      builder& b = *first.owner;
      b.at(where);
      using on = operands_mesh<First, Rest...>;
      const int parts[]{operand_on<on>(b, first), operand_on<on>(b, rest)...};
      return symbol_like<First, tensor_for<First::type, with_extent(First::shape, along, size)>>(
          first, emit::concat(b, &parts[0], 1 + static_cast<int>(sizeof...(Rest)), along), rest...);
    }
  }
};
}  // namespace detail

/// Joins tensors, of which there may be any number, along dimension Dim. Errors: `no_such_dimension`,
/// `concat_shape_mismatch`, `dtype_mismatch`, `too_many_elements`.
template <int Dim, Traced A, detail::OperandOrNone B = detail::no_operand, detail::OperandOrNone C = detail::no_operand,
          detail::OperandOrNone D = detail::no_operand>
constexpr auto concat(const A& a, const B& b = {}, const C& c = {}, const D& d = {},
                      source_line where = source_line::current()) {
  return detail::of_present<detail::concat_along<Dim>>(where, a, b, c, d);
}
template <int Dim, Traced First, Traced... Rest>
  requires(sizeof...(Rest) >= 4)
constexpr auto concat(First first, Rest... rest) { return detail::of_many<detail::concat_along<Dim>>(first, rest...); }

}  // namespace espalier
