// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace espalier::detail {

/// The chunks of a pass over a graph, each a constant evaluation of its own, since compilers limit the steps of each.
/// Graphs up to eight times `Shortest` have chunks of that many instructions; longer ones have eight chunks, since each
/// chunk is handed all that was made before it.
template <int Size, int Shortest> struct pass_chunks {
  static constexpr int length = Size <= 8 * Shortest ? Shortest : (Size + 7) / 8;
  static constexpr int count = Size <= length ? 1 : (Size + length - 1) / length;
  [[nodiscard]] static constexpr int first(int chunk) { return chunk * length; }
  [[nodiscard]] static constexpr int last(int chunk) { return chunk == count - 1 ? Size : (chunk + 1) * length; }
};

}  // namespace espalier::detail
