// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/crossing.hpp>
#include <espalier/tensor/core/program/repeat_widened.hpp>

namespace espalier {

namespace detail {

/// Returns for each instruction the one that represents its indivisible group: an outermost loop, to which its results,
/// stacks and sums belong, an op with all of its results, or the instruction itself.
/// @pre the graph is normalised
[[nodiscard]] constexpr list<int> indivisible_groups(graph_view g) {
  list<int> whole(g.size, -1);
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    if (i.region >= 0) {
      whole[id] = whole[i.region];
    } else if (structure_of(i) == structure::region_end || reads_region(structure_of(i)) || is_further_result(i)) {
      whole[id] = whole[i.operand[0]];
    } else {
      whole[id] = id;
    }
  }
  return whole;
}

}  // namespace detail

/// The label of what no result needs.
inline constexpr int no_segment = 1 << 30;

namespace detail {

/// Gives each op that looks at a value (`print`) the segment of that value, since no result needs it. A value that is
/// needed only by such ops is computed as early as its operands.
constexpr void label_looks(graph_view g, const list<int>& whole, list<int>& segment) {
  list<bool> is_looked_at(g.size, false);
  bool any = false;
  for (int id = g.size - 1; id >= 0; --id) {
    if (g[id].op->facts.looks && segment[whole[id]] == no_segment) is_looked_at[whole[id]] = true;
    if (!is_looked_at[whole[id]]) continue;
    any = true;
    for (int k = 0; k < g[id].operand_count; ++k) {
      const int operand = whole[g.operand_at(g[id], k)];
      if (segment[operand] == no_segment) is_looked_at[operand] = true;
    }
  }
  if (!any) return;
  list<int> label(g.size, 0);
  for (int id = 0; id < g.size; ++id) {
    if (!is_looked_at[whole[id]]) {
      label[id] = segment[whole[id]];
      continue;
    }
    int& own = label[whole[id]];
    for (int k = 0; k < g[id].operand_count; ++k) {
      const int operand = label[whole[g.operand_at(g[id], k)]];
      if (operand != no_segment && operand > own) own = operand;
    }
  }
  for (int id = 0; id < g.size; ++id) {
    if (is_looked_at[whole[id]]) segment[whole[id]] = label[whole[id]];
  }
}

}  // namespace detail

/// Labels for `cut`: by instruction, the first segment that needs it, where `segment_of_result(number)` says in which
/// segment each result is handed out. A loop is not divided: it belongs, with its results, stacks and sums, to the
/// first segment that needs any of them, and hands the rest on. A look (`print`) belongs to the segment whose value it
/// shows.
/// @pre the graph is normalised
template <class SegmentOfResult>
[[nodiscard]] constexpr detail::list<int> segments_by_results(graph_view g, const SegmentOfResult& segment_of_result) {
  const detail::list<int> whole = detail::indivisible_groups(g);
  detail::list<int> segment(g.size, no_segment);
  for (int id = g.size - 1; id >= 0; --id) {
    const instruction& i = g[id];
    if (structure_of(i) == structure::result)
      segment[id] = segment_of_result(attributes_of<border_attributes>(i).number);
    const int own = segment[whole[id]];
    for (int k = 0; k < i.operand_count; ++k) {
      int& operand = segment[whole[g.operand_at(i, k)]];
      if (own < operand) operand = own;
    }
  }
  detail::label_looks(g, whole, segment);
  for (int id = 0; id < g.size; ++id) segment[id] = segment[whole[id]];
  return segment;
}

/// The numbers of arguments and results across a cut. A value that a segment hands on is a result with the next free
/// number; for the segments after it, result r is argument `arguments` + r. Both have the annotation of the value that
/// is handed on.
struct cut_numbers {
  int arguments = 0;  ///< of the whole graph
  int results = 0;    ///< numbers that have been given
  /// Results below this number may be read by later segments where they are: handing them on costs nothing.
  int readable = 0;
};

/// A graph in two segments. Together they have the results of the whole.
struct cut_graph {
  graph early;
  graph late;
};

namespace detail {

class graph_cutter {
 public:
  constexpr graph_cutter(graph_view g, const list<int>& segment, int last_early, cut_numbers numbers)
      : g_(g),
        numbers_(numbers),
        is_early_(g.size, false),
        may_be_early_(g.size, false),
        is_late_(g.size, false),
        handed_on_as_(g.size, -1),
        node_(g.size, -1),
        needed_(g.size, false) {
    list<bool> read_early(g.size, false);
    for (int id = 0; id < g.size; ++id) {
      is_early_[id] = !is_argument(id) && segment[id] <= last_early;
      for (int k = 0; k < g[id].operand_count && is_early_[id]; ++k) read_early[g.operand_at(g[id], k)] = true;
    }
    for (int id = 0; id < g.size; ++id) {
      bool may = !is_early_[id] && segment[id] != no_segment && is_repeatable(id);
      for (int k = 0; k < g[id].operand_count; ++k) {
        const int o = g.operand_at(g[id], k);
        may = may && (is_argument(o) ? read_early[o] : is_early_[o] || may_be_early_[o]);
      }
      may_be_early_[id] = may;
      is_late_[id] = !is_argument(id) && !is_early_[id] && !may && segment[id] != no_segment;
    }
  }

  constexpr cut_graph run() {
    for (int id = 0; id < g_.size; ++id) {
      if (structure_of(g_[id]) != structure::result || !is_early_[id]) continue;
      const int number = attributes_of<border_attributes>(g_[id]).number;
      if (number < numbers_.readable) handed_on_as_[g_[id].operand[0]] = number;
    }
    const list<int> wanted = values_wanted();
    for (const int id : wanted) crossing_.is_wanted(node(id));
    crossing_.run();
    for (const int id : wanted) need(id);
    return {make_early(), make_late()};
  }

 private:
  [[nodiscard]] constexpr bool is_argument(int id) const { return structure_of(g_[id]) == structure::argument; }
  /// An argument that an earlier cut handed on: to need it longer takes memory.
  [[nodiscard]] constexpr bool was_handed_on(int id) const {
    return is_argument(id) && attributes_of<border_attributes>(g_[id]).number >= numbers_.arguments + numbers_.readable;
  }

  /// True if it takes no work to speak of, so the late segment may compute it once more.
  [[nodiscard]] constexpr bool is_repeatable(int id) const {
    const instruction& i = g_[id];
    if (i.region >= 0 || i.op->facts.bound_to_region || structure_of(i) != structure::none) return false;
    if (requests_of(i) == layout_request::annotation && g_.annotations[i.annotation].placement.unreduced != 0)
      return false;
    return i.operand_count == 0 || i.op->facts.cheap_to_repeat || is_from_sixteen_bits(g_.code, id);
  }

  /// Returns the values that the late segment reads and does not have to compute.
  [[nodiscard]] constexpr list<int> values_wanted() const {
    list<int> wanted;
    for (int id = 0; id < g_.size; ++id) {
      for (int k = 0; k < g_[id].operand_count && is_late_[id]; ++k) {
        if (!is_late_[g_.operand_at(g_[id], k)]) wanted.push_back(g_.operand_at(g_[id], k));
      }
    }
    return wanted;
  }

  constexpr int node(int id) {
    if (node_[id] >= 0) return node_[id];
    const bool is_free = (is_argument(id) && !was_handed_on(id)) || handed_on_as_[id] >= 0;
    node_[id] = crossing_.add(is_free ? 0 : g_[id].shape.elements() * size_of(g_[id].type));
    const int made = node_[id];
    if (is_argument(id) ? was_handed_on(id) : !is_repeatable(id)) {
      crossing_.cannot_be_repeated(made);
    } else {
      for (int k = 0; k < g_[id].operand_count; ++k) crossing_.is_made_of(made, node(g_.operand_at(g_[id], k)));
    }
    return made;
  }

  /// The late segment has this: as an argument, or by computing it again.
  constexpr void need(int id) {
    if (needed_[id]) return;
    needed_[id] = true;
    if (is_argument(id) || crossing_.is_kept(node_[id])) return;
    for (int k = 0; k < g_[id].operand_count; ++k) need(g_.operand_at(g_[id], k));
  }
  [[nodiscard]] constexpr bool crosses(int id) const {
    return needed_[id] && !is_argument(id) && crossing_.is_kept(node_[id]);
  }

  constexpr graph make_early() {
    list<bool> wanted(g_.size, false);
    for (int id = g_.size - 1; id >= 0; --id) {
      wanted[id] = wanted[id] || is_early_[id] || crosses(id);
      for (int k = 0; k < g_[id].operand_count && wanted[id]; ++k) wanted[g_.operand_at(g_[id], k)] = true;
    }
    graph_editor early(g_);
    for (int id = 0; id < g_.size; ++id) {
      if (wanted[id]) early.place(id);
    }
    int next = numbers_.results;
    for (int id = 0; id < g_.size; ++id) {
      if (!crosses(id) || handed_on_as_[id] >= 0) continue;
      handed_on_as_[id] = next++;
      instruction result = builder::make(ops::result, g_[id].type, g_[id].shape, id);
      result.where = g_[id].where;
      result.annotation = g_[id].annotation;
      set_attributes(result, border_attributes{handed_on_as_[id]});
      early.append(result);
    }
    return early.finish();
  }

  constexpr graph make_late() const {
    graph_editor late(g_);
    for (int id = 0; id < g_.size; ++id) {
      if (crosses(id)) {
        instruction argument = builder::make(ops::argument, g_[id].type, g_[id].shape);
        argument.where = g_[id].where;
        argument.annotation = g_[id].annotation;
        set_attributes(argument, border_attributes{numbers_.arguments + handed_on_as_[id]});
        late.replace(id, late.append(argument));
      } else if (needed_[id] || is_late_[id]) {
        late.place(id);
      }
    }
    return late.finish();
  }

  graph_view g_;
  cut_numbers numbers_;
  /// The instructions that are computed early, those that are not but could be, and the rest.
  list<bool> is_early_;
  list<bool> may_be_early_;
  list<bool> is_late_;
  /// The result that each value is handed on as, or -1.
  list<int> handed_on_as_;
  cheapest_crossing crossing_;
  list<int> node_;
  list<bool> needed_;
};

}  // namespace detail

/// Cuts a graph by the labels of its instructions: those with a label up to `last_early` are the early segment, the
/// rest is the late one. (Cut the late segment again, and there are three.)
///
/// Of what the late segment reads of the early one, that is handed on which takes the fewest bytes: arguments are there
/// anyway and never handed on, and what takes no work to speak of (constants, broadcasts, comparisons, reshapes:
/// `op_facts::cheap_to_repeat`) is computed on the side, or on both sides, where less crosses so: a mask rather than
/// the numbers it is made of, a row rather than what it is broadcast to. All other work is done once, where its label
/// says.
/// @pre the graph is normalised; what an early instruction reads is early, and a loop is of one segment: as
///      `segments_by_results` labels
[[nodiscard]] constexpr cut_graph cut(graph_view g, const detail::list<int>& segment, int last_early,
                                      cut_numbers numbers) {
  return detail::graph_cutter(g, segment, last_early, numbers).run();
}

}  // namespace espalier
