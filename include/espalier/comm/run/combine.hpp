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

/// How elements of one type are combined: `target[i] = own[i] op incoming[i]`, or `incoming[i] op own[i]`. The target
/// may be `own`; `incoming` is memory of the transport, and may be overwritten.
struct combiner {
  using function = void (*)(const void* state, void* target, const void* own, void* incoming, std::int64_t count,
                            bool incoming_left);
  function combine = nullptr;
  const void* state = nullptr;
  std::int64_t element_bytes = 1;
};

namespace detail {

template <reduction Kind, class T>
void combine_messages(const void*, void* target, const void* own, void* incoming, std::int64_t count, bool left) {
  const auto* first = static_cast<const T*>(left ? incoming : own);
  const auto* second = static_cast<const T*>(left ? own : incoming);
  combine_run<Kind, term_sum_t<T>>(static_cast<T*>(target), first, second, count);
}

}  // namespace detail

/// Elements of a type without an operation: what broadcasts and the like move.
[[nodiscard]] constexpr combiner moves_only(std::int64_t element_bytes) { return {nullptr, nullptr, element_bytes}; }

/// Errors: std::invalid_argument for sums and products of bool.
[[nodiscard]] inline combiner combiner_of(dtype type, reduction kind) {
  combiner made = moves_only(size_of(type));
  if (!is_reducible(type, kind)) throw std::invalid_argument("bool values have no sum and no product: use max or min");
  detail::with_storage(type, [&]<class T>(T) {
    switch (kind) {
      case reduction::max: made.combine = &detail::combine_messages<reduction::max, T>; return;
      case reduction::min: made.combine = &detail::combine_messages<reduction::min, T>; return;
      case reduction::sum:
        if constexpr (!std::is_same_v<T, bool>) made.combine = &detail::combine_messages<reduction::sum, T>;
        return;
      case reduction::prod:
        if constexpr (!std::is_same_v<T, bool>) made.combine = &detail::combine_messages<reduction::prod, T>;
        return;
    }
  });
  return made;
}

}  // namespace espalier::comm
