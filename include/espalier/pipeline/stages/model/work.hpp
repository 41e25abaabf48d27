// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>
#include <espalier/pipeline/stages/layers/layer.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>
#include <espalier/tensor/core/partition/machine.hpp>

namespace espalier::pipeline {

/// The work of a graph's instructions. Ops that can pass over rows together read and write only what others of them do
/// not hand on; views, constants and what is there already cost nothing.
[[nodiscard]] constexpr work_facts work_of(graph_view g) {
  const auto passes = [&](int id) { return g[id].op->fuse != fusion::alone; };
  const auto costs_nothing = [&](int id) {
    const op_facts& facts = g[id].op->facts;
    return facts.part != structure::none || facts.values != pattern::none || facts.shares_operand;
  };
  const auto bytes_of = [&](int id) {
    return static_cast<double>(g[id].shape.elements()) * static_cast<double>(size_of(g[id].type));
  };
  espalier::detail::list<bool> is_stored(g.size, false);  // somebody outside its chain reads it
  for (int id = 0; id < g.size; ++id)
    for (int k = 0; k < g[id].operand_count; ++k)
      if (costs_nothing(id) || !passes(id) || !passes(g.operand_at(g[id], k))) is_stored[g.operand_at(g[id], k)] = true;
  work_facts sum;
  for (int id = 0; id < g.size; ++id) {
    if (costs_nothing(id)) continue;
    double times = 1;
    for (int region = g[id].region; region >= 0; region = g[region].region)
      times *= static_cast<double>(attributes_of<region_attributes>(g[region]).iterations);
    const op_info& op = *g[id].op;
    const double operations = op.flops == nullptr ? 0 : static_cast<double>(op.flops(g.view(id)));
    double elements = static_cast<double>(g[id].shape.elements());
    double moved = is_stored[id] || !passes(id) ? bytes_of(id) : 0;
    for (int k = 0; k < g[id].operand_count; ++k) {
      const int from = g.operand_at(g[id], k);
      elements += static_cast<double>(g[from].shape.elements());
      if (g[from].op->facts.values == pattern::none && (is_stored[from] || !passes(from))) moved += bytes_of(from);
    }
    if (operations < static_cast<double>(bound_by_memory_below) * elements) {
      sum.bytes += times * moved;
    } else {
      sum.operations += times * operations;
    }
  }
  return sum;
}

}  // namespace espalier::pipeline
