// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/mesh/mesh.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

namespace espalier {

/// The entries of an annotation for one dimension: a mesh axis; several axes, major to minor; `none`, whole on every
/// device; `open`, for completion to decide; or axes that completion may add to.
struct none {};
struct open {};
template <MeshAxis... Axes> struct axes {};
template <MeshAxis... Axes> struct at_least {};
/// The entries for the tensor as a whole, after the dimensions: axes it must not be split on, and axes on which it is a
/// partial.
template <MeshAxis... Axes> struct replicated {};
template <MeshAxis... Axes> struct unreduced {};
/// How early completion passes the annotation on: all annotations of priority 0, which is that of an annotation without
/// this entry, spread as far as they go before those of priority 1 do, and so on (Shardy's user priorities).
/// `shard<data, none, priority<1>>(x)` decides where nothing of priority 0 has, as for a weight that is split over the
/// axis of the batch: where both reach an op, the batch wins. Priorities are 0 ... 255. Errors: `no_such_priority`.
template <int Level> struct priority {};

namespace detail {

inline constexpr int most_priority = 255;

/// One entry of an annotation, read.
struct annotation_entry {
  axis_list split;
  bool is_dimension = true;
  bool is_open = false;
  axis_mask replicated = 0;
  axis_mask unreduced = 0;
  bool known = true;
  int priority = -1;
};

/// Whether a mesh has the axis, as its own or as that of a mesh joined with it (`joint_mesh`).
template <class Mesh, class Axis> [[nodiscard]] constexpr bool is_own() {
  if constexpr (requires { Mesh::template has<Axis>; }) {
    return Mesh::template has<Axis>;
  } else {
    return Mesh::template index_of<Axis> >= 0;
  }
}
/// Whether an annotation on this mesh may name the axis: it is the mesh's own, or that of another part (`submesh`).
template <class Mesh, class Axis> [[nodiscard]] constexpr bool is_known() {
  if constexpr (requires { Mesh::template is_elsewhere<Axis>; }) {
    return is_own<Mesh, Axis>() || Mesh::template is_elsewhere<Axis>;
  } else {
    return is_own<Mesh, Axis>();
  }
}
template <class Mesh, class... Axes> [[nodiscard]] constexpr bool all_known() {
  return (is_known<Mesh, Axes>() && ...);
}
/// The axes of the mesh that an axis stands for: itself, or those it is made of (`joint_mesh`).
template <class Mesh, class Axis> [[nodiscard]] constexpr axis_list axes_behind() {
  if constexpr (requires { Mesh::template axes_of<Axis>; }) {
    return Mesh::template axes_of<Axis>;
  } else {
    constexpr int index = Mesh::template index_of<Axis>;
    return index >= 0 ? axis_list(index) : axis_list{};
  }
}
template <class Mesh, class... Axes> [[nodiscard]] constexpr axis_list split_by() {
  axis_list result;
  if constexpr (all_known<Mesh, Axes...>()) ((result = result.followed_by(axes_behind<Mesh, Axes>())), ...);
  return result;
}

template <class Mesh, class Entry> struct read_entry {
  static constexpr annotation_entry value{split_by<Mesh, Entry>(), true, false, 0, 0, all_known<Mesh, Entry>()};
};
template <class Mesh> struct read_entry<Mesh, none> { static constexpr annotation_entry value{}; };
template <class Mesh> struct read_entry<Mesh, open> {
  static constexpr annotation_entry value{axis_list{}, true, true, 0, 0, true};
};
template <class Mesh, class... Axes> struct read_entry<Mesh, axes<Axes...>> {
  static constexpr annotation_entry value{split_by<Mesh, Axes...>(), true, false, 0, 0, all_known<Mesh, Axes...>()};
};
template <class Mesh, class... Axes> struct read_entry<Mesh, ::espalier::at_least<Axes...>> {
  static constexpr annotation_entry value{split_by<Mesh, Axes...>(), true, true, 0, 0, all_known<Mesh, Axes...>()};
};
template <class Mesh, class... Axes> struct read_entry<Mesh, replicated<Axes...>> {
  static constexpr annotation_entry value{
      axis_list{}, false, false, split_by<Mesh, Axes...>().mask(), 0, all_known<Mesh, Axes...>()};
};
template <class Mesh, class... Axes> struct read_entry<Mesh, unreduced<Axes...>> {
  static constexpr annotation_entry value{
      axis_list{}, false, false, 0, split_by<Mesh, Axes...>().mask(), all_known<Mesh, Axes...>()};
};

template <class Mesh, int Level> struct read_entry<Mesh, ::espalier::priority<Level>> {
  // A level that is not allowed is one beyond those that are.
  static constexpr annotation_entry value{
      axis_list{}, false, false, 0, 0, true, Level >= 0 && Level <= most_priority ? Level : most_priority + 1};
};

enum class annotation_fault { nothing, wrong_rank, unknown_axis, axis_used_twice, no_such_priority };

/// The sharding that Entries describe on a tensor of this rank, or what is wrong with them.
struct read_annotation {
  sharding placement;
  int priority = 0;
  annotation_fault fault = annotation_fault::nothing;
};

template <class Mesh, class... Entries> [[nodiscard]] constexpr read_annotation annotation_of(int rank) {
  const annotation_entry entries[]{read_entry<Mesh, Entries>::value..., annotation_entry{}};
  read_annotation result;
  result.placement.rank = rank;
  axis_mask used = 0;
  int dims = 0;
  const auto use = [&](axis_mask axes, int count) {
    if ((used & axes) != 0 || count_of(axes) != count) result.fault = annotation_fault::axis_used_twice;
    used |= axes;
  };
  for (int i = 0; i < static_cast<int>(sizeof...(Entries)); ++i) {
    const annotation_entry& e = entries[i];
    if (!e.known) {
      result.fault = annotation_fault::unknown_axis;
      return result;
    }
    if (e.is_dimension) {
      if (dims >= rank) {
        result.fault = annotation_fault::wrong_rank;
        return result;
      }
      result.placement.dim[dims] = e.split;
      if (e.is_open) result.placement.open |= 1U << static_cast<unsigned>(dims);
      ++dims;
      use(e.split.mask(), e.split.size());
    } else if (e.priority >= 0) {
      result.priority = e.priority;
    } else {
      result.placement.replicated |= e.replicated;
      result.placement.unreduced |= e.unreduced;
      use(e.replicated | e.unreduced, count_of(e.replicated | e.unreduced));
    }
  }
  if (dims != rank) result.fault = annotation_fault::wrong_rank;
  if (result.priority > most_priority) result.fault = annotation_fault::no_such_priority;
  return result;
}

}  // namespace detail

/// The type of a program's argument that arrives laid out like this: `sharded<f32<64, 256>, data, none>`.
/// Without it, completion chooses the argument's layout.
template <class Tensor, class... Entries> struct sharded : Tensor { using tensor = Tensor; };

}  // namespace espalier
