// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/symbol.hpp>
#include <espalier/tensor/core/sharding/annotation.hpp>

// Declarations: what defines a Hana struct (<boost/hana/define_struct.hpp>) brings the rest, and 50 ms with it.
#include <boost/hana/concept/struct.hpp>
#include <boost/hana/fwd/accessors.hpp>
#include <boost/hana/fwd/first.hpp>
#include <boost/hana/fwd/second.hpp>
#include <boost/hana/fwd/unpack.hpp>

#include <cstddef>
#include <type_traits>

namespace espalier {

/// A parameter tree is a Hana struct, templated over what its leaves are, so that one declaration serves every
/// purpose:
///
///     template <class Leaf> struct dense {
///       BOOST_HANA_DEFINE_STRUCT(dense,
///         (ep::leaf<Leaf, ep::f32<256, 1024>>, weight),
///         (ep::leaf<Leaf, ep::f32<1024>>, bias));
///     };
///
/// `dense<spec>` is an argument of a program, `dense<symbols<Mesh>>` what the traced function sees, `dense<arrays>`
/// the data at run time. Trees nest.
template <class Kind, class Tensor> using leaf = typename Kind::template of<Tensor>;

/// Leaves that only say what they are: tensor types, with their sharding if any.
struct spec {
  template <class Tensor> using of = Tensor;
};

namespace detail {

template <class Tensor> struct plain_tensor { using type = Tensor; };
template <class Tensor, class... Entries> struct plain_tensor<sharded<Tensor, Entries...>> { using type = Tensor; };

template <int Count, class Tensor> struct stacked_tensor;
template <int Count, template <int...> class Tensor, int... Extents> struct stacked_tensor<Count, Tensor<Extents...>> {
  using type = Tensor<Count, Extents...>;
};
template <int Count, class Tensor, class... Entries> struct stacked_tensor<Count, sharded<Tensor, Entries...>> {
  using type = sharded<typename stacked_tensor<Count, Tensor>::type, none, Entries...>;
};

template <class Tensor> struct unstacked_tensor;
template <template <int...> class Tensor, int First, int... Rest> struct unstacked_tensor<Tensor<First, Rest...>> {
  using type = Tensor<Rest...>;
};

}  // namespace detail

/// The tensor type without its sharding.
template <class Tensor> using plain = typename detail::plain_tensor<Tensor>::type;

/// Leaves that are traced tensors.
template <class Mesh> struct symbols { template <class Tensor> using of = symbol<Mesh, plain<Tensor>>; };

/// Leaves with a leading dimension of Count: the parameters of Count equal layers in one tree, for `scan`. `Kind` may
/// be a stack again, whose dimension comes before: in a tree of `stacked<Leaf, 3>` that is itself stacked four times,
/// as `Tree<stacked<spec, 4>>`, the leaves begin with 4, 3.
template <class Kind, int Count> struct stacked {
  template <class Tensor> using of = leaf<Kind, typename detail::stacked_tensor<Count, Tensor>::type>;
};

namespace detail {

/// A kind of leaves that may be a stack, of stacks perhaps: what they are made of, the same made of others, and the
/// first dimension, with what is left without it.
template <class Kind> struct stacking {
  static constexpr bool is_stack = false;
  using leaves = Kind;
  template <class Leaves> using with = Leaves;
};
template <class Kind, int Count> struct stacking<stacked<Kind, Count>> {
  using inner = stacking<Kind>;
  static constexpr bool is_stack = true;
  static constexpr bool is_outermost = !inner::is_stack;
  using leaves = typename inner::leaves;
  template <class Leaves> using with = stacked<typename inner::template with<Leaves>, Count>;
  static constexpr int count = [] {
    if constexpr (is_outermost) {
      return Count;
    } else {
      return inner::count;
    }
  }();
  template <class Inner> struct shorter { using type = stacked<typename Inner::rest, Count>; };
  using rest = typename std::conditional_t<is_outermost, std::type_identity<Kind>, shorter<inner>>::type;
};

template <class T> struct tree_traits : std::false_type {};
template <template <class> class Tree, class Kind> struct tree_traits<Tree<Kind>> : std::true_type {
  using kind = Kind;
  template <class Other> using rebind = Tree<Other>;
};

}  // namespace detail

/// A Hana struct templated over the kind of its leaves.
template <class T>
concept ParameterTree = boost::hana::Struct<T>::value && detail::tree_traits<T>::value;

template <ParameterTree T> using kind_of = typename detail::tree_traits<T>::kind;
/// The same tree with leaves of another kind.
template <ParameterTree T, class Kind> using rebind_tree = typename detail::tree_traits<T>::template rebind<Kind>;

namespace detail {
/// The same tree, as often stacked, with other leaves.
template <ParameterTree T, class Leaves>
using with_leaves = rebind_tree<T, typename stacking<kind_of<T>>::template with<Leaves>>;
}  // namespace detail

/// The return value of a traced function that has several results: tensors, trees, in this order. They can be taken
/// apart: `const auto [last, outputs] = scan(...);`
template <class... Parts> struct results;
template <> struct results<> {};
template <class First, class... Rest> struct results<First, Rest...> {
  First first;
  results<Rest...> rest;

  constexpr results() = default;
  constexpr explicit results(const First& value, const Rest&... others) : first(value), rest(others...) {}

  /// Part I.
  template <int I> [[nodiscard]] constexpr const auto& get() const {
    constexpr bool is_part = I >= 0 && I <= static_cast<int>(sizeof...(Rest));
    static_assert(
        is_part,
        "results: there is no part of this number. They count from 0: results(a, b) has get<0>() and get<1>().");
    if constexpr (!is_part) {
      return detail::no_such_part;
    } else if constexpr (I == 0) {
      return first;
    } else {
      return rest.template get<I - 1>();
    }
  }
  template <int I> [[nodiscard]] constexpr auto& get() {
    constexpr bool is_part = I >= 0 && I <= static_cast<int>(sizeof...(Rest));
    static_assert(
        is_part,
        "results: there is no part of this number. They count from 0: results(a, b) has get<0>() and get<1>().");
    if constexpr (!is_part) {
      return detail::no_such_part;
    } else if constexpr (I == 0) {
      return first;
    } else {
      return rest.template get<I - 1>();
    }
  }
};
template <class... Parts> results(const Parts&...) -> results<Parts...>;

}  // namespace espalier

template <class... Parts>
struct std::tuple_size<espalier::results<Parts...>> : std::integral_constant<std::size_t, sizeof...(Parts)> {};
template <std::size_t I, class First, class... Rest>
struct std::tuple_element<I, espalier::results<First, Rest...>>
    : std::tuple_element<I - 1, espalier::results<Rest...>> {};
template <class First, class... Rest> struct std::tuple_element<0, espalier::results<First, Rest...>> {
  using type = First;
};

namespace espalier::detail {

/// The results of a program whose function returns a T: T itself, or results that a T converts to.
template <class T> struct returned_as { using type = T; };

template <class T> inline constexpr bool is_results = false;
template <class... Parts> inline constexpr bool is_results<results<Parts...>> = true;

/// Calls f on every leaf of a tree, a tensor (its own only leaf) or results, in the order of declaration.
template <class T, class F> constexpr void for_each_leaf(T& tree, const F& f) {
  using type = std::remove_const_t<T>;
  if constexpr (ParameterTree<type>) {
    boost::hana::unpack(boost::hana::accessors<type>(),
                        [&](const auto&... member) { (for_each_leaf(boost::hana::second(member)(tree), f), ...); });
  } else if constexpr (is_results<type>) {
    if constexpr (!std::is_same_v<type, results<>>) {
      for_each_leaf(tree.first, f);
      for_each_leaf(tree.rest, f);
    }
  } else {
    f(tree);
  }
}

/// Calls f on corresponding leaves of two trees of the same shape.
template <class T, class U, class F> constexpr void for_each_pair(T& one, U& other, const F& f) {
  using type = std::remove_const_t<T>;
  if constexpr (ParameterTree<type>) {
    boost::hana::unpack(boost::hana::accessors<type>(), [&](const auto&... left) {
      boost::hana::unpack(boost::hana::accessors<std::remove_const_t<U>>(), [&](const auto&... right) {
        (for_each_pair(boost::hana::second(left)(one), boost::hana::second(right)(other), f), ...);
      });
    });
  } else if constexpr (is_results<type>) {
    if constexpr (!std::is_same_v<type, results<>>) {
      for_each_pair(one.first, other.first, f);
      for_each_pair(one.rest, other.rest, f);
    }
  } else {
    f(one, other);
  }
}

/// The first mistake among what a function returns, or void.
template <class T> struct failure_in { using type = void; };
template <class Reason> struct failure_in<failed<Reason>> { using type = failed<Reason>; };
template <class First, class... Rest> struct failure_in<results<First, Rest...>> {
  using here = typename failure_in<First>::type;
  using type = std::conditional_t<std::is_void_v<here>, typename failure_in<results<Rest...>>::type, here>;
};

template <class T> [[nodiscard]] constexpr mistake_place failure_place(const T& value) {
  if constexpr (Failed<T>) {
    return value.where;
  } else if constexpr (is_results<T>) {
    if constexpr (std::is_same_v<T, results<>>) {
      return {};
    } else {
      return Failed<typename failure_in<decltype(T::first)>::type> ? failure_place(value.first)
                                                                   : failure_place(value.rest);
    }
  } else {
    return {};
  }
}

template <class T> [[nodiscard]] constexpr builder* owner_of(const T& tree) {
  builder* owner = nullptr;
  for_each_leaf(tree, [&](const auto& one) {
    if constexpr (Symbol<std::remove_cvref_t<decltype(one)>>) owner = one.owner != nullptr ? one.owner : owner;
  });
  return owner;
}

}  // namespace espalier::detail
