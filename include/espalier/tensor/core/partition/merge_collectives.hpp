// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/partition/lacking.hpp>
#include <espalier/tensor/core/partition/messages.hpp>
#include <espalier/tensor/core/partition/partition.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// Bytes that devices lack of a tensor that is read through windows.
[[nodiscard]] constexpr std::int64_t bytes_lacking(graph_view g, int id) {
  const auto moves = attributes_of<collective_attributes>(g[id]);
  return bytes_lacking(g.annotations[g.operand(id, 0).annotation], g.annotations[g[id].annotation].placement,
                       g.windows + moves.first_window, moves.window_count, size_of(g[id].type));
}

/// Postpones every collective that sends little until its value is needed, and lets those of a kind that wait then over
/// the same axes travel together, with later ones whose operands can be computed by then. Each remains an instruction
/// of its own; the graph only says which share their messages, and the order changes.
class collective_merger {
 public:
  constexpr collective_merger(const mesh_shape& mesh, graph_view g)
      : mesh_(mesh),
        g_(g),
        edit_(g),
        state_(g.size, unplaced),
        class_of_(g.size, -1),
        next_alike_(g.size, -1),
        next_member_(g.size, -1),
        read_in_(g.size, -1),
        readers_(g.size, 0),
        is_late_(g.size, true),
        classes_in_(g.size + 1, -1),
        regions_(g) {}

  constexpr graph run() {
    classify();
    find_late();
    for (int id = 0; id < g_.size; ++id) {
      if (state_[id] != unplaced) continue;
      if (!is_further_result(g_[id])) look();
      if (is_late_[id] && gains_by_delay(id)) {
        state_[id] = delayed;
        delayed_.push_back(id);
      } else {
        visit(id);
      }
    }
    for (const int id : delayed_) state_[id] = unplaced;
    for (const int id : delayed_) {
      if (state_[id] == unplaced) visit(id);
    }
    close_all(-1);
    look();
    // Nothing reads a result: it can wait for all the others.
    for (int id = 0; id < g_.size; ++id) {
      if (structure_of(g_[id]) == structure::result) place(id);
    }
    return edit_.finish();
  }

 private:
  /// The bytes that a group sends at most.
  static constexpr std::int64_t most_bytes = 32 * merged_bytes_limit;
  enum state : unsigned char { unplaced, waiting, gathered, delayed, placed };
  /// The number of later collectives that are tried in vain before a group closes, and the number of instructions that
  /// may come forward for one of them.
  static constexpr int most_failures = 4;
  static constexpr int most_gathered = 24;
  /// The number of instructions that the halo of a large tensor may pass as it comes forward, and of such halos that
  /// are received at once.
  static constexpr int most_passed = 96;
  static constexpr int most_large = 12;

  /// Collectives that could move as one if none read another, and those of them that wait to.
  struct alike {
    /// The first and last, from each of which `next_member_` links to the next, and what they send.
    int member = -1;
    int last_member = -1;
    std::int64_t bytes = 0;
    /// Those that have not joined so far, in order: `next_alike_` links to the others.
    int first = -1;
    int last = -1;
    int to_come = 0;
    /// True if those to come have been tried since the last of them moved.
    bool tried = false;
    /// Another class in the same loop.
    int sibling = -1;
  };

  /// Whether it belongs to the structure of loops: its place is where it is.
  [[nodiscard]] static constexpr bool is_structure(structure role) {
    return role >= structure::region_begin && role != structure::loop_slice;
  }

  [[nodiscard]] constexpr bool is_small(int id) const {
    const instruction& i = g_[id];
    return g_.annotations[i.annotation].shape.elements() * size_of(i.type) <= merged_bytes_limit;
  }

  [[nodiscard]] constexpr std::int64_t bytes_sent(int id) const {
    if (reads_windows(g_[id])) return bytes_lacking(g_, id);
    return g_.annotations[g_[id].annotation].shape.elements() * size_of(g_[id].type);
  }
  [[nodiscard]] constexpr bool may_wait(int id) const {
    return communicates(g_[id]) && bytes_sent(id) <= merged_bytes_limit;
  }

  /// True if two collectives may be merged. Reductions must have one type. Other collectives must have types of one
  /// size, so that the elements of each are aligned wherever its box begins in a message. Exchanges of windows go to
  /// neighbours, along whichever axes: those of all of them are the group's.
  [[nodiscard]] constexpr bool are_alike(int a, int b) const {
    if (g_[a].op != g_[b].op || (has_owner(g_[a]) && !have_one_owner(a, b))) return false;
    const auto one = attributes_of<collective_attributes>(g_[a]);
    const auto other = attributes_of<collective_attributes>(g_[b]);
    const bool goes_to_neighbours = reads_windows(g_[a]);
    if (goes_to_neighbours != reads_windows(g_[b])) return false;
    if (one.axes != other.axes && !goes_to_neighbours) return false;
    if (size_of(g_[a].type) != size_of(g_[b].type)) return false;
    const bool reduces = facts_of(static_cast<collective>(collective_index(g_[a].op))).reduces;
    return !reduces || (g_[a].type == g_[b].type && one.combine == other.combine);
  }

  /// Whether the same device sends in two exchanges from owners.
  [[nodiscard]] constexpr bool have_one_owner(int a, int b) const {
    const auto one = attributes_of<owner_attributes>(g_[a]);
    const auto other = attributes_of<owner_attributes>(g_[b]);
    return g_[a].operand[1] == g_[b].operand[1] && one.rows == other.rows && one.extent == other.extent;
  }

  /// Finds the classes, and for each collective the first loop that reads it from outside.
  constexpr void classify() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      for (int k = 0; k < i.operand_count && !i.op->facts.looks; ++k) ++readers_[g_.operand_at(i, k)];
      if (i.op->facts.looks) looks_.push_back(id);
      if (may_wait(id)) join_class(id);
      // What decides whether a loop goes on is read in it.
      const int region = reads_in(i);
      if (region < 0 || reads_region(structure_of(i))) continue;
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = g_.operand_at(i, k);
        if (class_of_[o] < 0 || g_[o].region == region || read_in_[o] >= 0) continue;
        int reader = region;
        while (g_[reader].region != g_[o].region) reader = g_[reader].region;
        read_in_[o] = reader;
      }
    }
  }
  constexpr void join_class(int id) {
    int& head = classes_in_[g_[id].region + 1];
    int found = head;
    while (found >= 0 && !are_alike(classes_[found].last, id)) found = classes_[found].sibling;
    if (found < 0) {
      alike made;
      made.first = made.last = id;
      made.sibling = head;
      found = head = classes_.push_back(made);
    } else {
      next_alike_[classes_[found].last] = id;
      classes_[found].last = id;
    }
    ++classes_[found].to_come;
    class_of_[id] = found;
  }

  /// Finds what only results are computed from, and reads nothing large: as parameters are updated. It can come last.
  constexpr void find_late() {
    for (int id = g_.size - 1; id >= 0; --id) {
      const instruction& i = g_[id];
      bool& late = is_late_[id];
      if (structure_of(i) == structure::result || (i.op->facts.looks && i.region < 0)) {
        late = false;
        continue;
      }
      late = late && i.region < 0 && !is_structure(structure_of(i));
      for (int k = 0; late && k < i.operand_count; ++k) {
        late = g_.operand(id, k).op->fuse == fusion::source || is_small(g_.operand_at(i, k));
      }
      for (int k = 0; !late && k < i.operand_count; ++k) is_late_[g_.operand_at(i, k)] = false;
    }
  }
  /// Whether it reads a collective that others may still join, though they cannot yet.
  constexpr bool gains_by_delay(int id) {
    for (int k = 0; k < g_[id].operand_count; ++k) {
      const int o = g_.operand_at(g_[id], k);
      if (state_[o] == delayed) return true;
      if (state_[o] != waiting) continue;
      const int c = class_of_[o];
      if (!classes_[c].tried) bring_forward(c);
      classes_[c].tried = true;
      if (classes_[c].to_come > 0) return true;
    }
    return false;
  }

  constexpr void visit(int id) {
    const instruction& i = g_[id];
    const structure part = structure_of(i);
    // Yields stay together at the end of the body, after every collective that one of them needs.
    if (part == structure::result || part == structure::region_yield || i.op->facts.looks) return;
    for (int k = 0; k < i.operand_count; ++k) need(g_.operand_at(i, k));
    if (part == structure::region_begin) {
      for (int c = classes_in_[i.region + 1]; c >= 0; c = classes_[c].sibling) {
        if (is_read_in(classes_[c], id)) close(c);
      }
    } else if (part == structure::region_end) {
      const region& ended = regions_.beginning_at(ended_by(i));
      close_all(ended.first);
      look();
      open_region_ = ended.parent;
      for (const int yield : ended.yields) place(yield);
    }
    if (class_of_[id] < 0) {
      place(id);
      if (part == structure::region_begin) open_region_ = id;
    } else {
      if (!has_room(classes_[class_of_[id]], id)) close(class_of_[id]);
      join(id);
    }
  }

  [[nodiscard]] constexpr bool is_read_in(const alike& one, int region) const {
    for (int id = one.member; id >= 0; id = next_member_[id]) {
      if (read_in_[id] == region) return true;
    }
    return false;
  }
  constexpr void need(int id) {
    if (state_[id] == waiting) close(class_of_[id]);
  }
  [[nodiscard]] constexpr bool has_room(const alike& one, int id) const {
    return one.member < 0 || one.bytes + bytes_sent(id) <= most_bytes;
  }
  constexpr void join(int id) {
    alike& joined = classes_[class_of_[id]];
    (joined.member < 0 ? joined.member : next_member_[joined.last_member]) = id;
    joined.last_member = id;
    joined.bytes += bytes_sent(id);
    --joined.to_come;
    state_[id] = waiting;
  }
  constexpr void close_all(int region) {
    for (int c = classes_in_[region + 1]; c >= 0; c = classes_[c].sibling) close(c);
  }

  constexpr void close(int c) {
    if (classes_[c].member < 0) return;
    bring_forward(c);
    move_together(classes_[c]);
    classes_[c].member = -1;
    classes_[c].bytes = 0;
    classes_[c].tried = false;
  }

  /// Lets collectives that come later in the program join the others of class `c`, if nothing else speaks against it
  /// than the order that the program is written in.
  constexpr void bring_forward(int c) {
    int failures = 0;
    int before = -1;
    for (int id = classes_[c].first; id >= 0 && failures < most_failures; id = next_alike_[id]) {
      bool joins = state_[id] == waiting || state_[id] == placed;
      if (state_[id] == unplaced && may_come_forward(c, id) && has_room(classes_[c], id) && gather_operands(id)) {
        place_gathered();
        join(id);
        joins = true;
      }
      if (!joins) {
        before = id;
        ++failures;
      } else if (before < 0) {
        classes_[c].first = next_alike_[id];
      } else {
        next_alike_[before] = next_alike_[id];
      }
    }
  }

  /// True if the collective may start earlier. The halo of a large tensor is received in a buffer as large as the
  /// tensor, which costs memory if it is received earlier, unless the halo is received around the operand. A few such
  /// buffers are worth a round, if they are soon read.
  [[nodiscard]] constexpr bool may_come_forward(int c, int id) const {
    if (is_small(id) || rows_around(mesh_, g_, id) >= 0) return true;
    if (!reads_windows(g_[id])) return false;
    int large = 0;
    for (int other = classes_[c].member; other >= 0; other = next_member_[other]) large += is_small(other) ? 0 : 1;
    return id - classes_[c].member <= most_passed && large < most_large;
  }

  /// Lists in `gathered_` what has to be computed before instruction `id`, if that is little and nothing large lives
  /// longer for it: then it costs no memory to do so now.
  constexpr bool gather_operands(int id) {
    gathered_.clear();
    bool possible = gather(g_[id]);
    for (int n = 0; possible && n < gathered_.size(); ++n) {
      const instruction& i = g_[gathered_[n]];
      possible = i.region == g_[id].region && !is_structure(structure_of(i)) && collective_index(i.op) < 0 &&
                 !is_further_result(i) && further_results(g_.code, g_.size, gathered_[n]) == 0 &&
                 (is_small(gathered_[n]) || is_easy(i)) && gather(i);
    }
    for (int n = 0; possible && n < gathered_.size(); ++n) {
      possible = is_small(gathered_[n]) || is_read_among_gathered(gathered_[n]);
    }
    if (possible) return true;
    for (const int one : gathered_) state_[one] = unplaced;
    return false;
  }
  /// Element by element: little work even if it is large, as before a sum.
  [[nodiscard]] constexpr bool is_easy(const instruction& i) const {
    return i.op->fuse == fusion::elementwise || (i.operand_count == 1 && i.shape == g_[i.operand[0]].shape);
  }
  /// True if only gathered instructions read the value: its buffer is free again once all of them are computed.
  [[nodiscard]] constexpr bool is_read_among_gathered(int value) const {
    int reads = 0;
    for (const int one : gathered_) {
      for (int k = 0; k < g_[one].operand_count; ++k) reads += g_.operand_at(g_[one], k) == value ? 1 : 0;
    }
    return reads == readers_[value];
  }
  constexpr bool gather(const instruction& i) {
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      state& now = state_[operand];
      if (now == waiting || now == delayed || gathered_.size() == most_gathered) return false;
      if (now != unplaced) continue;
      now = gathered;
      gathered_.push_back(operand);
    }
    return true;
  }
  constexpr void place_gathered() {
    // The gathered instructions are placed in the program's order: they are few, and usually found in the opposite one.
    for (int n = 1; n < gathered_.size(); ++n) {
      for (int m = n; m > 0 && gathered_[m] < gathered_[m - 1]; --m) {
        const int later = gathered_[m - 1];
        gathered_[m - 1] = gathered_[m];
        gathered_[m] = later;
      }
    }
    for (const int one : gathered_) place(one);
  }

  constexpr void move_together(const alike& closing) {
    axis_mask axes = 0;
    for (int id = closing.member; id >= 0; id = next_member_[id])
      axes |= attributes_of<collective_attributes>(g_[id]).axes;
    for (int id = closing.member; id >= 0; id = next_member_[id]) {
      place(id);
      instruction& moved = edit_[id];
      auto moves = attributes_of<collective_attributes>(moved);
      moves.axes = axes;
      set_attributes(moved, moves);
      if (id == closing.member) continue;
      moved.op = has_owner(g_[id]) ? &ops::exchange_along_from_owner : &travelling_ops.of[collective_index(g_[id].op)];
    }
  }

  /// Places what looks at values of the open loop that are there by now: as early as can be, but nothing else moves.
  constexpr void look() {
    int left = 0;
    for (const int id : looks_) {
      if (g_[id].region == open_region_ && state_[g_[id].operand[0]] == placed) {
        place(id);
      } else {
        looks_[left++] = id;
      }
    }
    looks_.resize(left);
  }
  constexpr void place(int id) {
    edit_.place(id);
    state_[id] = placed;
  }

  const mesh_shape& mesh_;
  graph_view g_;
  graph_editor edit_;
  list<state> state_;
  /// Each list has an entry for each collective: its class, the next one of that class to come, the next one that waits
  /// with it, and the first loop next to it that reads it.
  list<int> class_of_;
  list<int> next_alike_;
  list<int> next_member_;
  list<int> read_in_;
  /// The number of reads of each instruction.
  list<int> readers_;
  /// The instructions that can wait for all others, and those of them that do wait.
  list<bool> is_late_;
  list<int> delayed_;
  list<alike> classes_;
  /// One of the classes in each loop; the outside of all loops is first.
  list<int> classes_in_;
  region_table regions_;
  list<int> gathered_;
  /// The instructions that look at values and have no place yet, and the innermost open loop.
  list<int> looks_;
  int open_region_ = -1;
};

}  // namespace detail

/// Lets collectives of a kind over the same axes that send little travel together (partition/messages.hpp), where none
/// of them is computed from another: of any shapes, layouts and windows, of types of one size (of one type, where
/// elements are combined). The order of the program does not matter as long as nothing large would have to be computed
/// earlier than it says. The bytes sent stay the same, but for the rounding of shares.
[[nodiscard]] constexpr graph merge_collectives(const mesh_shape& mesh, graph_view g) {
  return detail::collective_merger(mesh, g).run();
}

}  // namespace espalier
