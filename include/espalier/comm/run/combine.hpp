// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reduce.hpp>

#include <cstdint>

namespace espalier::comm {

/// The kind of elements, as far as ranks can tell each other: together with the size, `f32` differs from `i32`.
enum class element_class : std::uint8_t {
  unnamed,  ///< bytes, or a type of the caller's own
  floating,
  brain_floating,
  complex,
  integer,
  natural,
  boolean,
  pair_of_float,  ///< with an int, as in MPI_MAXLOC; the others alike
  pair_of_double,
  pair_of_long_double,
  pair_of_int,
  pair_of_long,
  pair_of_short
};

/// The operation that combines elements, to the same extent.
enum class element_operation : std::uint8_t {
  unnamed,  ///< none, or one of the caller's own
  sum,
  prod,
  max,
  min,
  logical_and,
  logical_or,
  logical_xor,
  bit_and,
  bit_or,
  bit_xor,
  max_place,
  min_place
};

/// How elements of one type are combined.
struct combiner {
  combine_function combine = nullptr;
  const void* state = nullptr;
  std::int64_t element_bytes = 1;
  /// Names that the other ranks compare: an unnamed type or operation is taken for the same.
  element_class type = element_class::unnamed;
  element_operation operation = element_operation::unnamed;
  /// A kernel that does the same to all parts in one pass, if there is one.
  host::fold_function fold = nullptr;
};

namespace detail {

[[nodiscard]] constexpr element_class class_of(dtype type) {
  switch (facts_of(type).format) {
    case number_format::binary: return element_class::floating;
    case number_format::brain: return element_class::brain_floating;
    case number_format::integer: return element_class::integer;
    case number_format::natural: return element_class::natural;
    case number_format::truth: return element_class::boolean;
  }
  return element_class::unnamed;
}
/// Returns the name of an operation. The maximum of booleans is MPI's `or`, the minimum its `and`.
[[nodiscard]] constexpr element_operation operation_of(dtype type, reduction kind) {
  const bool truth = type == dtype::boolean;
  switch (kind) {
    case reduction::sum: return element_operation::sum;
    case reduction::prod: return element_operation::prod;
    case reduction::max: return truth ? element_operation::logical_or : element_operation::max;
    case reduction::min: return truth ? element_operation::logical_and : element_operation::min;
  }
  return element_operation::unnamed;
}

}  // namespace detail

/// Elements of a type without an operation: what broadcasts and the like move.
[[nodiscard]] constexpr combiner moves_only(std::int64_t element_bytes) { return {nullptr, nullptr, element_bytes}; }

/// @pre `is_reducible(by.type, by.kind)`
[[nodiscard]] constexpr combiner combiner_of(const reducer& by) {
  return {by.combine, nullptr, size_of(by.type), detail::class_of(by.type), detail::operation_of(by.type, by.kind),
          by.fold};
}

}  // namespace espalier::comm
