// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <espalier/tensor/core/nn/mixed.hpp>
#include <espalier/tensor/core/nn/training.hpp>
#include <espalier/tensor/run/execute/gather.hpp>

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

/// Mixed precision as a policy: against loops that round as it says, and against training in f32.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

real rounded(real value) {
  return static_cast<real>(ep::detail::stored_as(ep::dtype::bf16, static_cast<double>(value)));
}

// --- one product ----------------------------------------------------------------------------------------------------

/// A masked sum of a product of f32 and f64, integers and a tree among the arguments.
template <class On> struct product {
  struct masked {
    constexpr auto operator()(const auto& p, auto in, auto chosen, auto wide) const {
      using weights = std::remove_cvref_t<decltype(p.template get<0>())>;
      static_assert(weights::type == ep::dtype::bf16 && decltype(in)::type == ep::dtype::bf16);
      static_assert(decltype(chosen)::type == ep::dtype::i32 && decltype(wide)::type == ep::dtype::f64);
      const auto y = ep::matmul(ep::shard<typename On::data, ep::none>(in), p.template get<0>());
      const auto kept = ep::select(chosen > 0, ep::sum<1>(y), 0);
      return ep::results(ep::sum(kept), y, wide);
    }
  };
  struct loss {
    constexpr auto operator()(const auto&... all) const { return masked{}(all...).template get<0>(); }
  };
  constexpr auto operator()(auto w, auto x, auto chosen, auto wide) const {
    const auto p = ep::results(w);
    const auto [value, slope] = ep::value_and_grad(ep::mixed<ep::f32, ep::bf16>(loss{}))(p, x, chosen, wide);
    const auto all = ep::mixed<ep::f32, ep::bf16>(masked{})(p, x, chosen, wide);
    static_assert(decltype(value)::type == ep::dtype::f32);
    static_assert(std::is_same_v<std::remove_cvref_t<decltype(slope.template get<0>())>, decltype(w)>);
    return ep::results(value, slope.template get<0>(), all.template get<1>(), all.template get<2>());
  }
};
template <class On>
using product_program =
    ep::program<typename On::mesh, product<On>, ep::f32<3, 4>, ep::f32<10, 3>, ep::i32<10>, ep::f64<2>>;

plains plain_product(const plains& in) {
  plain slope({3, 4}), y({10, 4});
  real total = 0;
  for (int n = 0; n < 10; ++n) {
    real row = 0;
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 3; ++i) {
        const real x = rounded(in[1](n, i));
        y(n, j) += x * rounded(in[0](i, j));
        if (in[2](n) > 0) slope(i, j) += x;
      }
      y(n, j) = rounded(y(n, j));
      row += y(n, j);
    }
    if (in[2](n) > 0) total += rounded(row);
  }
  for (real& one : slope.data) one = rounded(one);
  return {plain::number(rounded(total)), slope, y, in[3]};
}

TEST_CASE("mixed: a function is computed in bf16, what goes in and comes out is f32", "[mixed]") {
  const plains in{wave(1, {3, 4}), wave(2, {10, 3}), indices(3, {10}, 2), wave(4, {2})};
  const plains out = plain_product(in);
  gives<product_program<on<1, 1>>>(in, out, 1e-6);
  // Over devices terms of the slope are rounded too.
  everywhere<product_program>(meshes<on<2, 1>, on<4, 1>, on<4, 2>>{}, in, out, 0.02);
  // 12 numbers of 2 bytes; the loss is a single number, and travels as it is.
  using two = product_program<on<2, 1>>;
  CHECK(two::collectives<ep::all_reduce>() == 2);
  CHECK(two::bytes<ep::all_reduce>() == 12 * 2 + 4);
}

// --- training -------------------------------------------------------------------------------------------------------

template <class Leaf> struct network {
  BOOST_HANA_DEFINE_STRUCT(network, (ep::leaf<Leaf, ep::f32<6, 24>>, in), (ep::leaf<Leaf, ep::f32<24>>, bias),
                           (ep::leaf<Leaf, ep::f32<24, 4>>, out));
};
using optimizer = ep::nn::adamw<network>;

/// A classifier, trained in f32 or in bf16 with f32 masters.
template <class On, bool Mixed> struct step {
  constexpr auto operator()(const auto& state, auto x, auto labels) const {
    const auto loss = [&](const auto& p, auto in) {
      const auto h = ep::tanh(ep::matmul(ep::shard<typename On::data, ep::none>(in), p.in) + p.bias);
      return ep::nn::cross_entropy(ep::matmul(ep::shard<typename On::data, typename On::model>(h), p.out), labels);
    };
    const auto found = [&] {
      if constexpr (Mixed) {
        return ep::value_and_grad(ep::mixed<ep::f32, ep::bf16>(loss))(state.parameters, x);
      } else {
        return ep::value_and_grad(loss)(state.parameters, x);
      }
    }();
    return ep::results(ep::nn::adamw_step(state, found.gradient, ep::constant<ep::f32<>>(x, 0.003)), found.value);
  }
};
template <class On, bool Mixed>
using training = ep::program<typename On::mesh, step<On, Mixed>, ep::donated<optimizer::state<ep::spec>>,
                             ep::f32<32, 6>, ep::i32<32>>;

/// The mean loss of the last 50 of 500 steps.
template <class Program> double trained() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> runner(world);
  auto state = runner.template argument<0>();
  const auto x = runner.template argument<1>();
  const auto y = runner.template argument<2>();
  int leaf = 0;
  ep::for_each_named_leaf(state.parameters, [&](auto& array, const auto& /*path*/) {
    const plain drawn = wave(++leaf, {24 * 6}, 0.3);
    array.for_each([&](float& e, std::int64_t i) { e = static_cast<float>(drawn(i)); });
  });
  double sum = 0;
  for (int n = 0; n < 500; ++n) {
    const plain drawn = wave(100 + n, {32, 6});
    x.for_each([&](float& e, std::int64_t i) { e = static_cast<float>(drawn(i / 6, i % 6)); });
    y.for_each([&](std::int32_t& e, std::int64_t i) {
      e = (drawn(i, 0) * drawn(i, 1) > 0.1L ? 2 : 0) + (drawn(i, 2) + drawn(i, 3) * drawn(i, 4) > 0 ? 1 : 0);
    });
    const double loss = ep::gather(world, runner(state, x, y).template get<1>())[0];
    if (n >= 450) sum += loss / 50;
  }
  return sum;
}

TEST_CASE("mixed: losses after 500 steps are within 1 % of those in f32", "[mixed]") {
  const double wide = trained<training<on<2, 2>, false>>();
  const double narrow = trained<training<on<2, 2>, true>>();
  CAPTURE(wide, narrow);
  CHECK(wide < 0.9);
  CHECK(std::abs(narrow - wide) < 0.01 * wide);
  // A leaf that is not kept in f32 would lose small steps: 0.003 of 1 is below half of bf16's last bit.
  CHECK(narrow < 0.9);
}

}  // namespace
