// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/factor_axes.hpp>
#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/mesh/axis_parts.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/reshard_step.hpp>

// An axis is cut if completion finds a dimension that it splits and whose factors it does not split, though sub-axes of
// it would. The graph is then completed again on the mesh of the sub-axes: 8@x on an axis of 4 becomes (2, 4) without a
// move when x is 2 x 2 (GSPMD's tile assignments and Shardy's sub-axes say the same). All passes after that see the
// sub-axes as axes. A program that has no such dimension goes on with the mesh as it is.

namespace espalier {

namespace detail {

/// The cut of an axis: the size of its major sub-axis, or 0.
struct axis_cut {
  int axis = -1;
  int major = 0;
};

[[nodiscard]] constexpr bool is_composite(int devices) {
  for (int n = 2; n * n <= devices; ++n) {
    if (devices % n == 0) return true;
  }
  return false;
}

/// The cut after which `axes` could be read further into the factors of a dimension: [4] splits factors 2 and 4 when it
/// is 2 x 2. None if the axes leave parts of different sizes.
[[nodiscard]] constexpr axis_cut cut_for(const mesh_shape& mesh, const factor_rule& rule, factor_list factors,
                                         axis_list axes) {
  if (factors.code() < 16U || axes.empty()) return {};
  std::int64_t extent = 1;
  for (int i = 0; i < factors.size(); ++i) extent *= rule.size[factors[i]];
  if (!divides_evenly(mesh, extent, axes)) return {};
  int next = 0;
  for (int i = 0; i + 1 < factors.size(); ++i) {
    if (rule.kind[factors[i]] == factor_kind::blocked) return {};
    std::int64_t rest = rule.size[factors[i]];
    while (next < axes.size() && rest % mesh.size[axes[next]] == 0) rest /= mesh.size[axes[next++]];
    if (next == axes.size()) return {};
    if (rest == 1) continue;
    const int axis = axis_of_entry(axes[next]);
    // An order that is none of parts stays in one piece.
    if (mesh.order[axis] != nullptr) return {};
    return mesh.size[axis] % rest == 0 ? axis_cut{axis, static_cast<int>(rest)} : axis_cut{};
  }
  return {};
}

/// Whether the major part of a cut, and what splits dimension `dim` before it, split dimensions of the other side of a
/// reshape, so that nothing moves for them. Of [4, 4@x] to [2, 4, 2] an axis of 4 would be the second factor of 4 and
/// the factor of 2; the first factor of 4 is whole, so that the parts are no parts of the dimension.
/// @param dims the dimensions of this side, split as `s` says
/// @param other those of the other side, `rank` of them
[[nodiscard]] constexpr bool passes_through(const mesh_shape& mesh, const factor_rule& rule, const factor_list* dims,
                                            const sharding& s, int dim, axis_cut cut, const factor_list* other,
                                            int rank) {
  const axis_parts sub_axes = axis_parts::whole(mesh).with_cut(cut.axis, cut.major);
  const mesh_shape on = cut_mesh(mesh, sub_axes);
  factor_axes split;
  for (int d = 0; d < s.rank; ++d) {
    if (!dims[d].empty() && !s.dim[d].empty()) read_dimension(on, rule, dims[d], sub_axes.parts_of(s.dim[d]), split);
  }
  const axis_list cut_axes = sub_axes.parts_of(s.dim[dim]);
  axis_mask passed = 0;
  for (int d = 0; d < rank; ++d) {
    if (!other[d].empty()) passed |= write_dimension(on, rule, other[d], split).mask();
  }
  for (int n = 0; n < cut_axes.size(); ++n) {
    if (!has_axis(passed, cut_axes[n])) return false;
    if (axis_of_entry(cut_axes[n]) == cut.axis) break;  // the major part: it has the number of the axis
  }
  return true;
}

/// Whether arguments and results that are split by whole axes lie as before on the parts of a cut. Parts round up one
/// by one: of 6 elements an axis of 4 leaves 2, 2, 2 and 0, but axes 2 x 2 leave 2, 1, 2 and 1, which an array that
/// another program made would not fit. (What lies in between shows nowhere.)
[[nodiscard]] constexpr bool keeps_border(const mesh_shape& mesh, graph_view g, const sharding* of,
                                          const axis_parts& cut) {
  const mesh_shape parts = cut_mesh(mesh, cut);
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    const bool is_said =
        structure_of(i) == structure::result || (structure_of(i) == structure::argument && i.annotation >= 0);
    if (!is_said) continue;
    for (int d = 0; d < i.shape.rank; ++d) {
      const axis_list axes = of[id].dim[d];
      if (axes.empty() || divides_evenly(mesh, i.shape[d], axes)) continue;
      const axis_list cut_axes = cut.parts_of(axes);
      for (std::int64_t position = 0; position < mesh.parts(axes); ++position) {
        const interval before = interval_at(mesh, i.shape[d], axes, position);
        const interval after = interval_at(parts, i.shape[d], cut_axes, position);
        if (before.size != after.size || (before.size > 0 && before.start != after.start)) return false;
      }
    }
  }
  return true;
}

}  // namespace detail

/// The sub-axes into which a completed graph wants axes cut further, of which the mesh has these now; the same sub-axes
/// if none is.
/// @param mesh the mesh of the sub-axes, on which `of` are the layouts of the graph's values
[[nodiscard]] constexpr axis_parts refined_sub_axes(const mesh_shape& mesh, graph_view g, const factor_rule* rules,
                                                    const sharding* of, const axis_parts& sub_axes) {
  // Only so many axes have room for another order in lists.
  const int most = mesh.ordered == 0 ? max_axes : most_ordered_axes;
  if (sub_axes.count >= most) return sub_axes;
  bool any = false;
  for (int axis = 0; axis < mesh.rank; ++axis) any = any || detail::is_composite(mesh.size[axis]);
  if (!any) return sub_axes;
  int major[max_axes]{};
  any = false;
  const auto look = [&](const factor_rule& rule, const sharding& s, const factor_list* dims, const factor_list* other,
                        int rank) {
    for (int d = 0; d < s.rank; ++d) {
      const detail::axis_cut cut = detail::cut_for(mesh, rule, dims[d], s.dim[d]);
      if (cut.major == 0 || major[cut.axis] != 0) continue;
      if (!detail::passes_through(mesh, rule, dims, s, d, cut, other, rank)) continue;
      major[cut.axis] = cut.major;
      any = true;
    }
  };
  for (int id = 0; id < g.size; ++id) {
    if (!g[id].op->facts.regroups_dimensions) continue;
    const sharding& result = of[id];
    const sharding& operand = of[g[id].operand[0]];
    const factor_list* const results = &rules[id].result[0];
    const factor_list* const operands = rules[id].dims_of(0);
    look(rules[id], result, results, operands, operand.rank);
    look(rules[id], operand, operands, results, result.rank);
  }
  if (!any) return sub_axes;
  axis_parts result = sub_axes;
  // The last axis is cut first: the numbers of those before stay.
  for (int axis = mesh.rank - 1; axis >= 0; --axis) {
    if (major[axis] == 0 || result.count >= most) continue;
    if (detail::keeps_border(mesh, g, of, axis_parts::whole(mesh).with_cut(axis, major[axis])))
      result = result.with_cut(axis, major[axis]);
  }
  return result;
}

/// The same placement on the sub-axes of its axes.
[[nodiscard]] constexpr sharding on_sub_axes(const sharding& placement, const axis_parts& sub_axes) {
  sharding result = placement;
  for (int d = 0; d < result.rank; ++d) result.dim[d] = sub_axes.parts_of(result.dim[d]);
  result.replicated = sub_axes.parts_of(result.replicated);
  result.unreduced = sub_axes.parts_of(result.unreduced);
  return result;
}
/// A graph, with annotations that name sub-axes in the place of axes.
[[nodiscard]] constexpr graph on_sub_axes(graph_view g, const axis_parts& sub_axes) {
  graph result = detail::copy_of(g);
  for (layout& one : result.annotations) one.placement = on_sub_axes(one.placement, sub_axes);
  return result;
}

}  // namespace espalier
