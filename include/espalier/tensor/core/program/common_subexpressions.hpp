// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <bit>
#include <cstdint>

namespace espalier {

namespace detail {

/// Finds instructions that compute the same, by hashing: a comparison of all pairs would exhaust a constant evaluation.
class common_subexpressions {
 public:
  constexpr explicit common_subexpressions(graph_view g, bool sources_too)
      : g_(g), sources_too_(sources_too), edit_(g) {
    int slots = 16;
    while (slots < 2 * g.size) slots *= 2;
    table_.resize(slots, -1);
  }

  constexpr graph run() {
    for (int id = 0; id < g_.size; ++id) {
      edit_.resolve(edit_[id]);
      const int same = may_merge(*g_[id].op) ? find_or_note(id) : -1;
      if (same < 0) {
        edit_.place(id);
      } else {
        edit_.replace(id, same);
      }
    }
    return edit_.finish();
  }

 private:
  /// True if two equal instructions of this op may be merged. Arguments, results and the structure of loops are kept
  /// once for each time they were asked for; so is a copy, whose purpose is a buffer of its own.
  [[nodiscard]] constexpr bool may_merge(const op_info& op) const {
    if (!sources_too_ && (op.fuse == fusion::source || op.fuse == fusion::broadcast)) return false;
    return !op.facts.unique;
  }

  /// The instruction before this one that computes the same, or -1.
  constexpr int find_or_note(int id) {
    const instruction& i = edit_[id];
    const auto mask = static_cast<std::uint64_t>(table_.size() - 1);
    std::uint64_t slot = hash(i) & mask;
    for (;; slot = (slot + 1) & mask) {
      const int candidate = table_[static_cast<int>(slot)];
      if (candidate < 0) break;
      instruction& other = edit_[candidate];
      if (!same(i, other) || !merge_alike(id, candidate)) continue;
      if (other.label == nullptr) other.label = i.label;
      return candidate;
    }
    table_[static_cast<int>(slot)] = id;
    return -1;
  }

  /// Whether the results after the first can be merged, too.
  [[nodiscard]] constexpr bool merge_alike(int id, int candidate) const {
    for (int n = further_results(g_.code, g_.size, id); n > 0; --n) {
      const instruction& one = g_[id + n];
      const instruction& other = edit_[candidate + n];
      if (!same_annotation(one.annotation, other.annotation) || !may_share_name(one, other)) return false;
    }
    return true;
  }

  /// A constant evaluation cannot read an address, so the op enters by its name's first letters.
  [[nodiscard]] constexpr std::uint64_t hash(const instruction& i) const {
    std::uint64_t h = static_cast<unsigned char>(i.op->name[0]);
    if (h != 0) h = h * 31 + static_cast<unsigned char>(i.op->name[1]);
    for (int k = 0; k < i.operand_count; ++k) h = mixed(h, static_cast<std::uint64_t>(operand_at(i, k)));
    for (const std::int64_t a : i.attribute) h = mixed(h, static_cast<std::uint64_t>(a));
    for (int d = 0; d < i.shape.rank; ++d) h = mixed(h, static_cast<std::uint64_t>(i.shape[d]));
    h = mixed(h, std::bit_cast<std::uint64_t>(i.scalar));
    return h ^ h >> 32U;
  }
  [[nodiscard]] static constexpr std::uint64_t mixed(std::uint64_t h, std::uint64_t more) {
    return (h ^ more) * 0x9e3779b97f4a7c15U + (h >> 29U);
  }

  /// Scalars are compared by their bits: 0 and -0 are two constants, and a NaN is one.
  [[nodiscard]] constexpr bool same(const instruction& a, const instruction& b) const {
    if (a.op != b.op || a.type != b.type || a.region != b.region) return false;
    if (a.operand_count != b.operand_count || !(a.shape == b.shape)) return false;
    for (int k = 0; k < a.operand_count; ++k) {
      if (operand_at(a, k) != operand_at(b, k)) return false;
    }
    for (int k = 0; k < max_attributes; ++k) {
      if (a.attribute[k] != b.attribute[k]) return false;
    }
    if (std::bit_cast<std::uint64_t>(a.scalar) != std::bit_cast<std::uint64_t>(b.scalar)) return false;
    if (!same_annotation(a.annotation, b.annotation)) return false;
    return may_share_name(a, b);
  }
  /// Two names: the user may ask for either.
  [[nodiscard]] static constexpr bool may_share_name(const instruction& a, const instruction& b) {
    return a.label == nullptr || b.label == nullptr || same_text(a.label, b.label);
  }

  [[nodiscard]] constexpr int operand_at(const instruction& i, int k) const { return edit_.operand_at(i, k); }

  [[nodiscard]] constexpr bool same_annotation(int a, int b) const {
    if (a == b) return true;
    if (a < 0 || b < 0) return false;
    const sharding& one = g_.annotations[a].placement;
    const sharding& other = g_.annotations[b].placement;
    // Parts of different tensors may have equal buffers: a third of 8 and of 9.
    if (!one.same_layout(other) || !(g_.annotations[a].shape == g_.annotations[b].shape)) return false;
    // What guides completion says nothing any more when a program is partitioned.
    return sources_too_ || (one.open == other.open && one.replicated == other.replicated &&
                            g_.annotations[a].priority == g_.annotations[b].priority);
  }

  graph_view g_;
  bool sources_too_;
  graph_editor edit_;
  list<int> table_;
};

}  // namespace detail

/// The same program with instructions that compute the same from the same operands merged into the first of them.
/// Only instructions of one loop are merged; arguments, results and the structure of loops stay.
/// Without `sources_too`, constants, indices and broadcasts stay apart, and what was annotated differently: before
/// completion, one constant that two tensors share would carry the sharding of one to the other.
[[nodiscard]] constexpr graph merge_common_subexpressions(graph_view g, bool sources_too = true) {
  return detail::common_subexpressions(g, sources_too).run();
}

}  // namespace espalier
