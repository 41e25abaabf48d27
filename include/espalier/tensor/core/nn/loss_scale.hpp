// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/trees.hpp>

#include <boost/hana/define_struct.hpp>

#include <type_traits>

/// Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740, section 3.2), for gradients of f16:
///
///     const auto loss = [&](const auto& p, auto x) { return nn::scaled(loss_of(p, x), scaling); };
///     const auto scaled = ep::grad(loss)(state.parameters, x);
///     const auto gradient = nn::unscaled(scaled, scaling);
///     const auto finite = ep::all_finite(gradient);
///     const auto next = ep::tree_select(finite, nn::adamw_step(state, gradient, rate), state);
///     return ep::results(next, nn::next_loss_scale(scaling, finite));
namespace espalier::nn {

/// The rule by which a loss's scale changes.
struct loss_scale_settings {
  double initial = 65536;  ///< the scale of a state of zeros
  double growth = 2;       ///< times which, after `interval` finite steps in a row
  double backoff = 0.5;    ///< times which, after a step that was not finite
  double interval = 2000;
  double least = 1;
  double most = 16777216;
};

/// The state that loss scaling carries from step to step: an argument and a result of the program. Zeros are a good
/// start.
template <class Leaf> struct loss_scale {
  BOOST_HANA_DEFINE_STRUCT(loss_scale, (leaf<Leaf, f32<>>, scale), (leaf<Leaf, f32<>>, finite_steps));
};

}  // namespace espalier::nn

namespace espalier::detail {

/// The scale, or the first one.
template <class State> constexpr int scale_of(builder& b, const State& state, const nn::loss_scale_settings& settings) {
  const int scale = operand_of(b, state.scale);
  const int is_set = emit::compare(b, ops::less, emit::constant_like(b, scale, 0), scale);
  return emit::select(b, is_set, scale, emit::constant_like(b, scale, settings.initial));
}

}  // namespace espalier::detail

namespace espalier::nn {

/// A loss times the scale, in the type that it is accumulated in: `f32<>` of a loss of `f16`.
template <Traced Loss, class State>
constexpr auto scaled(const Loss& loss, const State& state, const loss_scale_settings& settings = {},
                      source_line where = source_line::current()) {
  if constexpr (Failed<Loss> || Failed<State>) {
    return detail::first_failure(loss, state);
  } else {
    builder& b = *loss.owner;
    const pinned_line line(b, where);
    const int wide = emit::convert(b, loss.id, detail::computed_type(Loss::type));
    const int scale = emit::convert(b, detail::scale_of(b, state, settings), b[wide].type);
    const int by = emit::broadcast_to(b, scale, Loss::shape);
    return detail::symbol_like<Loss, tensor_for<detail::computed_type(Loss::type), Loss::shape>>(
        loss, emit::multiply(b, wide, by));
  }
}

/// Gradients of a scaled loss divided by the scale, with leaves of `f32` where they are of sixteen bits, so that what
/// is small does not vanish: every optimizer's step takes such gradients.
template <detail::TracedTree Gradients, class State>
constexpr auto unscaled(const Gradients& gradients, const State& state, const loss_scale_settings& settings = {},
                        source_line where = source_line::current()) {
  if constexpr (Failed<Gradients> || Failed<State>) {
    return detail::first_failure(gradients, state);
  } else {
    builder& b = *detail::owner_of(gradients);
    const pinned_line line(b, where);
    const int scale = detail::scale_of(b, state, settings);
    const int by = emit::divide(b, emit::constant_like(b, scale, 1), scale);
    return tree_map(
        [&](const auto& one) {
          using leaf_type = std::remove_cvref_t<decltype(one)>;
          const int wide = emit::convert(b, detail::operand_of(b, one, where), detail::computed_type(leaf_type::type));
          const int factor = emit::broadcast_to(b, emit::convert(b, by, b[wide].type), leaf_type::shape);
          using tensor = typename detail::accumulating_tensor<typename leaf_type::tensor>::type;
          return detail::symbol_like<leaf_type, tensor>(one, emit::multiply(b, wide, factor));
        },
        gradients);
  }
}

/// The scale after a step: smaller if `finite`, a truth value `boolean<>`, does not hold, larger after `interval` steps
/// in a row for which it does.
template <class State, Traced Finite>
constexpr auto next_loss_scale(const State& state, const Finite& finite, const loss_scale_settings& settings = {},
                               source_line where = source_line::current()) {
  if constexpr (Failed<State> || Failed<Finite>) {
    return detail::first_failure(state, finite);
  } else {
    builder& b = *finite.owner;
    const pinned_line line(b, where);
    State next = detail::operands_of(b, state, where);
    const int scale = detail::scale_of(b, next, settings);
    const auto number = [&](double value) { return emit::constant_like(b, scale, value); };
    const int count = emit::add(b, next.finite_steps.id, number(1));
    const int is_due = emit::compare(b, ops::less_equal, number(settings.interval), count);
    const auto both = [&](const op_info& op, int one, int other) {
      return b.append(op, dtype::f32, extents{}, one, other);
    };
    const int larger = both(ops::minimum, emit::scale(b, scale, settings.growth), number(settings.most));
    const int smaller = both(ops::maximum, emit::scale(b, scale, settings.backoff), number(settings.least));
    const int kept = emit::select(b, is_due, larger, scale);
    const int left = emit::select(b, is_due, number(0), count);
    next.scale.id = emit::select(b, finite.id, kept, smaller);
    next.finite_steps.id = emit::select(b, finite.id, left, number(0));
    return next;
  }
}

}  // namespace espalier::nn
