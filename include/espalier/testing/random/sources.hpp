// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/testing/random/lookups.hpp>
#include <espalier/testing/table_numbers.hpp>

#include <cstdint>

/// Random values that depend on no argument.
namespace espalier::test {

/// Draws constants, indices, random numbers and tables.
class random_sources : protected random_lookups {
 protected:
  using random_lookups::random_lookups;

  /// A constant, or two whole numbers that are there; perhaps another one of it and the number of a step, or any other.
  constexpr int random_key() {
    extents pair;
    pair.append(2);
    int key = any_that([&](int id) { return is_integer(type_of(id)) && shape_of(id) == pair; });
    key = key < 0 || random_.chance(0.5) ? emit::constant(b_, dtype::u32, pair, random_.integer(0, 1 << 30))
                                         : as_type(key, dtype::u32);
    if (random_.chance(0.5)) return key;
    int number = any_that([&](int id) { return is_integer(type_of(id)) && rank_of(id) == 0; });
    number = number < 0 ? emit::constant(b_, dtype::u32, {}, random_.integer(0, 9)) : as_type(number, dtype::u32);
    return emit::random_bits(b_, dtype::u32, pair, key, detail::random_purpose::fold, number);
  }
  /// Small numbers, of few bits.
  constexpr int random_numbers(const extents& shape, dtype type) {
    const int key = random_key();
    if (smooth() && random_.chance(0.5)) return bounded_by(emit::uniform(b_, type, shape, key), 1);
    const dtype words = random_.chance(0.5) ? dtype::u32 : dtype::i32;
    const int bits = emit::random_bits(b_, words, shape, key);
    const int few = bounded_by(emit::shifted_right(b_, bits, 30, words == dtype::i32), 3);
    return smooth() ? bounded_by(emit::convert(b_, few, type), 3) : as_type(few, type);
  }

  /// A value that no argument goes into.
  constexpr int index(const extents& shape) {
    const int dim = random_.integer(0, shape.rank - 1);
    return bounded_by(emit::iota(b_, dtype::i32, shape, dim), static_cast<double>(shape[dim]));
  }
  constexpr int source() {
    if (random_.chance(0.3)) return table();
    const extents shape = any_shape(0, 3);
    const dtype type = any_type();
    if (random_.chance(0.4)) return random_numbers(shape, type);
    if (shape.rank == 0 || random_.chance(0.4)) {
      const double value = smooth() ? 0.25 * random_.integer(-4, 4) : random_.integer(is_natural(type) ? 0 : -2, 2);
      return bounded_by(emit::constant(b_, type, shape, value), 2);
    }
    const int place = index(shape);
    if (smooth()) return tame(bounded_by(emit::convert(b_, place, type), bound(place)));
    return as_type(place, type);
  }

  /// The elements of a table in some shape that holds them.
  constexpr int table() {
    constexpr int sizes[][4]{{24, 1, 1, 1}, {4, 6, 1, 1}, {2, 3, 4, 1}, {3, 2, 2, 2}, {6, 4, 1, 1}, {2, 12, 1, 1}};
    const auto& chosen = sizes[random_.integer(0, 5)];
    extents shape;
    for (const int size : chosen) {
      if (size > 1 || random_.chance(0.1)) shape.append(size);
    }
    const dtype type = any_type();
    return bounded_by(b_.append(table_of(type), type, shape), 3);
  }
};

}  // namespace espalier::test
