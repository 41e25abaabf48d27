// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/tree.hpp>

#include <boost/hana/fwd/string.hpp>

#include <type_traits>
#include <utility>

/// The differences of two parameter trees, as types for messages. Nothing here is instantiated for trees that are
/// equal.
namespace espalier::detail {

template <class... Leaves> struct leaf_list {};

template <class Path, class Name> struct path_with;
template <char... Path, char... Name> struct path_with<why::text<Path...>, boost::hana::string<Name...>> {
  using type = why::text<Path..., '.', Name...>;
};
template <char... Name> struct path_with<why::text<>, boost::hana::string<Name...>> {
  using type = why::text<Name...>;
};

template <class... Lists> struct joined_lists { using type = leaf_list<>; };
template <class... Leaves> struct joined_lists<leaf_list<Leaves...>> { using type = leaf_list<Leaves...>; };
template <class... First, class... Second, class... Rest>
struct joined_lists<leaf_list<First...>, leaf_list<Second...>, Rest...>
    : joined_lists<leaf_list<First..., Second...>, Rest...> {};

template <class T> struct leaf_tensor { using type = T; };
template <class Mesh, class Tensor> struct leaf_tensor<symbol<Mesh, Tensor>> { using type = Tensor; };

/// The leaves of a tree in their order, each with its name in letters.
template <class T, class Path = why::text<>> struct leaves_of {
  using type = leaf_list<why::leaf<Path, typename leaf_tensor<T>::type>>;
};
template <ParameterTree T, class Path> struct leaves_of<T, Path> {
  template <class Member>
  using of_member = leaves_of<
      std::remove_cvref_t<decltype(boost::hana::second(std::declval<Member>())(std::declval<T&>()))>,
      typename path_with<Path, std::remove_cvref_t<decltype(boost::hana::first(std::declval<Member>()))>>::type>;
  static constexpr auto search = [](const auto&... member) {
    return joined_lists<typename of_member<std::remove_cvref_t<decltype(member)>>::type...>{};
  };
  using type = typename decltype(boost::hana::unpack(boost::hana::accessors<T>(), search))::type;
};

/// The first leaves that differ, as `Into<one's, the other's>`; where one tree ends before the other, `no_leaf`.
template <class One, class Other, template <class...> class Into> struct first_difference {
  using type = Into<why::no_leaf, why::no_leaf>;
};
template <class First, class... Rest, template <class...> class Into>
struct first_difference<leaf_list<First, Rest...>, leaf_list<>, Into> {
  using type = Into<First, why::no_leaf>;
};
template <class First, class... Rest, template <class...> class Into>
struct first_difference<leaf_list<>, leaf_list<First, Rest...>, Into> {
  using type = Into<why::no_leaf, First>;
};
template <class First, class... Rest, class Second, class... Others, template <class...> class Into>
struct first_difference<leaf_list<First, Rest...>, leaf_list<Second, Others...>, Into> {
  using type = Into<First, Second>;
};
template <class Same, class... Rest, class... Others, template <class...> class Into>
struct first_difference<leaf_list<Same, Rest...>, leaf_list<Same, Others...>, Into>
    : first_difference<leaf_list<Rest...>, leaf_list<Others...>, Into> {};

template <class One, class Other, template <class...> class Into>
using difference_of_trees =
    typename first_difference<typename leaves_of<One>::type, typename leaves_of<Other>::type, Into>::type;

}  // namespace espalier::detail
