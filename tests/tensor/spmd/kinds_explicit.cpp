// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

// Programs that say more about their layouts than single annotations: explicit mode.

#include <espalier/tensor/core/program/explicit_mode.hpp>
#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- explicit mode: a training step that writes every collective ----------------------------------------------------

/// The first weight is split over both axes and gathered over `data`, the second over `model`.
template <class On> struct written_step {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w_in, auto w_out, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto gathered = ep::reshard<ep::none, model>(p.template get<0>());  // all_gather over data
      const auto h = ep::tanh(ep::matmul(x, gathered));
      const auto y = ep::shard<data, ep::none>(ep::matmul(h, p.template get<1>()));  // all_reduce over model
      return ep::shard<>(ep::mean(y * y));                                           // all_reduce over data
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w_in, w_out));
    // Of w_in the reduction is the gradient of the all_gather, a reduce_scatter; of w_out it is written here.
    const auto of_out = ep::reshard<model, ep::none>(gradient.template get<1>());
    return ep::results(w_in - gradient.template get<0>(), w_out - of_out, value);
  }
};
template <class On, template <int...> class Type, int Batch, int Width, int Hidden, template <class...> class Program>
using written_step_of = Program<typename On::mesh, written_step<On>,
                                ep::donated<ep::sharded<Type<Width, Hidden>, typename On::data, typename On::model>>,
                                ep::donated<ep::sharded<Type<Hidden, Width>, typename On::model, ep::none>>,
                                ep::sharded<Type<Batch, Width>, typename On::data, ep::none>>;
template <class On> using written_step_program = written_step_of<On, ep::f64, 7, 5, 6, ep::explicit_program>;

using even = on<2, 4>;
using written = written_step_of<even, ep::f32, 8, 8, 16, ep::explicit_program>;
using free = written_step_of<even, ep::f32, 8, 8, 16, ep::program>;
// By hand, of a device: a quarter of w_in's columns and half of its rows, f32[4, 4], go to one other; 4 x 8 partials of
// y are all-reduced over four; f32[8, 4] of a gradient are scattered over two, f32[4, 8] are all-reduced over two, with
// the loss.
static_assert(written::bytes<ep::all_gather>() == 4 * 4 * 4);
static_assert(written::bytes<ep::all_reduce, even::model>() == 2 * 3 * 4 * 8 * 4 / 4);
static_assert(written::bytes<ep::reduce_scatter>() == 8 * 4 * 4 / 2);
static_assert(written::bytes<ep::all_reduce, even::data>() == 4 * 8 * 4 + 4);
static_assert(written::collectives() == 4, "the loss travels with the gradient");
static_assert(written::collectives() == free::collectives() && written::code.size == free::code.size);

real plain_written_step(const plains& in) {
  const int batch = in[2].size(0), width = in[2].size(1), hidden = in[0].size(1);
  real total = 0;
  for (int b = 0; b < batch; ++b) {
    for (int o = 0; o < width; ++o) {
      real y = 0;
      for (int h = 0; h < hidden; ++h) {
        real sum = 0;
        for (int i = 0; i < width; ++i) sum += in[2](b, i) * in[0](i, h);
        y += std::tanh(sum) * in[1](h, o);
      }
      total += y * y / static_cast<real>(batch * width);
    }
  }
  return total;
}

// --- explicit mode in parts of a program: loops, halos, and a part that is automatic ---------------------------------

template <class On> struct modes {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto up, auto down) const {
    const auto layers = ep::explicit_mode([](auto h, auto first, auto second) {
      const auto layer = [](auto state, const auto& weights) {
        const auto inner = ep::tanh(ep::matmul(state, weights.template get<0>()));
        return state + ep::shard<data, ep::none>(ep::matmul(inner, weights.template get<1>()));
      };
      return ep::scan(layer, h, ep::results(first, second));
    });
    const auto y = layers(x, up, down);
    const auto shifted = ep::explicit_mode<ep::exchange>([](auto v) {
      const auto largest = ep::auto_mode([](auto u) { return ep::max<0>(u); })(v);
      return ep::results(ep::roll<0, 1>(v) - v, largest);
    })(y);
    return ep::results(shifted.template get<0>(), shifted.template get<1>());
  }
};
template <class On>
using modes_program = ep::program<typename On::mesh, modes<On>, ep::sharded<ep::f64<7, 4>, typename On::data, ep::none>,
                                  ep::sharded<ep::f64<3, 4, 6>, ep::none, ep::none, typename On::model>,
                                  ep::sharded<ep::f64<3, 6, 4>, ep::none, typename On::model, ep::none>>;
static_assert(modes_program<even>::collectives<ep::all_reduce, even::model>() == 3, "one in each iteration");
static_assert(modes_program<even>::collectives<ep::all_reduce, even::data>() == 1, "the maximum");
static_assert(modes_program<even>::collectives<ep::exchange>() == 1);
static_assert(modes_program<even>::collectives() == 5);

plains plain_modes(const plains& in) {
  plain y = in[0];
  for (int layer = 0; layer < 3; ++layer) {
    plain next = y;
    for (int b = 0; b < 7; ++b) {
      for (int h = 0; h < 6; ++h) {
        real sum = 0;
        for (int i = 0; i < 4; ++i) sum += y(b, i) * in[1](layer, i, h);
        for (int o = 0; o < 4; ++o) next(b, o) += std::tanh(sum) * in[2](layer, h, o);
      }
    }
    y = next;
  }
  plain shifted({7, 4}), largest({4}, -1e9L);
  for (int b = 0; b < 7; ++b) {
    for (int o = 0; o < 4; ++o) {
      shifted(b, o) = y((b + 6) % 7, o) - y(b, o);
      largest(o) = std::max(largest(o), y(b, o));
    }
  }
  return {shifted, largest};
}

using every_count = meshes<on<1, 1>, on<1, 2>, on<2, 2>, on<2, 4>>;

}  // namespace

TEST_CASE("kinds: a training step in explicit mode, two steps in place", "[kinds]") {
  plains in{wave(1, {5, 6}), wave(2, {6, 5}), wave(3, {7, 5})};
  const plains start = in;
  real value = 0;
  for (int step = 0; step < 2; ++step) {
    value = plain_written_step(in);
    const plains by{slope(plain_written_step, in, 0), slope(plain_written_step, in, 1)};
    for (std::size_t leaf = 0; leaf < 2; ++leaf) {
      for (std::size_t i = 0; i < by[leaf].data.size(); ++i) in[leaf].data[i] -= by[leaf].data[i];
    }
  }
  everywhere<written_step_program>(every_count{}, start, {in[0], in[1], plain::number(value)}, 1e-9, 2);
}

TEST_CASE("kinds: parts of a program in explicit mode", "[kinds]") {
  const plains in{wave(1, {7, 4}), wave(2, {3, 4, 6}), wave(3, {3, 6, 4})};
  everywhere<modes_program>(every_count{}, in, plain_modes(in));
}
