// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/graph/factor_axes.hpp>
#include <espalier/ops/convert.hpp>
#include <espalier/partition/factor_choice.hpp>
#include <espalier/partition/local_program.hpp>
#include <espalier/partition/partition_progress.hpp>

#include <cstdint>
#include <limits>

namespace espalier {

/// The program of one device, the same on all: every instruction works on local buffers, and communication is
/// explicit. Every instruction's `annotation` is the layout its buffer is a part of.
struct partitioned {
  graph program;
  /// The instruction of the traced graph each instruction comes from.
  detail::list<int> origin;
  partition_fault fault = partition_fault::nothing;
  int fault_at = -1;
};

namespace detail {

/// Walks a completed graph once, in order, and makes each instruction's local counterpart.
class partitioner {
 public:
  constexpr partitioner(const mesh_shape& mesh, graph_view g, const factor_rule* rules, const sharding* of)
      : mesh_(mesh), g_(g), rules_(rules), of_(of), value_(g.size, -1), unsettled_(g.size, -1), made_(mesh, g) {
    prepare();
  }
  /// Goes on with what an earlier evaluation made.
  template <int Size, int Room>
  constexpr partitioner(const mesh_shape& devices, graph_view g, const factor_rule* rules, const sharding* of,
                        const partition_progress<Size, Room>& from)
      : mesh_(devices),
        g_(g),
        rules_(rules),
        of_(of),
        made_(devices, from),
        fault_(from.fault),
        fault_at_(from.fault_at) {
    value_.resize(g.size);
    unsettled_.resize(g.size);
    int* const value = value_.data();
    int* const unsettled = unsettled_.data();
    for (int id = 0; id < g.size; ++id) {
      value[id] = from.value[id];
      unsettled[id] = from.unsettled[id];
    }
    prepare();
  }

  /// Visits the instructions from `first` up to `last`.
  constexpr void run(int first, int last) {
    // A fifth more instructions is what collectives usually come to.
    made_.reserve(last + last / 5);
    for (int id = first; id < last && fault_ == partition_fault::nothing; ++id) visit(id);
  }
  constexpr partitioned finish() {
    partitioned result;
    made_.finish(result.program, result.origin);
    result.fault = fault_;
    result.fault_at = fault_at_;
    return result;
  }
  template <int Size, int Room> [[nodiscard]] constexpr partition_progress<Size, Room> save() const {
    partition_progress<Size, Room> to;
    made_.save(to);
    if (!to.made.fits) return to;
    const int* const value = value_.data();
    const int* const unsettled = unsettled_.data();
    for (int id = 0; id < g_.size; ++id) {
      to.value[id] = value[id];
      to.unsettled[id] = unsettled[id];
    }
    to.fault = fault_;
    to.fault_at = fault_at_;
    return to;
  }

 private:
  constexpr void prepare() {
    readers_.resize(g_.size, 0);
    reader_.resize(g_.size, -1);
    int* const readers = readers_.data();
    int* const reader = reader_.data();
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_.code[id];
      if (part_of(i) == structure::result) {
        const int sums = attributes_of<border_attributes>(i).sums_travel_as;
        has_narrow_sums_ = has_narrow_sums_ || sums > 0;
        if (sums > 0) narrow_sums_ = static_cast<dtype>(sums - 1);
      }
      for (int k = 0; k < i.operand_count && !i.op->facts.looks; ++k) {
        ++readers[g_.operand_at(i, k)];
        reader[g_.operand_at(i, k)] = id;
      }
      keeps_sums_ = keeps_sums_ || of_[id].unreduced != 0;
    }
    if (const axis_mask trivial = axes_of_one(mesh_);
        (trivial & ((1U << static_cast<unsigned>(mesh_.rank)) - 1U)) != 0) {
      // Axes of one device split nothing, and nothing is pending on them.
      nontrivial_.reserve(g_.size);
      for (int id = 0; id < g_.size; ++id) nontrivial_.push_back(without_axes(of_[id], trivial));
      of_ = nontrivial_.data();
    }
  }

  constexpr void fail(partition_fault fault, int id) {
    fault_ = fault;
    fault_at_ = id;
  }

  /// An operand with the pending sums that completion gives it, and no other.
  constexpr int settled(int id) {
    const int value = value_[id];
    if (made_.layout_of(value).placement.unreduced == of_[id].unreduced) return value;
    return settle(id, of_[id]);
  }
  /// Carries out a pending sum for all later readers but those that ask for the terms.
  constexpr int settle(int id, const sharding& reduced) {
    unsettled_[id] = value_[id];
    return value_[id] = rounded(id, reshard(value_[id], reduced));
  }

  // Floats of sixteen bits are added up in another type, which they have until all terms are in: terms of devices are
  // values of that type, and so is what linear ops make of them. The sum is rounded once.

  /// The value in another layout. Terms travel in the type that the program chooses, if they are wider.
  constexpr int reshard(int value, const sharding& to, reduction combine = reduction::sum) {
    const bool adds_up = combine == reduction::sum && has_narrow_sums_ && to.unreduced == 0 &&
                         made_.layout_of(value).placement.unreduced != 0;
    if (adds_up && is_floating(made_[value].type) && size_of(made_[value].type) > size_of(narrow_sums_)) {
      value = made_.converted(value, narrow_sums_);
    }
    return made_.reshard(value, to, combine);
  }
  /// A value of instruction `id`, of the type that has: rounded, unless terms of it are pending.
  constexpr int rounded(int id, int value) {
    return made_.layout_of(value).placement.unreduced != 0 ? value : made_.converted(value, g_[id].type);
  }
  /// Whether `value` has terms of sums that are going to be rounded to `type`.
  [[nodiscard]] constexpr bool is_wider(int value, dtype type) const {
    return is_for_storage(type) && made_[value].type == facts_of(type).accumulate &&
           made_.layout_of(value).placement.unreduced != 0;
  }
  /// If one of the operands has such terms, so has the result, and all operands take their type.
  constexpr void widen(instruction& made, int* operands, int count) {
    bool is_wide = false;
    for (int k = 0; k < count; ++k) is_wide = is_wide || is_wider(operands[k], made.type);
    if (!is_wide) return;
    const dtype narrow = made.type;
    made.type = facts_of(narrow).accumulate;
    for (int k = 0; k < count; ++k) {
      if (made_[operands[k]].type == narrow) operands[k] = made_.converted(operands[k], made.type);
    }
  }

  constexpr void visit(int id) {
    const instruction& i = g_[id];
    made_.stems_from(id, i.where);
    const structure part = part_of(i);
    if (part == structure::argument) {
      value_[id] = made_.append(i, i.shape, of_[id]);
    } else if (part == structure::result) {
      visit_result(id);
    } else if (part != structure::none) {
      visit_loop(id, part);
    } else if (i.op->facts.looks) {
      visit_look(id);
    } else if (requests_of(i) != layout_request::none) {
      value_[id] = visit_annotation(id);
    } else if (is_further_result(i)) {
      take(id, value_[id], rules_[i.operand[0]].combine);
    } else {
      visit_op(id);
    }
    if (i.label != nullptr && value_[id] >= 0) made_.label(value_[id], i.label);
  }

  /// Looks at a value as it is by now: nothing moves for it.
  constexpr void visit_look(int id) {
    const int operand = g_[id].operand[0];
    int value = value_[operand];
    // A sum may have been carried out in a loop that is over, or for a reader alone.
    if (!made_.in_scope(made_[value].loop) && unsettled_[operand] >= 0) value = unsettled_[operand];
    if (made_.layout_of(value).placement.unreduced != of_[operand].unreduced) {
      value = made_.variant_pending(value, of_[operand].unreduced);
    }
    const sharding as_it_is = made_.layout_of(value).placement;
    instruction made = g_[id];
    made.operand[0] = value;
    value_[id] = made_.append(made, g_[id].shape, as_it_is);
  }

  constexpr int visit_annotation(int id) {
    const int operand = g_[id].operand[0];
    int value = value_[operand];
    if (of_[id].unreduced != 0) {
      if (unsettled_[operand] >= 0 && made_.in_scope(made_[unsettled_[operand]].loop)) value = unsettled_[operand];
      if ((of_[id].unreduced & ~made_.layout_of(value).placement.unreduced) != 0) {
        fail(partition_fault::no_sum_pending, id);
        return value;
      }
    }
    // The sum may be wanted in yet another layout: whoever reads it says in which.
    const axis_mask pending = made_.layout_of(value).placement.unreduced;
    const bool waits = requests_of(g_[id]) == layout_request::as_operand && pending != 0 && postpones(id, pending) &&
                       part_of(g_[reader_[id]]) != structure::result;
    if (waits) return owned(id, value);
    const bool is_sum = requests_of(g_[id]) == layout_request::as_operand && pending != 0 && readers_[id] > 1;
    return owned(id, rounded(id, reshard(value, is_sum ? parts_for_readers(id, pending) : of_[id])));
  }

  /// A loop collects what it computes itself: a value from outside becomes one of the loop.
  constexpr int owned(int id, int value) {
    if (made_[value].loop == made_.loop() || readers_[id] == 0 || !collects(reader_[id])) return value;
    return made_.copy_of(value);
  }
  [[nodiscard]] constexpr bool collects(int id) const { return espalier::collects(part_of(g_[id])); }

  constexpr void visit_result(int id) {
    instruction made = g_[id];
    made.operand[0] = made_.converted(reshard(value_[g_[id].operand[0]], of_[id]), g_[id].type);
    if (made.operand_count == 2) made.operand[1] = value_[g_[id].operand[1]];
    value_[id] = made_.append(made, g_[id].shape, of_[id]);
  }

  // A stack that is split along its first dimension stays so: device k of n has every iteration's slice of the k-th
  // part of the loop. In each iteration one slice travels, from or to its owner, and a device never has more of the
  // stack than its part and that slice.

  /// Calls `f(stack)` for the stacks of a loop's values that are split along its iterations.
  template <class F> constexpr void for_each_split_stack(int loop, const F& f) const {
    int id = loop + 1;
    while (id < g_.size && !(part_of(g_[id]) == structure::loop_end && g_[id].operand[0] == loop)) ++id;
    for (++id; id < g_.size && collects(id) && g_[g_[id].operand[0]].loop == loop; ++id) {
      if (part_of(g_[id]) == structure::loop_stack && !of_[id].dim[0].empty() && of_[id].unreduced == 0) f(id);
    }
  }

  constexpr void visit_loop(int id, structure part) {
    const instruction& i = g_[id];
    instruction made = i;
    switch (part) {
      case structure::loop_begin:
        // The carries' initial values take the carries' layout outside, before the loop starts.
        for (int c = id + 1; c < g_.size && part_of(g_[c]) == structure::loop_carry; ++c) {
          value_[c] = made_.converted(reshard(value_[g_[c].operand[0]], of_[c]), type_of_carry(c));
        }
        for_each_split_stack(id, [this](int stack) {
          value_[stack] =
              made_.append(builder::make(ops::constant, g_[stack].type, extents{}), g_[stack].shape, of_[stack]);
        });
        value_[id] = made_.append(made, i.shape, of_[id]);
        made_.enter(value_[id]);
        for_each_split_stack(id, [this](int stack) {
          value_[stack] = made_.append(builder::make(ops::loop_carry, g_[stack].type, extents{}, value_[stack]),
                                       g_[stack].shape, of_[stack]);
        });
        return;
      case structure::loop_carry:
        made.operand[0] = value_[id];
        made.type = type_of_carry(id);
        value_[id] = made_.append(made, i.shape, of_[id]);
        return;
      case structure::loop_next:
        made.operand[0] = value_[i.operand[0]];
        made.type = made_[made.operand[0]].type;
        made.operand[1] = passed_on(
            made_.converted(reshard(value_[i.operand[1]], made_.layout_of(made.operand[0]).placement), made.type),
            made.operand[0]);
        value_[id] = made_.append(made, i.shape, made_.layout_of(made.operand[0]).placement);
        return;
      case structure::loop_end:
        for_each_split_stack(i.operand[0], [this](int stack) { keep_slice(stack); });
        made.operand[0] = value_[i.operand[0]];
        made_.enter(made_[made.operand[0]].loop);
        value_[id] = made_.append(made, i.shape, of_[id]);
        return;
      case structure::loop_result:
      case structure::loop_sum:
        made.operand[0] = value_[i.operand[0]];
        made.type = made_[made.operand[0]].type;
        value_[id] = made_.append(made, i.shape, made_.layout_of(made.operand[0]).placement);
        return;
      case structure::loop_slice: visit_slice(id); return;
      case structure::loop_stack:
        if (value_[id] >= 0) {
          value_[id] = made_.append(builder::make(ops::loop_result, i.type, extents{}, value_[id]), i.shape, of_[id]);
          return;
        }
        made.operand[0] = value_[i.operand[0]];
        made.type = made_[made.operand[0]].type;
        value_[id] = made_.append(made, i.shape, stacked(made_.layout_of(made.operand[0]).placement));
        return;
      case structure::none:
      case structure::argument:
      case structure::result: return;
    }
  }

  /// Terms that are carried are added up in the type of sums.
  [[nodiscard]] constexpr dtype type_of_carry(int id) const {
    return of_[id].unreduced != 0 && is_for_storage(g_[id].type) ? facts_of(g_[id].type).accumulate : g_[id].type;
  }

  /// A carry that becomes another one (through annotations, which are gone by now) would be overwritten on the way.
  constexpr int passed_on(int value, int carry) {
    if (part_of(made_[value]) != structure::loop_carry || made_[value].loop != made_.loop() || value == carry)
      return value;
    return made_.copy_of(value);
  }

  [[nodiscard]] static constexpr sharding stacked(const sharding& inner) {
    sharding result = inner;
    result.rank = inner.rank + 1;
    result.dim[0] = axis_list{};
    for (int d = 0; d < inner.rank; ++d) result.dim[d + 1] = inner.dim[d];
    result.open = inner.open << 1U;
    return result;
  }
  [[nodiscard]] static constexpr sharding unstacked(const sharding& whole) {
    sharding result = whole;
    result.rank = whole.rank - 1;
    for (int d = 0; d < result.rank; ++d) result.dim[d] = whole.dim[d + 1];
    result.dim[result.rank] = axis_list{};
    result.open = whole.open >> 1U;
    return result;
  }

  /// Such a stack is a carry, into which each iteration's owner writes its slice.
  constexpr void keep_slice(int stack) {
    const int carry = value_[stack];
    const layout all = made_.layout_of(carry);
    const int slice = made_.converted(reshard(value_[g_[stack].operand[0]], unstacked(all.placement)), g_[stack].type);
    layout one = all;
    one.shape[0] = 1;
    one.placement.dim[0] = axis_list{};
    const dtype type = g_[stack].type;
    const int row = made_.append(builder::make(ops::reshape, type, extents{}, slice), one.shape, one.placement);
    instruction made = builder::make(ops::dynamic_update_slice, type, extents{}, carry, row, made_.iteration());
    set_attributes(made, dynamic_update_slice_attributes{.dim = 0, .extent = all.shape[0]});
    const int written = made_.append(made, all.shape, all.placement);
    value_[stack] =
        made_.append(builder::make(ops::loop_next, type, extents{}, carry, written), all.shape, all.placement);
  }

  /// The slice of the iteration from its owner: a pending sum.
  constexpr void cut_slice(int id, int stack) {
    const layout all = made_.layout_of(stack);
    layout one = all;
    one.shape[0] = 1;
    one.placement.unreduced |= all.placement.dim[0].mask();
    one.placement.dim[0] = axis_list{};
    const dtype type = made_[stack].type;
    instruction made = builder::make(ops::dynamic_slice, type, extents{}, stack, made_.iteration());
    set_attributes(made, dynamic_slice_attributes{.dim = 0, .extent = all.shape[0], .size = 1});
    const int row = made_.append(made, one.shape, one.placement);
    const int slice =
        made_.append(builder::make(ops::reshape, type, extents{}, row), g_[id].shape, unstacked(one.placement));
    take(id, slice, type == dtype::boolean ? reduction::max : reduction::sum);
  }

  /// A slice is laid out as the tensor it is cut from: what has to be gathered is gathered slice by slice.
  constexpr void visit_slice(int id) {
    instruction made = g_[id];
    made.operand[0] = settled(g_[id].operand[0]);
    sharding whole = made_.layout_of(made.operand[0]).placement;
    if (!whole.dim[0].empty()) {
      if ((whole.dim[0].mask() & ~of_[id].tiled()) != 0) return cut_slice(id, made.operand[0]);
      // The same axes split the slices as they are wanted: once, outside, each device changes its part of the stack for
      // another one of that size, and no slice travels.
      const axis_mask pending = whole.unreduced;
      whole = stacked(of_[id]);
      whole.unreduced = pending;
      made.operand[0] = reshard(made.operand[0], whole);
    }
    made.type = made_[made.operand[0]].type;
    value_[id] = made_.append(made, g_[id].shape, unstacked(whole));
  }

  // --- ordinary ops ---------------------------------------------------------------------------------------------

  constexpr void visit_op(int id) {
    const instruction& i = g_[id];
    if (i.op->factors == nullptr) return fail(partition_fault::op_without_rule, id);
    const axis_mask pending = settle_operands(id);
    if (fault_ != partition_fault::nothing) return;
    const factor_rule& rule = rules_[id];
    if (i.op->lower != nullptr) {
      lowering steps(*this, id);
      if (const int value = i.op->lower(steps); value >= 0) return take(id, value, rule.combine);
    }
    const factor_axes split = factor_choice(mesh_, g_, of_, made_, value_).run(id, rule, pending);
    operands_.clear();
    for (int k = 0; k < i.operand_count; ++k) {
      sharding wanted = required(mesh_, rule.dims_of(k), g_[g_.operand_at(i, k)].shape.rank, rule, split);
      const axis_mask held = made_.layout_of(value_[g_.operand_at(i, k)]).placement.unreduced;
      wanted.unreduced = held;
      if (i.op->windows != nullptr && read_windows(id, k, rule, split, wanted)) continue;
      operands_.push_back(masked(id, k, reshard(value_[g_.operand_at(i, k)], wanted), split));
    }
    sharding local = required(mesh_, rule.result, i.shape.rank, rule, split);
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) local.unreduced |= split[f].mask();
    }
    const bool has_terms = local.unreduced != 0 && rule.combine == reduction::sum && i.op->facts.adds_up;
    local.unreduced |= pending;
    instruction made = i;
    widen(made, operands_.data(), operands_.size());
    if (has_terms && is_for_storage(made.type)) made.type = facts_of(made.type).accumulate;
    const int value = made_.append(made, operands_, i.shape, local);
    if (const int count = further_results(g_.code, g_.size, id); count > 0) append_results(id, count, value, split);
    take(id, value, rule.combine);
  }
  /// The results after the first, all before any of them is resharded: they stay together.
  constexpr void append_results(int id, int count, int value, const factor_axes& split) {
    const axis_mask pending = made_.layout_of(value).placement.unreduced;
    for (int n = 1; n <= count; ++n) {
      instruction made = g_[id + n];
      made.operand[0] = value;
      sharding local = required(mesh_, rules_[id].dims_of_result(n), made.shape.rank, rules_[id], split);
      local.unreduced = pending;
      made_.stems_from(id + n, made.where);
      value_[id + n] = made_.append(made, made.shape, local);
    }
    made_.stems_from(id, g_[id].where);
  }

  /// What an op that is lowered in steps of its own sees of the partitioner.
  class lowering final : public partition_context {
   public:
    constexpr lowering(partitioner& owner, int id) : owner_(owner), id_(id) {}
    [[nodiscard]] constexpr const mesh_shape& mesh() const override { return owner_.mesh_; }
    [[nodiscard]] constexpr op_view op() const override { return {owner_.g_.code, id_, owner_.g_.windows}; }
    [[nodiscard]] constexpr const factor_rule& rule() const override { return owner_.rules_[id_]; }
    [[nodiscard]] constexpr const sharding& wanted() const override { return owner_.of_[id_]; }
    [[nodiscard]] constexpr int operand(int k) const override {
      return owner_.value_[owner_.g_.operand_at(owner_.g_[id_], k)];
    }
    [[nodiscard]] constexpr const layout& layout_of(int value) const override { return owner_.made_.layout_of(value); }
    constexpr int reshard(int value, const sharding& to) override {
      const int made = owner_.reshard(value, to);
      const instruction& self = owner_.g_[id_];
      for (int k = 0; k < self.operand_count; ++k) {
        if (value == operand(k)) return owner_.rounded(owner_.g_.operand_at(self, k), made);
      }
      return made;
    }
    constexpr int append(const instruction& step, const extents& shape, const sharding& placement) override {
      instruction made = step;
      owner_.widen(made, &made.operand[0], made.operand_count < inline_operands ? made.operand_count : inline_operands);
      return owner_.made_.append(made, shape, placement);
    }
    constexpr int merge_dimensions(int value, const extents& merged, const sharding& placement,
                                   const placed_windows& windows) override {
      return owner_.made_.merge_dimensions(value, merged, placement, windows);
    }
    constexpr void give(int number, int value) override { owner_.value_[id_ + number] = value; }
    constexpr int read_through(int value, const sharding& to, const placed_windows& windows) override {
      return owner_.made_.read_through(value, to, windows);
    }

   private:
    partitioner& owner_;
    int id_;
  };

  /// `value` is what was computed for instruction `id`; if its terms are pending, they are combined here or by the
  /// reader.
  constexpr void take(int id, int value, reduction combine) {
    const axis_mask pending = made_.layout_of(value).placement.unreduced;
    // The largest of terms is no sum that could stay pending.
    if (pending != 0 && combine == reduction::sum) unsettled_[id] = value;
    if (pending != of_[id].unreduced && combine != reduction::sum) {
      value = reshard(value, of_[id], combine);
    } else if (pending == 0 || !postpones(id, pending)) {
      value = reshard(value, of_[id]);
    }
    value_[id] = rounded(id, value);
  }

  /// An operand some of whose dimensions are read through windows: false if there are none.
  constexpr bool read_windows(int id, int k, const factor_rule& rule, const factor_axes& split,
                              const sharding& wanted) {
    const placed_windows windows = windows_over(g_, id, k, rule, split);
    if (windows.count == 0) return false;
    int like = -1;
    for (int other = 0; other < k && like < 0; ++other) {
      if (g_.operand(id, other).shape == g_.operand(id, k).shape && windows_over(g_, id, other, rule, split) == windows)
        like = operands_[other];
    }
    operands_.push_back(made_.read_through(value_[g_.operand_at(g_[id], k)], wanted, windows, like));
    return true;
  }

  /// A pending sum whose only reader is linear is reduced there, where it may have been added to others, have become
  /// smaller, or be wanted in another layout.
  [[nodiscard]] constexpr bool postpones(int id, axis_mask pending) const {
    if (readers_[id] != 1) return false;
    const int reader = reader_[id];
    // Stacked, terms would take as much memory as the sums that are to be split over their devices.
    if (part_of(g_[reader]) == structure::loop_stack) return (of_[id].tiled() & pending) == 0;
    // Never into a loop, where it would be reduced in every iteration; but out of one.
    return g_[reader].loop == g_[id].loop || part_of(g_[reader]) == structure::loop_sum ||
           part_of(g_[reader]) == structure::loop_carry;
  }

  /// Carries out the pending sums of operands that the op cannot work on, and returns the axes still pending.
  constexpr axis_mask settle_operands(int id) {
    const instruction& i = g_[id];
    axis_mask pending = 0;
    for (int k = 0; k < i.operand_count; ++k)
      pending |= made_.layout_of(value_[g_.operand_at(i, k)]).placement.unreduced;
    if (pending == 0) return 0;
    if (may_keep(id, pending)) return pending;
    for (int k = 0; k < i.operand_count; ++k) {
      if (of_[g_.operand_at(i, k)].unreduced != 0 &&
          requests_of(g_[g_.operand_at(i, k)]) == layout_request::annotation) {
        // The user asked for this sum to stay pending, and here it would be lost.
        fail(partition_fault::pending_sum_dropped, id);
        return 0;
      }
      if (made_.layout_of(value_[g_.operand_at(i, k)]).placement.unreduced != 0)
        settle(g_.operand_at(i, k), settled_for(id, k));
    }
    return 0;
  }

  /// Where a pending sum goes for its reader: to its own place, or, if nobody else wants it, straight to parts that
  /// the reader works on.
  [[nodiscard]] constexpr sharding settled_for(int id, int k) const {
    const int operand = g_.operand_at(g_[id], k);
    if (readers_[operand] == 1) return parts_for(id, k, made_.layout_of(value_[operand]).placement);
    sharding result = of_[operand];
    result.unreduced = 0;
    return result;
  }

  /// The parts of operand k that instruction `id` works on, as far as they are parts of what devices hold, split along
  /// axes on which a sum is pending: a reduce-scatter makes them.
  [[nodiscard]] constexpr sharding parts_for(int id, int k, sharding held) const {
    const factor_rule& rule = rules_[id];
    factor_axes wanted;
    for (int d = 0; d < of_[id].rank; ++d) {
      if (!rule.result[d].empty()) read_dimension(mesh_, rule, rule.result[d], of_[id].dim[d], wanted);
    }
    for (int d = 0; d < held.rank; ++d) {
      const factor_list factors = rule.dims_of(k)[d];
      if (factors.size() != 1 || rule.kind[factors[0]] != factor_kind::pass) continue;
      const axis_list axes = wanted[factors[0]];
      const axis_mask added = axes.mask() & ~held.dim[d].mask();
      if (axes.starts_with(held.dim[d]) && (added & ~held.unreduced) == 0) held.dim[d] = axes;
    }
    held.unreduced = 0;
    return held;
  }

  /// Where the sum of a gradient goes: to its parameter's layout, or to finer parts if all that read it work on those,
  /// as where the state of an optimizer is split and its parameter is not (ZeRO, arXiv 1910.02054, stage 1).
  [[nodiscard]] constexpr sharding parts_for_readers(int id, axis_mask pending) const {
    sharding held = of_[id];
    held.unreduced = pending;
    sharding common = of_[id];
    bool is_first = true;
    for (int reader = id + 1; reader <= reader_[id]; ++reader) {
      const instruction& i = g_[reader];
      if (i.op->facts.looks) continue;
      for (int k = 0; k < i.operand_count; ++k) {
        if (g_.operand_at(i, k) != id) continue;
        const bool computes = part_of(i) == structure::none && requests_of(i) == layout_request::none;
        if (!computes || i.loop != g_[id].loop || i.op->factors == nullptr) return of_[id];
        const sharding wanted = parts_for(reader, k, held);
        if (!is_first && !wanted.same_layout(common)) return of_[id];
        common = wanted;
        is_first = false;
      }
    }
    return common;
  }

  [[nodiscard]] constexpr bool may_keep(int id, axis_mask pending) {
    const instruction& i = g_[id];
    const auto held = [&](int k) { return made_.layout_of(value_[g_.operand_at(i, k)]).placement.unreduced; };
    const auto uses = [&](int k) { return made_.layout_of(value_[g_.operand_at(i, k)]).placement.tiled(); };
    switch (i.op->linear) {
      case linearity::none: return false;
      case linearity::first: {
        for (int k = 1; k < i.operand_count; ++k) {
          if (held(k) != 0 || (uses(k) & pending) != 0 || travel_together(id, 0, k, pending)) return false;
        }
        return i.shape.elements() <= g_[i.operand[0]].shape.elements() || pays_behind(id);
      }
      case linearity::joint: {
        for (int k = 0; k < i.operand_count; ++k) {
          if (held(k) != pending) return false;
        }
        return true;
      }
      case linearity::each: {
        int holders = 0;
        for (int k = 0; k < i.operand_count; ++k) {
          if (held(k) != 0) {
            ++holders;
          } else if ((uses(k) & pending) != 0 || g_[g_.operand_at(i, k)].shape.elements() > i.shape.elements()) {
            return false;
          }
        }
        if (holders != 1 || i.op->facts.contracts) return false;
        return i.operand_count != 2 || !travel_together(id, held(0) != 0 ? 0 : 1, held(0) != 0 ? 1 : 0, pending);
      }
    }
    return false;
  }

  /// Whether an op that makes a pending sum larger is one of several whose results add up to no more than they are made
  /// of, or that are added up over a loop: the pieces of a tensor that a gradient is put together from.
  [[nodiscard]] constexpr bool pays_behind(int id) {
    if (pays_.empty()) pays_.resize(g_.size, unknown);
    if (pays_[id] != unknown) return pays_[id] == yes;
    int end = id;
    while (readers_[end] == 1 && passes_on(end, reader_[end])) end = reader_[end];
    struct term {
      int id;
      std::int64_t times;
    };
    list<term> open;
    list<int> seen;
    open.push_back({end, 1});
    std::int64_t elements = 0;
    // Where a pending sum meets a term that is none, it is reduced, as large as it is there.
    bool has_whole_term = false;
    bool adds_terms = false;
    while (!open.empty()) {
      term sum = open.back();
      open.pop_back();
      seen.push_back(sum.id);
      const instruction& i = g_[sum.id];
      if (part_of(i) == structure::loop_sum) {
        sum.times *= attributes_of<loop_attributes>(g_[g_[i.operand[0]].loop]).iterations;
      }
      const int terms = i.op->linear == linearity::joint ? i.operand_count : 1;
      for (int k = 0; k < terms; ++k) {
        const int o = g_.operand_at(i, k);
        const bool is_passed_on = readers_[o] == 1 && g_[o].operand_count > 0 && passes_on(g_[o].operand[0], o);
        adds_terms = adds_terms || terms > 1;
        if (is_passed_on) {
          open.push_back({o, sum.times});
        } else {
          elements += sum.times * g_[o].shape.elements();
          has_whole_term = has_whole_term || !makes_sum(o);
        }
      }
    }
    const verdict found = !(adds_terms && has_whole_term) && g_[end].shape.elements() <= elements ? yes : no;
    for (const int one : seen) pays_[one] = found;
    return found == yes;
  }
  /// Whether a value is a pending sum where it is made, as completion laid its operands out.
  [[nodiscard]] constexpr bool makes_sum(int id) const {
    if (of_[id].unreduced != 0) return true;
    const instruction& i = g_[id];
    if (i.op->factors == nullptr) return false;
    const factor_rule& rule = rules_[id];
    for (int k = 0; k < i.operand_count; ++k) {
      for (int d = 0; d < of_[g_.operand_at(i, k)].rank; ++d) {
        if (of_[g_.operand_at(i, k)].dim[d].empty()) continue;
        const factor_list factors = rule.dims_of(k)[d];
        for (int n = 0; n < factors.size(); ++n) {
          if (rule.kind[factors[n]] == factor_kind::reduce) return true;
        }
      }
    }
    return false;
  }
  /// Whether a pending sum can pass from a value through one of its readers.
  [[nodiscard]] constexpr bool passes_on(int id, int reader) const {
    const instruction& i = g_[reader];
    if (i.loop != g_[id].loop && part_of(i) != structure::loop_sum) return false;
    if (part_of(i) == structure::result || part_of(i) == structure::loop_stack || part_of(i) == structure::loop_carry)
      return false;
    return i.op->linear == linearity::joint || (i.op->linear == linearity::first && i.operand[0] == id);
  }

  /// Whether a small pending sum meets what is computed from another sum over the same axes, as that of a mean its
  /// weight: both can move as one (partition/merge_collectives.hpp), unless the first waits for the second.
  [[nodiscard]] constexpr bool travel_together(int id, int pending_operand, int other, axis_mask pending) const {
    if (keeps_sums_) return false;
    const instruction& i = g_[id];
    const instruction& sum = g_[i.operand[pending_operand]];
    if (sum.shape.elements() * size_of(sum.type) > collective_latency) return false;
    int value = value_[i.operand[other]];
    for (int step = 0; step < 8; ++step) {
      const instruction& made = made_[value];
      if (is_collective(made.op, collective::all_reduce)) {
        return attributes_of<collective_attributes>(made).axes == pending;
      }
      if (made.op->factors == nullptr || made.op->spread == propagation::none || made.op->facts.contracts) return false;
      int latest = -1;
      for (int k = 0; k < made.operand_count; ++k) {
        const int operand = made_.operand_at(made, k);
        if (made_[operand].op->fuse != fusion::source && operand > latest) latest = operand;
      }
      if (latest < 0 || made_[latest].loop != made.loop) return false;
      value = latest;
    }
    return false;
  }

  /// Fills the padding of dimensions that the op reduces with the value that changes nothing.
  constexpr int masked(int id, int k, int value, const factor_axes& split) {
    const instruction& i = g_[id];
    const factor_rule& rule = rules_[id];
    if (i.op->identity == nullptr) return value;
    const extents& shape = g_[g_.operand_at(i, k)].shape;
    for (int d = 0; d < shape.rank; ++d) {
      const factor_list factors = rule.dims_of(k)[d];
      if (factors.size() != 1 || rule.kind[factors[0]] != factor_kind::reduce) continue;
      const axis_list axes = split[factors[0]];
      if (divides_evenly(mesh_, shape[d], axes)) continue;
      // What an index of padding selects does not matter: it is masked itself.
      if (!is_floating(made_[value].type) && is_floating(i.type)) continue;
      instruction made = builder::make(ops::mask, made_[value].type, extents{}, value);
      set_attributes(made, mask_attributes{d});
      made.scalar = storable(made.type, i.op->identity(g_.view(id)));
      const sharding same = made_.layout_of(value).placement;
      value = made_.append(made, shape, same);
    }
    return value;
  }

  /// Integers have no infinity: their largest or smallest value serves.
  [[nodiscard]] static constexpr double storable(dtype type, double value) {
    return is_integer(type) ? stored_as(type, value) : value;
  }

  const mesh_shape& mesh_;
  graph_view g_;
  const factor_rule* rules_;
  const sharding* of_;
  list<sharding> nontrivial_;
  /// How many instructions read a value, and the last of them.
  list<int> readers_;
  list<int> reader_;
  /// What `pays_behind` found so far, when it has been asked.
  enum verdict : std::uint8_t { unknown, yes, no };
  list<verdict> pays_;
  /// The user wants to see sums pending.
  bool keeps_sums_ = false;
  /// What the program's sums travel in, if it says so.
  bool has_narrow_sums_ = false;
  dtype narrow_sums_ = dtype::f32;
  /// Which value of the device's program holds a traced one now. (Of a carry that is still to come: its initial value.)
  list<int> value_;
  /// Where a value is the outcome of a pending sum, that sum's terms.
  list<int> unsettled_;
  local_program made_;
  /// Of the op that is being visited, on the device.
  list<int> operands_;
  partition_fault fault_ = partition_fault::nothing;
  int fault_at_ = -1;
};

}  // namespace detail

/// Turns a completed graph into the program of one device (GSPMD section 4): local shapes, and explicit collectives
/// where layouts meet.
constexpr partitioned partition(const mesh_shape& mesh, graph_view g, const factor_rule* rules, const sharding* of) {
  detail::partitioner whole(mesh, g, rules, of);
  whole.run(0, g.size);
  return whole.finish();
}

}  // namespace espalier
