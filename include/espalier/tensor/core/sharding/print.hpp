// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/mesh/axis_parts.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <string>

namespace espalier {

/// Axes by their names, `data*model`: all sub-axes of an axis in order by its name, another sub-axis as Shardy does, by
/// the size before it in the axis and its own size, `model:(1)2`.
[[nodiscard]] inline std::string names_of(const mesh_shape& mesh, const axis_parts& parts, axis_list axes,
                                          const char* between = "*") {
  std::string text;
  for (int n = 0; n < axes.size();) {
    const int part = axes[n];
    if (n > 0) text += between;
    text += mesh.name[parts.axis[part]];
    const int all = parts.whole_axis_at(axes, n);
    if (all == 0) detail::append_text(text, {":(", parts.majors[part], ")", parts.size[part]});
    n += all == 0 ? 1 : all;
  }
  return text;
}

/// The one notation for a tensor and its layout: `f32[64@data, 1024@model]`. A dimension split by several axes lists
/// them from major to minor, `64@data*model`; a partial is named after the brackets, `f32[64] sum@model`. Sub-axes of
/// an axis that is cut are written as in `f32[2@model:(1)2, 4@model:(2)2]`. `placement` names sub-axes, `mesh` is that
/// of the axes.
[[nodiscard]] inline std::string to_string(const mesh_shape& mesh, const axis_parts& parts, dtype type,
                                           const extents& shape, const sharding& placement) {
  std::string text = name_of(type);
  text += '[';
  for (int d = 0; d < shape.rank; ++d) {
    detail::append_text(text, {d > 0 ? ", " : "", shape[d]});
    if (!placement.dim[d].empty()) detail::append_text(text, {"@", names_of(mesh, parts, placement.dim[d])});
  }
  text += ']';
  if (placement.unreduced != 0)
    detail::append_text(text, {" sum@", names_of(mesh, parts, list_of(placement.unreduced))});
  return text;
}
/// The same on a mesh without cuts.
[[nodiscard]] inline std::string to_string(const mesh_shape& mesh, dtype type, const extents& shape,
                                           const sharding& placement) {
  return to_string(mesh, axis_parts::whole(mesh), type, shape, placement);
}

}  // namespace espalier
