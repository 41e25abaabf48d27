// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/reshard.hpp>

#include <string>
#include <vector>

// The placements that the reshard tests go through, and how a failing one is shown.
namespace reshard_checks {

using namespace espalier;

inline mesh_shape mesh_of(const std::vector<int>& sizes) {
  static constexpr const char* names[max_axes]{"x", "y", "z", "w", "s", "t", "u", "v"};
  mesh_shape mesh;
  for (const int size : sizes) {
    mesh.size[mesh.rank] = size;
    mesh.name[mesh.rank] = names[mesh.rank];
    ++mesh.rank;
  }
  return mesh;
}

inline extents shape_of(std::initializer_list<int> sizes) {
  extents shape;
  for (const int size : sizes) shape.append(size);
  return shape;
}

inline void extend(const mesh_shape& mesh, const sharding& base, std::vector<sharding>& all) {
  all.push_back(base);
  // Dimensions are filled in order, to reach every placement once: only the last one begun, or a later one, grows.
  int last = 0;
  for (int d = 0; d < base.rank; ++d) {
    if (!base.dim[d].empty()) last = d;
  }
  for (int axis = 0; axis < mesh.rank; ++axis) {
    if (has_axis(base.tiled() | base.unreduced, axis)) continue;
    for (int d = last; d < base.rank; ++d) {
      sharding more = base;
      more.dim[d] = more.dim[d].with(axis);
      extend(mesh, more, all);
    }
  }
}

/// All placements of a tensor of this rank; those without partial sums first.
inline std::vector<sharding> all_layouts(const mesh_shape& mesh, int rank) {
  std::vector<sharding> all;
  for (axis_mask unreduced = 0; unreduced < bit_of(mesh.rank); ++unreduced) {
    sharding base = sharding::whole(rank);
    base.unreduced = unreduced;
    extend(mesh, base, all);
  }
  return all;
}

/// Whether a plan exists: no sum becomes partial.
inline bool reachable(const sharding& from, const sharding& to) { return (to.unreduced & ~from.unreduced) == 0; }

inline std::string text_of(const mesh_shape& mesh, axis_list axes) {
  std::string text;
  for (int i = 0; i < axes.size(); ++i) text += mesh.name[axes[i]];
  return text;
}

inline std::string text_of(const mesh_shape& mesh, const sharding& placement) {
  std::string text = "[";
  for (int d = 0; d < placement.rank; ++d) text += (d > 0 ? "," : "") + text_of(mesh, placement.dim[d]);
  text += "]";
  if (placement.unreduced != 0) text += "+" + text_of(mesh, list_of(placement.unreduced));
  return text;
}

inline std::string text_of(const mesh_shape& mesh, const reshard_plan& plan) {
  std::string text = std::to_string(plan.bytes) + " bytes:";
  for (int i = 0; i < plan.count; ++i) {
    const reshard_step& step = plan.step[i];
    text += std::string(" ") + name_of(step.kind) + "(" + text_of(mesh, list_of(step.axes)) + ")" +
            text_of(mesh, step.after);
  }
  return text;
}

inline std::string text_of(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to) {
  std::string text = "mesh";
  for (int axis = 0; axis < mesh.rank; ++axis) text += " " + std::to_string(mesh.size[axis]);
  text += ", shape";
  for (int d = 0; d < shape.rank; ++d) text += " " + std::to_string(shape[d]);
  return text + ", " + text_of(mesh, from) + " -> " + text_of(mesh, to);
}

}  // namespace reshard_checks
