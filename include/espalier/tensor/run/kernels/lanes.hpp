// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/dtype.hpp>
#include <espalier/base/half_runs.hpp>
#include <espalier/base/simd.hpp>
#include <espalier/config.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// Vectors of a chosen number of lanes, for the two things a compiler does not find in a plain loop: sums in several
// partial sums (it must keep the order of floating-point additions) and the transposition of a tile in registers.

namespace espalier::detail {

template <class T, int Count> struct lane_vector { using type [[gnu::vector_size(Count * sizeof(T))]] = T; };
template <class T, int Count> using lanes = typename lane_vector<T, Count>::type;

/// How many lanes fill a register.
template <class T> inline constexpr int full_lanes = simd_bytes / static_cast<int>(sizeof(T));

/// Neighbouring elements of T become lanes of To, which may be a type that they convert to. `to` is no result: g++
/// warns of one that is wider than a register.
template <class To, int Count, class T> ESPALIER_ALWAYS_INLINE void read_lanes(const T* from, lanes<To, Count>& to) {
  if constexpr (!std::is_same_v<T, computed_t<T>>) {
    using computed = computed_t<T>;
    static_assert(sizeof(T) == sizeof(std::uint16_t) && sizeof(computed) == sizeof(std::uint32_t),
                  "formats that are computed in another type are read as words of 16 bits, and widened to 32");
    lanes<computed, Count> wide;
    if constexpr (std::is_same_v<T, float16> && converts_halves(Count)) {
#if defined(__F16C__)
      widen_lanes<Count>(from, wide);
#endif
    } else {
      using words = lanes<std::uint32_t, Count>;
      lanes<std::uint16_t, Count> raw;
      std::memcpy(&raw, from, sizeof(raw));
      wide = std::bit_cast<lanes<computed, Count>>(
          T::template widened<lanes<computed, Count>>(__builtin_convertvector(raw, words)));
    }
    if constexpr (std::is_same_v<To, computed>) {
      to = wide;
    } else {
      to = __builtin_convertvector(wide, lanes<To, Count>);
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    static_assert(sizeof(T) == sizeof(std::uint8_t));
    lanes<std::uint8_t, Count> raw;
    std::memcpy(&raw, from, sizeof(raw));
    to = __builtin_convertvector(raw, lanes<To, Count>);
  } else if constexpr (sizeof(To) == sizeof(T)) {
    static_assert(std::is_floating_point_v<To> == std::is_floating_point_v<T>);
    std::memcpy(&to, from, sizeof(to));
  } else {
    lanes<T, Count> raw;
    std::memcpy(&raw, from, sizeof(raw));
    to = __builtin_convertvector(raw, lanes<To, Count>);
  }
}

/// The same for lanes that a register holds.
template <class To, int Count, class T>
[[nodiscard]] ESPALIER_ALWAYS_INLINE lanes<To, Count> load_lanes(const T* from) {
  lanes<To, Count> to;
  read_lanes<To, Count>(from, to);
  return to;
}

/// The lanes of `a` and, after these, of `b` that have these numbers.
template <std::size_t... Index, class V>
[[nodiscard]] ESPALIER_ALWAYS_INLINE auto chosen_lanes(const V& a, const V& b) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, static_cast<int>(Index)...);
#else  // g++ 11
  using element = std::remove_cvref_t<decltype(a[0])>;
  constexpr std::size_t count = sizeof(V) / sizeof(element);
  return lanes<element, static_cast<int>(sizeof...(Index))>{(Index < count ? a[Index % count] : b[Index % count])...};
#endif
}

template <class T, int Count, std::size_t... Lane>
[[nodiscard]] ESPALIER_ALWAYS_INLINE lanes<T, Count / 2> lower_half(const lanes<T, Count>& v,
                                                                    std::index_sequence<Lane...>) {
  return chosen_lanes<Lane...>(v, v);
}
template <class T, int Count, std::size_t... Lane>
[[nodiscard]] ESPALIER_ALWAYS_INLINE lanes<T, Count / 2> upper_half(const lanes<T, Count>& v,
                                                                    std::index_sequence<Lane...>) {
  return chosen_lanes<(Count / 2 + Lane)...>(v, v);
}

}  // namespace espalier::detail
