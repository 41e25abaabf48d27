// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/schedule.hpp>
#include <espalier/tensor/core/partition/shifted_rows.hpp>

namespace espalier {

namespace detail {

[[nodiscard]] constexpr extents leading(const extents& space) {
  extents result = space;
  if (result.rank > 0) {
    result.size[result.rank - 1] = 0;
    --result.rank;
  }
  return result;
}
[[nodiscard]] constexpr std::int64_t columns_of(const extents& space) {
  return space.rank == 0 ? 1 : space[space.rank - 1];
}

/// Whether a reduction can be part of a chain over its operand's shape, and as what. `is_cut`: its rows are.
[[nodiscard]] constexpr fused_role reduction_role(const instruction& i, const extents& from, bool is_cut) {
  // A single long row is reduced by the kernel of its own, which shares it out.
  if (from.rank == 0 || (is_cut && from.rank == 1)) return fused_role::not_fusable;
  const std::int64_t last = std::int64_t{1} << (from.rank - 1);
  const std::int64_t dims = attributes_of<reduction_attributes>(i).dims;
  if (dims == last) return fused_role::narrow;
  if (is_cut) return fused_role::not_fusable;
  if (dims == last - 1 && from.rank > 1 && i.op->linear == linearity::first) return fused_role::accumulator;
  return fused_role::not_fusable;
}

/// A broadcast that repeats one value per row along the columns.
[[nodiscard]] constexpr bool repeats_rows(const instruction& b, const extents& from) {
  if (b.shape.rank != from.rank + 1 || from.elements() * columns_of(b.shape) != b.shape.elements()) return false;
  for (int d = 0; d < from.rank; ++d) {
    if (broadcast_target(b, d) != d) return false;
  }
  return true;
}

/// Fused instructions that may still become more.
struct growing_chain {
  extents space;
  int head = -1;
  int tail = -1;
  int count = 0;
  /// Row reductions among them.
  int reductions = 0;
  bool open = true;
  /// Set when this chain has become part of another.
  int merged_into = -1;
};

/// The progress of a schedule, in arrays that outlive a constant evaluation.
template <int Instructions> struct schedule_progress {
  static constexpr int room = Instructions > 0 ? Instructions : 1;
  fixed_schedule<Instructions> schedule;
  /// True for virtual values that have to be in memory all the same.
  bool stored[room]{};
  int group[room]{};
  int next[room]{};
  growing_chain chains[room]{};
  int chain_count = 0;
  int first_open = 0;
};

/// The limit of passes over a row: as many as the masks of a lowered chain have bits for, and a few.
inline constexpr int most_reductions_of_cut_rows = 48;

class scheduler {
 public:
  constexpr explicit scheduler(graph_view g, row_limits limits = {})
      : g_(g),
        limits_(limits),
        stored_(g.size, false),
        group_(g.size, -1),
        role_(g.size, fused_role::not_fusable),
        next_(g.size, -1) {
    result_.launch_of.resize(g.size, -1);
    // Readers first: what a broadcast repeats is read in memory if the broadcast itself is stored.
    shift_finder shifts(g);
    for (int id = g.size - 1; id >= 0; --id) find_stored(id, shifts);
  }
  /// Goes on with what an earlier evaluation made.
  template <int Instructions>
  constexpr scheduler(graph_view g, const schedule_progress<Instructions>& from) : g_(g), first_open_(from.first_open) {
    copy(result_.launches, &from.schedule.launches[0], from.schedule.launch_count);
    copy(result_.order, &from.schedule.order[0], from.schedule.ordered_count);
    copy(result_.launch_of, &from.schedule.launch_of[0], g.size);
    copy(role_, &from.schedule.role[0], g.size);
    copy(stored_, &from.stored[0], g.size);
    copy(group_, &from.group[0], g.size);
    copy(next_, &from.next[0], g.size);
    copy(chains_, &from.chains[0], from.chain_count);
  }

  /// Places the instructions from `first` up to `last`.
  constexpr void run(int first, int last) {
    for (int id = first; id < last; ++id) place(id);
    if (last < g_.size) return;
    close_all();
    place_results();
  }
  constexpr schedule finish() {
    find_last_launches();
    find_readers_outside();
    result_.role = static_cast<list<fused_role>&&>(role_);
    return static_cast<schedule&&>(result_);
  }
  template <int Instructions> [[nodiscard]] constexpr schedule_progress<Instructions> save() const {
    schedule_progress<Instructions> to;
    to.schedule.launch_count = result_.launches.size();
    to.schedule.ordered_count = result_.order.size();
    to.chain_count = chains_.size();
    to.first_open = first_open_;
    for (int u = 0; u < to.schedule.launch_count; ++u) to.schedule.launches[u] = result_.launches[u];
    for (int n = 0; n < to.schedule.ordered_count; ++n) to.schedule.order[n] = result_.order[n];
    for (int c = 0; c < to.chain_count; ++c) to.chains[c] = chains_[c];
    for (int id = 0; id < g_.size; ++id) {
      to.schedule.launch_of[id] = result_.launch_of[id];
      to.schedule.role[id] = role_[id];
      to.stored[id] = stored_[id];
      to.group[id] = group_[id];
      to.next[id] = next_[id];
    }
    return to;
  }

 private:
  template <class T> static constexpr void copy(list<T>& to, const T* from, int count) {
    to.resize(count);
    T* const elements = to.data();
    for (int i = 0; i < count; ++i) elements[i] = from[i];
  }

  [[nodiscard]] constexpr bool fusable(int id) const {
    const instruction& i = g_[id];
    switch (i.op->fuse) {
      case fusion::alone: return false;
      case fusion::reduction: return reduction_role_of(i, g_.operand(id, 0).shape) != fused_role::not_fusable;
      case fusion::elementwise:
      case fusion::broadcast:
      case fusion::source: return true;
    }
    return false;
  }
  [[nodiscard]] constexpr bool is_cut(const extents& space) const { return columns_of(space) > limits_.whole; }
  [[nodiscard]] constexpr fused_role reduction_role_of(const instruction& i, const extents& from) const {
    return reduction_role(i, from, is_cut(from));
  }
  /// A reduction of long rows that are in memory, from which nothing about these rows is computed: its own kernel does
  /// it in one pass, too, and needs no chain.
  [[nodiscard]] constexpr bool stays_alone(int id) const {
    const instruction& i = g_[id];
    if (i.op->fuse != fusion::reduction || !is_cut(g_.operand(id, 0).shape) || open_group(i.operand[0]) >= 0)
      return false;
    // Values that follow from it, with an element per row.
    list<bool> follows(g_.size - id, false);
    follows[0] = true;
    for (int next = id + 1; next < g_.size; ++next) {
      const instruction& reader = g_[next];
      for (int k = 0; k < reader.operand_count; ++k) {
        const int o = g_.operand_at(reader, k);
        if (o < id || !follows[o - id]) continue;
        if (reader.op->fuse == fusion::broadcast && !stored_[next] && repeats_rows(reader, i.shape)) return false;
        follows[next - id] = reader.op->fuse == fusion::elementwise && reader.shape == i.shape;
      }
    }
    return true;
  }
  [[nodiscard]] constexpr bool is_virtual(int id) const {
    return g_[id].op->fuse == fusion::broadcast || g_[id].op->fuse == fusion::source || is_shifted(id);
  }
  /// Whether readers read the elements where they were before the op moved them.
  [[nodiscard]] constexpr bool is_shifted(int id) const { return g_[id].op->shifts != nullptr && !stored_[id]; }

  /// A virtual value is stored after all if a reader cannot make it for itself.
  constexpr void find_stored(int id, shift_finder& shifts) {
    const instruction& i = g_[id];
    if (i.op->fuse == fusion::elementwise && fusable(id)) return;
    if (i.op->shifts != nullptr && !stored_[id]) {
      stored_[id] = !shifts.may_shift(id);
      const int from = i.operand[0];
      if (!stored_[id] && g_[from].op->shifts != nullptr && shifts.goes_on(id)) return;
    }
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = g_.operand_at(i, k);
      // A broadcast that its readers make reads through to what it repeats: a constant, or a stored value.
      if (i.op->fuse == fusion::broadcast && !stored_[id] && g_[o].op->facts.values == pattern::uniform) continue;
      stored_[o] = true;
    }
  }

  constexpr int root(int group) const {
    while (group >= 0 && chains_[group].merged_into >= 0) group = chains_[group].merged_into;
    return group;
  }
  [[nodiscard]] constexpr int open_group(int id) const {
    const int group = root(group_[id]);
    return group >= 0 && chains_[group].open ? group : -1;
  }

  constexpr void place(int id) {
    const instruction& i = g_[id];
    // Carries are passed on when the body is complete, and results handed out when the program is: all at once, since
    // one may be what another one is about to overwrite.
    const structure role = structure_of(i);
    if (role == structure::region_yield || role == structure::result || is_made_before(i)) return;
    if (marks_region(role)) {
      close_all();
      single(id);
    } else if (is_virtual(id)) {
      if (stored_[id]) {
        close_operands(id, -1);
        single(id);
      }
    } else if (!fusable(id) || stays_alone(id)) {
      const int with = made_with(id);
      for (int n = 0; n <= with; ++n) close_operands(id + n, -1);
      if (i.op->facts.overwrites >= 0) close_readers(g_.operand_at(i, i.op->facts.overwrites));
      single(id, with);
    } else {
      join(id);
    }
  }

  /// Part of the launch of an instruction before it: its op's further results, or collectives that travel with it.
  [[nodiscard]] static constexpr bool is_made_before(const instruction& i) {
    return is_further_result(i) || i.op->facts.travels_along;
  }
  /// Returns the number of instructions directly after `id` that are part of its launch.
  [[nodiscard]] constexpr int made_with(int id) const {
    int last = id + 1;
    while (last < g_.size && is_made_before(g_[last])) ++last;
    return last - id - 1;
  }

  /// A launch of instruction `id` and the `with` instructions after it.
  constexpr void single(int id, int with = 0) {
    result_.launch_of[id] = result_.launches.size();
    result_.launches.push_back({result_.order.size(), 1 + with, false, false, false, {}, -1, -1});
    result_.order.push_back(id);
    for (int n = 1; n <= with; ++n) {
      result_.launch_of[id + n] = result_.launch_of[id];
      result_.order.push_back(id + n);
    }
  }

  /// One launch for all results.
  constexpr void place_results() {
    launch made{result_.order.size(), 0, false, false, false, {}, -1, -1};
    for (int id = 0; id < g_.size; ++id) {
      if (structure_of(g_[id]) != structure::result) continue;
      result_.launch_of[id] = result_.launches.size();
      result_.order.push_back(id);
      ++made.count;
    }
    if (made.count > 0) result_.launches.push_back(made);
  }
  /// What a region yields is passed on in the launch that ends it.
  constexpr void find_last_launches() {
    for (const region& one : region_table(g_)) {
      for (const int yield : one.yields) result_.launch_of[yield] = result_.launch_of[one.last];
    }
  }

  /// The value that operand k really reads: of a broadcast, the value that is repeated, of a shift, the one that is
  /// moved.
  [[nodiscard]] constexpr int source_of(int o) const {
    if (g_[o].op->fuse == fusion::broadcast) return g_[o].operand[0];
    while (is_shifted(o)) o = g_[o].operand[0];
    return o;
  }

  constexpr void join(int id) {
    const instruction& i = g_[id];
    int target = -1;
    for (int k = 0; k < i.operand_count; ++k) {
      const int group = open_group(source_of(g_.operand_at(i, k)));
      if (group < 0 || group == target) continue;
      if (role_in(id, group) == fused_role::not_fusable) continue;
      if (target < 0) {
        target = group;
      } else if (chains_[group].space == chains_[target].space && chains_[group].count + chains_[target].count <= 96 &&
                 chains_[group].reductions + chains_[target].reductions < most_reductions_of_cut_rows) {
        target = merge(target, group);
      }
    }
    if (target >= 0 && chains_[target].count > 128) target = -1;
    close_operands(id, target);
    if (target < 0) {
      growing_chain made;
      made.space = i.op->fuse == fusion::reduction ? g_.operand(id, 0).shape : i.shape;
      target = chains_.push_back(made);
    }
    role_[id] = role_in(id, target);
    group_[id] = target;
    append(chains_[target], id);
  }

  constexpr void append(growing_chain& c, int id) {
    if (c.tail < 0) {
      c.head = id;
    } else {
      next_[c.tail] = id;
    }
    c.tail = id;
    ++c.count;
    if (g_[id].op->fuse == fusion::reduction && is_cut(c.space)) ++c.reductions;
  }

  /// Both chains in program order.
  constexpr int merge(int a, int b) {
    growing_chain& one = chains_[a];
    growing_chain& other = chains_[b];
    int i = one.head;
    int j = other.head;
    one.head = one.tail = -1;
    one.count = one.reductions = 0;
    while (i >= 0 || j >= 0) {
      const bool take_i = j < 0 || (i >= 0 && i < j);
      const int id = take_i ? i : j;
      (take_i ? i : j) = next_[id];
      append(one, id);
    }
    next_[one.tail] = -1;
    other.open = false;
    other.merged_into = a;
    return a;
  }

  /// The role that instruction `id` would have in a group, if it can join at all.
  [[nodiscard]] constexpr fused_role role_in(int id, int group) const {
    const instruction& i = g_[id];
    const extents& space = chains_[group].space;
    fused_role role = fused_role::not_fusable;
    if (i.op->fuse == fusion::reduction) {
      if (chains_[group].reductions + 1 == most_reductions_of_cut_rows) return role;
      if (g_.operand(id, 0).shape == space) role = reduction_role_of(i, space);
      const int o = i.operand[0];
      if (open_group(o) == group && role_[o] != fused_role::wide) return fused_role::not_fusable;
      if (open_group(o) != group && open_group(source_of(o)) == group) return fused_role::not_fusable;
      return role;
    }
    if (i.shape == space) {
      role = fused_role::wide;
    } else if (i.shape == leading(space)) {
      role = fused_role::narrow;
    } else {
      return role;
    }
    for (int k = 0; k < i.operand_count; ++k) {
      const int o = g_.operand_at(i, k);
      const int source = source_of(o);
      // Neighbouring rows are complete when a chain is.
      if (is_shifted(o) && (role != fused_role::wide || root(group_[source]) == group)) return fused_role::not_fusable;
      if (root(group_[source]) != group) continue;
      const bool repeated = source != o;
      const bool fits = repeated ? role == fused_role::wide && role_[source] == fused_role::narrow &&
                                       repeats_rows(g_[o], g_[source].shape)
                                 : role_[source] == role;
      if (!fits) return fused_role::not_fusable;
    }
    return role;
  }

  /// Whatever the instruction reads from other groups has to be complete before it runs.
  constexpr void close_operands(int id, int except) {
    for (int k = 0; k < g_[id].operand_count; ++k) {
      const int o = g_.operand_at(g_[id], k);
      for (const int source : {o, source_of(o)}) {
        const int group = open_group(source);
        if (group >= 0 && group != except) close(group);
      }
    }
  }

  /// Values that are to be overwritten are read before.
  constexpr void close_readers(int overwritten) {
    const int memory = in_memory_of(overwritten);
    for (int group = first_open_; group < chains_.size(); ++group) {
      if (chains_[group].open && reads(group, memory)) close(group);
    }
  }
  [[nodiscard]] constexpr bool reads(int group, int memory) const {
    for (int id = chains_[group].head; id >= 0; id = next_[id]) {
      for (int k = 0; k < g_[id].operand_count; ++k) {
        if (in_memory_of(source_of(g_.operand_at(g_[id], k))) == memory) return true;
      }
    }
    return false;
  }
  [[nodiscard]] constexpr int in_memory_of(int id) const {
    while (g_[id].op->facts.shares_operand) id = g_[id].operand[0];
    return id;
  }

  constexpr void close(int group) {
    growing_chain& c = chains_[group];
    c.open = false;
    launch made{result_.order.size(), c.count, true, is_cut(c.space), c.reductions > 0, c.space, -1, -1};
    for (int id = c.head; id >= 0; id = next_[id]) {
      result_.launch_of[id] = result_.launches.size();
      result_.order.push_back(id);
    }
    result_.launches.push_back(made);
  }
  constexpr void close_all() {
    for (int group = first_open_; group < chains_.size(); ++group) {
      if (chains_[group].open) close(group);
    }
    first_open_ = chains_.size();
  }

  constexpr void find_readers_outside() {
    result_.stored.resize(g_.size, false);
    for (int id = 0; id < g_.size; ++id) {
      if (result_.launch_of[id] < 0) continue;
      if (!result_.launches[result_.launch_of[id]].fused) result_.stored[id] = true;
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int o = g_.operand_at(g_[id], k);
        const int source = result_.launch_of[o] < 0 ? source_of(o) : o;
        if (result_.launch_of[source] >= 0 && result_.launch_of[source] != result_.launch_of[id]) {
          result_.stored[source] = true;
        }
      }
      if (role_[id] == fused_role::accumulator) result_.stored[id] = true;
    }
  }

  graph_view g_;
  row_limits limits_;
  schedule result_;
  list<bool> stored_;
  list<int> group_;
  list<fused_role> role_;
  list<int> next_;
  list<growing_chain> chains_;
  int first_open_ = 0;
};

}  // namespace detail

/// Groups instructions into launches and puts these in order: a chain of fused ops runs when its first reader outside
/// needs it.
[[nodiscard]] constexpr schedule make_schedule(graph_view g, row_limits limits = {}) {
  detail::scheduler whole(g, limits);
  whole.run(0, g.size);
  return whole.finish();
}

/// The same in arrays. @pre the graph has `Instructions` instructions.
template <int Instructions> [[nodiscard]] constexpr fixed_schedule<Instructions> freeze_schedule(const schedule& s) {
  fixed_schedule<Instructions> result;
  result.launch_count = s.launches.size();
  result.ordered_count = s.order.size();
  for (int u = 0; u < result.launch_count; ++u) result.launches[u] = s.launches[u];
  for (int n = 0; n < result.ordered_count; ++n) result.order[n] = s.order[n];
  for (int id = 0; id < Instructions; ++id) {
    result.launch_of[id] = s.launch_of[id];
    result.role[id] = s.role[id];
    result.stored[id] = s.stored[id];
    if (!s.in_rows.empty()) result.in_rows[id] = s.in_rows[id];
  }
  return result;
}

}  // namespace espalier
