// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The compiled half of print.hpp.
#include <espalier/base/light_std/joined.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <string>

namespace espalier {

ESPALIER_INLINE std::string names_of(const mesh_shape& mesh, const axis_parts& parts, axis_list axes,
                                     const char* between) {
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

ESPALIER_INLINE std::string to_string(const mesh_shape& mesh, const axis_parts& parts, dtype type, const extents& shape,
                                      const sharding& placement) {
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

ESPALIER_INLINE std::string to_string(const mesh_shape& mesh, dtype type, const extents& shape,
                                      const sharding& placement) {
  return to_string(mesh, axis_parts::whole(mesh), type, shape, placement);
}

}  // namespace espalier
