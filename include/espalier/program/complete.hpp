// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/graph/factor_axes.hpp>
#include <espalier/graph/graph.hpp>
#include <espalier/ops/ops.hpp>

namespace espalier {

/// The state of completion: what is known so far of every value's sharding, and whence.
template <int Size> struct completion {
  sharding of[Size > 0 ? Size : 1]{};
  /// The value whose sharding led to this one's (itself when annotated), or -1.
  int cause[Size > 0 ? Size : 1]{};
  /// The sweep in which it last changed.
  int changed_in[Size > 0 ? Size : 1]{};
  int sweep = 0;
  int level = 0;
  bool level_is_new = true;
  bool done = false;
};

namespace detail {

inline constexpr int last_level = 3;

/// One op's step of completion. `Of` and `Cause` are arrays over all values.
class propagation_step {
 public:
  constexpr propagation_step(const mesh_shape& mesh, graph_view g, sharding* of, int* cause, int* changed_in, int sweep)
      : mesh_(mesh), g_(g), of_(of), cause_(cause), changed_in_(changed_in), sweep_(sweep) {}

  /// Updates the result (forward) or the operands (backward) of instruction `id`; true if something changed.
  constexpr bool run(int id, const factor_rule& rule, bool forward, int level) {
    const instruction& i = g_[id];
    if (i.operand_count == 0 || level < first_level(*i.op, forward)) return false;
    if (i.operand_count == 2 && (requests_of(i) == layout_request::as_operand || part_of(i) == structure::result)) {
      if (forward) return copy(id, i.operand[1]);
      return copy_open(i.operand[0], id);
    }
    gather(i, id, rule);
    if (forward) return refine(id, rule.result, rule, id);
    bool changed = false;
    for (int k = 0; k < i.operand_count; ++k)
      changed = refine(g_.operand_at(i, k), rule.dims_of(k), rule, id) || changed;
    return changed;
  }

  /// The level from which on shardings pass through an op.
  [[nodiscard]] static constexpr int first_level(const op_info& op, bool forward) {
    switch (op.spread) {
      case propagation::elementwise: return 0;
      case propagation::dimensional: return 1;
      case propagation::broadcast: return forward ? 3 : 2;
      case propagation::none: break;
    }
    return last_level + 1;
  }

 private:
  /// `to` is laid out as `from` is and closed to everybody else: were its readers to refine it, the two would never
  /// reach a fixed point. The cotangent of a pending sum is whole on its axes.
  constexpr bool copy(int to, int from) {
    sharding like = of_[from];
    like.open = 0;
    if (requests_of(g_[to]) == layout_request::as_operand) like.unreduced = 0;
    const bool changes = !of_[to].same_layout(like);
    of_[to] = like;
    if (changes) note(to, from);
    return changes;
  }
  constexpr bool copy_open(int to, int from) {
    bool changed = false;
    for (int d = 0; d < of_[to].rank; ++d) changed = extend(to, d, of_[from].dim[d], from) || changed;
    return changed;
  }

  /// Merges what all tensors of an op say of its factors (GSPMD section 3.5, compatible shardings): the longer list
  /// wins when the shorter is its prefix; otherwise what they have in common.
  constexpr void gather(const instruction& i, int id, const factor_rule& rule) {
    merged_ = factor_axes{};
    for (int f = 0; f < rule.count; ++f) source_[f] = -1;
    take(of_[id], rule.result, rule, id);
    for (int k = 0; k < i.operand_count; ++k) {
      const int operand = g_.operand_at(i, k);
      take(of_[operand], rule.dims_of(k), rule, operand);
    }
  }

  constexpr void take(const sharding& from, const factor_list* dims, const factor_rule& rule, int who) {
    for (int d = 0; d < from.rank; ++d) {
      if (from.dim[d].empty() || dims[d].empty()) continue;
      if (dims[d].code() < 16U) {
        merge(dims[d][0], from.dim[d], rule, who);
        continue;
      }
      if (splits_major_unevenly(mesh_, rule, dims[d], from.dim[d])) {
        merge(dims[d][0], from.dim[d], rule, who);
        continue;
      }
      factor_axes read;
      read_dimension(mesh_, rule, dims[d], from.dim[d], read);
      for (int n = 0; n < dims[d].size(); ++n) merge(dims[d][n], read[dims[d][n]], rule, who);
    }
  }
  constexpr void merge(int f, axis_list said, const factor_rule& rule, int who) {
    if (said.empty() || rule.kind[f] == factor_kind::blocked) return;
    const axis_list known = merged_[f];
    if (source_[f] >= 0 && known == said) return;
    if (source_[f] < 0 || (said.size() > known.size() && said.starts_with(known))) {
      merged_.set(f, said);
      source_[f] = who;
    } else if (!known.starts_with(said)) {
      int common = 0;
      while (common < known.size() && common < said.size() && known[common] == said[common]) ++common;
      merged_.set(f, known.first(common));
    }
  }

  constexpr bool refine(int who, const factor_list* dims, const factor_rule& rule, int id) {
    bool changed = false;
    for (int d = 0; d < of_[who].rank; ++d) {
      if (dims[d].empty() || !of_[who].is_open(d)) continue;
      const bool is_uneven = splits_major_unevenly(mesh_, rule, dims[d], merged_[dims[d][0]]);
      const axis_list wanted = is_uneven ? merged_[dims[d][0]] : write_dimension(mesh_, rule, dims[d], merged_);
      if (wanted == of_[who].dim[d] || wanted.size() <= of_[who].dim[d].size()) continue;
      int source = source_[dims[d][0]];
      if (source == who) source = id;
      changed = extend(who, d, wanted, source) || changed;
    }
    return changed;
  }

  /// Adds axes to a dimension as far as the tensor allows: open, not replicated there, not used by another dimension.
  constexpr bool extend(int who, int d, axis_list wanted, int source) {
    sharding& s = of_[who];
    if (!s.is_open(d) || !wanted.starts_with(s.dim[d])) return false;
    const axis_mask taken = s.tiled() | s.replicated | s.unreduced;
    axis_list result = s.dim[d];
    for (int n = result.size(); n < wanted.size(); ++n) {
      // Two factors of one dimension may be split by the same axis in two other tensors.
      if (has_axis(taken, wanted[n]) || result.contains(wanted[n])) break;
      result = result.with(wanted[n]);
    }
    if (result == s.dim[d]) return false;
    s.dim[d] = result;
    note(who, source);
    return true;
  }

  constexpr void note(int who, int source) {
    if (cause_[who] < 0) cause_[who] = source;
    changed_in_[who] = sweep_;
  }

  const mesh_shape& mesh_;
  graph_view g_;
  sharding* of_;
  int* cause_;
  int* changed_in_;
  int sweep_;
  factor_axes merged_;
  int source_[max_factors]{};
};

}  // namespace detail

/// Before any sweep: what the annotations say, and everything else open.
constexpr void start_completion(graph_view g, sharding* of, int* cause, int* changed_in) {
  for (int id = 0; id < g.size; ++id) {
    const bool annotated = g[id].annotation >= 0;
    of[id] = annotated ? g.annotations[g[id].annotation].placement : sharding::all_open(g[id].shape.rank);
    cause[id] = annotated ? id : -1;
    changed_in[id] = 0;
  }
}

/// One forward and one backward sweep at `level` (GSPMD section 3.5). Returns whether anything changed. An op is
/// visited only if one of its tensors changed in this sweep or the one before, or if the level has just risen to the
/// first at which anything passes through it.
constexpr bool sweep_completion(const mesh_shape& mesh, graph_view g, const factor_rule* rules, sharding* of,
                                int* cause, int* changed_in, int sweep, int level, bool level_is_new) {
  detail::propagation_step step(mesh, g, of, cause, changed_in, sweep);
  bool changed = false;
  const auto fresh = [&](int id, bool forward) {
    if (changed_in[id] >= sweep - 1) return true;
    const instruction& i = g[id];
    if (level_is_new && detail::propagation_step::first_level(*i.op, forward) == level) return true;
    for (int k = 0; k < i.operand_count; ++k) {
      if (changed_in[k < inline_operands ? i.operand[k] : g.operand_at(i, k)] >= sweep - 1) return true;
    }
    return false;
  };
  for (int id = 0; id < g.size; ++id) {
    if (fresh(id, true)) changed = step.run(id, rules[id], true, level) || changed;
  }
  for (int id = g.size - 1; id >= 0; --id) {
    if (fresh(id, false)) changed = step.run(id, rules[id], false, level) || changed;
  }
  return changed;
}

/// One sweep after another until nothing changes at the last level; for graphs made at run time.
constexpr void complete(const mesh_shape& mesh, graph_view g, const factor_rule* rules, sharding* of, int* cause) {
  detail::list<int> changed_in(g.size);
  start_completion(g, of, cause, changed_in.data());
  int sweep = 1;
  for (int level = 0; level <= detail::last_level; ++level) {
    bool first = true;
    while (sweep_completion(mesh, g, rules, of, cause, changed_in.data(), sweep++, level, first)) first = false;
  }
}

/// Two annotations of one tensor that cannot both hold.
struct annotation_conflict {
  int first = -1;
  int second = -1;
};

namespace detail {
[[nodiscard]] constexpr bool compatible(const sharding& a, const sharding& b) {
  if (a.unreduced != b.unreduced) return false;
  for (int d = 0; d < a.rank; ++d) {
    const bool a_longer = a.dim[d].size() >= b.dim[d].size();
    const axis_list longer = a_longer ? a.dim[d] : b.dim[d];
    const axis_list shorter = a_longer ? b.dim[d] : a.dim[d];
    if (!longer.starts_with(shorter)) return false;
    if (!(longer == shorter) && !(a_longer ? b : a).is_open(d)) return false;
  }
  return true;
}
}  // namespace detail

/// The first tensor that the user annotated in two ways. Annotations on the copies that `shard` returns count as
/// annotations of the tensor itself.
[[nodiscard]] constexpr annotation_conflict find_conflict(graph_view g) {
  detail::list<int> root(g.size, -1);
  detail::list<int> annotated_by(g.size, -1);
  for (int id = 0; id < g.size; ++id) {
    root[id] = id;
    const instruction& i = g[id];
    if (part_of(i) == structure::argument && i.annotation >= 0) annotated_by[id] = id;
    if (requests_of(i) != layout_request::annotation || attributes_of<annotation_attributes>(i).of_gradient) continue;
    const int tensor = root[i.operand[0]];
    root[id] = tensor;
    const int before = annotated_by[tensor];
    if (before >= 0 &&
        !detail::compatible(g.annotations[g[before].annotation].placement, g.annotations[i.annotation].placement)) {
      return {before, id};
    }
    annotated_by[tensor] = id;
  }
  return {};
}

}  // namespace espalier
