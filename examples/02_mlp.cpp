// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A two-layer network written for one device, on four: one hint, one all-reduce, and the compiler knows its bytes.

#include <espalier/espalier.hpp>

#include <cmath>
#include <iostream>

namespace ep = espalier;
using namespace ep::literals;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 2> {};
using mesh = ep::mesh<data, model>;

struct mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    auto h = ep::relu(ep::einsum<"bm,mh->bh">(x, w_in));  // f32[64@data, 1024@model]
    h = ep::shard<data, model>(h);                        // the only hint
    return ep::einsum<"bh,hm->bm">(h, w_out);             // f32[64@data, 256]
  }
};

using step = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;

static_assert(step::collectives<ep::all_gather>() == 0);  // a surprise all-gather fails the build
static_assert(step::collectives<ep::all_reduce, model>() == 1);
static_assert(step::bytes<ep::all_reduce>() == 32_KiB);
static_assert(step::peak_bytes_per_device() <= 2_MiB);  // and so does a model that does not fit

/// The same function on a mesh of one device: nothing is communicated.
struct alone : ep::axis<"alone", 1> {};
struct plain_mlp {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    return ep::einsum<"bh,hm->bm">(ep::relu(ep::einsum<"bm,mh->bh">(x, w_in)), w_out);
  }
};
using reference = ep::program<ep::mesh<alone>, plain_mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;
static_assert(reference::collectives() == 0);

template <class Array> void fill(Array& array, double phase) {
  array.for_each([&](float& element, std::int64_t i) {
    element = static_cast<float>(std::sin(0.37 * static_cast<double>(i) + phase));
  });
}

template <class Program> auto evaluate(ep::world& world) {
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  auto w_in = run.template argument<1>();
  auto w_out = run.template argument<2>();
  fill(x, 1);
  fill(w_in, 2);
  fill(w_out, 3);
  return ep::gather(world, run(x, w_in, w_out));
}

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});  // mpirun -n 4: four ranks; without it: four devices in this process
    const auto y = evaluate<step>(world);
    if (!world.is_root()) return 0;

    ep::explain<step>(std::cout);
    ep::world one(ep::mesh<alone>::value);
    const auto expected = evaluate<reference>(one);
    double difference = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      difference = std::fmax(difference, std::abs(double(y[i]) - double(expected[i])));
    std::cout << (difference < 1e-3 ? "four devices and one agree\n" : "FOUR DEVICES AND ONE DISAGREE\n");
    return difference < 1e-3 ? 0 : 1;
  });
}
