// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/espalier.hpp>
#include <espalier/xtensor.hpp>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <xtensor/xmath.hpp>
#include <xtensor/xview.hpp>

// Heat spreads over a plate that is cut into 2 x 2 parts, of which some are a row or a column larger. The model is
// written for one device; each step's nine-point stencil is a convolution, for which every device gets the row, the
// column and the corner of its three neighbours that it lacks, and nothing else.

namespace ep = espalier;

struct rows : ep::axis<"rows", 2> {};
struct columns : ep::axis<"columns", 2> {};
using mesh = ep::mesh<rows, columns>;

constexpr int height = 35;
constexpr int width = 71;
constexpr int steps = 300;

using plate = ep::f32<1, height, width, 1>;  // image, rows, columns, channel
using stencil = ep::f32<3, 3, 1, 1>;

struct heat {
  constexpr auto operator()(auto temperature, auto weights, auto source) const {
    // It is cold beyond the border: the padding's zeros.
    constexpr ep::convolution_settings one_around{.low = {1, 1}, .high = {1, 1}};
    const auto start = ep::shard<ep::none, rows, columns, ep::none>(temperature);
    return ep::repeat<steps>([&](auto t) { return ep::convolution<one_around>(t, weights) + source; }, start);
  }
};
using step = ep::program<mesh, heat, ep::donated<plate>, stencil, plate>;

// One exchange in every step; nothing is gathered, and nothing summed over devices.
static_assert(step::collectives<ep::exchange>() == steps);
static_assert(step::collectives<ep::all_gather>() == 0 && step::collectives<ep::all_reduce>() == 0);

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 4: four ranks; without it: four threads
    ep::runner<step> run(world);
    // The heat equation with the Laplacian of nine points, in steps of 0.2 (up to 0.375 are stable). Every process has
    // these arrays whole; each device takes its part.
    xt::xtensor<float, 4> weights = xt::zeros<float>({3, 3, 1, 1});
    xt::view(weights, xt::all(), xt::all(), 0, 0) =
        xt::xtensor<float, 2>{{1, 4, 1}, {4, -20, 4}, {1, 4, 1}} / 6.0F * 0.2F;
    weights(1, 1, 0, 0) += 1;
    xt::xtensor<float, 4> source = xt::zeros<float>({1, height, width, 1});
    xt::view(source, 0, 10, xt::range(15, 30), 0) = 1;
    xt::view(source, 0, xt::range(19, 30), 50, 0) = 1;
    const auto t = ep::gather_xtensor(world, run(xt::zeros<float>({1, height, width, 1}), weights, source));
    if (!world.is_root()) return 0;
    const std::string shades = " .:-=+*#%@";
    const float most = xt::amax(t)();
    double sum = 0;
    for (int row = 0; row < height; ++row) {
      std::string line;
      for (int column = 0; column < width; ++column) {
        const float here = t(0, row, column, 0);
        sum += static_cast<double>(here);
        const auto shade = static_cast<std::size_t>(std::sqrt(std::max(here, 0.0F) / most) * 9.99F);
        line += shades[shade];
      }
      std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
    }
    std::cout << "after " << steps << " steps: mean temperature " << std::round(sum / (height * width) * 1000) / 1000
              << ", hottest " << std::round(static_cast<double>(most) * 100) / 100 << '\n'
              << "each device sends " << step::bytes<ep::exchange>() / steps << " bytes in a step\n";
    return 0;
  });
}
