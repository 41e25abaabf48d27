// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Programs of every floating-point type for a processor of which the compiler knows nothing, as a user builds who
// passes no -march: g++ then warns of vectors wider than the registers that cross a function's border.

#include <espalier/espalier.hpp>

#include <utility>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct gradients {
  constexpr auto operator()(auto w, auto x, auto y, auto image, auto filter) const {
    const auto loss = [=](auto weights, auto taps) {
      const auto z = ep::tanh(ep::einsum<"kc,bk->bc">(weights, x));
      const auto v = ep::einsum<"k,kc->c">(ep::sum<1>(weights), weights);
      const auto seen = ep::max_pool<ep::pooling_settings{.size = {2, 2}}>(ep::convolution(image, taps));
      return ep::mean((z - y) * (z - y)) + ep::sum(ep::softmax(z)) + ep::max(v) + ep::sum(seen);
    };
    return ep::value_and_grad<0, 1>(loss)(w, filter);
  }
};

template <template <int...> class Tensor>
using step =
    ep::program<mesh, gradients, Tensor<12, 5>, Tensor<8, 12>, Tensor<8, 5>, Tensor<2, 8, 8, 4>, Tensor<3, 3, 4, 8>>;

template <class Program> void run_once(ep::world& world) {
  ep::runner<Program> run(world);
  [&]<std::size_t... N>(std::index_sequence<N...>) { static_cast<void>(run(run.template argument<N>()...)); }
  (std::make_index_sequence<5>{});
}

void run_all(ep::world& world) {
  run_once<step<ep::f64>>(world);
  run_once<step<ep::f32>>(world);
  run_once<step<ep::bf16>>(world);
}
