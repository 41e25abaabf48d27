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
  // In each of 9 iterations, there and back, a device's 2 x 5 values go to the next stage. The last stage, which sends
  // most, deals its outputs out once, 6 x 2 x 5 values, and their gradient comes back to it from the others. Weights
  // cause nothing but the sum of their gradients over data.
  using eight = by_hand_program<on<2, 4>>;
  CHECK(eight::collectives<ep::exchange>() == 2 * 9 + 2);
  CHECK(eight::bytes<ep::exchange>() == 2 * 9 * (2 * 5 * 8) + 6 * 2 * 5 * 8);
  CHECK(eight::collectives<ep::all_gather>() == 0);
  CHECK(eight::collectives<ep::all_reduce, on<2, 4>::data>() == 2);
}

/// A halo and a norm by hand, of shards whose other axis is uneven and the compiler's.
template <class On> struct hand {
  using model = typename On::model;
  static constexpr int width = 12 / model::size;
  constexpr auto operator()(auto x, auto w) const {
    const auto loss = [&](auto v) {
      const auto y = ep::manual<model>(
          [](auto s, auto k) {
            const auto left = spmd::permute<model, 1>(ep::slice<1, width - 1, width>(s));
            const auto moved = ep::concat<1>(left, ep::slice<1, 0, width - 1>(s));
            const auto z = ep::tanh(s * k + moved);
            const auto norm = spmd::psum<model>(ep::sum<1>(z * z, ep::keep_dims));
            return z / ep::sqrt(norm + 1.0);
          },
          ep::in_specs<ep::dims<ep::none, model>, ep::dims<>>(), ep::out_specs<ep::dims<ep::none, model>>())(x, v);
      return ep::sum(y * y * y);
    };
    const auto both = ep::value_and_grad(loss)(w);
    return ep::results(both.value, both.gradient);
  }
};
template <class On>
using hand_program =
    ep::program<typename On::mesh, hand<On>, ep::sharded<ep::f64<7, 12>, typename On::data, ep::none>, ep::f64<>>;
real plain_hand(const plains& in) {
  real total = 0;
  for (int i = 0; i < 7; ++i) {
    real z[12], norm = 0;
    for (int j = 0; j < 12; ++j) {
      z[j] = std::tanh(in[1](i, j) * in[0]() + in[1](i, (j + 11) % 12));
      norm += z[j] * z[j];
    }
    for (real one : z) {
      const real y = one / std::sqrt(norm + 1);
      total += y * y * y;
    }
  }
  return total;
}

TEST_CASE("manual: a halo and a norm by hand", "[manual]") {
  const plain x = wave(5, {7, 12}), w = plain::number(0.7L);
  const plains out = value_and_slopes(plain_hand, {w, x}, 1);
  gives<hand_program<on<1, 1>>>({x, w}, out);
  gives<hand_program<on<2, 1>>>({x, w}, out);
  gives<hand_program<on<2, 2>>>({x, w}, out);
  gives<hand_program<on<2, 4>>>({x, w}, out);
  // One column of up to four rows from the neighbour, and two sums of one number for each row, there and back.
  using four = hand_program<on<2, 2>>;
  CHECK(four::bytes<ep::exchange>() == 4 * 8);
  CHECK(four::bytes<ep::all_reduce, on<2, 2>::model>() == 2 * (4 * 8) + 2 * 2 * 8);
}

}  // namespace
