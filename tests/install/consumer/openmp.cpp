// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
//
// A program on two devices of this process, with what pkg-config says of espalier-openmp and nothing else.
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>
#include <espalier/tensor/run/execute/world.hpp>
#include <espalier/tensor/run/kernels/kernels.hpp>

#include <cstdint>
#include <cstdio>

namespace ep = espalier;
struct model : ep::axis<"model", 2> {};
struct product {
  constexpr auto operator()(auto x, auto w) const { return ep::einsum<"bm,mh->bh">(x, ep::shard<model, ep::none>(w)); }
};

int main() {
  ep::world world(ep::mesh<model>::value);
  ep::runner<ep::program<ep::mesh<model>, product, ep::f32<2, 64>, ep::f32<64, 3>>> run(world);
  const auto x = run.argument<0>();
  const auto w = run.argument<1>();
  const auto ones = [](float& element, std::int64_t) { element = 1; };
  x.for_each(ones);
  w.for_each(ones);
  const float y = ep::gather(world, run(x, w))[0];
  std::printf("the sum of 64 ones is %g\n", double(y));
  return y == 64 ? 0 : 1;
}
