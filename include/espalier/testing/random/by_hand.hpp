// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/program/manual/collectives.hpp>
#include <espalier/testing/random/sources.hpp>

#include <cstdint>

/// Random functions of one shard, in programs that are code by hand.
namespace espalier::test {

/// Draws what `spmd` offers (program/manual/collectives.hpp), of any values, along any axes that are by hand.
class random_by_hand : protected random_sources {
 protected:
  using random_sources::random_sources;

  [[nodiscard]] constexpr bool communicates() { return options_.by_hand != 0 && random_.chance(options_.communicates); }

  constexpr int any_axis_by_hand() {
    const axis_list axes = list_of(options_.by_hand);
    return axes[random_.integer(0, axes.size() - 1)];
  }
  constexpr int by_hand(int x, detail::by_hand_kind kind, axis_mask axes, double most, int first = 0, int second = 0) {
    return bounded_by(emit::by_hand(b_, x, {kind, axes, first, second}), most);
  }
  /// A value that is the same on all devices: the largest of theirs.
  constexpr int invariant(int x) {
    if (options_.by_hand == 0) return x;
    const int number = emit::convert(b_, x, dtype::i32);
    const int largest = emit::by_hand(b_, number, {detail::by_hand_kind::max, options_.by_hand});
    if (b_[x].type != dtype::boolean) return largest;
    return emit::compare(b_, ops::less, emit::constant_like(b_, largest, 0), largest);
  }

  constexpr int communicated() {
    using detail::by_hand_kind;
    const int axis = any_axis_by_hand();
    const axis_mask axes = bit_of(axis);
    const int devices = options_.mesh.size[axis];
    if (random_.chance(0.08)) {
      const int zero = emit::constant(b_, dtype::i32, extents{}, 0);
      const int number = by_hand(zero, by_hand_kind::index, axes, devices);
      return smooth() ? tame(bounded_by(emit::convert(b_, number, options_.float_type), devices)) : number;
    }
    const int x = any_number();
    if (x < 0 || (smooth() && !is_floating(type_of(x)))) return -1;
    const extents shape = shape_of(x);
    const double most = bound(x);
    const int dim = shape.rank > 0 ? random_.integer(0, shape.rank - 1) : -1;
    const int other = shape.rank > 0 ? random_.integer(0, shape.rank - 1) : -1;
    const bool divides = dim >= 0 && shape[dim] % devices == 0;
    const auto shaped = [&](by_hand_kind kind, int at, std::int64_t extent) {
      const extents made = detail::with_extent(shape, at, extent);
      return bounded_by(emit::by_hand(b_, x, {kind, axes, at}, made), most);
    };
    switch (random_.integer(0, 11)) {
      case 0:
      case 1: return added_up(x);
      case 2: return as_terms(x);
      case 3: return by_hand(x, random_.chance(0.5) ? by_hand_kind::max : by_hand_kind::min, any_axes_by_hand(), most);
      case 4:
      case 5:
        if (dim < 0 || shape.elements() * devices > options_.most_elements) return -1;
        return shaped(by_hand_kind::gather, dim, shape[dim] * devices);
      case 6:
        if (!divides || !holds(x, most * devices)) return -1;
        return limited(shaped(by_hand_kind::scatter, dim, shape[dim] / devices), most * devices);
      case 7:
      case 8: {
        if (!divides) return -1;
        extents made = detail::with_extent(shape, dim, shape[dim] / devices);
        made = detail::with_extent(made, other, made[other] * devices);
        return bounded_by(emit::by_hand(b_, x, {by_hand_kind::exchange, axes, dim, other}, made), most);
      }
      case 9: return by_hand(x, by_hand_kind::shift, axes, most, random_.integer(-devices, devices));
      case 10: {
        detail::device_pairs pairs;
        if (devices > detail::device_pairs::most_devices) return -1;
        const int by = random_.integer(0, devices - 1);
        const bool mirrors = random_.chance(0.5);
        for (int device = 0; device < devices; ++device) {
          const int source = mirrors ? devices - 1 - device : (device + by) % devices;
          if (device == 0 || random_.chance(0.75)) pairs.add(source, device);
        }
        return bounded_by(emit::by_hand(b_, x, {by_hand_kind::permute, axes, pairs.code(0), pairs.code(1)}), most);
      }
      default: return by_hand(x, by_hand_kind::broadcast, axes, most, random_.integer(0, devices - 1));
    }
  }

 private:
  constexpr axis_mask any_axes_by_hand() { return random_.chance(0.3) ? options_.by_hand : bit_of(any_axis_by_hand()); }
  constexpr int added_up(int x) {
    const axis_mask axes = any_axes_by_hand();
    const double most = bound(x) * static_cast<double>(options_.mesh.parts(axes));
    if (!holds(x, most)) return -1;
    return limited(by_hand(x, detail::by_hand_kind::sum, axes, most), most);
  }
  /// Terms of a sum, through linear ops, and added up.
  constexpr int as_terms(int x) {
    const axis_mask axes = any_axes_by_hand();
    double most = bound(x) * static_cast<double>(options_.mesh.parts(axes));
    if (!holds(x, 2 * most)) return -1;
    int term = by_hand(x, detail::by_hand_kind::terms, axes, most);
    if (random_.chance(0.5) && !is_natural(term)) term = emit::negate(b_, term);
    if (random_.chance(0.3)) {
      term = emit::add(b_, term, term);
      most *= 2;
    }
    if (random_.chance(0.3) && rank_of(term) > 0) {
      const double terms = static_cast<double>(shape_of(term)[0]);
      if (holds(x, most * terms)) {
        term = emit::reduce_sum(b_, term, 1);
        most *= terms;
      }
    }
    if (random_.chance(0.3) && rank_of(term) > 1) {
      axis_list order = axis_list(1).with(0);
      for (int d = 2; d < rank_of(term); ++d) order = order.with(d);
      term = emit::transpose(b_, term, order);
    }
    return limited(by_hand(term, detail::by_hand_kind::sum, axes, most), most);
  }
};

}  // namespace espalier::test
