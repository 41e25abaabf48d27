// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/lanes.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

// The transposition of a small square in registers.

namespace espalier::detail {

template <int Size> struct word;
template <> struct word<1> { using type = std::uint8_t; };
template <> struct word<2> { using type = std::uint16_t; };
template <> struct word<4> { using type = std::uint32_t; };
template <> struct word<8> { using type = std::uint64_t; };

/// The side of the square that is transposed in registers: at most 16, and one register a row.
template <class Word> inline constexpr int tile_side = smaller_of(16, full_lanes<Word>);

template <int Step, class V, std::size_t... Lane>
ESPALIER_ALWAYS_INLINE void exchange_lanes(V& a, V& b, std::index_sequence<Lane...>) {
  constexpr std::size_t side = sizeof...(Lane);
  constexpr std::size_t step = Step;
  const V low = chosen_lanes<((Lane & step) != 0 ? side + Lane - step : Lane)...>(a, b);
  b = chosen_lanes<((Lane & step) != 0 ? side + Lane : Lane + step)...>(a, b);
  a = low;
}

/// Swaps the off-diagonal quarters of every 2 Step x 2 Step square that two rows cross. Narrow lanes move in groups as
/// wide as possible: processors have no cheap permutation of 16-bit lanes.
template <int Step, int Side, class Word, class V> ESPALIER_ALWAYS_INLINE void exchange(V& a, V& b) {
  constexpr int bytes = Step * static_cast<int>(sizeof(Word));
  if constexpr (sizeof(Word) < 4 && bytes >= 4) {
    constexpr int group = 4 / static_cast<int>(sizeof(Word));
    using wide = lanes<std::uint32_t, Side / group>;
    auto x = std::bit_cast<wide>(a);
    auto y = std::bit_cast<wide>(b);
    exchange_lanes<Step / group>(x, y, std::make_index_sequence<static_cast<std::size_t>(Side / group)>{});
    a = std::bit_cast<V>(x);
    b = std::bit_cast<V>(y);
  } else {
    exchange_lanes<Step>(a, b, std::make_index_sequence<static_cast<std::size_t>(Side)>{});
  }
}

template <int Step, int Side, class Word, class V, std::size_t... Pair>
ESPALIER_ALWAYS_INLINE void exchange_rows(V* row, std::index_sequence<Pair...>) {
  (exchange<Step, Side, Word>(row[Pair / Step * 2 * Step + Pair % Step],
                              row[Pair / Step * 2 * Step + Pair % Step + Step]),
   ...);
}

template <int Step, int Side, class Word, class V> ESPALIER_ALWAYS_INLINE void transpose_rows(V* row) {
  if constexpr (Step > 0) {
    exchange_rows<Step, Side, Word>(row, std::make_index_sequence<static_cast<std::size_t>(Side / 2)>{});
    transpose_rows<Step / 2, Side, Word>(row);
  }
}

template <class T, std::size_t... Row>
ESPALIER_ALWAYS_INLINE void transpose_square(const T* from, std::int64_t from_row, T* to, std::int64_t to_row,
                                             std::index_sequence<Row...>) {
  using type = typename word<static_cast<int>(sizeof(T))>::type;
  constexpr int side = static_cast<int>(sizeof...(Row));
  using vector = lanes<type, side>;
  vector row[side];
  (std::memcpy(&row[Row], from + static_cast<std::int64_t>(Row) * from_row, sizeof(vector)), ...);
  transpose_rows<side / 2, side, type>(&row[0]);
  (std::memcpy(static_cast<void*>(to + static_cast<std::int64_t>(Row) * to_row), &row[Row], sizeof(vector)), ...);
}

}  // namespace espalier::detail
