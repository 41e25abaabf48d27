// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factors.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>

namespace espalier::detail {

/// A completed graph as the partitioner reads it: the layouts that completion chose, the factor rules, and the readers
/// of each value. It does not change while the graph is partitioned.
struct completed_program {
  constexpr completed_program(const mesh_shape& devices, graph_view graph, const factor_rule* rule_of,
                              const sharding* layout_of)
      : mesh(devices), g(graph), rules(rule_of), of(layout_of), readers(graph.size, 0), last_reader(graph.size, -1) {
    find_readers();
    leave_out_axes_of_one();
  }
  completed_program(const completed_program&) = delete;
  completed_program& operator=(const completed_program&) = delete;
  constexpr ~completed_program() = default;

  /// Whether an instruction in a loop converts floats of sixteen bits to the type that the terms of their sums have
  /// anyway (`device_values`): it does nothing to terms, which the loop may then add up. The sum is not rounded to
  /// sixteen bits in between, so outside of loops, where it is reduced once either way, it is rounded as on one device.
  [[nodiscard]] constexpr bool widens(const instruction& i) const {
    if (!i.op->facts.converts || i.region < 0) return false;
    const dtype from = g[i.operand[0]].type;
    return is_for_storage(from) && i.type == facts_of(from).accumulate;
  }

  const mesh_shape& mesh;
  graph_view g;
  const factor_rule* rules;
  const sharding* of;
  /// The number of instructions that read each value, and the last of them.
  list<int> readers;
  list<int> last_reader;
  /// Some instruction looks at a value.
  bool has_looks = false;
  /// Some annotation keeps a sum partial.
  bool keeps_sums = false;
  /// The element type in which the program's sums travel, if it names one.
  bool has_narrow_sums = false;
  dtype narrow_sums = dtype::f32;

 private:
  constexpr void find_readers() {
    int* const count = readers.data();
    int* const last = last_reader.data();
    for (int id = 0; id < g.size; ++id) {
      const instruction& i = g.code[id];
      if (structure_of(i) == structure::result) {
        const int sums = attributes_of<border_attributes>(i).sums_travel_as;
        has_narrow_sums = has_narrow_sums || sums > 0;
        if (sums > 0) narrow_sums = static_cast<dtype>(sums - 1);
      }
      has_looks = has_looks || i.op->facts.looks;
      for (int k = 0; k < i.operand_count && !i.op->facts.looks; ++k) {
        ++count[g.operand_at(i, k)];
        last[g.operand_at(i, k)] = id;
      }
      keeps_sums = keeps_sums || of[id].unreduced != 0;
    }
  }
  /// Axes of one device split nothing, and nothing is partial on them.
  constexpr void leave_out_axes_of_one() {
    const axis_mask trivial = axes_of_one(mesh);
    if ((trivial & ((1U << static_cast<unsigned>(mesh.rank)) - 1U)) == 0) return;
    nontrivial_.reserve(g.size);
    for (int id = 0; id < g.size; ++id) nontrivial_.push_back(without_axes(of[id], trivial));
    of = nontrivial_.data();
  }

  list<sharding> nontrivial_;
};

}  // namespace espalier::detail
