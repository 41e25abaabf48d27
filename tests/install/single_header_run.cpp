// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// What somebody types into Compiler Explorer to see a program run: one header, and four devices in one process.
#include "espalier.hpp"

#include <cstdint>
#include <iostream>

namespace ep = espalier;

struct data : ep::axis<"data", 4> {};
using mesh = ep::mesh<data>;

struct sum_of_squares {
  constexpr auto operator()(auto x) const {
    x = ep::shard<data>(x);
    return ep::sum(x * x);
  }
};
using step = ep::program<mesh, sum_of_squares, ep::f32<4>>;

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<step> run(world);
    const auto x = run.argument<0>();
    x.for_each([](float& e, std::int64_t i) { e = static_cast<float>(i + 1); });
    std::cout << ep::gather(world, run(x))[0] << " on " << mesh::devices << " devices, which send "
              << step::bytes<ep::all_reduce>() << " B each\n";
  });
}
