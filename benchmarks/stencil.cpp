// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A nine-point stencil on a plane of 4096 x 4096, over four ranks: written for one device, as a convolution. Each rank
// has rows, so that those of its neighbours lie right before and after its own, and nothing else is copied.

#include "machine.hpp"

#include <espalier/espalier.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

constexpr int side = 4096;
constexpr int steps = 20;

struct rows : axis<"rows", 4> {};
using four_ranks = mesh<rows>;
using plane = f32<1, side, side, 1>;

struct evolve {
  constexpr auto operator()(auto start, auto weights) const {
    constexpr convolution_settings one_around{.low = {1, 1}, .high = {1, 1}};
    return repeat<steps>([&](auto x) { return convolution<one_around>(x, weights); },
                         shard<none, rows, none, none>(start));
  }
};
using stencil = program<four_ranks, evolve, donated<plane>, f32<3, 3, 1, 1>>;
static_assert(stencil::collectives<exchange>() == steps && stencil::collectives() == steps);
// A row to each neighbour.
static_assert(stencil::bytes<exchange>() == steps * 2 * side * 4);

/// The start of the plane, as in peers/windows/stencil.cpp.
float start_of(std::int64_t row, std::int64_t column) {
  return static_cast<float>((row * 7 + column * 3) % 11 - 5) / 8;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "stencil";
  return guarded_main(argc, argv, [&] {
    world here(argc, argv, four_ranks{});
    runner<stencil> run(here);
    auto x = run.argument<0>();
    const auto weights = run.argument<1>();
    weights.for_each([](float& w, std::int64_t i) {
      constexpr float of[]{0.0F, 0.1F, 0.05F, 0.1F, 0.5F, 0.1F, 0.05F, 0.1F, 0.0F};
      w = of[i];
    });
    std::vector<double> samples;
    double sum = 0;
    for (int repeat = 0; repeat < 6; ++repeat) {
      x.for_each([](float& e, std::int64_t i) { e = start_of(i / side, i % side); });
      here.on_devices([](int, auto& communicator) { communicator.barrier(); });
      const double mine = seconds([&] { run(x, weights); });
      double slowest = 0;
      double part = 0;
      x.for_each([&](float& e, std::int64_t) { part += static_cast<double>(e) * static_cast<double>(e); });
      sum = 0;
      here.on_devices([&](int local, auto& communicator) {
        if (local != 0) return;
        for (int rank = 0; rank < communicator.size(); ++rank) {
          double theirs[]{mine, part};
          if (here.uses_mpi()) communicator.broadcast(theirs, sizeof theirs, rank);
          slowest = std::max(slowest, theirs[0]);
          sum += theirs[1];
        }
      });
      if (repeat > 0) samples.push_back(slowest);
    }
    if (!here.is_root()) return 0;
    char checksum[64];
    std::snprintf(checksum, sizeof checksum, "\"checksum\": %.9g", sum);
    benchmarks::report(row, "ours", steps / median(samples), "steps/s", checksum);
    return 0;
  });
}
