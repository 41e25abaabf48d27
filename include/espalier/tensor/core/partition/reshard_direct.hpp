// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/reshard_step.hpp>

#include <bit>
#include <cstdint>

namespace espalier::detail {

/// A plan written down without a search.
///
/// Where no sum is to be carried out it is at most one collective, and `optimal`: slices come first, while they are
/// free; then one gather, one move between dimensions or one permutation, if that is all there is to do; else an
/// exchange, which is priced at what a device lacks. With even splits that is what any plan has to send, so a named
/// collective is as cheap at best; with uneven ones the cheaper is taken.
///
/// Otherwise sums come after the slices, gathers last, when nothing else is left to make larger. `optimal` then says
/// whether no other sequence can be cheaper; if not, the plan's cost limits the search. Why it is optimal where it says
/// so: n terms of a sum that m devices want take n + m - 2 messages (`reshard_search::bound_of`). Each form meets that
/// bound, with the fewest collectives that can change these dimensions.
class direct_reshard {
 public:
  bool optimal = false;
  int collectives = 0;
  std::int64_t bytes = 0;
  axis_mask sliced = 0;
  bool exchanges = false;

  /// Adds the steps to `plan`, unless that is null.
  constexpr direct_reshard(const reshard_task& task, const placement_codes& from, reshard_plan* plan)
      : task_(task), plan_(plan), from_(from), now_(from), to_(std::bit_cast<placement_codes>(task.to)) {
    compare();
    if (partial_ == 0) {
      move();
      optimal = true;
    } else if (crossed_ != 0 || (gained_ & lost_) != 0 || !grow_and_reduce()) {
      reduce_and_move();
    }
  }

  [[nodiscard]] constexpr std::int64_t cost() const {
    const int slices = static_cast<int>(count_axes(sliced));
    return plan_cost(bytes, task_.latency, collectives, slices) + (exchanges ? exchange_handicap : 0);
  }

 private:
  constexpr void compare() {
    local_ = task_.element;
    for (int d = 0; d < task_.shape.rank; ++d) {
      const std::uint32_t f = now_.dim[d];
      const std::uint32_t t = to_.dim[d];
      local_ *= task_.shape.size[d];
      if ((f | t) == 0) continue;
      const std::int64_t shards = shards_of(task_.mesh, f);
      shards_ *= shards;
      even_ = even_ && task_.shape.size[d] % shards == 0;
      if (f == t) continue;
      even_ = even_ && task_.shape.size[d] % shards_of(task_.mesh, t) == 0;
      const axis_mask before = mask_of(f);
      const axis_mask after = mask_of(t);
      if (!nested(f, t)) {
        crossed_ |= 1U << static_cast<unsigned>(d);
      } else if (f < t) {
        grown_ |= 1U << static_cast<unsigned>(d);
        gained_ |= after & ~before;
      } else {
        shrunk_ |= 1U << static_cast<unsigned>(d);
        lost_ |= before & ~after;
      }
      same_shards_ = same_shards_ && shards == shards_of(task_.mesh, t);
    }
    local_ = even_ ? local_ / shards_ : buffer_bytes(task_, now_);
    partial_ = now_.unreduced & ~to_.unreduced;
  }

  /// Ends a step: the placement is `now_`.
  constexpr void emit(collective kind, axis_mask axes, std::int64_t n) {
    bytes += step_bytes(kind, local_, n);
    if (kind == collective::local_slice) {
      sliced |= axes;
    } else {
      ++collectives;
    }
    if (plan_ != nullptr) plan_->step[plan_->count++] = {kind, axes, std::bit_cast<sharding>(now_)};
    if (!even_) {
      local_ = buffer_bytes(task_, now_);
    } else if (kind == collective::all_gather) {
      local_ *= n;
    } else if (kind == collective::local_slice || kind == collective::reduce_scatter) {
      local_ /= n;
    }
  }
  /// Gathers, all at once, what dimensions have too many axes of.
  constexpr void gather_rest() {
    axis_mask axes = 0;
    for (int d = 0; shrunk_ != 0; ++d, shrunk_ >>= 1U) {
      if ((shrunk_ & 1U) == 0) continue;
      axes |= mask_of(now_.dim[d]) & ~mask_of(to_.dim[d]);
      now_.dim[d] = to_.dim[d];
    }
    if (axes != 0) emit(collective::all_gather, axes, group_size(task_.mesh, axes));
  }

  /// No sum is to be carried out.
  constexpr void move() {
    placement_codes sliced_first = now_;
    collective kind = collective::exchange;
    axis_mask axes = lost_;
    if (crossed_ != 0) {
      if (same_shards_ && (even_ || splits_alike())) kind = collective::collective_permute;
    } else if ((gained_ & lost_) == 0) {
      kind = collective::all_gather;
      add_slices(sliced_first);
    } else if (moves_one_tail(sliced_first)) {
      kind = collective::all_to_all;
    }
    if (kind != collective::exchange && !even_ && lost_ != 0) {
      const std::int64_t before = buffer_bytes(task_, sliced_first);
      const std::int64_t named = step_bytes(kind, before, group_size(task_.mesh, axes));
      if (exchange_bytes(task_, now_, to_) < named) kind = collective::exchange;
    }
    if (kind == collective::exchange) return exchange();
    if (const axis_mask free = gained_ & ~lost_; free != 0 && kind != collective::collective_permute) {
      now_ = sliced_first;
      emit(collective::local_slice, free, group_size(task_.mesh, free));
    }
    if (kind == collective::collective_permute) {
      if (plan_ != nullptr) axes = permuted_axes(task_.mesh, std::bit_cast<sharding>(from_), task_.to);
      now_ = to_;
      emit(kind, axes, 1);
    } else if (axes != 0) {
      now_ = to_;
      emit(kind, axes, group_size(task_.mesh, axes));
    }
  }
  constexpr void exchange() {
    const axis_mask axes = exchanged_axes(now_, to_);
    bytes += exchange_bytes(task_, now_, to_);
    ++collectives;
    exchanges = true;
    now_ = to_;
    if (plan_ != nullptr) plan_->step[plan_->count++] = {collective::exchange, axes, task_.to};
  }
  constexpr void add_slices(placement_codes& at) const {
    for (int d = 0; grown_ != 0 && d < task_.shape.rank; ++d) {
      if ((grown_ >> static_cast<unsigned>(d) & 1U) != 0) at.dim[d] = to_.dim[d];
    }
  }
  /// Whether, after slices, the last axes of one dimension go to the end of another, and nothing else changes.
  constexpr bool moves_one_tail(placement_codes& sliced_first) const {
    const axis_mask moved = gained_ & lost_;
    if ((shrunk_ & (shrunk_ - 1U)) != 0) return false;
    const int source = dim_with(moved, shrunk_, now_);
    const int target = dim_with(moved, grown_, to_);
    const std::uint32_t tail = without_first(now_.dim[source], length_of(to_.dim[source]));
    const std::uint32_t t = to_.dim[target];
    if (length_of(t) < length_of(tail)) return false;
    const unsigned head = length_of(t) - length_of(tail);
    if (without_first(t, head) != tail) return false;
    add_slices(sliced_first);
    sliced_first.dim[target] = first_of(t, head);
    return true;
  }
  [[nodiscard]] constexpr bool splits_alike() const {
    for (int d = 0; d < task_.shape.rank; ++d) {
      if (!same_shards(task_.mesh, task_.shape.size[d], now_.dim[d], to_.dim[d])) return false;
    }
    return true;
  }
  /// The first of these dimensions that is split by one of these axes.
  [[nodiscard]] static constexpr int dim_with(axis_mask axes, std::uint32_t dims, const placement_codes& at) {
    int d = 0;
    while ((dims >> static_cast<unsigned>(d) & 1U) == 0 || (mask_of(at.dim[d]) & axes) == 0) ++d;
    return d;
  }

  /// Plans a sum where no axis moves from one dimension to another; returns false if the scattered axes prevent slices.
  constexpr bool grow_and_reduce() {
    const axis_mask scattered = gained_ & now_.unreduced;
    if (grown_ != 0 && !slice_before(scattered)) return false;
    reduce(scattered);
    return true;
  }

  /// Appends to each dimension what is free from the start; `scattered` axes may only come after that.
  constexpr bool slice_before(axis_mask scattered) {
    for (int d = 0; d < task_.shape.rank; ++d) {
      if ((grown_ >> static_cast<unsigned>(d) & 1U) == 0) continue;
      std::uint32_t head = to_.dim[d];
      unsigned length = length_of(head);
      while (length > 0 && (mask_of(without_first(head, length - 1)) & scattered) != 0) head = first_of(head, --length);
      if ((mask_of(head) & scattered) != 0) return false;
      now_.dim[d] = head;
    }
    return true;
  }

  constexpr void reduce(axis_mask scattered) {
    // Copies can share the work of a sum of more than two terms: each reduces a part, and they gather the result.
    const axis_mask added = gained_ & ~scattered;
    const std::int64_t terms = group_size(task_.mesh, partial_);
    const std::int64_t copies =
        group_size(task_.mesh, ~0U) / (shards_ * group_size(task_.mesh, added | now_.unreduced));
    // When nothing else changes, this meets the bound for any plan of two collectives, and there is one plan of one: so
    // the cheaper of both is the cheapest of all. The number of steps to find that is the same on every mesh.
    const bool only_sums = even_ && gained_ == 0 && lost_ == 0;
    const bool pays = task_.latency == 0 || (only_sums && sharing_pays(terms, copies));
    const int shared = pays && copies > 1 && terms > 2 && lost_ == 0 ? shareable_dim(copies) : -1;
    const axis_mask sharing = shared < 0 ? 0 : share(shared);
    if ((added | sharing) != 0) emit(collective::local_slice, added | sharing, group_size(task_.mesh, added | sharing));
    for (int d = 0; scattered != 0 && d < task_.shape.rank; ++d) {
      const axis_mask axes = mask_of(to_.dim[d]) & scattered;
      if (axes == 0) continue;
      now_.dim[d] = to_.dim[d];
      now_.unreduced &= ~axes;
      emit(collective::reduce_scatter, axes, group_size(task_.mesh, axes));
    }
    if (const axis_mask axes = partial_ & ~scattered; axes != 0) {
      now_.unreduced = to_.unreduced;
      emit(collective::all_reduce, axes, group_size(task_.mesh, axes));
    }
    if (shared >= 0) shrunk_ |= 1U << static_cast<unsigned>(shared);
    gather_rest();
    if (task_.latency > 0 && only_sums) {
      optimal = shared >= 0 || !pays;
    } else {
      // Three collectives may be two others of the same bytes: one reduce_scatter of all sums, and an exchange.
      const int most = task_.latency == 0 ? 2 : 1;
      optimal = even_ && (copies == 1 || terms == 2 || shared >= 0) && collectives <= most;
    }
  }
  /// Whether what the copies save by sharing a sum of so many terms is worth another collective.
  [[nodiscard]] constexpr bool sharing_pays(std::int64_t terms, std::int64_t copies) const {
    const std::int64_t alone = step_bytes(collective::all_reduce, local_, terms);
    const std::int64_t least = ceil_div(local_ * (terms * copies + terms - 2), terms * copies);
    return plan_cost(alone, task_.latency, 1, 0) > plan_cost(least, task_.latency, 2, 0);
  }
  /// A dimension that the copies can split evenly among them, and that no reduce_scatter splits.
  [[nodiscard]] constexpr int shareable_dim(std::int64_t copies) const {
    for (int d = 0; d < task_.shape.rank; ++d) {
      const bool complete = now_.dim[d] == to_.dim[d];
      if (complete && task_.shape.size[d] % (shards_of(task_.mesh, now_.dim[d]) * copies) == 0) return d;
    }
    return -1;
  }
  constexpr axis_mask share(int d) {
    axis_mask used = now_.unreduced;
    for (int other = 0; other < task_.shape.rank; ++other) used |= mask_of(now_.dim[other]);
    axis_mask axes = 0;
    for (int axis = 0; axis < task_.mesh.rank; ++axis) {
      if (has_axis(used, axis) || task_.mesh.size[axis] == 1) continue;
      now_.dim[d] = joined(now_.dim[d], static_cast<std::uint32_t>(axis + 1));
      axes |= bit_of(axis);
    }
    return axes;
  }

  /// Adds the fallback plan: reduce the partial in its present layout, then move the sum. Other plans are compared with
  /// it.
  constexpr void reduce_and_move() {
    now_ = from_;
    now_.unreduced = to_.unreduced;
    emit(collective::all_reduce, partial_, group_size(task_.mesh, partial_));
    from_ = now_;
    move();
  }

  const reshard_task& task_;
  reshard_plan* plan_;
  placement_codes from_;
  placement_codes now_;
  placement_codes to_;
  std::int64_t shards_ = 1;
  std::int64_t local_ = 0;  // bytes
  bool even_ = true;
  bool same_shards_ = true;  // no dimension is split into more or fewer shards
  // Bits of dimensions: those that gain axes at the end, lose axes at the end, or change otherwise.
  std::uint32_t grown_ = 0;
  std::uint32_t shrunk_ = 0;
  std::uint32_t crossed_ = 0;
  axis_mask gained_ = 0;
  axis_mask lost_ = 0;
  axis_mask partial_ = 0;
};

}  // namespace espalier::detail
