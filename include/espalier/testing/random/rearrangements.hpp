// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/elementwise.hpp>

#include <cstdint>

/// Random ops that move elements and compute nothing.
namespace espalier::test {

/// Draws broadcasts, transpositions, reshapes, slices, padding, reversed and rolled tensors, and concatenations.
class random_rearrangements : protected random_elementwise {
 protected:
  using random_elementwise::random_elementwise;

  constexpr int broadcast(int x) {
    const extents from = shape_of(x);
    if (from.rank >= options_.most_dimensions) return -1;
    extents to;
    axis_list targets;
    const int added = random_.integer(0, from.rank);
    for (int d = 0; d <= from.rank; ++d) {
      if (d == added) to.append(random_.chance(0.3) ? length_ : random_.integer(1, 5));
      if (d == from.rank) break;
      targets = targets.with(to.rank);
      to.append(from[d] == 1 && random_.chance(0.4) ? random_.integer(1, 4) : from[d]);
    }
    return bounded_by(emit::broadcast(b_, x, to, targets), bound(x));
  }

  constexpr int transpose(int x) {
    axis_list order;
    int left = (1 << rank_of(x)) - 1;
    while (left != 0) {
      const axis_list dims = list_of(static_cast<axis_mask>(left));
      const int dim = dims[random_.integer(0, dims.size() - 1)];
      left &= ~(1 << dim);
      order = order.with(dim);
    }
    return bounded_by(emit::transpose(b_, x, order), bound(x));
  }

  constexpr int reshape(int x) {
    const extents to = reshaped(shape_of(x));
    return bounded_by(emit::reshape(b_, x, to), bound(x));
  }

  /// All dimensions but perhaps the first as one, split by an axis, and this again as several, the first of them
  /// smaller than the axis.
  constexpr int taken_apart(int x) {
    const int axis = random_.integer(0, options_.mesh.rank - 1);
    const int devices = options_.mesh.size[axis];
    const std::int64_t all = shape_of(x).elements();
    extents merged;
    if (rank_of(x) > 1 && random_.chance(0.4)) merged.append(shape_of(x)[0]);
    const std::int64_t extent = all == 0 ? 0 : all / merged.elements();
    int first = random_.integer(2, 4);
    while (first < devices && (devices % first != 0 || extent % first != 0)) ++first;
    if (first >= devices || extent % devices != 0 || extent == 0) return reshape(x);
    extents apart = merged;
    merged.append(extent);
    apart.append(first);
    std::int64_t rest = extent / first;
    if (rest % 2 == 0 && random_.chance(0.4)) {
      apart.append(2);
      rest /= 2;
    }
    if (rest != 1 || random_.chance(0.3)) apart.append(rest);
    sharding split = sharding::whole(merged.rank);
    split.dim[merged.rank - 1] = axis_list(in_any_order(axis));
    if (random_.chance(0.5)) split.open = (1U << static_cast<unsigned>(merged.rank)) - 1U;
    const double most = bound(x);
    int value = bounded_by(emit::reshape(b_, x, merged), most);
    value = annotated(ops::shard, value, b_.annotate(merged, split));
    if (random_.chance(0.3)) keep(value);
    return bounded_by(emit::reshape(b_, value, apart), most);
  }

  constexpr int slice() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0 || !holds(x, bound(x))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const auto extent = static_cast<int>(shape_of(x)[dim]);
    if (extent == 0) return -1;
    const int start = random_.integer(0, extent - 1);
    const int stop = random_.integer(start + 1, extent);
    const int step = random_.integer(1, 2);
    return bounded_by(emit::slice(b_, x, dim, start, (stop - start + step - 1) / step, step), bound(x));
  }
  constexpr int pad() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const int start = random_.integer(0, 2);
    const int step = random_.integer(1, 2);
    const std::int64_t extent = shape_of(x)[dim];
    const std::int64_t room = start + (extent > 0 ? step * (extent - 1) + 1 : 0) + random_.integer(0, 2);
    return bounded_by(emit::pad(b_, x, dim, start, room, step), bound(x));
  }
  /// Elements in reverse order, in a circle, with something before, after or between, or without.
  constexpr int rearranged() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const std::int64_t extent = shape_of(x)[dim];
    if (extent == 0) return -1;
    switch (random_.integer(0, 3)) {
      case 0: return bounded_by(emit::reverse(b_, x, dim), bound(x));
      case 1: return bounded_by(emit::roll(b_, x, dim, random_.integer(-3, 3)), bound(x));
      default: {
        const int between = random_.integer(0, 2);
        const int low = random_.integer(-2, 3);
        const int high = random_.integer(-2, 3);
        const std::int64_t size = (extent - 1) * (between + 1) + 1 + low + high;
        if (size < 1 || shape_of(x).elements() / extent * size > options_.most_elements) return -1;
        return bounded_by(emit::pad_around(b_, x, dim, low, high, between), bound(x));
      }
    }
  }

  constexpr int concat() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    int parts[9]{};
    const int count = random_.chance(0.5) ? random_.integer(2, 4) : random_.integer(5, 9);
    double most = 0;
    for (int k = 0; k < count; ++k) {
      extents shape = shape_of(x);
      shape[dim] = random_.integer(1, 3);
      parts[k] = random_.chance(0.4) ? x : random_.chance(0.5) ? like(x) : like(shape, type_of(x));
      if (bound(parts[k]) > most) most = bound(parts[k]);
    }
    return bounded_by(emit::concat(b_, &parts[0], count, dim), most);
  }
};

}  // namespace espalier::test
