// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The code that docs/training.md shows.

#include <espalier/core.hpp>
#include <espalier/tensor/core/nn/training.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
namespace nn = espalier::nn;

namespace {

struct data : ep::axis<"data", 4> {};
using mesh = ep::mesh<data>;

template <class Leaf> struct net {  // parameters of sixteen bits
  BOOST_HANA_DEFINE_STRUCT(net, (ep::leaf<Leaf, ep::f16<64, 48>>, weight), (ep::leaf<Leaf, ep::f16<48>>, bias));
};
template <class Leaf> struct training {
  BOOST_HANA_DEFINE_STRUCT(training, (nn::adamw<net>::state<Leaf>, state),  // moments of f32
                           (nn::accumulators<net, Leaf>, average),          // f32 as well
                           (nn::loss_scale<Leaf>, scaling));
};

struct step {
  constexpr auto operator()(auto t, auto x, auto y) const {
    const auto loss = [&](const auto& p, auto rows, auto wanted) {
      const auto error = ep::matmul(ep::shard<data, ep::none>(rows), p.weight) + p.bias - wanted;
      return nn::scaled(ep::mean(error * error), t.scaling);
    };
    const auto [value, scaled] = nn::value_and_grad_in_parts<4>(loss)(t.state.parameters, x, y);
    const auto mean = nn::unscaled(value, t.scaling);
    const auto gradient = nn::unscaled(scaled, t.scaling);
    const auto finite = ep::all_finite(gradient);
    const auto [clipped, norm] = ep::clip_by_global_norm(gradient, 1.0);
    const auto rate = nn::warm_up_cosine(t.state.step, {.peak = 3e-4, .warm_up = 100, .total = 5000});
    const auto next = nn::adamw_step(t.state, clipped, rate);
    t.state = ep::tree_select(finite, next, t.state);
    t.average = nn::moving_average(t.average, t.state.parameters, 0.999);
    t.scaling = nn::next_loss_scale(t.scaling, finite);
    return ep::results(t, mean, norm);
  }
};

using program = ep::program<mesh, step, ep::donated<training<ep::spec>>, ep::f16<32, 64>, ep::f16<32, 48>>;
static_assert(program::collectives<ep::all_gather>() == 0 && program::collectives<ep::exchange>() == 0);

struct matrices_alone {
  constexpr auto operator()(const auto& state, const auto& gradient, auto rate) const {
    return nn::muon_step(state, gradient, rate, {.gather = true}, nn::split_state<data, 64>{});
  }
};
using muon = ep::program<mesh, matrices_alone, nn::muon<net>::state<ep::spec>, net<ep::spec>, ep::f32<>>;
static_assert(muon::collectives<ep::all_reduce>() == 0);

}  // namespace
