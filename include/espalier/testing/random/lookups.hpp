// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/reductions.hpp>

#include <cstdint>

/// Random ops that read or write at computed indices.
namespace espalier::test {

/// Draws gathers, scatters and dynamic slices, also with indices that are out of bounds.
class random_lookups : protected random_reductions {
 protected:
  using random_reductions::random_reductions;

  /// Whole numbers, some of them no rows of the table.
  constexpr int rows() {
    if (!indices_.empty() && random_.chance(0.5)) return indices_[random_.integer(0, indices_.size() - 1)];
    if (!smooth() && random_.chance(0.5)) {
      const int from = any_that([&](int id) { return is_number(id) && rank_of(id) <= 2; });
      // One after the other: in which order arguments are evaluated differs between compilers and constant evaluations.
      const int few = from < 0 ? -1 : tame(from);
      if (from >= 0) return as_type(few, any_integer());
    }
    const extents shape = any_shape(1, 2);
    const dtype type = any_integer();
    return bounded_by(emit::iota(b_, type, shape, random_.integer(0, shape.rank - 1)), 8);
  }
  constexpr int gather() {
    const int x = any_of_rank(1, 4);
    if (x < 0) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const int from = rows();
    const extents found = detail::gathered_shape(shape_of(x), shape_of(from), dim);
    if (found.elements() > options_.most_elements || found.rank > options_.most_dimensions) return -1;
    return bounded_by(emit::gather(b_, x, from, dim), bound(x));
  }
  /// A whole number to start from, about as often inside as outside of `extent` elements.
  constexpr int start(std::int64_t extent) {
    if (!steps_.empty() && random_.chance(0.5)) return steps_[random_.integer(0, steps_.size() - 1)];
    if (random_.chance(0.3)) {
      const int from = any_that([&](int id) { return is_number(id) && rank_of(id) == 0 && !is_floating(type_of(id)); });
      if (from >= 0) return from;
    }
    const dtype drawn = any_integer();
    const int most = static_cast<int>(extent) + 1;
    constexpr int most_of_bytes = 127;
    const bool is_held = size_of(drawn) > 1 || most <= most_of_bytes;
    const dtype type = is_held ? drawn : dtype::i32;
    return bounded_by(emit::constant(b_, type, extents{}, random_.integer(is_natural(type) ? 0 : -2, most)), most);
  }
  constexpr int dynamic_slice() {
    const int x = any_of_rank(1, options_.most_dimensions);
    if (x < 0 || !holds(x, bound(x))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const auto extent = static_cast<int>(shape_of(x)[dim]);
    if (extent == 0) return -1;
    const int from = start(extent);
    return bounded_by(emit::dynamic_slice(b_, x, from, dim, random_.integer(1, extent)), bound(x));
  }
  constexpr int dynamic_update_slice() { return dynamic_update_slice(any_of_rank(1, options_.most_dimensions)); }
  constexpr int dynamic_update_slice(int x) {
    if (x < 0 || rank_of(x) == 0 || shape_of(x).elements() == 0) return -1;
    extents shape = shape_of(x);
    emit::placed_at at[2];
    const int count = rank_of(x) > 1 && random_.chance(0.4) ? 2 : 1;
    for (int n = 0; n < count; ++n) {
      const int dim = random_.integer(0, rank_of(x) - 1);
      if (n > 0 && dim == at[0].dim) continue;
      const auto extent = static_cast<int>(shape[dim]);
      at[n] = {dim, start(extent)};
      shape[dim] = random_.integer(1, extent);
    }
    const int update = like(shape, type_of(x));
    return bounded_by(emit::dynamic_update_slice(b_, x, update, at[0], at[1]),
                      bound(x) > bound(update) ? bound(x) : bound(update));
  }
  constexpr int scatter() {
    const int x = any_that([&](int id) { return rank_of(id) >= 1 && rank_of(id) <= 4 && is_number(id); });
    if (x < 0 || (smooth() && !is_floating(type_of(x)))) return -1;
    const int dim = random_.integer(0, rank_of(x) - 1);
    const int to = rows();
    const extents table = shape_of(x);
    const extents shape = detail::gathered_shape(table, shape_of(to), dim);
    const double most = tame_bound * static_cast<double>(shape_of(to).elements());
    if (shape.elements() > options_.most_elements || shape.rank > options_.most_dimensions) return -1;
    if (!holds(x, most)) return -1;
    const int updates = tame(like(shape, type_of(x)));
    return limited(emit::scatter_add(b_, table, to, updates, dim), most);
  }

  /// The numbers of the running iterations of the loops being built.
  ids steps_;
};

}  // namespace espalier::test
