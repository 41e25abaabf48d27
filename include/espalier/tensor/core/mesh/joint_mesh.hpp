// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/mesh/mesh.hpp>

namespace espalier {

/// A mesh with an order of its own: the device at position p of it is device `Ids[p]` of the mesh that it is joined
/// with (Shardy's `device_ids`). `device_ids<mesh<rows, columns>, 0, 2, 1, 3>` on `mesh<data, model>` of 2 x 2 has rows
/// along `model`.
template <class Mesh, int... Ids> struct device_ids;

namespace detail {

/// A factor of an axis: devices whose numbers are `stride` apart, `size` of them.
struct axis_digit {
  int stride = 0;
  int size = 0;
};
/// An axis as digits of a device's number, major to minor.
struct axis_digits {
  int count = 0;
  axis_digit at[max_axes]{};
  constexpr void add(axis_digit one) {
    if (count < max_axes) at[count] = one;
    ++count;
  }
};

/// What is wrong with meshes that are to be joined.
enum class joint_fault {
  nothing,
  other_number_of_devices,
  no_permutation,
  not_along_axes,
  no_common_axes,
  too_many_axes
};

/// One mesh among those of the same devices, read: of each axis, its digits.
struct joined_axes {
  mesh_shape mesh;
  axis_digits digits[max_axes]{};
  joint_fault fault = joint_fault::nothing;
};

/// Devices in the order of their numbers: an axis is a single digit.
[[nodiscard]] constexpr joined_axes in_order(const mesh_shape& mesh) {
  joined_axes made{mesh, {}, joint_fault::nothing};
  for (int axis = 0; axis < mesh.rank; ++axis) made.digits[axis].add({mesh.stride(axis), mesh.size[axis]});
  return made;
}

/// @param ids the number of the device at each position
[[nodiscard]] constexpr joined_axes in_order_of(const mesh_shape& mesh, const int* ids, int count) {
  joined_axes made{mesh, {}, joint_fault::nothing};
  if (count != mesh.devices()) return {mesh, {}, joint_fault::no_permutation};
  for (int device = 0; device < count; ++device) {
    int times = 0;
    for (int p = 0; p < count; ++p) times += ids[p] == device ? 1 : 0;
    if (times != 1) return {mesh, {}, joint_fault::no_permutation};
  }
  for (int axis = 0; axis < mesh.rank; ++axis) {
    // From the minor digit to the major one, as far as numbers grow evenly.
    axis_digits minor_first;
    const int stride = mesh.stride(axis);
    for (int below = 1; below < mesh.size[axis];) {
      const int step = ids[below * stride] - ids[0];
      int size = 1;
      while (below * size < mesh.size[axis] && ids[below * size * stride] == ids[0] + step * size) ++size;
      while (mesh.size[axis] / below % size != 0) --size;
      if (size < 2 || step <= 0) return {mesh, {}, joint_fault::not_along_axes};
      minor_first.add({step, size});
      below *= size;
    }
    if (minor_first.count > max_axes) return {mesh, {}, joint_fault::too_many_axes};
    for (int n = minor_first.count - 1; n >= 0; --n) made.digits[axis].add(minor_first.at[n]);
  }
  for (int p = 0; p < count; ++p) {
    int number = 0;
    for (int axis = 0; axis < mesh.rank; ++axis) {
      int rest = mesh.coordinate(p, axis);
      for (int n = made.digits[axis].count - 1; n >= 0; --n) {
        number += rest % made.digits[axis].at[n].size * made.digits[axis].at[n].stride;
        rest /= made.digits[axis].at[n].size;
      }
    }
    if (ids[p] != number) return {mesh, {}, joint_fault::not_along_axes};
  }
  return made;
}

template <class Mesh> struct read_joined { static constexpr joined_axes value = in_order(Mesh::value); };
template <class Mesh, int... Ids> struct read_joined<device_ids<Mesh, Ids...>> {
  static constexpr int ids[]{Ids..., 0};
  static constexpr joined_axes value = in_order_of(Mesh::value, &ids[0], static_cast<int>(sizeof...(Ids)));
};

/// The axes that all meshes are made of: a device's number is cut where an axis of some mesh begins or ends.
struct common_axes {
  int rank = 0;
  axis_digit axis[max_axes]{};  // major to minor
  joint_fault fault = joint_fault::nothing;

  /// Returns the common axes that an axis is made of, major to minor.
  [[nodiscard]] constexpr axis_list axes_of(const axis_digits& digits) const {
    axis_list result;
    for (int n = 0; n < digits.count; ++n) {
      for (int a = 0; a < rank; ++a) {
        const int stride = axis[a].stride;
        if (stride >= digits.at[n].stride && stride < digits.at[n].stride * digits.at[n].size) result = result.with(a);
      }
    }
    return result;
  }
};

[[nodiscard]] constexpr common_axes common_axes_of(const joined_axes* meshes, int count) {
  common_axes result;
  const int devices = meshes[0].mesh.devices();
  int cut[4 * max_axes * max_axes]{};
  int cuts = 0;
  const auto add = [&](int number) {
    int n = 0;
    while (n < cuts && cut[n] < number) ++n;
    if ((n < cuts && cut[n] == number) || cuts == 4 * max_axes * max_axes) return;
    for (int k = cuts++; k > n; --k) cut[k] = cut[k - 1];
    cut[n] = number;
  };
  for (int m = 0; m < count; ++m) {
    const joined_axes& one = meshes[m];
    if (one.fault == joint_fault::nothing && one.mesh.devices() != devices)
      result.fault = joint_fault::other_number_of_devices;
    if (one.fault != joint_fault::nothing) result.fault = one.fault;
    if (result.fault != joint_fault::nothing) return result;
    for (int axis = 0; axis < one.mesh.rank; ++axis) {
      for (int n = 0; n < one.digits[axis].count; ++n) {
        const axis_digit& digit = one.digits[axis].at[n];
        add(digit.stride);
        add(digit.stride * digit.size);
      }
    }
  }
  for (int n = cuts - 1; n > 0; --n) {
    if (cut[n] % cut[n - 1] != 0) result.fault = joint_fault::no_common_axes;
    if (result.rank == max_axes) result.fault = joint_fault::too_many_axes;
    if (result.fault != joint_fault::nothing) return result;
    result.axis[result.rank++] = {cut[n - 1], cut[n] / cut[n - 1]};
  }
  return result;
}

/// Names of common axes: that of the mesh's axis that one is, or Shardy's name of a part of an axis, `model:(2)4`, the
/// part of size 4 after parts of 2.
struct common_names {
  static constexpr int longest = 48;
  char text[max_axes][longest]{};

  constexpr void write(int at, const char* name) {
    int n = 0;
    for (; name[n] != '\0' && n + 1 < longest; ++n) text[at][n] = name[n];
  }
  constexpr void write_part(int at, const char* name, int before, int size) {
    int n = 0;
    for (; name[n] != '\0' && n + 24 < longest; ++n) text[at][n] = name[n];
    text[at][n++] = ':';
    text[at][n++] = '(';
    n = write_number(at, n, before);
    text[at][n++] = ')';
    static_cast<void>(write_number(at, n, size));
  }

 private:
  constexpr int write_number(int at, int n, int number) {
    int power = 1;
    while (number / power >= 10) power *= 10;
    for (; power > 0; power /= 10) text[at][n++] = static_cast<char>('0' + number / power % 10);
    return n;
  }
};

[[nodiscard]] constexpr common_names names_of(const joined_axes* meshes, int count, const common_axes& common) {
  common_names names;
  for (int a = 0; a < common.rank; ++a) {
    for (int m = 0; m < count && names.text[a][0] == '\0'; ++m) {
      for (int axis = 0; axis < meshes[m].mesh.rank; ++axis) {
        const axis_list parts = common.axes_of(meshes[m].digits[axis]);
        if (parts == axis_list(a) && names.text[a][0] == '\0') names.write(a, meshes[m].mesh.name[axis]);
      }
    }
    // Every device number has its place in the first mesh, so that a part has an axis there.
    for (int axis = 0; axis < meshes[0].mesh.rank && names.text[a][0] == '\0'; ++axis) {
      const axis_list parts = common.axes_of(meshes[0].digits[axis]);
      int before = 1;
      for (int n = 0; n < parts.size(); ++n) {
        if (parts[n] == a) names.write_part(a, meshes[0].mesh.name[axis], before, common.axis[a].size);
        before *= common.axis[parts[n]].size;
      }
    }
  }
  return names;
}

/// The position of an axis type among those of a mesh, or -1.
template <class Mesh, class Axis> inline constexpr int index_in_joined = Mesh::template index_of<Axis>;
template <class Mesh, int... Ids, class Axis>
inline constexpr int index_in_joined<device_ids<Mesh, Ids...>, Axis> = Mesh::template index_of<Axis>;

}  // namespace detail

/// Several meshes over the same devices, for one program: annotations may name the axes of all of them. Devices have
/// the numbers of the first mesh; the others arrange the same numbers in order, or as their `device_ids` say.
///
///     struct data : axis<"data", 2> {};     struct rows : axis<"rows", 4> {};
///     struct model : axis<"model", 4> {};   struct columns : axis<"columns", 2> {};
///     using grid = joint_mesh<mesh<data, model>, mesh<rows, columns>>;
///
/// `shard<rows, columns>(x)` splits 8 x 8 into 4 x 2 blocks, `shard<data, model>(x)` into 2 x 4; device 5 has block
/// (2, 1) of the first and (1, 1) of the second. Within the program all axes are made of common ones, here of sizes 2,
/// 2 and 2 named `data`, `model:(1)2` and `columns`, so that a change from one mesh to the other sends what it has to
/// and no more, and an axis cannot be used beside another one that it overlaps (`axis_used_twice`). Uneven extents are
/// split common axis by common axis. Errors (static_assert): meshes of different numbers of devices; ids that are no
/// permutation; an order in which an axis does not follow axes of the first mesh or parts of them, as {0, 1, 3, 2};
/// axes that have no common ones, as 2 x 3 beside 3 x 2; more than eight common axes.
template <class First, class... Others> class joint_mesh {
  static constexpr detail::joined_axes meshes[]{detail::read_joined<First>::value,
                                                detail::read_joined<Others>::value...};
  static constexpr int count = 1 + static_cast<int>(sizeof...(Others));
  static constexpr detail::common_axes common = detail::common_axes_of(&meshes[0], count);

  static_assert(common.fault != detail::joint_fault::other_number_of_devices,
                "joint_mesh: the meshes have different numbers of devices. Meshes over the same devices have the same "
                "number of them.");
  static_assert(common.fault != detail::joint_fault::no_permutation,
                "device_ids: the ids are not each device of the mesh once. Give 0 ... devices - 1 in the order of the "
                "mesh's positions, the last axis fastest.");
  static_assert(common.fault != detail::joint_fault::not_along_axes,
                "device_ids: in this order the devices of an axis are not evenly spaced, so that it is no product of "
                "parts of axes, as {0, 1, 3, 2} is not. Choose an order in which axes are exchanged or regrouped; for "
                "any other one, reorder the ranks of the world.");
  static_assert(common.fault != detail::joint_fault::no_common_axes,
                "joint_mesh: the axes are not made of common parts, as 2 x 3 beside 3 x 2: a size of one does not "
                "divide that of the other where they begin at the same device. Exchange the axes of one mesh.");
  static_assert(
      common.fault != detail::joint_fault::too_many_axes,
      "joint_mesh: the meshes have more than eight common axes. Join fewer meshes, or such with larger axes.");

  static constexpr detail::common_names names = detail::names_of(&meshes[0], count, common);
  [[nodiscard]] static constexpr mesh_shape make() {
    mesh_shape result;
    result.rank = common.rank;
    for (int a = 0; a < common.rank; ++a) {
      result.size[a] = common.axis[a].size;
      result.name[a] = &names.text[a][0];
    }
    return result;
  }

 public:
  static constexpr int rank = common.rank;
  static constexpr int devices = First::devices;
  static constexpr mesh_shape value = make();

  /// The common axes of which an axis of these meshes is made, major to minor; none for any other axis.
  template <class Axis>
  static constexpr axis_list axes_of = [] {
    constexpr int index[]{detail::index_in_joined<First, Axis>, detail::index_in_joined<Others, Axis>...};
    for (int m = 0; m < count; ++m) {
      if (index[m] >= 0) return common.axes_of(meshes[m].digits[index[m]]);
    }
    return axis_list{};
  }();
  template <class Axis>
  static constexpr bool has = ((detail::index_in_joined<First, Axis> >= 0) || ... ||
                               (detail::index_in_joined<Others, Axis> >= 0));
};

}  // namespace espalier
