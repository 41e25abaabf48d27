// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/finer_sums.hpp>

namespace espalier {

/// The instructions that read each value: `first[value]` is where in `reader` and `next` they begin, a list that ends
/// at -1.
template <int Size, int Operands> struct reader_table {
  int first[Size > 0 ? Size : 1]{};
  int reader[Operands > 0 ? Operands : 1]{};
  int next[Operands > 0 ? Operands : 1]{};
};

/// The state of completion: what is known so far of every value's sharding, and whence.
template <int Size> struct completion {
  static constexpr int room = Size > 0 ? Size : 1;

  sharding of[room]{};
  /// The value whose sharding led to this one's (itself when annotated), or -1.
  int cause[room]{};
  /// Whether an op's tensors have changed since it last passed them on, in each direction.
  bool forward[room]{};
  bool backward[room]{};
  int level = 0;
  /// Annotations up to this priority are passed on.
  int round = 0;
  bool done = false;
};

/// The same as arrays, of any length, and the readers of each value.
struct completion_view {
  sharding* of = nullptr;
  int* cause = nullptr;
  bool* forward = nullptr;
  bool* backward = nullptr;
  const int* first = nullptr;
  const int* reader = nullptr;
  const int* next = nullptr;

  /// The op that makes a value and those that read it are to be visited.
  constexpr void has_changed(int value) const {
    forward[value] = backward[value] = true;
    for (int at = first[value]; at >= 0; at = next[at]) forward[reader[at]] = backward[reader[at]] = true;
  }
};

namespace detail {

inline constexpr int last_level = 3;

/// One op's step of completion.
class propagation_step {
 public:
  constexpr propagation_step(const mesh_shape& mesh, graph_view g, const completion_view& state)
      : mesh_(mesh), g_(g), state_(state), of_(state.of) {}

  /// Updates the result (forward) or the operands (backward) of instruction `id`; true if something changed.
  constexpr bool run(int id, const factor_rule& rule, bool forward, int level) {
    const instruction& i = g_[id];
    if (level < first_level(*i.op, forward)) return false;
    (forward ? state_.forward : state_.backward)[id] = false;
    if (i.operand_count == 0) return false;
    if (copies_layout(i)) {
      if (forward) return copy(id, i.operand[1]);
      return is_change_back(i) ? false : copy_open(i.operand[0], id);
    }
    gather(i, id, rule);
    bool changed = false;
    if (forward) {
      changed = refine(id, rule.result, rule, id);
      return is_tied(i) ? tie(id, i.operand[1]) || changed : changed;
    }
    for (int k = 0; k < i.operand_count; ++k)
      changed = refine(g_.operand_at(i, k), rule.dims_of(k), rule, id) || changed;
    return is_tied(i) ? tie(id, i.operand[1]) || changed : changed;
  }

  /// Whether an instruction's result is to be laid out as its second operand is.
  [[nodiscard]] static constexpr bool copies_layout(const instruction& i) {
    return i.operand_count == 2 &&
           (requests_of(i) == layout_request::as_operand || structure_of(i) == structure::result);
  }

  /// Whether it is the gradient of a change of layout. In `reshard<none>(x)` of x: f32[8@data], a cotangent that is a
  /// sum over data stays one until it is scattered: split over data where it is made, as a loop may make it row by row,
  /// it would be reduced there.
  [[nodiscard]] static constexpr bool is_change_back(const instruction& i) {
    return requests_of(i) == layout_request::as_operand && attributes_of<annotation_attributes>(i).of_gradient;
  }
  /// Whether an instruction's result and its second operand are to have one layout.
  [[nodiscard]] static constexpr bool is_tied(const instruction& i) {
    return i.operand_count == 2 && requests_of(i) == layout_request::as_partner;
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
  /// Lays `to` out as `from` is and closes it to all other readers and operands: were its readers to refine it, the two
  /// would never reach a fixed point. The cotangent of a partial is whole on its axes.
  constexpr bool copy(int to, int from) {
    sharding like = of_[from];
    like.open = 0;
    if (requests_of(g_[to]) == layout_request::as_operand) like.unreduced = 0;
    const bool changes = !of_[to].same_layout(like);
    of_[to] = like;
    if (changes) note(to, from);
    return changes;
  }
  /// Gives `id` and its partner one layout: what `id` has and the partner lacks goes to the partner, if that may have
  /// it; then `id` is laid out as the partner is. If it was to have something else, it is closed to others, as in
  /// `copy`.
  constexpr bool tie(int id, int partner) {
    bool changed = false;
    bool is_denied = false;
    for (int d = 0; d < of_[id].rank; ++d) {
      changed = extend(partner, d, of_[id].dim[d], id) || changed;
      is_denied = is_denied || !of_[partner].dim[d].starts_with(of_[id].dim[d]);
    }
    if (is_denied) of_[id].open = 0;
    if (of_[id].same_layout(of_[partner])) return changed;
    for (int d = 0; d < of_[id].rank; ++d) of_[id].dim[d] = of_[partner].dim[d];
    note(id, partner);
    return true;
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
    const sharding& s = of_[who];
    bool changed = false;
    for (int d = 0; d < s.rank; ++d) {
      if (dims[d].empty() || !s.is_open(d)) continue;
      const axis_list major = merged_[dims[d][0]];
      const bool is_as_major = dims[d].code() < 16U || splits_major_unevenly(mesh_, rule, dims[d], major);
      const axis_list wanted = is_as_major ? major : write_dimension(mesh_, rule, dims[d], merged_);
      if (wanted.empty() || wanted.size() <= s.dim[d].size()) continue;
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
    if (state_.cause[who] < 0) state_.cause[who] = source;
    state_.has_changed(who);
  }

  const mesh_shape& mesh_;
  graph_view g_;
  completion_view state_;
  sharding* of_;
  factor_axes merged_;
  int source_[max_factors]{};
};

}  // namespace detail

/// Returns the number of operands of all instructions of a graph.
[[nodiscard]] constexpr int count_operands(graph_view g) {
  int count = 0;
  for (int id = 0; id < g.size; ++id) count += g[id].operand_count;
  return count;
}
/// Writes a `reader_table`.
constexpr void list_readers(graph_view g, int* first, int* reader, int* next) {
  for (int id = 0; id < g.size; ++id) first[id] = -1;
  int at = 0;
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    for (int k = 0; k < i.operand_count; ++k, ++at) {
      const int value = k < inline_operands ? i.operand[k] : g.operand_at(i, k);
      reader[at] = id;
      next[at] = first[value];
      first[value] = at;
    }
  }
}

/// The last priority that an annotation of a graph has.
[[nodiscard]] constexpr int last_priority(graph_view g) {
  int last = 0;
  for (int n = 0; n < g.annotation_count; ++n)
    last = g.annotations[n].priority > last ? g.annotations[n].priority : last;
  return last;
}
namespace detail {
/// An annotation before its round: nothing is known of the value, and no other layout may come in.
[[nodiscard]] constexpr sharding silent(sharding placement) {
  for (int d = 0; d < placement.rank; ++d) placement.dim[d] = axis_list{};
  placement.open = 0;
  return placement;
}
}  // namespace detail

/// Sets the layouts before any sweep: those of the annotations, with everything else open. Only instructions that have
/// a layout to pass on are marked to be visited. Annotations of another priority than 0 wait for their round.
constexpr void start_completion(graph_view g, const completion_view& state) {
  for (int id = 0; id < g.size; ++id) {
    const bool annotated = g[id].annotation >= 0;
    state.of[id] = annotated ? g.annotations[g[id].annotation].placement : sharding::all_open(g[id].shape.rank);
    state.cause[id] = annotated ? id : -1;
    state.forward[id] = state.backward[id] = detail::propagation_step::copies_layout(g[id]);
  }
  for (int id = 0; id < g.size; ++id) {
    if (g[id].annotation < 0) continue;
    if (g.annotations[g[id].annotation].priority == 0) {
      state.has_changed(id);
    } else {
      state.of[id] = detail::silent(state.of[id]);
    }
  }
}
/// Starts the round of a priority: from now on its annotations are passed on, too. What is split by now stays so.
constexpr void start_round(graph_view g, const completion_view& state, int priority) {
  for (int id = 0; id < g.size; ++id) {
    if (state.of[id].tiled() != 0) state.of[id].open |= sharding::decided_early;
    if (g[id].annotation < 0 || g.annotations[g[id].annotation].priority != priority) continue;
    state.of[id] = g.annotations[g[id].annotation].placement;
    state.has_changed(id);
  }
}

/// The outcome of a sweep.
struct completion_sweep {
  bool changed = false;
  /// The number of ops that it looked at, in either direction.
  int visited = 0;
};

/// One forward and one backward sweep at `level` (GSPMD section 3.5). An op is visited only if one of its tensors
/// changed since it was visited last in that direction.
constexpr completion_sweep sweep_completion(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                            const completion_view& state, int level) {
  detail::propagation_step step(mesh, g, state);
  completion_sweep done;
  for (int id = 0; id < g.size; ++id) {
    if (!state.forward[id]) continue;
    done.changed = step.run(id, rules[id], true, level) || done.changed;
    ++done.visited;
  }
  for (int id = g.size - 1; id >= 0; --id) {
    if (!state.backward[id]) continue;
    done.changed = step.run(id, rules[id], false, level) || done.changed;
    ++done.visited;
  }
  return done;
}

namespace detail {
/// What a loop passes on, and its results, have the layout of the carry, whatever their readers would like. Completion
/// passes layouts through them in both directions, and they may have got another one; a result of the program is then
/// laid out as what it is made of.
constexpr void lay_out_as_carried(graph_view g, const completion_view& state) {
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    const structure part = structure_of(i);
    const bool is_carried = part == structure::region_yield || part == structure::region_result;
    const bool follows = part == structure::result && i.annotation < 0 && i.operand_count == 1 &&
                         structure_of(g[i.operand[0]]) == structure::region_result;
    if (!is_carried && !follows) continue;
    const sharding& carry = state.of[i.operand[0]];
    if (state.of[id].same_layout(carry) || carry.unreduced != 0) continue;
    for (int d = 0; d < carry.rank; ++d) state.of[id].dim[d] = carry.dim[d];
    if (state.cause[id] < 0) state.cause[id] = i.operand[0];
  }
}
}  // namespace detail

/// The last step of completion: sums that are wanted in finer shards later on are carried out in them
/// (program/finer_sums.hpp).
constexpr void refine_sums(graph_view g, const factor_rule* rules, const completion_view& state) {
  detail::lay_out_as_carried(g, state);
  detail::finer_sums(g, rules, state.of, state.cause, state.first, state.reader, state.next).run();
}

/// One sweep after another until nothing changes at the last level; for graphs made at run time.
constexpr void complete(const mesh_shape& mesh, graph_view g, const factor_rule* rules, sharding* of, int* cause) {
  const int operands = count_operands(g);
  detail::list<bool> forward(g.size);
  detail::list<bool> backward(g.size);
  detail::list<int> first(g.size);
  detail::list<int> reader(operands);
  detail::list<int> next(operands);
  list_readers(g, first.data(), reader.data(), next.data());
  completion_view state{of, nullptr, forward.data(), backward.data(), first.data(), reader.data(), next.data()};
  state.cause = cause;
  start_completion(g, state);
  const int last = last_priority(g);
  for (int round = 0; round <= last; ++round) {
    if (round > 0) start_round(g, state, round);
    for (int level = 0; level <= detail::last_level; ++level) {
      while (sweep_completion(mesh, g, rules, state, level).changed) continue;
    }
  }
  refine_sums(g, rules, state);
}

/// Two annotations of one tensor that cannot both hold.
struct annotation_conflict {
  int first = -1;
  int second = -1;
};

/// The first tensor that the user annotated in two ways. Annotations on the copies that `shard` returns count as
/// annotations of the tensor itself.
[[nodiscard]] constexpr annotation_conflict find_conflict(graph_view g) {
  detail::list<int> root(g.size, -1);
  detail::list<int> annotated_by(g.size, -1);
  for (int id = 0; id < g.size; ++id) {
    root[id] = id;
    const instruction& i = g[id];
    if (structure_of(i) == structure::argument && i.annotation >= 0) annotated_by[id] = id;
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
