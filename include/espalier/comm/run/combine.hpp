// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/reduce.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace espalier::comm {

/// What elements are, as far as ranks can tell each other: with their size, `f32` differs from `i32`.
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

/// What elements are combined by, in the same sense.
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

/// How elements of one type are combined: `target[i] = own[i] op incoming[i]`, or `incoming[i] op own[i]`. The target
/// may be `own`; `incoming` is memory of the transport, and may be overwritten.
struct combiner {
  using function = void (*)(const void* state, void* target, const void* own, void* incoming, std::int64_t count,
                            bool incoming_left);
  function combine = nullptr;
  const void* state = nullptr;
  std::int64_t element_bytes = 1;
  /// For the other ranks, which compare them: what is unnamed is taken for the same.
  element_class type = element_class::unnamed;
  element_operation operation = element_operation::unnamed;
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
/// Of booleans the maximum is what MPI calls `or`, the minimum `and`.
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

template <reduction Kind, class T>
void combine_messages(const void*, void* target, const void* own, void* incoming, std::int64_t count, bool left) {
  const auto* first = static_cast<const T*>(left ? incoming : own);
  const auto* second = static_cast<const T*>(left ? own : incoming);
  combine_run<Kind, computed_t<T>>(static_cast<T*>(target), first, second, count);
}

}  // namespace detail

/// Elements of a type without an operation: what broadcasts and the like move.
[[nodiscard]] constexpr combiner moves_only(std::int64_t element_bytes) { return {nullptr, nullptr, element_bytes}; }

/// What other ranks are told of a combiner of the library's types, without the function: for who has a kernel of his
/// own.
[[nodiscard]] constexpr combiner described_combiner(dtype type, reduction kind) {
  combiner made = moves_only(size_of(type));
  made.type = detail::class_of(type);
  made.operation = detail::operation_of(type, kind);
  return made;
}

/// Errors: std::invalid_argument for sums and products of bool.
[[nodiscard]] inline combiner combiner_of(dtype type, reduction kind) {
  combiner made = described_combiner(type, kind);
  if (!is_reducible(type, kind)) throw std::invalid_argument("bool values have no sum and no product: use max or min");
  with_storage(type, [&]<class T>(T) {
    switch (kind) {
      case reduction::max: made.combine = &detail::combine_messages<reduction::max, T>; return;
      case reduction::min: made.combine = &detail::combine_messages<reduction::min, T>; return;
      case reduction::sum:
        if constexpr (!std::is_same_v<T, bool>) made.combine = &detail::combine_messages<reduction::sum, wrapping_t<T>>;
        return;
      case reduction::prod:
        if constexpr (!std::is_same_v<T, bool>)
          made.combine = &detail::combine_messages<reduction::prod, wrapping_t<T>>;
        return;
    }
  });
  return made;
}

}  // namespace espalier::comm
