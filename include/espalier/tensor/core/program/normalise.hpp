// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/hoist.hpp>

namespace espalier {

namespace detail {

/// Puts a graph into the form that later passes rely on. Every step is linear in the size of the graph.
class normalisation {
 public:
  constexpr explicit normalisation(graph_view g)
      : g_(g),
        edit_(g),
        stand_for_(g.size, -1),
        regions_(g),
        alive_(g.size, false),
        head_(g.size + 1, -1),
        collected_(g.size, -1),
        following_(g.size, -1) {}

  constexpr graph run() {
    find_copies();
    resolve();
    hoist(edit_.now().code, edit_.now().further.data());
    mark();
    arrange();
    int cursor = head_[g_.size];
    place_region(cursor, g_.size);
    place_looks(-1);
    return edit_.finish();
  }

 private:
  [[nodiscard]] static constexpr bool is_collected(const instruction& i) { return collects(structure_of(i)); }

  /// The same values in the same shape and type, for no purpose that a later pass knows of.
  [[nodiscard]] constexpr bool is_alias(int id) const {
    const instruction& i = edit_[id];
    return i.annotation < 0 && i.op->facts.is_operand != nullptr && i.op->facts.is_operand({&edit_[0], id});
  }

  /// Returns the value that instruction `id` passes on as it is, or -1.
  [[nodiscard]] constexpr int passed_on(int id) const {
    const instruction& i = g_[id];
    if (is_further_result(i) && g_.operand(id, 0).op->facts.passes_operands) {
      return g_.operand_at(g_.operand(id, 0), attributes_of<further_result_attributes>(i).number);
    }
    const bool is_plain = i.annotation < 0 && i.operand_count == 1 && i.op->facts.is_operand != nullptr;
    if (i.op->facts.passes_operands || (is_plain && i.op->facts.is_operand({g_.code, id}))) return i.operand[0];
    return -1;
  }
  [[nodiscard]] constexpr bool is_annotation(int id) const {
    return requests_of(g_[id]) == layout_request::annotation &&
           !attributes_of<annotation_attributes>(g_[id]).of_gradient;
  }
  /// An alias whose tensor the user has laid out in another way than what it is an alias of stays, as a copy: two
  /// tensors may be laid out in two ways, and whether there are two must not depend on what an op does for its sizes.
  constexpr void find_copies() {
    int annotations = 0;
    for (int id = 0; id < g_.size; ++id) {
      if (is_annotation(id) || (structure_of(g_[id]) == structure::argument && g_[id].annotation >= 0)) ++annotations;
    }
    if (annotations < 2) return;
    stays_.resize(g_.size, false);
    // Tensors, each by its first instruction: `shard` returns its operand. Those that aliases join become one.
    list<int> same(g_.size, -1);
    list<int> annotation(g_.size, -1);
    const auto tensor = [&](int id) {
      while (same[id] != id) id = same[id];
      return id;
    };
    for (int id = 0; id < g_.size; ++id) {
      same[id] = is_annotation(id) ? tensor(g_[id].operand[0]) : id;
      int& known = annotation[same[id]];
      if (known < 0 && (is_annotation(id) || structure_of(g_[id]) == structure::argument)) known = g_[id].annotation;
    }
    for (int id = 0; id < g_.size; ++id) {
      const int from = passed_on(id);
      if (from < 0) continue;
      const int whole = tensor(from);
      const int alias = tensor(id);
      const int one = annotation[whole];
      const int other = annotation[alias];
      stays_[id] =
          one >= 0 && other >= 0 && !compatible(g_.annotations[one].placement, g_.annotations[other].placement);
      if (stays_[id] || whole == alias) continue;
      same[alias] = whole;
      if (one < 0) annotation[whole] = other;
    }
  }

  /// Points operands past aliases.
  constexpr void resolve() {
    for (int id = 0; id < g_.size; ++id) {
      instruction& i = edit_[id];
      stand_for_[id] = id;
      if (is_further_result(i) && g_.operand(id, 0).op->facts.passes_operands) {
        become_alias(i, g_.operand_at(g_.operand(id, 0), attributes_of<further_result_attributes>(i).number));
      } else if (i.op->facts.passes_operands) {
        become_alias(i, i.operand[0]);
      }
      if (structure_of(i) == structure::region_end) {
        if (i.operand_count > 1) i.operand[1] = stand_for_[i.operand[1]];
        continue;
      }
      for (int k = 0; k < i.operand_count; ++k) {
        int& operand = edit_.operand_at(i, k);
        const int target = stand_for_[operand];
        if (target == operand) continue;
        if (needs_own_buffer(i, k, target)) {
          edit_[operand].op = &ops::copy;
        } else {
          operand = target;
        }
      }
      if (i.operand_count == 1 && is_alias(id)) {
        if (!stays_.empty() && stays_[id]) {
          i.op = &ops::copy;
        } else {
          bypass(id, i.operand[0]);
        }
      }
    }
  }

  /// Makes an instruction that was there for its gradient an alias of one of its operands: nothing is left to
  /// differentiate.
  static constexpr void become_alias(instruction& i, int operand) {
    instruction alias = builder::make(ops::stop_gradient, i.type, i.shape, operand);
    alias.region = i.region;
    alias.where = i.where;
    alias.label = i.label;
    i = alias;
  }

  /// True if the alias stays, as a copy. A stack or sum collects values of its own loop, not of the outside; and a
  /// carry that is passed on as another one would be overwritten on the way.
  [[nodiscard]] constexpr bool needs_own_buffer(const instruction& i, int k, int target) const {
    if (is_collected(i)) return edit_[target].region != edit_[i.operand[0]].region;
    return structure_of(i) == structure::region_yield && k == 1 &&
           structure_of(edit_[target]) == structure::region_parameter && edit_[target].region == i.region &&
           target != i.operand[0];
  }

  constexpr void bypass(int id, int target) {
    if (edit_[id].label != nullptr) {
      if (edit_[target].label != nullptr) {
        // Two names for one value: a copy keeps the second.
        edit_[id].op = &ops::copy;
        return;
      }
      edit_[target].label = edit_[id].label;
      edit_[id].label = nullptr;
    }
    stand_for_[id] = target;
  }

  constexpr void want(int id) {
    if (alive_[id]) return;
    alive_[id] = true;
    work_.push_back(id);
  }

  /// The arguments, which the caller gives by number whether they are used or not, and everything that a result or a
  /// look at a value depends on. A carry needs what is passed on to it, a body its loop, and an op's results each
  /// other.
  constexpr void mark() {
    work_.reserve(g_.size);
    for (int id = 0; id < g_.size; ++id) {
      const structure part = structure_of(edit_[id]);
      if (part == structure::result || part == structure::argument || edit_[id].op->facts.looks) want(id);
    }
    while (!work_.empty()) {
      const int id = work_.back();
      work_.pop_back();
      const instruction& i = edit_[id];
      for (int k = 0; k < i.operand_count; ++k) want(edit_.operand_at(i, k));
      if (i.region >= 0) want(i.region);
      if (structure_of(i) == structure::region_begin) {
        const instruction& end = edit_[regions_.beginning_at(id).last];
        if (end.operand_count > 1) want(end.operand[1]);
      }
      for (int next = id + 1; next < g_.size && is_further_result(edit_[next]); ++next) want(next);
      if (structure_of(i) == structure::region_parameter && regions_.yield_of(id) >= 0) want(regions_.yield_of(id));
    }
  }

  /// Sorts what lives by the loop it belongs to, in order; stacks and sums by the loop of their value.
  constexpr void arrange() {
    for (int id = g_.size - 1; id >= 0; --id) {
      if (!alive_[id]) continue;
      const instruction& i = edit_[id];
      if (is_collected(i)) {
        int& head = collected_[edit_[i.operand[0]].region];
        following_[id] = head;
        head = id;
      } else {
        int& head = head_[i.region < 0 ? g_.size : i.region];
        following_[id] = head;
        head = id;
      }
    }
  }

  /// Places the instructions that belong to one loop, from `cursor` up to position `last`, and moves the cursor on. An
  /// instruction inside an inner loop that does not belong to it comes first: the inner loop may use it, and it cannot
  /// use the inner loop. Looks at values come when all of the region's are there.
  constexpr void place_region(int& cursor, int last) {
    while (cursor >= 0 && cursor < last) {
      const int id = cursor;
      cursor = following_[id];
      if (edit_[id].op->facts.looks) {
        looks_.push_back(id);
        continue;
      }
      if (structure_of(edit_[id]) != structure::region_begin) {
        edit_.place(id);
        continue;
      }
      const int end = regions_.beginning_at(id).last;
      place_region(cursor, end);
      edit_.place(id);
      int body = head_[id];
      place_region(body, g_.size);
      place_looks(id);
      edit_.place(end);
      for (int c = collected_[id]; c >= 0; c = following_[c]) edit_.place(c);
    }
  }

  /// The last of those listed, which are those of this loop.
  constexpr void place_looks(int region) {
    int first = looks_.size();
    while (first > 0 && edit_[looks_[first - 1]].region == region) --first;
    for (int n = first; n < looks_.size(); ++n) edit_.place(looks_[n]);
    looks_.resize(first);
  }

  graph_view g_;
  graph_editor edit_;
  /// The value that users of an instruction read instead: the instruction itself, or the value that it is an alias of.
  list<int> stand_for_;
  region_table regions_;
  list<bool> alive_;
  /// Aliases that become copies; empty if there are none.
  list<bool> stays_;
  list<int> work_;
  /// The first instruction of each loop (the last entry is for the outside); `following_` links to the others.
  list<int> head_;
  list<int> collected_;
  list<int> following_;
  /// The instructions that look at values of the regions that are being placed.
  list<int> looks_;
};

}  // namespace detail

/// The same program without dead code and in the order that later passes rely on:
///  - only the arguments and the values that some `ops::result` depends on are left: a loop if something it computes is
///    used, a carry if its last value or its use in the body is;
///  - `stop_gradient`, and ops that change neither shape nor type, are passed by;
///  - loop-invariant code is before its loop, see `hoist`;
///  - each `loop_stack` and `loop_sum` comes directly after the `region_end` of its value's loop;
///  - between a `region_begin` and its `region_end` are only instructions of that loop or of loops inside it.
/// Annotations keep their numbers. A label moves on to the value it named.
[[nodiscard]] constexpr graph normalise(graph_view g) { return detail::normalisation(g).run(); }

}  // namespace espalier
