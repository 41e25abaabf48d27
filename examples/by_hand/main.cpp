// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/espalier.hpp>
#include <espalier/manual.hpp>
#include <espalier/xtensor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <xtensor/xmath.hpp>
#include <xtensor/xrandom.hpp>

// Two layers as the compiler splits them, and the same by hand. Megatron's block is written for one shard: the hidden
// features are cut along model, and a psum adds up what each device has computed of them; the batch stays with the
// compiler, which splits it along data. The gradient needs no hand. The second program overlaps what an all_gather
// would bring at once: shards of the rows go round a ring, and each device multiplies the shard that it has just now.

namespace ep = espalier;
namespace spmd = espalier::spmd;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
using mesh = ep::mesh<data, model>;

constexpr int batch = 16;
constexpr int features = 24;
constexpr int hidden = 64;

using batch_rows = ep::sharded<ep::f32<batch, features>, data, ep::none>;
using into = ep::f32<features, hidden>;
using out_of = ep::f32<hidden, features>;

template <class Block> struct training {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto loss = [&](auto inward, auto outward) {
      const auto y = Block{}(x, inward, outward);
      return ep::mean(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad<0, 1>(loss)(w_in, w_out);
    return ep::results(value, gradient);
  }
};

struct automatic {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto h = ep::shard<ep::open, model>(ep::gelu(ep::matmul(x, w_in)));  // f32[16@data, 64@model]
    return ep::matmul(h, w_out);                                               // f32[16@data, 24]
  }
};

struct by_hand {
  constexpr auto operator()(auto x, auto w_in, auto w_out) const {
    const auto block = ep::manual<model>(
        [](auto shard, auto inward, auto outward) {            // f32[16, 24], f32[24, 16], f32[16, 24]
          const auto h = ep::gelu(ep::matmul(shard, inward));  // f32[16, 16], varies along model
          const auto terms = spmd::as_partial<model>(ep::matmul(h, outward));
          static_assert(spmd::is_partial<model, decltype(terms)>);  // whose psum cannot be forgotten
          return spmd::psum<model>(terms);                          // f32[16, 24], the same on all devices
        },
        ep::in_specs<ep::dims<>, ep::dims<ep::none, model>, ep::dims<model>>(), ep::out_specs<ep::dims<>>());
    return block(x, w_in, w_out);
  }
};

using automatic_step = ep::program<mesh, training<automatic>, batch_rows, into, out_of>;
using by_hand_step = ep::program<mesh, training<by_hand>, batch_rows, into, out_of>;

// By hand as by the compiler, forward and back: the sum of a shard's rows over model, 2 n (d - 1) / d bytes, the
// gradients of a device's weights over data, and the loss.
constexpr std::int64_t sum_of_rows = 2 * (batch / 2 * features * 4) * 3 / 4;
constexpr std::int64_t sums_of_weights = 2 * (2 * features * hidden / 4 * 4) * 1 / 2;
static_assert(by_hand_step::bytes<ep::all_reduce>() == sum_of_rows + sums_of_weights + 4);
static_assert(by_hand_step::bytes<ep::all_reduce>() == automatic_step::bytes<ep::all_reduce>());

struct ring_product {
  constexpr auto operator()(auto x, auto w) const {
    return ep::manual<model>(
        [](auto mine, auto columns) {  // f32[4, 24], f32[24, 16]
          constexpr int devices = spmd::axis_size<model>;
          constexpr int size = decltype(mine)::extent(0);
          const auto here = spmd::axis_index<model>(mine);
          // The block that is here after `step` steps has come from so many devices before this one.
          const auto put = [&](const auto& done, const auto& block, const auto& step) {
            const auto source = ep::remainder(here - step + devices, ep::constant<ep::i32<>>(step, devices));
            return ep::dynamic_update_slice<0>(done, ep::matmul(block, columns), source * size);
          };
          const auto nothing = ep::constant<ep::f32<batch, decltype(columns)::extent(1)>>(mine, 0);
          const auto rest = ep::repeat<devices - 1>(
              [&](const auto& carry, const auto& step) {
                const auto& [block, done] = carry;
                return ep::results(spmd::permute<model, 1>(block), put(done, block, step));
              },
              ep::results(mine, nothing));
          const auto& [last, done] = rest;
          return put(done, last, ep::constant<ep::i32<>>(mine, devices - 1));
        },
        ep::in_specs<ep::dims<model>, ep::dims<ep::none, model>>(), ep::out_specs<ep::dims<ep::none, model>>())(x, w);
  }
};
using ring = ep::program<mesh, ring_product, ep::f32<batch, features>, into>;
// As many bytes as an all_gather of the rows: three times a shard of 4 rows.
static_assert(ring::bytes<ep::exchange>() == 3 * (batch / 4 * features * 4));
static_assert(ring::collectives() == 3);

int main(int argc, char** argv) {
  return ep::guarded_main(argc, argv, [&] {
    ep::world world(argc, argv, mesh{});
    ep::runner<automatic_step> run_automatic(world);
    ep::runner<by_hand_step> run_by_hand(world);
    ep::runner<ring> run_ring(world);
    xt::random::seed(1);
    const xt::xtensor<float, 2> x = xt::random::randn<float>({batch, features});
    const xt::xtensor<float, 2> w_in = xt::random::randn<float>({features, hidden});
    const xt::xtensor<float, 2> w_out = xt::random::randn<float>({hidden, features});

    const auto expected = run_automatic(x, w_in, w_out);
    const auto got = run_by_hand(x, w_in, w_out);
    const auto difference = [&](const auto& one, const auto& other) {
      const auto a = ep::gather_xtensor(world, one);
      const auto b = ep::gather_xtensor(world, other);
      return xt::amax(xt::abs(a - b))() < 1e-4F * xt::amax(xt::abs(b))();
    };
    const bool same_loss = difference(got.template get<0>(), expected.template get<0>());
    const bool same_in =
        difference(got.template get<1>().template get<0>(), expected.template get<1>().template get<0>());
    const bool same_out =
        difference(got.template get<1>().template get<1>(), expected.template get<1>().template get<1>());
    const auto product = ep::gather_xtensor(world, run_ring(x, w_in));
    bool same_product = true;
    for (std::size_t r = 0; r < batch; ++r) {
      for (std::size_t c = 0; c < hidden; ++c) {
        float sum = 0;
        for (std::size_t i = 0; i < features; ++i) sum += x(r, i) * w_in(i, c);
        same_product = same_product && std::abs(sum - product(r, c)) < 1e-3F;
      }
    }
    if (!world.is_root()) return 0;
    const auto say = [](const char* what, bool same) {
      std::cout << what << (same ? ": as the compiler's\n" : ": differs\n");
    };
    say("loss of the block by hand", same_loss);
    say("gradient by w_in", same_in);
    say("gradient by w_out", same_out);
    std::cout << "product round the ring: " << (same_product ? "right" : "wrong") << '\n'
              << "each device sends " << by_hand_step::bytes<ep::all_reduce>() << " bytes for the block, and "
              << ring::bytes<ep::exchange>() << " for the ring\n";
    return 0;
  });
}
