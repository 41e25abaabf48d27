// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/schedule.hpp>

namespace espalier {

namespace detail {

/// Whether elements in sixteen bits become elements of the type that they are computed in.
[[nodiscard]] constexpr bool is_widening(const instruction* code, const instruction& i) {
  return i.op->facts.converts && is_for_storage(code[i.operand[0]].type) &&
         i.type == facts_of(code[i.operand[0]].type).accumulate;
}

/// The computation that a value results from, as far back as elementwise ops of its own type reach.
struct widened_origin {
  static constexpr int most_ops = 12;
  int ops = 0;
  bool widens = false;
  /// It reads truth values, or elements in sixteen bits.
  bool reads_less = false;

  /// False if it needs more than a few ops, or another value that is as large as itself in memory.
  constexpr bool look(const instruction* code, int id) {
    const instruction& i = code[id];
    if (++ops > most_ops) return false;
    if (is_widening(code, i)) return widens = true;
    if (i.op->fuse != fusion::elementwise || i.operand_count == 0 || i.operand_count > inline_operands) return false;
    if (!is_floating(i.type) || is_for_storage(i.type)) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      const instruction& from = code[i.operand[k]];
      if (from.op->fuse == fusion::source) continue;
      if (size_of(from.type) <= 2) {
        reads_less = true;
        continue;
      }
      if (from.op->fuse == fusion::broadcast && code[from.operand[0]].shape.elements() < from.shape.elements())
        continue;
      if (!look(code, i.operand[k])) return false;
    }
    return true;
  }
};

/// True if a value is computed in a few elementwise steps from others that take half of its memory: a norm from its
/// argument in bf16 and the mean of each row. A later reader computes it again: it is never in memory.
[[nodiscard]] constexpr bool is_from_sixteen_bits(const instruction* code, int id) {
  widened_origin origin;
  return origin.look(code, id) && origin.widens;
}

/// Whether anything in a graph is computed in a wider type than it is kept in.
[[nodiscard]] constexpr bool widens(graph_view g) {
  for (int id = 0; id < g.size; ++id) {
    if (g[id].op->facts.converts && is_widening(g.code, g[id])) return true;
  }
  return false;
}

/// Makes what is computed from sixteen bits once for each chain that reads it, directly before the first reader there.
class widened_repetition {
 public:
  constexpr widened_repetition(graph_view g, schedule_view s)
      : g_(g), s_(s), edit_(g), may_repeat_(g.size, false), current_(g.size, -1), copies_of_(g.size, -1) {
    for (int id = 0; id < g_.size; ++id) {
      may_repeat_[id] = structure_of(g_[id]) == structure::none && may_repeat(id);
      // An operand of another kind of op is in memory anyway.
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int o = g_.operand_at(g_[id], k);
        if (g_[id].region != g_[o].region || s_.launch_of[id] < 0 || !s_.launches[s_.launch_of[id]].fused)
          may_repeat_[o] = false;
      }
    }
  }

  constexpr graph run() {
    for (int id = 0; id < g_.size; ++id) {
      if (may_repeat_[id]) continue;
      for (int k = 0; k < g_[id].operand_count; ++k) make(g_.operand_at(g_[id], k), s_.launch_of[id]);
      read_current(edit_[id]);
      current_[id] = edit_.place(id);
    }
    return edit_.finish();
  }

 private:
  [[nodiscard]] constexpr bool may_repeat(int id) const {
    widened_origin origin;
    return origin.look(g_.code, id) && (origin.widens || origin.reads_less);
  }

  /// A value as instructions of one chain read it.
  struct copy {
    int launch = -1;
    int made = -1;
    int next = -1;
  };

  /// The value is there, for readers in this launch.
  constexpr void make(int id, int launch) {
    if (!may_repeat_[id]) return;
    for (int c = copies_of_[id]; c >= 0; c = copies_[c].next) {
      if (copies_[c].launch != launch) continue;
      current_[id] = copies_[c].made;
      return;
    }
    for (int k = 0; k < g_[id].operand_count; ++k) make(g_[id].operand[k], launch);
    instruction again = g_[id];
    if (copies_of_[id] >= 0) again.label = nullptr;
    read_current(again);
    current_[id] = edit_.append(again);
    copies_of_[id] = copies_.push_back({launch, current_[id], copies_of_[id]});
  }
  constexpr void read_current(instruction& i) {
    for (int k = 0; k < i.operand_count; ++k) {
      int& operand = edit_.operand_at(i, k);
      operand = current_[operand];
    }
  }

  graph_view g_;
  schedule_view s_;
  graph_editor edit_;
  list<bool> may_repeat_;
  /// The copy of each instruction that its next reader has.
  list<int> current_;
  /// The last copy of each instruction, -1 if it has none.
  list<int> copies_of_;
  list<copy> copies_;
};

}  // namespace detail

/// The same program in which no value is in memory that is computed, in a few elementwise steps, from values that take
/// half as much: x in bf16, and with it a mean and a variance per row in f32, but not the normalised row in f32. A
/// chain that reads what another one computes so computes it again.
/// @pre the graph is partitioned, `s` is its schedule, and collectives are where they start
[[nodiscard]] constexpr graph repeat_widened(graph_view g, schedule_view s) {
  return detail::widened_repetition(g, s).run();
}

}  // namespace espalier
