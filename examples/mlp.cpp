// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/espalier.hpp>

#include <iostream>

namespace ep = espalier;
using namespace ep::literals;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {  // written for one device
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));
    h = ep::shard<data, model>(h);  // the only hint
    return ep::einsum<"bh,hm->bm">(h, w_out);
  }
};

using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;
static_assert(step::collectives<ep::all_gather>() == 0);  // a surprise all-gather fails the build
static_assert(step::peak_bytes_per_device() <= 2_MiB);    // and so does a model that does not fit

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 4: four ranks; without it: four threads
    ep::runner<step> run(world);
    const auto x = run.argument<0>();
    const auto w_in = run.argument<1>();
    const auto w_out = run.argument<2>();
    const auto ones = [](float& element, std::int64_t /*index*/) { element = 1; };
    x.for_each(ones);
    w_in.for_each(ones);
    w_out.for_each(ones);
    const auto y = ep::gather(world, run(x, w_in, w_out));
    if (!world.is_root()) return 0;
    ep::explain<step>(std::cout);             // line, op, layout, collective, bytes, and why
    std::cout << "y[0] is " << y[0] << '\n';  // 256 * 1024
    return 0;
  });
}
