// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/run/report/explain.hpp>

#include <support/kinds.hpp>

#include <cmath>
#include <sstream>
#include <type_traits>

/// Programs that are lambdas: given to `compile`, to `program` as a type, to everything that takes functions.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

/// It has the same name on every mesh; a lambda that knows no mesh serves all.
constexpr auto mean_square = [](auto x, auto w) {
  const auto loss = [](auto weights, auto batch) {
    const auto h = ep::checkpoint([](auto a, auto b) { return ep::tanh(ep::matmul(a, b)); })(batch, weights);
    return ep::mean(h * h);
  };
  const auto [value, by] = ep::value_and_grad(loss)(w, x);
  const auto last = ep::repeat<3>([slope_of_w = by](auto c) { return c - 0.1 * slope_of_w; }, w);
  return ep::results(value, by, last);
};

template <class On>
constexpr auto compiled = ep::compile<typename On::mesh, ep::sharded<ep::f64<5, 3>, typename On::data, ep::none>,
                                      ep::sharded<ep::f64<3, 7>, ep::none, typename On::model>>(mean_square);
template <class On> using compiled_program = std::remove_const_t<decltype(compiled<On>)>;
template <class On> using named_program = ep::program_of<typename On::mesh, mean_square, ep::f64<5, 3>, ep::f64<3, 7>>;

real plain_loss(const plains& in) {
  real sum = 0;
  for (int i = 0; i < 5; ++i) {
    for (int k = 0; k < 7; ++k) {
      real h = 0;
      for (int j = 0; j < 3; ++j) h += in[0](i, j) * in[1](j, k);
      sum += std::tanh(h) * std::tanh(h);
    }
  }
  return sum / 35;
}

}  // namespace

TEST_CASE("a lambda is a program") {
  const plains in{wave(1, {5, 3}), wave(2, {3, 7})};
  const plain by = slope(plain_loss, in, 1);
  plain last = in[1];
  for (std::size_t n = 0; n < last.data.size(); ++n) last.data[n] -= 3 * 0.1L * by.data[n];
  const plains expected{plain::number(plain_loss(in)), by, last};
  everywhere<compiled_program>(few_or_all<meshes<on<1, 1>, on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>>>{},
                               in, expected);
  everywhere<named_program>(meshes<on<1, 2>>{}, in, expected);
}

TEST_CASE("a compiled lambda runs, answers and explains itself as a value") {
  constexpr auto step = ep::compile<on<2, 1>::mesh, ep::sharded<ep::f32<4>, on<2, 1>::data>>(
      [](auto x) { return ep::results(2 * x, ep::sum(x)); });
  static_assert(step.collectives() == 1);
  ep::world world(on<2, 1>::mesh::value);
  ep::runner run(world, step);
  auto x = run.argument<0>();
  x.for_each([](float& element, std::int64_t index) { element = static_cast<float>(index); });
  const auto& got = run(x);
  CHECK(read_array(got.get<0>()).data == std::vector<real>{0, 2, 4, 6});
  CHECK(read_array(got.get<1>()).data == std::vector<real>{6});
  std::ostringstream text;
  ep::explain(text, step);
  CHECK(text.str().find("all_reduce over data") != std::string::npos);
}

TEST_CASE("explain adds up what one device sends") {
  // Device 0 sends a number to the right, device 1 to the left.
  constexpr auto step = ep::compile<on<2, 1>::mesh, ep::sharded<ep::f64<8>, on<2, 1>::data>>([](auto x) {
    const auto to_the_right = ep::pad<0, 1, 0>(ep::slice<0, 0, 7>(x));
    const auto to_the_left = ep::pad<0, 0, 1>(ep::slice<0, 1, 8>(x));
    return ep::shard<on<2, 1>::data>(to_the_right + to_the_left);
  });
  std::ostringstream text;
  ep::explain(text, step);
  CHECK(text.str().find("each device sends 8 B in ") != std::string::npos);
}
