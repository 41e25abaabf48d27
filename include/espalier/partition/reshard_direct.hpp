// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/partition/reshard_step.hpp>

#include <bit>
#include <cstdint>

namespace espalier::detail {

/// A plan written down without a search, for the changes that programs are full of. Slices come first, while they are
/// free; then sums; then one move between dimensions or one permutation; gathers last, when nothing else is left to
/// make larger. `optimal` says whether no other sequence can be cheaper; otherwise its cost limits the search.
///
/// Why it is optimal where it says so: with even splits a device that must end with B bytes sends, as it receives, at
/// least those B bytes that it does not hold at the start, and n terms of a sum that m devices want take n + m - 2
/// messages (`reshard_search::bound_of`). Each form below meets that bound, with the fewest collectives that can change
/// these dimensions.
class direct_reshard {
 public:
  bool optimal = false;
  int collectives = 0;
  std::int64_t bytes = 0;
  axis_mask sliced = 0;

  /// Writes the steps to `plan`, unless that is null.
  constexpr direct_reshard(const reshard_task& task, reshard_plan* plan)
      : task_(task),
        plan_(plan),
        now_(std::bit_cast<placement_codes>(task.from)),
        to_(std::bit_cast<placement_codes>(task.to)) {
    compare();
    const bool done = crossed_ != 0 ? permute() : (gained_ & lost_) != 0 ? exchange() : grow_and_shrink();
    if (!done) gather_and_slice();
  }

 private:
  constexpr void compare() {
    local_ = task_.element;
    for (int d = 0; d < task_.shape.rank; ++d) {
      const std::uint32_t f = now_.dim[d];
      const std::uint32_t t = to_.dim[d];
      local_ *= task_.shape.size[d];
      if ((f | t) == 0) continue;
      const std::int64_t parts = parts_of(task_.mesh, f);
      parts_ *= parts;
      even_ = even_ && task_.shape.size[d] % parts == 0;
      if (f == t) continue;
      even_ = even_ && task_.shape.size[d] % parts_of(task_.mesh, t) == 0;
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
      same_parts_ = same_parts_ && parts == parts_of(task_.mesh, t);
    }
    local_ = even_ ? local_ / parts_ : buffer_bytes(task_, now_);
    pending_ = now_.unreduced & ~to_.unreduced;
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
  constexpr void gather_rest() {
    for (int d = 0; shrunk_ != 0; ++d, shrunk_ >>= 1U) {
      if ((shrunk_ & 1U) == 0) continue;
      const axis_mask axes = mask_of(now_.dim[d]) & ~mask_of(to_.dim[d]);
      now_.dim[d] = to_.dim[d];
      emit(collective::all_gather, axes, group_size(task_.mesh, axes));
    }
  }

  /// No axis moves from one dimension to another.
  constexpr bool grow_and_shrink() {
    const axis_mask scattered = gained_ & now_.unreduced;
    if (grown_ != 0 && !slice_before(scattered)) return false;
    if (pending_ == 0) {
      if (gained_ != 0) emit(collective::local_slice, gained_, group_size(task_.mesh, gained_));
      gather_rest();
      optimal = even_ || collectives == 0;
      return true;
    }
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
    const std::int64_t terms = group_size(task_.mesh, pending_);
    const std::int64_t copies = group_size(task_.mesh, ~0U) / (parts_ * group_size(task_.mesh, added | now_.unreduced));
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
    if (const axis_mask axes = pending_ & ~scattered; axes != 0) {
      now_.unreduced = to_.unreduced;
      emit(collective::all_reduce, axes, group_size(task_.mesh, axes));
    }
    if (shared >= 0) shrunk_ |= 1U << static_cast<unsigned>(shared);
    gather_rest();
    if (task_.latency > 0 && only_sums) {
      optimal = shared >= 0 || !pays;
    } else {
      optimal = even_ && (copies == 1 || terms == 2 || shared >= 0) && (task_.latency == 0 || collectives == 1);
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
      if (complete && task_.shape.size[d] % (parts_of(task_.mesh, now_.dim[d]) * copies) == 0) return d;
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

  /// The first of these dimensions that is split by one of these axes.
  [[nodiscard]] static constexpr int dim_with(axis_mask axes, std::uint32_t dims, const placement_codes& at) {
    int d = 0;
    while ((dims >> static_cast<unsigned>(d) & 1U) == 0 || (mask_of(at.dim[d]) & axes) == 0) ++d;
    return d;
  }

  /// The last axes of one dimension go to the end of another.
  constexpr bool exchange() {
    const axis_mask moved = gained_ & lost_;
    const int source = dim_with(moved, shrunk_, now_);
    const int target = dim_with(moved, grown_, to_);
    const unsigned count = count_axes(moved);
    const std::uint32_t f = now_.dim[source];
    const std::uint32_t t = to_.dim[target];
    if (pending_ != 0 || length_of(f) < count || length_of(t) < count) return false;
    const unsigned kept = length_of(f) - count;
    const std::uint32_t tail = without_first(f, kept);
    const unsigned head = length_of(t) - count;
    if (mask_of(tail) != moved || without_first(t, head) != tail) return false;
    if (gained_ != moved) {
      for (int d = 0; d < task_.shape.rank; ++d) {
        if ((grown_ >> static_cast<unsigned>(d) & 1U) != 0) now_.dim[d] = to_.dim[d];
      }
      now_.dim[target] = first_of(t, head);
      emit(collective::local_slice, gained_ & ~moved, group_size(task_.mesh, gained_ & ~moved));
    }
    now_.dim[source] = first_of(f, kept);
    now_.dim[target] = t;
    emit(collective::all_to_all, moved, group_size(task_.mesh, moved));
    if (now_.dim[source] == to_.dim[source]) shrunk_ &= ~(1U << static_cast<unsigned>(source));
    gather_rest();
    optimal = even_ && (task_.latency == 0 || collectives == 1);
    return true;
  }

  /// Some dimension is split by other axes, or in another order.
  constexpr bool permute() {
    if (pending_ != 0) return false;
    if (same_parts_ && (even_ || splits_alike())) {
      now_ = to_;
      emit_permutation(task_.from);
      optimal = even_;
      return true;
    }
    return reorder();
  }
  [[nodiscard]] constexpr bool splits_alike() const {
    for (int d = 0; d < task_.shape.rank; ++d) {
      if (!same_parts(task_.mesh, task_.shape.size[d], now_.dim[d], to_.dim[d])) return false;
    }
    return true;
  }
  constexpr void emit_permutation(const sharding& before) {
    const axis_mask axes = plan_ == nullptr ? 0 : permuted_axes(task_.mesh, before, std::bit_cast<sharding>(now_));
    emit(collective::collective_permute, axes, 1);
  }

  /// One dimension only, whose new axes come in another order, after some were added or before some are gathered.
  constexpr bool reorder() {
    int d = 0;
    while ((crossed_ >> static_cast<unsigned>(d) & 1U) == 0) ++d;
    const std::uint32_t f = now_.dim[d];
    const std::uint32_t t = to_.dim[d];
    const axis_mask added = mask_of(t) & ~mask_of(f);
    const axis_mask dropped = mask_of(f) & ~mask_of(t);
    const bool alone = crossed_ >> static_cast<unsigned>(d) == 1U && (grown_ | shrunk_) == 0;
    if (!alone || (added != 0 && dropped != 0)) return false;
    const std::uint32_t longer = added == 0 ? f : joined(f, list_of(added).code());
    const std::uint32_t arranged = joined(t, axis_list::from_code(f).without(mask_of(t)).code());
    if (!same_parts(task_.mesh, task_.shape.size[d], longer, arranged)) return false;
    now_.dim[d] = longer;
    if (added != 0) emit(collective::local_slice, added, group_size(task_.mesh, added));
    const sharding before = std::bit_cast<sharding>(now_);
    now_.dim[d] = arranged;
    emit_permutation(before);
    shrunk_ = dropped == 0 ? 0 : crossed_;
    gather_rest();
    optimal = even_ && (task_.latency == 0 || collectives == 1);
    return true;
  }

  /// What always works: carry out the sum, gather whatever is in the way, slice. Only there to be undercut.
  constexpr void gather_and_slice() {
    now_ = std::bit_cast<placement_codes>(task_.from);
    if (pending_ != 0) {
      now_.unreduced = to_.unreduced;
      emit(collective::all_reduce, pending_, group_size(task_.mesh, pending_));
    }
    axis_mask kept = 0;
    for (int d = 0; d < task_.shape.rank; ++d) {
      const std::uint32_t f = now_.dim[d];
      unsigned common = length_of(f);
      while (first_of(f, common) != first_of(to_.dim[d], common)) --common;
      now_.dim[d] = first_of(f, common);
      kept |= mask_of(now_.dim[d]);
      const axis_mask axes = mask_of(f) & ~mask_of(now_.dim[d]);
      if (axes != 0) emit(collective::all_gather, axes, group_size(task_.mesh, axes));
    }
    axis_mask added = 0;
    for (int d = 0; d < task_.shape.rank; ++d) added |= mask_of(to_.dim[d]);
    now_ = to_;
    if ((added & ~kept) != 0) emit(collective::local_slice, added & ~kept, group_size(task_.mesh, added & ~kept));
  }

  const reshard_task& task_;
  reshard_plan* plan_;
  placement_codes now_;
  placement_codes to_;
  std::int64_t parts_ = 1;
  std::int64_t local_ = 0;  // bytes
  bool even_ = true;
  bool same_parts_ = true;  // no dimension is split into more or fewer parts
  // Bits of dimensions: those that gain axes at the end, lose axes at the end, or change otherwise.
  std::uint32_t grown_ = 0;
  std::uint32_t shrunk_ = 0;
  std::uint32_t crossed_ = 0;
  axis_mask gained_ = 0;
  axis_mask lost_ = 0;
  axis_mask pending_ = 0;
};

}  // namespace espalier::detail
