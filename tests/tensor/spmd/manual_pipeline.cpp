// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/manual.hpp>

#include <support/kinds.hpp>

/// GSPMD's pipeline (section 3.3) by hand: each device is a stage, and a permutation hands its values to the next one.
namespace ep = espalier;
namespace spmd = espalier::spmd;
using namespace testing::kinds;

namespace {

constexpr int micro_batches = 6;
constexpr int rows = 4;
constexpr int width = 5;

template <class On> struct by_hand {
  using model = typename On::model;
  static constexpr int stages = model::size;
  constexpr auto operator()(auto batches, auto weights) const {
    const auto loss = [&](const auto& all_weights) {
      const auto stage = [](auto all, auto mine) {  // f64[9, 4, 5], the same on all devices, and f64[1, 5, 5]
        const auto is_first = spmd::axis_index<model>(all) == 0;
        const auto own = ep::reshape<width, width>(mine);
        const auto step = [&](auto before, auto micro_batch) {
          const auto out = ep::tanh(ep::matmul(ep::select(is_first, micro_batch, before), own));
          return ep::results(spmd::permute<model, 1>(out), out);
        };
        const auto start = spmd::pvary<model>(ep::constant<ep::f64<rows, width>>(all, 0));
        const auto outs = ep::scan(step, start, all).template get<1>();
        return ep::slice<0, stages - 1, micro_batches + stages - 1>(outs);  // right on the last stage
      };
      // What a stage makes while the pipeline fills is thrown away: the input is as long as that takes.
      const auto padded = ep::pad<0, 0, stages - 1>(batches, 0.0);
      const auto all = ep::manual<model>(stage, ep::in_specs<ep::dims<>, ep::dims<model>>(),
                                         ep::out_specs<ep::dims<model>>())(padded, all_weights);
      const auto last = ep::slice<0, (stages - 1) * micro_batches, stages * micro_batches>(all);
      return ep::mean(last * last);
    };
    const auto [value, slope] = ep::value_and_grad(loss)(weights);
    return ep::results(value, slope);
  }
};
template <class On>
using by_hand_program =
    ep::program<typename On::mesh, by_hand<On>,
                ep::sharded<ep::f64<micro_batches, rows, width>, ep::none, typename On::data, ep::none>,
                ep::sharded<ep::f64<On::model::size, width, width>, typename On::model, ep::none, ep::none>>;

real plain_pipeline(const plains& in) {
  real total = 0;
  for (int m = 0; m < micro_batches; ++m) {
    for (int r = 0; r < rows; ++r) {
      std::vector<real> h(width);
      for (int c = 0; c < width; ++c) h[static_cast<std::size_t>(c)] = in[0](m, r, c);
      for (int s = 0; s < in[1].size(0); ++s) {
        std::vector<real> next(width, 0);
        for (int i = 0; i < width; ++i)
          for (int c = 0; c < width; ++c)
            next[static_cast<std::size_t>(c)] += h[static_cast<std::size_t>(i)] * in[1](s, i, c);
        for (real& one : next) one = std::tanh(one);
        h = next;
      }
      for (const real one : h) total += one * one / (micro_batches * rows * width);
    }
  }
  return total;
}
template <class On> void trains() {
  const plains in{wave(1, {micro_batches, rows, width}), wave(2, {On::model::size, width, width}, 0.7)};
  gives<by_hand_program<On>>(in, value_and_slopes(
                                     [](const plains& at) {
                                       return plain_pipeline({at[1], at[0]});
                                     },
                                     {in[1], in[0]}, 1));
}

TEST_CASE("manual: a pipeline, each device a stage", "[manual]") {
  trains<on<1, 1>>();
  trains<on<1, 2>>();
  trains<on<2, 4>>();
  // In each of 9 iterations, there and back, a device's 2 x 5 values go to the next stage. The last stage's outputs are
  // dealt out once, 6 x 2 x 5 values, and their gradient, of which a device has a quarter, comes back: 2 of 6, rounded
  // up. Weights cause nothing but the sum of their gradients over data.
  using eight = by_hand_program<on<2, 4>>;
  CHECK(eight::collectives<ep::exchange>() == 2 * 9 + 2);
  CHECK(eight::bytes<ep::exchange>() == 2 * 9 * (2 * 5 * 8) + 6 * 2 * 5 * 8 + 2 * 2 * 5 * 8);
  CHECK(eight::collectives<ep::all_gather>() == 0);
  CHECK(eight::collectives<ep::all_reduce, on<2, 4>::data>() == 2);
}

}  // namespace
