// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/optimizers/step.hpp>
#include <espalier/tensor/core/nn/warm_up_settings.hpp>

/// Learning rates as functions of the step, inside a program. Each takes the number of steps that were made, a
/// floating-point scalar such as an optimizer's `state.step` before the step, and returns the rate of the next one as
/// `f32<>`: `nn::adamw_step(state, gradient, nn::warm_up_cosine(state.step, {.peak = 3e-4, .warm_up = 100, .total =
/// 5000}))`. Everything is computed in f64 and rounded once. Scalars cost nothing and nothing travels.
namespace espalier {

namespace why {

template <class... Details> struct step_is_no_scalar {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "a learning-rate schedule: the step must be a floating-point scalar tensor, f32<>: state.step of an "
                  "optimizer's state, or an argument of the program.");
  };
};

}  // namespace why

namespace emit {

constexpr int scalar(builder& b, double value) { return constant(b, dtype::f64, extents{}, value); }
/// Returns the share of the way from step `first` to step `last` that is done: 0 before, 1 after.
constexpr int progress(builder& b, int step, double first, double last) {
  const int done = scale(b, subtract(b, step, scalar(b, first)), 1 / (last > first ? last - first : 1e-9));
  const int begun = b.append(ops::maximum, dtype::f64, extents{}, done, scalar(b, 0));
  return b.append(ops::minimum, dtype::f64, extents{}, begun, scalar(b, 1));
}
/// from + (to - from) part
constexpr int between(builder& b, double from, double to, int part) {
  return add(b, scalar(b, from), scale(b, part, to - from));
}
/// (1 + cos(pi part)) / 2: from 1 to 0.
constexpr int half_cosine(builder& b, int part) {
  constexpr double pi = 3.14159265358979323846;
  const int cosine = b.append(ops::cos, dtype::f64, extents{}, scale(b, part, pi));
  return scale(b, add(b, cosine, scalar(b, 1)), 0.5);
}
/// (t + 1) / steps, at most 1.
constexpr int warm_up(builder& b, int step, double steps) {
  const int part = scale(b, add(b, step, scalar(b, 1)), 1 / (steps > 0 ? steps : 1));
  return steps > 0 ? b.append(ops::minimum, dtype::f64, extents{}, part, scalar(b, 1)) : scalar(b, 1);
}

}  // namespace emit

namespace detail {

/// A schedule: what `f(builder, step as f64)` computes, as f32.
template <class Step, class F> constexpr auto rate_of_step(const Step& step, source_line where, const F& f) {
  if constexpr (Failed<Step>) {
    return step;
  } else if constexpr (!LearningRate<Step>) {
    return failed<why::step_is_no_scalar<Step>>(where);
  } else {
    builder& b = *step.owner;
    const pinned_line line(b, where);
    return symbol_like<Step, f32<>>(step, emit::convert(b, f(b, emit::convert(b, step.id, dtype::f64)), dtype::f32));
  }
}

}  // namespace detail

namespace nn {

/// The same rate at every step: `constant_rate(state.step, 0.001)`. Errors: `step_is_no_scalar`, as of all schedules.
template <class Step>
constexpr auto constant_rate(const Step& step, double rate, source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int) { return emit::scalar(b, rate); });
}

/// Goes in a straight line from `from` at step 0 to `to` at step `steps`, and stays at `to` from there on:
/// `linear_rate(state.step, 0.1, 0, 100)` is 0.1, 0.099, 0.098, ...
template <class Step>
constexpr auto linear_rate(const Step& step, double from, double to, double steps,
                           source_line where = source_line::current()) {
  return detail::rate_of_step(
      step, where, [=](builder& b, int t) { return emit::between(b, from, to, emit::progress(b, t, 0, steps)); });
}

/// Goes along half a cosine (Loshchilov and Hutter, arXiv 1608.03983) from `from` at step 0 to `to` at step `steps`,
/// and stays at `to` from there on: `cosine_rate(state.step, 0.1, 0, 100)` is 0.05 at step 50.
template <class Step>
constexpr auto cosine_rate(const Step& step, double from, double to, double steps,
                           source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int t) {
    return emit::between(b, to, from, emit::half_cosine(b, emit::progress(b, t, 0, steps)));
  });
}

/// Grows in a straight line to `peak`, which step number `warm_up` has, and falls along half a cosine to `floor` at
/// step `total`.
template <class Step>
constexpr auto warm_up_cosine(const Step& step, const warm_up_settings& s, source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int t) {
    const int fall = emit::half_cosine(b, emit::progress(b, t, s.warm_up, s.total));
    return emit::multiply(b, emit::between(b, s.floor, s.peak, fall), emit::warm_up(b, t, s.warm_up));
  });
}

/// Grows in a straight line to `peak`, and falls in one to `floor` at step `total`.
template <class Step>
constexpr auto warm_up_linear(const Step& step, const warm_up_settings& s, source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int t) {
    const int fall = emit::between(b, s.peak, s.floor, emit::progress(b, t, s.warm_up, s.total));
    return emit::multiply(b, fall, emit::warm_up(b, t, s.warm_up));
  });
}

/// Grows in a straight line to `peak` during `warm_up` steps, and falls as one over the square root of the step
/// (Vaswani et al., arXiv 1706.03762, section 5.3): peak * min((t + 1) / warm_up, sqrt(warm_up / (t + 1))).
template <class Step>
constexpr auto inverse_square_root(const Step& step, double peak, double warm_up,
                                   source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int t) {
    const double steps = warm_up > 1 ? warm_up : 1;
    const int number = emit::add(b, t, emit::scalar(b, 1));
    const int rise = emit::scale(b, number, 1 / steps);
    const int ratio = emit::divide(b, emit::scalar(b, steps), number);
    const int fall = b.append(ops::sqrt, dtype::f64, extents{}, ratio);
    return emit::scale(b, b.append(ops::minimum, dtype::f64, extents{}, rise, fall), peak);
  });
}

/// Adafactor's relative step size (Shazeer and Stern, arXiv 1804.04235, section 8): min(0.01, 1 / sqrt(t)) at step
/// number t, from 1.
template <class Step> constexpr auto relative_step(const Step& step, source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int t) {
    const int number = emit::add(b, t, emit::scalar(b, 1));
    const int fall = b.append(ops::rsqrt, dtype::f64, extents{}, number);
    return b.append(ops::minimum, dtype::f64, extents{}, emit::scalar(b, 0.01), fall);
  });
}

/// The decay of a moving average that follows quickly at first: min(decay, (1 + t) / (10 + t)) for `moving_average`.
template <class Step>
constexpr auto average_decay(const Step& step, double decay, source_line where = source_line::current()) {
  return detail::rate_of_step(step, where, [=](builder& b, int t) {
    const int rise = emit::divide(b, emit::add(b, t, emit::scalar(b, 1)), emit::add(b, t, emit::scalar(b, 10)));
    return b.append(ops::minimum, dtype::f64, extents{}, emit::scalar(b, decay), rise);
  });
}

}  // namespace nn

}  // namespace espalier
