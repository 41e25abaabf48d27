// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/comm/host/fold.hpp>
#include <espalier/comm/reduce.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace espalier::comm {

/// How elements of type T are combined by `Kind`; without code where they cannot be (sums of truth values).
template <class T, reduction Kind> [[nodiscard]] constexpr reducer reducer_of();

#if defined(ESPALIER_COMPILED)
/// The same where both are known at run time only: those of the kernel set for this processor
/// (tensor/run/kernels/impl/processor.ipp).
[[nodiscard]] reducer reducer_of(dtype type, reduction kind);
#else
// A template: a function would make the compiler read the code for all types even where it is not called.
template <std::same_as<dtype> Type> [[nodiscard]] reducer reducer_of(Type type, reduction kind);
#endif

}  // namespace espalier::comm

namespace espalier::comm::detail {

inline constexpr int reduction_count = static_cast<int>(reduction::min) + 1;

/// A place for each type and operation.
[[nodiscard]] constexpr int place_of(dtype type, reduction kind) {
  return static_cast<int>(type) * reduction_count + static_cast<int>(kind);
}

/// Types and operations, as the bits of their places.
using reducer_set = std::uint64_t;
inline constexpr int reducer_places = dtype_count * reduction_count;
static_assert(reducer_places <= 64);
inline constexpr reducer_set all_reducers = (reducer_set{1} << reducer_places) - 1;

template <reduction Kind, class T>
void combine_messages(const void* /*state*/, void* target, const void* own, void* incoming, std::int64_t count,
                      bool left) {
  combine_tile<Kind, T>(partial_sides::none, target, left ? incoming : own, left ? own : incoming, count);
}

template <reducer_set Set, int Place> [[nodiscard]] constexpr reducer reducer_at() {
  constexpr auto type = static_cast<dtype>(Place / reduction_count);
  constexpr auto kind = static_cast<reduction>(Place % reduction_count);
  if constexpr ((Set >> Place & 1U) != 0) {
    return reducer_of<storage_t<type>, kind>();
  } else {
    return {type, kind};
  }
}
template <reducer_set Set, std::size_t... Place>
[[nodiscard]] constexpr std::array<reducer, sizeof...(Place)> list_reducers(std::index_sequence<Place...>) {
  return {reducer_at<Set, static_cast<int>(Place)>()...};
}

/// Those of `Set`, and no code for others.
template <reducer_set Set> [[nodiscard]] reducer reducer_among(dtype type, reduction kind) {
  static constexpr auto all = list_reducers<Set>(std::make_index_sequence<static_cast<std::size_t>(reducer_places)>{});
  return all[static_cast<std::size_t>(place_of(type, kind))];
}

}  // namespace espalier::comm::detail

namespace espalier::comm {

template <class T, reduction Kind> [[nodiscard]] constexpr reducer reducer_of() {
  constexpr dtype type = dtype_of<T>;
  if constexpr (is_reducible(type, Kind)) {
    using lane_type = detail::lane_t<Kind, T>;
    return {type, Kind, &detail::combine_tile<Kind, lane_type>, &detail::combine_messages<Kind, lane_type>,
            detail::fold_of<Kind, T>()};
  } else {
    return {type, Kind};
  }
}

#if !defined(ESPALIER_COMPILED)
template <std::same_as<dtype> Type> [[nodiscard]] reducer reducer_of(Type type, reduction kind) {
  return detail::reducer_among<detail::all_reducers>(type, kind);
}
#endif

}  // namespace espalier::comm
