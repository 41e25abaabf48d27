// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/list.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/graph/op.hpp>

namespace espalier::detail {

/// Returns the annotation that completion followed to value `id` of a traced program, or -1: causes are followed back
/// until an argument or an annotation that was written by hand.
/// @param cause for each value, the one that its layout was taken from
[[nodiscard]] constexpr int annotation_behind(graph_view traced, const int* cause, int id) {
  for (int steps = 0; steps < traced.size && id >= 0; ++steps) {
    if (traced[id].annotation >= 0 || cause[id] == id) break;
    id = cause[id];
  }
  return id < 0 || traced[id].annotation < 0 ? -1 : id;
}

/// The number of tensors in a traced program, and of those whose layout the user gave.
struct annotation_count {
  int values = 0;
  int annotated = 0;
};

/// Whether an instruction computes a tensor: not an annotation, a result, a look or a mark of a loop.
[[nodiscard]] constexpr bool is_tensor(const instruction& i) {
  switch (structure_of(i)) {
    case structure::result:
    case structure::region_begin:
    case structure::region_yield:
    case structure::region_end: return false;
    default: return requests_of(i) == layout_request::none && !i.op->facts.looks;
  }
}

/// Counts the tensors that the user annotated. In `shard<data>(relu(matmul(x, w)))` of two arguments without layouts
/// that is one of four. An annotation of a gradient, which differentiation repeats, is not the user's.
[[nodiscard]] constexpr annotation_count count_annotations(graph_view traced) {
  annotation_count count;
  list<bool> marked(traced.size, false);
  for (int id = 0; id < traced.size; ++id) {
    const instruction& i = traced[id];
    if (is_tensor(i)) ++count.values;
    if (i.annotation < 0) continue;
    int of = id;
    if (requests_of(i) == layout_request::annotation && attributes_of<annotation_attributes>(i).of_gradient) continue;
    while (!is_tensor(traced[of]) && traced[of].operand_count > 0) of = traced[of].operand[0];
    if (marked[of]) continue;
    marked[of] = true;
    ++count.annotated;
  }
  return count;
}

}  // namespace espalier::detail
