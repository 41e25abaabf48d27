// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/fixed_string.hpp>
#include <espalier/tensor/core/mesh/axis.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier {

/// A mesh as a value: what every pass works on. Devices are numbered with the last axis fastest.
struct mesh_shape {
  int rank = 0;
  int size[max_axes]{};
  const char* name[max_axes]{};

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
    for (int minor = axis + 1; minor < rank; ++minor) result *= size[minor];
    return result;
  }
  [[nodiscard]] constexpr int coordinate(int device, int axis) const { return device / stride(axis) % size[axis]; }

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
      device += (position % size[axis] - coordinate(device, axis)) * stride(axis);
      position /= size[axis];
    }
    return device;
  }
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
