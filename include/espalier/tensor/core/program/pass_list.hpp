// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/agree_on_regions.hpp>
#include <espalier/tensor/core/partition/join_halos.hpp>
#include <espalier/tensor/core/partition/merge_collectives.hpp>
#include <espalier/tensor/core/partition/reduce_after_loops.hpp>
#include <espalier/tensor/core/partition/send_from_owners.hpp>
#include <espalier/tensor/core/partition/sums_by_rows.hpp>
#include <espalier/tensor/core/program/common_subexpressions.hpp>
#include <espalier/tensor/core/program/keep_frames.hpp>
#include <espalier/tensor/core/program/normalise.hpp>

namespace espalier {

/// A step from one graph to the next that leaves its meaning as it is.
struct pass {
  const char* name = "";
  graph (*run)(const mesh_shape&, graph_view) = nullptr;
};

namespace detail {
[[nodiscard]] constexpr graph run_normalise(const mesh_shape& mesh, graph_view g) {
  graph made = normalise(g);
  if (mesh.devices() > 1) keep_frames(made);
  return made;
}
[[nodiscard]] constexpr graph merge_computations(const mesh_shape&, graph_view g) {
  return merge_common_subexpressions(g, false);
}
[[nodiscard]] constexpr graph merge_all(const mesh_shape& mesh, graph_view g) {
  const auto merged = [&](graph_view from) {
    graph made = join_halos(mesh, merge_common_subexpressions(from));
    agree_on_regions(mesh, made);
    reduce_by_rows(made);
    return made;
  };
  const bool accumulates = loop_accumulations::are_possible(g);
  const bool sends_rows = owner_sending::are_possible(g);
  if (!accumulates && !sends_rows) return merged(g);
  if (!sends_rows) return merged(reduce_after_loops(mesh, g));
  if (!accumulates) return merged(send_from_owners(mesh, g));
  return merged(send_from_owners(mesh, reduce_after_loops(mesh, g)));
}
}  // namespace detail

// The passes, in order. The compiler walks these lists (each pass a constant of its own, program/passes.hpp), and so do
// tests with graphs that are made at run time.

/// The passes from the traced graph to the completed one: on whole tensors. After the first pass no unused instruction
/// is left.
inline constexpr pass passes_on_tensors[]{
    {"normalise", detail::run_normalise},
    {"merge_computations", detail::merge_computations},
};
/// The passes from the partitioned graph to the schedule: on buffers of one device. The graph is completed and
/// partitioned between the two lists. The last pass decides when collectives start, the others which instructions are
/// computed.
inline constexpr pass passes_on_buffers[]{
    {"merge_all", detail::merge_all},
    {"merge_collectives", merge_collectives},
};
template <int Count> [[nodiscard]] constexpr int length_of(const pass (&)[Count]) { return Count; }

/// The first `count` passes of a list.
template <int Count>
[[nodiscard]] constexpr graph run_passes(const pass (&list)[Count], const mesh_shape& mesh, graph_view g,
                                         int count = Count) {
  graph result = list[0].run(mesh, g);
  for (int n = 1; n < count; ++n) result = list[n].run(mesh, result);
  return result;
}

}  // namespace espalier
