// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// An op that is not the library's, with its gradient, split over two devices. docs/adding-an-op.md explains it.

#include <espalier/espalier.hpp>

#include "kernels/softplus.hpp"

#include <iomanip>
#include <iostream>

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

struct loss {
  constexpr auto operator()(auto x) const {
    return ep::sum(mine::softplus(ep::shard<data>(x)));  // 3 elements and 2
  }
};
struct training {
  constexpr auto operator()(auto x) const {
    const auto [value, slope] = ep::value_and_grad(loss{})(x);
    return ep::results(value, slope);
  }
};
using step = ep::program<mesh, training, ep::f32<5>>;
static_assert(step::collectives() == 1);  // the sum of the loss

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);
    const auto x = run.argument<0>();
    x.for_each([](float& element, std::int64_t i) { element = static_cast<float>(i - 2); });
    const auto& out = run(x);
    const auto total = ep::gather(world, out.get<0>());
    const auto slopes = ep::gather(world, out.get<1>());
    if (!world.is_root()) return 0;
    std::cout << std::fixed << std::setprecision(4) << "sum of softplus: " << total[0] << '\n';
    for (std::size_t i = 0; i < slopes.size(); ++i) {
      std::cout << "slope at " << std::setw(2) << static_cast<int>(i) - 2 << ": " << slopes[i] << '\n';
    }
    return 0;
  });
}
