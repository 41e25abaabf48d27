// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/lower.hpp>

#include <cstdint>

namespace espalier::detail {

/// The kinds of `Count` things: one kernel is instantiated for each kind, however often it is used.
template <int Count> struct kind_table {
  static constexpr int room = Count > 0 ? Count : 1;
  int count = 0;
  /// The kind of each thing; -1 if it has no kernel.
  int of[room]{};
  /// The first thing of each kind.
  int first[room]{};
};

[[nodiscard]] constexpr std::uint64_t mixed_in(std::uint64_t hash, std::int64_t more) {
  return (hash ^ static_cast<std::uint64_t>(more)) * 0x9e3779b97f4a7c15U + (hash >> 29U);
}
/// A constant evaluation cannot read an address, so the op enters by its name's first letters.
[[nodiscard]] constexpr std::uint64_t hash_of(const op_info& op) {
  const std::uint64_t first = static_cast<unsigned char>(op.name[0]);
  return first == 0 ? 0 : first * 31 + static_cast<unsigned char>(op.name[1]);
}
[[nodiscard]] constexpr std::uint64_t mixed_in(std::uint64_t hash, const extents& shape) {
  for (int d = 0; d < shape.rank; ++d) hash = mixed_in(hash, shape[d]);
  return hash;
}

/// Sorts things [0, Count) into kinds by hashing. `hash(n)` may be the same for things of several kinds, `same(a, b)`
/// decides; `has_one(n)` says whether the thing takes part.
template <int Count, class HasOne, class Hash, class Same>
[[nodiscard]] constexpr kind_table<Count> sort_into_kinds(const HasOne& has_one, const Hash& hash, const Same& same) {
  kind_table<Count> kinds;
  int slots = 16;
  while (slots < 2 * Count) slots *= 2;
  list<int> table(slots, -1);
  for (int n = 0; n < Count; ++n) {
    kinds.of[n] = -1;
    if (!has_one(n)) continue;
    const std::uint64_t h = hash(n);
    int slot = static_cast<int>((h ^ h >> 32U) & static_cast<std::uint64_t>(slots - 1));
    while (table[slot] >= 0 && !same(kinds.first[table[slot]], n)) slot = (slot + 1) & (slots - 1);
    if (table[slot] < 0) {
      kinds.first[kinds.count] = n;
      table[slot] = kinds.count++;
    }
    kinds.of[n] = table[slot];
  }
  return kinds;
}

/// Whether two instructions are the same to a kernel: everything static about them but which one it is.
[[nodiscard]] constexpr bool same_kernel(graph_view g, int a, int b) {
  const instruction& one = g[a];
  const instruction& other = g[b];
  if (one.op != other.op || one.type != other.type || one.operand_count != other.operand_count) return false;
  if (!(one.shape == other.shape)) return false;
  for (int k = 0; k < max_attributes; ++k) {
    if (one.attribute[k] != other.attribute[k]) return false;
  }
  for (int k = 0; k < one.operand_count && k < inline_operands; ++k) {
    if (g.operand(a, k).type != g.operand(b, k).type || !(g.operand(a, k).shape == g.operand(b, k).shape)) return false;
  }
  return true;
}
[[nodiscard]] constexpr std::uint64_t kernel_hash(graph_view g, int id) {
  std::uint64_t h = mixed_in(hash_of(*g[id].op), g[id].shape);
  for (int k = 0; k < g[id].operand_count && k < inline_operands; ++k) h = mixed_in(h, g.operand(id, k).shape);
  for (const std::int64_t a : g[id].attribute) h = mixed_in(h, a);
  return h;
}

/// The same for steps of fused chains.
[[nodiscard]] constexpr bool same_kernel(graph_view g, const fused_step& one, const fused_step& other) {
  if (g[one.instruction].op != g[other.instruction].op || one.type != other.type || one.columns != other.columns)
    return false;
  if (one.operand_count != other.operand_count || one.result_wide != other.result_wide) return false;
  for (int k = 0; k < max_attributes; ++k) {
    if (one.attribute[k] != other.attribute[k]) return false;
  }
  for (int k = 0; k < one.operand_count; ++k) {
    if (one.operand_type[k] != other.operand_type[k] || one.wide[k] != other.wide[k]) return false;
  }
  return true;
}
[[nodiscard]] constexpr std::uint64_t kernel_hash(graph_view g, const fused_step& step) {
  std::uint64_t h = mixed_in(hash_of(*g[step.instruction].op), step.columns);
  for (const std::int64_t a : step.attribute) h = mixed_in(h, a);
  for (int k = 0; k < step.operand_count; ++k) h = mixed_in(h, step.wide[k] ? 1 : 0);
  return h;
}

}  // namespace espalier::detail
