// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/partial_sums.hpp>

namespace espalier::detail {

/// Partitions the borders of regions: parameters, slices and stacks.
///
/// A stack that is split along its first dimension stays so: device k of n has every iteration's slice of the k-th part
/// of the loop. In each iteration one slice travels, from or to its owner, and a device never has more of the stack
/// than its part and that slice.
class region_borders {
  // First, because clang instantiates a member template for constants only if it has read its body.
  /// Calls `f(stack)` for the stacks of a loop's values that are split along its iterations.
  template <class F> constexpr void for_each_split_stack(int begin, const F& f) {
    for (const int id : beginning_at(begin).collected) {
      if (structure_of(g_[id]) == structure::loop_stack && !of_[id].dim[0].empty() && of_[id].unreduced == 0) f(id);
    }
  }

 public:
  constexpr region_borders(const completed_program& traced, device_values& device, partial_sums& sums)
      : g_(traced.g), of_(traced.of), device_(device), sums_(sums) {}

  constexpr void visit(int id, structure role) {
    const instruction& i = g_[id];
    instruction step = i;
    switch (role) {
      case structure::region_begin:
        // The carries' initial values take the carries' layout outside, before the loop starts.
        for (const int c : beginning_at(id).parameters) {
          device_.value[c] =
              device_.program.converted(device_.reshard(device_.value[initial_of(g_[c])], of_[c]), type_of_carry(c));
        }
        for_each_split_stack(id, [this](int stack) {
          device_.value[stack] = device_.program.append(builder::make(ops::constant, g_[stack].type, extents{}),
                                                        g_[stack].shape, of_[stack]);
        });
        if (i.operand_count > 0) step.operand[0] = whole_scalar(i.operand[0]);
        device_.value[id] = device_.program.append(step, i.shape, of_[id]);
        device_.program.enter(device_.value[id]);
        for_each_split_stack(id, [this](int stack) {
          device_.value[stack] = device_.program.append(
              builder::make(ops::region_parameter, g_[stack].type, extents{}, device_.value[stack]), g_[stack].shape,
              of_[stack]);
        });
        return;
      case structure::region_parameter:
        step.operand[0] = device_.value[id];
        step.type = type_of_carry(id);
        device_.value[id] = device_.program.append(step, i.shape, of_[id]);
        return;
      case structure::region_yield:
        step.operand[0] = device_.value[i.operand[0]];
        step.type = device_.program[step.operand[0]].type;
        step.operand[1] = passed_on(
            device_.program.converted(
                device_.reshard(device_.value[i.operand[1]], device_.layout_of(step.operand[0]).placement), step.type),
            step.operand[0]);
        device_.value[id] = device_.program.append(step, i.shape, device_.layout_of(step.operand[0]).placement);
        return;
      case structure::region_end:
        for_each_split_stack(i.operand[0], [this](int stack) { keep_slice(stack); });
        if (i.operand_count > 1) step.operand[1] = whole_scalar(i.operand[1]);
        step.operand[0] = device_.value[i.operand[0]];
        device_.program.enter(device_.program[step.operand[0]].region);
        device_.value[id] = device_.program.append(step, i.shape, of_[id]);
        return;
      case structure::region_result:
      case structure::loop_sum:
        step.operand[0] = device_.value[i.operand[0]];
        step.type = device_.program[step.operand[0]].type;
        device_.value[id] = device_.program.append(step, i.shape, device_.layout_of(step.operand[0]).placement);
        return;
      case structure::loop_slice: visit_slice(id); return;
      case structure::loop_stack:
        if (device_.value[id] >= 0) {
          device_.value[id] = device_.program.append(
              builder::make(ops::region_result, i.type, extents{}, device_.value[id]), i.shape, of_[id]);
          return;
        }
        step.operand[0] = device_.value[i.operand[0]];
        step.type = device_.program[step.operand[0]].type;
        device_.value[id] =
            device_.program.append(step, i.shape, stacked(device_.layout_of(step.operand[0]).placement));
        return;
      case structure::none:
      case structure::argument:
      case structure::result: return;
    }
  }

 private:
  /// Found when the first region is met: most programs have none, and are partitioned in several evaluations.
  [[nodiscard]] constexpr const region& beginning_at(int begin) {
    if (regions_.size() == 0) regions_ = region_table(g_);
    return regions_.beginning_at(begin);
  }

  /// What decides how often a region runs is the same on every device.
  constexpr int whole_scalar(int id) { return device_.reshard(device_.value[id], sharding::whole(0)); }

  /// Terms that are carried are added up in the type of sums.
  [[nodiscard]] constexpr dtype type_of_carry(int id) const {
    return of_[id].unreduced != 0 && is_for_storage(g_[id].type) ? facts_of(g_[id].type).accumulate : g_[id].type;
  }

  /// A carry that becomes another one (through annotations, which are gone by now) would be overwritten on the way.
  constexpr int passed_on(int value, int carry) {
    if (structure_of(device_.program[value]) != structure::region_parameter ||
        device_.program[value].region != device_.program.region() || value == carry)
      return value;
    return device_.program.copy_of(value);
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

  /// A stack that is split along its iterations is a carry, into which each iteration's owner writes its slice.
  constexpr void keep_slice(int stack) {
    const int carry = device_.value[stack];
    const layout all = device_.layout_of(carry);
    const int slice = device_.program.converted(
        device_.reshard(device_.value[g_[stack].operand[0]], unstacked(all.placement)), g_[stack].type);
    layout one = all;
    one.shape[0] = 1;
    one.placement.dim[0] = axis_list{};
    const dtype type = g_[stack].type;
    const int row =
        device_.program.append(builder::make(ops::reshape, type, extents{}, slice), one.shape, one.placement);
    instruction step =
        builder::make(ops::dynamic_update_slice, type, extents{}, carry, row, device_.program.iteration());
    set_attributes(step, dynamic_update_slice_attributes{.dim = 0, .extent = all.shape[0]});
    const int written = device_.program.append(step, all.shape, all.placement);
    device_.value[stack] = device_.program.append(builder::make(ops::region_yield, type, extents{}, carry, written),
                                                  all.shape, all.placement);
  }

  /// Makes the slice of an iteration, which comes from its owner as a partial.
  constexpr void cut_slice(int id, int stack) {
    const layout all = device_.layout_of(stack);
    layout one = all;
    one.shape[0] = 1;
    one.placement.unreduced |= all.placement.dim[0].mask();
    one.placement.dim[0] = axis_list{};
    const dtype type = device_.program[stack].type;
    instruction step = builder::make(ops::dynamic_slice, type, extents{}, stack, device_.program.iteration());
    set_attributes(step, dynamic_slice_attributes{.dim = 0, .extent = all.shape[0], .size = 1});
    const int row = device_.program.append(step, one.shape, one.placement);
    const int slice = device_.program.append(builder::make(ops::reshape, type, extents{}, row), g_[id].shape,
                                             unstacked(one.placement));
    sums_.take(id, slice, type == dtype::boolean ? reduction::max : reduction::sum);
  }

  /// A slice is laid out as the tensor it is cut from: what has to be gathered is gathered slice by slice.
  constexpr void visit_slice(int id) {
    instruction step = g_[id];
    step.operand[0] = device_.program.before_region([&] { return sums_.reduced(g_[id].operand[0]); });
    sharding whole = device_.layout_of(step.operand[0]).placement;
    if (!whole.dim[0].empty()) {
      if ((whole.dim[0].mask() & ~of_[id].tiled()) != 0) return cut_slice(id, step.operand[0]);
      // The same axes split the slices as they are wanted: once, outside, each device changes its part of the stack for
      // another one of that size, and no slice travels.
      const axis_mask partial = whole.unreduced;
      whole = stacked(of_[id]);
      whole.unreduced = partial;
      step.operand[0] = device_.program.before_region([&] { return device_.reshard(step.operand[0], whole); });
    }
    step.type = device_.program[step.operand[0]].type;
    device_.value[id] = device_.program.append(step, g_[id].shape, unstacked(whole));
  }

  graph_view g_;
  const sharding* of_;
  device_values& device_;
  partial_sums& sums_;
  region_table regions_;
};

}  // namespace espalier::detail
