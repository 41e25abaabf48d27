// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/mapping.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/convert.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reasons/gather.hpp>

namespace espalier {

/// The lookup of rows, or the addition to them.
struct gather_attributes {
  /// The table's dimension that is looked up, which a result replaces by the dimensions of the indices.
  int dim = 0;
  /// The first so many dimensions of the table are also the first of the indices, and of the result: each element of
  /// them is a lookup of its own.
  int batch = 0;
};

namespace detail {

/// Operand 0 is the table, operand 1 the indices.
/// A table split along that dimension answers only for its own rows and gives zeros for the others, so the results
/// of all devices add up (GSPMD's "trivially sliced operand"); of truth values, any that is true counts.
[[nodiscard]] constexpr factor_rule gather_factors(op_view v) {
  factor_rule rule;
  const extents& table = v.operand(0).shape;
  const extents& indices = v.operand(1).shape;
  const auto [along, batch] = attributes_of<gather_attributes>(v);
  if (v.self().type == dtype::boolean) rule.combine = reduction::max;
  rule.operand[0][along] = factor_list(rule.add(table[along], factor_kind::reduce));
  for (int d = batch; d < indices.rank; ++d) {
    rule.operand[1][d] = factor_list(rule.add(indices[d]));
    rule.result[along + d - batch] = rule.operand[1][d];
  }
  for (int d = 0; d < table.rank; ++d) {
    if (d == along) continue;
    rule.operand[0][d] = factor_list(rule.add(table[d]));
    rule.result[d < along ? d : d + indices.rank - batch - 1] = rule.operand[0][d];
    if (d < batch) rule.operand[1][d] = rule.operand[0][d];
  }
  return rule;
}

[[nodiscard]] constexpr int row_of_table(op_view v) {
  return v.operand(1).shape.rank == 0 ? attributes_of<gather_attributes>(v).dim : -1;
}

/// Operand 0 holds the indices, operand 1 the updates; the result has the table's shape. A device that holds part of
/// the looked-up dimension drops the updates of other rows; a device that holds part of the indices has one term.
[[nodiscard]] constexpr factor_rule scatter_add_factors(op_view v) {
  factor_rule rule;
  const extents& table = v.self().shape;
  const extents& indices = v.operand(0).shape;
  const auto [along, batch] = attributes_of<gather_attributes>(v);
  rule.result[along] = factor_list(rule.add(table[along]));
  for (int d = batch; d < indices.rank; ++d) {
    rule.operand[0][d] = factor_list(rule.add(indices[d], factor_kind::reduce));
    rule.operand[1][along + d - batch] = rule.operand[0][d];
  }
  for (int d = 0; d < table.rank; ++d) {
    if (d == along) continue;
    rule.result[d] = factor_list(rule.add(table[d]));
    rule.operand[1][d < along ? d : d + indices.rank - batch - 1] = rule.result[d];
    if (d < batch) rule.operand[0][d] = rule.result[d];
  }
  return rule;
}

constexpr void gather_gradient(gradient_context& c);
constexpr void scatter_add_gradient(gradient_context& c);
constexpr mapped_value map_gather(map_context& c);
constexpr mapped_value map_scatter_add(map_context& c);

constexpr void evaluate_gather(const evaluation& e) {
  const extents& table = *e.operand_shape[0];
  const auto [along, batch] = attributes_of<gather_attributes>(*e.self);
  const std::int64_t inner = stride_of(table, along);
  const std::int64_t outer = table.product(0, along);
  const std::int64_t each = table.product(batch, along);
  const std::int64_t count = e.operand_shape[1]->product(batch, e.operand_shape[1]->rank);
  const interval here = e.boxes->operand[0].dim[along];
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t row = static_cast<std::int64_t>(e.operand[1][o / each * count + n]) - here.start;
      const bool mine = row >= 0 && row < here.size;
      for (std::int64_t i = 0; i < inner; ++i) {
        e.result[(o * count + n) * inner + i] = mine ? e.operand[0][(o * table[along] + row) * inner + i] : 0;
      }
    }
  }
}

constexpr void evaluate_scatter_add(const evaluation& e) {
  const extents& table = e.self->shape;
  const auto [along, batch] = attributes_of<gather_attributes>(*e.self);
  const std::int64_t inner = stride_of(table, along);
  const std::int64_t outer = table.product(0, along);
  const std::int64_t each = table.product(batch, along);
  const std::int64_t count = e.operand_shape[0]->product(batch, e.operand_shape[0]->rank);
  const interval here = e.boxes->result.dim[along];
  for (std::int64_t i = 0; i < table.elements(); ++i) e.result[i] = 0;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t row = static_cast<std::int64_t>(e.operand[0][o / each * count + n]) - here.start;
      if (row < 0 || row >= here.size) continue;
      for (std::int64_t i = 0; i < inner; ++i) {
        e.result[(o * table[along] + row) * inner + i] += e.operand[1][(o * count + n) * inner + i];
      }
    }
  }
}

[[nodiscard]] constexpr double scatter_identity(op_view) { return 0; }
[[nodiscard]] constexpr std::int64_t scatter_flops(op_view v) { return v.operand(1).shape.elements(); }

}  // namespace detail

namespace ops {
/// Looks rows up; see `gather_factors` for the operands. An index outside the table gives zeros.
inline constexpr op_info gather{.name = "gather",
                                .spread = propagation::dimensional,
                                .facts = {.row_of = detail::row_of_table, .attributes = "dim:dimension batch:count"},
                                .factors = detail::gather_factors,
                                .gradient = detail::gather_gradient,
                                .evaluate = detail::evaluate_gather,
                                .flops = detail::no_flops,
                                .positional = true,
                                .map = detail::map_gather};
/// Gather's gradient: adds updates to the rows their indices name.
inline constexpr op_info scatter_add{.name = "scatter_add",
                                     .spread = propagation::dimensional,
                                     .facts = {.adds_up = true, .attributes = "dim:dimension batch:count"},
                                     .factors = detail::scatter_add_factors,
                                     .gradient = detail::scatter_add_gradient,
                                     .evaluate = detail::evaluate_scatter_add,
                                     .flops = detail::scatter_flops,
                                     .positional = true,
                                     .identity = detail::scatter_identity,
                                     .map = detail::map_scatter_add};
}  // namespace ops

namespace detail {
[[nodiscard]] constexpr extents gathered_shape(const extents& table, const extents& indices, int along, int batch = 0) {
  extents shape;
  for (int d = 0; d < along; ++d) shape.append(table[d]);
  for (int d = batch; d < indices.rank; ++d) shape.append(indices[d]);
  for (int d = along + 1; d < table.rank; ++d) shape.append(table[d]);
  return shape;
}
}  // namespace detail

namespace emit {
/// @param batch the first so many dimensions of table and indices are the same
constexpr int gather(builder& b, int table, int indices, int along, int batch = 0) {
  return b.append(with_attributes(
      builder::make(ops::gather, b[table].type, detail::gathered_shape(b[table].shape, b[indices].shape, along, batch),
                    table, indices),
      gather_attributes{along, batch}));
}
constexpr int scatter_add(builder& b, const extents& table, int indices, int updates, int along, int batch = 0) {
  return b.append(with_attributes(builder::make(ops::scatter_add, b[updates].type, table, indices, updates),
                                  gather_attributes{along, batch}));
}
}  // namespace emit

constexpr void detail::gather_gradient(gradient_context& c) {
  const auto [along, batch] = attributes_of<gather_attributes>(c);
  c.give(0, emit::scatter_add(c.emit, c.emit[c.operand(0)].shape, c.operand(1), c.cotangent, along, batch));
}
constexpr void detail::scatter_add_gradient(gradient_context& c) {
  const auto [along, batch] = attributes_of<gather_attributes>(c);
  c.give(1, emit::gather(c.emit, c.cotangent, c.operand(0), along, batch));
}

namespace detail {
/// Lanes are a dimension of the table that is not looked up, or one of the indices; of both: one more of the first
/// dimensions, of which each element is a lookup of its own.
constexpr mapped_value map_gather(map_context& c) {
  const auto [along, batch] = attributes_of<gather_attributes>(c.op());
  if (c.is_mapped(0) && c.is_mapped(1)) {
    return {emit::gather(c.emit(), c.operand(0, 0), c.operand(1, 0), along + 1, batch + 1), 0};
  }
  if (c.is_mapped(0)) return {emit::gather(c.emit(), c.operand(0, batch), c.operand(1), along + 1, batch), batch};
  return {emit::gather(c.emit(), c.operand(0), c.operand(1, batch), along, batch), along};
}
constexpr mapped_value map_scatter_add(map_context& c) {
  const auto [along, batch] = attributes_of<gather_attributes>(c.op());
  const int at = c.is_mapped(0) ? 0 : batch;
  const extents table = with_dimension(c.op().self().shape, at, c.lanes());
  const int indices = c.is_mapped(0) ? c.operand(0, 0) : c.operand(0);
  const int updates = c.operand(1, at);
  return {emit::scatter_add(c.emit(), table, indices, updates, along + 1, c.is_mapped(0) ? batch + 1 : batch), at};
}
}  // namespace detail

namespace detail {
/// Returns the type in which indices of a type are compared with numbers: it holds every index and every such number.
[[nodiscard]] constexpr dtype index_type(dtype indices) { return indices == dtype::i32 ? dtype::i32 : dtype::i64; }
}  // namespace detail

/// Rows of `table` along dimension Dim: `gather<0>(embedding, tokens)` is an embedding. Dimension Dim is replaced by
/// the dimensions of `indices`. Its gradient adds into the rows.
/// Errors: `no_such_dimension`, `indices_are_not_integers`, `wrong_rank` (of the result).
template <int Dim = 0, Traced Table, Traced Indices>
constexpr auto gather(const Table& table, const Indices& indices, source_line where = source_line::current()) {
  if constexpr (Failed<Table> || Failed<Indices>) {
    return detail::first_failure(table, indices);
  } else if constexpr (constexpr int along = detail::dimension(Dim, Table::rank); along < 0) {
    return failed<why::no_such_dimension<typename Table::tensor, why::dim<Dim>>>(where, "gather");
  } else if constexpr (!is_integer(Indices::type)) {
    return failed<why::indices_are_not_integers<typename Indices::tensor>>(where, "gather");
  } else if constexpr (Table::rank + Indices::rank - 1 > max_rank) {
    return failed<why::wrong_rank<typename Table::tensor, typename Indices::tensor>>(where, "gather");
  } else {
    constexpr extents shape = detail::gathered_shape(Table::shape, Indices::shape, along);
    builder& b = *table.owner;
    b.at(where);
    using on = detail::operands_mesh<Table, Indices>;
    return detail::symbol_like<Table, tensor_for<Table::type, shape>>(
        table, emit::gather(b, detail::operand_on<on>(b, table), detail::operand_on<on>(b, indices), along), indices);
  }
}

/// NumPy's and PyTorch's name for `gather`. (`take<Dim, Index>(x)` is one element of a dimension.)
template <int Dim = 0, Traced Table, Traced Indices>
constexpr auto take(const Table& table, const Indices& indices, source_line where = source_line::current()) {
  return gather<Dim>(table, indices, where);
}

/// A new last dimension of size Classes that is 1 where its index equals the value and 0 elsewhere, as Type.
/// Errors: `indices_are_not_integers`.
template <int Classes, dtype Type = dtype::f32, Traced Indices>
constexpr auto one_hot(const Indices& indices, source_line where = source_line::current()) {
  if constexpr (Failed<Indices>) {
    return indices;
  } else if constexpr (!is_integer(Indices::type)) {
    return failed<why::indices_are_not_integers<typename Indices::tensor>>(where, "one_hot");
  } else {
    builder& b = *indices.owner;
    const pinned_line line(b, where);
    extents shape = Indices::shape;
    shape.append(Classes);
    const dtype number = detail::index_type(Indices::type);
    const int index = emit::convert(b, indices.id, number);
    const int wide = emit::broadcast_along(b, index, shape, std::int64_t{1} << Indices::rank);
    const int hit = emit::compare(b, ops::equal, wide, emit::iota(b, number, shape, Indices::rank));
    constexpr extents result = [] {
      extents made = Indices::shape;
      made.append(Classes);
      return made;
    }();
    return detail::symbol_like<Indices, tensor_for<Type, result>>(indices, emit::convert(b, hit, Type));
  }
}

}  // namespace espalier
