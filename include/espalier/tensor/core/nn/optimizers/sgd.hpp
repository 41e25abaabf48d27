// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers/step.hpp>

#include <boost/hana/define_struct.hpp>

namespace espalier {

namespace nn {

/// SGD's hyper-parameters; weight decay as for AdamW.
struct sgd_settings {
  double momentum = 0.9;
  double weight_decay = 0;
  /// Nesterov's form (Sutskever et al. 2013): the parameter moves by momentum * velocity + gradient.
  bool nesterov = false;
};

/// The state that SGD carries from step to step for parameters `Tree<Leaf>`: everything a checkpoint needs. The
/// velocity of parameters of sixteen bits is `f32`. As a donated argument and a result of the program it is updated in
/// place.
template <template <class> class Tree> struct sgd {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (accumulators<Tree, Leaf>, velocity),
                             (leaf<Leaf, f32<>>, step));
  };
};

}  // namespace nn

namespace detail {

template <class State>
concept SgdState = ParameterTree<State> && requires(State& state) {
  requires are_moments_of<decltype(state.velocity), decltype(state.parameters)>();
  state.step;
};

}  // namespace detail

namespace nn {

/// One step of stochastic gradient descent with momentum: velocity = momentum * velocity + gradient, parameter -=
/// rate * velocity; with `nesterov`, parameter -= rate * (momentum * velocity + gradient). Types, rounding and
/// arguments as for `adamw_step`.
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
    const auto leaves = detail::optimizer_leaves(next.parameters, detail::operands_of(b, gradients, where));
    const int exact_rate = detail::rate_for(b, leaves, rate.id);
    const int kept = detail::kept_by_decay(b, exact_rate, settings.weight_decay);
    detail::list<int> velocity = detail::ids_of(next.velocity);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int before = velocity[k];
      const int gradient = detail::gradient_for(b, leaves[k], before);
      const int old = emit::convert(b, before, b[gradient].type);
      const int now = emit::add(b, emit::scale(b, old, settings.momentum), gradient);
      velocity[k] = emit::convert(b, now, b[before].type);
      const int direction = settings.nesterov ? emit::add(b, emit::scale(b, now, settings.momentum), gradient) : now;
      const int update = emit::multiply(b, emit::repeat_scalar(b, exact_rate, now), direction);
      updated.push_back(detail::updated_parameter(b, leaves[k], update, before, kept));
    }
    detail::set_ids(next.velocity, velocity);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
