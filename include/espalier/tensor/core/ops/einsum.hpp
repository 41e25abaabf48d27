// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/mapping.hpp>
#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/einsum/order.hpp>
#include <espalier/tensor/core/ops/iota.hpp>
#include <espalier/tensor/core/ops/reasons/einsum.hpp>
#include <espalier/tensor/core/ops/transpose.hpp>

namespace espalier {

/// The terms of a product of two tensors: `ab,bc->ac`. A letter of one operand appears in the other or in the result.
struct einsum_attributes {
  einsum_term left;
  einsum_term right;
  einsum_term result;
  /// Of attention whose heads all have the same keys (program/lone_heads.hpp).
  bool of_lone_head = false;
};

namespace detail {

/// One factor per letter: it passes when the result has it, and is summed over otherwise.
[[nodiscard]] constexpr factor_rule einsum_factors(op_view v) {
  factor_rule rule;
  const auto [left, right, result, lone] = attributes_of<einsum_attributes>(v);
  for (int d = 0; d < v.self().shape.rank; ++d) rule.result[d] = factor_list(rule.add(v.self().shape[d]));
  const extents& a = v.operand(0).shape;
  for (int d = 0; d < a.rank; ++d) {
    const int at = result.find(left[d]);
    rule.operand[0][d] = at >= 0 ? rule.result[at] : factor_list(rule.add(a[d], factor_kind::reduce));
  }
  for (int d = 0; d < v.operand(1).shape.rank; ++d) {
    const int at = result.find(right[d]);
    rule.operand[1][d] = at >= 0 ? rule.result[at] : rule.operand[0][left.find(right[d])];
  }
  return rule;
}

constexpr void einsum_gradient(gradient_context& c);
constexpr mapped_value map_einsum(map_context& c);

/// Every element of the result as a sum over the contracted letters, in their order in the left operand.
constexpr void evaluate_einsum(const evaluation& e) {
  const auto [left, right, result, lone] = attributes_of<einsum_attributes>(*e.self);
  const einsum_term term[3]{left, right, result};
  std::int64_t extent[2 * max_rank]{};
  std::int64_t stride[3][2 * max_rank]{};
  int loops = 0;
  const auto add_loop = [&](char letter, std::int64_t size) {
    extent[loops] = size;
    for (int t = 0; t < 3; ++t) {
      const int d = term[t].find(letter);
      if (d >= 0) stride[t][loops] = stride_of(t == 2 ? e.self->shape : *e.operand_shape[t], d);
    }
    ++loops;
  };
  for (int d = 0; d < e.self->shape.rank; ++d) add_loop(term[2][d], e.self->shape[d]);
  for (int d = 0; d < e.operand_shape[0]->rank; ++d) {
    if (!term[2].contains(term[0][d])) add_loop(term[0][d], (*e.operand_shape[0])[d]);
  }
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  std::int64_t index[2 * max_rank]{};
  std::int64_t at[3]{};
  std::int64_t total = 1;
  for (int l = 0; l < loops; ++l) total *= extent[l];
  for (std::int64_t i = 0; i < total; ++i) {
    e.result[at[2]] += e.operand[0][at[0]] * e.operand[1][at[1]];
    for (int l = loops - 1; l >= 0; --l) {
      for (int t = 0; t < 3; ++t) at[t] += stride[t][l];
      if (++index[l] < extent[l]) break;
      for (int t = 0; t < 3; ++t) at[t] -= stride[t][l] * extent[l];
      index[l] = 0;
    }
  }
}

[[nodiscard]] constexpr double einsum_identity(op_view) { return 0; }

/// One multiplication and one addition per element of the iteration space.
[[nodiscard]] constexpr std::int64_t einsum_flops(op_view v) {
  std::int64_t space = v.self().shape.elements();
  const einsum_attributes terms = attributes_of<einsum_attributes>(v);
  for (int d = 0; d < v.operand(0).shape.rank; ++d) {
    if (!terms.result.contains(terms.left[d])) space *= v.operand(0).shape[d];
  }
  return 2 * space;
}

}  // namespace detail

namespace ops {
/// A product of two tensors, summed over the letters the result does not have. Each of the three has its own type, all
/// floats or all integers: it is added up in `accumulate` of the widest, integers in the result's.
inline constexpr op_info einsum{
    .name = "einsum",
    .spread = propagation::dimensional,
    .linear = linearity::each,
    .facts = {.contracts = true, .adds_up = true, .attributes = "subscripts:einsum of_lone_head:flag"},
    .factors = detail::einsum_factors,
    .gradient = detail::einsum_gradient,
    .evaluate = detail::evaluate_einsum,
    .flops = detail::einsum_flops,
    .identity = detail::einsum_identity,
    .map = detail::map_einsum};
}  // namespace ops

namespace detail {

/// A sum over some dimensions, of type `type`; the operand itself if `dims` is empty.
constexpr int sum_over(builder& b, int a, std::int64_t dims, dtype type) {
  return dims == 0 ? a : emit::reduce_sum(b, a, dims, type);
}

/// An operand with one dimension for each letter: where one is named twice only elements on the diagonal count. Letters
/// that `keep` rejects are summed away.
template <class Keep> constexpr int emit_operand(builder& b, int a, einsum_term& term, dtype type, Keep keep) {
  std::int64_t dims = 0;
  einsum_term rest;
  for (int d = 0; d < term.size(); ++d) {
    const int first = term.find(term[d]);
    if (first < d) {
      const extents shape = b[a].shape;
      const int row = emit::iota(b, dtype::i32, shape, first);
      const int column = emit::iota(b, dtype::i32, shape, d);
      a = emit::keep_where(b, emit::compare(b, ops::equal, row, column), a);
    }
    if (first == d && keep(term[d])) {
      rest.append(term[d]);
    } else {
      dims |= std::int64_t{1} << d;
    }
  }
  term = rest;
  return sum_over(b, a, dims, type);
}

/// A transposed operand is read where it lies, with its letters in their order there.
constexpr int read_through_transposes(const builder& b, int a, einsum_term& term) {
  while (b[a].op == &ops::transpose && b[a].annotation < 0) {
    const axis_list source = attributes_of<transpose_attributes>(b[a]).source;
    einsum_term before;
    for (int of_operand = 0; of_operand < source.size(); ++of_operand) {
      for (int d = 0; d < source.size(); ++d) {
        if (source[d] == of_operand) before.append(term[d]);
      }
    }
    term = before;
    a = b[a].operand[0];
  }
  return a;
}

/// The type of a sum that goes into a product of type `result`: nothing is rounded before the product is.
[[nodiscard]] constexpr dtype term_type(dtype operand, dtype result) {
  return is_floating(result) && facts_of(operand).accumulate == dtype::f64 ? dtype::f64 : facts_of(result).accumulate;
}

}  // namespace detail

namespace emit {

/// One operand: a sum and a transposition.
constexpr int einsum(builder& b, int a, einsum_term from, einsum_term to, dtype type) {
  const int summed =
      convert(b, detail::emit_operand(b, a, from, type, [&](char letter) { return to.contains(letter); }), type);
  axis_list order;
  for (int d = 0; d < to.size(); ++d) order = order.with(from.find(to[d]));
  return transpose(b, summed, order);
}

/// Two operands, of one type or several. A letter that only one operand has, and not the result, is summed away first.
constexpr int einsum(builder& b, int x, einsum_term left, int y, einsum_term right, einsum_term result, dtype type,
                     bool of_lone_head = false) {
  x = detail::read_through_transposes(b, x, left);
  y = detail::read_through_transposes(b, y, right);
  const einsum_term other = right;
  const int a = detail::emit_operand(b, x, left, detail::term_type(b[x].type, type),
                                     [&](char letter) { return result.contains(letter) || other.contains(letter); });
  const int c = detail::emit_operand(b, y, right, detail::term_type(b[y].type, type),
                                     [&](char letter) { return result.contains(letter) || left.contains(letter); });
  extents shape;
  for (int d = 0; d < result.size(); ++d) {
    const int i = left.find(result[d]);
    shape.append(i >= 0 ? b[a].shape[i] : b[c].shape[right.find(result[d])]);
  }
  return b.append(with_attributes(builder::make(ops::einsum, type, shape, a, c),
                                  einsum_attributes{left, right, result, of_lone_head}));
}
constexpr int einsum(builder& b, int x, einsum_term left, int y, einsum_term right, einsum_term result) {
  return einsum(b, x, left, y, right, result, b[x].type);
}

}  // namespace emit

/// The derivative by one operand is an einsum of the cotangent with the other; a letter only that operand has is
/// repeated along (there is none here: they were summed away before). It has the operand's type, whatever the
/// product's.
constexpr void detail::einsum_gradient(gradient_context& c) {
  const auto [left, right, result, lone] = attributes_of<einsum_attributes>(c);
  c.give(0, emit::einsum(c.emit, c.cotangent, result, c.operand(1), right, left, c.emit[c.operand(0)].type, lone));
  c.give(1, emit::einsum(c.emit, c.operand(0), left, c.cotangent, result, right, c.emit[c.operand(1)].type, lone));
}

namespace detail {

[[nodiscard]] constexpr einsum_term with_letter(char letter, const einsum_term& term) {
  einsum_term made;
  made.append(letter);
  for (int d = 0; d < term.size(); ++d) made.append(term[d]);
  return made;
}
/// Lanes are one more letter, of the result and of the operands that differ from lane to lane. (An addend does.)
constexpr mapped_value map_einsum(map_context& c) {
  instruction made = c.op().self();
  auto [left, right, result, lone] = attributes_of<einsum_attributes>(made);
  char letter = 'a';
  while (left.contains(letter) || right.contains(letter) || result.contains(letter)) ++letter;
  const bool is_first = c.is_mapped(0) || !c.is_mapped(1);
  made.operand[0] = is_first ? c.operand(0, 0) : c.operand(0);
  made.operand[1] = c.is_mapped(1) ? c.operand(1, 0) : c.operand(1);
  if (is_first) left = with_letter(letter, left);
  if (c.is_mapped(1)) right = with_letter(letter, right);
  if (made.operand_count > 2) made.operand[2] = c.operand(2, 0);
  made.shape = with_dimension(made.shape, 0, c.lanes());
  set_attributes(made, einsum_attributes{left, right, with_letter(letter, result), lone});
  return {c.emit().append(made), 0};
}

/// Appends the products of a formula. `order` is of its reading. Only the last of them is of type `type`, or the sum if
/// there is one operand: earlier values are not rounded.
constexpr int emit_einsum(builder& b, const einsum_reading& r, const einsum_order& order, const int* ids, dtype type) {
  const einsum_formula& f = r.formula;
  int value[2 * max_einsum_operands]{};
  einsum_term term[2 * max_einsum_operands];
  bool open[2 * max_einsum_operands]{};  // not yet part of a product
  for (int k = 0; k < f.operands; ++k) {
    term[k] = f.operand[k];
    open[k] = true;
  }
  int count = f.operands;
  const auto needed_besides = [&](int one, int other, char letter) {
    bool needed = f.result.contains(letter);
    for (int k = 0; k < count; ++k) needed = needed || (open[k] && k != one && k != other && term[k].contains(letter));
    return needed;
  };
  for (int k = 0; k < f.operands; ++k) {
    const int whole = emit::reshape(b, ids[k], reduced_shape(b[ids[k]].shape, r.repeated[k], false));
    const dtype sums = f.operands == 1 ? type : term_type(b[whole].type, type);
    value[k] = emit_operand(b, whole, term[k], sums, [&](char letter) { return needed_besides(k, k, letter); });
  }
  for (int n = 0; n + 1 < f.operands; ++n, ++count) {
    const int left = order.left[n];
    const int right = order.right[n];
    if (n + 2 == f.operands) {
      term[count] = f.result;
    } else {
      const auto keep = [&](char letter) {
        if (!term[count].contains(letter) && needed_besides(left, right, letter)) term[count].append(letter);
      };
      for (int d = 0; d < term[left].size(); ++d) keep(term[left][d]);
      for (int d = 0; d < term[right].size(); ++d) keep(term[right][d]);
    }
    const dtype widest =
        size_of(b[value[left]].type) > size_of(b[value[right]].type) ? b[value[left]].type : b[value[right]].type;
    value[count] = emit::einsum(b, value[left], term[left], value[right], term[right], term[count],
                                n + 2 == f.operands ? type : term_type(widest, type));
    open[left] = open[right] = false;
    open[count] = true;
  }
  return f.operands == 1 ? emit::einsum(b, value[0], term[0], f.result, type) : value[count - 1];
}
constexpr int emit_einsum(builder& b, const einsum_formula& f, const int* ids) {
  einsum_shapes shapes;
  for (int k = 0; k < f.operands; ++k) shapes.of[k] = b[ids[k]].shape;
  const einsum_reading r = read_einsum(f, shapes);
  return emit_einsum(b, r, order_of(r, shapes), ids, b[ids[0]].type);
}

template <fixed_string Text, dtype... Result, class First, class... Rest>
constexpr auto einsum(source_line where, const First& first, const Rest&... rest) {
  if constexpr (Failed<First> || (Failed<Rest> || ...)) {
    return first_failure(first, rest...);
  } else if constexpr (!formula_of<Text>.valid) {
    return failed<why::einsum_bad_formula<typename First::tensor, typename Rest::tensor...>>(where);
  } else if constexpr (formula_of<Text>.operands != 1 + static_cast<int>(sizeof...(Rest))) {
    return failed<why::einsum_wrong_operand_count<why::count<formula_of<Text>.operands>, typename First::tensor,
                                                  typename Rest::tensor...>>(where);
  } else {
    constexpr einsum_shapes shapes{{First::shape, Rest::shape...}};
    constexpr einsum_reading reading = read_einsum(formula_of<Text>, shapes);
    if constexpr (reading.fault == einsum_fault::rank) {
      return failed<why::einsum_wrong_rank<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (reading.fault == einsum_fault::batch) {
      return failed<why::einsum_batch_mismatch<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (reading.fault == einsum_fault::too_many_dimensions) {
      return failed<why::einsum_too_many_dimensions<typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (reading.fault == einsum_fault::size) {
      constexpr einsum_clash clash = reading.clash;
      return failed<why::einsum_size_mismatch<why::text<clash.letter>,
                                              why::extent<static_cast<int>(shapes[clash.first][clash.first_dim])>,
                                              why::extent<static_cast<int>(shapes[clash.second][clash.second_dim])>,
                                              typename First::tensor, typename Rest::tensor...>>(where);
    } else if constexpr (sizeof...(Result) == 0 && !((First::type == Rest::type) && ...)) {
      return failed<why::dtype_mismatch<typename First::tensor, typename Rest::tensor...>>(where, "einsum");
    } else if constexpr (!can_hold_products<Result...>(First::type, Rest::type...)) {
      return failed<why::result_type_cannot_hold_sums<tensor_for<asked_type<First::type, Result...>, extents{}>,
                                                      typename First::tensor, typename Rest::tensor...>>(where,
                                                                                                         "einsum");
    } else if constexpr (!Numbers<First, Rest...>) {
      return operand_is_boolean<First, Rest...>(where, "einsum");
    } else if constexpr (constexpr einsum_order order = order_of(reading, shapes); !order.exists) {
      return failed<why::einsum_too_many_dimensions<typename First::tensor, typename Rest::tensor...>>(where);
    } else {
      builder& b = *first.owner;
      const pinned_line line(b, where);
      using on = operands_mesh<First, Rest...>;
      const int ids[]{operand_on<on>(b, first), operand_on<on>(b, rest)...};
      constexpr extents shape = reading.shape;
      constexpr dtype type = asked_type<First::type, Result...>;
      return symbol_like<First, tensor_for<type, shape>>(first, emit_einsum(b, reading, order, &ids[0], type), rest...);
    }
  }
}

}  // namespace detail

/// Products of up to eight tensors summed over labels, in Einstein's notation: one letter per dimension, operands
/// separated by commas, the result after the arrow. Letters the result does not name are summed over. A letter twice
/// in one operand means its diagonal: "ii->i" is that, "ii->" the trace. An ellipsis stands for any further dimensions,
/// as in "...ij,...jk->...ik"; those of several operands correspond from the right, as in NumPy's broadcasting, and
/// none is repeated in memory. Three operands or more are multiplied two at a time, in the order that takes the least
/// work. Sums are kept, also over devices, in the type's `accumulate` type, and rounded once. A type after the formula
/// is the result's: `einsum<"bm,mh->bh", dtype::i32>(x, w)` of i8 tensors is i32, and no operand is copied to that.
/// Then operands may have different types, all floats or all integers; each one's gradient has its own. Errors:
/// `result_type_cannot_hold_sums`, `einsum_bad_formula`, `einsum_wrong_operand_count`, `einsum_wrong_rank`,
/// `einsum_batch_mismatch`, `einsum_too_many_dimensions`, `einsum_size_mismatch`, `dtype_mismatch`,
/// `operand_is_boolean`.
template <detail::fixed_string Formula, dtype... Result, Traced A>
constexpr auto einsum(const A& a, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B>
constexpr auto einsum(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C>
constexpr auto einsum(const A& a, const B& b, const C& c, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E, Traced F>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e, f);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E, Traced F,
          Traced G>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e, f, g);
}
template <detail::fixed_string Formula, dtype... Result, Traced A, Traced B, Traced C, Traced D, Traced E, Traced F,
          Traced G, Traced H>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g, const H& h,
                      source_line where = source_line::current()) {
  return detail::einsum<Formula, Result...>(where, a, b, c, d, e, f, g, h);
}

/// The matrix product as NumPy defines it: over the last two dimensions, those before them broadcast against each
/// other. A vector on the left is a row, one on the right a column, and that dimension is not in the result: of two
/// vectors the product is a scalar. `matmul<dtype::f32>(x, w)` is of that type (see `einsum`).
/// Errors: `wrong_rank` (of a scalar), `matmul_size_mismatch`,
/// `einsum_batch_mismatch`, `einsum_too_many_dimensions`, `dtype_mismatch`, `operand_is_boolean`.
template <dtype... Result, Traced A, Traced B>
constexpr auto matmul(const A& a, const B& b, source_line where = source_line::current()) {
  if constexpr (Failed<A> || Failed<B>) {
    return detail::first_failure(a, b);
  } else if constexpr (A::rank == 0 || B::rank == 0) {
    return failed<why::wrong_rank<typename A::tensor, typename B::tensor>>(where, "matmul");
  } else if constexpr (A::extent(-1) != B::extent(B::rank == 1 ? 0 : -2)) {
    return failed<why::matmul_size_mismatch<typename A::tensor, typename B::tensor>>(where);
  } else if constexpr (A::rank == 1 && B::rank == 1) {
    return detail::einsum<"y,y->", Result...>(where, a, b);
  } else if constexpr (A::rank == 1) {
    return detail::einsum<"y,...yz->...z", Result...>(where, a, b);
  } else if constexpr (B::rank == 1) {
    return detail::einsum<"...xy,y->...x", Result...>(where, a, b);
  } else {
    return detail::einsum<"...xy,...yz->...xz", Result...>(where, a, b);
  }
}

}  // namespace espalier
