// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in what a while_loop or a branch is given, and in what its functions return.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct loops {
  constexpr auto operator()(auto x, auto limit) const {
    const auto large = [&](auto h) { return ep::sum(h) > limit; };
    const auto half = [](auto h) { return 0.5 * h; };
#if defined(CASE_many)
    const auto out = ep::while_loop([&](auto h) { return h > limit; }, half, x);  // many
#elif defined(CASE_number)
    const auto out = ep::while_loop([](auto h) { return ep::sum(h); }, half, x);  // number
#elif defined(CASE_state)
    const auto out = ep::while_loop(
        large, [](auto h) { return ep::sum<0>(h); }, x);     // state
#elif defined(CASE_output)
    const auto out = ep::while_loop(
        large, [](auto h) { return ep::results(0.5 * h, ep::sum(h)); }, x);  // output
#elif defined(CASE_exchanged)
    const auto out = ep::while_loop(x, large, half);  // exchanged
#elif defined(CASE_step)
    const auto out = ep::while_loop(
        large, [](auto h, auto step) { return h * step; }, x);  // step
#elif defined(CASE_gradient)
    const auto loss = [&](auto w) { return ep::sum(ep::while_loop(large, half, w)); };  // gradient
    const auto [value, out] = ep::value_and_grad(loss)(x);
#elif defined(CASE_inside)
    const auto out = ep::while_loop(
        large, [](auto h) { return h - ep::sum<3>(h); }, x);  // inside
#else
    const auto out = ep::while_loop(large, half, x, ep::at_most_iterations<10>);
#endif
    return ep::results(out, limit);
  }
};

using step = ep::program<mesh, loops, ep::f32<64>, ep::f32<>>;
static_assert(step::flops() >= 0);

struct branches {
  constexpr auto operator()(auto x, auto n) const {
    const auto same = [&] { return x; };
    const auto twice = [&] { return 2.0 * x; };
#if defined(CASE_each)
    return ep::cond(x > 0.5, same, twice);  // each
#elif defined(CASE_types)
    return ep::cond(n > 0, same, [&] { return ep::sum(x); });                     // types
#elif defined(CASE_takes)
    return ep::cond(n > 0, same, [](auto h) { return h; });  // takes
#elif defined(CASE_returns_number)
    return ep::cond(n > 0, same, [] { return 1.0; });                        // returns_number
#elif defined(CASE_known)
    return ep::cond(true, same, twice);               // known
#elif defined(CASE_index)
    return ep::switch_case(ep::sum(x), same, twice);            // index
#elif defined(CASE_branch_inside)
    return ep::switch_case(n, same, [&] { return x - ep::sum<3>(x); });  // branch_inside
#elif defined(CASE_operands)
    return ep::cond(
        n > 0, [](auto h) { return h; }, [](auto h) { return 2.0 * h; }, x);  // operands
#else
    return ep::cond(n > 0, same, [&] { return ep::switch_case(n, twice, same, twice); });
#endif
  }
};

using choice = ep::program<mesh, branches, ep::f32<64>, ep::i32<>>;
static_assert(choice::flops() >= 0);

// clang-format off
// kind(CASE_many): `while_loop`: a condition with many elements
// first(CASE_many): while_loop: the condition must be one truth value for all devices
// expect(CASE_many): condition_is_no_truth_value<espalier::boolean<64> ?>::raise<espalier::why::at<espalier::why::line<16>
// user_line(CASE_many): step::flops
// first(CASE_number): while_loop: the condition must be one truth value for all devices
// expect(CASE_number): condition_is_no_truth_value<espalier::f32<> ?>::raise<espalier::why::at<espalier::why::line<18>
// user_line(CASE_number): step::flops
// kind(CASE_state): `while_loop`: the state changes its type
// first(CASE_state): while_loop: the body must return a state of the type it was given
// expect(CASE_state): state_changes_type<espalier::f32<64>, espalier::f32<> ?>::raise<espalier::why::at<espalier::why::line<20>
// user_line(CASE_state): step::flops
// first(CASE_output): while_loop: the body must return a state of the type it was given
// expect(CASE_output): state_changes_type<espalier::f32<64>, espalier::results<espalier::f32<64>, espalier::f32<> ?> ?>::raise
// user_line(CASE_output): step::flops
// first(CASE_exchanged): while_loop: condition and body come first, then the state
// expect(CASE_exchanged): state_is_not_a_tensor<>::raise<espalier::why::at<espalier::why::line<26>
// user_line(CASE_exchanged): step::flops
// first(CASE_step): while_loop: condition\(state\) and body\(state\) are called with the state alone
// expect(CASE_step): state_does_not_fit<espalier::f32<64> ?>::raise<espalier::why::at<espalier::why::line<28>
// user_line(CASE_step): step::flops
// kind(CASE_gradient): a gradient through a `while_loop`
// first(CASE_gradient): value_and_grad: the loss depends on a while_loop
// expect(CASE_gradient): while_loop_has_no_gradient<>::raise<espalier::why::at<espalier::why::line<31>
// user_line(CASE_gradient): step::flops
// first(CASE_inside): the tensor has no dimension of this number
// expect(CASE_inside): no_such_dimension<espalier::f32<64>, espalier::why::dim<3> ?>
// user_line(CASE_inside): step::flops
// kind(CASE_each): `cond`: a predicate with many elements
// first(CASE_each): cond: the predicate must be one truth value for all devices
// expect(CASE_each): predicate_is_no_truth_value<
// user_line(CASE_each): choice::flops
// kind(CASE_types): `cond`: branches of different types
// first(CASE_types): cond, switch_case: all branches must return the same type
// expect(CASE_types): branches_differ<espalier::f32<64>, espalier::f32<> ?>::raise
// user_line(CASE_types): choice::flops
// first(CASE_takes): cond, switch_case: branches are functions without parameters
// expect(CASE_takes): branch_takes_arguments<>::raise
// user_line(CASE_takes): choice::flops
// first(CASE_returns_number): cond, switch_case: a branch must return a tensor
// expect(CASE_returns_number): branch_gives_no_tensor<>::raise
// user_line(CASE_returns_number): choice::flops
// first(CASE_known): cond: the predicate must be one truth value for all devices
// expect(CASE_known): predicate_is_no_truth_value<bool ?>::raise
// user_line(CASE_known): choice::flops
// first(CASE_index): switch_case: the index comes first
// expect(CASE_index): index_is_no_whole_number<espalier::f32<> ?>::raise
// user_line(CASE_index): choice::flops
// first(CASE_operands): cond, switch_case: branches are functions without parameters
// expect(CASE_operands): branch_takes_arguments<>::raise
// user_line(CASE_operands): choice::flops
// first(CASE_branch_inside): the tensor has no dimension of this number
// expect(CASE_branch_inside): no_such_dimension<espalier::f32<64>, espalier::why::dim<3> ?>
// user_line(CASE_branch_inside): choice::flops
// clang-format on
