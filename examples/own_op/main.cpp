// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Three ops that are not the library's, with their gradients, split over two devices. docs/adding-an-op.md explains
// them.

#include <espalier/espalier.hpp>

#include "kernels/curvature.hpp"
#include "kernels/ensemble.hpp"
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

/// Each device needs as many of its neighbour's rows, for the result and for the gradient.
template <int Distance> struct bending {
  constexpr auto operator()(auto x) const {
    const auto energy = [](const auto& y) {
      const auto c = mine::curvature<Distance>(ep::shard<data>(y));
      return 0.5 * ep::sum(c * c);
    };
    const auto [value, slope] = ep::value_and_grad(energy)(x);
    return ep::results(value, slope);
  }
};
template <int Distance> using bend = ep::program<mesh, bending<Distance>, ep::f32<5>>;
static_assert(bend<1>::collectives<ep::exchange>() == 2 && bend<1>::bytes<ep::exchange>() == 2 * 4);
static_assert(bend<2>::collectives<ep::exchange>() == 2 && bend<2>::bytes<ep::exchange>() == 2 * 8);

/// Prints the bending of 0, 1, 4, 9, 16.
template <int Distance> void print_bending(ep::world& world) {
  ep::runner<bend<Distance>> run(world);
  const auto y = run.template argument<0>();
  y.for_each([](float& element, std::int64_t i) { element = static_cast<float>(i * i); });
  const auto& bent = run(y);
  const auto energy = ep::gather(world, bent.template get<0>());
  const auto forces = ep::gather(world, bent.template get<1>());
  if (!world.is_root()) return;
  std::cout << "bending energy of rows " << Distance << " apart: " << energy[0] << "; slopes";
  for (const float force : forces) std::cout << ' ' << force;
  std::cout << '\n';
}

/// Six numbers for each of three rows, of which the first device has two. The loss reads both results of one op.
struct agreeing {
  constexpr auto operator()(auto x) const {
    const auto loss = [](const auto& all) {
      const auto c = ep::split<1, 6>(ep::shard<data, ep::none>(all));
      const auto [mean, variance] = mine::ensemble(c[0], c[1], c[2], c[3], c[4], c[5]);
      return ep::sum(mean * mean) + 3.0 * ep::sum(variance);
    };
    const auto [value, slope] = ep::value_and_grad(loss)(x);
    return ep::results(value, slope);
  }
};
using agree = ep::program<mesh, agreeing, ep::f32<3, 6>>;
static_assert(agree::collectives() == 1);  // the loss

void print_agreement(ep::world& world) {
  ep::runner<agree> run(world);
  const auto x = run.argument<0>();
  x.for_each([](float& element, std::int64_t i) { element = static_cast<float>(i / 6 + i % 6 * (i % 6)); });
  const auto& out = run(x);
  const auto loss = ep::gather(world, out.get<0>());
  const auto slopes = ep::gather(world, out.get<1>());
  if (!world.is_root()) return;
  std::cout << "mean squared and three times the variance: " << loss[0] << "; slopes of the last row";
  for (std::size_t k = 12; k < 18; ++k) std::cout << ' ' << slopes[k];
  std::cout << '\n';
}

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);
    const auto x = run.argument<0>();
    x.for_each([](float& element, std::int64_t i) { element = static_cast<float>(i - 2); });
    const auto& out = run(x);
    const auto total = ep::gather(world, out.get<0>());
    const auto slopes = ep::gather(world, out.get<1>());
    std::cout << std::fixed << std::setprecision(4);
    if (world.is_root()) {
      std::cout << "sum of softplus: " << total[0] << '\n';
      for (std::size_t i = 0; i < slopes.size(); ++i) {
        std::cout << "slope at " << std::setw(2) << static_cast<int>(i) - 2 << ": " << slopes[i] << '\n';
      }
    }
    print_bending<1>(world);
    print_bending<2>(world);
    print_agreement(world);
    return 0;
  });
}
