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

/// How the devices of a digit are counted.
enum class digit_order { forward, backward, table };

/// A factor of an axis: devices whose numbers are `stride` apart, `size` of them, in some order. `below` positions of
/// the axis belong to one value of the digit.
struct axis_digit {
  int stride = 0;
  int size = 0;
  digit_order order = digit_order::forward;
  int below = 1;
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
  order_is_cut,
  two_orders,
  no_common_axes,
  too_many_axes
};

/// One mesh among those of the same devices, read: of each axis, its digits.
struct joined_axes {
  mesh_shape mesh;
  axis_digits digits[max_axes]{};
  joint_fault fault = joint_fault::nothing;
  /// The number of the device at each position; null: in order.
  const int* ids = nullptr;

  /// How many devices of a digit have lower numbers than that at a place of it.
  [[nodiscard]] constexpr int at_place(int axis, const axis_digit& digit, int place) const {
    if (digit.order == digit_order::forward) return place;
    if (digit.order == digit_order::backward) return digit.size - 1 - place;
    const int step = digit.below * mesh.stride(axis);
    int least = ids[0];
    for (int p = 1; p < digit.size; ++p) least = smaller_of(least, ids[p * step]);
    return (ids[place * step] - least) / digit.stride;
  }
};

/// Devices in the order of their numbers: an axis is a single digit.
[[nodiscard]] constexpr joined_axes in_order(const mesh_shape& mesh) {
  joined_axes made{mesh, {}, joint_fault::nothing};
  for (int axis = 0; axis < mesh.rank; ++axis)
    made.digits[axis].add({mesh.stride(axis), mesh.size[axis], digit_order::forward, 1});
  return made;
}

/// Returns the digit of an axis that has `size` values, each of `below` positions: if what it adds to a device's number
/// depends on nothing else of the axis, and its values are evenly spaced. Else its size is 0.
/// @param ids the number of the device at each position of the mesh
[[nodiscard]] constexpr axis_digit digit_at(const mesh_shape& mesh, const int* ids, int axis, int below, int size) {
  const int stride = mesh.stride(axis);
  const int step = below * stride;
  for (int p = 0; p < mesh.size[axis]; ++p) {
    const int value = p / below % size;
    if (ids[p * stride] - ids[p * stride - value * step] != ids[value * step] - ids[0]) return {};
  }
  int least = ids[0];
  for (int value = 1; value < size; ++value) least = smaller_of(least, ids[value * step]);
  int apart = 0;  // between the two least
  for (int value = 0; value < size; ++value) {
    const int more = ids[value * step] - least;
    if (more > 0 && (apart == 0 || more < apart)) apart = more;
  }
  bool forward = true;
  bool backward = true;
  for (int value = 0; value < size; ++value) {
    const int more = ids[value * step] - least;
    // All numbers differ, so that they are 0 ... size - 1 if none is larger.
    if (more % apart != 0 || more / apart >= size) return {};
    forward = forward && more / apart == value;
    backward = backward && more / apart == size - 1 - value;
  }
  return {apart, size, forward ? digit_order::forward : backward ? digit_order::backward : digit_order::table, below};
}

/// @param ids the number of the device at each position, for as long as the result is read
[[nodiscard]] constexpr joined_axes in_order_of(const mesh_shape& mesh, const int* ids, int count) {
  joined_axes made{mesh, {}, joint_fault::nothing, ids};
  if (count != mesh.devices()) return {mesh, {}, joint_fault::no_permutation};
  for (int device = 0; device < count; ++device) {
    int times = 0;
    for (int p = 0; p < count; ++p) times += ids[p] == device ? 1 : 0;
    if (times != 1) return {mesh, {}, joint_fault::no_permutation};
  }
  for (int axis = 0; axis < mesh.rank; ++axis) {
    // From the minor digit to the major one, each as small as it can be; neighbours that go on evenly are one.
    axis_digits minor_first;
    for (int below = 1; below < mesh.size[axis];) {
      axis_digit found;
      for (int size = 2; found.size == 0 && below * size <= mesh.size[axis]; ++size) {
        if (mesh.size[axis] / below % size == 0) found = digit_at(mesh, ids, axis, below, size);
      }
      if (found.size == 0) return {mesh, {}, joint_fault::not_along_axes};
      below *= found.size;
      if (minor_first.count == max_axes) return {mesh, {}, joint_fault::too_many_axes};
      axis_digit* const minor = minor_first.count == 0 ? nullptr : &minor_first.at[minor_first.count - 1];
      if (minor != nullptr && minor->order == found.order && found.order != digit_order::table &&
          found.stride == minor->stride * minor->size) {
        minor->size *= found.size;
      } else {
        minor_first.add(found);
      }
    }
    for (int n = minor_first.count - 1; n >= 0; --n) made.digits[axis].add(minor_first.at[n]);
  }
  for (int p = 0; p < count; ++p) {
    int number = 0;
    for (int axis = 0; axis < mesh.rank; ++axis) {
      for (int n = 0; n < made.digits[axis].count; ++n) {
        const axis_digit& digit = made.digits[axis].at[n];
        number += made.at_place(axis, digit, mesh.coordinate(p, axis) / digit.below % digit.size) * digit.stride;
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
  axis_digit axis[max_axes]{};  // major to minor, forward
  /// Of each, the mesh and its axis and digit that count it in another order; -1 if none does.
  struct other_order {
    int mesh = -1;
    int axis = 0;
    int digit = 0;
  };
  other_order order[max_axes]{};
  joint_fault fault = joint_fault::nothing;

  [[nodiscard]] constexpr bool is_in(int a, const axis_digit& digit) const {
    return axis[a].stride >= digit.stride && axis[a].stride < digit.stride * digit.size;
  }
  /// Returns the common axes that an axis is made of, major to minor, each in the order that it has there.
  [[nodiscard]] constexpr axis_list axes_of(const axis_digits& digits) const {
    axis_list result;
    for (int n = 0; n < digits.count; ++n) {
      for (int a = 0; a < rank; ++a) {
        if (is_in(a, digits.at[n])) result = result.with(digits.at[n].order == digit_order::forward ? a : a + max_axes);
      }
    }
    return result;
  }
};

/// Notes which common axes are counted in another order, too.
constexpr void note_orders(const joined_axes* meshes, int count, common_axes& result) {
  for (int m = 0; m < count; ++m) {
    for (int axis = 0; axis < meshes[m].mesh.rank; ++axis) {
      for (int n = 0; n < meshes[m].digits[axis].count; ++n) {
        const axis_digit& digit = meshes[m].digits[axis].at[n];
        if (digit.order == digit_order::forward) continue;
        for (int a = 0; a < result.rank; ++a) {
          if (!result.is_in(a, digit)) continue;
          // Backwards, parts are counted backwards too; another order has none.
          if (digit.order == digit_order::table && result.axis[a].size != digit.size)
            result.fault = joint_fault::order_is_cut;
          if (a >= most_ordered_axes) result.fault = joint_fault::too_many_axes;
          if (result.fault != joint_fault::nothing) return;
          const common_axes::other_order& known = result.order[a];
          if (known.mesh < 0) {
            result.order[a] = {m, axis, n};
            continue;
          }
          const axis_digit& other = meshes[known.mesh].digits[known.axis].at[known.digit];
          bool same = other.order == digit.order;
          for (int place = 0; same && digit.order == digit_order::table && place < digit.size; ++place) {
            same = meshes[m].at_place(axis, digit, place) == meshes[known.mesh].at_place(known.axis, other, place);
          }
          if (!same) {
            result.fault = joint_fault::two_orders;
            return;
          }
        }
      }
    }
  }
}

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
    result.axis[result.rank++] = {cut[n - 1], cut[n] / cut[n - 1], digit_order::forward, 1};
  }
  note_orders(meshes, count, result);
  return result;
}

/// Names of common axes: that of the mesh's axis that one is, or Shardy's name of a part of an axis, `model:(2)4`, the
/// part of size 4 after parts of 2.
struct common_names {
  static constexpr int longest = 48;
  char text[2 * max_axes][longest]{};

  constexpr void write(int at, const char* name) {
    int n = 0;
    for (; name[n] != '\0' && n + 1 < longest; ++n) text[at][n] = name[n];
  }
  /// An order that no mesh has a name for.
  constexpr void write_other(int at, int axis) {
    int n = 0;
    text[at][n++] = '~';
    for (; text[axis][n - 1] != '\0' && n + 1 < longest; ++n) text[at][n] = text[axis][n - 1];
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
    for (int m = 0; m < count; ++m) {
      for (int axis = 0; axis < meshes[m].mesh.rank; ++axis) {
        const axis_list parts = common.axes_of(meshes[m].digits[axis]);
        if (parts == axis_list(a) && names.text[a][0] == '\0') names.write(a, meshes[m].mesh.name[axis]);
        const int other = a + max_axes;
        if (common.order[a].mesh >= 0 && parts == axis_list(other) && names.text[other][0] == '\0')
          names.write(other, meshes[m].mesh.name[axis]);
      }
    }
    // Every device number has its place in the first mesh, so that a part has an axis there.
    for (int axis = 0; axis < meshes[0].mesh.rank && names.text[a][0] == '\0'; ++axis) {
      const axis_list parts = common.axes_of(meshes[0].digits[axis]);
      int before = 1;
      for (int n = 0; n < parts.size(); ++n) {
        if (axis_of_entry(parts[n]) == a) names.write_part(a, meshes[0].mesh.name[axis], before, common.axis[a].size);
        before *= common.axis[axis_of_entry(parts[n])].size;
      }
    }
    if (common.order[a].mesh >= 0 && names.text[a + max_axes][0] == '\0') names.write_other(a + max_axes, a);
  }
  return names;
}

/// The places of the devices of common axes in their other orders.
template <int Devices> struct common_orders { int place[max_axes][Devices]{}; };
template <int Devices>
[[nodiscard]] constexpr common_orders<Devices> orders_of(const joined_axes* meshes, const common_axes& common) {
  common_orders<Devices> made;
  for (int a = 0; a < common.rank; ++a) {
    if (common.order[a].mesh < 0) continue;
    const joined_axes& mesh = meshes[common.order[a].mesh];
    const axis_digit& digit = mesh.digits[common.order[a].axis].at[common.order[a].digit];
    if (digit.order != digit_order::table) continue;
    for (int place = 0; place < digit.size; ++place)
      made.place[a][mesh.at_place(common.order[a].axis, digit, place)] = place;
  }
  return made;
}

/// Types of axes.
template <class... Axes> struct axis_types {};
/// The axes of several meshes, one after the other.
template <class Found, class... Meshes> struct axes_of_meshes { using type = Found; };
template <class... Found, class... Axes, class... Rest>
struct axes_of_meshes<axis_types<Found...>, mesh<Axes...>, Rest...>
    : axes_of_meshes<axis_types<Found..., Axes...>, Rest...> {};
template <class... Found, class Mesh, int... Ids, class... Rest>
struct axes_of_meshes<axis_types<Found...>, device_ids<Mesh, Ids...>, Rest...>
    : axes_of_meshes<axis_types<Found...>, Mesh, Rest...> {};

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
/// split common axis by common axis.
///
/// An order may count an axis backwards, `device_ids<mesh<turned>, 3, 2, 1, 0>`, or in any other order of its devices,
/// as the ring 0, 1, 3, 2. Such an axis is the common one in another order: a change between the two sends shards to
/// where they belong, one to each device, and no operator sends more in the one order than in the other. An axis
/// counted backwards may be made of several common axes, one in another order only of a single one.
///
/// Errors (static_assert): meshes of different numbers of devices; ids that are no permutation; an order in which an
/// axis is no product of common axes, as {0, 1, 3, 2} on 2 x 2; an order across the axes of another mesh, as the ring
/// 0, 1, 3, 2 beside a mesh of 2 x 2; two other orders of one common axis; axes that have no common ones, as 2 x 3
/// beside 3 x 2; more than eight common axes, or seven where the last has another order.
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
  static_assert(
      common.fault != detail::joint_fault::not_along_axes,
      "device_ids: in this order an axis is no product of parts of axes, each counted in an order of its own: "
      "the second row of {0, 1, 3, 2} as 2 x 2 runs against the first. Choose an order that exchanges, "
      "regroups or permutes whole axes; for any other one, reorder the ranks of the world.");
  static_assert(
      common.fault != detail::joint_fault::order_is_cut,
      "device_ids: the order of an axis goes across the axes of another mesh, as {0, 1, 3, 2} across those of "
      "2 x 2. An order other than forwards or backwards needs an axis of its own in each mesh: join the mesh "
      "with one that has these devices along a single axis, or reorder the ranks of the world.");
  static_assert(
      common.fault != detail::joint_fault::two_orders,
      "device_ids: devices along one axis are counted in three orders, that of the first mesh and two others. "
      "Join meshes that have one order besides that of the first mesh.");
  static_assert(common.fault != detail::joint_fault::no_common_axes,
                "joint_mesh: the axes are not made of common parts, as 2 x 3 beside 3 x 2: a size of one does not "
                "divide that of the other where they begin at the same device. Exchange the axes of one mesh.");
  static_assert(
      common.fault != detail::joint_fault::too_many_axes,
      "joint_mesh: the meshes have more than eight common axes, or seven if the last one has an order of its own. Join "
      "fewer meshes, or such with larger axes.");

  static constexpr detail::common_names names = detail::names_of(&meshes[0], count, common);
  static constexpr detail::common_orders<First::devices> orders = detail::orders_of<First::devices>(&meshes[0], common);
  [[nodiscard]] static constexpr mesh_shape make() {
    mesh_shape result;
    result.rank = common.rank;
    for (int a = 0; a < common.rank; ++a) {
      result.size[a] = common.axis[a].size;
      result.name[a] = &names.text[a][0];
      if (common.order[a].mesh < 0) continue;
      const detail::common_axes::other_order& other = common.order[a];
      const bool has_table = meshes[other.mesh].digits[other.axis].at[other.digit].order == detail::digit_order::table;
      result.add_order(a, &names.text[a + max_axes][0], has_table ? &orders.place[a][0] : nullptr);
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
  /// The number of the common axis that an axis of these meshes is, in the order of the first; -1 for any other, also
  /// for one that is made of several. Code by hand (`manual`) has such axes.
  template <class Axis>
  static constexpr int index_of = [] {
    constexpr axis_list made_of = axes_of<Axis>;
    return made_of.size() == 1 && made_of[0] < max_axes ? made_of[0] : -1;
  }();
  template <class Axis>
  static constexpr bool has = ((detail::index_in_joined<First, Axis> >= 0) || ... ||
                               (detail::index_in_joined<Others, Axis> >= 0));
};

}  // namespace espalier
