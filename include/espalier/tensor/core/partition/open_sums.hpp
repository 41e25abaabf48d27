// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/device_values.hpp>
#include <espalier/tensor/core/program/finer_sums.hpp>

namespace espalier::detail {

/// The policy of sums of several terms, some of which are partials and some of which are whole.
///
/// `((residual + v) + k) + q`, where v, k and q are partials, needs one reduction: that of v + k + q. So a sum of a
/// partial and a whole term is left **open** while further partials come: the device's value of it is the partial, and
/// the whole term, its rest, is kept beside it. Further terms are added to the one or to the other, and linear ops are
/// carried out on both. After the last partial the sum is closed: the partial is reduced, and the rest is added to it.
///
/// Additions are in another order then, v + k + q before the residual. Only sums that would otherwise be reduced more
/// than once are changed so.
class open_sums {
 public:
  constexpr open_sums(const completed_program& traced, device_values& device)
      : traced_(traced), g_(traced.g), device_(device) {}

  /// The rest of the open sum that an instruction is, or -1 if it is none.
  [[nodiscard]] constexpr int rest_of(int id) const {
    for (const open_sum& one : device_.open) {
      if (one.id == id) return one.rest;
    }
    return -1;
  }
  constexpr void open(int id, int partial, int rest) {
    device_.value[id] = partial;
    device_.open.push_back({id, rest});
  }
  /// The sum is open no more: from now on it is this value.
  constexpr void forget(int id, int value) {
    int n = 0;
    while (device_.open[n].id != id) ++n;
    device_.open[n] = device_.open.back();
    device_.open.pop_back();
    device_.value[id] = value;
  }
  /// The value of an open sum for those that look at it: each device of a group adds its share of the rest to its term.
  /// The terms alone, if nobody looks.
  constexpr int as_seen(int id) {
    const int sum = device_.value[id];
    if (!is_looked_at(id)) return sum;
    const layout terms = device_.layout_of(sum);
    sharding whole = terms.placement;
    whole.unreduced = 0;
    const dtype type = device_.program[sum].type;
    const int rest = device_.program.converted(device_.reshard(rest_of(id), whole), type);
    instruction number = builder::make(ops::constant, type, extents{});
    number.scalar = 1.0 / static_cast<double>(traced_.mesh.parts(terms.placement.unreduced));
    const int share = device_.program.append(number, terms.shape, whole);
    const int part =
        device_.program.append(builder::make(ops::multiply, type, extents{}, rest, share), terms.shape, whole);
    return device_.program.append(builder::make(ops::add, type, extents{}, sum, part), terms.shape, terms.placement);
  }

  /// Whether an instruction adds or subtracts two tensors, element by element.
  [[nodiscard]] static constexpr bool adds(const instruction& i) {
    return i.op->linear == linearity::joint && i.op->fuse == fusion::elementwise;
  }
  /// Whether a sum over these axes, which instruction `id` is, may be left open: nothing but linear ops reads it until
  /// it meets another partial over the same axes.
  [[nodiscard]] constexpr bool meets_another(int id, axis_mask partial) const {
    if (traced_.keeps_sums || device_.open.size() == most_open_sums || !is_floating(g_[id].type)) return false;
    for (int step = 0; step < most_steps; ++step) {
      if (traced_.readers[id] != 1 || g_[id].label != nullptr) return false;
      const int reader = traced_.last_reader[id];
      const instruction& i = g_[reader];
      if (i.region != g_[id].region || structure_of(i) != structure::none || requests_of(i) != layout_request::none)
        return false;
      if (adds(i)) {
        const int other = i.operand[0] == id ? i.operand[1] : i.operand[0];
        if (terms_of(other, most_depth) == partial) return true;
      } else if (!is_linear(i, id)) {
        return false;
      }
      id = reader;
    }
    return false;
  }

 private:
  [[nodiscard]] constexpr bool is_looked_at(int id) const {
    if (!traced_.has_looks) return false;
    for (int reader = id + 1; reader < g_.size; ++reader) {
      if (g_[reader].op->facts.looks && g_[reader].operand[0] == id) return true;
    }
    return false;
  }

  /// The number of readers that are looked at for the next partial, and of linear ops that it may come through.
  static constexpr int most_steps = 32;
  static constexpr int most_depth = 6;

  /// Whether an instruction is linear in its operand `id`, and its result no larger.
  [[nodiscard]] constexpr bool is_linear(const instruction& i, int id) const {
    if (traced_.widens(i)) return true;
    if (i.op->facts.contracts || i.shape.elements() > g_[id].shape.elements()) return false;
    if (i.op->linear == linearity::first) return i.operand[0] == id;
    return i.op->linear == linearity::each && i.operand_count == 2;
  }

  /// The axes over which a value is a partial: as it is on the device, or, if its turn has not come, as completion laid
  /// its operands out.
  [[nodiscard]] constexpr axis_mask terms_of(int id, int depth) const {
    if (traced_.readers[id] != 1) return 0;
    if (device_.value[id] >= 0) return device_.layout_of(device_.value[id]).placement.unreduced;
    const instruction& i = g_[id];
    if (i.op->factors == nullptr || structure_of(i) != structure::none || requests_of(i) != layout_request::none)
      return 0;
    if (i.op->facts.adds_up) {
      const axis_mask axes = axes_summed_over(g_, traced_.rules[id], traced_.of, id);
      if (axes != 0) return axes;
    }
    if (depth == 0 || (i.op->linear == linearity::none && !traced_.widens(i))) return 0;
    const bool is_joint = i.op->linear == linearity::joint || i.op->linear == linearity::each;
    const int operands = is_joint ? i.operand_count : 1;
    axis_mask axes = 0;
    for (int k = 0; k < operands && axes == 0; ++k) axes = terms_of(g_.operand_at(i, k), depth - 1);
    return axes;
  }

  const completed_program& traced_;
  graph_view g_;
  device_values& device_;
};

}  // namespace espalier::detail
