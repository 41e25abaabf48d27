// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/nn/training.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes in what functions of trees, schedules and gradients in parts are given.
namespace ep = espalier;
namespace nn = espalier::nn;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (ep::leaf<Leaf, ep::f32<8, 4>>, weight), (ep::leaf<Leaf, ep::f32<4>>, bias));
};
template <class Leaf> struct table { BOOST_HANA_DEFINE_STRUCT(table, (ep::leaf<Leaf, ep::f32<8, 4>>, weight)); };

struct train {
  constexpr auto operator()(auto state, auto other, auto x, auto rate) const {
    const auto loss = [](auto p, auto rows) { return ep::mean(ep::tanh(ep::matmul(rows, p.weight) + p.bias)); };
#if defined(CASE_leaves)
    return ep::tree_zip([](auto a, auto b) { return a + b; }, state.parameters, other);  // leaves
#elif defined(CASE_shape)
    return ep::tree_map([](auto leaf) { return ep::sum(leaf); }, state.parameters);  // shape
#elif defined(CASE_step)
    return nn::warm_up_cosine(3, {});  // step
#elif defined(CASE_parts)
    return nn::value_and_grad_in_parts<3>(loss)(state.parameters, x).gradient;  // parts
#elif defined(CASE_optimizer)
    return nn::muon_step(state, ep::grad(loss)(state.parameters, x), rate);  // optimizer
#else
    const auto gradient = nn::value_and_grad_in_parts<2>(loss)(state.parameters, x).gradient;
    const auto twice = ep::tree_zip([](auto a, auto b) { return a + b; }, gradient, gradient);
    static_cast<void>(other);
    return nn::lion_step(state, twice, nn::warm_up_cosine(state.step, {}) + rate);
#endif
  }
};

using step = ep::program<mesh, train, nn::lion<dense>::state<ep::spec>, table<ep::spec>, ep::f32<4, 8>, ep::f32<>>;
static_assert(step::flops() > 0 && step::collectives<ep::all_gather>() == 0);

// clang-format off
// kind(CASE_leaves): trees of different leaves
// first(CASE_leaves): tree_map, tree_zip: the trees have different numbers of leaves
// expect(CASE_leaves): trees_of_different_leaves<espalier::why::leaf<espalier::why::text<'b', 'i', 'a', 's'>, espalier::f32<4> ?>, espalier::why::no_leaf>
// user_line(CASE_leaves): step::flops
// kind(CASE_shape): a tree_map that gives other shapes
// first(CASE_shape): tree_map, tree_zip: for each leaf the function must return a tensor of the leaf's shape
// expect(CASE_shape): leaf_function_changes_shape<
// user_line(CASE_shape): step::flops
// kind(CASE_step): a schedule of a number
// first(CASE_step): a learning-rate schedule: the step must be a floating-point scalar tensor, f32<>
// expect(CASE_step): step_is_no_scalar<int>::raise<espalier::why::at<espalier::why::line<28>
// user_line(CASE_step): step::flops
// kind(CASE_parts): a batch that does not divide into parts
// first(CASE_parts): value_and_grad_in_parts: the first dimension of each batch must be a multiple of the number of parts
// expect(CASE_parts): batch_is_not_in_parts<espalier::f32<4, 8> ?>::raise<espalier::why::at<espalier::why::line<30>
// user_line(CASE_parts): step::flops
// kind(CASE_optimizer): a step of an optimizer with another one's state
// first(CASE_optimizer): lion_step, adafactor_step, muon_step: the first argument is no state of this optimizer
// expect(CASE_optimizer): state_of_another_optimizer<(typename )?espalier::nn::lion<dense>::state<
// user_line(CASE_optimizer): step::flops
// clang-format on
