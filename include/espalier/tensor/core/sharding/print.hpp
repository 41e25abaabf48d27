// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/dtype.hpp>
#include <espalier/tensor/core/mesh/axis_parts.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <string>

namespace espalier {

/// Axes by their names, `data*model`: all sub-axes of an axis in order by its name, another sub-axis as Shardy does, by
/// the size before it in the axis and its own size, `model:(1)2`.
[[nodiscard]] std::string names_of(const mesh_shape& mesh, const axis_parts& parts, axis_list axes,
                                   const char* between = "*");

/// The one notation for a tensor and its layout: `f32[64@data, 1024@model]`. A dimension split by several axes lists
/// them from major to minor, `64@data*model`; a partial is named after the brackets, `f32[64] sum@model`. Sub-axes of
/// an axis that is cut are written as in `f32[2@model:(1)2, 4@model:(2)2]`. `placement` names sub-axes, `mesh` is that
/// of the axes.
[[nodiscard]] std::string to_string(const mesh_shape& mesh, const axis_parts& parts, dtype type, const extents& shape,
                                    const sharding& placement);
/// The same on a mesh without cuts.
[[nodiscard]] std::string to_string(const mesh_shape& mesh, dtype type, const extents& shape,
                                    const sharding& placement);

}  // namespace espalier

#if !defined(ESPALIER_COMPILED)
#include <espalier/tensor/core/sharding/impl/print.ipp>
#endif
