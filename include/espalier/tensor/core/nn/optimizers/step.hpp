// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/leaf_difference.hpp>
#include <espalier/tensor/core/nn/leaves.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <type_traits>

/// All optimizers share this: where a state is, what a step is given, and how a parameter takes its update.
namespace espalier {

namespace why {

template <class... Details> struct state_of_another_optimizer {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "lion_step, adafactor_step, muon_step: the first argument is no state of this optimizer. Give "
                  "lion<tree>::state, adafactor<tree>::state or muon<tree>::state, with the tree of the parameters.");
  };
};

}  // namespace why

namespace emit {

constexpr int repeat_scalar(builder& b, int scalar, int like) {
  const int converted = convert(b, scalar, b[like].type);
  return broadcast_to(b, converted, b[like].shape);
}

}  // namespace emit

namespace nn {

/// The optimizer's state has the layout of the parameters.
struct like_parameters {
  template <class State> constexpr State operator()(const State& x, source_line = {}) const { return x; }
};

/// Splits an optimizer's state over a mesh axis that the parameters do not use (ZeRO, Rajbhandari et al., arXiv
/// 1910.02054): in each leaf the first dimension of `Extent` elements. Other dimensions, and leaves without such a
/// dimension, are laid out like the parameters. The gradient then arrives by reduce-scatter, and the update is
/// all-gathered.
template <MeshAxis Axis, int Extent> struct split_state {
  template <class State> constexpr State operator()(const State& x, source_line where = source_line::current()) const {
    constexpr axis_list axis = detail::axes_behind<typename State::mesh, Axis>();
    constexpr int dim = [] {
      for (int d = 0; d < State::rank; ++d) {
        if (State::shape[d] == Extent) return d;
      }
      return -1;
    }();
    if constexpr (axis.empty() || dim < 0) {
      return x;
    } else {
      builder& b = *x.owner;
      b.at(where);
      sharding placement = sharding::all_open(State::rank);
      placement.dim[dim] = axis;
      return State(b, emit::annotated(b, ops::shard, x.id, b.annotate(State::shape, placement)));
    }
  }
};

}  // namespace nn

namespace detail {

/// A leaf of an optimizer step as plain numbers: what follows is the same code for all shapes.
struct optimizer_leaf {
  int parameter = -1;
  int gradient = -1;
  bool decays = false;
};

template <class Tree> constexpr list<int> ids_of(const Tree& tree) {
  list<int> ids;
  for_each_leaf(tree, [&](const auto& one) { ids.push_back(one.id); });
  return ids;
}
template <class Tree> constexpr void set_ids(Tree& tree, const list<int>& ids) {
  int k = 0;
  for_each_leaf(tree, [&](auto& one) { one.id = ids[k++]; });
}

[[nodiscard]] constexpr bool is_annotated(const instruction& i) {
  return i.op->facts.requests == layout_request::annotation;
}

/// The gradient where the state is: nothing may be inferred from the state's layout for the gradient, so this is a
/// change of layout, not an annotation. It starts from the sum as the devices' terms, before `value_and_grad` gave it
/// its parameter's layout: one reduce-scatter.
constexpr int to_state(builder& b, int gradient, int state) {
  if (!is_annotated(b[state])) return gradient;
  const int terms = b[gradient].op->facts.requests == layout_request::as_operand ? b[gradient].operand[0] : gradient;
  return emit::annotated(b, ops::reshard, terms, b[state].annotation);
}
/// The update where the parameter is.
constexpr int to_parameter(builder& b, int update, int state, int parameter) {
  return is_annotated(b[state]) ? emit::match(b, update, parameter) : update;
}

template <class Tree, class Gradients>
constexpr list<optimizer_leaf> optimizer_leaves(const Tree& parameters, const Gradients& gradients) {
  list<optimizer_leaf> leaves;
  nn::for_each_named_leaf(parameters, [&](const auto& one, const nn::leaf_path& path) {
    leaves.push_back({one.id, -1, !nn::is_gain_or_bias(path)});
  });
  int k = 0;
  for_each_leaf(gradients, [&](const auto& one) { leaves[k++].gradient = one.id; });
  return leaves;
}

/// The step's number, from 1.
template <class Step> constexpr Step next_step(const Step& step) {
  builder& b = *step.owner;
  return Step(b, emit::add(b, step.id, emit::constant_like(b, step.id, 1)));
}

/// A scalar tensor, so that a schedule can change it from step to step.
template <class Rate>
concept LearningRate = Symbol<Rate> && requires {
  requires Rate::rank == 0 && is_floating(Rate::type);
};

/// Moments of these parameters: their tree, with `f32` for floats of sixteen bits, or their own tree.
template <class Moments, class Parameters> [[nodiscard]] constexpr bool are_moments_of() {
  if constexpr (std::is_same_v<Moments, Parameters>) {
    return true;
  } else {
    return std::is_same_v<Moments, accumulators_like<Parameters>>;
  }
}

/// Returns the first mistake in the arguments of an optimizer's step, or void.
template <bool IsState, class State, class Gradients, class Rate, template <class...> class NotState>
[[nodiscard]] constexpr auto mistake_in_step() {
  if constexpr (!IsState) {
    return std::type_identity<NotState<State>>{};
  } else if constexpr (!are_moments_of<Gradients, decltype(State::parameters)>()) {
    return std::type_identity<
        difference_of_trees<decltype(State::parameters), Gradients, why::gradients_of_another_tree>>{};
  } else if constexpr (!LearningRate<Rate>) {
    return std::type_identity<why::rate_is_no_scalar<Rate>>{};
  } else {
    return std::type_identity<void>{};
  }
}

template <bool IsState, class State, class Gradients, class Rate,
          template <class...> class NotState = why::not_an_optimizer_state>
using step_mistake = typename decltype(mistake_in_step<IsState, State, Gradients, Rate, NotState>())::type;

/// The rate in the type in which scalars of a step are computed: as exact as the rate itself and any of the leaves.
constexpr int rate_for(builder& b, const list<optimizer_leaf>& leaves, int rate) {
  dtype type = computed_type(b[rate].type);
  for (const optimizer_leaf& one : leaves) {
    if (b[one.parameter].type == dtype::f64) type = dtype::f64;
  }
  return emit::convert(b, rate, type);
}

/// 1 - rate * weight_decay, or -1 without weight decay.
constexpr int kept_by_decay(builder& b, int rate, double weight_decay) {
  if (weight_decay == 0) return -1;
  const int part = emit::scale(b, rate, weight_decay);
  return emit::subtract(b, emit::constant_like(b, rate, 1), part);
}

/// The gradient where the state is, in the type that the step is computed in.
constexpr int gradient_for(builder& b, const optimizer_leaf& leaf, int state) {
  return emit::convert(b, to_state(b, leaf.gradient, state), computed_type(b[leaf.parameter].type));
}

/// The parameter, times what weight decay leaves of it (`kept`, or -1 without), minus its update, which is where the
/// state is. A parameter of sixteen bits is computed in `f32` where the state is and rounded once: only the rounded one
/// travels.
constexpr int updated_parameter(builder& b, const optimizer_leaf& leaf, int update, int state, int kept) {
  const dtype type = b[leaf.parameter].type;
  const auto decayed = [&](int value) {
    return leaf.decays && kept >= 0 ? emit::multiply(b, value, emit::repeat_scalar(b, kept, value)) : value;
  };
  if (!is_for_storage(type)) {
    const int value = decayed(leaf.parameter);
    return emit::subtract(b, value, to_parameter(b, update, state, leaf.parameter));
  }
  int value = leaf.parameter;
  if (is_annotated(b[state])) value = emit::annotated(b, ops::reshard, value, b[state].annotation);
  value = decayed(emit::convert(b, value, computed_type(type)));
  const int next = emit::convert(b, emit::subtract(b, value, update), type);
  return to_parameter(b, next, state, leaf.parameter);
}

}  // namespace detail

namespace nn {

/// Gradients where an optimizer's state is, before they are used otherwise: summed over the devices that hold their
/// terms by reduce-scatter, as an optimizer's step with this `place` does it. A norm of them is one number more that
/// travels:
///
///     const auto here = nn::scattered(gradient, nn::split_state<data, 4096>{});
///     const auto [clipped, norm] = ep::clip_by_global_norm(here, 1.0);
///     return nn::adamw_step(state, clipped, rate, {}, nn::split_state<data, 4096>{});
template <class Gradients, class Place>
constexpr auto scattered(const Gradients& gradients, const Place& place, source_line where = source_line::current()) {
  if constexpr (Failed<Gradients>) {
    return gradients;
  } else {
    builder& b = *detail::owner_of(gradients);
    const pinned_line line(b, where);
    Gradients made = detail::operands_of(b, gradients, where);
    detail::for_each_leaf(made, [&](auto& one) { one.id = detail::to_state(b, one.id, place(one, where).id); });
    return made;
  }
}

}  // namespace nn

}  // namespace espalier
