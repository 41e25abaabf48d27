// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Causal attention with its heads spread over the devices, and its gradient: the only communication is one sum over
// the heads' devices on the way forward and one on the way back.

#include <espalier/espalier.hpp>

#include <cmath>
#include <iostream>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

template <class Leaf> struct attention {
  BOOST_HANA_DEFINE_STRUCT(attention, (ep::leaf<Leaf, ep::f32<32, 4, 8>>, query),
                           (ep::leaf<Leaf, ep::f32<32, 4, 8>>, key), (ep::leaf<Leaf, ep::f32<32, 4, 8>>, value),
                           (ep::leaf<Leaf, ep::f32<4, 8, 32>>, output));
};

struct loss {
  constexpr auto operator()(const auto& weights, auto x) const {
    x = ep::shard<data, ep::none, ep::none>(x);              // f32[4@data, 16, 32]
    auto q = ep::einsum<"bsw,whd->bshd">(x, weights.query);  // f32[4@data, 16, 4@model, 8]
    q = ep::shard<data, ep::none, model, ep::none>(q);
    const auto k = ep::einsum<"bsw,whd->bshd">(x, weights.key);         // f32[4@data, 16, 4@model, 8]
    const auto v = ep::einsum<"bsw,whd->bshd">(x, weights.value);       // f32[4@data, 16, 4@model, 8]
    const auto mixed = ep::nn::causal_attention(q, k, v);               // f32[4@data, 16, 4@model, 8]
    const auto y = ep::einsum<"bshd,hdw->bsw">(mixed, weights.output);  // f32[4@data, 16, 32]
    return ep::mean(y * y);
  }
};

struct gradient_step {
  constexpr auto operator()(const auto& weights, auto x) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(weights, x);
    return ep::results(value, gradient);
  }
};

using step = ep::program<mesh, gradient_step, attention<ep::spec>, ep::f32<4, 16, 32>>;

static_assert(step::collectives<ep::all_gather>() == 0);
static_assert(step::collectives<ep::all_to_all>() == 0);

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);
    auto weights = run.argument<0>();
    auto x = run.argument<1>();
    const auto wave = [](double phase) {
      return [phase](float& element, std::int64_t i) {
        element = static_cast<float>(std::sin(static_cast<double>(i * i % 1009) + phase));
      };
    };
    weights.query.for_each(wave(1));
    weights.key.for_each(wave(2));
    weights.value.for_each(wave(3));
    weights.output.for_each(wave(4));
    x.for_each(wave(5));

    const auto& out = run(weights, x);
    const float before = ep::gather(world, out.get<0>())[0];

    // A small step against the gradient lowers the loss by the step's size times its squared length: here by 1 %.
    const auto slope = ep::gather(world, out.get<1>().output);
    double squared = 0;
    for (const float s : slope) squared += double(s) * double(s);
    const double rate = 0.01 * double(before) / squared;
    weights.output.for_each([&](float& element, std::int64_t i) {
      element -= static_cast<float>(rate) * slope[static_cast<std::size_t>(i)];
    });
    const float after = ep::gather(world, run(weights, x).get<0>())[0];
    const double predicted = rate * squared;
    const double seen = double(before) - double(after);
    if (world.is_root()) {
      ep::explain<step>(std::cout, ep::collectives_only);
      std::cout << "the gradient predicts the change of the loss: "
                << (std::abs(seen - predicted) < 0.05 * predicted ? "yes" : "NO") << '\n';
    }
    return std::abs(seen - predicted) < 0.05 * predicted ? 0 : 1;
  });
}
