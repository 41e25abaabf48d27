// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>

#include <cstdint>

namespace espalier::detail {

/// A carry that its loop only adds to, or takes the maximum or minimum with: what is added may be summed over devices
/// once, after the loop.
struct accumulation {
  /// The carry of the outermost loop that it passes through.
  int carry = -1;
  reduction combine = reduction::sum;
  /// The axes over which it becomes a partial.
  axis_mask axes = 0;
  /// True if the terms change more than that on their way (a reduce_scatter): then the carry is laid out as they are.
  bool is_laid_out_anew = false;
  sharding layout{};
  /// The first collective that moves out of the loop, and the type that it sends.
  int moved = -1;
  dtype sent = dtype::f32;
};

/// Finds the carries of a partitioned program that may stay partials, and the terms whose collectives wait for the end
/// of the loop.
///
/// Such a carry, and all that the body computes from it, is read by nothing but ops that are linear in it, on the way
/// to its own next value; inner loops may pass it on. (A norm of a sum so far needs the sum: such a carry stays as it
/// is.) What the user annotated in the body stays as it is, too (`layout::is_fixed`).
class loop_accumulations {
  // First, because clang instantiates a member template for constants only if it has read its body.
  /// Calls `f(reader, term)` for all that is added to accumulations.
  template <class F> constexpr void for_each_term(const F& f) const {
    for (int id = 0; id < g_.size; ++id) {
      if (of_[id] < 0) continue;
      for (int k = 0; k < g_[id].operand_count; ++k) {
        if (is_term(id, k)) f(id, g_.operand_at(g_[id], k));
      }
    }
  }

 public:
  constexpr explicit loop_accumulations(graph_view g)
      : g_(g),
        of_(g.size, -1),
        source_(g.size, -1),
        moved_(g.size, -1),
        is_dropped_(g.size, false),
        stays_(g.size, false),
        uses_(g.size, 0),
        first_(g.size, -1) {}

  /// Whether a program has a loop that carries values and communicates: if not, there is nothing to find.
  [[nodiscard]] static constexpr bool are_possible(graph_view g) {
    bool carries = false;
    bool moves = false;
    for (int id = 0; id < g.size; ++id) {
      if (g[id].region < 0) continue;
      carries = carries || structure_of(g[id]) == structure::region_parameter;
      moves = moves || communicates(g[id]);
    }
    return carries && moves;
  }

  /// True if there are any.
  constexpr bool run() {
    list_readers();
    // Outer loops come first: what passes through an inner one belongs to the outer.
    for (const region& one : region_table(g_)) {
      if (!may_repeat(attributes_of<region_attributes>(g_[one.first]))) continue;
      for (const int id : one.parameters) {
        if (of_[id] < 0) grow(id);
      }
    }
    for (bool is_stable = false; !is_stable;) {
      is_stable = true;
      find_sources();
      for (int n = 0; n < found_.size(); ++n) is_stable = (found_[n].carry < 0 || decide(n)) && is_stable;
    }
    for (const accumulation& one : found_) {
      if (one.carry >= 0) return true;
    }
    return false;
  }

  [[nodiscard]] constexpr const list<accumulation>& found() const { return found_; }
  /// The number of the accumulation that a value belongs to, or -1.
  [[nodiscard]] constexpr int of(int id) const { return of_[id]; }
  /// The value that is added in place of this one, before any collective; or -1 if it is added as it is.
  [[nodiscard]] constexpr int source(int id) const { return source_[id]; }
  /// True for what has moved after the loop; its value is read no more.
  [[nodiscard]] constexpr bool is_dropped(int id) const { return is_dropped_[id]; }
  /// Whether operand k of an instruction of an accumulation is added to it (or compared with it).
  [[nodiscard]] constexpr bool is_term(int id, int k) const {
    if (structure_of(g_[id]) != structure::none || of_[g_.operand_at(g_[id], k)] == of_[id]) return false;
    const op_info& op = *g_[id].op;
    if (op.facts.masks == masking::choice) return k > 0;
    return op.linear == linearity::joint || combines(op, found_[of_[id]].combine);
  }
  /// Whether a region_result is where an accumulation ends.
  [[nodiscard]] constexpr bool is_end(int id) const {
    if (structure_of(g_[id]) != structure::region_result) return false;
    const int next = yield_of_result(g_[id]);
    return of_[next] >= 0 && found_[of_[next]].carry == parameter_of(g_[next]);
  }
  /// Whether a value is one that changes nothing, in every element.
  [[nodiscard]] constexpr bool is_nothing(int id) const {
    return g_[id].op->facts.values == pattern::uniform && g_[id].scalar == 0;
  }

 private:
  [[nodiscard]] static constexpr bool combines(const op_info& op, reduction kind) {
    return op.facts.combines == static_cast<int>(kind);
  }
  [[nodiscard]] constexpr const sharding& layout_of(int id) const {
    return g_.annotations[g_[id].annotation].placement;
  }

  constexpr void list_readers() {
    for (int id = 0; id < g_.size; ++id) {
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int value = g_.operand_at(g_[id], k);
        first_[value] = readers_.push_back({id, first_[value]});
      }
    }
  }
  /// Returns the number of times that a value is read, without looks at it.
  [[nodiscard]] constexpr int count_readers(int id) const {
    int count = 0;
    for (int at = first_[id]; at >= 0; at = readers_[at].next) count += g_[readers_[at].id].op->facts.looks ? 0 : 1;
    return count;
  }

  // --- values that may be partials ----------------------------------------------------------------------------------

  /// Collects all that is computed from a carry, if it may be a partial.
  constexpr void grow(int carry) {
    const int number = found_.push_back({.carry = carry, .combine = combined_by(carry)});
    members_.clear();
    join(carry, number);
    bool fits = true;
    for (int n = 0; n < members_.size() && fits; ++n) {
      for (int at = first_[members_[n]]; at >= 0 && fits; at = readers_[at].next)
        fits = follow(members_[n], readers_[at].id, number);
    }
    for (const int id : members_) fits = fits && holds(id, number);
    if (fits) return;
    found_[number].carry = -1;
    for (const int id : members_) of_[id] = -1;
  }
  constexpr bool join(int id, int number) {
    if (of_[id] == number) return true;
    if (of_[id] >= 0) return false;
    of_[id] = number;
    members_.push_back(id);
    return true;
  }
  constexpr void give_up(int number) {
    found_[number].carry = -1;
    for (int id = 0; id < g_.size; ++id) {
      if (of_[id] == number) of_[id] = -1;
    }
  }
  /// Ops of two values that combine them say how; all others are linear, for sums.
  [[nodiscard]] constexpr reduction combined_by(int carry) const {
    for (int at = first_[carry]; at >= 0; at = readers_[at].next) {
      const op_info& op = *g_[readers_[at].id].op;
      if (combines(op, reduction::max)) return reduction::max;
      if (combines(op, reduction::min)) return reduction::min;
      if (op.facts.part == structure::region_parameter) return combined_by(readers_[at].id);
    }
    return reduction::sum;
  }
  constexpr bool follow(int value, int reader, int number) {
    const instruction& i = g_[reader];
    if (i.op->facts.looks) return true;
    switch (structure_of(i)) {
      case structure::region_yield:
      case structure::region_parameter: return join(reader, number);
      case structure::region_result:
        return parameter_of(g_[yield_of_result(i)]) == found_[number].carry || join(reader, number);
      case structure::none: return i.region == g_[value].region && join(reader, number);
      default: return false;
    }
  }
  /// Whether an instruction can work on terms of the operands that are accumulated.
  [[nodiscard]] constexpr bool holds(int id, int number) const {
    const instruction& i = g_[id];
    if (g_.annotations[g_[id].annotation].is_fixed) return false;
    const auto is_member = [&](int k) { return of_[g_.operand_at(i, k)] == number; };
    if (structure_of(i) == structure::region_yield) return is_member(0) && is_member(1);
    if (structure_of(i) != structure::none) return true;
    if (i.op->facts.moves >= 0 || is_further_result(i) || (id + 1 < g_.size && is_further_result(g_[id + 1])))
      return false;
    int members = 0;
    for (int k = 0; k < i.operand_count; ++k) members += is_member(k) ? 1 : 0;
    if (i.op->facts.masks == masking::choice) return !is_member(0);
    if (found_[number].combine != reduction::sum) {
      return combines(*i.op, found_[number].combine) || i.op == &ops::copy;
    }
    switch (i.op->linear) {
      case linearity::none: return false;
      case linearity::joint: return true;
      // (A quotient of integers is rounded.)
      case linearity::first: return members == 1 && is_member(0) && (i.operand_count == 1 || is_floating(i.type));
      case linearity::each: return members == 1 && !i.op->facts.contracts;
    }
    return false;
  }

  // --- terms --------------------------------------------------------------------------------------------------------

  /// Finds the terms that are moved for nothing but to be added.
  constexpr void find_sources() {
    for (int id = 0; id < g_.size; ++id) {
      source_[id] = moved_[id] = -1;
      is_dropped_[id] = false;
      uses_[id] = 0;
    }
    for_each_term([&](int, int term) { ++uses_[term]; });
    for_each_term([&](int id, int term) {
      if (source_[term] < 0 && !stays_[term] && uses_[term] == count_readers(term)) find_source(id, term);
    });
  }
  /// Goes back over collectives and changes of type.
  constexpr void find_source(int reader, int term) {
    int moved = -1;
    for (int id = term; id == term || count_readers(id) == 1; id = g_[id].operand[0]) {
      const instruction& i = g_[id];
      if (i.region != g_[reader].region || i.annotation < 0 || g_.annotations[g_[id].annotation].is_fixed) break;
      if (i.op->facts.converts) {
        if (!is_floating(i.type) || g_.operand(id, 0).type == dtype::boolean) break;
      } else if (!may_wait(i, found_[of_[reader]].combine)) {
        break;
      }
      if (communicates(i)) moved = id;
    }
    if (moved < 0) return;
    moved_[term] = moved;
    source_[term] = g_[moved].operand[0];
    const instruction& narrowed = g_[source_[term]];
    const bool is_for_travel = narrowed.op->facts.converts && narrowed.region == g_[reader].region &&
                               is_floating(narrowed.type) && is_floating(g_[narrowed.operand[0]].type) &&
                               count_readers(source_[term]) == 1;
    for (int id = term; id != source_[term]; id = g_[id].operand[0]) is_dropped_[id] = true;
    if (is_for_travel) {
      is_dropped_[source_[term]] = true;
      source_[term] = narrowed.operand[0];
    }
  }
  [[nodiscard]] static constexpr bool may_wait(const instruction& i, reduction combine) {
    if (i.op->facts.moves < 0 || i.op->facts.travels_along) return false;
    const auto moves = attributes_of<collective_attributes>(i);
    return moves.window_count == 0 &&
           (!facts_of(static_cast<collective>(i.op->facts.moves)).reduces || moves.combine == combine);
  }

  // --- layouts ------------------------------------------------------------------------------------------------------

  /// Chooses the layout of an accumulation. False if other answers change by this one.
  constexpr bool decide(int number) {
    accumulation& one = found_[number];
    one.axes = 0;
    one.moved = -1;
    bool same_shards = true;
    bool same_layouts = true;
    bool is_all_moved = true;
    for_each_term([&](int id, int term) {
      if (of_[id] != number) return;
      if (source_[term] < 0) {
        is_all_moved = is_all_moved && is_nothing(term);
        return;
      }
      const sharding& from = layout_of(source_[term]);
      sharding whole = from;
      whole.unreduced = layout_of(term).unreduced;
      const bool keeps_shards = whole.same_layout(layout_of(term));
      same_shards = same_shards && keeps_shards;
      if (one.moved < 0) one.layout = from;
      same_layouts = same_layouts && one.layout.same_layout(from);
      one.axes |= from.unreduced & ~layout_of(term).unreduced;
      if (one.moved < 0) note_moved(one, term);
    });
    if (one.moved < 0) {
      give_up(number);
      return false;
    }
    one.is_laid_out_anew = !same_shards;
    if (same_shards ? may_be_partial(number) : is_all_moved && same_layouts && only_adds(number)) return true;
    for_each_term([&](int id, int term) {
      if (of_[id] != number || source_[term] < 0) return;
      sharding whole = layout_of(source_[term]);
      whole.unreduced = layout_of(term).unreduced;
      if (same_shards || !whole.same_layout(layout_of(term))) stays_[term] = true;
    });
    return false;
  }
  constexpr void note_moved(accumulation& one, int term) const {
    one.moved = moved_[term];
    one.sent = g_[one.moved].type;
  }
  [[nodiscard]] constexpr bool may_be_partial(int number) const {
    for (int id = 0; id < g_.size; ++id) {
      if (of_[id] != number) continue;
      const sharding& held = layout_of(id);
      if (((held.tiled() | held.unreduced) & found_[number].axes) != 0) return false;
    }
    return true;
  }
  /// Whether all that happens to an accumulation is that terms of its own layout are added.
  [[nodiscard]] constexpr bool only_adds(int number) const {
    const accumulation& one = found_[number];
    if (one.combine != reduction::sum) return false;
    for (int id = 0; id < g_.size; ++id) {
      if (of_[id] != number) continue;
      const bool adds =
          structure_of(g_[id]) != structure::none || combines(*g_[id].op, reduction::sum) || g_[id].op == &ops::copy;
      if (!adds || !layout_of(id).same_layout(layout_of(one.carry))) return false;
    }
    return true;
  }

  graph_view g_;
  list<accumulation> found_;
  list<int> of_;
  list<int> source_;
  /// The collective next to each term's source, or -1.
  list<int> moved_;
  list<bool> is_dropped_;
  /// Terms that are added as they are.
  list<bool> stays_;
  /// How often each value is a term.
  list<int> uses_;
  /// The readers of each value, as a chain from `first_`.
  struct reading {
    int id = -1;
    int next = -1;
  };
  list<int> first_;
  list<reading> readers_;
  list<int> members_;
};

}  // namespace espalier::detail
