// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/device_values.hpp>
#include <espalier/tensor/core/partition/factor_choice.hpp>

#include <cstdint>

namespace espalier::detail {

/// The axes over which the operands of an op are partials when it is source. `is_dropped`: an annotation keeps one of
/// them unreduced, and the op would lose it.
struct operand_sums {
  axis_mask partial = 0;
  bool is_dropped = false;
};

/// The policy of partials: which ones stay unreduced past which op, and where and in which layout the others are
/// reduced.
class partial_sums {
 public:
  constexpr partial_sums(const completed_program& traced, device_values& device)
      : traced_(traced), g_(traced.g), of_(traced.of), device_(device) {}

  /// Returns an operand that is a partial over the axes that completion gives it, and over no other.
  constexpr int reduced(int id) {
    const int value = device_.value[id];
    if (device_.layout_of(value).placement.unreduced == of_[id].unreduced) return value;
    return reduce(id, of_[id]);
  }
  /// Reduces a partial for all later readers but those that ask for the terms.
  constexpr int reduce(int id, const sharding& layout) {
    device_.terms[id] = device_.value[id];
    return device_.value[id] = device_.rounded(id, device_.reshard(device_.value[id], layout));
  }
  /// Takes `value`, which was computed for instruction `id`. If it is a partial, its terms are combined here or by
  /// its reader.
  constexpr void take(int id, int value, reduction combine) {
    const axis_mask partial = device_.layout_of(value).placement.unreduced;
    // The largest of terms is no sum that could stay partial.
    if (partial != 0 && combine == reduction::sum) device_.terms[id] = value;
    if (partial != of_[id].unreduced && combine != reduction::sum) {
      value = device_.reshard(value, of_[id], combine);
    } else if (partial == 0 || !postpones(id, partial)) {
      value = device_.reshard(value, of_[id]);
    }
    device_.value[id] = device_.rounded(id, value);
  }
  /// True if a partial is reduced later: its only reader is linear, so it is reduced there, where it may have been
  /// added to others, have become smaller, or be wanted in another layout.
  [[nodiscard]] constexpr bool postpones(int id, axis_mask partial) const {
    if (traced_.readers[id] != 1) return false;
    const int reader = traced_.last_reader[id];
    // Stacked, terms would take as much memory as the sums that are to be split over their devices.
    if (structure_of(g_[reader]) == structure::loop_stack) return (of_[id].tiled() & partial) == 0;
    // A partial never goes into a loop, where it would be reduced in every iteration; but it may go out of one.
    return g_[reader].region == g_[id].region || structure_of(g_[reader]) == structure::loop_sum ||
           structure_of(g_[reader]) == structure::region_parameter;
  }

  /// The axes over which operands of an instruction are partials.
  [[nodiscard]] constexpr axis_mask partial_of_operands(int id) const {
    const instruction& i = g_[id];
    axis_mask partial = 0;
    for (int k = 0; k < i.operand_count; ++k)
      partial |= device_.layout_of(device_.value[g_.operand_at(i, k)]).placement.unreduced;
    return partial;
  }
  /// Reduces the partials of operands, over these axes, that the op cannot work on.
  constexpr operand_sums reduce_operands(int id, axis_mask partial) {
    const instruction& i = g_[id];
    if (may_keep(id, partial)) return {.partial = partial, .is_dropped = false};
    for (int k = 0; k < i.operand_count; ++k) {
      if (of_[g_.operand_at(i, k)].unreduced != 0 &&
          requests_of(g_[g_.operand_at(i, k)]) == layout_request::annotation) {
        // The user asked for this sum to stay partial, and here it would be lost.
        return {.partial = 0, .is_dropped = true};
      }
      if (device_.layout_of(device_.value[g_.operand_at(i, k)]).placement.unreduced != 0)
        reduce(g_.operand_at(i, k), reduced_layout(id, k));
    }
    return {};
  }

  /// The layout in which the sum of a gradient is carried out: its parameter's layout, or to finer parts if all that
  /// read it work on those, as where the state of an optimizer is split and its parameter is not (ZeRO, arXiv
  /// 1910.02054, stage 1).
  [[nodiscard]] constexpr sharding layout_for_readers(int id, axis_mask partial) const {
    sharding held = of_[id];
    held.unreduced = partial;
    sharding common = of_[id];
    bool is_first = true;
    for (int reader = id + 1; reader <= traced_.last_reader[id]; ++reader) {
      const instruction& i = g_[reader];
      if (i.op->facts.looks) continue;
      for (int k = 0; k < i.operand_count; ++k) {
        if (g_.operand_at(i, k) != id) continue;
        const bool computes = structure_of(i) == structure::none && requests_of(i) == layout_request::none;
        if (!computes || i.region != g_[id].region || i.op->factors == nullptr) return of_[id];
        const sharding layout = layout_for_reader(reader, k, held);
        if (!is_first && !layout.same_layout(common)) return of_[id];
        common = layout;
        is_first = false;
      }
    }
    return common;
  }

  /// The parts of operand k that instruction `id` works on, as far as they are parts of what devices hold, split along
  /// axes on which a sum is partial: a reduce-scatter makes them.
  [[nodiscard]] constexpr sharding layout_for_reader(int id, int k, sharding held) const {
    const factor_rule& rule = traced_.rules[id];
    factor_axes asked;
    for (int d = 0; d < of_[id].rank; ++d) {
      if (!rule.result[d].empty()) read_dimension(traced_.mesh, rule, rule.result[d], of_[id].dim[d], asked);
    }
    for (int d = 0; d < held.rank; ++d) {
      const factor_list factors = rule.dims_of(k)[d];
      if (factors.size() != 1 || rule.kind[factors[0]] != factor_kind::pass) continue;
      const axis_list axes = asked[factors[0]];
      const axis_mask added = axes.mask() & ~held.dim[d].mask();
      if (axes.starts_with(held.dim[d]) && (added & ~held.unreduced) == 0) held.dim[d] = axes;
    }
    held.unreduced = 0;
    return held;
  }
  /// Whether instruction `id` can work on the terms of its operands, and it pays to leave them terms.
  [[nodiscard]] constexpr bool may_keep(int id, axis_mask partial) {
    const instruction& i = g_[id];
    const auto held = [&](int k) { return device_.layout_of(device_.value[g_.operand_at(i, k)]).placement.unreduced; };
    const auto uses = [&](int k) { return device_.layout_of(device_.value[g_.operand_at(i, k)]).placement.tiled(); };
    switch (i.op->linear) {
      case linearity::none: return traced_.widens(i);
      case linearity::first: {
        for (int k = 1; k < i.operand_count; ++k) {
          if (held(k) != 0 || (uses(k) & partial) != 0 || travel_together(id, 0, k, partial)) return false;
        }
        return i.shape.elements() <= g_[i.operand[0]].shape.elements() || pays_after(id);
      }
      case linearity::joint: {
        for (int k = 0; k < i.operand_count; ++k) {
          if (held(k) != partial) return false;
        }
        return true;
      }
      case linearity::each: {
        int holders = 0;
        for (int k = 0; k < i.operand_count; ++k) {
          if (held(k) != 0) {
            ++holders;
          } else if ((uses(k) & partial) != 0 || g_[g_.operand_at(i, k)].shape.elements() > i.shape.elements()) {
            return false;
          }
        }
        if (holders != 1 || i.op->facts.contracts) return false;
        return i.operand_count != 2 || !travel_together(id, held(0) != 0 ? 0 : 1, held(0) != 0 ? 1 : 0, partial);
      }
    }
    return false;
  }

 private:
  /// The layout in which a sum is carried out for its reader: its own, or, if no other instruction reads it, parts
  /// that the reader works on.
  [[nodiscard]] constexpr sharding reduced_layout(int id, int k) const {
    const int operand = g_.operand_at(g_[id], k);
    if (traced_.readers[operand] == 1)
      return layout_for_reader(id, k, device_.layout_of(device_.value[operand]).placement);
    sharding result = of_[operand];
    result.unreduced = 0;
    return result;
  }
  /// True if an op that makes a partial larger is one of several whose results add up to no more than they are made of,
  /// or that are added up over a loop: the pieces of a tensor that a gradient is put together from.
  [[nodiscard]] constexpr bool pays_after(int id) {
    if (pays_.empty()) pays_.resize(g_.size, unknown);
    if (pays_[id] != unknown) return pays_[id] == yes;
    int end = id;
    while (traced_.readers[end] == 1 && passes_on(end, traced_.last_reader[end])) end = traced_.last_reader[end];
    struct term {
      int id;
      std::int64_t times;
      /// It is whole: a sum that is made of it has been counted.
      bool is_counted;
    };
    list<term> open;
    list<int> seen;
    open.push_back({end, 1, false});
    std::int64_t elements = 0;
    // The elements of the partials themselves, where they are made.
    std::int64_t partial_elements = 0;
    // A partial that meets a term that is none is reduced there, as large as it is.
    bool has_whole_term = false;
    bool adds_terms = false;
    while (!open.empty()) {
      term sum = open.back();
      open.pop_back();
      seen.push_back(sum.id);
      const instruction& i = g_[sum.id];
      if (structure_of(i) == structure::loop_sum) {
        sum.times *= attributes_of<region_attributes>(g_[g_[i.operand[0]].region]).iterations;
      }
      const int terms = i.op->linear == linearity::joint ? i.operand_count : 1;
      for (int k = 0; k < terms; ++k) {
        const int o = g_.operand_at(i, k);
        const bool is_passed_on = traced_.readers[o] == 1 && g_[o].operand_count > 0 && passes_on(g_[o].operand[0], o);
        adds_terms = adds_terms || terms > 1;
        const std::int64_t of_operand = sum.times * g_[o].shape.elements();
        const bool counts = !sum.is_counted && (!is_passed_on || makes_sum(o));
        if (counts) partial_elements += of_operand;
        if (is_passed_on) {
          open.push_back({o, sum.times, sum.is_counted || counts});
        } else {
          elements += of_operand;
          has_whole_term = has_whole_term || !makes_sum(o);
        }
      }
    }
    const bool pays = g_[end].shape.elements() <= smaller_of(elements, partial_elements);
    const verdict answer = !(adds_terms && has_whole_term) && pays ? yes : no;
    for (const int one : seen) pays_[one] = answer;
    return answer == yes;
  }
  /// True if a value is a partial where it is computed, as completion laid its operands out.
  [[nodiscard]] constexpr bool makes_sum(int id) const {
    if (of_[id].unreduced != 0) return true;
    const instruction& i = g_[id];
    if (i.op->factors == nullptr) return false;
    const factor_rule& rule = traced_.rules[id];
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
  /// True if a partial can pass from a value through one of its readers.
  [[nodiscard]] constexpr bool passes_on(int id, int reader) const {
    const instruction& i = g_[reader];
    if (i.region != g_[id].region && structure_of(i) != structure::loop_sum) return false;
    if (structure_of(i) == structure::result || structure_of(i) == structure::loop_stack ||
        structure_of(i) == structure::region_parameter)
      return false;
    return i.op->linear == linearity::joint || (i.op->linear == linearity::first && i.operand[0] == id);
  }
  /// True if a small partial meets a value that is computed from another partial over the same axes, as that of a mean
  /// its weight: both can move as one (partition/merge_collectives.hpp), unless the first waits for the second.
  [[nodiscard]] constexpr bool travel_together(int id, int partial_operand, int other, axis_mask partial) const {
    if (traced_.keeps_sums) return false;
    const instruction& i = g_[id];
    const instruction& sum = g_[i.operand[partial_operand]];
    if (sum.shape.elements() * size_of(sum.type) > collective_latency) return false;
    int value = device_.value[i.operand[other]];
    for (int step = 0; step < 8; ++step) {
      const instruction& source = device_.program[value];
      if (is_collective(source.op, collective::all_reduce)) {
        return attributes_of<collective_attributes>(source).axes == partial;
      }
      if (source.op->factors == nullptr || source.op->spread == propagation::none || source.op->facts.contracts)
        return false;
      int latest = -1;
      for (int k = 0; k < source.operand_count; ++k) {
        const int operand = device_.program.operand_at(source, k);
        if (device_.program[operand].op->fuse != fusion::source && operand > latest) latest = operand;
      }
      if (latest < 0 || device_.program[latest].region != source.region) return false;
      value = latest;
    }
    return false;
  }

  const completed_program& traced_;
  graph_view g_;
  const sharding* of_;
  device_values& device_;
  /// The answers that `pays_after` has given, by value.
  enum verdict : std::uint8_t { unknown, yes, no };
  list<verdict> pays_;
};

}  // namespace espalier::detail
