// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/mesh/axis.hpp>

#include <cstdint>

namespace espalier {

/// The sizes of a tensor's dimensions, in elements, as a value. Row-major; rank at most `max_rank`.
struct extents {
  int rank = 0;
  std::int64_t size[max_rank]{};

  [[nodiscard]] constexpr std::int64_t operator[](int dim) const { return size[dim]; }
  [[nodiscard]] constexpr std::int64_t& operator[](int dim) { return size[dim]; }
  [[nodiscard]] constexpr std::int64_t elements() const { return product(0, rank); }
  /// The product of the sizes of dimensions [first, last).
  [[nodiscard]] constexpr std::int64_t product(int first, int last) const {
    std::int64_t count = 1;
    for (int dim = first; dim < last; ++dim) count *= size[dim];
    return count;
  }
  constexpr void append(std::int64_t extent) { size[rank++] = extent; }
  [[nodiscard]] constexpr bool operator==(const extents& other) const {
    if (rank != other.rank) return false;
    for (int dim = 0; dim < rank; ++dim) {
      if (size[dim] != other.size[dim]) return false;
    }
    return true;
  }
};

namespace detail {
/// The shape with one more dimension: of [3, 5], with one of 4 as dimension 1, [3, 4, 5].
/// @pre shape.rank < max_rank
[[nodiscard]] constexpr extents with_dimension(const extents& shape, int at, std::int64_t extent) {
  extents result;
  for (int d = 0; d < shape.rank; ++d) {
    if (d == at) result.append(extent);
    result.append(shape[d]);
  }
  if (at == shape.rank) result.append(extent);
  return result;
}
}  // namespace detail

/// The longest dimension: a tensor type has its extents as ints.
inline constexpr std::int64_t most_extent = 2'147'483'647;
/// Elements of the largest tensor: even of the widest type its bytes are a number.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 59;

/// Whether it has at most `most_elements`, and none of its dimensions is longer than `most_extent`.
[[nodiscard]] constexpr bool is_representable(const extents& shape) {
  std::int64_t count = 1;
  for (int dim = 0; dim < shape.rank; ++dim) {
    if (shape[dim] > most_extent || (shape[dim] > 0 && count > most_elements / shape[dim])) return false;
    count *= shape[dim];
  }
  return true;
}

/// The distance in elements between neighbours along `dim` of a row-major tensor.
[[nodiscard]] constexpr std::int64_t stride_of(const extents& shape, int dim) {
  return shape.product(dim + 1, shape.rank);
}

/// The quotient, rounded up: 3 of 7 and 3.
/// @pre a >= 0, b > 0
/// @post the least number whose product with b is not less than a
[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// The largest number that divides both; of a and 0 it is a.
/// @post it divides both, and every number that divides both divides it
[[nodiscard]] constexpr std::int64_t greatest_common_divisor(std::int64_t a, std::int64_t b) {
  while (b != 0) {
    const std::int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

}  // namespace espalier
