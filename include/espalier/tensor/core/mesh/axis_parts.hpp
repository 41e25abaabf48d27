// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/mesh/mesh.hpp>

namespace espalier {

/// The axes of a mesh, some of them cut into parts: a program splits a dimension by a part of an axis where no whole
/// axis divides it, as an axis of 4 splits the dimensions of (2, 4) into 2 x 2. Parts of an axis follow one another,
/// the major one first, so that devices keep their numbers, and all parts of an axis in order are the axis. For the
/// passes a part is an axis as any other: of the mesh that `cut_mesh` makes.
struct axis_parts {
  /// The number of sub-axes; an axis that is not cut is one.
  int count = 0;
  // Each sub-axis has the axis of the mesh, and the product of the sizes of that axis's sub-axes before it.
  // Entries from `max_axes` on are those of a sub-axis in the other order of its axis, which has all of them so.
  int axis[2 * max_axes]{};
  int majors[2 * max_axes]{};
  int size[2 * max_axes]{};

  /// Adds a sub-axis.
  /// @param before the product of the sizes of its axis's sub-axes before it
  /// @pre count < max_axes
  constexpr void add(int of_axis, int before, int devices) {
    axis[count] = of_axis;
    majors[count] = majors[count + max_axes] = before;
    size[count] = size[count + max_axes] = devices;
    axis[count + max_axes] = of_axis + max_axes;
    ++count;
  }

  [[nodiscard]] static constexpr axis_parts whole(const mesh_shape& mesh) {
    axis_parts result;
    for (int a = 0; a < mesh.rank; ++a) result.add(a, 1, mesh.size[a]);
    return result;
  }
  /// The same with part `p` cut in two.
  /// @pre `major` divides its size; count < max_axes
  /// @post an axis's position is that among all of its sub-axes, on every device
  [[nodiscard]] constexpr axis_parts with_cut(int p, int major) const {
    axis_parts result;
    for (int n = 0; n < count; ++n) {
      if (n == p) {
        result.add(axis[n], majors[n], major);
        result.add(axis[n], majors[n] * major, size[n] / major);
      } else {
        result.add(axis[n], majors[n], size[n]);
      }
    }
    return result;
  }

  /// Whether part `p` is the last of its axis.
  [[nodiscard]] constexpr bool is_last(int p) const { return axis_of_entry(p) + 1 == count || axis[p + 1] != axis[p]; }
  /// Returns the number of entries of a list, from the n-th on, that are all sub-axes of one axis in order; 0 if they
  /// are not.
  [[nodiscard]] constexpr int whole_axis_at(axis_list list, int n) const {
    const int first = list[n];
    if (majors[first] != 1) return 0;
    int length = 1;
    while (!is_last(first + length - 1)) {
      if (n + length >= list.size() || list[n + length] != first + length) return 0;
      ++length;
    }
    return length;
  }

  /// The parts of axes.
  [[nodiscard]] constexpr axis_list parts_of(axis_list axes) const {
    axis_list result;
    for (int n = 0; n < axes.size(); ++n) {
      for (int p = 0; p < count; ++p) {
        if (axis[p] == axis_of_entry(axes[n])) result = result.with(p + axes[n] - axis[p]);
      }
    }
    return result;
  }
  [[nodiscard]] constexpr axis_mask parts_of(axis_mask axes) const {
    axis_mask result = 0;
    for (int p = 0; p < count; ++p) result |= has_axis(axes, axis[p]) ? bit_of(p) : 0;
    return result;
  }
  /// The axes that parts belong to.
  /// @post axes_of(parts_of(axes)) == axes
  [[nodiscard]] constexpr axis_mask axes_of(axis_mask parts) const {
    axis_mask result = 0;
    for (int p = 0; p < count; ++p) result |= has_axis(parts, p) ? bit_of(axis[p]) : 0;
    return result;
  }
};

/// The mesh whose axes are these parts. They have the names of their axes.
[[nodiscard]] constexpr mesh_shape cut_mesh(const mesh_shape& mesh, const axis_parts& parts) {
  mesh_shape result;
  result.rank = parts.count;
  for (int p = 0; p < parts.count; ++p) {
    result.size[p] = parts.size[p];
    result.name[p] = mesh.name[parts.axis[p]];
    // Where an axis is counted backwards, so is each of its parts.
    if (has_axis(mesh.ordered, parts.axis[p]))
      result.add_order(p, mesh.name[parts.axis[p] + max_axes], mesh.order[parts.axis[p]]);
  }
  return result;
}

}  // namespace espalier
