// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/nn/optimizers.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <boost/hana/define_struct.hpp>

/// Mistakes in what an optimizer's step is given.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

template <class Leaf> struct dense {
  BOOST_HANA_DEFINE_STRUCT(dense, (ep::leaf<Leaf, ep::f32<8, 4>>, weight), (ep::leaf<Leaf, ep::f32<4>>, bias));
};
template <class Leaf> struct wide {
  BOOST_HANA_DEFINE_STRUCT(wide, (ep::leaf<Leaf, ep::f32<8, 4>>, weight), (ep::leaf<Leaf, ep::f32<6>>, bias));
};
template <class Leaf> struct net { BOOST_HANA_DEFINE_STRUCT(net, (dense<Leaf>, in), (dense<Leaf>, out)); };
template <class Leaf> struct wide_net { BOOST_HANA_DEFINE_STRUCT(wide_net, (dense<Leaf>, in), (wide<Leaf>, out)); };
template <class Leaf> struct longer {
  BOOST_HANA_DEFINE_STRUCT(longer, (dense<Leaf>, in), (dense<Leaf>, out), (dense<Leaf>, head));
};

struct train {
  constexpr auto operator()(auto state, auto other, auto more, auto rate, auto x) const {
    const auto loss = [&](auto p) { return ep::mean(ep::tanh(ep::matmul(x, p.in.weight) + p.out.bias)); };
    const auto [value, gradient] = ep::value_and_grad(loss)(state.parameters);
    static_cast<void>(other);
    static_cast<void>(more);
#if defined(CASE_leaf)
    return ep::results(ep::nn::adamw_step(other, gradient, rate), value);  // leaf
#elif defined(CASE_ends)
    return ep::results(ep::nn::adamw_step(more, gradient, rate), value);  // ends
#elif defined(CASE_tensor)
    return ep::results(ep::nn::adamw_step(state, x, rate), value);  // tensor
#elif defined(CASE_parameters)
    return ep::results(ep::nn::adamw_step(state.parameters, gradient, rate), value);  // parameters
#elif defined(CASE_optimizer)
    return ep::results(ep::nn::sgd_step(state, gradient, rate), value);  // optimizer
#elif defined(CASE_swapped)
    return ep::results(ep::nn::adamw_step(state, rate, gradient), value);  // swapped
#elif defined(CASE_rate)
    return ep::results(ep::nn::adamw_step(state, gradient, 0.001), value);  // rate
#else
    // As the message of CASE_rate says.
    const auto next = ep::nn::adamw_step(state, gradient, ep::constant<ep::f32<>>(value, 0.001));
    return ep::results(ep::nn::adamw_step(next, gradient, rate), value);
#endif
  }
};

template <template <class> class Tree> using state_of = typename ep::nn::adamw<Tree>::template state<ep::spec>;
using step = ep::program<mesh, train, state_of<net>, state_of<wide_net>, state_of<longer>, ep::f32<>, ep::f32<2, 8>>;
static_assert(step::flops() > 0 && step::collectives<ep::all_gather>() == 0);

// clang-format off
// kind(CASE_leaf): an optimizer's state of another tree
// first(CASE_leaf): an optimizer's step: the gradients are not of the tree whose parameters the state holds
// expect(CASE_leaf): gradients_of_another_tree<espalier::why::leaf<espalier::why::text<'o', 'u', 't', '.', 'b', 'i', 'a', 's'>, espalier::f32<6> ?>, espalier::why::leaf<espalier::why::text<'o', 'u', 't', '.', 'b', 'i', 'a', 's'>, espalier::f32<4> ?> ?>::raise<espalier::why::at<espalier::why::line<33>
// user_line(CASE_leaf): step::flops
// first(CASE_ends): an optimizer's step: the gradients are not of the tree whose parameters the state holds
// expect(CASE_ends): gradients_of_another_tree<espalier::why::leaf<espalier::why::text<'h', 'e', 'a', 'd', '.', 'w', 'e', 'i', 'g', 'h', 't'>, espalier::f32<8, 4> ?>, espalier::why::no_leaf>::raise<espalier::why::at<espalier::why::line<35>
// user_line(CASE_ends): step::flops
// first(CASE_tensor): an optimizer's step: the gradients are not of the tree whose parameters the state holds
// expect(CASE_tensor): gradients_of_another_tree<espalier::why::leaf<espalier::why::text<'i', 'n', '.', 'w', 'e', 'i', 'g', 'h', 't'>, espalier::f32<8, 4> ?>, espalier::why::leaf<espalier::why::text< ?>, espalier::f32<2, 8> ?> ?>
// user_line(CASE_tensor): step::flops
// first(CASE_parameters): adamw_step, sgd_step: the first argument is no state of this optimizer
// expect(CASE_parameters): not_an_optimizer_state<net<espalier::symbols<espalier::mesh<data> ?> ?> ?>::raise<espalier::why::at<espalier::why::line<39>
// user_line(CASE_parameters): step::flops
// first(CASE_optimizer): adamw_step, sgd_step: the first argument is no state of this optimizer
// expect(CASE_optimizer): not_an_optimizer_state<(typename )?espalier::nn::adamw<net>::state<
// user_line(CASE_optimizer): step::flops
// first(CASE_swapped): an optimizer's step: the gradients are not of the tree whose parameters the state holds
// expect(CASE_swapped): espalier::why::leaf<espalier::why::text< ?>, espalier::f32< ?> ?>
// user_line(CASE_swapped): step::flops
// kind(CASE_rate): a learning rate that is a number
// first(CASE_rate): an optimizer's step: the learning rate must be a floating-point scalar tensor, f32<>
// expect(CASE_rate): or make one: constant<f32<>>\(loss, 0\.001\), for any tensor loss
// expect(CASE_rate): rate_is_no_scalar<double>::raise<espalier::why::at<espalier::why::line<45>
// user_line(CASE_rate): step::flops
// clang-format on
