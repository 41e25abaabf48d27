// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/graph/graph.hpp>
#include <espalier/ops/ops.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// Whether elements in sixteen bits become elements of the type that they are computed in.
[[nodiscard]] constexpr bool is_widening(const instruction* code, const instruction& i) {
  return i.op->facts.converts && is_for_storage(code[i.operand[0]].type) &&
         i.type == facts_of(code[i.operand[0]].type).accumulate;
}

/// What a value is computed from, as far back as elementwise ops of its own type reach.
struct widened_origin {
  static constexpr int most_ops = 12;
  int ops = 0;
  bool from_sixteen_bits = false;

  /// False if it needs more than a few ops, or another value that is as large as itself in memory.
  constexpr bool look(const instruction* code, int id) {
    const instruction& i = code[id];
    if (++ops > most_ops) return false;
    if (is_widening(code, i)) return from_sixteen_bits = true;
    if (i.op->fuse != fusion::elementwise || i.operand_count == 0 || i.operand_count > inline_operands) return false;
    if (!is_floating(i.type) || is_for_storage(i.type)) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      const instruction& from = code[i.operand[k]];
      if (size_of(from.type) <= 2 || from.op->fuse == fusion::source) continue;
      if (from.op->fuse == fusion::broadcast && code[from.operand[0]].shape.elements() < from.shape.elements())
        continue;
      if (!look(code, i.operand[k])) return false;
    }
    return true;
  }
};

/// Whether a value is computed in a few elementwise steps from others that take half of its memory: a norm from its
/// argument in bf16 and the mean of each row. Whoever reads it later computes it again: it is never in memory.
[[nodiscard]] constexpr bool is_from_sixteen_bits(const instruction* code, int id) {
  widened_origin origin;
  return origin.look(code, id) && origin.from_sixteen_bits;
}

/// Whether anything in a graph is computed in a wider type than it is kept in.
[[nodiscard]] constexpr bool widens(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op->facts.converts && is_widening(g.code, g[id])) return true;
  }
  return false;
}

/// Puts what is computed from sixteen bits directly before its readers: once for all that stand between the same two
/// ops with kernels of their own, and so in one chain.
class widened_repetition {
 public:
  constexpr explicit widened_repetition(graph_view g)
      : g_(g), may_repeat_(g.size, false), number_(g.size, -1), made_in_(g.size, -1), named_(g.size, false) {
    for (int id = 0; id < g_.size; ++id) {
      may_repeat_[id] = part_of(g_[id]) == structure::none && is_from_sixteen_bits(g_.code, id);
      // What another kind of op reads is in memory anyway.
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int o = g_.operand_at(g_[id], k);
        const fusion fuse = g_[id].op->fuse;
        if (g_[id].loop != g_[o].loop || (fuse != fusion::elementwise && fuse != fusion::reduction)) {
          may_repeat_[o] = false;
        }
      }
    }
  }

  constexpr graph run() {
    result_.code.reserve(g_.size);
    copy_tables(result_, g_);
    for (int id = 0; id < g_.size; ++id) {
      if (may_repeat_[id]) continue;
      const fusion fuse = g_[id].op->fuse;
      for (int k = 0; k < g_[id].operand_count; ++k) make(g_.operand_at(g_[id], k));
      number_[id] = append(id);
      if (fuse == fusion::alone) ++stretch_;
    }
    return static_cast<graph&&>(result_);
  }

 private:
  /// The value is there, for readers that follow.
  constexpr void make(int id) {
    if (!may_repeat_[id] || made_in_[id] == stretch_) return;
    for (int k = 0; k < g_[id].operand_count; ++k) make(g_[id].operand[k]);
    number_[id] = append(id);
    made_in_[id] = stretch_;
    if (named_[id]) result_.code[number_[id]].label = nullptr;
    named_[id] = true;
  }
  constexpr int append(int id) {
    instruction i = g_[id];
    for (int k = 0; k < i.operand_count; ++k) {
      int& operand = i.operand_at(k, result_.further.data());
      operand = number_[operand];
    }
    if (i.loop >= 0) i.loop = number_[i.loop];
    return result_.code.push_back(i);
  }

  graph_view g_;
  list<bool> may_repeat_;
  list<int> number_;
  /// The stretch between ops with kernels of their own in which a value was made last, and how many have ended.
  list<int> made_in_;
  list<bool> named_;
  int stretch_ = 0;
  graph result_;
};

}  // namespace detail

/// The same program in which no value is in memory that is computed, in a few elementwise steps, from values that take
/// half as much: x in bf16, and with it a mean and a variance per row in f32, but not the normalised row in f32. What
/// is read far from where it was computed is computed again there.
/// @pre the graph is partitioned, and collectives are where they start
[[nodiscard]] constexpr graph repeat_widened(graph_view g) { return detail::widened_repetition(g).run(); }

}  // namespace espalier
