// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/partition/reshard_direct.hpp>
#include <espalier/tensor/core/partition/reshard_step.hpp>

#include <bit>
#include <cstdint>

namespace espalier::detail {

/// The cheapest sequence of steps between two placements, while partials are to be reduced: A* over placements, each
/// the dimensions' lists of axes and the set of axes of the partial. Once the last of these axes is reduced
/// `direct_reshard` knows how to go on. Before, terms of sums may be exchanged to the dimensions' lists of the target,
/// as far as these lists have no axis of a sum.
class reshard_search {
 public:
  bool gave_up = false;

  constexpr explicit reshard_search(const reshard_task& task)
      : task_(task),
        total_(task.shape.elements() * task.element),
        target_(std::bit_cast<placement_codes>(task.to)),
        start_(std::bit_cast<placement_codes>(task.from)) {
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (task_.mesh.size[axis] > 1) axes_ |= bit_of(axis);
    }
    if (task_.mesh.ordered != 0) note_orders();
    target_tiled_ = task_.to.tiled();
    target_shards_ = task_.mesh.parts(target_tiled_);
    summed_devices_ = task_.mesh.parts(axes_ & ~target_.unreduced);
  }

  /// The cheapest plan of all that cost less than `limit`; an empty one if there is none, or it is too far to find.
  [[nodiscard]] constexpr reshard_plan run(std::int64_t limit) {
    limit_ = limit;
    paid_ = -1;  // being at the start costs nothing, and offer() charges one for what it takes to be a slice
    offer(start_, task_.from.tiled(), collective::local_slice, 0, 0);
    while (!heap_.empty()) {
      if (nodes_.size() >= most_nodes) {
        gave_up = true;
        break;
      }
      const entry next = pop();
      if (nodes_[next.node].cost != next.cost || nodes_[next.node].closed) continue;
      nodes_[next.node].closed = true;
      if (same_placement(nodes_[next.node].at, target_)) return plan_to(next.node);
      expand(next.node);
    }
    return empty_plan;
  }

 private:
  // A node has no initialisers, so that an array of nodes is zeroed in no time.
  struct node {
    placement_codes at;
    axis_mask tiled;
    axis_mask axes;
    std::int64_t cost;
    std::int64_t bound;  // of what is still to be paid
    std::int64_t bytes;
    int parent;
    int next;  // in the same bucket, plus one
    collective kind;
    bool closed;
  };
  struct entry {
    std::int64_t estimate;
    std::int64_t cost;
    int node;
    [[nodiscard]] constexpr bool before(const entry& other) const {
      return estimate < other.estimate || (estimate == other.estimate && cost > other.cost);
    }
  };

  static constexpr std::uint32_t buckets = 512;
  // A search that has come to so many placements gives up. Those that end well on a mesh of up to four axes stay far
  // below it, and a constant evaluation could not go much further.
  static constexpr int most_nodes = 3000;

  [[nodiscard]] static constexpr std::uint32_t bucket_of(const placement_codes& s) {
    const std::uint64_t mixed =
        (s.dim[0] + s.dim[1] * 0x9E3779B97F4A7C15ULL + s.dim[2] * 0xC2B2AE3D27D4EB4FULL +
         s.dim[3] * 0x165667B19E3779F9ULL + s.dim[4] * 0x27D4EB2F165667C5ULL + s.dim[5] * 0x85EBCA77C2B2AE63ULL +
         s.dim[6] * 0xD6E8FEB86659FD93ULL + s.dim[7] * 0xA0761D6478BD642FULL + s.unreduced * 0xE7037ED1A0B428DBULL) *
        0xD1B54A32D192ED03ULL;
    return static_cast<std::uint32_t>(mixed >> 32U) % buckets;
  }

  /// Axes are added to lists in the order that the target has.
  constexpr void note_orders() {
    for (int d = 0; d < task_.shape.rank; ++d) {
      for (std::uint32_t rest = target_.dim[d]; rest != 0; rest >>= 4U) code_[((rest & 15U) - 1U) & 7U] = rest & 15U;
    }
  }

  /// A lower bound of the cost of a plan from here. Were all splits even, a device that must end with B bytes has to
  /// receive those it does not hold yet, every byte of a partial among them; and n terms of a sum that m devices want
  /// take at least n + m - 2 messages. Uneven splits only make buffers larger.
  [[nodiscard]] constexpr std::int64_t bound_of(const placement_codes& s) const {
    const axis_mask partial = s.unreduced & ~target_.unreduced;
    std::int64_t bytes = ceil_div(total_, target_shards_);
    if (partial != 0) {
      const std::int64_t messages = task_.mesh.parts(partial) + summed_devices_ / target_shards_ - 2;
      bytes = larger_of(bytes, ceil_div(total_ * messages, summed_devices_));
    } else {
      std::int64_t common = 1;
      for (int d = 0; d < task_.shape.rank; ++d) {
        if ((s.dim[d] | target_.dim[d]) == 0) continue;
        if (!nested(s.dim[d], target_.dim[d])) return plan_cost(bytes, task_.latency, 1, 0);
        common *= shards_of(task_.mesh, s.dim[d] > target_.dim[d] ? s.dim[d] : target_.dim[d]);
      }
      bytes = ceil_div(total_ * (common / target_shards_ - 1), common);
    }
    return bytes == 0 ? 0 : plan_cost(bytes, task_.latency, 1, 0);
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

  [[nodiscard]] constexpr int find(std::uint32_t bucket, const placement_codes& s) const {
    int id = bucket_[bucket] - 1;
    while (id >= 0 && !same_placement(nodes_[id].at, s)) id = nodes_[id].next - 1;
    return id;
  }

  [[nodiscard]] constexpr std::int64_t cost_after(collective kind, std::int64_t bytes) const {
    return paid_ + (kind == collective::local_slice ? 1 : plan_cost(bytes, task_.latency, 1, 0));
  }
  [[nodiscard]] constexpr bool affordable(collective kind, std::int64_t n) const {
    return cost_after(kind, step_bytes(kind, local_, n)) < limit_;
  }

  /// Notes that `s` is reached from the node being expanded by a step over a group of `n`.
  constexpr void offer(const placement_codes& s, axis_mask tiled, collective kind, axis_mask axes, std::int64_t n) {
    const std::int64_t bytes = step_bytes(kind, local_, n);
    reach(s, tiled, kind, axes, bytes, cost_after(kind, bytes));
  }
  constexpr void reach(const placement_codes& s, axis_mask tiled, collective kind, axis_mask axes, std::int64_t bytes,
                       std::int64_t cost) {
    if (cost >= limit_) return;
    const std::uint32_t bucket = bucket_of(s);
    int id = find(bucket, s);
    if (id >= 0 && nodes_[id].cost <= cost) return;
    const std::int64_t bound = id >= 0 ? nodes_[id].bound : bound_of(s);
    if (cost + bound >= limit_) return;
    const node reached{s,    tiled, axes, cost, bound, bytes, parent_, id >= 0 ? nodes_[id].next : bucket_[bucket],
                       kind, false};
    if (id >= 0) {
      nodes_[id] = reached;
    } else {
      id = nodes_.push_back(reached);
      bucket_[bucket] = id + 1;
    }
    push({cost + bound, cost, id});
  }

  constexpr void expand(int id) {
    const placement_codes s = nodes_[id].at;
    const axis_mask tiled = nodes_[id].tiled;
    parent_ = id;
    paid_ = nodes_[id].cost;
    const axis_mask partial = s.unreduced & ~target_.unreduced;
    if (partial == 0) {
      const direct_reshard rest(task_, s, nullptr);
      reach(target_, target_tiled_, collective::exchange, 0, rest.bytes, paid_ + rest.cost());
      return;
    }
    local_ = buffer_bytes(task_, s);
    const axis_mask free = axes_ & ~tiled & ~s.unreduced;
    exchange_terms(s);
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (has_axis(free, axis)) append(s, tiled, code_[axis], collective::local_slice);
    }
    if (tiled != 0) {
      for (int d = 0; d < task_.shape.rank; ++d) take_from(d, s, tiled);
    }
    scatter(s, tiled, 0, partial);
    for (axis_mask some = partial; some != 0; some = (some - 1) & partial) {
      placement_codes t = s;
      t.unreduced &= ~some;
      offer(t, tiled, collective::all_reduce, some, task_.mesh.parts(some));
    }
    // Two permutations in a row are one.
    const bool permuted = nodes_[id].kind == collective::collective_permute;
    if (tiled != 0 && !permuted && paid_ + plan_cost(local_, task_.latency, 1, 0) < limit_) {
      placement_codes t = s;
      arrange(s, t, -1, 1, s.unreduced);
    }
  }

  /// Splits every dimension as in the target, up to the first axis that still has terms of a sum.
  constexpr void exchange_terms(const placement_codes& s) {
    placement_codes t = s;
    axis_mask tiled = 0;
    for (int d = 0; d < task_.shape.rank; ++d) {
      std::uint32_t head = target_.dim[d];
      unsigned length = length_of(head);
      while ((mask_of(head) & s.unreduced) != 0) head = first_of(head, --length);
      t.dim[d] = head;
      tiled |= mask_of(head);
    }
    if (same_placement(t, s)) return;
    const std::int64_t bytes = exchange_bytes(task_, s, t);
    const std::int64_t cost = paid_ + plan_cost(bytes, task_.latency, 1, 0) + exchange_handicap;
    reach(t, tiled, collective::exchange, exchanged_axes(s, t), bytes, cost);
  }

  /// Gathers, or moves to another dimension, every suffix of one dimension's axes.
  constexpr void take_from(int d, const placement_codes& s, axis_mask tiled) {
    std::uint32_t kept = 0;
    for (std::uint32_t moved = s.dim[d]; moved != 0; moved >>= 4U) {
      const axis_mask axes = mask_of(moved);
      const std::int64_t n = shards_of(task_.mesh, moved);
      placement_codes t = s;
      t.dim[d] = kept;
      offer(t, tiled & ~axes, collective::all_gather, axes, n);
      for (int other = 0; affordable(collective::all_to_all, n) && other < task_.shape.rank; ++other) {
        if (other == d) continue;
        t.dim[other] = joined(s.dim[other], moved);
        offer(t, tiled, collective::all_to_all, axes, n);
        t.dim[other] = s.dim[other];
      }
      kept = joined(kept, moved & 15U);
    }
  }

  /// Splits each dimension further, by axes that were replicated or held the terms of a sum.
  constexpr void append(const placement_codes& s, axis_mask tiled, std::uint32_t added, collective kind) {
    const axis_mask axes = mask_of(added);
    const std::int64_t n = shards_of(task_.mesh, added);
    if (!affordable(kind, n)) return;
    for (int d = 0; d < task_.shape.rank; ++d) {
      placement_codes t = s;
      t.dim[d] = joined(s.dim[d], added);
      t.unreduced &= ~axes;
      offer(t, tiled | axes, kind, axes, n);
    }
  }

  /// A reduce_scatter over every ordered choice of the partial axes.
  constexpr void scatter(const placement_codes& s, axis_mask tiled, std::uint32_t chosen, axis_mask partial) {
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (!has_axis(partial, axis)) continue;
      const std::uint32_t more = joined(chosen, code_[axis]);
      append(s, tiled, more, collective::reduce_scatter);
      scatter(s, tiled, more, partial & ~bit_of(axis));
    }
  }

  /// Every way to give the dimensions other axes with the same shards: `t` is complete before dimension `d`, which
  /// still has to be split into `missing` shards.
  constexpr void arrange(const placement_codes& s, placement_codes& t, int d, std::int64_t missing, axis_mask used) {
    if (missing == 1) {
      if (d >= 0 && !same_shards(task_.mesh, task_.shape[d], s.dim[d], t.dim[d])) return;
      do ++d;
      while (d < task_.shape.rank && s.dim[d] == 0);
      if (d == task_.shape.rank) {
        offer(t, used & ~s.unreduced, collective::collective_permute, 0, 1);
        return;
      }
      t.dim[d] = 0;
      missing = shards_of(task_.mesh, s.dim[d]);
    }
    const std::uint32_t begun = t.dim[d];
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (!has_axis(axes_ & ~used, axis) || missing % task_.mesh.size[axis] != 0) continue;
      t.dim[d] = joined(begun, code_[axis]);
      arrange(s, t, d, missing / task_.mesh.size[axis], used | bit_of(axis));
    }
    t.dim[d] = begun;
  }

  /// The steps on the way to a node; slices in a row become one.
  [[nodiscard]] constexpr reshard_plan plan_to(int id) const {
    list<int> path;
    for (; id != 0; id = nodes_[id].parent) path.push_back(id);
    reshard_plan plan = empty_plan;
    sharding before = task_.from;
    for (; !path.empty(); path.pop_back()) {
      const node& reached = nodes_[path.back()];
      if ((before.unreduced & ~target_.unreduced) == 0) {  // the way on that `expand` has found
        const direct_reshard rest(task_, std::bit_cast<placement_codes>(before), &plan);
        plan.bytes += rest.bytes;
        break;
      }
      const bool more_slices = plan.count > 0 && reached.kind == collective::local_slice &&
                               plan.step[plan.count - 1].kind == collective::local_slice;
      reshard_step& step = plan.step[more_slices ? plan.count - 1 : plan.count++];
      step.kind = reached.kind;
      step.after = std::bit_cast<sharding>(reached.at);
      step.axes = reached.kind == collective::collective_permute ? permuted_axes(task_.mesh, before, step.after)
                                                                 : reached.axes | (more_slices ? step.axes : 0U);
      plan.bytes += reached.bytes;
      before = step.after;
    }
    return plan;
  }

  reshard_task task_;
  std::int64_t total_ = 0;  // bytes
  placement_codes target_;
  axis_mask target_tiled_ = 0;
  placement_codes start_;
  std::int64_t target_shards_ = 1;
  std::int64_t summed_devices_ = 1;  // that together hold one sum's terms
  std::int64_t limit_ = 0;
  // These are of the node being expanded.
  std::int64_t local_ = 0;  // bytes
  std::int64_t paid_ = 0;
  int parent_ = 0;
  axis_mask axes_ = 0;
  std::uint32_t code_[max_axes]{1, 2, 3, 4, 5, 6, 7, 8};  ///< the entry of a list by which an axis is added
  int bucket_[buckets]{};                                 // the latest node in it, plus one
  list<node> nodes_;
  list<entry> heap_;
};

/// The same for where the whole search gave up: what both placements have in common stays where it is, and only the
/// other axes are searched over. Nested splits make that a task of its own, on one chunk of the common split.
[[nodiscard]] constexpr reshard_plan search_difference(const reshard_task& task, std::int64_t limit) {
  reshard_task rest = task;
  const auto from = std::bit_cast<placement_codes>(task.from);
  const auto to = std::bit_cast<placement_codes>(task.to);
  placement_codes common = from;
  axis_mask moving = from.unreduced & ~to.unreduced;
  for (int d = 0; d < task.shape.rank; ++d) {
    unsigned length = length_of(from.dim[d]);
    while (first_of(from.dim[d], length) != first_of(to.dim[d], length)) --length;
    const axis_list shared = axis_list::from_code(first_of(from.dim[d], length));
    common.dim[d] = shared.code();
    rest.shape.size[d] = local_extent(task.mesh, task.shape.size[d], shared);
    rest.from.dim[d] = axis_list::from_code(without_first(from.dim[d], length));
    rest.to.dim[d] = axis_list::from_code(without_first(to.dim[d], length));
    moving |= rest.from.dim[d].mask() | rest.to.dim[d].mask();
  }
  for (int axis = 0; axis < task.mesh.rank; ++axis) {
    if (!has_axis(moving, axis)) rest.mesh.size[axis] = 1;
  }
  reshard_plan plan = reshard_search(rest).run(limit);
  for (int i = 0; i < plan.count; ++i) {
    auto after = std::bit_cast<placement_codes>(plan.step[i].after);
    for (int d = 0; d < task.shape.rank; ++d) after.dim[d] = joined(common.dim[d], after.dim[d]);
    plan.step[i].after = std::bit_cast<sharding>(after);
  }
  return plan;
}

}  // namespace espalier::detail
