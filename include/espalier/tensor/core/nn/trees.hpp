// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/leaf_difference.hpp>
#include <espalier/tensor/core/nn/leaves.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

/// Functions of whole trees. A tree is an argument or result of a program: a Hana struct of leaves, `results` of trees,
/// or one tensor. `tree_map`, `tree_zip` and `tree_reduce` are for traced tensors and for arrays alike; all other
/// functions for arrays are in tensor/run/execute/array_trees.hpp.
namespace espalier {

namespace why {

template <class... Details> struct trees_of_different_leaves {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "tree_map, tree_zip: the trees have different numbers of leaves; the first leaves that differ stand "
                  "here, of the first tree and of the other. Give trees of one declaration.");
  };
};
template <class... Details> struct leaf_function_changes_shape {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "tree_map, tree_zip: for each leaf the function must return a tensor of the leaf's shape, with the "
                  "leaf's element type or the same one for all leaves; the leaf and what was returned for it stand "
                  "here. For one value of all leaves use tree_reduce.");
  };
};

}  // namespace why

/// Leaves of one element type: those of `f16<4>` and `f64<2, 3>` are `f32<4>` and `f32<2, 3>` in
/// `net<of_type<Leaf, dtype::f32>>`.
template <class Kind, dtype Type> struct of_type {
  template <class Tensor> struct as { using type = tensor_for<Type, Tensor::shape>; };
  template <class Tensor, class... Entries> struct as<sharded<Tensor, Entries...>> {
    using type = sharded<typename as<Tensor>::type, Entries...>;
  };
  template <class Tensor> using of = leaf<Kind, typename as<Tensor>::type>;
};

namespace detail {

template <class Kind, dtype Type> struct stacking<of_type<Kind, Type>> : stacking<Kind> {
  template <class Leaves> using with = of_type<typename stacking<Kind>::template with<Leaves>, Type>;
  template <class Inner> struct shorter { using type = of_type<typename Inner::rest, Type>; };
  using rest =
      typename std::conditional_t<stacking<Kind>::is_stack, shorter<stacking<Kind>>, std::type_identity<void>>::type;
};

/// Pointers to the leaves of a tree, in order.
template <class T> constexpr auto leaf_pointers(T& tree) {
  using type = std::remove_const_t<T>;
  if constexpr (ParameterTree<type>) {
    return boost::hana::unpack(boost::hana::accessors<type>(), [&](const auto&... member) {
      return std::tuple_cat(leaf_pointers(boost::hana::second(member)(tree))...);
    });
  } else if constexpr (is_results<type>) {
    if constexpr (std::is_same_v<type, results<>>) {
      return std::tuple<>();
    } else {
      return std::tuple_cat(leaf_pointers(tree.first), leaf_pointers(tree.rest));
    }
  } else {
    return std::tuple<T*>(&tree);
  }
}
template <class T> using leaf_tuple = decltype(leaf_pointers(std::declval<const T&>()));
template <class Tuple, std::size_t I>
using leaf_at = std::remove_cvref_t<decltype(*std::get<I>(std::declval<Tuple>()))>;

/// A leaf of the same kind with another tensor.
template <class Leaf, class Tensor> struct leaf_with;
template <class Mesh, class Old, class Tensor> struct leaf_with<symbol<Mesh, Old>, Tensor> {
  using type = symbol<Mesh, Tensor>;
};
template <template <TensorType> class Array, class Old, class Tensor> struct leaf_with<Array<Old>, Tensor> {
  using type = Array<Tensor>;
};

/// The tree that a function makes of leaves: one like the first, with its leaves unchanged, accumulating, or of one
/// type.
struct same_leaves {
  template <class Tree> using tree = Tree;
  template <class Tensor> using tensor = Tensor;
};
struct accumulating_leaves {
  template <class Tree> using tree = rebind_tree<Tree, accumulating<kind_of<Tree>>>;
  template <class Tensor> using tensor = typename accumulating_tensor<Tensor>::type;
};
template <dtype Type> struct leaves_of_type {
  template <class Tree> using tree = rebind_tree<Tree, of_type<kind_of<Tree>, Type>>;
  template <class Tensor> using tensor = tensor_for<Type, Tensor::shape>;
};

template <class T, class How> struct mapped_tree {
  using type = typename leaf_with<T, typename How::template tensor<typename T::tensor>>::type;
};
template <ParameterTree T, class How> struct mapped_tree<T, How> { using type = typename How::template tree<T>; };
template <class... Parts, class How> struct mapped_tree<results<Parts...>, How> {
  using type = results<typename mapped_tree<Parts, How>::type...>;
};

template <class T, class Made, class How>
inline constexpr bool is_leaf_made =
    std::is_same_v<typename Made::tensor, typename How::template tensor<typename T::tensor>>;

/// One leaf's function applied to the leaves of number I.
template <std::size_t I, class F, class... Pointers>
constexpr decltype(auto) on_leaves(const F& f, const Pointers&... pointers) {
  return f(*std::get<I>(pointers)...);
}
template <std::size_t I, class F, class... Pointers>
using made_of_leaves =
    std::remove_cvref_t<decltype(on_leaves<I>(std::declval<const F&>(), std::declval<const Pointers&>()...))>;

template <class Made, class... More> struct first_failed { using type = void; };
template <class Made, class... More>
struct first_failed<results<Made, More...>>
    : std::conditional_t<Failed<Made>, std::type_identity<Made>, first_failed<results<More...>>> {};

template <class Made> inline constexpr bool is_leaf_tensor = requires { typename Made::tensor; };

/// The reason for the first leaf for which the function returned no tensor, or one of another shape; or void.
template <class... Leaves> struct first_changed {
  template <class... Made> struct of { using type = void; };
};
template <class Leaf, class... Leaves> struct first_changed<Leaf, Leaves...> {
  template <class Made, class... More> struct of {
    static constexpr bool same = [] {
      if constexpr (is_leaf_tensor<Made>) {
        return Made::tensor::shape == Leaf::tensor::shape;
      } else {
        return false;
      }
    }();
    struct here {
      using type = why::leaf_function_changes_shape<Leaf, Made>;
    };
    using type = typename std::conditional_t<same, typename first_changed<Leaves...>::template of<More...>, here>::type;
  };
};

template <class F, class Tree, class... More, std::size_t... I>
constexpr auto map_leaves(std::index_sequence<I...> /*leaves*/, const F& f, const Tree& tree, const More&... more) {
  const auto pointers = leaf_pointers(tree);
  using leaves = std::remove_const_t<decltype(pointers)>;
  if constexpr ((std::is_void_v<made_of_leaves<I, F, leaves, leaf_tuple<More>...>> || ...)) {
    const int done[]{0, (on_leaves<I>(f, pointers, leaf_pointers(more)...), 0)...};
    static_cast<void>(done);
  } else {
    using failure = typename first_failed<results<made_of_leaves<I, F, leaves, leaf_tuple<More>...>...>>::type;
    using changed = typename first_changed<leaf_at<leaves, I>...>::template of<
        made_of_leaves<I, F, leaves, leaf_tuple<More>...>...>::type;
    if constexpr (!std::is_void_v<failure>) {
      mistake_place where;
      const auto note = [&](const auto& made) {
        if constexpr (Failed<std::remove_cvref_t<decltype(made)>>) where = made.where;
      };
      const int done[]{0, (note(on_leaves<I>(f, pointers, leaf_pointers(more)...)), 0)...};
      static_cast<void>(done);
      return failure(where);
    } else if constexpr (!std::is_void_v<changed>) {
      return failed<changed>(source_line(owner_of(tree) == nullptr ? source_line{} : owner_of(tree)->where));
    } else {
      constexpr auto all = [](auto how) {
        using chosen = decltype(how);
        const bool fits[]{
            true, is_leaf_made<leaf_at<leaves, I>, made_of_leaves<I, F, leaves, leaf_tuple<More>...>, chosen>...};
        for (const bool one : fits) {
          if (!one) return false;
        }
        return true;
      };
      constexpr dtype types[]{made_of_leaves<I, F, leaves, leaf_tuple<More>...>::tensor::type..., dtype::f32};
      const auto fill = [&](auto how) {
        typename mapped_tree<Tree, decltype(how)>::type out{};
        const auto places = leaf_pointers(out);
        const int done[]{0, (*std::get<I>(places) = on_leaves<I>(f, pointers, leaf_pointers(more)...), 0)...};
        static_cast<void>(done);
        return out;
      };
      if constexpr (all(same_leaves{})) {
        return fill(same_leaves{});
      } else if constexpr (all(accumulating_leaves{})) {
        return fill(accumulating_leaves{});
      } else if constexpr (all(leaves_of_type<types[0]>{})) {
        return fill(leaves_of_type<types[0]>{});
      } else {
        using mixed =
            why::leaf_function_changes_shape<leaf_at<leaves, 0>, made_of_leaves<0, F, leaves, leaf_tuple<More>...>>;
        return failed<mixed>(source_line(owner_of(tree) == nullptr ? source_line{} : owner_of(tree)->where));
      }
    }
  }
}

template <class T> inline constexpr std::size_t leaves_in = std::tuple_size_v<leaf_tuple<T>>;

/// The first of the other trees that has another number of leaves than the first one, or void.
template <class First, class... Others> struct other_number_of_leaves { using type = void; };
template <class First, class Other, class... Rest>
struct other_number_of_leaves<First, Other, Rest...>
    : std::conditional_t<leaves_in<First> == leaves_in<Other>, other_number_of_leaves<First, Rest...>,
                         std::type_identity<Other>> {};

template <class First, class... Others> using unlike = typename other_number_of_leaves<First, Others...>::type;

template <class F, class Value, class Pointers, std::size_t First, std::size_t... I>
constexpr auto fold_leaves(std::index_sequence<First, I...> /*leaves*/, const F& f, const Value& value,
                           const Pointers& pointers) {
  const auto next = f(value, *std::get<First>(pointers));
  if constexpr (sizeof...(I) == 0) {
    return next;
  } else {
    return fold_leaves(std::index_sequence<I...>{}, f, next, pointers);
  }
}

}  // namespace detail

/// The tree of what `f` makes of each leaf, `f(leaf)`, in the order of declaration; with more trees, of the leaves of
/// the same number, `f(leaf, other)`. The result of `f` has the leaf's shape and its element type; or all have the same
/// element type, `tree_map([](auto x) { return ep::convert<ep::dtype::f32>(x); }, net)`, or the one that the leaf's is
/// accumulated in. Of arrays, `f` may return nothing.
/// Errors: `trees_of_different_leaves`, `leaf_function_changes_shape`, and those of what `f` does.
template <class F, class Tree, class... More>
constexpr auto tree_map(const F& f, const Tree& tree, const More&... more) {
  if constexpr ((Failed<Tree> || ... || Failed<More>)) {
    return detail::first_failure(tree, more...);
  } else if constexpr (!std::is_void_v<detail::unlike<Tree, More...>>) {
    builder* const owner = detail::owner_of(tree);
    return failed<detail::difference_of_trees<Tree, detail::unlike<Tree, More...>, why::trees_of_different_leaves>>(
        owner == nullptr ? source_line{} : owner->where);
  } else {
    return detail::map_leaves(std::make_index_sequence<detail::leaves_in<Tree>>{}, f, tree, more...);
  }
}

/// The tree of what `f(leaf, other)` makes of corresponding leaves of two trees or more: `tree_map`, with its errors.
///
///     const auto average = ep::tree_zip([](auto a, auto b) { return (a + b) / 2; }, one, other);
template <class F, class One, class Other, class... More>
constexpr auto tree_zip(const F& f, const One& one, const Other& other, const More&... more) {
  return tree_map(f, one, other, more...);
}

/// Folds the leaves in the order of declaration: f(... f(f(start, leaf 0), leaf 1) ..., the last leaf).
///
///     const auto total = ep::tree_reduce([](auto sum, auto x) { return sum + ep::sum(x * x); },
///                                        ep::constant<ep::f32<>>(loss, 0), gradient);
template <class F, class Start, class Tree>
constexpr auto tree_reduce(const F& f, const Start& start, const Tree& tree) {
  if constexpr (Failed<Start> || Failed<Tree>) {
    return detail::first_failure(start, tree);
  } else if constexpr (detail::leaves_in<Tree> == 0) {
    return start;
  } else {
    return detail::fold_leaves(std::make_index_sequence<detail::leaves_in<Tree>>{}, f, start,
                               detail::leaf_pointers(tree));
  }
}

namespace detail {

/// True if a tuple of leaves holds only traced tensors.
template <class Leaves> inline constexpr bool are_all_symbols = false;
template <class... Leaves>
inline constexpr bool are_all_symbols<std::tuple<const Leaves*...>> = (... && Symbol<Leaves>);
template <class T>
concept TracedTree = Failed<T> || are_all_symbols<leaf_tuple<T>>;

/// The first leaf that is no tensor of floats, or void.
template <class... Pointers> struct integer_leaf { using type = void; };
template <class First, class... Rest> struct integer_leaf<std::tuple<const First*, Rest...>> {
  using tensor = typename First::tensor;
  using type = typename std::conditional_t<is_floating(tensor::type), integer_leaf<std::tuple<Rest...>>,
                                           std::type_identity<tensor>>::type;
};
template <class T> using integer_leaf_of = typename integer_leaf<leaf_tuple<T>>::type;

template <class Leaves> inline constexpr bool has_f64 = false;
template <class... Leaves>
inline constexpr bool has_f64<std::tuple<const Leaves*...>> = (... || (Leaves::tensor::type == dtype::f64));

/// A scalar of this type on the mesh of the tree.
template <class Tree, dtype Type>
using scalar_of_tree =
    symbol<typename std::remove_cvref_t<decltype(*std::get<0>(std::declval<leaf_tuple<Tree>>()))>::mesh,
           tensor_for<Type, extents{}>>;

[[nodiscard]] constexpr std::int64_t all_dimensions(const extents& shape) {
  return (std::int64_t{1} << shape.rank) - 1;
}

/// The sum of these scalars, -1 of none.
constexpr int sum_of_scalars(builder& b, const list<int>& scalars) {
  int total = -1;
  for (const int one : scalars) total = total < 0 ? one : emit::add(b, total, one);
  return total;
}
/// The same of what `term` makes of each leaf. Terms of matrices come first, then those of vectors: leaves of a kind
/// tend to be laid out alike, and sums that are partial over the same axes are added before they travel.
template <class F> constexpr int sum_over_leaves(builder& b, const list<int>& leaves, const F& term) {
  list<int> parts;
  for (int rank = 2; rank >= 0; --rank) {
    list<int> terms;
    for (const int leaf : leaves) {
      const int own = b[leaf].shape.rank;
      if ((own > 2 ? 2 : own) == rank) terms.push_back(term(leaf));
    }
    if (!terms.empty()) parts.push_back(sum_of_scalars(b, terms));
  }
  return sum_of_scalars(b, parts);
}

/// The sum of the squares of all elements, as a scalar of this type.
constexpr int sum_of_squares(builder& b, const list<int>& leaves, dtype type) {
  return sum_over_leaves(b, leaves, [&](int leaf) {
    const int x = emit::convert(b, leaf, computed_type(b[leaf].type));
    return emit::convert(b, emit::reduce_sum(b, emit::multiply(b, x, x), all_dimensions(b[x].shape)), type);
  });
}

template <class Tree> constexpr list<int> leaf_ids(builder& b, const Tree& tree, source_line where) {
  list<int> ids;
  for_each_leaf(tree, [&](const auto& one) { ids.push_back(operand_of(b, one, where)); });
  return ids;
}

}  // namespace detail

/// A tree of zeros, with the leaves of `tree`: `zeros_like(state.parameters)`.
template <detail::TracedTree Tree>
constexpr auto zeros_like(const Tree& tree, source_line where = source_line::current()) {
  if constexpr (Failed<Tree>) {
    return tree;
  } else {
    builder& b = *detail::owner_of(tree);
    const pinned_line line(b, where);
    Tree made = tree;
    detail::for_each_leaf(made, [&](auto& one) { one.id = emit::constant(b, one.type, one.shape, 0); });
    return made;
  }
}

/// The square root of the sum of the squares of all elements of all leaves: a scalar, `f32<>`, or `f64<>` if a leaf is.
/// Squares are added up in `f32` (of `f64`, in `f64`), so that leaves of sixteen bits neither overflow nor vanish. On a
/// mesh, scalars of leaves that are split are summed: four bytes, in one collective for each set of axes. (Where leaves
/// of one rank are laid out in different ways, four bytes for each such leaf may travel in it.) Errors:
/// `operand_is_not_floating`.
template <detail::TracedTree Tree>
constexpr auto global_norm(const Tree& tree, source_line where = source_line::current()) {
  if constexpr (Failed<Tree>) {
    return tree;
  } else if constexpr (!std::is_void_v<detail::integer_leaf_of<Tree>>) {
    return failed<why::operand_is_not_floating<detail::integer_leaf_of<Tree>>>(where, "global_norm");
  } else {
    builder& b = *detail::owner_of(tree);
    const pinned_line line(b, where);
    constexpr dtype type = detail::has_f64<detail::leaf_tuple<Tree>> ? dtype::f64 : dtype::f32;
    const int squares = detail::sum_of_squares(b, detail::leaf_ids(b, tree, where), type);
    return detail::scalar_of_tree<Tree, type>(b, b.append(ops::sqrt, type, extents{}, squares));
  }
}

/// Scales a tree so that its `global_norm` is at most `most`, a number or a scalar tensor, and returns the scaled tree
/// and the norm that it had: `const auto [clipped, norm] = clip_by_global_norm(gradient, 1.0);` Each element is
/// multiplied by min(most / norm, 1) in `f32` and rounded once. Of a norm that is not finite nothing useful is left:
/// see `all_finite`. Errors: as of `global_norm`, `rate_is_no_scalar` of `most`.
template <detail::TracedTree Tree, class Most>
constexpr auto clip_by_global_norm(const Tree& tree, const Most& most, source_line where = source_line::current()) {
  const auto norm = global_norm(tree, where);
  using norm_type = std::remove_const_t<decltype(norm)>;
  if constexpr (Failed<norm_type>) {
    return results(norm, norm);
  } else if constexpr (Failed<Most>) {
    return results(most, most);
  } else {
    builder& b = *norm.owner;
    const pinned_line line(b, where);
    int bound = -1;
    if constexpr (std::is_arithmetic_v<Most>) {
      bound = emit::constant_like(b, norm.id, static_cast<double>(most));
    } else {
      static_assert(Most::rank == 0 && is_floating(Most::type),
                    "clip_by_global_norm: the bound is a number or a scalar tensor of floats, f32<>.");
      bound = emit::convert(b, detail::operand_of(b, most, where), norm_type::type);
    }
    const int ratio = emit::divide(b, bound, norm.id);
    const int factor = b.append(ops::minimum, norm_type::type, extents{}, ratio, emit::constant_like(b, ratio, 1));
    Tree clipped = tree;
    detail::for_each_leaf(clipped, [&](auto& one) {
      const int wide = emit::convert(b, detail::operand_of(b, one, where), detail::computed_type(one.type));
      const int by = emit::broadcast_to(b, emit::convert(b, factor, b[wide].type), one.shape);
      one.id = emit::convert(b, emit::multiply(b, wide, by), one.type);
      one.owner = &b;
    });
    return results(clipped, norm);
  }
}

/// Whether no element of any leaf is infinite or NaN: a truth value, `boolean<>`. On a mesh counts are
/// summed as in `global_norm`. Errors: `operand_is_not_floating`.
template <detail::TracedTree Tree>
constexpr auto all_finite(const Tree& tree, source_line where = source_line::current()) {
  if constexpr (Failed<Tree>) {
    return tree;
  } else if constexpr (!std::is_void_v<detail::integer_leaf_of<Tree>>) {
    return failed<why::operand_is_not_floating<detail::integer_leaf_of<Tree>>>(where, "all_finite");
  } else {
    builder& b = *detail::owner_of(tree);
    const pinned_line line(b, where);
    const int total = detail::sum_over_leaves(b, detail::leaf_ids(b, tree, where), [&](int leaf) {
      const extents shape = b[leaf].shape;
      const int finite = b.append(ops::is_finite, dtype::boolean, shape, leaf);
      const int other = b.append(ops::logical_not, dtype::boolean, shape, finite);
      return emit::reduce_sum(b, emit::convert(b, other, dtype::i32), detail::all_dimensions(shape));
    });
    const int none = emit::constant_like(b, total, 0);
    return detail::scalar_of_tree<Tree, dtype::boolean>(b, emit::compare(b, ops::equal, total, none));
  }
}

/// `yes` where `condition`, a truth value `boolean<>`, holds, else `no`, a tree of the same type: a step is taken back
/// when its gradients were not finite, `tree_select(all_finite(gradient), next, state)`.
/// Errors: `trees_of_different_leaves`, and those of `select`.
template <class Condition, class Tree>
constexpr auto tree_select(const Condition& condition, const Tree& yes, const Tree& no,
                           source_line where = source_line::current()) {
  if constexpr (Failed<Condition> || Failed<Tree>) {
    return detail::first_failure(condition, yes, no);
  } else {
    return tree_map([&](const auto& one, const auto& other) { return select(condition, one, other, where); }, yes, no);
  }
}

}  // namespace espalier
