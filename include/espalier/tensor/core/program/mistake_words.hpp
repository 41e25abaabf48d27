// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/mesh/joint_mesh.hpp>
#include <espalier/tensor/core/program/passes.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

/// Values of a trace as the types that a message prints: places, operators, axes and annotations.
namespace espalier::detail {

/// The printed form of a detail: of a traced tensor its type, without the mesh that all of them share.
template <class T> struct printed { using type = T; };
template <class Mesh, class Tensor> struct printed<symbol<Mesh, Tensor>> { using type = Tensor; };
template <class First, class Second> struct printed<std::pair<First, Second>> {
  using type = std::pair<typename printed<First>::type, typename printed<Second>::type>;
};
template <class... Parts> struct printed<results<Parts...>> { using type = results<typename printed<Parts>::type...>; };

template <class Reason> struct printed_reason { using type = Reason; };
template <template <class...> class Reason, class... Details> struct printed_reason<Reason<Details...>> {
  using type = Reason<typename printed<Details>::type...>;
};

/// A mistake at its place, or nothing where the compiler has spoken already.
template <class Reason, class Where>
using report_of = std::conditional_t<std::is_same_v<Reason, reported>, reported_by_compiler,
                                     report<typename printed_reason<Reason>::type, Where>>;

template <class Place> struct op_of_place { static constexpr const char* value = Place::value.op; };
/// Returns the place of a mistake as a type: a line, or the program as a whole if no line is known; and the op.
template <class Place> [[nodiscard]] constexpr auto spelled_place() {
  if constexpr (Place::value.line == 0) {
    return why::program{};
  } else if constexpr (Place::value.op == nullptr) {
    return spelled<Place>{};
  } else {
    return why::in<typename spelled_text<op_of_place<Place>, why::op>::type, spelled<Place>>{};
  }
}
template <class Place> using place_of_mistake = decltype(spelled_place<Place>());

/// An instruction's place in the user's source. Arguments have none: they are declared in the program's own type.
/// Neither have results: theirs is where the value is made.
template <const auto& Program, int Id> struct line_of_instruction {
  static constexpr source_line value = Program.code[Id].where;
};
template <const auto& Program, int Id> [[nodiscard]] constexpr auto place_of() {
  if constexpr (structure_of(Program.code[Id]) == structure::argument) {
    return why::argument_leaf<attributes_of<border_attributes>(Program.code[Id]).number>{};
  } else if constexpr (structure_of(Program.code[Id]) == structure::result) {
    return place_of<Program, Program.code[Id].operand[0]>();
  } else if constexpr (Program.code[Id].where.line == 0) {
    return why::program{};
  } else {
    return spelled<line_of_instruction<Program, Id>>{};
  }
}
template <const auto& Program, int Id> using place_of_instruction = decltype(place_of<Program, Id>());

template <const auto& Program, int Id> struct name_of_instruction {
  static constexpr const char* value = Program.code[Id].op->name;
};
template <const auto& Program, int Id>
using op_of_instruction = typename spelled_text<name_of_instruction<Program, Id>, why::op>::type;

/// A mesh axis given by its number, as the user's type.
template <class Mesh, int Axis> struct axis_of_mesh;
template <class First, class... Rest, int Axis>
struct axis_of_mesh<mesh<First, Rest...>, Axis> : axis_of_mesh<mesh<Rest...>, Axis - 1> {};
template <class First, class... Rest> struct axis_of_mesh<mesh<First, Rest...>, 0> { using type = First; };

/// The number of the axis of joined meshes that is made of just these common axes, or -1.
template <class Joint, class... Axes>
[[nodiscard]] constexpr int axis_made_of(axis_types<Axes...> /*all*/, axis_list common) {
  constexpr axis_list lists[]{Joint::template axes_of<Axes>...};
  for (int a = 0; a < static_cast<int>(sizeof...(Axes)); ++a) {
    if (lists[a] == common) return a;
  }
  return -1;
}

/// An axis that meshes have in common, in one of its orders, in the words of the axes of one of them: that axis, or a
/// part of it.
template <class Joint, int Entry, class Axes> struct common_axis_in_words;
template <class Joint, int Entry, class... Axes> struct common_axis_in_words<Joint, Entry, axis_types<Axes...>> {
  static constexpr int whole = axis_made_of<Joint>(axis_types<Axes...>{}, axis_list(Entry));
  struct place {
    int number = 0;
    int majors = 1;
  };
  /// In the other order, if that is all that meshes have of it.
  static constexpr place found = [] {
    constexpr axis_list lists[]{Joint::template axes_of<Axes>...};
    place result{whole, 1};
    for (int a = 0; result.number < 0; ++a) {
      int majors = 1;
      for (int n = 0; n < lists[a].size(); ++n) {
        if (axis_of_entry(lists[a][n]) == axis_of_entry(Entry)) result = {a, majors};
        majors *= Joint::value.size[axis_of_entry(lists[a][n])];
      }
    }
    return result;
  }();
  using axis = typename axis_of_mesh<mesh<Axes...>, found.number>::type;
  using type = std::conditional_t<
      (whole >= 0), axis,
      why::sub_axis<axis, why::before<found.majors>, why::size<Joint::value.size[axis_of_entry(Entry)]>>>;
};
template <class... Meshes, int Entry>
struct axis_of_mesh<joint_mesh<Meshes...>, Entry>
    : common_axis_in_words<joint_mesh<Meshes...>, Entry, typename axes_of_meshes<axis_types<>, Meshes...>::type> {};

/// `Into<axes...>`, with the axes of a list.
template <class Mesh, std::uint32_t Code, template <class...> class Into> struct listed_axes {
  template <std::size_t... I>
  static Into<typename axis_of_mesh<Mesh, axis_list::from_code(Code)[static_cast<int>(I)]>::type...> all(
      std::index_sequence<I...>);
  using type = decltype(all(std::make_index_sequence<static_cast<std::size_t>(axis_list::from_code(Code).size())>{}));
};

template <class... Meshes, std::uint32_t Code, template <class...> class Into>
struct listed_axes<joint_mesh<Meshes...>, Code, Into> {
  template <class... Axes> [[nodiscard]] static constexpr auto words(axis_types<Axes...> all) {
    constexpr int whole = axis_made_of<joint_mesh<Meshes...>>(axis_types<Axes...>{}, axis_list::from_code(Code));
    if constexpr (whole >= 0) {
      return std::type_identity<Into<typename axis_of_mesh<mesh<Axes...>, whole>::type>>{};
    } else {
      return parts(all, std::make_index_sequence<static_cast<std::size_t>(axis_list::from_code(Code).size())>{});
    }
  }
  template <class All, std::size_t... I>
  static std::type_identity<Into<typename common_axis_in_words<
      joint_mesh<Meshes...>, axis_list::from_code(Code)[static_cast<int>(I)], All>::type...>>
      parts(All, std::index_sequence<I...>);
  using type = typename decltype(words(typename axes_of_meshes<axis_types<>, Meshes...>::type{}))::type;
};
template <class... Axes> struct dimension_entry { using type = why::along<Axes...>; };
template <MeshAxis... Axes> struct dimension_entry<Axes...> { using type = axes<Axes...>; };
template <MeshAxis Axis> struct dimension_entry<Axis> { using type = Axis; };
template <> struct dimension_entry<> { using type = none; };

/// A layout of a graph's annotations in the words of `shard<...>`.
template <class Mesh, const auto& Program, int Id> struct annotation_words {
  static constexpr sharding value = Program.annotations[Program.code[Id].annotation].placement;
  template <int Dim> [[nodiscard]] static constexpr auto dimension() {
    using split = typename listed_axes<Mesh, value.dim[Dim].code(), dimension_entry>::type::type;
    if constexpr (value.dim[Dim].empty() && value.is_open(Dim)) {
      return std::type_identity<open>{};
    } else {
      return std::type_identity<split>{};
    }
  }
  template <class... Last, std::size_t... Dims>
  static why::annotated<typename decltype(dimension<static_cast<int>(Dims)>())::type..., Last...> all(
      std::index_sequence<Dims...>);
  [[nodiscard]] static constexpr auto words() {
    using dims = std::make_index_sequence<static_cast<std::size_t>(value.rank)>;
    if constexpr (value.unreduced == 0) {
      return all(dims{});
    } else {
      return all<typename listed_axes<Mesh, list_of(value.unreduced).code(), unreduced>::type>(dims{});
    }
  }
  using type = decltype(words());
};

}  // namespace espalier::detail
