// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "model.hpp"
#include "shapes.hpp"

#include <espalier/espalier.hpp>
#include <espalier/report.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>

// A vision transformer in mixed precision: what layers compute, keep and send is bf16; parameters, moments and the
// update are f32. The mesh splits the batch one way, heads and hidden units the other way.

namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

using images = ep::f32<vit::batch, vit::side, vit::side>;
using labels = ep::i32<vit::batch>;
using network = vit::on<data, model>;
using training =
    ep::program<mesh, network::train_step, ep::donated<vit::optimizer::state<ep::spec>>, images, labels, ep::f32<>>;
using inference = ep::program<mesh, network::classify, vit::parameters<ep::spec>, images>;

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 4: four ranks; without it: four threads
    ep::runner<training> train(world);
    auto state = train.argument<0>();
    auto x = train.argument<1>();
    auto y = train.argument<2>();
    ep::nn::initialise(
        state.parameters, 3, [](const auto& path) { return ep::nn::initial_by_name(path, 0.08); },
        [](auto& array, const auto& value) {
          array.for_each(
              [&](float& e, std::int64_t i) { e = static_cast<float>(value(static_cast<std::uint64_t>(i))); });
        });
    constexpr int steps = 200;
    double first = 0;
    double last = 0;  // mean of the last 20 steps
    for (int n = 0; n < steps; ++n) {
      vit::load(std::int64_t{n} * vit::batch, x, y);
      const double warm_up = std::min(1.0, (n + 1) / 30.0);
      const double rate = 0.003 * warm_up * 0.5 * (1 + std::cos(3.14159265 * n / steps));
      const auto& out = train(state, x, y, static_cast<float>(rate));
      if (n != 0 && n < steps - 20) continue;
      const double loss = ep::gather(world, out.get<1>())[0];
      if (n == 0) first = loss;
      if (n > 0) last += loss / 20;
    }

    // Pictures that it has not seen.
    ep::runner<inference> classify(world);
    int right = 0;
    constexpr int batches = 16;
    for (int n = 0; n < batches; ++n) {
      vit::load(1'000'000 + n * vit::batch, x, y);
      const auto found = ep::gather(world, classify(state.parameters, x));
      const auto truth = ep::gather(world, y);
      for (std::size_t k = 0; k < found.size(); ++k) right += found[k] == truth[k] ? 1 : 0;
    }
    if (!world.is_root()) return 0;
    std::cout << "the loss begins " << (first > 1.5 ? "above" : "below") << " 1.5 and ends "
              << (last < 0.75 ? "below" : "ABOVE") << " 0.75\n"
              << (right * 100 >= batches * vit::batch * 70 ? "at least" : "LESS THAN") << " 70 % of "
              << batches * vit::batch << " new pictures are told right\n";
    ep::explain<training>(std::cout, ep::collectives_only);
    return 0;
  });
}
