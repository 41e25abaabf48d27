// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <cstddef>
#include <vector>

namespace espalier::test {

/// All layouts of a tensor of this rank on a mesh: every axis splits any dimension or none, and axes that split the
/// same dimension do so in any order. One axis and a matrix give 3 layouts, two axes 11, three axes 49.
[[nodiscard]] inline std::vector<sharding> all_layouts(const mesh_shape& mesh, int rank) {
  std::vector<sharding> found{sharding::whole(rank)};
  // Each pass appends one more axis to each dimension of what the pass before it made, so that each list of axes is
  // made once: dimensions before the last one that is split are not touched again.
  for (int d = 0; d < rank; ++d) {
    for (std::size_t n = 0; n < found.size(); ++n) {
      for (int axis = 0; axis < mesh.rank; ++axis) {
        if (mesh.size[axis] == 1 || has_axis(found[n].tiled(), axis)) continue;
        sharding next = found[n];
        next.dim[d] = next.dim[d].with(axis);
        found.push_back(next);
      }
    }
  }
  return found;
}

/// Also those in which a tensor is a partial: any of the axes that do not split it may each have a term of it. One axis
/// and a matrix give 4 layouts, two axes 18.
[[nodiscard]] inline std::vector<sharding> all_layouts_and_partials(const mesh_shape& mesh, int rank) {
  std::vector<sharding> found = all_layouts(mesh, rank);
  for (int axis = 0; axis < mesh.rank; ++axis) {
    const std::size_t count = found.size();
    for (std::size_t n = 0; n < count; ++n) {
      if (mesh.size[axis] == 1 || has_axis(found[n].tiled(), axis)) continue;
      sharding partial = found[n];
      partial.unreduced |= bit_of(axis);
      found.push_back(partial);
    }
  }
  return found;
}

/// The place of a layout in `all_layouts`, or -1.
[[nodiscard]] inline int index_of(const std::vector<sharding>& layouts, const sharding& wanted) {
  for (std::size_t n = 0; n < layouts.size(); ++n) {
    if (layouts[n].same_layout(wanted)) return static_cast<int>(n);
  }
  return -1;
}

}  // namespace espalier::test
