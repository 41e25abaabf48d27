// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>

#include <cstdint>

namespace espalier {

enum class memory_space : std::uint8_t {
  /// The value is not stored: its readers make it, or it is inside a fused chain.
  nowhere,
  /// The value is at an offset in the one block that a device allocates for a program.
  arena,
  /// The value is in the caller's buffer of an argument or of a result.
  argument,
  result,
};

/// The place of a value's buffer. Inside loops the address moves with the iterations: slices of stacked tensors are
/// read and written in place. A chain of locations, one for each loop, says how far it moves, so loops nest to any
/// depth.
struct location {
  memory_space space = memory_space::nowhere;
  int index = -1;
  std::int64_t offset = 0;
  /// Each iteration of this loop moves it by so many bytes, and the location of instruction `outer` moves it as well.
  int region = -1;
  int outer = -1;
  std::int64_t stride = 0;
  /// True if the address is `stride` bytes further in every second iteration instead: in those whose number plus
  /// `phase` is odd.
  bool alternates = false;
  int phase = 0;
  /// Each device has it so many rows further as the first row it needs is from its operand's (`rows_to_needed`).
  bool is_displaced = false;
};

/// Returns how far the iterations of all loops around a value move its address; `iteration(loop)` is the index of the
/// one that runs, `where(id)` the location of an instruction.
template <class Where, class Iteration>
[[nodiscard]] constexpr std::int64_t moved_by(const location& at, const Where& where, const Iteration& iteration) {
  std::int64_t bytes = 0;
  for (const location* l = &at; l->region >= 0; l = &where(l->outer)) {
    bytes += l->stride * (l->alternates ? (iteration(l->region) + l->phase) % 2 : iteration(l->region));
    if (l->outer < 0) break;
  }
  return bytes;
}

/// A buffer that the arena has to provide, and the launches [first, last] during which it is needed.
struct buffer {
  int value = -1;
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

inline constexpr std::int64_t arena_alignment = 64;

[[nodiscard]] constexpr std::int64_t bytes_of(const instruction& i) { return i.shape.elements() * size_of(i.type); }
[[nodiscard]] constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + arena_alignment - 1) / arena_alignment * arena_alignment;
}

/// The values that share a buffer, and the lifetime of each buffer.
struct memory_outline {
  /// The value in whose buffer this one is (itself: it has its own), or -1 if it is not stored.
  detail::list<int> root;
  /// Relative to the root's buffer.
  detail::list<location> within;
  detail::list<buffer> buffers;
  /// A copy is made: true for results, carries and stacks whose value could not be computed in place.
  detail::list<bool> copied;
  /// The results and the `region_yield`s that are copied, in an order in which none overwrites what a later one of the
  /// same launch reads, but for those that are saved: their values go to a buffer of their own first.
  detail::list<int> copies;
  detail::list<bool> saved;
};

}  // namespace espalier
