// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/detail/list.hpp>
#include <espalier/partition/reshard_step.hpp>

#include <algorithm>
#include <cstdint>

namespace espalier::detail {

/// What is to be moved: a tensor on a mesh, and where to. Axes of size one appear nowhere in it.
struct reshard_task {
  mesh_shape mesh;
  extents shape;
  std::int64_t element = 0;  // bytes
  std::int64_t latency = 0;  // bytes
  sharding from;
  sharding to;
};

/// The cheapest sequence of steps between two placements: A* over placements, each the dimensions' axes and the set of
/// axes with pending sums.
class reshard_search {
 public:
  constexpr explicit reshard_search(const reshard_task& task)
      : task_(task), total_(task.shape.elements() * task.element), table_(256, -1) {
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (task_.mesh.size[axis] > 1) axes_ |= bit_of(axis);
    }
    target_ = state_of(task_.to);
    target_parts_ = task_.mesh.parts(target_.tiled);
    summed_devices_ = task_.mesh.parts(axes_ & ~target_.unreduced);
  }

  [[nodiscard]] constexpr reshard_plan run() {
    offer(state_of(task_.from), collective::local_slice, 0, 0, 0);
    while (!heap_.empty()) {
      const entry next = pop();
      if (nodes_[next.node].cost != next.cost || nodes_[next.node].closed) continue;
      nodes_[next.node].closed = true;
      if (same(nodes_[next.node].at, target_)) return plan_to(next.node);
      expand(next.node);
    }
    return empty_plan;
  }

 private:
  struct state {
    std::uint32_t dim[max_rank]{};  // codes of axis_lists
    axis_mask unreduced = 0;
    axis_mask tiled = 0;
  };
  struct node {
    state at;
    std::int64_t cost = 0;
    std::int64_t bound = 0;  // of what is still to be paid
    std::int64_t bytes = 0;
    int parent = -1;
    axis_mask axes = 0;
    collective kind = collective::local_slice;
    bool closed = false;
  };
  struct entry {
    std::int64_t estimate = 0;
    std::int64_t cost = 0;
    int node = 0;
    [[nodiscard]] constexpr bool before(const entry& other) const {
      return estimate < other.estimate || (estimate == other.estimate && cost > other.cost);
    }
  };

  // Beyond this many placements (no mesh of four axes has them) the search follows the bound alone and ends soon, with
  // a plan that need not be the cheapest.
  static constexpr int patience = 20000;

  [[nodiscard]] static constexpr state state_of(const sharding& placement) {
    state result;
    for (int d = 0; d < placement.rank; ++d) result.dim[d] = placement.dim[d].code();
    result.unreduced = placement.unreduced;
    result.tiled = placement.tiled();
    return result;
  }
  [[nodiscard]] static constexpr bool same(const state& a, const state& b) {
    static_assert(max_rank == 8);
    return a.dim[0] == b.dim[0] && a.dim[1] == b.dim[1] && a.dim[2] == b.dim[2] && a.dim[3] == b.dim[3] &&
           a.dim[4] == b.dim[4] && a.dim[5] == b.dim[5] && a.dim[6] == b.dim[6] && a.dim[7] == b.dim[7] &&
           a.unreduced == b.unreduced;
  }
  [[nodiscard]] static constexpr std::uint32_t hash_of(const state& s) {
    const std::uint64_t mixed =
        (s.dim[0] + s.dim[1] * 0x9E3779B97F4A7C15ULL + s.dim[2] * 0xC2B2AE3D27D4EB4FULL +
         s.dim[3] * 0x165667B19E3779F9ULL + s.dim[4] * 0x27D4EB2F165667C5ULL + s.dim[5] * 0x85EBCA77C2B2AE63ULL +
         s.dim[6] * 0xD6E8FEB86659FD93ULL + s.dim[7] * 0xA0761D6478BD642FULL + s.unreduced * 0xE7037ED1A0B428DBULL) *
        0xD1B54A32D192ED03ULL;
    return static_cast<std::uint32_t>(mixed >> 32U);
  }

  [[nodiscard]] constexpr std::int64_t parts(std::uint32_t code) const {
    return task_.mesh.parts(axis_list::from_code(code));
  }

  /// A lower bound of what a plan from here costs. Were all splits even, a device that must end with B bytes has to
  /// receive those it does not hold yet, every byte of a pending sum among them; and n terms of a sum that m devices
  /// want take at least n + m - 2 messages. Uneven splits only make buffers larger.
  [[nodiscard]] constexpr std::int64_t bound_of(const state& s) const {
    const axis_mask pending = s.unreduced & ~target_.unreduced;
    std::int64_t bytes = total_ / target_parts_;
    if (pending != 0) {
      const std::int64_t messages = task_.mesh.parts(pending) + summed_devices_ / target_parts_ - 2;
      bytes = std::max(bytes, total_ * messages / summed_devices_);
    } else {
      std::int64_t common = 1;
      for (int d = 0; d < task_.shape.rank && common != 0; ++d) {
        common = nested(s.dim[d], target_.dim[d]) ? common * parts(std::max(s.dim[d], target_.dim[d])) : 0;
      }
      if (common != 0) bytes = total_ * (common / target_parts_ - 1) / common;
    }
    return bytes == 0 ? 0 : (bytes + task_.latency) * cost_of_byte + cost_of_collective;
  }

  constexpr void push(const entry& added) {
    int i = heap_.push_back(added);
    while (i > 0 && added.before(heap_[(i - 1) / 2])) {
      heap_[i] = heap_[(i - 1) / 2];
      i = (i - 1) / 2;
    }
    heap_[i] = added;
  }
  constexpr entry pop() {
    const entry top = heap_[0];
    const entry last = heap_.back();
    heap_.pop_back();
    int i = 0;
    for (int child = 1; child < heap_.size(); child = 2 * i + 1) {
      if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(last)) break;
      heap_[i] = heap_[child];
      i = child;
    }
    if (!heap_.empty()) heap_[i] = last;
    return top;
  }

  /// The slot of the table that holds this placement, or where it belongs.
  [[nodiscard]] constexpr int slot_of(const state& s) const {
    int slot = static_cast<int>(hash_of(s) & static_cast<std::uint32_t>(table_.size() - 1));
    while (table_[slot] >= 0 && !same(nodes_[table_[slot]].at, s)) slot = (slot + 1) & (table_.size() - 1);
    return slot;
  }
  constexpr void enlarge_table() {
    table_ = list<int>(table_.size() * 4, -1);
    for (int i = 0; i < nodes_.size(); ++i) table_[slot_of(nodes_[i].at)] = i;
  }

  /// Notes that `s` is reached from the node being expanded by a step over a group of `n`.
  constexpr void offer(const state& s, collective kind, axis_mask axes, std::int64_t n, int parent) {
    node reached;
    reached.bytes = step_bytes(kind, local_, n);
    if (!nodes_.empty()) {
      const bool slice = kind == collective::local_slice;
      reached.cost = nodes_[parent].cost +
                     (slice ? cost_of_slice : (reached.bytes + task_.latency) * cost_of_byte + cost_of_collective);
    }
    const int slot = slot_of(s);
    const int known = table_[slot];
    if (known >= 0 && nodes_[known].cost <= reached.cost) return;
    reached.at = s;
    reached.bound = known >= 0 ? nodes_[known].bound : bound_of(s);
    reached.parent = parent;
    reached.axes = axes;
    reached.kind = kind;
    const std::int64_t estimate = nodes_.size() < patience ? reached.cost + reached.bound : reached.bound;
    if (known >= 0) {
      nodes_[known] = reached;
      push({estimate, reached.cost, known});
    } else {
      table_[slot] = nodes_.push_back(reached);
      push({estimate, reached.cost, table_[slot]});
      if (nodes_.size() * 2 > table_.size()) enlarge_table();
    }
  }

  constexpr void expand(int id) {
    const state s = nodes_[id].at;
    local_ = task_.element;
    for (int d = 0; d < task_.shape.rank; ++d) {
      local_ *= local_extent(task_.mesh, task_.shape[d], axis_list::from_code(s.dim[d]));
    }
    for (int d = 0; d < task_.shape.rank; ++d) take_from(d, s, id);
    const axis_mask free = axes_ & ~s.tiled & ~s.unreduced;
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (has_axis(free, axis)) append(s, axis_list(axis), collective::local_slice, id);
    }
    if (const axis_mask pending = s.unreduced & ~target_.unreduced; pending != 0) {
      scatter(s, axis_list(), pending, id);
      for (axis_mask some = pending; some != 0; some = (some - 1) & pending) {
        state t = s;
        t.unreduced &= ~some;
        offer(t, collective::all_reduce, some, task_.mesh.parts(some), id);
      }
    }
    // Two permutations in a row are one.
    if (nodes_[id].kind != collective::collective_permute && s.tiled != 0) {
      state t = s;
      arrange(s, t, -1, 1, s.unreduced, id);
    }
  }

  /// Gathers, or moves to another dimension, every suffix of one dimension's axes.
  constexpr void take_from(int d, const state& s, int id) {
    for (std::uint32_t kept = 0, moved = s.dim[d]; moved != 0;) {
      const axis_mask axes = axis_list::from_code(moved).mask();
      const std::int64_t n = parts(moved);
      state t = s;
      t.dim[d] = kept;
      for (int other = 0; other < task_.shape.rank; ++other) {
        if (other == d) continue;
        t.dim[other] = joined(s.dim[other], moved);
        offer(t, collective::all_to_all, axes, n, id);
        t.dim[other] = s.dim[other];
      }
      t.tiled &= ~axes;
      offer(t, collective::all_gather, axes, n, id);
      kept = joined(kept, moved & 15U);
      moved >>= 4U;
    }
  }

  /// Splits each dimension further by axes that were replicated or held the terms of a sum.
  constexpr void append(const state& s, axis_list added, collective kind, int id) {
    const axis_mask axes = added.mask();
    const std::int64_t n = task_.mesh.parts(added);
    for (int d = 0; d < task_.shape.rank; ++d) {
      state t = s;
      t.dim[d] = joined(s.dim[d], added.code());
      t.tiled |= axes;
      t.unreduced &= ~axes;
      offer(t, kind, axes, n, id);
    }
  }

  /// A reduce_scatter over every ordered choice of the pending axes.
  constexpr void scatter(const state& s, axis_list chosen, axis_mask pending, int id) {
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (!has_axis(pending, axis)) continue;
      const axis_list more = chosen.with(axis);
      append(s, more, collective::reduce_scatter, id);
      scatter(s, more, pending & ~bit_of(axis), id);
    }
  }

  /// Every way to give the dimensions other axes with the same parts: `t` is complete before dimension `d`, which still
  /// has to be split into `missing` parts.
  constexpr void arrange(const state& s, state& t, int d, std::int64_t missing, axis_mask used, int id) {
    if (missing == 1) {
      if (d >= 0 && !same_parts(task_.mesh, task_.shape[d], axis_list::from_code(s.dim[d]),
                                axis_list::from_code(t.dim[d]))) {
        return;
      }
      do ++d;
      while (d < task_.shape.rank && s.dim[d] == 0);
      if (d == task_.shape.rank) {
        t.tiled = used & ~s.unreduced;
        if (!same(s, t)) offer(t, collective::collective_permute, 0, 1, id);
        return;
      }
      t.dim[d] = 0;
      missing = parts(s.dim[d]);
    }
    const std::uint32_t begun = t.dim[d];
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (!has_axis(axes_ & ~used, axis) || missing % task_.mesh.size[axis] != 0) continue;
      t.dim[d] = joined(begun, static_cast<std::uint32_t>(axis + 1));
      arrange(s, t, d, missing / task_.mesh.size[axis], used | bit_of(axis), id);
    }
    t.dim[d] = begun;
  }

  [[nodiscard]] constexpr sharding sharding_of(const state& s) const {
    sharding result = task_.to;
    result.open = result.replicated = 0;
    for (int d = 0; d < result.rank; ++d) result.dim[d] = axis_list::from_code(s.dim[d]);
    result.unreduced = s.unreduced;
    return result;
  }

  /// The steps on the way to a node; slices in a row become one.
  [[nodiscard]] constexpr reshard_plan plan_to(int id) const {
    list<int> path;
    for (; nodes_[id].parent != id; id = nodes_[id].parent) path.push_back(id);
    reshard_plan plan = empty_plan;
    sharding before = task_.from;
    for (; !path.empty(); path.pop_back()) {
      const node& reached = nodes_[path.back()];
      const bool more_slices = plan.count > 0 && reached.kind == collective::local_slice &&
                               plan.step[plan.count - 1].kind == collective::local_slice;
      reshard_step& step = plan.step[more_slices ? plan.count - 1 : plan.count++];
      step.kind = reached.kind;
      step.after = sharding_of(reached.at);
      step.axes = reached.kind == collective::collective_permute
                      ? permuted_axes(task_.mesh, before, step.after)
                      : reached.axes | (more_slices ? step.axes : 0U);
      plan.bytes += reached.bytes;
      before = step.after;
    }
    return plan;
  }

  reshard_task task_;
  state target_;
  std::int64_t total_ = 0;  // bytes
  std::int64_t target_parts_ = 1;
  std::int64_t summed_devices_ = 1;  // that together hold one sum's terms
  std::int64_t local_ = 0;           // bytes of a buffer at the node being expanded
  axis_mask axes_ = 0;
  list<node> nodes_;
  list<entry> heap_;
  list<int> table_;
};

}  // namespace espalier::detail
