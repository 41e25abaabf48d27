// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <cstdint>

namespace espalier::detail {

/// The axes over which an instruction makes a partial of operands that are laid out like this. None where the operands
/// disagree about an axis: then one of them moves.
[[nodiscard]] constexpr axis_mask axes_summed_over(graph_view g, const factor_rule& rule, const sharding* of, int id) {
  const instruction& i = g[id];
  if (!i.op->facts.adds_up || rule.combine != reduction::sum) return 0;
  axis_mask reduced = 0;
  axis_mask others = 0;
  for (int k = 0; k < i.operand_count; ++k) {
    const sharding& at = of[g.operand_at(i, k)];
    for (int d = 0; d < at.rank; ++d) {
      if (at.dim[d].empty()) continue;
      const factor_list factors = rule.dims_of(k)[d];
      const bool is_reduced = factors.size() == 1 && rule.kind[factors[0]] == factor_kind::reduce;
      (is_reduced ? reduced : others) |= at.dim[d].mask();
    }
  }
  return reduced & ~others;
}

/// Lets a sum be carried out in the finer layout that is asked for later on.
///
/// A gradient, which is a partial, is laid out like its parameter. If the state of the optimizer is split further
/// (ZeRO), it is wanted in finer shards: a reduce-scatter makes them of the partial. But when it is scaled by a number
/// that depends on its norm before that, completion leaves it whole in between, and an all-reduce twice as dear would
/// be needed. This pass finds, from each `reshard` to finer shards back through elementwise ops, the partial where the
/// values come from. If all that reads it on the way works element by element, and ends in those shards or in a small
/// sum, then all of it has them.
class finer_sums {
 public:
  /// `first`, `reader` and `next`: the readers of each value (`list_readers`).
  constexpr finer_sums(graph_view g, const factor_rule* rules, sharding* of, int* cause, const int* first,
                       const int* reader, const int* next)
      : g_(g), rules_(rules), of_(of), cause_(cause), first_(first), reader_(reader), next_(next) {}

  constexpr void run() {
    for (int id = 0; id < g_.size; ++id) {
      if (requests_of(g_[id]) == layout_request::change) visit(id);
    }
  }

 private:
  /// The number of ops between the sum and the `reshard`, and of values that get the finer layout.
  static constexpr int most_depth = 10;
  static constexpr int most_values = 24;
  /// A sum is small if it has so many times fewer elements than what is summed.
  static constexpr std::int64_t small_part = 8;

  constexpr void visit(int id) {
    const int operand = g_[id].operand[0];
    if (of_[id].unreduced != 0 || of_[operand].unreduced != 0) return;
    wanted_ = of_[id];
    coarse_ = of_[operand];
    added_ = wanted_.tiled() & ~coarse_.tiled();
    if (added_ == 0) return;
    for (int d = 0; d < wanted_.rank; ++d) {
      if (!wanted_.dim[d].starts_with(coarse_.dim[d])) return;
    }
    climb(id, operand, 0);
  }

  /// Whether a value is laid out as the operand of the `reshard` is, and nobody insists.
  [[nodiscard]] constexpr bool is_coarse(int id) const {
    return g_[id].annotation < 0 && same_dimensions(of_[id], coarse_) && of_[id].unreduced == 0;
  }
  [[nodiscard]] static constexpr bool same_dimensions(const sharding& a, const sharding& b) {
    if (a.rank != b.rank) return false;
    for (int d = 0; d < a.rank; ++d) {
      if (!(a.dim[d] == b.dim[d])) return false;
    }
    return true;
  }
  /// Whether each element of the result depends on the elements in the same place, and nothing else fixes its layout.
  [[nodiscard]] constexpr bool is_elementwise(int id) const {
    const instruction& i = g_[id];
    if (requests_of(i) == layout_request::as_operand) return !i.op->facts.is_written;
    return i.op->fuse == fusion::elementwise && structure_of(i) == structure::none &&
           requests_of(i) == layout_request::none && i.op->lower == nullptr && i.op->carries_along == nullptr;
  }
  [[nodiscard]] constexpr bool is_made_where_read(int id) const {
    return g_[id].op->fuse == fusion::broadcast || g_[id].op->fuse == fusion::source;
  }

  /// Whether one instruction reads a value, beside those that look at it.
  [[nodiscard]] constexpr bool has_one_reader(int id) const {
    int readers = 0;
    for (int at = first_[id]; at >= 0; at = next_[at]) readers += g_[reader_[at]].op->facts.looks ? 0 : 1;
    return readers == 1;
  }

  /// Looks for the partial that a value is computed from, and refines the layouts if all its readers allow it.
  constexpr bool climb(int cause, int id, int depth) {
    if (depth == most_depth || !is_coarse(id)) return false;
    const instruction& i = g_[id];
    if ((added_ & ~terms_of(id, most_depth)) == 0) {
      values_.clear();
      if (accepts(id, i.region)) {
        refine(cause);
        return true;
      }
      if (i.operand_count == 0 || !is_elementwise(id)) return false;
    }
    if (!is_elementwise(id)) return false;
    const int operands = requests_of(i) == layout_request::as_operand ? 1 : i.operand_count;
    for (int k = 0; k < operands; ++k) {
      const int operand = g_.operand_at(i, k);
      if (!is_made_where_read(operand) && climb(cause, operand, depth + 1)) return true;
    }
    return false;
  }

  /// Whether a value, and what is computed from it element by element, can have the finer layout. Lists all of these.
  constexpr bool accepts(int id, int region) {
    for (const int known : values_) {
      if (known == id) return true;
    }
    if (values_.size() == most_values) return false;
    values_.push_back(id);
    for (int at = first_[id]; at >= 0; at = next_[at]) {
      const int reader = reader_[at];
      const instruction& i = g_[reader];
      if (i.op->facts.looks) continue;
      if (i.region != region) return false;
      if (requests_of(i) == layout_request::change) {
        if (!same_dimensions(of_[reader], wanted_) || of_[reader].unreduced != 0) return false;
      } else if (is_elementwise(reader)) {
        // The layout that another value is to have.
        if (requests_of(i) == layout_request::as_operand && i.operand[0] != id) return false;
        if (!is_coarse(reader) || !accepts(reader, region)) return false;
      } else {
        const bool is_small_sum = i.op->facts.adds_up && structure_of(i) == structure::none &&
                                  i.shape.elements() * small_part <= g_[id].shape.elements();
        if (!is_small_sum) return false;
      }
    }
    return true;
  }

  constexpr void refine(int cause) {
    for (const int id : values_) {
      refine(id, cause);
      for (int k = 0; k < g_[id].operand_count && is_elementwise(id); ++k) {
        const int operand = g_.operand_at(g_[id], k);
        if (has_one_reader(operand) && is_made_where_read(operand) && is_coarse(operand)) refine(operand, cause);
      }
    }
  }
  constexpr void refine(int id, int cause) {
    for (int d = 0; d < wanted_.rank; ++d) of_[id].dim[d] = wanted_.dim[d];
    if (cause_[id] < 0) cause_[id] = cause;
  }

  /// The axes over which a value is a partial, as far as the layouts of what it is computed from tell.
  [[nodiscard]] constexpr axis_mask terms_of(int id, int depth) const {
    const instruction& i = g_[id];
    const structure role = structure_of(i);
    if (i.op->factors == nullptr) return 0;
    if (const axis_mask axes = axes_summed_over(g_, rules_[id], of_, id); axes != 0) return axes;
    if (depth == 0 || i.operand_count == 0 || role == structure::region_parameter || role == structure::argument)
      return 0;
    const bool passes = i.op->linear != linearity::none || collects(role) || role == structure::region_result;
    if (!passes) return 0;
    const int operands = i.op->linear == linearity::first || role != structure::none ? 1 : i.operand_count;
    axis_mask axes = 0;
    for (int k = 0; k < operands; ++k) {
      const int operand = g_.operand_at(i, k);
      const axis_mask one = has_one_reader(operand) ? terms_of(operand, depth - 1) : 0;
      if (i.op->linear == linearity::joint && k > 0 && one != axes) return 0;
      axes |= one;
    }
    return axes;
  }

  graph_view g_;
  const factor_rule* rules_;
  sharding* of_;
  int* cause_;
  const int* first_;
  const int* reader_;
  const int* next_;
  sharding wanted_ = empty_sharding;
  sharding coarse_ = empty_sharding;
  axis_mask added_ = 0;
  list<int> values_;
};

}  // namespace espalier::detail
