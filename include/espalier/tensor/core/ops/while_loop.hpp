// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/constant.hpp>
#include <espalier/tensor/core/ops/scan.hpp>

namespace espalier {

/// The largest number of iterations of a `while_loop`. It stops there, whatever its condition says.
template <int Iterations> struct at_most_iterations_t {
  static_assert(Iterations >= 1, "at_most_iterations: a loop needs at least one iteration");
};
template <int Iterations> inline constexpr at_most_iterations_t<Iterations> at_most_iterations{};

namespace detail {

/// A truth value without dimensions.
template <class T> inline constexpr bool is_truth_value = false;
template <class Mesh, class Tensor>
inline constexpr bool is_truth_value<symbol<Mesh, Tensor>> = Tensor::type == dtype::boolean&& Tensor::rank == 0;

/// `Limit`: 0 if there is none.
template <int Limit, class Condition, class Body, class State>
constexpr auto while_loop(const Condition& condition, const Body& body, const State& state, source_line where) {
  if constexpr (Failed<State>) {
    return state;
  } else if constexpr (!LoopValue<State>) {
    return failed<why::state_is_not_a_tensor<>>(where);
  } else if constexpr (
      !requires { condition(state); } || !requires { body(state); }) {
    return failed<why::state_does_not_fit<State>>(where);
  } else {
    builder& b = *owner_of(state);
    b.at(where);
    State inside = operands_of(b, state, where);
    // Whether to go on is known when an iteration begins: the condition is computed before the loop, and at the end of
    // every iteration for the next one.
    const auto enters = condition(inside);
    using condition_type = std::remove_cv_t<decltype(enters)>;
    if constexpr (Failed<condition_type>) {
      return enters;
    } else if constexpr (!is_truth_value<condition_type>) {
      return failed<why::condition_is_no_truth_value<condition_type>>(where);
    } else {
      b.at(where);
      [[maybe_unused]] const int zero = Limit > 0 ? emit::constant(b, dtype::i32, extents{}, 0) : -1;
      const auto kind = Limit > 0 ? region_kind::until_or_at_most : region_kind::until;
      emit::region_begin(b, region_attributes{.iterations = Limit > 0 ? Limit : 1, .kind = kind},
                         operand_of(b, enters, where));
      // The gradient goes back as many iterations as there were. (What nothing reads is dropped.)
      [[maybe_unused]] int counter = -1;
      if constexpr (Limit > 0) counter = emit::region_parameter(b, zero);
      for_each_leaf(inside, [&](auto& one) { one.id = emit::region_parameter(b, one.id); });
      const auto out = body(inside);
      using out_type = std::remove_cv_t<decltype(out)>;
      if constexpr (!std::is_void_v<typename failure_in<out_type>::type>) {
        return typename failure_in<out_type>::type(failure_place(out));
      } else if constexpr (!std::is_same_v<out_type, State>) {
        return failed<why::state_changes_type<State, out_type>>(where);
      } else {
        State next = operands_of(b, out, where);
        const auto goes_on = condition(next);
        b.at(where);
        for_each_pair(next, inside,
                      [&](auto& value, const auto& before) { value.id = emit::region_yield(b, before.id, value.id); });
        if constexpr (Limit > 0) {
          const int one = emit::constant(b, dtype::i32, extents{}, 1);
          counter = emit::region_yield(b, counter, emit::add(b, counter, one));
        }
        emit::region_end(b, operand_of(b, goes_on, where));
        if constexpr (Limit > 0) emit::region_result(b, counter);
        for_each_leaf(next, [&](auto& one) { one.id = emit::region_result(b, one.id); });
        return next;
      }
    }
  }
}

}  // namespace detail

/// Runs `state = body(state)` while `condition(state)` is true, and returns the last state; the first one, if the
/// condition is false at once. The state is a tensor, a parameter tree, or results(...) of these, and the condition a
/// `boolean<>`. Both functions are traced, the body once and the condition twice, however often they run.
///
/// All devices run as many iterations. Where the loop communicates and the condition comes from floats, which may
/// differ in their last bits between devices, they agree on it: the loop goes on as long as it would on one of them.
///
///     // 3, 10, 5, 16, 8, 4, 2, 1: seven steps
///     const auto [n, steps] = ep::while_loop([](auto s) { return s.template get<0>() > 1; },
///                                            [](auto s) { ... }, ep::results(three, zero));
///
/// With `at_most_iterations<N>` it stops after N iterations, and memory and bytes are counted for N; without, for one
/// iteration. Only such a loop has a gradient: it keeps what the gradient reads of N iterations, and goes back as many
/// as there were.
///
/// Errors: `state_changes_type`, `state_is_not_a_tensor`, `state_does_not_fit`, `condition_is_no_truth_value`, and
/// whatever the body does wrong, or the condition.
template <class Condition, class Body, class State>
constexpr auto while_loop(const Condition& condition, const Body& body, const State& state,
                          source_line where = source_line::current()) {
  return detail::while_loop<0>(condition, body, state, where);
}
template <class Condition, class Body, class State, int Limit>
constexpr auto while_loop(const Condition& condition, const Body& body, const State& state, at_most_iterations_t<Limit>,
                          source_line where = source_line::current()) {
  return detail::while_loop<Limit>(condition, body, state, where);
}

}  // namespace espalier
