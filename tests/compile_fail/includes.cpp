// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/espalier.hpp>

#include <iostream>
#if !defined(CASE_save) && !defined(CASE_load) && !defined(CASE_scatter) && !defined(CASE_gather) && !defined(CASE_view)
#include <espalier/tensor/run/io/checkpoint.hpp>
#include <espalier/tensor/run/io/xtensor.hpp>
#endif
#if !defined(CASE_warm_up) && !defined(CASE_relative)
#include <espalier/nn.hpp>
#endif

/// What the header of everything does not bring: called without its own header, it says which that is.
namespace ep = espalier;
namespace nn = espalier::nn;

namespace unqualified {
using namespace espalier;  // where both the functions and what stands for them are in sight
void use(world& everyone, const sharded_array<f32<4, 3>>& x) {
#if defined(CASE_save)
  save_checkpoint(everyone, x, "file");  // save
#elif !defined(CASE_load) && !defined(CASE_scatter) && !defined(CASE_gather) && !defined(CASE_view)
  save_checkpoint(everyone, x, "file");
  load_checkpoint(everyone, x, "file");
#endif
}
}  // namespace unqualified

void use(ep::world& everyone, ep::sharded_array<ep::f32<4, 3>>& x) {
#if defined(CASE_load)
  const auto notes = ep::load_checkpoint(everyone, x, "file");  // load
#elif defined(CASE_scatter)
  const int values = 0;
  ep::scatter(values, x);                       // scatter
#elif defined(CASE_gather)
  const auto all = ep::gather_xtensor(everyone, x);  // gather
  const float first = all(0, 0);
  std::cout << all[1];
  std::cout << all << all.shape(0);
  for (const float one : all) std::cout << one;
#elif defined(CASE_view)
  auto part = ep::shard_view(x, 0);  // view
  part(1, 1) = 1;
  part += 2;
#elif !defined(CASE_save)
  const auto notes = ep::load_checkpoint(everyone, x, "file");
  ep::save_checkpoint(everyone, x, "file", notes);
  ep::scatter(ep::gather_xtensor(everyone, x), x);
  ep::shard_view(x, 0)(1, 1) = 1;
#endif
}

struct data : ep::axis<"data", 2> {};

struct rate_of {
  constexpr auto operator()(auto x, auto step) const {
#if defined(CASE_warm_up)
    const auto rate = nn::warm_up_cosine(step, {.peak = 3e-4, .warm_up = 100, .total = 5000});  // warm_up
#elif defined(CASE_relative)
    const auto rate = nn::relative_step(step);  // relative
#else
    using namespace espalier::nn;  // where both the functions and what stands for them are in sight
    constexpr warm_up_settings warm_up{.peak = 3e-4, .warm_up = 100, .total = 5000};
    const auto rate = constant_rate(step, 0.001) + linear_rate(step, 0.1, 0, 100) + cosine_rate(step, 0.1, 0, 100) +
                      warm_up_cosine(step, {.peak = 3e-4}) + warm_up_linear(step, warm_up) +
                      inverse_square_root(step, 0.1, 100) + relative_step(step) + average_decay(step, 0.999);
#endif
    return x - rate * ep::tanh(x);
  }
};
using step = ep::program<ep::mesh<data>, rate_of, ep::f32<4, 8>, ep::f32<>>;
static_assert(step::flops() > 0);

// clang-format off
// first(CASE_save): save_checkpoint: espalier.hpp does not bring it. Add #include <espalier/io.hpp>
// expect(CASE_save): save_checkpoint
// user_line(CASE_save): save_checkpoint.everyone, x, "file".;  // save
// kind(CASE_save): `save_checkpoint` without its header
// first(CASE_load): load_checkpoint: espalier.hpp does not bring it. Add #include <espalier/io.hpp>
// expect(CASE_load): load_checkpoint
// user_line(CASE_load): // load
// kind(CASE_load): `load_checkpoint` without its header
// first(CASE_scatter): scatter: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>
// expect(CASE_scatter): scatter
// user_line(CASE_scatter): // scatter
// kind(CASE_scatter): `scatter` without its header
// first(CASE_gather): gather_xtensor: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>
// expect(CASE_gather): gather_xtensor
// user_line(CASE_gather): // gather
// kind(CASE_gather): `gather_xtensor` without its header
// first(CASE_view): shard_view: espalier.hpp does not bring it. Add #include <espalier/xtensor.hpp>
// expect(CASE_view): shard_view
// user_line(CASE_view): // view
// kind(CASE_view): `shard_view` without its header
// first(CASE_warm_up): warm_up_cosine: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>
// expect(CASE_warm_up): warm_up_cosine
// user_line(CASE_warm_up): // warm_up
// kind(CASE_warm_up): `warm_up_cosine` without its header
// first(CASE_relative): relative_step: espalier.hpp does not bring it. Add #include <espalier/nn.hpp>
// expect(CASE_relative): relative_step
// user_line(CASE_relative): // relative
// kind(CASE_relative): `relative_step` without its header
// clang-format on
