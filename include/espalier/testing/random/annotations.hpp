// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/values.hpp>

#include <cstdint>

/// Random shardings of values, and sums that are asked to stay partial.
namespace espalier::test {

/// Draws annotations.
class random_annotations : protected random_values {
 protected:
  using random_values::random_values;

  constexpr bool wants_annotation() { return options_.mesh.rank > 0 && random_.chance(options_.annotated); }

  /// Any sharding: axes in any order on any dimensions, open and closed ones, axes to stay replicated on.
  constexpr int any_annotation(const extents& shape) {
    sharding placement = sharding::whole(shape.rank);
    axis_mask left = (bit_of(options_.mesh.rank) - 1) & ~options_.by_hand;
    while (left != 0) {
      const axis_list axes = list_of(left);
      const int axis = axes[random_.integer(0, axes.size() - 1)];
      left &= ~bit_of(axis);
      const int where = random_.integer(-2, shape.rank - 1);
      if (where >= 0) placement.dim[where] = placement.dim[where].with(in_any_order(axis));
      if (where == -2 && random_.chance(0.2)) placement.replicated |= bit_of(axis);
    }
    for (int d = 0; d < shape.rank; ++d) {
      if (random_.chance(0.4)) placement.open |= 1U << static_cast<unsigned>(d);
    }
    if (random_.chance(options_.unfounded)) {
      const int axis = any_axis();
      if (!has_axis(placement.tiled() | placement.replicated, axis)) placement.unreduced |= bit_of(axis);
    }
    return b_.annotate(shape, placement, options_.priorities > 0 ? random_.integer(0, options_.priorities) : 0);
  }
  constexpr int annotated(const op_info& op, int id, int annotation) {
    return bounded_by(emit::annotated(b_, op, id, annotation), bound(id));
  }
  /// A value laid out like another one, or both alike.
  constexpr int alike(int id) {
    const extents shape = shape_of(id);
    const int other =
        any_that([&](int one) { return one != id && shape_of(one) == shape && b_[one].region == b_.region; });
    if (other < 0) return id;
    if (random_.chance(0.5)) return bounded_by(emit::shard_like(b_, id, other), bound(id));
    const int first = bounded_by(emit::shard_as(b_, other), bound(other));
    keep(first);
    return bounded_by(emit::shard_as(b_, id, first), bound(id));
  }
  constexpr int with_annotations(int id) {
    if (options_.alike > 0 && options_.mesh.rank > 0 && random_.chance(options_.alike)) id = alike(id);
    if (!wants_annotation()) return id;
    const extents shape = shape_of(id);
    const op_info& op = random_.chance(0.85) ? ops::shard : ops::reshard;
    int result = annotated(op, id, any_annotation(shape));
    if (random_.chance(options_.conflicts)) {
      // Of the same value, or of its copy.
      const int again = random_.chance(0.5) ? id : result;
      const int other = annotated(ops::shard, again, any_annotation(shape));
      keep(result);
      result = other;
    }
    return result;
  }

  constexpr int split_along(int id, int axis, int dim) {
    sharding split = sharding::whole(rank_of(id));
    split.dim[dim] = axis_list(in_any_order(axis));
    return annotated(ops::reshard, id, b_.annotate(shape_of(id), split));
  }
  constexpr int any_axis() { return random_.integer(0, options_.mesh.rank - 1); }
  constexpr int split_anyhow(int id) {
    const int dim = random_.integer(0, rank_of(id) - 1);
    return split_along(id, any_axis(), dim);
  }

  /// A sum over a split dimension beside another split value, summed up in turn, beside the sum of a third one: devices
  /// may keep what is partial until the last of them.
  constexpr int sums_that_meet() {
    const int from = any_that([&](int id) { return rank_of(id) > 1 && is_number(id) && b_[id].region == b_.region; });
    if (from < 0) return -1;
    const int dim = random_.integer(0, rank_of(from) - 1);
    const double most = bound(from) * static_cast<double>(shape_of(from)[dim]);
    if (!holds(from, most)) return -1;
    const int parts = split_along(from, any_axis(), dim);
    const int sum = bounded_by(emit::reduce_sum(b_, parts, std::int64_t{1} << dim), most);
    const int beside = split_anyhow(like(sum));
    const bool is_less = !is_natural(sum) && random_.chance(0.5);
    const int met = is_less ? emit::subtract(b_, beside, sum) : emit::add(b_, sum, beside);
    bounded_by(met, most + bound(beside));
    const int last = split_anyhow(like(sum));
    const double terms = static_cast<double>(shape_of(sum).elements());
    const double all = terms * (bound(met) + bound(last));
    if (!holds(met, all)) return tame(met);
    const int total = bounded_by(emit::add(b_, this->total(last), this->total(met)), all);
    return tame(total);
  }

  /// A sum over a split dimension that is asked to stay partial, through a linear op, and then whole.
  constexpr int partial_sum() {
    const int from = any_that([&](int id) { return rank_of(id) > 0 && is_number(id) && b_[id].region == b_.region; });
    if (from < 0) return -1;
    const int axis = any_axis();
    const int dim = random_.integer(0, rank_of(from) - 1);
    const extents shape = shape_of(from);
    const double most = bound(from) * static_cast<double>(shape[dim]);
    if (!holds(from, most)) return -1;
    const int parts = split_along(from, axis, dim);
    int sum = -1;
    const std::int64_t one = std::int64_t{1} << dim;
    if (random_.chance(0.5)) {
      sum = emit::reduce_sum(b_, parts, one);
    } else {
      // With a vector of ones.
      einsum_term left;
      einsum_term right;
      einsum_term result;
      for (int d = 0; d < shape.rank; ++d) {
        const char letter = static_cast<char>('a' + d);
        left.append(letter);
        (d == dim ? right : result).append(letter);
      }
      extents line;
      line.append(shape[dim]);
      const int ones = bounded_by(emit::constant(b_, type_of(parts), line, 1), 1);
      sum = emit::einsum(b_, parts, left, ones, right, result);
    }
    bounded_by(sum, most);
    sharding partial = sharding::whole(rank_of(sum));
    partial.unreduced = bit_of(axis);
    const extents rest = shape_of(sum);
    sum = annotated(random_.chance(0.5) ? ops::shard : ops::reshard, sum, b_.annotate(rest, partial));
    if (random_.chance(0.4) && !is_natural(sum)) sum = bounded_by(emit::negate(b_, sum), most);
    if (random_.chance(0.3) && holds(sum, 2 * most)) sum = bounded_by(emit::add(b_, sum, sum), 2 * most);
    sharding reduced = sharding::whole(rank_of(sum));
    if (rest.rank > 0 && random_.chance(0.5))
      reduced.dim[random_.integer(0, rest.rank - 1)] = axis_list(in_any_order(axis));
    return tame(annotated(ops::reshard, sum, b_.annotate(rest, reduced)));
  }
  /// A sum, or several, of which devices have terms for a while.
  constexpr int sum_over_devices() {
    if (options_.by_hand != 0) return -1;
    return random_.chance(0.4) ? sums_that_meet() : partial_sum();
  }
};

}  // namespace espalier::test
