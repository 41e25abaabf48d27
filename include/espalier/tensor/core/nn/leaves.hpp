// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/graph/named_leaves.hpp>

#include <type_traits>

namespace espalier {

namespace detail {

/// The type that floats which are for storage only are computed in; of all others, the type itself.
[[nodiscard]] constexpr dtype computed_type(dtype type) {
  return is_for_storage(type) ? facts_of(type).accumulate : type;
}

template <class Tensor> struct accumulating_tensor {
  using type = tensor_for<computed_type(Tensor::type), Tensor::shape>;
};
template <class Tensor, class... Entries> struct accumulating_tensor<sharded<Tensor, Entries...>> {
  using type = sharded<typename accumulating_tensor<Tensor>::type, Entries...>;
};

}  // namespace detail

/// Leaves of the type that a tensor's elements are accumulated in: those of `f16<4>` and `bf16<4>` are `f32<4>`, all
/// others stay as they are. `net<accumulating<Leaf>>` is a tree like `net<Leaf>` for what must not be rounded to
/// sixteen bits after each step, such as an optimizer's moments.
template <class Kind> struct accumulating {
  template <class Tensor> using of = leaf<Kind, typename detail::accumulating_tensor<Tensor>::type>;
};

namespace detail {

template <class Kind> struct stacking<accumulating<Kind>> : stacking<Kind> {
  template <class Leaves> using with = accumulating<typename stacking<Kind>::template with<Leaves>>;
  template <class Inner> struct shorter { using type = accumulating<typename Inner::rest>; };
  using rest =
      typename std::conditional_t<stacking<Kind>::is_stack, shorter<stacking<Kind>>, std::type_identity<void>>::type;
};

/// Whether a tree has floats that are for storage only.
template <class Tree> [[nodiscard]] constexpr bool has_leaves_for_storage() {
  bool any = false;
  const Tree tree{};
  for_each_leaf(tree,
                [&](const auto& one) { any = any || is_for_storage(plain<std::remove_cvref_t<decltype(one)>>::type); });
  return any;
}

template <bool ForStorage> struct accumulators_of {
  template <template <class> class Tree, class Leaf> using tree = Tree<Leaf>;
  template <class Tree> using like = Tree;
};
template <> struct accumulators_of<true> {
  template <template <class> class Tree, class Leaf> using tree = Tree<accumulating<Leaf>>;
  template <class Tree> using like = rebind_tree<Tree, accumulating<kind_of<Tree>>>;
};

/// `nn::accumulators` of a tree that is already one of leaves.
template <class Tree>
using accumulators_like = typename accumulators_of<has_leaves_for_storage<Tree>()>::template like<Tree>;

}  // namespace detail

}  // namespace espalier

namespace espalier::nn {

/// A tree like `Tree<Leaf>` whose floats of sixteen bits are `f32`: `Tree<accumulating<Leaf>>`, or `Tree<Leaf>` itself
/// if it has none. To declare what is added up over many steps:
///
///     BOOST_HANA_DEFINE_STRUCT(state, (net<Leaf>, parameters), (ep::nn::accumulators<net, Leaf>, average));
template <template <class> class Tree, class Leaf>
using accumulators =
    typename detail::accumulators_of<detail::has_leaves_for_storage<Tree<spec>>()>::template tree<Tree, Leaf>;

using espalier::for_each_named_leaf;
using espalier::leaf_path;

/// Members named `gain` and `bias` scale and shift what a layer computes. They start as 1 and 0, and weight decay,
/// which is for what mixes inputs, leaves them alone.
[[nodiscard]] constexpr bool is_gain_or_bias(const leaf_path& path) { return path.is("gain") || path.is("bias"); }

}  // namespace espalier::nn
