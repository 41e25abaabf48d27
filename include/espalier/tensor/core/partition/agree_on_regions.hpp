// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/collectives.hpp>
#include <espalier/tensor/core/partition/local_program.hpp>

namespace espalier {

namespace detail {

/// Finds the values on which devices have to agree, since a region that communicates runs as often as they say.
///
/// A value that is computed from integers and truth values alone is the same on all devices. One that is computed from
/// floats may not be: sums are added up in other orders on other numbers of threads. So may the number of iterations of
/// a loop that depends on such a value, even if it does not communicate itself. Of floats, single numbers are the same
/// that an all_reduce brings (`comm::Communicator` promises the same bits on all members), and what is computed from
/// those element by element; so are truth values and integers that it brings, whatever they were made of. If others
/// come in only from outside of a loop, devices agree on these once, before it.
class region_agreement {
 public:
  constexpr region_agreement(const mesh_shape& mesh, graph_view g)
      : mesh_(mesh),
        g_(g),
        regions_(g),
        axes_(g.size, 0),
        agreed_(g.size, 0),
        source_for_(g.size, -1),
        follows_sources_(g.size, false) {}

  /// Whether there is a region for which it is not known how often it runs.
  [[nodiscard]] static constexpr bool is_possible(const mesh_shape& mesh, graph_view g) {
    return mesh.devices() > 1 && has_uncounted_regions(g);
  }

  /// True if there is such a value.
  constexpr bool find() {
    for (int id = 0; id < g_.size; ++id) {
      if (const axis_mask axes = axes_of(id); axes != 0) demand(g_[id].region, axes);
    }
    while (!work_.empty()) {
      const int begin = work_.back();
      work_.pop_back();
      const region& of = regions_.beginning_at(begin);
      // What decides before a loop and in it is often made of the same numbers.
      const bool is_loop = of.goes_on >= 0;
      if (of.entry >= 0) decide_alike(kept_from(of.entry), axes_[begin], is_loop ? begin : g_[begin].region);
      if (is_loop) decide_alike(kept_from(of.goes_on), axes_[begin], begin);
    }
    for (int id = 0; id < g_.size; ++id) {
      if (agreed_[id] != 0) return true;
    }
    return false;
  }

  /// The same program, in which devices agree: on a truth value that holds on one of them, and on the largest number.
  constexpr graph run() {
    edit_ = graph_editor(g_);
    for (int id = 0; id < g_.size; ++id) {
      if (!waiting_.empty() && !stays_with_others(id)) agree();
      instruction& i = edit_[id];
      const structure part = structure_of(i);
      for (int k = 0; k < i.operand_count; ++k) {
        int& operand = edit_.operand_at(i, k);
        const bool decides = (part == structure::region_begin && k == 0) || (part == structure::region_end && k == 1) ||
                             part == structure::loop_stack;
        const bool follows = follows_sources_[id] && source_for_[operand] >= 0;
        if (const int agreed = decides || follows ? agreed_value(operand) : -1; agreed >= 0) operand = agreed;
      }
      edit_.place(id);
      if (agreed_[id] != 0) waiting_.push_back(id);
    }
    return edit_.finish();
  }

 private:
  /// The axes along which the instruction communicates, or along which what it computes is yet to be added up.
  [[nodiscard]] constexpr axis_mask axes_of(int id) const {
    const instruction& i = g_[id];
    if (i.region < 0) return 0;
    axis_mask axes = i.annotation < 0 ? 0 : g_.annotations[i.annotation].placement.unreduced;
    if (communicates(i)) axes |= attributes_of<collective_attributes>(i).axes;
    return axes & ~axes_of_one(mesh_);
  }

  /// Devices along these axes run a region, and those around it, equally often.
  constexpr void demand(int begin, axis_mask axes) {
    for (; begin >= 0; begin = g_[begin].region) {
      if ((axes & ~axes_[begin]) == 0) continue;
      axes_[begin] |= axes;
      work_.push_back(begin);
    }
  }

  /// The value that was stacked, of one that is a layer of a stack: what has decided in an iteration decides in the
  /// gradient, too, so that it is what devices have agreed on that is kept.
  [[nodiscard]] constexpr int kept_from(int id) const {
    while (structure_of(g_[id]) == structure::loop_slice &&
           structure_of(g_[g_[id].operand[0]]) == structure::loop_stack)
      id = g_[g_[id].operand[0]].operand[0];
    return id;
  }

  /// Whether an instruction is in a region, or in one inside of it. Nothing is outside of the program (-1).
  [[nodiscard]] constexpr bool is_inside(int id, int begin) const {
    if (begin < 0) return true;
    int region = g_[id].region;
    while (region >= 0 && region != begin) region = g_[region].region;
    return region == begin;
  }
  /// Whether nothing is yet to be added up.
  [[nodiscard]] constexpr bool is_complete(int id) const {
    return g_[id].annotation < 0 || g_.annotations[g_[id].annotation].placement.unreduced == 0;
  }
  /// Whether a float is the same on devices along these axes, provided that what it is computed from is.
  [[nodiscard]] constexpr bool is_single(int id) const {
    const instruction& i = g_[id];
    const structure part = structure_of(i);
    const bool is_pointwise = i.op->fuse == fusion::elementwise && !i.op->positional && collective_index(i.op) < 0;
    return i.shape.rank == 0 && (part == structure::none ? is_pointwise : part == structure::region_parameter);
  }
  /// Whether devices along these axes have got the same from an all_reduce: of floats, to the last bit.
  [[nodiscard]] constexpr bool is_reduced(int id, axis_mask axes) const {
    return is_collective(g_[id].op, collective::all_reduce) && (g_[id].shape.rank == 0 || !is_floating(g_[id].type)) &&
           (axes & ~attributes_of<collective_attributes>(g_[id]).axes) == 0;
  }

  /// Devices along these axes have the same of a value that decides how often region `begin` runs: either it is made of
  /// what all of them have, or they agree on it, or on what it is made of.
  constexpr void decide_alike(int value, axis_mask axes, int begin) {
    list<bool> seen(g_.size, false);
    list<int> open;
    list<int> sources;
    open.push_back(value);
    seen[value] = true;
    while (!open.empty()) {
      const int id = open.back();
      open.pop_back();
      const instruction& i = g_[id];
      if (is_reduced(id, axes)) continue;
      if (is_floating(i.type) && i.op->facts.values == pattern::none) {
        const bool is_outside = !is_inside(id, begin);
        if (!is_single(id) || (is_outside && structure_of(i) != structure::none)) {
          if (is_outside && i.shape.rank == 0 && is_complete(id)) {
            sources.push_back(id);
            continue;
          }
          agreed_[value] |= axes;
          return;
        }
      }
      const auto read = [&](int other) {
        if (other < 0 || seen[other] || structure_of(g_[other]) == structure::region_begin) return;
        seen[other] = true;
        open.push_back(other);
      };
      for (int k = 0; k < i.operand_count; ++k) read(g_.operand_at(i, k));
      if (structure_of(i) == structure::region_parameter) read(regions_.yield_of(id));
      // What a loop leaves behind follows from the number of its iterations.
      if (reads_region(structure_of(i))) demand(g_[i.operand[0]].region, axes);
    }
    if (sources.empty()) return;
    for (const int id : sources) {
      agreed_[id] |= axes;
      source_for_[id] = begin;
    }
    for (int id = 0; id < g_.size; ++id) follows_sources_[id] = follows_sources_[id] || seen[id];
  }

  /// Instructions that follow what they belong to: nothing comes between them.
  [[nodiscard]] constexpr bool stays_with_others(int id) const {
    const instruction& i = g_[id];
    return is_further_result(i) || i.op->facts.travels_along || reads_region(structure_of(i)) ||
           structure_of(i) == structure::region_parameter;
  }

  struct agreement {
    int value = -1;
    int agreed = -1;
  };
  [[nodiscard]] constexpr int agreed_value(int value) const {
    for (const agreement& one : agreements_) {
      if (one.value == value) return one.agreed;
    }
    return -1;
  }
  constexpr int append(instruction made, int like, const sharding& placement) {
    const instruction& value = g_[like];
    made.type = value.type;
    made.annotation = edit_.annotate({extents{}, placement});
    made.region = value.region;
    made.origin = value.origin;
    made.where = source_for_[like] < 0 ? value.where : g_[source_for_[like]].where;
    return edit_.append(made);
  }
  /// The values that wait for it: every device has a term of the largest one.
  constexpr void agree() {
    for (const int id : waiting_) {
      sharding terms = sharding::whole(0);
      terms.unreduced = agreed_[id];
      const int term = append(builder::make(ops::copy, g_[id].type, extents{}, id), id, terms);
      instruction largest = builder::make(op_of(collective::all_reduce), g_[id].type, extents{}, term);
      set_attributes(largest, collective_attributes{.axes = agreed_[id], .combine = reduction::max});
      agreements_.push_back({id, append(largest, id, sharding::whole(0))});
    }
    waiting_.clear();
  }

  const mesh_shape& mesh_;
  graph_view g_;
  region_table regions_;
  /// By `region_begin`: the axes along which devices run a region equally often.
  list<axis_mask> axes_;
  /// The axes along which devices agree on a value.
  list<axis_mask> agreed_;
  /// The loop that asks for it, if a value is agreed on of which the one that decides is made.
  list<int> source_for_;
  /// What is computed on the way from such values to one that decides.
  list<bool> follows_sources_;
  /// Regions whose axes have grown.
  list<int> work_;
  graph_editor edit_;
  list<int> waiting_;
  list<agreement> agreements_;
};

}  // namespace detail

/// Lets devices agree on what decides how often a region runs, where they might part ways and wait for each other: by
/// an all_reduce of one number. Regions that do not communicate, and values that are made of integers alone, need none.
/// @pre the graph is partitioned
constexpr void agree_on_regions(const mesh_shape& mesh, graph& g) {
  if (!detail::region_agreement::is_possible(mesh, g)) return;
  detail::region_agreement all(mesh, g);
  if (!all.find()) return;
  graph made = all.run();
  g = static_cast<graph&&>(made);
}

}  // namespace espalier
