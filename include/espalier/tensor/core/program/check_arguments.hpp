// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/diagnostics/report.hpp>
#include <espalier/tensor/core/program/passes.hpp>

#include <type_traits>
#include <utility>

/// The mistakes in the argument types of a program, found before its function is called.
namespace espalier::detail {

template <class Argument> [[nodiscard]] constexpr bool is_argument() {
  using declared = typename argument_traits<Argument>::type;
  if constexpr (ParameterTree<declared>) {
    return std::is_default_constructible_v<declared>;
  } else {
    return TensorType<plain<declared>> && std::is_default_constructible_v<declared>;
  }
}

/// The mistake in the annotation of one argument, or void.
template <class Mesh, class Leaf> struct leaf_mistake { using type = void; };
template <class Mesh, class Tensor, class... Entries> struct leaf_mistake<Mesh, sharded<Tensor, Entries...>> {
  [[nodiscard]] static constexpr auto find() {
    constexpr annotation_fault fault = annotation_of<Mesh, Entries...>(Tensor::rank).fault;
    if constexpr (fault == annotation_fault::wrong_rank) {
      return std::type_identity<why::annotation_of_wrong_rank<sharded<Tensor, Entries...>>>{};
    } else if constexpr (fault == annotation_fault::unknown_axis) {
      return std::type_identity<why::unknown_mesh_axis<Mesh, sharded<Tensor, Entries...>>>{};
    } else if constexpr (fault == annotation_fault::axis_used_twice) {
      return std::type_identity<why::axis_used_twice<sharded<Tensor, Entries...>>>{};
    } else if constexpr (fault == annotation_fault::no_such_priority) {
      return std::type_identity<why::no_such_priority<sharded<Tensor, Entries...>>>{};
    } else {
      return std::type_identity<void>{};
    }
  }
  using type = typename decltype(find())::type;
};

template <class... Found> struct first_found { using type = void; };
template <class First, class... Rest>
struct first_found<First, Rest...>
    : std::conditional_t<std::is_void_v<First>, first_found<Rest...>, std::type_identity<First>> {};

template <class Mesh, class Tree> struct tree_mistake;
template <class Mesh, class Part>
using part_mistake =
    typename std::conditional_t<ParameterTree<Part>, tree_mistake<Mesh, Part>, leaf_mistake<Mesh, Part>>::type;
template <class Mesh, class Tree> struct tree_mistake {
  static constexpr auto search = [](const auto&... member) {
    return first_found<
        part_mistake<Mesh, std::remove_cvref_t<decltype(boost::hana::second(member)(std::declval<Tree&>()))>>...>{};
  };
  using type = typename decltype(boost::hana::unpack(boost::hana::accessors<Tree>(), search))::type;
};

/// The first member of a tree that is no leaf, though it should be one, or void: of a tree whose leaves are symbols,
/// something that is neither a symbol nor a tree.
template <class Tree> struct loose_member;
template <class Member> struct loose_part { using type = std::conditional_t<Symbol<Member>, void, Member>; };
template <ParameterTree Member> struct loose_part<Member> : loose_member<Member> {};
template <class Tree> struct loose_member {
  static constexpr auto search = [](const auto&... member) {
    return first_found<typename loose_part<
        std::remove_cvref_t<decltype(boost::hana::second(member)(std::declval<Tree&>()))>>::type...>{};
  };
  using type = typename decltype(boost::hana::unpack(boost::hana::accessors<Tree>(), search))::type;
};
template <class Mesh, class Argument> struct member_mistake { using type = void; };
template <class Mesh, ParameterTree Tree>
struct member_mistake<Mesh, Tree> : loose_member<with_leaves<Tree, symbols<Mesh>>> {};

/// Whether a tensor type has an extent below 1, read from its name: the type itself would be an error.
template <class Argument> inline constexpr bool has_impossible_extent = false;
template <template <int...> class Tensor, int... Extents>
inline constexpr bool has_impossible_extent<Tensor<Extents...>> = ((Extents < 1) || ...);
template <class Tensor, class... Entries>
inline constexpr bool has_impossible_extent<sharded<Tensor, Entries...>> = has_impossible_extent<Tensor>;
template <class Argument>
inline constexpr bool has_impossible_extent<donated<Argument>> = has_impossible_extent<Argument>;

/// Whether arrays can be made for an argument, as far as its type tells.
template <class Argument> [[nodiscard]] constexpr bool has_data() {
  if constexpr (has_impossible_extent<Argument>) {
    return false;
  } else {
    return std::is_void_v<typename member_mistake<mesh<>, typename argument_traits<Argument>::type>::type>;
  }
}

/// The first mistake among the arguments: `Index` is the number of the first of them.
template <class Mesh, int Index> [[nodiscard]] constexpr auto check_arguments() { return nothing_to_report{}; }
template <class Mesh, int Index, class First, class... Rest> [[nodiscard]] constexpr auto check_arguments() {
  using declared = typename argument_traits<First>::type;
  if constexpr (has_impossible_extent<declared>) {
    return report<why::extent_is_not_positive<declared>, why::argument<Index>>{};
  } else if constexpr (!is_argument<First>()) {
    return report<why::argument_is_not_a_tensor<declared>, why::argument<Index>>{};
  } else if constexpr (!std::is_void_v<part_mistake<Mesh, declared>>) {
    return report<part_mistake<Mesh, declared>, why::argument<Index>>{};
  } else if constexpr (!std::is_void_v<typename member_mistake<Mesh, declared>::type>) {
    return report<why::member_is_no_leaf<declared, typename member_mistake<Mesh, declared>::type>,
                  why::argument<Index>>{};
  } else {
    return check_arguments<Mesh, Index + 1, Rest...>();
  }
}

/// The function and its arguments, as they are called if nothing is wrong with the arguments.
struct no_function {};
template <class Checked, class Function>
using function_for = std::conditional_t<Checked::is_mistake, no_function, Function>;
template <class Checked, class Mesh, class Argument> struct checked_argument { using type = no_function; };
template <class Mesh, class Argument> struct checked_argument<nothing_to_report, Mesh, Argument> {
  using type = traced_t<Mesh, Argument>;
};
template <class Checked, class Mesh, class Argument>
using traced_for = typename checked_argument<Checked, Mesh, Argument>::type;

}  // namespace espalier::detail
