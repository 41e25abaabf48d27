// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/graph/leaf_difference.hpp>
#include <espalier/nn/constant_math.hpp>
#include <espalier/nn/leaves.hpp>
#include <espalier/ops/ops.hpp>

#include <boost/hana/define_struct.hpp>

#include <type_traits>

namespace espalier {

namespace nn {

/// AdamW's hyper-parameters (Loshchilov and Hutter, arXiv 1711.05101). The learning rate is an argument of the step.
struct adamw_settings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  /// Each step takes rate * weight_decay of every parameter away, except of gains and biases.
  double weight_decay = 0.01;
};

/// SGD's hyper-parameters; weight decay as for AdamW.
struct sgd_settings {
  double momentum = 0.9;
  double weight_decay = 0;
};

}  // namespace nn

namespace emit {

/// The scalars of one AdamW step, equal for all leaves of a type. With r = sqrt(1 - beta2^t), the step
/// rate * (m / (1 - beta1^t)) / (sqrt(v) / r + epsilon) is `rate` * m / (sqrt(v) + `epsilon`) of these: two operations
/// on scalars replace two on every element.
struct adamw_scalars {
  int rate = -1;
  int epsilon = -1;
  /// Times what is left of a parameter after weight decay, or -1 without.
  int kept = -1;
};

/// 1 - beta^t, in double precision: at the first steps it is a small difference.
constexpr int bias_correction(builder& b, int step, double beta) {
  const int power = scale(b, step, detail::logarithm(beta));
  const int raised = b.append(ops::exp, b[power].type, b[power].shape, power);
  return subtract(b, constant_like(b, raised, 1), raised);
}

/// `step` and `rate` are scalars of any floating type; what is made of them has the type of most leaves.
constexpr adamw_scalars prepare_adamw(builder& b, int step, int rate, dtype type, const nn::adamw_settings& settings) {
  const int t = convert(b, step, dtype::f64);
  const int exact_rate = convert(b, rate, dtype::f64);
  const int second = bias_correction(b, t, settings.beta2);
  const int root = b.append(ops::sqrt, b[second].type, b[second].shape, second);
  adamw_scalars made;
  made.rate = divide(b, multiply(b, exact_rate, root), bias_correction(b, t, settings.beta1));
  made.epsilon = scale(b, root, settings.epsilon);
  if (settings.weight_decay != 0) {
    const int part = scale(b, exact_rate, settings.weight_decay);
    made.kept = convert(b, subtract(b, constant_like(b, part, 1), part), type);
  }
  made.rate = convert(b, made.rate, type);
  made.epsilon = convert(b, made.epsilon, type);
  return made;
}

/// average + (1 - beta) (value - average)
constexpr int moving_average(builder& b, int average, int value, double beta) {
  return add(b, average, scale(b, subtract(b, value, average), 1 - beta));
}

constexpr int repeat_scalar(builder& b, int scalar, int like) {
  const int converted = convert(b, scalar, b[like].type);
  return broadcast_to(b, converted, b[like].shape);
}

/// One leaf of a step: replaces the moments' ids, and returns what to subtract from the parameter besides decay.
constexpr int adamw_update(builder& b, int gradient, int& first, int& second, const adamw_scalars& scalars,
                           const nn::adamw_settings& settings) {
  first = moving_average(b, first, gradient, settings.beta1);
  second = moving_average(b, second, multiply(b, gradient, gradient), settings.beta2);
  const int root = b.append(ops::sqrt, b[second].type, b[second].shape, second);
  const int divisor = add(b, root, repeat_scalar(b, scalars.epsilon, root));
  return multiply(b, repeat_scalar(b, scalars.rate, root), divide(b, first, divisor));
}

}  // namespace emit

namespace nn {

/// What an optimizer carries from step to step for parameters `Tree<Leaf>`: everything a checkpoint needs. As a
/// donated argument and a result of the program it is updated where it is.
template <template <class> class Tree> struct adamw {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (Tree<Leaf>, first_moment), (Tree<Leaf>, second_moment),
                             (leaf<Leaf, f32<>>, step));
  };
};
template <template <class> class Tree> struct sgd {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (Tree<Leaf>, velocity), (leaf<Leaf, f32<>>, step));
  };
};

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
    constexpr int axis = State::mesh::template index_of<Axis>;
    constexpr int dim = [] {
      for (int d = 0; d < State::rank; ++d) {
        if (State::shape[d] == Extent) return d;
      }
      return -1;
    }();
    if constexpr (axis < 0 || dim < 0) {
      return x;
    } else {
      builder& b = *x.owner;
      b.at(where);
      sharding placement = sharding::all_open(State::rank);
      placement.dim[dim] = axis_list(axis);
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
/// And the update where the parameter is.
constexpr int to_parameter(builder& b, int update, int state, int parameter) {
  return is_annotated(b[state]) ? emit::match(b, update, parameter) : update;
}

template <class Tree> constexpr list<optimizer_leaf> optimizer_leaves(const Tree& parameters, const Tree& gradients) {
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

/// Which optimizer a state is of.
template <class State>
concept AdamwState = ParameterTree<State> && requires(State& state) {
  requires std::is_same_v<decltype(state.first_moment), decltype(state.parameters)>;
  requires std::is_same_v<decltype(state.second_moment), decltype(state.parameters)>;
  state.step;
};
template <class State>
concept SgdState = ParameterTree<State> && requires(State& state) {
  requires std::is_same_v<decltype(state.velocity), decltype(state.parameters)>;
  state.step;
};

/// What is wrong with the arguments of an optimizer's step: the first mistake, or void.
template <bool IsState, class State, class Gradients, class Rate> [[nodiscard]] constexpr auto mistake_in_step() {
  if constexpr (!IsState) {
    return std::type_identity<why::not_an_optimizer_state<State>>{};
  } else if constexpr (!std::is_same_v<Gradients, decltype(State::parameters)>) {
    return std::type_identity<
        difference_of_trees<decltype(State::parameters), Gradients, why::gradients_of_another_tree>>{};
  } else if constexpr (!LearningRate<Rate>) {
    return std::type_identity<why::rate_is_no_scalar<Rate>>{};
  } else {
    return std::type_identity<void>{};
  }
}

template <bool IsState, class State, class Gradients, class Rate>
using step_mistake = typename decltype(mistake_in_step<IsState, State, Gradients, Rate>())::type;

}  // namespace detail

namespace nn {

/// One step of AdamW with decoupled weight decay and bias correction (Kingma and Ba, arXiv 1412.6980; Loshchilov and
/// Hutter, arXiv 1711.05101): returns the next state. `gradients` is a tree like `state.parameters`, `rate` a scalar.
/// `place(leaf, where)` may annotate the moments finer than the parameters: see `split_state`.
template <class State, class Gradients, class Rate, class Place = like_parameters>
constexpr auto adamw_step(const State& state, const Gradients& gradients, const Rate& rate,
                          const adamw_settings& settings = {}, const Place& place = {},
                          source_line where = source_line::current()) {
  if constexpr (Failed<State> || Failed<Gradients> || Failed<Rate>) {
    return detail::first_failure(state, gradients, rate);
  } else if constexpr (!std::is_void_v<detail::step_mistake<detail::AdamwState<State>, State, Gradients, Rate>>) {
    return failed<detail::step_mistake<detail::AdamwState<State>, State, Gradients, Rate>>(where);
  } else {
    builder& b = *rate.owner;
    const pinned_line line(b, where);
    State next = detail::operands_of(b, state, where);
    const auto placed = [&](auto& one) { one = place(one, where); };
    detail::for_each_leaf(next.first_moment, placed);
    detail::for_each_leaf(next.second_moment, placed);
    next.step = detail::next_step(next.step);
    const auto leaves = detail::optimizer_leaves(next.parameters, detail::operands_of(b, gradients, where));
    const dtype type = b[leaves[0].parameter].type;
    const emit::adamw_scalars scalars = emit::prepare_adamw(b, next.step.id, rate.id, type, settings);
    detail::list<int> first = detail::ids_of(next.first_moment);
    detail::list<int> second = detail::ids_of(next.second_moment);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int moment = first[k];
      const int gradient = detail::to_state(b, leaves[k].gradient, moment);
      const int update = emit::adamw_update(b, gradient, first[k], second[k], scalars, settings);
      int kept = leaves[k].parameter;
      if (leaves[k].decays && scalars.kept >= 0) {
        kept = emit::multiply(b, kept, emit::repeat_scalar(b, scalars.kept, kept));
      }
      updated.push_back(emit::subtract(b, kept, detail::to_parameter(b, update, moment, leaves[k].parameter)));
    }
    detail::set_ids(next.first_moment, first);
    detail::set_ids(next.second_moment, second);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

/// One step of stochastic gradient descent with momentum: velocity = momentum * velocity + gradient, parameter -=
/// rate * velocity. Arguments as for `adamw_step`.
template <class State, class Gradients, class Rate, class Place = like_parameters>
constexpr auto sgd_step(const State& state, const Gradients& gradients, const Rate& rate,
                        const sgd_settings& settings = {}, const Place& place = {},
                        source_line where = source_line::current()) {
  if constexpr (Failed<State> || Failed<Gradients> || Failed<Rate>) {
    return detail::first_failure(state, gradients, rate);
  } else if constexpr (!std::is_void_v<detail::step_mistake<detail::SgdState<State>, State, Gradients, Rate>>) {
    return failed<detail::step_mistake<detail::SgdState<State>, State, Gradients, Rate>>(where);
  } else {
    builder& b = *rate.owner;
    const pinned_line line(b, where);
    State next = detail::operands_of(b, state, where);
    detail::for_each_leaf(next.velocity, [&](auto& one) { one = place(one, where); });
    next.step = detail::next_step(next.step);
    int kept_part = -1;
    if (settings.weight_decay != 0) {
      kept_part = emit::subtract(b, emit::constant_like(b, rate.id, 1), emit::scale(b, rate.id, settings.weight_decay));
    }
    const auto leaves = detail::optimizer_leaves(next.parameters, detail::operands_of(b, gradients, where));
    detail::list<int> velocity = detail::ids_of(next.velocity);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int before = velocity[k];
      const int gradient = detail::to_state(b, leaves[k].gradient, before);
      velocity[k] = emit::add(b, emit::scale(b, before, settings.momentum), gradient);
      const int update = emit::multiply(b, emit::repeat_scalar(b, rate.id, before), velocity[k]);
      int kept = leaves[k].parameter;
      if (leaves[k].decays && kept_part >= 0) {
        kept = emit::multiply(b, kept, emit::repeat_scalar(b, kept_part, kept));
      }
      updated.push_back(emit::subtract(b, kept, detail::to_parameter(b, update, before, leaves[k].parameter)));
    }
    detail::set_ids(next.velocity, velocity);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
