// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/ops/convert.hpp>
#include <espalier/tensor/core/partition/factor_choice.hpp>
#include <espalier/tensor/core/partition/op_lowering.hpp>
#include <espalier/tensor/core/partition/open_sums.hpp>
#include <espalier/tensor/core/partition/partial_sums.hpp>
#include <espalier/tensor/core/partition/partition_progress.hpp>
#include <espalier/tensor/core/partition/region_borders.hpp>

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
      : traced_(mesh, g, rules, of), g_(g), of_(traced_.of), device_(traced_) {}
  /// Goes on with what an earlier evaluation made.
  template <int Size, int Room>
  constexpr partitioner(const mesh_shape& devices, graph_view g, const factor_rule* rules, const sharding* of,
                        const partition_progress<Size, Room>& from)
      : traced_(devices, g, rules, of),
        g_(g),
        of_(traced_.of),
        device_(traced_, from),
        fault_(from.fault),
        fault_at_(from.fault_at) {}

  /// Visits the instructions from `first` up to `last`.
  constexpr void run(int first, int last) {
    // A fifth more instructions is what collectives usually come to.
    device_.program.reserve(last + last / 5);
    for (int id = first; id < last && fault_ == partition_fault::nothing; ++id) visit(id);
  }
  constexpr partitioned finish() {
    partitioned result;
    device_.program.finish(result.program, result.origin);
    result.fault = fault_;
    result.fault_at = fault_at_;
    return result;
  }
  template <int Size, int Room> [[nodiscard]] constexpr partition_progress<Size, Room> save() const {
    partition_progress<Size, Room> to;
    device_.save(to);
    if (!to.program.fits) return to;
    to.fault = fault_;
    to.fault_at = fault_at_;
    return to;
  }

 private:
  constexpr void fail(partition_fault fault, int id) {
    fault_ = fault;
    fault_at_ = id;
  }

  constexpr void visit(int id) {
    const instruction& i = g_[id];
    device_.program.stems_from(id, i.where);
    const structure role = structure_of(i);
    if (!reads_region(role)) leave_branches(i);
    if (role == structure::argument) {
      device_.value[id] = device_.program.append(i, i.shape, of_[id]);
    } else if (role == structure::result) {
      visit_result(id);
    } else if (role != structure::none) {
      loops_.visit(id, role);
    } else if (i.op->facts.looks) {
      visit_look(id);
    } else if (requests_of(i) != layout_request::none) {
      device_.value[id] = visit_annotation(id);
    } else if (is_further_result(i)) {
      sums_.take(id, device_.value[id], traced_.rules[i.operand[0]].combine);
    } else {
      visit_op(id);
    }
    if (i.label != nullptr && device_.value[id] >= 0) device_.program.label(device_.value[id], i.label);
  }

  /// A sum of an operand that was carried out in a branch, which has ended, was carried out there alone: here it is the
  /// terms again.
  constexpr void leave_branches(const instruction& i) {
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      const int terms = device_.terms[operand];
      if (terms < 0 || terms == device_.value[operand]) continue;
      if (!device_.program.in_scope(device_.program[device_.value[operand]].region) &&
          device_.program.in_scope(device_.program[terms].region)) {
        device_.value[operand] = terms;
      }
    }
  }

  /// Looks at a value as it is by now: nothing moves for it.
  constexpr void visit_look(int id) {
    const int operand = g_[id].operand[0];
    int value = device_.value[operand];
    if (open_.rest_of(operand) >= 0) value = open_.as_seen(operand);
    // A sum may have been carried out for a reader alone.
    if (device_.layout_of(value).placement.unreduced != of_[operand].unreduced) {
      value = device_.program.partial_variant(value, of_[operand].unreduced);
    }
    const sharding as_it_is = device_.layout_of(value).placement;
    instruction step = g_[id];
    step.operand[0] = value;
    device_.value[id] = device_.program.append(step, g_[id].shape, as_it_is);
  }

  constexpr int visit_annotation(int id) {
    const int operand = g_[id].operand[0];
    int value = device_.value[operand];
    if (of_[id].unreduced != 0) {
      if (device_.terms[operand] >= 0 && device_.program.in_scope(device_.program[device_.terms[operand]].region))
        value = device_.terms[operand];
      if ((of_[id].unreduced & ~device_.layout_of(value).placement.unreduced) != 0) {
        fail(partition_fault::no_partial_sum, id);
        return value;
      }
    }
    // The reader of the sum may need it in yet another layout, and says in which.
    const axis_mask partial = device_.layout_of(value).placement.unreduced;
    const bool may_be_finer = requests_of(g_[id]) == layout_request::as_operand && !g_[id].op->facts.is_written;
    const bool waits = may_be_finer && partial != 0 && sums_.postpones(id, partial) &&
                       structure_of(g_[traced_.last_reader[id]]) != structure::result;
    if (waits) return owned(id, value);
    const bool is_sum = may_be_finer && partial != 0 && traced_.readers[id] > 1;
    value = device_.reshard(value, is_sum ? sums_.layout_for_readers(id, partial) : of_[id]);
    value = owned(id, device_.rounded(id, value));
    // What a loop adds up may be reduced after it, unless the user laid it out in the loop.
    const bool is_users_own =
        requests_of(g_[id]) == layout_request::annotation && !attributes_of<annotation_attributes>(g_[id]).of_gradient;
    if (is_users_own && device_.program.region() >= 0) device_.program.fix_layout(value);
    return value;
  }

  /// A loop collects what it computes itself: a value from outside becomes one of the loop.
  constexpr int owned(int id, int value) {
    if (device_.program[value].region == device_.program.region() || traced_.readers[id] == 0 ||
        !collects(traced_.last_reader[id]))
      return value;
    return device_.program.copy_of(value);
  }
  [[nodiscard]] constexpr bool collects(int id) const { return espalier::collects(structure_of(g_[id])); }

  constexpr void visit_result(int id) {
    instruction step = g_[id];
    step.operand[0] =
        device_.program.converted(device_.reshard(device_.value[g_[id].operand[0]], of_[id]), g_[id].type);
    if (step.operand_count == 2) step.operand[1] = device_.value[g_[id].operand[1]];
    device_.value[id] = device_.program.append(step, g_[id].shape, of_[id]);
  }

  constexpr void visit_op(int id) {
    const instruction& i = g_[id];
    if (i.op->factors == nullptr) return fail(partition_fault::op_without_rule, id);
    axis_mask partial = sums_.partial_of_operands(id);
    if (partial != 0 && (open_sums::adds(i) || !device_.open.empty())) {
      if (visit_open_sum(id, partial)) return;
      partial = sums_.partial_of_operands(id);
    }
    operand_sums sums;
    if (partial != 0) sums = sums_.reduce_operands(id, partial);
    if (sums.is_dropped) return fail(partition_fault::partial_sum_dropped, id);
    sums_.take(id, compute(id, i, sums.partial), traced_.rules[id].combine);
  }

  /// Computes an instruction `i` with the operands, shapes and layouts of `id`.
  /// @param partial the axes over which operands are partials that stay so
  constexpr int compute(int id, const instruction& i, axis_mask partial) {
    if (partial != 0 && traced_.widens(i)) return device_.value[i.operand[0]];
    const factor_rule& rule = traced_.rules[id];
    if (i.op->lower != nullptr) {
      op_lowering steps(traced_, device_, id);
      if (const int value = i.op->lower(steps); value >= 0) return value;
    }
    const factor_axes split =
        factor_choice(traced_.mesh, g_, of_, device_.program, device_.value).run(id, rule, partial);
    operands_.clear();
    for (int k = 0; k < i.operand_count; ++k) {
      sharding needed = required(traced_.mesh, rule.dims_of(k), g_[g_.operand_at(i, k)].shape.rank, rule, split);
      const axis_mask held = device_.layout_of(device_.value[g_.operand_at(i, k)]).placement.unreduced;
      needed.unreduced = held;
      if (i.op->windows != nullptr && read_windows(id, k, rule, split, needed)) continue;
      operands_.push_back(masked(id, k, device_.reshard(device_.value[g_.operand_at(i, k)], needed), split));
    }
    sharding local = required(traced_.mesh, rule.result, i.shape.rank, rule, split);
    for (int f = 0; f < rule.count; ++f) {
      if (rule.kind[f] == factor_kind::reduce) local.unreduced |= split[f].mask();
    }
    const bool has_terms = local.unreduced != 0 && rule.combine == reduction::sum && i.op->facts.adds_up;
    local.unreduced |= partial;
    instruction step = i;
    device_.widen(step, operands_.data(), operands_.size());
    if (has_terms && is_for_storage(step.type)) step.type = facts_of(step.type).accumulate;
    const int value = device_.program.append(step, operands_, i.shape, local);
    if (const int count = further_results(g_.code, g_.size, id); count > 0) append_results(id, count, value, split);
    return value;
  }

  /// Carries out an instruction on sums that are open, or one after which a sum stays open (partition/open_sums.hpp).
  /// False if there are none, or none any more.
  constexpr bool visit_open_sum(int id, axis_mask partial) {
    const instruction& i = g_[id];
    if (open_sums::adds(i)) return visit_open_addition(id, partial);
    for (int k = 0; k < i.operand_count; ++k) {
      const int sum = g_.operand_at(i, k);
      const int rest = open_.rest_of(sum);
      if (rest < 0) continue;
      if (!sums_.may_keep(id, partial)) {
        close(sum);
        return false;
      }
      const int seen = open_.as_seen(sum);
      const int terms = compute(id, i, partial);
      device_.value[sum] = rest;
      const int rest_of_result = compute(id, i, 0);
      open_.forget(sum, seen);
      const axis_mask of_rest = device_.layout_of(rest_of_result).placement.unreduced;
      if (of_rest != 0 && of_rest == device_.layout_of(terms).placement.unreduced) {
        // A sum over what the rest is split by: now it is a partial, too.
        sums_.take(id, sum_of_terms(terms, rest_of_result), reduction::sum);
        return true;
      }
      open_.open(id, terms, of_rest == 0 ? rest_of_result : reduced_rest(id, rest_of_result));
      if (!open_.meets_another(id, partial)) close(id);
      return true;
    }
    return false;
  }
  /// Of two partials over the same axes, in the wider of their types.
  constexpr int sum_of_terms(int a, int b) {
    const layout terms = device_.layout_of(a);
    const dtype one = device_.program[a].type;
    const dtype other = device_.program[b].type;
    const dtype type = size_of(one) < size_of(other) ? other : one;
    const int first = device_.program.converted(a, type);
    const int second = device_.program.converted(device_.reshard(b, terms.placement), type);
    return device_.program.append(builder::make(ops::add, type, extents{}, first, second), terms.shape,
                                  terms.placement);
  }
  /// The rest of a sum that a reduction over other axes has made a partial.
  constexpr int reduced_rest(int id, int rest) {
    sharding whole = device_.layout_of(rest).placement;
    whole.unreduced = 0;
    return device_.rounded(id, device_.reshard(rest, whole));
  }
  constexpr bool visit_open_addition(int id, axis_mask partial) {
    const instruction& i = g_[id];
    const int held[2]{device_.value[i.operand[0]], device_.value[i.operand[1]]};
    int terms[2]{-1, -1};
    int whole[2]{-1, -1};
    bool is_open = false;
    bool differ = false;
    for (int k = 0; k < 2; ++k) {
      const axis_mask axes = device_.layout_of(held[k]).placement.unreduced;
      (axes != 0 ? terms : whole)[k] = held[k];
      differ = differ || (axes != 0 && axes != partial);
      const int rest = open_.rest_of(i.operand[k]);
      is_open = is_open || rest >= 0;
      if (rest >= 0) whole[k] = rest;
    }
    const bool stays_open =
        (is_open || (whole[0] < 0) != (whole[1] < 0)) && !differ && open_.meets_another(id, partial);
    if (!stays_open && (!is_open || differ)) {
      for (int k = 0; k < 2 && is_open; ++k) {
        if (open_.rest_of(i.operand[k]) >= 0) close(i.operand[k]);
      }
      return false;
    }
    const int sum = added(id, terms, partial);
    const int rest = added(id, whole, 0);
    int result = sum;
    if (!stays_open) {
      const sharding finer = sums_.layout_for_reader(id, 0, device_.layout_of(sum).placement);
      instruction addition = i;
      addition.op = &ops::add;
      device_.value[i.operand[0]] = device_.rounded(id, device_.reshard(sum, finer));
      device_.value[i.operand[1]] = rest;
      result = compute(id, addition, 0);
    }
    for (int k = 0; k < 2; ++k) {
      device_.value[i.operand[k]] = held[k];
      if (open_.rest_of(i.operand[k]) >= 0) open_.forget(i.operand[k], open_.as_seen(i.operand[k]));
    }
    if (stays_open) {
      open_.open(id, sum, rest);
    } else {
      sums_.take(id, result, reduction::sum);
    }
    return true;
  }
  /// Adds two values, either of which may be missing (-1), as instruction `id` does.
  constexpr int added(int id, const int* value, axis_mask partial) {
    const instruction& i = g_[id];
    if (value[0] >= 0 && value[1] >= 0) {
      for (int k = 0; k < 2; ++k) device_.value[i.operand[k]] = value[k];
      return compute(id, i, partial);
    }
    if (value[1] < 0) return value[0];
    if (i.op != &ops::subtract) return value[1];
    const layout same = device_.layout_of(value[1]);
    return device_.program.append(builder::make(ops::negate, device_.program[value[1]].type, extents{}, value[1]),
                                  same.shape, same.placement);
  }
  /// Reduces an open sum and adds the rest, in the layout that completion has chosen.
  constexpr void close(int id) {
    const instruction& i = g_[id];
    const int reduced = device_.rounded(id, device_.reshard(device_.value[id], of_[id]));
    const int rest = device_.reshard(open_.rest_of(id), of_[id]);
    open_.forget(id,
                 device_.program.append(builder::make(ops::add, i.type, extents{}, reduced, rest), i.shape, of_[id]));
  }
  /// The results after the first, all before any of them is resharded: they stay together.
  constexpr void append_results(int id, int count, int value, const factor_axes& split) {
    const axis_mask partial = device_.layout_of(value).placement.unreduced;
    for (int n = 1; n <= count; ++n) {
      instruction step = g_[id + n];
      step.operand[0] = value;
      sharding local =
          required(traced_.mesh, traced_.rules[id].dims_of_result(n), step.shape.rank, traced_.rules[id], split);
      local.unreduced = partial;
      device_.program.stems_from(id + n, step.where);
      device_.value[id + n] = device_.program.append(step, step.shape, local);
    }
    device_.program.stems_from(id, g_[id].where);
  }

  /// Reads an operand some of whose dimensions are read through windows; false if there are none.
  constexpr bool read_windows(int id, int k, const factor_rule& rule, const factor_axes& split,
                              const sharding& needed) {
    const placed_windows windows = windows_over(g_, id, k, rule, split);
    if (windows.count == 0) return false;
    int like = -1;
    for (int other = 0; other < k && like < 0; ++other) {
      if (g_.operand(id, other).shape == g_.operand(id, k).shape && windows_over(g_, id, other, rule, split) == windows)
        like = operands_[other];
    }
    operands_.push_back(device_.program.read_through(device_.value[g_.operand_at(g_[id], k)], needed, windows, like));
    return true;
  }

  /// Fills the padding of dimensions that the op reduces with the value that changes nothing.
  constexpr int masked(int id, int k, int value, const factor_axes& split) {
    const instruction& i = g_[id];
    const factor_rule& rule = traced_.rules[id];
    if (i.op->identity == nullptr) return value;
    const extents& shape = g_[g_.operand_at(i, k)].shape;
    for (int d = 0; d < shape.rank; ++d) {
      const factor_list factors = rule.dims_of(k)[d];
      if (factors.size() != 1 || rule.kind[factors[0]] != factor_kind::reduce) continue;
      const axis_list axes = split[factors[0]];
      if (divides_evenly(traced_.mesh, shape[d], axes)) continue;
      // An index of padding may select anything: the padding is masked itself.
      if (!is_floating(device_.program[value].type) && is_floating(i.type)) continue;
      instruction step = builder::make(ops::mask, device_.program[value].type, extents{}, value);
      set_attributes(step, mask_attributes{d});
      step.scalar = storable(step.type, i.op->identity(g_.view(id)));
      const sharding same = device_.layout_of(value).placement;
      value = device_.program.append(step, shape, same);
    }
    return value;
  }

  /// Integers have no infinity: their largest or smallest value serves.
  [[nodiscard]] static constexpr double storable(dtype type, double value) {
    return is_integer(type) ? stored_as(type, value) : value;
  }

  completed_program traced_;
  graph_view g_;
  const sharding* of_;
  device_values device_;
  partial_sums sums_{traced_, device_};
  open_sums open_{traced_, device_};
  region_borders loops_{traced_, device_, sums_};
  /// The operands of the op that is being visited, on the device.
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
