// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

#include <cmath>

/// Gradients that users write, and gradients that compute again what the forward pass does not keep.
namespace ep = espalier;
using namespace testing::kinds;

namespace {

using gradient_meshes = few_or_all<meshes<on<1, 1>, on<2, 2>>, meshes<on<1, 1>, on<2, 1>, on<1, 2>, on<2, 2>>>;

// --- gradients of one's own
// -----------------------------------------------------------------------------------------------

/// Rounds, and passes on what flows back where |x| < 1 (a straight-through estimator).
constexpr auto rounded =
    ep::custom_gradient([](auto x) { return ep::round(4 * x) / 4; },
                        [](auto x, auto /*value*/, auto flow) { return ep::select(ep::abs(x) < 1, flow, 0); });

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f64<5, 7>>, weight), (ep::leaf<Leaf, ep::f64<7>>, bias));
};

/// Two values of two arguments, one of them a tree; three times what is right flows back, so that it is seen to.
struct forward {
  constexpr auto operator()(auto x, auto p) const {
    const auto h = ep::tanh(ep::matmul(x, p.weight) + p.bias);
    return ep::results(h, ep::argmax<1>(h), ep::sum<1>(h * h));
  }
};
struct backward {
  constexpr auto operator()(auto x, auto p, auto value, auto flow) const {
    const auto [h, where, squares] = value;
    const auto [to_h, to_where, to_squares] = flow;
    const auto g = 3 * (to_h + 2 * h * ep::expand_dims<1>(to_squares)) * (1 - h * h);
    auto by = p;
    by.weight = ep::einsum<"bi,bo->io">(x, g);
    by.bias = ep::sum<0>(g);
    return ep::results(ep::einsum<"bo,io->bi">(g, p.weight), by);
  }
};

template <class On> struct own_gradients {
  constexpr auto operator()(auto x, auto p) const {
    x = ep::shard<typename On::data, typename On::model>(x);  // 3 x 5: uneven
    const auto loss = [](auto y, auto q) {
      const auto [h, where, squares] = ep::custom_gradient(forward{}, backward{})(y, q);
      return ep::results(ep::sum(h * h * h) + ep::sum(squares * squares), where);
    };
    const auto [value, by] = ep::value_and_grad<0, 1>(loss)(x, p);
    const auto straight = ep::grad([](auto y) { return ep::sum(rounded(y) * rounded(y)); })(2 * x);
    // Only one of the values is used: nothing flows into the others.
    const auto squares_alone = [](auto y, auto q) {
      return ep::sum(ep::custom_gradient(forward{}, backward{})(y, q).template get<2>());
    };
    return ep::results(value, by, straight, ep::grad(squares_alone)(x, p));
  }
};
template <class On>
using own_gradients_program = ep::program<typename On::mesh, own_gradients<On>, ep::f64<3, 5>, layer<ep::spec>>;

plain hidden(const plain& x, const plain& weight, const plain& bias) {
  plain h({3, 7});
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 7; ++k) {
      h(i, k) = bias(k);
      for (int j = 0; j < 5; ++j) h(i, k) += x(i, j) * weight(j, k);
      h(i, k) = std::tanh(h(i, k));
    }
  }
  return h;
}
real own_loss(const plains& in) {
  const plain h = hidden(in[0], in[1], in[2]);
  real sum = 0;
  for (int i = 0; i < 3; ++i) {
    real squares = 0;
    for (int k = 0; k < 7; ++k) {
      sum += h(i, k) * h(i, k) * h(i, k);
      squares += h(i, k) * h(i, k);
    }
    sum += squares * squares;
  }
  return sum;
}
real squares_loss(const plains& in) {
  real sum = 0;
  for (const real one : hidden(in[0], in[1], in[2]).data) sum += one * one;
  return sum;
}
plain three_times(plain x) {
  for (real& one : x.data) one *= 3;
  return x;
}
plains plain_own(const plains& in) {
  const plain h = hidden(in[0], in[1], in[2]);
  plain where({3}), straight({3, 5});
  for (int i = 0; i < 3; ++i) {
    for (int k = 1; k < 7; ++k) {
      if (h(i, k) > h(i, static_cast<int>(where(i)))) where(i) = k;
    }
    for (int j = 0; j < 5; ++j) {
      const real y = 2 * in[0](i, j);
      straight(i, j) = std::abs(y) < 1 ? 2 * std::nearbyint(4 * y) / 4 : 0;
    }
  }
  plains out{plain::number(own_loss(in)), where};
  for (std::size_t k = 0; k < 3; ++k) out.push_back(three_times(slope(own_loss, in, k)));
  out.push_back(straight);
  out.push_back(three_times(slope(squares_loss, in, 0)));
  return out;
}

// --- in loops, and again
// --------------------------------------------------------------------------------------------------

struct block {
  constexpr auto operator()(auto h, auto w, auto rows) const {
    const auto chosen = ep::gather<0>(h, rows);
    const auto inner = ep::tanh(ep::matmul(chosen, w)) * ep::exp(chosen * 0.25);
    // A loop in what is repeated.
    return ep::repeat<2>([&](auto c) { return c + ep::sin(c) * 0.5; }, inner);
  }
};

template <bool Again> constexpr auto call_block(auto h, auto w, auto rows) {
  if constexpr (Again) {
    return ep::checkpoint(block{})(h, w, rows);
  } else {
    return block{}(h, w, rows);
  }
}
template <class On, bool Again> struct layers_and_loop {
  constexpr auto operator()(auto x, auto stack, auto w, auto rows) const {
    x = ep::shard<typename On::data, ep::none>(x);
    w = ep::shard<ep::none, typename On::model>(w);
    const auto loss = [=](auto y, auto weights, auto last) {
      const auto body = [=](auto h, auto layer) { return call_block<Again>(h, layer, rows); };
      const auto h = call_block<Again>(ep::scan(body, y, weights), last, rows);
      return ep::mean(h * h);
    };
    const auto [value, by] = ep::value_and_grad<0, 1, 2>(loss)(x, stack, w);
    const auto [tangent_value, along] = ep::jvp([=](auto y) { return loss(y, stack, w); })(x, x);
    const auto twice = ep::grad([=](auto y) {
      const auto slopes = ep::grad([=](auto z) { return ep::mean(call_block<Again>(z, w, rows)); })(y);
      return ep::sum(slopes * slopes * slopes);
    })(x);
    return ep::results(value, by, along, twice);
  }
};
template <class On>
using once_program = ep::program<typename On::mesh, layers_and_loop<On, false>, ep::f64<5, 6>, ep::f64<3, 6, 6>,
                                 ep::f64<6, 6>, ep::i32<5>>;
template <class On>
using again_program = ep::program<typename On::mesh, layers_and_loop<On, true>, ep::f64<5, 6>, ep::f64<3, 6, 6>,
                                  ep::f64<6, 6>, ep::i32<5>>;

plain plain_block(const plain& h, const real* w, const plain& rows) {
  plain made({5, 6});
  for (int i = 0; i < 5; ++i) {
    const int from = static_cast<int>(rows(i));
    for (int k = 0; k < 6; ++k) {
      for (int j = 0; j < 6; ++j) made(i, k) += h(from, j) * w[j * 6 + k];
      real c = std::tanh(made(i, k)) * std::exp(h(from, k) / 4);
      for (int n = 0; n < 2; ++n) c += std::sin(c) / 2;
      made(i, k) = c;
    }
  }
  return made;
}
real layers_loss(const plains& in) {
  plain h = in[0];
  for (int layer = 0; layer < 3; ++layer) h = plain_block(h, &in[1].data[static_cast<std::size_t>(36 * layer)], in[3]);
  h = plain_block(h, in[2].data.data(), in[3]);
  real sum = 0;
  for (const real one : h.data) sum += one * one;
  return sum / 30;
}
real cube_of_slopes(const plains& in) {
  const auto mean = [](const plains& at) {
    real sum = 0;
    for (const real one : plain_block(at[0], at[2].data.data(), at[3]).data) sum += one;
    return sum / 30;
  };
  real sum = 0;
  for (const real one : slope(mean, in, 0).data) sum += one * one * one;
  return sum;
}
plains plain_layers(const plains& in) {
  plains out = value_and_slopes(layers_loss, in, 3);
  real along = 0;
  for (std::size_t n = 0; n < in[0].data.size(); ++n) along += out[1].data[n] * in[0].data[n];
  out.push_back(plain::number(along));
  out.push_back(slope(cube_of_slopes, in, 0));
  return out;
}

// --- what it saves
// --------------------------------------------------------------------------------------------------------

/// Eight layers, each of which makes something 16 times as large as what it passes on.
template <bool Again> struct wide_layers {
  constexpr auto operator()(auto x, auto w, auto v) const {
    const auto loss = [](auto y, auto in, auto out) {
      const auto layer = [](auto h, auto a, auto b) { return h + ep::matmul(ep::sin(ep::exp(ep::matmul(h, a))), b); };
      const auto again = ep::checkpoint(layer);
      const auto call = [&](auto h) {
        if constexpr (Again) {
          return again(h, in, out);
        } else {
          return layer(h, in, out);
        }
      };
      return ep::mean(call(call(call(call(call(call(call(call(y)))))))));
    };
    const auto [value, by] = ep::value_and_grad<1, 2>(loss)(x, w, v);
    return ep::results(value, by);
  }
};
template <bool Again>
using wide = ep::program<on<2, 1>::mesh, wide_layers<Again>, ep::sharded<ep::f32<512, 16>, on<2, 1>::data, ep::none>,
                         ep::f32<16, 256>, ep::f32<256, 16>>;
constexpr std::int64_t wide_bytes = 256 * 256 * 4;  // of a device
// Of each layer two of the large values, or of one of them.
static_assert(wide<false>::arena_bytes() > 8 * wide_bytes);
static_assert(wide<true>::arena_bytes() < 6 * wide_bytes);
// The product before the large values is made again, and nothing else of weight.
static_assert(wide<true>::flops() > wide<false>::flops());
static_assert(wide<true>::flops() < wide<false>::flops() * 3 / 2);
static_assert(wide<true>::collectives() == wide<false>::collectives());

}  // namespace

TEST_CASE("what flows back is what the user's function says") {
  const plains in{wave(1, {3, 5}), wave(2, {5, 7}), wave(3, {7})};
  everywhere<own_gradients_program>(gradient_meshes{}, in, plain_own(in));
}

TEST_CASE("a gradient that computes again what it needs is the same, in loops, along directions, and twice") {
  const plains in{wave(1, {5, 6}), wave(2, {3, 6, 6}), wave(3, {6, 6}), indices(4, {5}, 5)};
  const plains expected = plain_layers(in);
  everywhere<once_program>(meshes<on<2, 1>>{}, in, expected, 1e-6);
  everywhere<again_program>(gradient_meshes{}, in, expected, 1e-6);
}

TEST_CASE("layers that are computed again give what they give otherwise") {
  const plains in{wave(1, {512, 16}, 0.5), wave(2, {16, 256}, 0.25), wave(3, {256, 16}, 0.1)};
  gives<wide<true>>(in, run<wide<false>>(in), 1e-5);
}
