// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/constant_math.hpp>
#include <espalier/tensor/core/nn/optimizers/step.hpp>

#include <boost/hana/define_struct.hpp>

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

/// One leaf of a step: replaces the moments' ids, and returns what to subtract from the parameter besides decay.
constexpr int adamw_update(builder& b, int gradient, int& first, int& second, const adamw_scalars& scalars,
                           const nn::adamw_settings& settings) {
  const dtype stored[]{b[first].type, b[second].type};
  const int mean = moving_average(b, convert(b, first, b[gradient].type), gradient, settings.beta1);
  const int square =
      moving_average(b, convert(b, second, b[gradient].type), multiply(b, gradient, gradient), settings.beta2);
  const int root = b.append(ops::sqrt, b[square].type, b[square].shape, square);
  const int divisor = add(b, root, repeat_scalar(b, scalars.epsilon, root));
  first = convert(b, mean, stored[0]);
  second = convert(b, square, stored[1]);
  return multiply(b, repeat_scalar(b, scalars.rate, root), divide(b, mean, divisor));
}

}  // namespace emit

namespace nn {

/// The state that AdamW carries from step to step for parameters `Tree<Leaf>`: everything a checkpoint needs. Moments
/// of parameters of sixteen bits are `f32`. As a donated argument and a result of the program it is updated in place.
template <template <class> class Tree> struct adamw {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (accumulators<Tree, Leaf>, first_moment),
                             (accumulators<Tree, Leaf>, second_moment), (leaf<Leaf, f32<>>, step));
  };
};

}  // namespace nn

namespace detail {

template <class State>
concept AdamwState = ParameterTree<State> && requires(State& state) {
  requires are_moments_of<decltype(state.first_moment), decltype(state.parameters)>();
  requires are_moments_of<decltype(state.second_moment), decltype(state.parameters)>();
  state.step;
};

}  // namespace detail

namespace nn {

/// One step of AdamW with decoupled weight decay and bias correction (Kingma and Ba, arXiv 1412.6980; Loshchilov and
/// Hutter, arXiv 1711.05101): returns the next state. `gradients` is a tree like `state.parameters`, `rate` a scalar.
/// The step is computed in f32 (f64 of f64 parameters), and parameters of sixteen bits are rounded once, at its end.
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
    const dtype type = detail::computed_type(b[leaves[0].parameter].type);
    const emit::adamw_scalars scalars = emit::prepare_adamw(b, next.step.id, rate.id, type, settings);
    detail::list<int> first = detail::ids_of(next.first_moment);
    detail::list<int> second = detail::ids_of(next.second_moment);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int moment = first[k];
      const int gradient = detail::gradient_for(b, leaves[k], moment);
      const int update = emit::adamw_update(b, gradient, first[k], second[k], scalars, settings);
      updated.push_back(detail::updated_parameter(b, leaves[k], update, moment, scalars.kept));
    }
    detail::set_ids(next.first_moment, first);
    detail::set_ids(next.second_moment, second);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
