// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers/step.hpp>

#include <boost/hana/define_struct.hpp>

namespace espalier {

namespace nn {

/// Lion's hyper-parameters (Chen et al., arXiv 2302.06675); weight decay as for AdamW.
struct lion_settings {
  double beta1 = 0.9;   ///< of the average whose sign is the update
  double beta2 = 0.99;  ///< of the momentum that is kept
  double weight_decay = 0.1;
};

/// The state that Lion carries from step to step for parameters `Tree<Leaf>`: half of what AdamW carries. It is stored
/// and updated as that of `adamw`.
template <template <class> class Tree> struct lion {
  template <class Leaf> struct state {
    BOOST_HANA_DEFINE_STRUCT(state, (Tree<Leaf>, parameters), (accumulators<Tree, Leaf>, momentum),
                             (leaf<Leaf, f32<>>, step));
  };
};

}  // namespace nn

namespace detail {

template <class State>
concept LionState = ParameterTree<State> && requires(State& state) {
  requires are_moments_of<decltype(state.momentum), decltype(state.parameters)>();
  state.step;
};

template <class State, class Gradients, class Rate>
using lion_mistake = step_mistake<LionState<State>, State, Gradients, Rate, why::state_of_another_optimizer>;

}  // namespace detail

namespace nn {

/// One step of Lion (Chen et al., arXiv 2302.06675, algorithm 2): parameter -= rate * (sign(beta1 * momentum + (1 -
/// beta1) * gradient) + weight_decay * parameter), and then momentum = beta2 * momentum + (1 - beta2) * gradient.
/// Types, rounding, arguments and errors as for `adamw_step`; a rate is a third to a tenth of AdamW's.
template <class State, class Gradients, class Rate, class Place = like_parameters>
constexpr auto lion_step(const State& state, const Gradients& gradients, const Rate& rate,
                         const lion_settings& settings = {}, const Place& place = {},
                         source_line where = source_line::current()) {
  if constexpr (Failed<State> || Failed<Gradients> || Failed<Rate>) {
    return detail::first_failure(state, gradients, rate);
  } else if constexpr (!std::is_void_v<detail::lion_mistake<State, Gradients, Rate>>) {
    return failed<detail::lion_mistake<State, Gradients, Rate>>(where);
  } else {
    builder& b = *rate.owner;
    const pinned_line line(b, where);
    State next = detail::operands_of(b, state, where);
    detail::for_each_leaf(next.momentum, [&](auto& one) { one = place(one, where); });
    next.step = detail::next_step(next.step);
    const auto leaves = detail::optimizer_leaves(next.parameters, detail::operands_of(b, gradients, where));
    const int exact_rate = detail::rate_for(b, leaves, rate.id);
    const int kept = detail::kept_by_decay(b, exact_rate, settings.weight_decay);
    detail::list<int> momentum = detail::ids_of(next.momentum);
    detail::list<int> updated;
    for (int k = 0; k < leaves.size(); ++k) {
      const int before = momentum[k];
      const int gradient = detail::gradient_for(b, leaves[k], before);
      const int old = emit::convert(b, before, b[gradient].type);
      const auto average = [&](double beta) {
        return emit::add(b, emit::scale(b, old, beta), emit::scale(b, gradient, 1 - beta));
      };
      momentum[k] = emit::convert(b, average(settings.beta2), b[before].type);
      const int ahead = average(settings.beta1);
      const int direction = b.append(ops::sign, b[ahead].type, b[ahead].shape, ahead);
      const int update = emit::multiply(b, emit::repeat_scalar(b, exact_rate, old), direction);
      updated.push_back(detail::updated_parameter(b, leaves[k], update, before, kept));
    }
    detail::set_ids(next.momentum, momentum);
    detail::set_ids(next.parameters, updated);
    return next;
  }
}

}  // namespace nn

}  // namespace espalier
