// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

/// How many times as long a constant evaluation may be as clang's limit on steps allows: g++ counts operations, 32
/// times as many.
#if defined(__clang__)
inline constexpr int length_of_evaluations = 1;
#else
inline constexpr int length_of_evaluations = 8;
#endif

/// The chunks of a pass over a graph, each a constant evaluation of its own, since compilers limit the steps of each.
/// Each chunk is handed all that was made before it, which costs as much as the pass itself where chunks are short: so
/// they are as long as the compiler allows, and graphs up to eight times `Shortest` have chunks of that many
/// instructions, longer ones eight chunks.
/// @tparam Shortest what clang is known to evaluate within its limit
template <int Size, int Shortest> struct pass_chunks {
  static constexpr int shortest = Shortest * length_of_evaluations;
  static constexpr int length = Size <= shortest ? Size : Size <= 8 * shortest ? shortest : (Size + 7) / 8;
  static constexpr int count = Size <= length ? 1 : (Size + length - 1) / length;
  [[nodiscard]] static constexpr int first(int chunk) { return chunk * length; }
  [[nodiscard]] static constexpr int last(int chunk) { return chunk == count - 1 ? Size : (chunk + 1) * length; }
};

}  // namespace espalier::detail
