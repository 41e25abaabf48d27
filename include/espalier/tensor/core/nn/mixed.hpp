// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/trees.hpp>
#include <espalier/tensor/core/ops/argument.hpp>
#include <espalier/tensor/core/ops/convert.hpp>

#include <type_traits>

/// Mixed precision as a policy: a function computes in a narrow type, and all around it stays wide.
namespace espalier {

namespace detail {

/// Leaves of which those of one element type have another instead, and the rest their own.
template <class Kind, dtype From, dtype To> struct exchanged_type {
  template <class Tensor> struct as {
    using type = tensor_for<Tensor::type == From ? To : Tensor::type, Tensor::shape>;
  };
  template <class Tensor, class... Entries> struct as<sharded<Tensor, Entries...>> {
    using type = sharded<typename as<Tensor>::type, Entries...>;
  };
  template <class Tensor> using of = leaf<Kind, typename as<Tensor>::type>;
};
template <class Kind, dtype From, dtype To> struct stacking<exchanged_type<Kind, From, To>> : stacking<Kind> {
  template <class Leaves> using with = exchanged_type<typename stacking<Kind>::template with<Leaves>, From, To>;
  template <class Inner> struct shorter { using type = exchanged_type<typename Inner::rest, From, To>; };
  using rest =
      typename std::conditional_t<stacking<Kind>::is_stack, shorter<stacking<Kind>>, std::type_identity<void>>::type;
};

template <dtype From, dtype To> struct leaves_with_exchanged_type {
  template <class Tree> using tree = rebind_tree<Tree, exchanged_type<kind_of<Tree>, From, To>>;
  template <class Tensor> using tensor = tensor_for<Tensor::type == From ? To : Tensor::type, Tensor::shape>;
};

/// A tree with its leaves of type `From` converted.
template <dtype From, dtype To, class Tree>
constexpr auto with_exchanged_type(builder& b, const Tree& tree, source_line where) {
  const pinned_line line(b, where);
  typename mapped_tree<Tree, leaves_with_exchanged_type<From, To>>::type made{};
  for_each_pair(made, tree, [&](auto& one, const auto& other) {
    one.owner = &b;
    one.id = emit::convert(b, operand_of(b, other, where), one.type);
  });
  return made;
}

template <dtype Wide, dtype Narrow, class Function> struct mixed_function {
  Function function;
  source_line where;

  template <class... Arguments> constexpr auto operator()(const Arguments&... arguments) const {
    using mistake = typename failure_in<results<Arguments...>>::type;
    if constexpr (Failed<mistake>) {
      return first_failure(arguments...);
    } else {
      const results<Arguments...> all(arguments...);
      builder& b = *owner_of(all);
      // A program that has chosen what its sums travel in keeps that.
      if (b.sums_travel_as == 0) b.sums_travel_as = static_cast<int>(Narrow) + 1;
      const auto made = function(with_exchanged_type<Wide, Narrow>(b, arguments, where)...);
      using made_type = std::remove_cvref_t<decltype(made)>;
      if constexpr (Failed<typename failure_in<made_type>::type>) {
        return made;
      } else {
        return with_exchanged_type<Narrow, Wide>(b, made, where);
      }
    }
  }
};

}  // namespace detail

/// The function `f`, computed in a narrower type (Micikevicius et al., arXiv 1710.03740): its arguments' leaves of type
/// `Wide` are converted to `Narrow` before, its results' leaves of `Narrow` to `Wide` after; integers, truth values and
/// other floats stay as they are. So what `f` keeps, for its gradient too, and what moves between devices has the
/// narrow type, while sums are added up in their `accumulate` type, and a gradient with respect to what stands outside
/// of it is wide:
///
///     const auto loss = ep::mixed<ep::f32, ep::bf16>(loss_of);
///     const auto [value, gradient] = ep::value_and_grad(loss)(state.parameters, images, labels);
///     return ep::results(ep::nn::adamw_step(state, gradient, rate), value);
///
/// The parameters in `state` are the masters, in f32 as the optimizer's moments. Sums travel between devices in the
/// narrow type in the whole program (`send_sums_as`, unless the program has chosen another one before), but for single
/// numbers. What needs the wide type inside of `f` is converted there: `convert<dtype::f32>(x)`.
/// f16 needs a scaled loss besides (`nn::scaled`); bf16 does not.
template <template <int...> class Wide, template <int...> class Narrow, class Function>
constexpr auto mixed(const Function& f, source_line where = source_line::current()) {
  static_assert(is_floating(Wide<>::type) && is_floating(Narrow<>::type),
                "mixed: both types are those of floats: mixed<f32, bf16>(f).");
  static_assert(size_of(Narrow<>::type) < size_of(Wide<>::type),
                "mixed: the type to compute in comes second, and is narrower than the first one: mixed<f32, bf16>(f).");
  return detail::mixed_function<Wide<>::type, Narrow<>::type, Function>{f, where};
}

}  // namespace espalier
