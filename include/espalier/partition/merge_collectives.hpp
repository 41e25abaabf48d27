// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/graph/builder.hpp>
#include <espalier/partition/boxes.hpp>
#include <espalier/partition/partition.hpp>

#include <cstdint>

namespace espalier {

struct unpack_attributes {
  /// The first of the packed buffer's elements that is one of the tensor's.
  std::int64_t offset = 0;
};

namespace detail {

/// The elements of all operands, one operand behind the other.
constexpr void evaluate_pack(const evaluation& e) {
  std::int64_t next = 0;
  for (int k = 0; k < e.self->operand_count; ++k) {
    for (std::int64_t n = 0; n < e.operand_shape[k]->elements(); ++n) e.result[next++] = e.operand[k][n];
  }
}

constexpr void evaluate_unpack(const evaluation& e) {
  const std::int64_t offset = attributes_of<unpack_attributes>(*e.self).offset;
  for (std::int64_t n = 0; n < e.self->shape.elements(); ++n) e.result[n] = e.operand[0][offset + n];
}

}  // namespace detail

namespace ops {
/// The buffers of some tensors behind each other: what a merged collective moves. Of an all_reduce, as one of rank 1;
/// of what changes layouts, as one with another dimension in front, which nothing splits.
inline constexpr op_info pack{.name = "pack", .evaluate = detail::evaluate_pack};
/// A tensor's buffer out of a packed one.
inline constexpr op_info unpack{.name = "unpack", .evaluate = detail::evaluate_unpack};
}  // namespace ops

namespace detail {

/// A tensor joins others in one collective if sending it takes no longer than starting to: beyond, the two copies
/// outweigh the start. Extents of the whole tensor decide, so that a program has the same form on every mesh.
inline constexpr std::int64_t merged_bytes_limit = collective_latency;

/// Postpones every small collective until its value is needed, and lets those that wait then move as one, together
/// with later ones whose operands can be computed by then. All_reduces do if they combine alike, whatever their shapes:
/// of a flat buffer every element is treated as any other. Others do if they move equal shapes from one layout to one
/// other: stacked, they are a tensor that is moved as each of them would be, so that there is one box for each pair of
/// devices as ever.
class collective_merger {
 public:
  constexpr collective_merger(const mesh_shape& mesh, graph_view g)
      : mesh_(mesh),
        g_(g),
        number_(g.size, unplaced),
        class_of_(g.size, -1),
        next_alike_(g.size, -1),
        read_in_(g.size, -1),
        is_late_(g.size, true),
        classes_in_(g.size + 1, -1) {}

  constexpr graph run() {
    result_.code.reserve(g_.size + g_.size / 8);
    result_.annotations.reserve(g_.annotation_count + g_.size / 8);
    copy_tables(result_, g_);
    classify();
    find_late();
    for (int id = 0; id < g_.size; ++id) {
      if (number_[id] != unplaced) continue;
      if (is_late_[id] && gains_by_delay(id)) {
        number_[id] = delayed;
        delayed_.push_back(id);
      } else {
        visit(id);
      }
    }
    for (const int id : delayed_) number_[id] = unplaced;
    for (const int id : delayed_) {
      if (number_[id] == unplaced) visit(id);
    }
    close_all(-1);
    // Nothing reads a result: it can wait for all the others.
    for (int id = 0; id < g_.size; ++id) {
      if (part_of(g_[id]) == structure::result) place(id);
    }
    return static_cast<graph&&>(result_);
  }

 private:
  static constexpr int most_members = 16;
  /// What stands for an instruction's number while it has none.
  static constexpr int unplaced = -1;
  static constexpr int waiting = -2;
  static constexpr int gathered = -3;
  static constexpr int delayed = -4;
  /// How many later collectives are tried in vain before a group closes, and how many instructions may come forward
  /// for one of them.
  static constexpr int most_failures = 4;
  static constexpr int most_gathered = 24;

  /// Collectives that could move as one if none read another, and those of them that wait to.
  struct alike {
    int count = 0;
    int member[most_members]{};
    /// Those that have not joined so far, in order: `next_alike_` links to the others.
    int first = -1;
    int last = -1;
    int to_come = 0;
    /// Since the last of them moved: whether those to come have been tried.
    bool tried = false;
    /// Another class in the same loop.
    int sibling = -1;
  };

  /// Whether it belongs to the structure of loops: its place is where it is.
  [[nodiscard]] static constexpr bool is_structure(structure part) {
    return part >= structure::loop_begin && part != structure::loop_slice;
  }

  [[nodiscard]] constexpr bool is_small(int id) const {
    const instruction& i = g_[id];
    return g_.annotations[i.annotation].shape.elements() * size_of(i.type) <= merged_bytes_limit;
  }

  [[nodiscard]] constexpr bool may_wait(int id) const {
    const instruction& i = g_[id];
    if (!communicates(i) || !is_small(id)) return false;
    const layout& l = layout_of(id);
    if (!is_collective(i.op, collective::all_reduce)) {
      // What windows say of a box counts the dimensions of the tensor itself.
      return l.placement.rank < max_rank && !reads_windows(i) && !reads_windows(g_.operand(id, 0));
    }
    // The padding of uneven parts would travel with them.
    for (int d = 0; d < l.placement.rank; ++d) {
      if (!divides_evenly(mesh_, l.shape[d], l.placement.dim[d])) return false;
    }
    return true;
  }

  [[nodiscard]] constexpr const layout& layout_of(int id) const { return g_.annotations[g_[id].annotation]; }
  [[nodiscard]] constexpr const layout& layout_before(int id) const { return layout_of(g_[id].operand[0]); }
  [[nodiscard]] constexpr axis_mask pending_before(int id) const { return layout_before(id).placement.unreduced; }
  [[nodiscard]] constexpr bool are_alike(int a, int b) const {
    if (g_[a].op != g_[b].op || g_[a].type != g_[b].type ||
        !(attributes_of<collective_attributes>(g_[a]) == attributes_of<collective_attributes>(g_[b])))
      return false;
    if (is_collective(g_[a].op, collective::all_reduce)) return pending_before(a) == pending_before(b);
    return layout_of(a).shape == layout_of(b).shape && layout_of(a).placement.same_layout(layout_of(b).placement) &&
           layout_before(a).placement.same_layout(layout_before(b).placement);
  }

  /// Finds the classes, and for each collective the first loop that reads it from outside.
  constexpr void classify() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      if (may_wait(id)) join_class(id);
      if (i.loop < 0 || reads_loop(part_of(i))) continue;
      for (int k = 0; k < i.operand_count; ++k) {
        const int o = g_.operand_at(i, k);
        if (class_of_[o] < 0 || g_[o].loop == i.loop || read_in_[o] >= 0) continue;
        int loop = i.loop;
        while (g_[loop].loop != g_[o].loop) loop = g_[loop].loop;
        read_in_[o] = loop;
      }
    }
  }
  constexpr void join_class(int id) {
    int& head = classes_in_[g_[id].loop + 1];
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
      if (part_of(i) == structure::result) {
        late = false;
        continue;
      }
      late = late && i.loop < 0 && !is_structure(part_of(i));
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
      if (number_[o] == delayed) return true;
      if (number_[o] != waiting) continue;
      const int c = class_of_[o];
      if (!classes_[c].tried) bring_forward(c);
      classes_[c].tried = true;
      if (classes_[c].to_come > 0) return true;
    }
    return false;
  }

  constexpr void visit(int id) {
    const instruction& i = g_[id];
    if (part_of(i) == structure::result) return;
    if (part_of(i) == structure::loop_next) {
      // They stay together at the end of the body, behind every collective that one of them needs.
      passed_on_.push_back(id);
      return;
    }
    for (int k = 0; k < i.operand_count; ++k) need(g_.operand_at(i, k));
    if (part_of(i) == structure::loop_begin) {
      for (int c = classes_in_[i.loop + 1]; c >= 0; c = classes_[c].sibling) {
        if (is_read_in(classes_[c], id)) close(c);
      }
    } else if (part_of(i) == structure::loop_end) {
      const int begin = i.operand[0];
      close_all(begin);
      int first = passed_on_.size();
      while (first > 0 && g_[passed_on_[first - 1]].loop == begin) --first;
      for (int n = first; n < passed_on_.size(); ++n) place(passed_on_[n]);
      passed_on_.resize(first);
    }
    if (class_of_[id] < 0) {
      place(id);
    } else {
      // Those that came forward while others were to be delayed may have filled it.
      if (classes_[class_of_[id]].count == most_members) close(class_of_[id]);
      join(id);
      if (classes_[class_of_[id]].count == most_members) close(class_of_[id]);
    }
  }

  [[nodiscard]] constexpr bool is_read_in(const alike& one, int loop) const {
    for (int m = 0; m < one.count; ++m) {
      if (read_in_[one.member[m]] == loop) return true;
    }
    return false;
  }
  constexpr void need(int id) {
    if (number_[id] == waiting) close(class_of_[id]);
  }
  constexpr void join(int id) {
    alike& joined = classes_[class_of_[id]];
    joined.member[joined.count++] = id;
    --joined.to_come;
    number_[id] = waiting;
  }
  constexpr void close_all(int loop) {
    for (int c = classes_in_[loop + 1]; c >= 0; c = classes_[c].sibling) close(c);
  }

  constexpr void close(int c) {
    if (classes_[c].count == 0) return;
    bring_forward(c);
    move_together(classes_[c]);
    classes_[c].count = 0;
    classes_[c].tried = false;
  }

  /// Lets collectives that come later in the program join the others of class `c`, if nothing else speaks against it
  /// than the order that the program is written in.
  constexpr void bring_forward(int c) {
    int failures = 0;
    int before = -1;
    for (int id = classes_[c].first; id >= 0 && failures < most_failures; id = next_alike_[id]) {
      bool joins = number_[id] == waiting || number_[id] >= 0;
      if (number_[id] == unplaced && classes_[c].count < most_members && gather_operands(id)) {
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

  /// Lists in `gathered_` what has to be computed before instruction `id`, if that is little and nothing large: then
  /// it costs no memory to do so now.
  constexpr bool gather_operands(int id) {
    gathered_.clear();
    bool possible = gather(g_[id]);
    for (int n = 0; possible && n < gathered_.size(); ++n) {
      const instruction& i = g_[gathered_[n]];
      possible = i.loop == g_[id].loop && !is_structure(part_of(i)) && collective_index(i.op) < 0 &&
                 !is_further_result(i) && further_results(g_.code, g_.size, gathered_[n]) == 0 &&
                 is_small(gathered_[n]) && gather(i);
    }
    if (possible) return true;
    for (const int one : gathered_) number_[one] = unplaced;
    return false;
  }
  constexpr bool gather(const instruction& i) {
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      int& number = number_[operand];
      if (number == waiting || number == delayed || gathered_.size() == most_gathered) return false;
      if (number != unplaced) continue;
      number = gathered;
      gathered_.push_back(operand);
    }
    return true;
  }
  constexpr void place_gathered() {
    // In the program's order: few, and usually found in the opposite one.
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
    if (closing.count == 1) {
      place(closing.member[0]);
      return;
    }
    const int first = closing.member[0];
    int part[most_members]{};
    for (int m = 0; m < closing.count; ++m) part[m] = number_[g_[closing.member[m]].operand[0]];
    const int all = packed(first, &part[0], closing.count);
    instruction moved = renumbered(first);
    moved.label = nullptr;
    moved.operand[0] = all;
    if (is_collective(moved.op, collective::all_reduce)) {
      moved.shape = result_.code[all].shape;
      const axis_mask axes = attributes_of<collective_attributes>(moved).axes;
      moved.annotation = placed(first, moved.shape, pending_before(first) & ~axes);
    } else {
      moved.shape = stacked(closing.count, g_[first].shape);
      moved.annotation = stacked(closing.count, layout_of(first));
    }
    const int whole = append(moved);
    std::int64_t offset = 0;
    for (int m = 0; m < closing.count; ++m) {
      const int id = closing.member[m];
      instruction taken = renumbered(id);
      taken.op = &ops::unpack;
      taken.operand[0] = whole;
      set_attributes(taken, unpack_attributes{offset});
      offset += taken.shape.elements();
      number_[id] = append(taken);
    }
  }

  constexpr int packed(int first, const int* part, int count) {
    instruction made = builder::make(ops::pack, g_[first].type, extents{});
    made.operand_count = count;
    made.shape.rank = 1;
    made.shape.size[0] = 0;
    made.further = count > inline_operands ? result_.further.size() : -1;
    for (int k = inline_operands; k < count; ++k) result_.further.push_back(part[k]);
    for (int k = 0; k < count; ++k) {
      made.operand_at(k, result_.further.data()) = part[k];
      made.shape.size[0] += result_.code[part[k]].shape.elements();
    }
    made.loop = renumbered(first).loop;
    made.where = g_[first].where;
    made.origin = g_[first].origin;
    if (is_collective(g_[first].op, collective::all_reduce)) {
      made.annotation = placed(first, made.shape, pending_before(first));
    } else {
      const extents& one = g_.operand(first, 0).shape;
      made.shape = stacked(count, one);
      made.annotation = stacked(count, layout_before(first));
    }
    return append(made);
  }

  /// `count` tensors one behind the other.
  [[nodiscard]] static constexpr extents stacked(std::int64_t count, const extents& one) {
    extents shape;
    shape.append(count);
    for (int d = 0; d < one.rank; ++d) shape.append(one[d]);
    return shape;
  }
  constexpr int stacked(std::int64_t count, const layout& one) {
    layout l;
    l.shape = stacked(count, one.shape);
    l.placement.rank = one.placement.rank + 1;
    l.placement.unreduced = one.placement.unreduced;
    for (int d = 0; d < one.placement.rank; ++d) l.placement.dim[d + 1] = one.placement.dim[d];
    return result_.annotations.push_back(l);
  }

  /// Devices that share no pending sum may hold different elements: the packed tensor is as long as all theirs.
  constexpr int placed(int first, const extents& local, axis_mask pending) {
    layout l;
    l.placement.rank = 1;
    l.placement.unreduced = pending;
    axis_mask others = 0;
    for (int axis = 0; axis < mesh_.rank; ++axis) {
      if (!has_axis(pending_before(first), axis)) others |= bit_of(axis);
    }
    l.placement.dim[0] = list_of(others);
    l.shape = local;
    l.shape.size[0] *= mesh_.parts(l.placement.dim[0]);
    return result_.annotations.push_back(l);
  }

  [[nodiscard]] constexpr instruction renumbered(int id) {
    instruction i = g_[id];
    for (int k = 0; k < i.operand_count; ++k) {
      i.operand_at(k, result_.further.data()) = number_[g_.operand_at(g_[id], k)];
    }
    if (i.loop >= 0) i.loop = number_[i.loop];
    return i;
  }
  constexpr int append(const instruction& i) { return result_.code.push_back(i); }
  constexpr void place(int id) { number_[id] = append(renumbered(id)); }

  const mesh_shape& mesh_;
  graph_view g_;
  /// By instruction: its number in the result, or why it has none yet.
  list<int> number_;
  /// By collective: its class, the next one of that class, and the first loop beside it that reads it.
  list<int> class_of_;
  list<int> next_alike_;
  list<int> read_in_;
  /// What can wait for everything else, and what of it does.
  list<bool> is_late_;
  list<int> delayed_;
  list<alike> classes_;
  /// By loop, the outside first: one of the classes in it.
  list<int> classes_in_;
  /// The `loop_next`s of all open loops.
  list<int> passed_on_;
  list<int> gathered_;
  graph result_;
};

}  // namespace detail

/// Merges small collectives of a kind over the same axes into one, where none of them is computed from another: any
/// all_reduces, and of others those that move equal shapes between the same layouts (not what windows bring). The order
/// of the program does not matter as long as nothing large would have to be computed earlier than it says.
/// The bytes sent stay the same, but for the rounding of shares.
[[nodiscard]] constexpr graph merge_collectives(const mesh_shape& mesh, graph_view g) {
  return detail::collective_merger(mesh, g).run();
}

}  // namespace espalier
