// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/shape/dtype.hpp>
#include <espalier/sharding/sharding.hpp>

#include <string>

namespace espalier {

/// The one notation for a tensor and its layout: `f32[64@data, 1024@model]`. A dimension split by several axes lists
/// them from major to minor, `64@data*model`; a pending sum is named behind, `f32[64] sum@model`.
[[nodiscard]] inline std::string to_string(const mesh_shape& mesh, dtype type, const extents& shape,
                                           const sharding& placement) {
  std::string text = name_of(type);
  text += '[';
  for (int d = 0; d < shape.rank; ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(shape[d]);
    for (int n = 0; n < placement.dim[d].size(); ++n) {
      text += n == 0 ? '@' : '*';
      text += mesh.name[placement.dim[d][n]];
    }
  }
  text += ']';
  const axis_list pending = list_of(placement.unreduced);
  for (int n = 0; n < pending.size(); ++n) {
    text += n == 0 ? " sum@" : "*";
    text += mesh.name[pending[n]];
  }
  return text;
}

}  // namespace espalier
