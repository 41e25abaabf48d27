// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/lowering.hpp>
#include <espalier/tensor/core/ops/declare.hpp>
#include <espalier/tensor/core/ops/reasons/reshape.hpp>

namespace espalier {

namespace detail {

/// Splits and merges of dimensions become factors: walking both shapes from the left, the smaller of the two current
/// dimensions is a factor when it divides the other; what does not divide is one blocked factor.
[[nodiscard]] constexpr factor_rule reshape_factors(op_view v) {
  factor_rule rule;
  const extents& from = v.operand(0).shape;
  const extents& to = v.self().shape;
  if (to.elements() == 0) return rule;  // nothing to split
  int i = 0;
  int j = 0;
  std::int64_t left = 1;
  std::int64_t right = 1;
  while (i < from.rank || j < to.rank) {
    if (left == 1 && i < from.rank) left = from[i];
    if (right == 1 && j < to.rank) right = to[j];
    if (left == 1 && i < from.rank) {
      ++i;
      continue;
    }
    if (right == 1 && j < to.rank) {
      ++j;
      continue;
    }
    if (left == right) {
      const factor_list factor(rule.add(left));
      rule.operand[0][i] = rule.operand[0][i].followed_by(factor);
      rule.result[j] = rule.result[j].followed_by(factor);
      left = right = 1;
      ++i;
      ++j;
    } else if (left > right && left % right == 0) {
      const factor_list factor(rule.add(right));
      rule.operand[0][i] = rule.operand[0][i].followed_by(factor);
      rule.result[j] = rule.result[j].followed_by(factor);
      left /= right;
      right = 1;
      ++j;
    } else if (right > left && right % left == 0) {
      const factor_list factor(rule.add(left));
      rule.operand[0][i] = rule.operand[0][i].followed_by(factor);
      rule.result[j] = rule.result[j].followed_by(factor);
      right /= left;
      left = 1;
      ++i;
    } else {
      // Neither divides the other (6,4 -> 8,3): elements are reordered across dimensions until the products agree.
      const factor_list blocked(rule.add(1, factor_kind::blocked));
      rule.operand[0][i] = rule.operand[0][i].followed_by(blocked);
      rule.result[j] = rule.result[j].followed_by(blocked);
      while (left != right) {
        if (left < right) {
          left *= from[++i];
          rule.operand[0][i] = blocked;
        } else {
          right *= to[++j];
          rule.result[j] = blocked;
        }
      }
      left = right = 1;
      ++i;
      ++j;
    }
  }
  return rule;
}

/// Lowers a reshape whose shards hold other elements before than after. A (3, 2) reshaped to 6 on two devices has rows
/// 0 and 1 on the first device and row 2 on the second; the result has elements 0 to 2 and 3 to 5: only the elements
/// between move. In row-major order both are intervals. The operand's buffers are therefore seen with these dimensions
/// merged into one, and an exchange gives each device the interval that its shard of the result is.
class uneven_reshape {
 public:
  constexpr explicit uneven_reshape(partition_context& context)
      : context_(context),
        from_(context.op().operand(0).shape),
        to_(context.op().self().shape),
        held_(context.layout_of(context.operand(0)).placement),
        completed_(context.completed_layout()) {}

  /// The last step, or -1 if whole factors can be split instead.
  constexpr int lower() {
    if ((completed_.tiled() & held_.unreduced) != 0 || to_.elements() == 0) return -1;
    read_factors();
    source_.rank = from_.rank;
    source_.unreduced = merged_from_.unreduced = merged_to_.unreduced = held_.unreduced;
    int i = 0;
    int j = 0;
    while (i < from_.rank || j < to_.rank) {
      const int first_from = i;
      const int first_to = j;
      std::int64_t left = i < from_.rank ? from_[i++] : 1;
      std::int64_t right = j < to_.rank ? to_[j++] : 1;
      while (left != right) {
        if (left < right) {
          left *= from_[i++];
        } else {
          right *= to_[j++];
        }
      }
      if (splits_factors(first_from, i, first_to, j)) {
        for (int d = first_to; d < j; ++d) keep(to_[d], completed_.dim[d]);
      } else if (!merge(first_from, i, first_to, j, left)) {
        return -1;
      }
    }
    if (rows_.count == 0 || uses_an_axis_twice(source_)) return -1;
    merged_from_.rank = merged_to_.rank = merged_.rank;
    const int value = context_.reshard(context_.operand(0), source_);
    const int flat = context_.merge_dimensions(value, merged_, merged_from_, rows_);
    const int parts = context_.read_through(flat, merged_to_, parts_);
    sharding result = completed_;
    result.unreduced = held_.unreduced;
    instruction self = context_.op().self();
    self.operand[0] = parts;
    return context_.append(self, to_, result);
  }

 private:
  constexpr void read_factors() {
    for (int d = 0; d < to_.rank; ++d) {
      if (completed_.dim[d].empty() || context_.rule().result[d].empty()) continue;
      read_dimension(context_.mesh(), context_.rule(), context_.rule().result[d], completed_.dim[d], asked_);
    }
  }

  /// Whether the layout that is wanted of dimensions [first_to, last_to) is one of factors, and then so is that of the
  /// operand's dimensions that have the same elements.
  constexpr bool splits_factors(int first_from, int last_from, int first_to, int last_to) {
    const mesh_shape& mesh = context_.mesh();
    const factor_rule& rule = context_.rule();
    for (int d = first_to; d < last_to; ++d) {
      const axis_list axes = completed_.dim[d];
      if (axes.empty()) continue;
      const factor_list factors = rule.result[d];
      if (factors.empty() || rule.kind[factors[0]] == factor_kind::blocked) return false;
      if (!(write_dimension(mesh, rule, factors, asked_) == axes)) return false;
    }
    for (int d = first_from; d < last_from; ++d) {
      const factor_list factors = rule.operand[0][d];
      if (factors.empty()) continue;
      source_.dim[d] = write_dimension(mesh, rule, factors, asked_);
      factor_axes read;
      read_dimension(mesh, rule, factors, source_.dim[d], read);
      for (int n = 0; n < factors.size(); ++n) {
        if (!(read[factors[n]] == asked_[factors[n]])) return false;
      }
    }
    return true;
  }

  constexpr void keep(std::int64_t extent, axis_list axes) {
    merged_from_.dim[merged_.rank] = merged_to_.dim[merged_.rank] = axes;
    merged_.append(extent);
  }

  /// Dimensions that become one of `elements`; false unless both sides split the outermost of theirs, and no other.
  constexpr bool merge(int first_from, int last_from, int first_to, int last_to, std::int64_t elements) {
    while (first_from < last_from && from_[first_from] == 1) ++first_from;
    while (first_to < last_to && to_[first_to] == 1) ++first_to;
    const int count_from = split_dimensions(held_, first_from, last_from);
    const int count_to = split_dimensions(completed_, first_to, last_to);
    if (count_from != 1 || count_to != 1) return false;
    const axis_list before = held_.dim[first_from];
    const axis_list after = completed_.dim[first_to];
    if (before.empty() || after.empty()) return false;
    for (int d = first_from; d < last_from; ++d) source_.dim[d] = axis_list{};
    source_.dim[first_from] = before;
    merged_from_.dim[merged_.rank] = before;
    merged_to_.dim[merged_.rank] = after;
    rows_.add(whole_rows(from_[first_from], before, elements));
    parts_.add(whole_rows(to_[first_to], after, elements));
    merged_.append(elements);
    return true;
  }
  [[nodiscard]] static constexpr int split_dimensions(const sharding& s, int first, int last) {
    int count = 0;
    for (int d = first; d < last; ++d) count += s.dim[d].empty() ? 0 : 1;
    return count;
  }
  /// A part of `rows` rows is as many times all elements of a row.
  [[nodiscard]] constexpr placed_window whole_rows(std::int64_t rows, axis_list axes, std::int64_t elements) const {
    const std::int64_t row = elements / rows;
    return place_window({.size = row, .stride = row}, merged_.rank, rows, axes);
  }

  [[nodiscard]] static constexpr bool uses_an_axis_twice(const sharding& s) {
    axis_mask used = s.unreduced;
    for (int d = 0; d < s.rank; ++d) {
      if ((used & s.dim[d].mask()) != 0) return true;
      used |= s.dim[d].mask();
    }
    return false;
  }

  partition_context& context_;
  const extents& from_;
  const extents& to_;
  sharding held_;
  sharding completed_;
  /// The axes by which the result splits the rule's factors, as far as it does.
  factor_axes asked_;
  sharding source_ = empty_sharding;
  /// The tensor between: dimensions merged, or those of the result.
  extents merged_;
  sharding merged_from_ = empty_sharding;
  sharding merged_to_ = empty_sharding;
  placed_windows rows_;
  placed_windows parts_;
};
[[nodiscard]] constexpr int lower_reshape(partition_context& context) {
  // Most reshapes are split evenly, by factors that both sides have.
  const auto is_even = [&](const extents& shape, const sharding& s) {
    for (int d = 0; d < shape.rank; ++d) {
      if (!s.dim[d].empty() && !divides_evenly(context.mesh(), shape[d], s.dim[d])) return false;
    }
    return true;
  };
  bool is_plain = true;
  for (int f = 0; f < context.rule().count; ++f) {
    is_plain = is_plain && context.rule().kind[f] != factor_kind::blocked;
  }
  const op_view op = context.op();
  if (is_plain && is_even(op.self().shape, context.completed_layout()) &&
      is_even(op.operand(0).shape, context.layout_of(context.operand(0)).placement)) {
    return -1;
  }
  return uneven_reshape(context).lower();
}

constexpr void reshape_gradient(gradient_context& c);

constexpr void evaluate_copy(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = e.operand[0][i];
}

}  // namespace detail

namespace ops {
/// The same elements in row-major order under another shape.
inline constexpr op_info reshape{.name = "reshape",
                                 .spread = propagation::elementwise,
                                 .linear = linearity::first,
                                 .facts = {.shares_operand = true,
                                           .is_operand = detail::has_type_and_shape_of_operand,
                                           .regroups_dimensions = true,
                                           .cheap_to_repeat = true},
                                 .factors = detail::reshape_factors,
                                 .gradient = detail::reshape_gradient,
                                 .evaluate = detail::evaluate_copy,
                                 .flops = detail::no_flops,
                                 .lower = detail::lower_reshape};
}  // namespace ops

namespace emit {
constexpr int reshape(builder& b, int a, const extents& shape) {
  return b[a].shape == shape ? a : b.append(ops::reshape, b[a].type, shape, a);
}
}  // namespace emit

constexpr int detail::unchanged(builder& b, int id) { return b.append(ops::reshape, b[id].type, b[id].shape, id); }

constexpr void detail::reshape_gradient(gradient_context& c) {
  c.give(0, emit::reshape(c.emit, c.cotangent, c.emit[c.operand(0)].shape));
}

namespace detail {

/// The value of an extent -1 of a reshape.
struct inferred_extent {
  int unknown = 0;
  std::int64_t known = 1;
  std::int64_t value = 0;
};
template <int... Extents> [[nodiscard]] constexpr inferred_extent infer_extent(std::int64_t elements) {
  inferred_extent result;
  ((Extents == -1 ? result.unknown += 1 : result.known *= Extents), ...);
  if (result.unknown == 1 && result.known > 0 && elements % result.known == 0) result.value = elements / result.known;
  return result;
}

}  // namespace detail

/// The same elements, in row-major order, with these extents: dimensions split or merge. One extent may be -1: it
/// follows from the others. Of an f32<8, 6>, reshape<-1, 2> is an f32<24, 2>.
/// Errors: `reshape_size_mismatch`, `reshape_infers_several`, `reshape_does_not_divide`.
template <int... Extents, Traced A> constexpr auto reshape(const A& a, source_line where = source_line::current()) {
  if constexpr (Failed<A>) {
    return a;
  } else if constexpr (((Extents == -1) || ...)) {
    constexpr detail::inferred_extent inferred = detail::infer_extent<Extents...>(A::shape.elements());
    if constexpr (inferred.unknown > 1) {
      return failed<why::reshape_infers_several<typename A::tensor, why::extent<Extents>...>>(where);
    } else if constexpr (inferred.value == 0) {
      return failed<why::reshape_does_not_divide<typename A::tensor, why::extent<Extents>...>>(where);
    } else {
      return reshape<(Extents == -1 ? static_cast<int>(inferred.value) : Extents)...>(a, where);
    }
  } else {
    using type = typename detail::dtype_row<A::type>::template tensor<Extents...>;
    if constexpr (type::shape.elements() != A::shape.elements()) {
      return failed<why::reshape_size_mismatch<typename A::tensor, type>>(where);
    } else {
      a.owner->at(where);
      return detail::symbol_like<A, type>(a, emit::reshape(*a.owner, a.id, type::shape));
    }
  }
}

}  // namespace espalier
