// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/rearrangements.hpp>

#include <cstdint>

/// Random ops that combine elements with each other.
namespace espalier::test {

/// Draws reductions, einsums, convolutions, pooling, cumulative sums and the largest elements.
class random_reductions : protected random_rearrangements {
 protected:
  using random_rearrangements::random_rearrangements;

  constexpr int reduce() {
    int x = any_number();
    if (x < 0 || (smooth() && !is_floating(type_of(x)))) return -1;
    const extents shape = shape_of(x);
    const std::int64_t dims = random_.integer(0, (1 << shape.rank) - 1);
    double terms = 1;
    for (int d = 0; d < shape.rank; ++d) {
      if ((dims >> d & 1) != 0) terms *= static_cast<double>(shape[d]);
    }
    const double most = bound(x);
    if (random_.chance(0.6)) {
      return holds(x, most * terms) ? limited(emit::reduce_sum(b_, x, dims), most * terms) : -1;
    }
    if (random_.chance(0.4)) {
      x = tame(x);
      double product = 1;
      for (int n = 0; n < static_cast<int>(terms) && product < 1e15; ++n) product *= bound(x);
      // Of many numbers a product is as good as 0 or too large.
      if (product > (smooth() ? 1e4 : most_of(type_of(x))) || terms > 30) return -1;
      return limited(emit::reduce(b_, reduction::prod, x, dims), product);
    }
    const reduction kind = random_.chance(0.5) ? reduction::max : reduction::min;
    if (smooth()) {
      // Which of two equal sums is larger depends on rounding: only values that are far apart are compared.
      for (int d = 0; d < shape.rank; ++d) {
        if ((dims >> d & 1) == 0) continue;
        const int place = emit::convert(b_, emit::iota(b_, dtype::i32, shape, d), options_.float_type);
        x = emit::add(b_, x, emit::scale(b_, place, 0.0173 + 0.0071 * d));
      }
    }
    return limited(emit::reduce(b_, kind, x, dims), most + 3);
  }

  /// The product with another value over common sizes, or with itself.
  constexpr int einsum() {
    const int x = any_number();
    if (x < 0 || (smooth() && !is_floating(type_of(x))) || rank_of(x) > 4) return -1;
    int y =
        any_that([&](int id) { return is_number(id) && rank_of(id) <= 4 && (!smooth() || is_floating(type_of(id))); });
    if (y < 0) return -1;
    y = as_type(y, type_of(x));
    einsum_term left;
    einsum_term right;
    einsum_term result;
    std::int64_t size[16]{};
    int letters = 0;
    for (int d = 0; d < rank_of(x); ++d) {
      left.append(static_cast<char>('a' + letters));
      size[letters++] = shape_of(x)[d];
    }
    for (int d = 0; d < rank_of(y); ++d) {
      int at = letters;
      for (int e = 0; e < rank_of(x); ++e) {
        const bool is_free = shape_of(x)[e] == shape_of(y)[d] && !right.contains(left[e]);
        if (is_free && random_.chance(0.7)) at = e;
      }
      if (at == letters) size[letters++] = shape_of(y)[d];
      right.append(static_cast<char>('a' + at));
    }
    double summed = 1;
    double space = 1;
    extents shape;
    const int turn = letters > 0 ? random_.integer(0, letters - 1) : 0;
    for (int n = 0; n < letters; ++n) {
      const int at = random_.chance(0.7) ? n : (n + turn) % letters;
      const char letter = static_cast<char>('a' + at);
      if (!result.contains(letter) && random_.chance(0.5) && shape.rank < options_.most_dimensions) {
        result.append(letter);
        shape.append(size[at]);
      }
    }
    for (int n = 0; n < letters; ++n) {
      space *= static_cast<double>(size[n]);
      if (!result.contains(static_cast<char>('a' + n))) summed *= static_cast<double>(size[n]);
    }
    const double most = bound(x) * bound(y) * summed;
    if (space > 20000 || shape.elements() > options_.most_elements || !holds(x, most)) return -1;
    return limited(emit::einsum(b_, x, left, y, right, result), most);
  }

  /// Filters that are as large as their input or larger than their stride, with and without padding and gaps.
  constexpr int convolution() {
    const int from = any_number();
    if (from < 0) return -1;
    const dtype type = type_of(from);
    const int spatial = random_.integer(1, options_.most_dimensions > 4 ? 3 : 2);
    convolution_settings s;
    s.groups = random_.chance(0.3) ? 2 : 1;
    extents input{1, {random_.integer(1, 3)}};
    extents filter;
    double terms = 1;
    for (int d = 0; d < spatial; ++d) {
      const int taps = random_.integer(1, 3);
      s.stride[d] = random_.integer(1, 3);
      s.dilation[d] = random_.integer(1, 2);
      s.base_dilation[d] = random_.chance(0.3) ? random_.integer(2, 3) : 1;
      s.low[d] = random_.integer(-1, 2);
      s.high[d] = random_.integer(-1, 2);
      s.reversed[d] = random_.chance(0.2);
      input.append(random_.integer(1, spatial == 1 ? 9 : 5));
      filter.append(taps);
      terms *= taps;
    }
    const int channels = random_.integer(1, 3);
    input.append(channels * s.groups);
    filter.append(channels);
    filter.append(random_.integer(1, 3) * s.groups);
    const extents shape = detail::convolution_shape(input, filter, s);
    if (detail::too_small_for_windows(shape) >= 0 || shape.elements() > options_.most_elements ||
        input.elements() > options_.most_elements) {
      return -1;
    }
    const int x = like(input, type);
    const int w = like(filter, type);
    const double most = bound(x) * bound(w) * terms * channels;
    if (!holds(x, most)) return -1;
    return limited(emit::convolution(b_, x, w, s), most);
  }

  constexpr int pooled() {
    const int from = any_number();
    if (from < 0) return -1;
    const int spatial = random_.integer(1, options_.most_dimensions > 4 ? 3 : 2);
    pooling_settings s;
    extents input{1, {random_.integer(1, 2)}};
    double terms = 1;
    for (int d = 0; d < spatial; ++d) {
      s.size[d] = random_.integer(1, 3);
      s.stride[d] = random_.integer(1, 3);
      s.low[d] = random_.integer(0, s.size[d] - 1);
      s.high[d] = random_.integer(0, s.size[d] - 1);
      input.append(random_.integer(1, spatial == 1 ? 9 : 5));
      terms *= s.size[d];
    }
    input.append(random_.integer(1, 3));
    const extents shape = detail::pooled_shape(input, s);
    if (detail::too_small_for_windows(shape) >= 0 || input.elements() > options_.most_elements) return -1;
    const int x = like(input, type_of(from));
    placed_window windows[3]{};
    for (int d = 0; d < spatial; ++d) {
      windows[d] = place_window({s.size[d], s.stride[d], s.low[d], 1, 1}, d, 0, axis_list{});
    }
    if (!smooth() && random_.chance(0.5)) {
      return bounded_by(emit::pool(b_, ops::max_pool, shape, &windows[0], x), bound(x));
    }
    const double most = bound(x) * terms;
    return holds(x, most) ? limited(emit::pool(b_, ops::sum_pool, shape, &windows[0], x), most) : -1;
  }

  /// Cumulations along a dimension, from either end: sums, products, recurrences; of whole numbers, among which there
  /// may be equal ones, also the largest and the smallest so far.
  constexpr int cumulated() {
    const int x = any_that([&](int id) { return is_number(id) && rank_of(id) >= 1; });
    if (x < 0) return -1;
    cumulate_attributes how;
    how.dim = random_.integer(0, rank_of(x) - 1);
    how.reverse = random_.chance(0.4);
    const std::int64_t extent = shape_of(x)[how.dim];
    const double each = bound(x);
    switch (random_.integer(0, smooth() ? 2 : 4)) {
      case 0: {
        const double most = each * static_cast<double>(extent);
        return holds(x, most) ? limited(emit::cumulate(b_, x, how), most) : -1;
      }
      case 1: {
        double most = 1;
        for (std::int64_t n = 0; n < extent; ++n) most *= each > 1 ? each : 1;
        if (!holds(x, most) || most > 1e6) return -1;
        how.kind = cumulation::prod;
        return limited(emit::cumulate(b_, x, how), most);
      }
      case 2: {
        const int term = like(x);
        double most = 0;
        for (std::int64_t n = 0; n < extent; ++n) most = each * most + bound(term);
        if (!holds(x, most) || most > 1e6) return -1;
        how.kind = cumulation::recurrence;
        return limited(emit::recurrence(b_, x, term, how), most);
      }
      default: {
        how.kind = random_.chance(0.5) ? cumulation::max : cumulation::min;
        return bounded_by(emit::cumulate(b_, x, how), each);
      }
    }
  }

  /// There is no derivative where two elements are equal, so the arguments are drawn from, and where rounding might
  /// exchange two nothing can be compared, so gradients are not.
  constexpr int largest() {
    const int x = smooth() ? any_that([&](int id) { return b_[id].op == &ops::argument && rank_of(id) >= 1; })
                           : any_of_rank(1, options_.most_dimensions);
    if (x < 0 || !holds(x, bound(x))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const auto extent = static_cast<int>(shape_of(x)[dim]);
    if (extent < 1) return -1;
    const int values = bounded_by(emit::top_k(b_, x, dim, random_.integer(1, extent)), bound(x));
    const int places = bounded_by(values + 1, extent);
    if (smooth() || random_.chance(0.5)) return values;
    if (random_.chance(0.5)) keep(values);
    return places;
  }
};

}  // namespace espalier::test
