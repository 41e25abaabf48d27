// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- an MLP, tensor-parallel: loss and the gradient of a tree of parameters -----------------------------------------

template <class Leaf> struct dense_pair {
  BOOST_HANA_DEFINE_STRUCT(dense_pair, (ep::leaf<Leaf, ep::f64<6, 8>>, up), (ep::leaf<Leaf, ep::f64<8>>, up_bias),
                           (ep::leaf<Leaf, ep::f64<8, 5>>, down), (ep::leaf<Leaf, ep::f64<5>>, down_bias));
};
template <class On> struct mlp {
  struct loss {
    constexpr auto operator()(const auto& p, auto x, auto target) const {
      auto h = ep::einsum<"bi,ih->bh">(x, p.up) + p.up_bias;
      h = ep::gelu(ep::shard<typename On::data, typename On::model>(h));
      const auto y = ep::einsum<"bh,ho->bo">(h, p.down) + p.down_bias;
      const auto error = y - target;
      return ep::mean(error * error);
    }
  };
  constexpr auto operator()(const auto& p, auto x, auto target) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(p, x, target);
    return ep::results(value, gradient);
  }
};
template <class On>
using mlp_program = ep::program<typename On::mesh, mlp<On>, dense_pair<ep::spec>, ep::f64<8, 6>, ep::f64<8, 5>>;
// The collectives of the split hidden layer; all gradients and the loss.
static_assert(mlp_program<on<2, 2>>::collectives<ep::all_reduce, on<2, 2>::model>() == 1);
static_assert(mlp_program<on<2, 2>>::collectives<ep::all_reduce, on<2, 2>::data>() == 1);
static_assert(mlp_program<on<2, 2>>::collectives() == 2);

real plain_gelu(real a) { return 0.5L * a * (1 + std::tanh(0.79788456080286535588L * (a + 0.044715L * a * a * a))); }
real plain_mlp(const plains& in) {
  const plain &up = in[0], &up_bias = in[1], &down = in[2], &down_bias = in[3], &x = in[4], &target = in[5];
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    plain h({8});
    for (int j = 0; j < 8; ++j) {
      real sum = up_bias(j);
      for (int i = 0; i < 6; ++i) sum += x(b, i) * up(i, j);
      h(j) = plain_gelu(sum);
    }
    for (int o = 0; o < 5; ++o) {
      real y = down_bias(o);
      for (int j = 0; j < 8; ++j) y += h(j) * down(j, o);
      total += (y - target(b, o)) * (y - target(b, o));
    }
  }
  return total / 40;
}

// --- matrix factorisation: of what was observed, by gradient descent in place ---------------------------------------

template <class On> struct factorisation {
  constexpr auto operator()(auto rows, auto columns, auto ratings, auto observed) const {
    const auto loss = [&](const auto& factors) {
      const auto u = ep::shard<typename On::data, ep::none>(factors.template get<0>());
      const auto v = ep::shard<typename On::model, ep::none>(factors.template get<1>());
      const auto error = ep::einsum<"uk,vk->uv">(u, v) - ratings;
      return ep::sum(ep::select(observed, error * error, 0.0)) + 0.05 * ep::sum(u * u) + 0.05 * ep::sum(v * v);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(rows, columns));
    return ep::results(rows - 0.1 * gradient.template get<0>(), columns - 0.1 * gradient.template get<1>(), value);
  }
};
template <class On>
using factorisation_program = ep::program<typename On::mesh, factorisation<On>, ep::donated<ep::f64<8, 3>>,
                                          ep::donated<ep::f64<6, 3>>, ep::f64<8, 6>, ep::boolean<8, 6>>;

real plain_factorisation(const plains& in) {
  real total = 0;
  for (int u = 0; u < 8; ++u) {
    for (int v = 0; v < 6; ++v) {
      real error = -in[2](u, v);
      for (int k = 0; k < 3; ++k) error += in[0](u, k) * in[1](v, k);
      if (in[3](u, v) != 0) total += error * error;
    }
  }
  for (const real one : in[0].data) total += 0.05L * one * one;
  for (const real one : in[1].data) total += 0.05L * one * one;
  return total;
}

// --- SwiGLU after an RMS norm ---------------------------------------------------------------------------------------

template <class On> struct swiglu {
  constexpr auto operator()(auto gate, auto up, auto down, auto gain, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto normal = ep::nn::rms_norm(ep::shard<typename On::data, ep::none, ep::none>(x), p.template get<3>());
      auto g = ep::silu(ep::einsum<"bsi,ih->bsh">(normal, p.template get<0>()));
      g = ep::shard<typename On::data, ep::none, typename On::model>(g);
      const auto h = g * ep::einsum<"bsi,ih->bsh">(normal, p.template get<1>());
      const auto y = x + ep::einsum<"bsh,hi->bsi">(h, p.template get<2>());
      return ep::mean(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(gate, up, down, gain));
    return ep::results(value, gradient);
  }
};
template <class On>
using swiglu_program = ep::program<typename On::mesh, swiglu<On>, ep::f64<4, 8>, ep::f64<4, 8>, ep::f64<8, 4>,
                                   ep::f64<4>, ep::f64<4, 3, 4>>;
// The collectives of the split hidden layer, the gain's gradient, and one for all weights and the loss.
static_assert(swiglu_program<on<2, 2>>::collectives<ep::all_reduce>() == 3);
static_assert(swiglu_program<on<2, 2>>::collectives() == 3);

real plain_swiglu(const plains& in) {
  const plain &gate = in[0], &up = in[1], &down = in[2], &gain = in[3], &x = in[4];
  real total = 0;
  for (int b = 0; b < 4; ++b) {
    for (int s = 0; s < 3; ++s) {
      real square = 0;
      for (int i = 0; i < 4; ++i) square += x(b, s, i) * x(b, s, i) / 4;
      plain y({4});
      for (int i = 0; i < 4; ++i) y(i) = x(b, s, i);
      for (int h = 0; h < 8; ++h) {
        real g = 0, u = 0;
        for (int i = 0; i < 4; ++i) {
          const real normal = x(b, s, i) / std::sqrt(square + 1e-5L) * gain(i);
          g += normal * gate(i, h);
          u += normal * up(i, h);
        }
        for (int i = 0; i < 4; ++i) y(i) += g / (1 + std::exp(-g)) * u * down(h, i);
      }
      for (int i = 0; i < 4; ++i) total += y(i) * y(i) / 48;
    }
  }
  return total;
}

// --- an autoencoder whose decoder is its encoder turned round -------------------------------------------------------

template <class On> struct tied_autoencoder {
  constexpr auto operator()(auto w, auto bias, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto& weight = p.template get<0>();
      auto code = ep::tanh(ep::matmul(x, weight) + p.template get<1>());
      code = ep::shard<typename On::data, typename On::model>(code);
      const auto back = ep::matmul(code, ep::transpose<1, 0>(weight));
      return ep::mean((back - x) * (back - x));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, bias));
    return ep::results(value, w - gradient.template get<0>(), bias - gradient.template get<1>());
  }
};
template <class On>
using tied_program = ep::program<typename On::mesh, tied_autoencoder<On>, ep::f64<6, 4>, ep::f64<4>, ep::f64<8, 6>>;

real plain_tied(const plains& in) {
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    plain back({6});
    for (int c = 0; c < 4; ++c) {
      real code = in[1](c);
      for (int i = 0; i < 6; ++i) code += in[2](b, i) * in[0](i, c);
      for (int i = 0; i < 6; ++i) back(i) += std::tanh(code) * in[0](i, c);
    }
    for (int i = 0; i < 6; ++i) total += (back(i) - in[2](b, i)) * (back(i) - in[2](b, i)) / 48;
  }
  return total;
}

// --- Huber's loss of a clamped line ---------------------------------------------------------------------------------

template <class On> struct huber {
  constexpr auto operator()(auto w, auto x, auto y) const {
    const auto loss = [&](auto weight) {
      const auto line = ep::einsum<"bi,i->b">(ep::shard<typename On::data, typename On::model>(x), weight);
      const auto clamped = ep::minimum(ep::maximum(line, -0.8), 0.9);
      const auto error = clamped - y;
      const auto size = ep::maximum(error, -error);
      return ep::mean(ep::select(size <= 0.5, 0.5 * error * error, 0.5 * (size - 0.25)));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w);
    return ep::results(value, gradient);
  }
};
template <class On>
using huber_program = ep::program<typename On::mesh, huber<On>, ep::f64<4>, ep::f64<16, 4>, ep::f64<16>>;
static_assert(huber_program<on<2, 2>>::collectives<ep::all_reduce>() == 2);
static_assert(huber_program<on<2, 2>>::collectives() == 2);

real plain_huber(const plains& in) {
  real total = 0;
  for (int b = 0; b < 16; ++b) {
    real line = 0;
    for (int i = 0; i < 4; ++i) line += in[1](b, i) * in[0](i);
    const real size = std::abs(std::min(std::max(line, -0.8L), 0.9L) - in[2](b));
    total += size <= 0.5L ? 0.5L * size * size : 0.5L * (size - 0.25L);
  }
  return total / 16;
}

// --- cross entropy over a split vocabulary --------------------------------------------------------------------------

template <class On> struct vocabulary {
  constexpr auto operator()(auto embedding, auto head, auto tokens, auto targets) const {
    const auto loss = [&](const auto& p) {
      const auto x = ep::gather<0>(p.template get<0>(), tokens);
      auto logits = ep::einsum<"bsw,wv->bsv">(x, p.template get<1>());
      logits = ep::shard<typename On::data, ep::none, typename On::model>(logits);
      return ep::nn::cross_entropy(30.0 * logits, targets);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(embedding, head));
    return ep::results(value, gradient);
  }
};
template <class On>
using vocabulary_program =
    ep::program<typename On::mesh, vocabulary<On>, ep::f64<11, 3>, ep::f64<3, 11>, ep::i32<4, 3>, ep::i32<4, 3>>;
// The logits are never whole: the highest, the sum and the target's of each row, and the gradient that goes back.
static_assert(vocabulary_program<on<1, 2>>::collectives() ==
              vocabulary_program<on<1, 2>>::collectives<ep::all_reduce>());
static_assert(vocabulary_program<on<1, 2>>::collectives<ep::all_reduce>() <= 4);

real plain_vocabulary(const plains& in) {
  real total = 0;
  for (int b = 0; b < 4; ++b) {
    for (int s = 0; s < 3; ++s) {
      plain logits({11});
      real sum = 0;
      for (int v = 0; v < 11; ++v) {
        for (int w = 0; w < 3; ++w) logits(v) += 30 * in[0](static_cast<int>(in[2](b, s)), w) * in[1](w, v);
        sum += std::exp(logits(v));
      }
      total += std::log(sum) - logits(static_cast<int>(in[3](b, s)));
    }
  }
  return total / 12;
}

}  // namespace

TEST_CASE("kinds: an MLP with a split hidden layer and its gradients", "[kinds]") {
  const plains in{wave(1, {6, 8}), wave(2, {8}), wave(3, {8, 5}), wave(4, {5}), wave(5, {8, 6}), wave(6, {8, 5})};
  plains out{plain::number(plain_mlp(in))};
  for (std::size_t leaf = 0; leaf < 4; ++leaf) out.push_back(slope(plain_mlp, in, leaf));
  everywhere<mlp_program>(both_axes{}, in, out);
}

TEST_CASE("kinds: factorisation of a partly observed matrix, three steps in place", "[kinds]") {
  const plains in{wave(1, {8, 3}), wave(2, {6, 3}), wave(3, {8, 6}), indices(4, {8, 6}, 2)};
  plains now = in;
  real value = 0;
  for (int step = 0; step < 3; ++step) {
    value = plain_factorisation(now);
    const plain by_rows = slope(plain_factorisation, now, 0);
    const plain by_columns = slope(plain_factorisation, now, 1);
    for (std::size_t i = 0; i < by_rows.data.size(); ++i) now[0].data[i] -= 0.1L * by_rows.data[i];
    for (std::size_t i = 0; i < by_columns.data.size(); ++i) now[1].data[i] -= 0.1L * by_columns.data[i];
  }
  everywhere<factorisation_program>(both_ways{}, in, {now[0], now[1], plain::number(value)}, 1e-9, 3);
}

TEST_CASE("kinds: SwiGLU behind an RMS norm", "[kinds]") {
  const plains in{wave(1, {4, 8}), wave(2, {4, 8}), wave(3, {8, 4}), wave(4, {4}), wave(5, {4, 3, 4})};
  plains out{plain::number(plain_swiglu(in))};
  for (std::size_t leaf = 0; leaf < 4; ++leaf) out.push_back(slope(plain_swiglu, in, leaf));
  everywhere<swiglu_program>(both_axes{}, in, out);
}

TEST_CASE("kinds: an autoencoder with one weight for both ways", "[kinds]") {
  const plains in{wave(1, {6, 4}), wave(2, {4}), wave(3, {8, 6})};
  plains out{plain::number(plain_tied(in)), in[0], in[1]};
  for (std::size_t leaf = 0; leaf < 2; ++leaf) {
    const plain by = slope(plain_tied, in, leaf);
    for (std::size_t i = 0; i < by.data.size(); ++i) out[leaf + 1].data[i] -= by.data[i];
  }
  everywhere<tied_program>(both_ways{}, in, out);
}

TEST_CASE("kinds: Huber's loss and a clamp", "[kinds]") {
  const plains in{wave(1, {4}), wave(2, {16, 4}), wave(3, {16})};
  everywhere<huber_program>(both_axes{}, in, {plain::number(plain_huber(in)), slope(plain_huber, in, 0)});
}

TEST_CASE("kinds: cross entropy over a split vocabulary", "[kinds]") {
  const plains in{wave(1, {11, 3}), wave(2, {3, 11}), indices(3, {4, 3}, 11), indices(4, {4, 3}, 11)};
  plains out{plain::number(plain_vocabulary(in))};
  for (std::size_t leaf = 0; leaf < 2; ++leaf) out.push_back(slope(plain_vocabulary, in, leaf));
  everywhere<vocabulary_program>(both_axes{}, in, out);
}
