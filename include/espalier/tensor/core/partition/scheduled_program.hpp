// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/partition/schedule.hpp>

namespace espalier::detail {

/// The program of one device in the order in which it runs: when which value is read.
struct scheduled_program {
  constexpr scheduled_program(graph_view graph, const schedule_view& schedule)
      : g(graph), s(schedule), regions(graph) {}

  /// The launches that begin and end a region.
  [[nodiscard]] constexpr int begins_at(int region) const { return s.launch_of[region]; }
  [[nodiscard]] constexpr int ends_at(int region) const { return s.launch_of[regions.beginning_at(region).last]; }

  /// Calls `f(value, reader, launch)` for each operand that an instruction reads.
  template <class F> constexpr void for_each_read(int id, const F& f) const {
    const instruction& i = g[id];
    const int at = s.launch_of[id];
    if (collects(structure_of(i))) {
      f(i.operand[0], i.operand[0], ends_at(g[i.operand[0]].region));
    } else if (structure_of(i) == structure::region_parameter) {
      f(initial_of(i), i.region, begins_at(i.region));
    } else if (at >= 0) {
      // A result's second operand only names the argument whose place it takes.
      const int read_operands = structure_of(i) == structure::result ? 1 : i.operand_count;
      for (int k = 0; k < read_operands; ++k) {
        const int unscaled = k < 2 ? s.launches[at].unscaled[k] : -1;
        f(unscaled >= 0 ? unscaled : g.operand_at(i, k), id, at);
      }
    }
  }

  graph_view g;
  schedule_view s;
  region_table regions;
};

}  // namespace espalier::detail
