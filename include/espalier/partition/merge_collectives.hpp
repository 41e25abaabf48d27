// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/graph/builder.hpp>
#include <espalier/partition/partition.hpp>

#include <cstdint>

namespace espalier {

namespace detail {

/// The elements of all operands, one operand behind the other.
constexpr void evaluate_pack(const evaluation& e) {
  std::int64_t next = 0;
  for (int k = 0; k < e.self->operand_count; ++k) {
    for (std::int64_t n = 0; n < e.operand_shape[k]->elements(); ++n) e.result[next++] = e.operand[k][n];
  }
}

constexpr void evaluate_unpack(const evaluation& e) {
  for (std::int64_t n = 0; n < e.self->shape.elements(); ++n) e.result[n] = e.operand[0][e.self->attribute[0] + n];
}

}  // namespace detail

namespace ops {
/// The buffers of up to four tensors behind each other, as one of rank 1: what a merged collective moves.
inline constexpr op_info pack{.name = "pack", .evaluate = detail::evaluate_pack};
/// A tensor's buffer out of a packed one, from element attribute[0] on.
inline constexpr op_info unpack{.name = "unpack", .evaluate = detail::evaluate_unpack};
}  // namespace ops

namespace detail {

/// A tensor joins others in one collective if sending it takes no longer than starting to: beyond, the two copies
/// outweigh the start. Extents of the whole tensor decide, so that a program has the same form on every mesh.
inline constexpr std::int64_t merged_bytes_limit = collective_latency;

/// Postpones every small all_reduce until its value is needed, and lets those that wait together move as one.
class collective_merger {
 public:
  constexpr collective_merger(const mesh_shape& mesh, graph_view g)
      : mesh_(mesh), g_(g), number_(g.size, -1), waits_in_(g.size, -1) {}

  constexpr graph run() {
    result_.code.reserve(g_.size + g_.size / 8);
    result_.annotations.reserve(g_.annotation_count + g_.size / 8);
    for (int i = 0; i < g_.annotation_count; ++i) result_.annotations.push_back(g_.annotations[i]);
    for (int id = 0; id < g_.size; ++id) {
      // Nothing reads a result: it can wait for all the others.
      if (g_[id].op == &ops::result) continue;
      for (int k = 0; k < g_[id].operand_count; ++k) {
        if (const int group = waits_in_[g_[id].operand[k]]; group >= 0) close(group);
      }
      if (belongs_to_a_loop(g_[id].op)) close_all();
      if (!may_wait(id)) {
        number_[id] = append(renumbered(id));
      } else if (const int full = join(id); full >= 0) {
        close(full);
      }
    }
    close_all();
    for (int id = 0; id < g_.size; ++id) {
      if (g_[id].op == &ops::result) number_[id] = append(renumbered(id));
    }
    return static_cast<graph&&>(result_);
  }

 private:
  /// Two levels of `pack`.
  static constexpr int most_members = max_operands * max_operands;
  struct bundle {
    bool open = true;
    int count = 0;
    int member[most_members]{};
  };

  [[nodiscard]] static constexpr bool belongs_to_a_loop(const op_info* op) {
    return op == &ops::loop_begin || op == &ops::loop_next || op == &ops::loop_end || op == &ops::loop_carry ||
           op == &ops::loop_stack || op == &ops::loop_sum || op == &ops::loop_result;
  }

  [[nodiscard]] constexpr bool may_wait(int id) const {
    const instruction& i = g_[id];
    if (i.op != &ops::all_reduce) return false;
    const layout& l = g_.annotations[i.annotation];
    if (l.shape.elements() * size_of(i.type) > merged_bytes_limit) return false;
    // The padding of uneven parts would travel with them.
    for (int d = 0; d < l.placement.rank; ++d) {
      if (!divides_evenly(mesh_, l.shape[d], l.placement.dim[d])) return false;
    }
    return true;
  }

  /// Adds an all_reduce to the open group of its kind. Returns the group if it is full.
  constexpr int join(int id) {
    int mine = -1;
    for (int n = first_open_; n < groups_.size() && mine < 0; ++n) {
      if (groups_[n].open && alike(groups_[n].member[0], id)) mine = n;
    }
    if (mine < 0) mine = groups_.push_back({});
    bundle& joined = groups_[mine];
    joined.member[joined.count++] = id;
    waits_in_[id] = mine;
    return joined.count == most_members ? mine : -1;
  }

  [[nodiscard]] constexpr axis_mask pending_before(int id) const {
    return g_.annotations[g_.operand(id, 0).annotation].placement.unreduced;
  }
  [[nodiscard]] constexpr bool alike(int a, int b) const {
    return g_[a].type == g_[b].type && g_[a].loop == g_[b].loop && g_[a].attribute[0] == g_[b].attribute[0] &&
           g_[a].attribute[1] == g_[b].attribute[1] && pending_before(a) == pending_before(b);
  }

  constexpr void close_all() {
    for (int n = first_open_; n < groups_.size(); ++n) {
      if (groups_[n].open) close(n);
    }
    first_open_ = groups_.size();
  }

  constexpr void close(int n) {
    bundle& closing = groups_[n];
    closing.open = false;
    for (int m = 0; m < closing.count; ++m) waits_in_[closing.member[m]] = -1;
    if (closing.count == 1) {
      const int id = closing.member[0];
      number_[id] = append(renumbered(id));
      return;
    }
    const int first = closing.member[0];
    int part[most_members]{};
    int parts = closing.count;
    for (int m = 0; m < parts; ++m) part[m] = number_[g_[closing.member[m]].operand[0]];
    while (parts > 1) {
      int made = 0;
      for (int m = 0; m < parts; m += max_operands) {
        const int taken = parts - m < max_operands ? parts - m : max_operands;
        part[made++] = taken == 1 ? part[m] : packed(first, &part[m], taken);
      }
      parts = made;
    }
    instruction reduced = renumbered(first);
    reduced.label = nullptr;
    reduced.operand[0] = part[0];
    reduced.shape = result_.code[part[0]].shape;
    reduced.annotation =
        placed(first, reduced.shape, pending_before(first) & ~static_cast<axis_mask>(reduced.attribute[0]));
    const int whole = append(reduced);
    std::int64_t offset = 0;
    for (int m = 0; m < closing.count; ++m) {
      const int id = closing.member[m];
      instruction taken = renumbered(id);
      taken.op = &ops::unpack;
      taken.operand[0] = whole;
      taken.attribute[0] = offset;
      taken.attribute[1] = 0;
      offset += taken.shape.elements();
      number_[id] = append(taken);
    }
  }

  constexpr int packed(int first, const int* part, int count) {
    instruction made = builder::make(ops::pack, g_[first].type, extents{});
    made.operand_count = count;
    made.shape.rank = 1;
    made.shape.size[0] = 0;
    for (int k = 0; k < count; ++k) {
      made.operand[k] = part[k];
      made.shape.size[0] += result_.code[part[k]].shape.elements();
    }
    made.loop = renumbered(first).loop;
    made.where = g_[first].where;
    made.origin = g_[first].origin;
    made.annotation = placed(first, made.shape, pending_before(first));
    return append(made);
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

  [[nodiscard]] constexpr instruction renumbered(int id) const {
    instruction i = g_[id];
    for (int k = 0; k < i.operand_count; ++k) i.operand[k] = number_[i.operand[k]];
    if (i.loop >= 0) i.loop = number_[i.loop];
    return i;
  }
  constexpr int append(const instruction& i) { return result_.code.push_back(i); }

  const mesh_shape& mesh_;
  graph_view g_;
  list<int> number_;
  list<int> waits_in_;
  list<bundle> groups_;
  int first_open_ = 0;
  graph result_;
};

}  // namespace detail

/// Merges small all_reduces over the same axes into one, where none of them is needed before the last is known.
/// The bytes sent stay the same, but for the rounding of an all_reduce's shares.
[[nodiscard]] constexpr graph merge_collectives(const mesh_shape& mesh, graph_view g) {
  return detail::collective_merger(mesh, g).run();
}

}  // namespace espalier
