// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/simd.hpp>
#include <espalier/base/storage.hpp>
#include <espalier/config.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

// Conversions of many sixteen-bit elements at once. A loop over `float16` becomes vectors of some twenty integer
// operations each, since compilers know no instruction for a type of the library's own. Where the flags allow the
// processor's instructions, these take two. A loop over `bfloat16` becomes vectors only at high levels of optimisation:
// here they are written out. All make the same bits.

namespace espalier::detail {

/// The elements that one instruction converts; 0: the processor has none.
#if defined(__F16C__) && defined(__AVX512F__)
inline constexpr int most_half_lanes = 16;
#elif defined(__F16C__)
inline constexpr int most_half_lanes = 8;
#else
inline constexpr int most_half_lanes = 0;
#endif

/// Whether an instruction converts so many.
[[nodiscard]] constexpr bool converts_halves(int count) {
  return count <= most_half_lanes && (count == 4 || count == 8 || count == 16);
}

template <int Count> struct half_lanes {
  using floats [[gnu::vector_size(Count * sizeof(float))]] = float;
  /// As they are in memory, at any address of an element.
  using stored [[gnu::vector_size(Count * sizeof(std::uint16_t)), gnu::may_alias, gnu::aligned(2)]] = std::uint16_t;
};

#if defined(__F16C__)
// The intrinsics' header would cost every program 0.25 s.
template <int Count> ESPALIER_ALWAYS_INLINE void widen_lanes(const void* from, typename half_lanes<Count>::floats& to) {
  static_assert(converts_halves(Count));
  asm("vcvtph2ps %1, %0" : "=v"(to) : "m"(*static_cast<const typename half_lanes<Count>::stored*>(from)));
}
template <int Count>
ESPALIER_ALWAYS_INLINE void shorten_lanes(const typename half_lanes<Count>::floats& from, void* to) {
  static_assert(converts_halves(Count));
  asm("vcvtps2ph $0, %1, %0" : "=m"(*static_cast<typename half_lanes<Count>::stored*>(to)) : "v"(from));
}

template <int Count> ESPALIER_ALWAYS_INLINE void convert_some(const float16* from, float* to) {
  typename half_lanes<Count>::floats wide;
  widen_lanes<Count>(from, wide);
  std::memcpy(to, &wide, sizeof(wide));
}
template <int Count> ESPALIER_ALWAYS_INLINE void convert_some(const float* from, float16* to) {
  typename half_lanes<Count>::floats wide;
  std::memcpy(&wide, from, sizeof(wide));
  shorten_lanes<Count>(wide, to);
}
#endif

template <int Count> struct bf16_lanes {
  using words [[gnu::vector_size(Count * sizeof(std::uint32_t))]] = std::uint32_t;
  using stored [[gnu::vector_size(Count * sizeof(std::uint16_t))]] = std::uint16_t;
};
template <int Count> ESPALIER_ALWAYS_INLINE void convert_some(const bfloat16* from, float* to) {
  using words = typename bf16_lanes<Count>::words;
  typename bf16_lanes<Count>::stored stored;
  std::memcpy(&stored, from, sizeof(stored));
  const words wide = __builtin_convertvector(stored, words) << 16U;
  std::memcpy(to, &wide, sizeof(wide));
}
/// As the constructor of `bfloat16` does.
template <int Count> ESPALIER_ALWAYS_INLINE void convert_some(const float* from, bfloat16* to) {
  using words = typename bf16_lanes<Count>::words;
  using stored = typename bf16_lanes<Count>::stored;
  words raw;
  std::memcpy(&raw, from, sizeof(raw));
  const words upper = raw >> 16U;
  const auto is_nan = all_bits_where<words>((raw & 0x7fffffffU) > 0x7f800000U);
  const words rounded = (raw + 0x7fffU + (upper & 1U)) >> 16U;
  const words made = (is_nan & (upper | 0x40U)) | (~is_nan & rounded);
  const stored narrow = __builtin_convertvector(made, stored);
  std::memcpy(static_cast<void*>(to), &narrow, sizeof(narrow));
}

template <class T> inline constexpr bool is_sixteen_bits = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
/// Whether `convert_run` converts one to the other.
template <class From, class To>
inline constexpr bool is_half_run = (is_sixteen_bits<From> && std::is_same_v<To, float>) ||
                                    (std::is_same_v<From, float> && is_sixteen_bits<To>);

/// Neighbouring bf16 elements as floats, or the elements nearest to neighbouring floats.
template <class From, class To>
  requires(std::is_same_v<From, bfloat16> || std::is_same_v<To, bfloat16>)
void convert_run(const From* from, To* to, std::int64_t count) {
  static_assert(is_half_run<From, To>);
  constexpr int most = integer_simd_bytes / 4;
  std::int64_t i = 0;
  for (; i + 4 * most <= count; i += 4 * most) {
    ESPALIER_UNROLL
    for (int k = 0; k < 4; ++k) convert_some<most>(from + i + k * most, to + i + k * most);
  }
  for (; i + most <= count; i += most) convert_some<most>(from + i, to + i);
  for (; i < count; ++i) to[i] = To(from[i]);
}
/// Neighbouring f16 elements as floats, or the elements nearest to neighbouring floats.
template <class From, class To>
  requires(std::is_same_v<From, float16> || std::is_same_v<To, float16>)
void convert_run(const From* from, To* to, std::int64_t count) {
  static_assert(is_half_run<From, To>);
#if defined(__F16C__)
  constexpr int most = most_half_lanes;
  std::int64_t i = 0;
  // Four at a time: with one, the time depends on where the compiler puts the loop.
  for (; i + 4 * most <= count; i += 4 * most) {
    ESPALIER_UNROLL
    for (int k = 0; k < 4; ++k) convert_some<most>(from + i + k * most, to + i + k * most);
  }
  for (; i + most <= count; i += most) convert_some<most>(from + i, to + i);
  for (; i + 4 <= count; i += 4) convert_some<4>(from + i, to + i);
  if (i == count) return;
  const auto rest = static_cast<std::size_t>(count - i);
  From last[4]{};
  To converted[4];
  std::memcpy(static_cast<void*>(&last[0]), from + i, rest * sizeof(From));
  convert_some<4>(&last[0], &converted[0]);
  std::memcpy(static_cast<void*>(to + i), &converted[0], rest * sizeof(To));
#else
  ESPALIER_SIMD
  for (std::int64_t i = 0; i < count; ++i) to[i] = To(from[i]);
#endif
}
/// The same for any types.
template <class From, class To> void convert_elements(const From* from, To* to, std::int64_t count) {
  if constexpr (is_half_run<From, To>) {
    convert_run(from, to, count);
  } else {
    ESPALIER_VECTORISE
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
  }
}
/// Rows of which the next begins so many elements further, on either side.
template <class From, class To>
void convert_rows(const From* from, std::int64_t from_row, To* to, std::int64_t to_row, std::int64_t rows,
                  std::int64_t columns) {
  if (rows == 1 || (from_row == columns && to_row == columns)) return convert_run(from, to, rows * columns);
  for (std::int64_t r = 0; r < rows; ++r) convert_run(from + r * from_row, to + r * to_row, columns);
}

/// Elements as floats: where they are, or converted in `room`.
template <class T>
[[nodiscard]] ESPALIER_ALWAYS_INLINE const auto* as_floats(const T* from, std::int64_t count, float* room) {
  if constexpr (is_sixteen_bits<T>) {
    convert_run(from, room, count);
    return static_cast<const float*>(room);
  } else {
    return from;
  }
}

}  // namespace espalier::detail
