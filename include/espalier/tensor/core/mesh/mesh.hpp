// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/mesh/axis.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier {

/// A mesh as a value: what every pass works on. Devices are numbered with the last axis fastest.
///
/// Its other meshes may count the devices of an axis in another order (`joint_mesh`). That order is an axis of its own
/// for layouts, entry `axis + max_axes` of lists, with a size and a name. It has the same groups of devices, and a
/// device's place in its group is another one: `coordinate` is the only function that knows which.
struct mesh_shape {
  int rank = 0;
  int size[2 * max_axes]{};
  const char* name[2 * max_axes]{};
  /// The axes that have another order too.
  axis_mask ordered = 0;
  /// The place of each coordinate in that order; null: counted backwards, which parts of the axis then are, too.
  const int* order[max_axes]{};

  /// Adds an order to an axis.
  /// @pre axis < most_ordered_axes; `places` is null or a permutation of 0 ... size - 1, which outlives the mesh
  constexpr void add_order(int axis, const char* its_name, const int* places) {
    ordered |= bit_of(axis);
    size[axis + max_axes] = size[axis];
    name[axis + max_axes] = its_name;
    order[axis] = places;
  }

  [[nodiscard]] constexpr int devices() const {
    int count = 1;
    for (int axis = 0; axis < rank; ++axis) count *= size[axis];
    return count;
  }
  /// Returns the number of shards into which these axes split a dimension.
  [[nodiscard]] constexpr std::int64_t parts(axis_list axes) const {
    std::int64_t count = 1;
    for (std::uint32_t rest = axes.code(); rest != 0; rest >>= 4U) count *= size[(rest & 15U) - 1U];
    return count;
  }
  [[nodiscard]] constexpr std::int64_t parts(axis_mask mask) const {
    std::int64_t count = 1;
    for (int axis = 0; mask != 0; ++axis, mask >>= 1U) {
      if ((mask & 1U) != 0) count *= size[axis];
    }
    return count;
  }
  [[nodiscard]] constexpr int stride(int axis) const {
    int result = 1;
    for (int minor = axis_of_entry(axis) + 1; minor < rank; ++minor) result *= size[minor];
    return result;
  }
  /// The place of a device among those that differ from it along one axis only; of an entry of a list in its order.
  [[nodiscard]] constexpr int coordinate(int device, int axis) const {
    return axis < max_axes ? device / stride(axis) % size[axis] : place_in_order(device, axis - max_axes);
  }

  /// The position of `device` among the devices that differ from it in `axes` only, major axis first.
  [[nodiscard]] constexpr int position(int device, axis_list axes) const {
    int result = 0;
    for (int i = 0; i < axes.size(); ++i) result = result * size[axes[i]] + coordinate(device, axes[i]);
    return result;
  }
  /// The device at `position` of the group that `device` belongs to along `axes`.
  /// @post position(member(device, axes, p), axes) == p, and no other axis changes
  [[nodiscard]] constexpr int member(int device, axis_list axes, int position) const {
    for (int i = axes.size() - 1; i >= 0; --i) {
      const int axis = axes[i];
      device += axis < max_axes ? (position % size[axis] - coordinate(device, axis)) * stride(axis)
                                : step_in_order(device, axis - max_axes, position % size[axis]);
      position /= size[axis];
    }
    return device;
  }

 private:
  [[nodiscard]] constexpr int place_in_order(int device, int axis) const {
    if (!has_axis(ordered, axis)) mesh_has_no_such_order();
    const int at = coordinate(device, axis);
    return order[axis] == nullptr ? size[axis] - 1 - at : order[axis][at];
  }
  /// By how much the number of the device at a place differs from that of `device`.
  [[nodiscard]] constexpr int step_in_order(int device, int axis, int place) const {
    if (!has_axis(ordered, axis)) mesh_has_no_such_order();
    int at = size[axis] - 1 - place;
    if (order[axis] != nullptr) {
      for (at = 0; order[axis][at] != place;) ++at;
    }
    return (at - coordinate(device, axis)) * stride(axis);
  }
  /// Ends a constant evaluation with an error that has this name, and a program: no pass makes such a layout. (An
  /// exception with words would bring every user of core.hpp forty more standard headers.)
  [[noreturn]] static void mesh_has_no_such_order() { __builtin_trap(); }
};

namespace detail {
/// Whether no two axes have one name.
template <MeshAxis... Axes> [[nodiscard]] constexpr bool are_different() {
  const char* const names[]{Axes::name..., nullptr};
  for (int one = 0; names[one] != nullptr; ++one) {
    for (int other = 0; other < one; ++other) {
      if (same_text(names[one], names[other])) return false;
    }
  }
  return true;
}
}  // namespace detail

/// The devices a program runs on: a grid with named axes (GSPMD section 3.1's device mesh). The product of the axes'
/// sizes is the number of devices; axes are ordered, the last one fastest.
template <MeshAxis... Axes> struct mesh {
  static_assert(sizeof...(Axes) <= max_axes, "a mesh has at most eight axes");
  static constexpr int rank = static_cast<int>(sizeof...(Axes));
  static constexpr int devices = (1 * ... * Axes::size);
  static_assert(
      detail::are_different<Axes...>(),
      "mesh: two axes have the same name, so that no table or message could tell one from the other. Give each "
      "axis a name of its own: struct data : axis<\"data\", 2> {}.");
  static constexpr mesh_shape value{rank, {Axes::size...}, {Axes::name...}};

  /// The position of an axis type in this mesh, or -1.
  template <class Axis>
  static constexpr int index_of = [] {
    constexpr bool same[]{std::is_same_v<Axis, Axes>..., false};
    for (int i = 0; i < rank; ++i) {
      if (same[i]) return i;
    }
    return -1;
  }();
};

/// A mesh for one part of the devices, where the other parts have meshes of their own: annotations may name `Others`,
/// the axes of those, which split nothing here. So one function is laid out on each of them.
template <class Mesh, MeshAxis... Others> struct submesh : Mesh {
  template <class Axis> static constexpr bool is_elsewhere = (std::is_same_v<Axis, Others> || ...);
};

}  // namespace espalier
