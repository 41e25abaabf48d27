// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A long program: the gradient of LAYERS transformer blocks that share their parameters and of TAIL hyperbolic
// tangents, without a scan. Run, it prints how many instructions it has.

#include "../../examples/gpt/model.hpp"

#include <espalier/tensor/run/execute/runner.hpp>

#include <cstdio>

namespace ep = espalier;

#if !defined(LAYERS)
#define LAYERS 3
#define TAIL 8
#endif

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using layout = gpt::megatron<data, model>;
using config = gpt::config<64, 64, 4, 1, 32, 4>;
template <class Leaf> using block = gpt::trees<config>::block<Leaf>;
using input = ep::f32<config::batch, config::context, config::width>;

struct deep_loss {
  constexpr auto operator()(const auto& parameters, const auto& x) const {
    auto y = layout::residual(x);
    for (int layer = 0; layer < LAYERS; ++layer) y = gpt::transformer_block<layout>{}(y, parameters);
    for (int more = 0; more < TAIL; ++more) y = ep::tanh(y);
    return ep::mean(y * y);
  }
};
struct deep_gradient {
  constexpr auto operator()(const auto& parameters, const auto& x) const {
    const auto [value, gradient] = ep::value_and_grad(deep_loss{})(parameters, x);
    return ep::results(gradient, value);
  }
};
using step = ep::program<ep::mesh<data, model>, deep_gradient, block<ep::spec>, input>;

int main() {
  ep::world world(step::mesh::value);
  ep::runner<step> run(world);
  auto parameters = run.argument<0>();
  auto x = run.argument<1>();
  run(parameters, x);
  std::printf("%d instructions traced, %d after partitioning\n", step::traced.size, step::code.size);
}
