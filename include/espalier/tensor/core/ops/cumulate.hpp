// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/extremum.hpp>
#include <espalier/tensor/core/graph/lowering.hpp>
#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/convert.hpp>

// Sums, products, extrema and linear recurrences along a dimension, of all elements so far.
//
// Where the dimension is split, each device folds its part into what it carries on (`part_of_cumulate`: one element,
// or two of a recurrence), these are gathered, and each device starts from what the parts before its own make of it
// (Blelloch, "Prefix sums and their applications", 1990). The carries are as many as there are parts: where that is
// more than what would move if another dimension were split instead, the operand is laid out so.

namespace espalier {

/// The operation that is carried along a dimension.
enum class cumulation : std::uint8_t {
  sum,
  prod,
  max,
  min,
  /// y_i = a_i y_{i-1} + b_i, with operands a and b, and y_{-1} = 0.
  recurrence,
  /// y_i = a_{i-1} y_{i-1} + b_i: the factor counts for what comes after it.
  late_recurrence,
};

/// Returns the name by which a program calls it.
[[nodiscard]] constexpr const char* name_of(cumulation kind) {
  switch (kind) {
    case cumulation::sum: return "cumsum";
    case cumulation::prod: return "cumprod";
    case cumulation::max: return "cummax";
    case cumulation::min: return "cummin";
    case cumulation::recurrence:
    case cumulation::late_recurrence: break;
  }
  return "linear_recurrence";
}

struct cumulate_attributes {
  int dim = 0;
  cumulation kind = cumulation::sum;
  /// True if the carry goes from the last element to the first.
  bool reverse = false;
  /// Element i is what was carried there: element i of the operand is not part of it.
  bool exclusive = false;
};

namespace detail {

[[nodiscard]] constexpr bool is_recurrence(cumulation kind) { return kind >= cumulation::recurrence; }
/// Returns the number of elements that a shard carries on along the dimension. A recurrence has two: the factor of its
/// start, and the term that is added to that.
[[nodiscard]] constexpr int carried(cumulation kind) { return is_recurrence(kind) ? 2 : 1; }

/// Returns the carry before the first element; infinities stand for the ends of an integer's range.
[[nodiscard]] constexpr double start_of(cumulation kind) {
  switch (kind) {
    case cumulation::prod: return 1;
    case cumulation::max: return identity_of(reduction::max);
    case cumulation::min: return identity_of(reduction::min);
    default: return 0;
  }
}

/// Operands and result have the same dimensions; those after the first of them are what the parts carry, of which each
/// device has its own, or all.
[[nodiscard]] constexpr factor_rule cumulate_factors(op_view v) {
  factor_rule rule;
  const instruction& self = v.self();
  const auto [along, kind, reverse, exclusive] = attributes_of<cumulate_attributes>(v);
  for (int d = 0; d < self.shape.rank; ++d) {
    rule.result[d] = factor_list(rule.add(self.shape[d]));
    for (int k = 0; k < self.operand_count; ++k) rule.operand[k][d] = rule.result[d];
  }
  for (int k = is_recurrence(kind) ? 2 : 1; k < self.operand_count; ++k) {
    rule.operand[k][along] = factor_list(rule.add(v.operand(k).shape[along], factor_kind::blocked));
  }
  return rule;
}
[[nodiscard]] constexpr std::uint32_t cumulate_carries_along(op_view v) {
  return 1U << static_cast<unsigned>(attributes_of<cumulate_attributes>(v).dim);
}
[[nodiscard]] constexpr factor_rule part_of_cumulate_factors(op_view v) {
  factor_rule rule = same_dimensions(v);
  const int along = attributes_of<cumulate_attributes>(v).dim;
  rule.result[along] = factor_list(rule.add(v.self().shape[along], factor_kind::blocked));
  for (int k = 0; k < v.self().operand_count; ++k) {
    rule.operand[k][along] = factor_list(rule.add(v.operand(k).shape[along], factor_kind::blocked));
  }
  return rule;
}

/// Returns the carry after an element, of any type: `a` is the element, or a recurrence's factor, and `b` its term.
template <cumulation Kind, class T> [[nodiscard]] constexpr T carry_on(T carry, T a, [[maybe_unused]] T b) {
  if constexpr (Kind == cumulation::sum) {
    return static_cast<T>(carry + a);
  } else if constexpr (Kind == cumulation::prod) {
    return static_cast<T>(carry * a);
  } else if constexpr (Kind == cumulation::max) {
    return greater_of(carry, a);
  } else if constexpr (Kind == cumulation::min) {
    return lesser_of(carry, a);
  } else if constexpr (Kind == cumulation::recurrence) {
    return static_cast<T>(a * carry + b);
  } else {
    return static_cast<T>(a * static_cast<T>(carry + b));
  }
}
/// Returns the element of the result at a step, from the carry before and after it.
template <cumulation Kind, bool Exclusive, class T>
[[nodiscard]] constexpr T shown(T before, T after, [[maybe_unused]] T b) {
  if constexpr (Exclusive) {
    return before;
  } else if constexpr (Kind == cumulation::late_recurrence) {
    return static_cast<T>(before + b);
  } else {
    return after;
  }
}

/// Calls `f.template operator()<kind>()` with the kind as a constant.
template <class F> constexpr void with_cumulation(cumulation kind, const F& f) {
  switch (kind) {
    case cumulation::sum: return f.template operator()<cumulation::sum>();
    case cumulation::prod: return f.template operator()<cumulation::prod>();
    case cumulation::max: return f.template operator()<cumulation::max>();
    case cumulation::min: return f.template operator()<cumulation::min>();
    case cumulation::recurrence: return f.template operator()<cumulation::recurrence>();
    case cumulation::late_recurrence: return f.template operator()<cumulation::late_recurrence>();
  }
}

/// Returns the carry from which shard number `mine` of `parts` starts: `start`, carried through all shards before it.
/// `carries` is a column of the shards' carries, which are `step` apart.
template <cumulation Kind, class T, class From>
[[nodiscard]] constexpr T carried_to(T start, const From* carries, std::int64_t step, std::int64_t mine,
                                     std::int64_t parts, bool reverse) {
  T carry = start;
  for (std::int64_t n = 0; n < (reverse ? parts - 1 - mine : mine); ++n) {
    const std::int64_t part = reverse ? parts - 1 - n : n;
    if constexpr (is_recurrence(Kind)) {
      carry = static_cast<T>(static_cast<T>(carries[2 * part * step]) * carry +
                             static_cast<T>(carries[(2 * part + 1) * step]));
    } else {
      carry = carry_on<Kind>(carry, static_cast<T>(carries[part * step]), T{});
    }
  }
  return carry;
}

constexpr void evaluate_cumulate(const evaluation& e) {
  const cumulate_attributes how = attributes_of<cumulate_attributes>(*e.self);
  const int along = how.dim;
  const std::int64_t step = stride_of(e.self->shape, along);
  const std::int64_t size = e.self->shape[along];
  const std::int64_t valid = e.boxes->result.dim[along].size;
  const int own = is_recurrence(how.kind) ? 2 : 1;
  const bool is_split = e.self->operand_count > own;
  const int held = carried(how.kind);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  with_cumulation(how.kind, [&]<cumulation Kind>() {
    for (std::int64_t row = 0; row < e.self->shape.elements() / (size > 0 ? size : 1); ++row) {
      const std::int64_t first = row / step * size * step + row % step;
      double carry = start_of(Kind);
      if (is_split) {
        const std::int64_t parts = (*e.operand_shape[own])[along] / held;
        const std::int64_t mine = e.boxes->operand[own + 1].dim[along].start / held;
        const double* carries = e.operand[own] + row / step * parts * held * step + row % step;
        carry = carried_to<Kind>(carry, carries, step, mine, parts, how.reverse);
      }
      for (std::int64_t n = 0; n < valid; ++n) {
        const std::int64_t at = first + (how.reverse ? valid - 1 - n : n) * step;
        const double b = own == 2 ? e.operand[1][at] : 0;
        const double before = carry;
        carry = carry_on<Kind>(carry, e.operand[0][at], b);
        e.result[at] = how.exclusive ? before : shown<Kind, false>(before, carry, b);
      }
    }
  });
}
constexpr void evaluate_part_of_cumulate(const evaluation& e) {
  const cumulate_attributes how = attributes_of<cumulate_attributes>(*e.self);
  const extents& from = *e.operand_shape[0];
  const int along = how.dim;
  const std::int64_t step = stride_of(from, along);
  const std::int64_t valid = e.boxes->operand[0].dim[along].size;
  const int held = carried(how.kind);
  with_cumulation(how.kind, [&]<cumulation Kind>() {
    for (std::int64_t row = 0; row < e.self->shape.elements() / held; ++row) {
      const std::int64_t first = row / step * from[along] * step + row % step;
      double carry = start_of(Kind);
      double factor = 1;
      for (std::int64_t n = 0; n < valid; ++n) {
        const std::int64_t at = first + (how.reverse ? valid - 1 - n : n) * step;
        carry = carry_on<Kind>(carry, e.operand[0][at], held == 2 ? e.operand[1][at] : 0);
        factor *= e.operand[0][at];
      }
      double* const to = e.result + row / step * held * step + row % step;
      if (held == 2) to[0] = factor;
      to[(held - 1) * step] = carry;
    }
  });
}

[[nodiscard]] constexpr int lower_cumulate(partition_context& context);
constexpr void cumulate_gradient(gradient_context& c);
[[nodiscard]] constexpr std::int64_t cumulate_flops(op_view v) {
  const cumulation kind = attributes_of<cumulate_attributes>(v).kind;
  return carried(kind) * v.operand(0).shape.elements();
}

}  // namespace detail

namespace ops {
/// Element i is what elements 0 ... i along a dimension add up to, or the like. On a device that has a part of the
/// dimension, after its own operands: what all parts carry on, and what its own does.
inline constexpr op_info cumulate{
    .name = "cumulate",
    .spread = propagation::elementwise,
    .facts = {.attributes =
                  "dim:dimension kind:sum|prod|max|min|recurrence|late_recurrence reverse:flag exclusive:flag"},
    .factors = detail::cumulate_factors,
    .gradient = detail::cumulate_gradient,
    .evaluate = detail::evaluate_cumulate,
    .flops = detail::cumulate_flops,
    .lower = detail::lower_cumulate,
    .positional = true,
    .carries_along = detail::cumulate_carries_along};
/// The carry that a device's shard of the operands passes on to the next device.
inline constexpr op_info part_of_cumulate{
    .name = "part_of_cumulate",
    .spread = propagation::none,
    .facts = {.attributes =
                  "dim:dimension kind:sum|prod|max|min|recurrence|late_recurrence reverse:flag exclusive:flag"},
    .factors = detail::part_of_cumulate_factors,
    .evaluate = detail::evaluate_part_of_cumulate,
    .flops = detail::cumulate_flops,
    .positional = true};
}  // namespace ops

namespace emit {
constexpr int cumulate(builder& b, int x, cumulate_attributes how, dtype type) {
  return b.append(with_attributes(builder::make(ops::cumulate, type, b[x].shape, x), how));
}
constexpr int cumulate(builder& b, int x, cumulate_attributes how) { return cumulate(b, x, how, b[x].type); }
constexpr int recurrence(builder& b, int factor, int term, cumulate_attributes how) {
  return b.append(with_attributes(builder::make(ops::cumulate, b[term].type, b[term].shape, factor, term), how));
}
}  // namespace emit

namespace detail {

[[nodiscard]] constexpr int lower_cumulate(partition_context& context) {
  instruction self = context.op().self();
  const cumulate_attributes how = attributes_of<cumulate_attributes>(self);
  const extents shape = self.shape;
  const mesh_shape& mesh = context.mesh();
  const int along = how.dim;
  const int own = self.operand_count;
  sharding placed = context.completed_layout();
  placed.unreduced = 0;
  const std::int64_t parts = mesh.parts(placed.dim[along]);
  // Either all shards' carries go to all devices, or the elements of a shard are moved to another split and back.
  if (parts * carried(how.kind) > (own + 1) * local_extent(mesh, shape[along], placed.dim[along])) {
    static_cast<void>(split_elsewhere(mesh, shape, along, placed));
  }
  for (int k = 0; k < own; ++k) self.operand[k] = context.reshard(context.operand(k), placed);
  if (!placed.dim[along].empty() && parts > 1) {
    extents carries = shape;
    carries[along] = parts * carried(how.kind);
    instruction part = self;
    part.op = &ops::part_of_cumulate;
    part.type = facts_of(self.type).accumulate;
    const int mine = context.append(part, carries, placed);
    sharding whole = placed;
    whole.dim[along] = {};
    self.operand[own] = context.reshard(mine, whole);
    self.operand[own + 1] = mine;
    self.operand_count = own + 2;
  }
  return context.append(self, shape, placed);
}

constexpr void cumulate_gradient(gradient_context& c) {
  builder& b = c.emit;
  const cumulate_attributes how = attributes_of<cumulate_attributes>(c);
  cumulate_attributes back = how;
  back.reverse = !how.reverse;
  const int x = c.operand(0);
  // The cotangent that flows back to y_i is s_i = dy_i + a_{i+1} s_{i+1} for a product and a recurrence: a recurrence
  // as well.
  const auto flow = [&](int factor) {
    cumulate_attributes to = back;
    to.kind =
        how.exclusive || how.kind == cumulation::late_recurrence ? cumulation::recurrence : cumulation::late_recurrence;
    return emit::recurrence(b, factor, c.cotangent, to);
  };
  cumulate_attributes before = how;
  before.exclusive = true;
  switch (how.kind) {
    case cumulation::sum: c.give(0, emit::cumulate(b, c.cotangent, back, b[x].type)); return;
    case cumulation::prod: c.give(0, emit::multiply(b, emit::cumulate(b, x, before), flow(x))); return;
    case cumulation::max:
    case cumulation::min: {
      // The cotangent goes to the element that was the first to be so large; until then, all of it flows on.
      const int so_far = emit::cumulate(b, x, before);
      const int passes = how.kind == cumulation::max ? emit::compare(b, ops::less_equal, x, so_far)
                                                     : emit::compare(b, ops::less_equal, so_far, x);
      const int one = emit::constant_like(b, x, 1);
      c.give(0, emit::drop_where(b, passes, flow(emit::keep_where(b, passes, one))));
      return;
    }
    case cumulation::recurrence: {
      const int sum = flow(x);
      const int value = how.exclusive ? c.id : emit::recurrence(b, x, c.operand(1), before);
      c.give(0, emit::multiply(b, sum, value));
      c.give(1, sum);
      return;
    }
    case cumulation::late_recurrence: {
      back.kind = cumulation::recurrence;
      const int sum = emit::recurrence(b, x, c.cotangent, back);
      back.exclusive = true;
      c.give(0, emit::multiply(b, emit::recurrence(b, x, c.cotangent, back), c.id));
      c.give(1, sum);
      return;
    }
  }
}

template <cumulation Kind, bool Reverse, int Dim, Traced A> constexpr auto cumulative(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, name_of(Kind));
  } else if constexpr ((Kind == cumulation::sum || Kind == cumulation::prod) && !Numbers<A>) {
    return operand_is_boolean<A>(where, name_of(Kind));
  } else {
    a.owner->at(where);
    return symbol_like<A, typename A::tensor>(a, emit::cumulate(*a.owner, a.id, {along, Kind, Reverse, false}));
  }
}

template <dtype Type, bool Reverse, int Dim, Traced A> constexpr auto cumsum_as(const A& a, source_line where) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (constexpr int along = dimension(Dim, A::rank); along < 0) {
    return failed<why::no_such_dimension<typename A::tensor, why::dim<Dim>>>(where, "cumsum");
  } else if constexpr (!can_hold_sums(Type, A::type)) {
    return failed<why::result_type_cannot_hold_sums<tensor_for<Type, extents{}>, typename A::tensor>>(where, "cumsum");
  } else {
    a.owner->at(where);
    return symbol_like<A, tensor_for<Type, A::shape>>(
        a, emit::cumulate(*a.owner, a.id, {along, cumulation::sum, Reverse, false}, Type));
  }
}

template <bool Reverse, int Dim, Traced A, Traced B>
constexpr auto linear_recurrence(const A& a, const B& b, source_line where) {
  if constexpr (Failed<A> || Failed<B>) {
    return first_failure(a, b);
  } else if constexpr (!Numbers<A, B>) {
    return operand_is_boolean<A, B>(where, "linear_recurrence");
  } else if constexpr (A::type != B::type) {
    return failed<why::dtype_mismatch<typename A::tensor, typename B::tensor>>(where, "linear_recurrence");
  } else if constexpr (constexpr extents shape = broadcast_shape(A::shape, B::shape); shape.rank < 0) {
    return failed<why::shape_mismatch<typename A::tensor, typename B::tensor>>(where, "linear_recurrence");
  } else if constexpr (constexpr int along = dimension(Dim, shape.rank); along < 0) {
    return failed<why::no_such_dimension<tensor_for<A::type, shape>, why::dim<Dim>>>(where, "linear_recurrence");
  } else {
    builder& to = *a.owner;
    to.at(where);
    using on = operands_mesh<A, B>;
    const int factor = emit::broadcast_to(to, operand_on<on>(to, a), shape);
    const int term = emit::broadcast_to(to, operand_on<on>(to, b), shape);
    return symbol_like<A, tensor_for<A::type, shape>>(
        a, emit::recurrence(to, factor, term, {along, cumulation::recurrence, Reverse, false}), b);
  }
}

}  // namespace detail

/// Asks for elements to be counted from the end: `cumsum<0>(x, from_last)`.
struct from_last_t {};
inline constexpr from_last_t from_last{};

/// Element i along dimension Dim is the sum (product, maximum, minimum) of elements 0 ... i, or, from the last, i ...
/// of the operand's; of the operand's type, integers wrap around. Sums and products of floats are carried in double,
/// those of doubles are added pairwise: the error does not grow with their number. Where the dimension is split, what
/// moves is one element for each part of a row. The gradient of an extremum goes to the first element that is so large
/// (small). Errors: `no_such_dimension`, `operand_is_boolean` (of sums and products).
template <int Dim, Traced A> constexpr auto cumsum(const A& a, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::sum, false, Dim>(a, where);
}
template <int Dim, Traced A>
constexpr auto cumsum(const A& a, from_last_t, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::sum, true, Dim>(a, where);
}
template <int Dim, Traced A> constexpr auto cumprod(const A& a, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::prod, false, Dim>(a, where);
}
template <int Dim, Traced A>
constexpr auto cumprod(const A& a, from_last_t, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::prod, true, Dim>(a, where);
}
template <int Dim, Traced A> constexpr auto cummax(const A& a, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::max, false, Dim>(a, where);
}
template <int Dim, Traced A>
constexpr auto cummax(const A& a, from_last_t, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::max, true, Dim>(a, where);
}
template <int Dim, Traced A> constexpr auto cummin(const A& a, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::min, false, Dim>(a, where);
}
template <int Dim, Traced A>
constexpr auto cummin(const A& a, from_last_t, source_line where = source_line::current()) {
  return detail::cumulative<cumulation::min, true, Dim>(a, where);
}

/// Adds up in another element type, which the result has: `cumsum<dtype::i32, 0>(x)` of an i8<300> full of 1 ends with
/// 300.
/// Errors: `no_such_dimension`, `result_type_cannot_hold_sums`.
template <dtype Result, int Dim, Traced A>
constexpr auto cumsum(const A& a, source_line where = source_line::current()) {
  return detail::cumsum_as<Result, false, Dim>(a, where);
}
template <dtype Result, int Dim, Traced A>
constexpr auto cumsum(const A& a, from_last_t, source_line where = source_line::current()) {
  return detail::cumsum_as<Result, true, Dim>(a, where);
}

/// y_i = a_i y_{i-1} + b_i along dimension Dim, with y_{-1} = 0; from the last, y_i = a_i y_{i+1} + b_i. Discounted
/// sums and state spaces are such. Shapes broadcast. Errors: `no_such_dimension`, `shape_mismatch`, `dtype_mismatch`,
/// `operand_is_boolean`.
template <int Dim, Traced A, Traced B>
constexpr auto linear_recurrence(const A& a, const B& b, source_line where = source_line::current()) {
  return detail::linear_recurrence<false, Dim>(a, b, where);
}
template <int Dim, Traced A, Traced B>
constexpr auto linear_recurrence(const A& a, const B& b, from_last_t, source_line where = source_line::current()) {
  return detail::linear_recurrence<true, Dim>(a, b, where);
}

}  // namespace espalier
