// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

void descend(plain& parameter, const plain& gradient, real rate) {
  for (std::size_t i = 0; i < parameter.data.size(); ++i) parameter.data[i] -= rate * gradient.data[i];
}

// --- logistic regression over data, written parameter by parameter --------------------------------------------------

template <class On> struct logistic {
  constexpr auto operator()(auto w, auto bias, auto x, auto y) const {
    const auto loss = [&](const auto& p) {
      const auto rows = ep::shard<typename On::data, ep::none>(x);
      const auto score = ep::einsum<"bi,i->b">(rows, p.template get<0>()) + p.template get<1>();
      const auto size = ep::maximum(score, -score);
      return ep::mean(ep::relu(score) - score * y + ep::log(1.0 + ep::exp(-size)));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, bias));
    const auto next_w = w - 0.5 * gradient.template get<0>();
    const auto next_bias = bias - 0.5 * gradient.template get<1>();
    return ep::results(next_w, next_bias, value);
  }
};
template <class On>
using logistic_program = ep::program<typename On::mesh, logistic<On>, ep::donated<ep::f64<5>>, ep::donated<ep::f64<>>,
                                     ep::f64<16, 5>, ep::f64<16>>;

real plain_logistic(const plains& in) {
  real total = 0;
  for (int b = 0; b < 16; ++b) {
    real score = in[1]();
    for (int i = 0; i < 5; ++i) score += in[2](b, i) * in[0](i);
    total += std::log(1 + std::exp(score)) - score * in[3](b);
  }
  return total / 16;
}

// --- three layers and plain SGD, written parameter by parameter -----------------------------------------------------

template <class On> struct three_layers {
  constexpr auto operator()(auto w1, auto b1, auto w2, auto b2, auto w3, auto b3, auto x, auto y) const {
    const auto loss = [&](const auto& p) {
      const auto first = ep::tanh(ep::matmul(x, p.template get<0>()) + p.template get<1>());
      const auto h = ep::shard<typename On::data, typename On::model>(first);
      const auto second = ep::tanh(ep::matmul(h, p.template get<2>()) + p.template get<3>());
      const auto error = ep::matmul(second, p.template get<4>()) + p.template get<5>() - y;
      return ep::mean(error * error);
    };
    const auto [value, g] = ep::value_and_grad(loss)(ep::results(w1, b1, w2, b2, w3, b3));
    w1 = w1 - 0.1 * g.template get<0>();
    b1 = b1 - 0.1 * g.template get<1>();
    w2 = w2 - 0.1 * g.template get<2>();
    b2 = b2 - 0.1 * g.template get<3>();
    w3 = w3 - 0.1 * g.template get<4>();
    b3 = b3 - 0.1 * g.template get<5>();
    return ep::results(w1, b1, w2, b2, w3, b3, value);
  }
};
template <class On>
using three_layers_program =
    ep::program<typename On::mesh, three_layers<On>, ep::donated<ep::f64<4, 8>>, ep::donated<ep::f64<8>>,
                ep::donated<ep::f64<8, 6>>, ep::donated<ep::f64<6>>, ep::donated<ep::f64<6, 2>>,
                ep::donated<ep::f64<2>>, ep::f64<8, 4>, ep::f64<8, 2>>;

real plain_three_layers(const plains& in) {
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    std::vector<real> layer;
    for (int i = 0; i < 4; ++i) layer.push_back(in[6](b, i));
    for (std::size_t l = 0; l < 3; ++l) {
      const plain& w = in[2 * l];
      std::vector<real> next;
      for (int o = 0; o < w.size(1); ++o) {
        real sum = in[2 * l + 1](o);
        for (int i = 0; i < w.size(0); ++i) sum += layer[static_cast<std::size_t>(i)] * w(i, o);
        next.push_back(l < 2 ? std::tanh(sum) : sum);
      }
      layer = next;
    }
    for (int o = 0; o < 2; ++o) {
      const real error = layer[static_cast<std::size_t>(o)] - in[7](b, o);
      total += error * error;
    }
  }
  return total / 16;
}

// --- a step of k-means ----------------------------------------------------------------------------------------------

template <class On> struct k_means {
  constexpr auto operator()(auto centres, auto points) const {
    const auto rows = ep::shard<typename On::data, ep::none>(points);
    const auto apart = ep::reshape<16, 1, 2>(rows) - ep::reshape<1, 3, 2>(centres);
    const auto distance = ep::sum<2>(apart * apart);
    const auto nearest = ep::min<1>(distance, ep::keep_dims);
    const auto member = ep::convert<ep::dtype::f64>(distance <= nearest);
    const auto count = ep::sum<0>(member);
    const auto total = ep::einsum<"nk,nd->kd">(member, rows);
    const auto next = total / ep::reshape<3, 1>(ep::maximum(count, 1.0));
    return ep::results(next, ep::sum(nearest), count);
  }
};
template <class On>
using k_means_program = ep::program<typename On::mesh, k_means<On>, ep::donated<ep::f64<3, 2>>, ep::f64<16, 2>>;

plains plain_k_means(const plain& centres, const plain& points) {
  plain next({3, 2}), count({3});
  real spread = 0;
  for (int n = 0; n < 16; ++n) {
    int best = 0;
    real least = 1e9L;
    for (int k = 0; k < 3; ++k) {
      real distance = 0;
      for (int d = 0; d < 2; ++d) distance += (points(n, d) - centres(k, d)) * (points(n, d) - centres(k, d));
      if (distance < least) {
        least = distance;
        best = k;
      }
    }
    spread += least;
    count(best) += 1;
    for (int d = 0; d < 2; ++d) next(best, d) += points(n, d);
  }
  for (int k = 0; k < 3; ++k) {
    for (int d = 0; d < 2; ++d) next(k, d) /= std::max(count(k), 1.0L);
  }
  return {next, plain::number(spread), count};
}

// --- a GRU: gradients of weights whose gates are sliced inside the loop ---------------------------------------------

template <class On> struct gru {
  constexpr auto operator()(auto input, auto recurrent, auto bias, auto xs) const {
    const auto loss = [&](const auto& p) {
      const auto& w = p.template get<0>();
      const auto& u = p.template get<1>();
      const auto& b = p.template get<2>();
      const auto cell = [&](auto h, auto x) {
        x = ep::shard<typename On::data, ep::none>(x);
        const auto from_x = ep::matmul(x, w) + b;
        const auto reset = ep::sigmoid(ep::slice<1, 0, 4>(from_x) + ep::matmul(h, ep::slice<1, 0, 4>(u)));
        const auto update = ep::sigmoid(ep::slice<1, 4, 8>(from_x) + ep::matmul(h, ep::slice<1, 4, 8>(u)));
        const auto fresh = ep::tanh(ep::slice<1, 8, 12>(from_x) + ep::matmul(reset * h, ep::slice<1, 8, 12>(u)));
        return update * h + (1.0 - update) * fresh;
      };
      const auto start = ep::constant<ep::f64<8, 4>>(xs, 0.0);
      const auto last = ep::scan(cell, start, xs);
      return ep::mean(last * last);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(input, recurrent, bias));
    return ep::results(value, gradient);
  }
};
template <class On>
using gru_program =
    ep::program<typename On::mesh, gru<On>, ep::f64<3, 12>, ep::f64<4, 12>, ep::f64<12>, ep::f64<5, 8, 3>>;

real plain_sigmoid(real a) { return 1 / (1 + std::exp(-a)); }
real plain_gru(const plains& in) {
  const plain &w = in[0], &u = in[1], &bias = in[2], &xs = in[3];
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    plain h({4});
    for (int t = 0; t < 5; ++t) {
      plain next({4}), reset({4});
      const auto from_x = [&](int j) {
        real sum = bias(j);
        for (int i = 0; i < 3; ++i) sum += xs(t, b, i) * w(i, j);
        return sum;
      };
      for (int j = 0; j < 4; ++j) {
        real sum = from_x(j);
        for (int i = 0; i < 4; ++i) sum += h(i) * u(i, j);
        reset(j) = plain_sigmoid(sum);
      }
      for (int j = 0; j < 4; ++j) {
        real update = from_x(4 + j), fresh = from_x(8 + j);
        for (int i = 0; i < 4; ++i) {
          update += h(i) * u(i, 4 + j);
          fresh += reset(i) * h(i) * u(i, 8 + j);
        }
        update = plain_sigmoid(update);
        next(j) = update * h(j) + (1 - update) * std::tanh(fresh);
      }
      h = next;
    }
    for (int j = 0; j < 4; ++j) total += h(j) * h(j) / 32;
  }
  return total;
}

}  // namespace

TEST_CASE("kinds: logistic regression, three steps in place", "[kinds]") {
  plains in{wave(1, {5}), plain::number(0.25L), wave(2, {16, 5}, 2), indices(3, {16}, 2)};
  const plains start = in;
  real value = 0;
  for (int step = 0; step < 3; ++step) {
    value = plain_logistic(in);
    const plain by_w = slope(plain_logistic, in, 0);
    const plain by_bias = slope(plain_logistic, in, 1);
    descend(in[0], by_w, 0.5L);
    descend(in[1], by_bias, 0.5L);
  }
  everywhere<logistic_program>(data_axis{}, start, {in[0], in[1], plain::number(value)}, 1e-9, 3);
}

TEST_CASE("kinds: logistic regression over data sends once", "[kinds]") {
  CHECK(logistic_program<on<8, 1>>::collectives<ep::all_reduce>() == 1);
  CHECK(logistic_program<on<8, 1>>::collectives() == 1);
}

TEST_CASE("kinds: three layers under SGD, two steps in place", "[kinds]") {
  plains in{wave(1, {4, 8}), wave(2, {8}), wave(3, {8, 6}), wave(4, {6}),
            wave(5, {6, 2}), wave(6, {2}), wave(7, {8, 4}), wave(8, {8, 2})};
  const plains start = in;
  real value = 0;
  for (int step = 0; step < 2; ++step) {
    value = plain_three_layers(in);
    plains by;
    for (std::size_t leaf = 0; leaf < 6; ++leaf) by.push_back(slope(plain_three_layers, in, leaf));
    for (std::size_t leaf = 0; leaf < 6; ++leaf) descend(in[leaf], by[leaf], 0.1L);
  }
  plains out(in.begin(), in.begin() + 6);
  out.push_back(plain::number(value));
  everywhere<three_layers_program>(both_ways{}, start, out, 1e-9, 2);
}

TEST_CASE("kinds: three layers send the split layer's sum and all gradients", "[kinds]") {
  CHECK(three_layers_program<on<2, 2>>::collectives<ep::all_reduce>() == 2);
  CHECK(three_layers_program<on<2, 2>>::collectives() == 2);
}

TEST_CASE("kinds: k-means, four steps in place", "[kinds]") {
  const plains in{wave(1, {3, 2}), wave(2, {16, 2})};
  plains out{in[0]};
  for (int step = 0; step < 4; ++step) out = plain_k_means(out[0], in[1]);
  everywhere<k_means_program>(data_axis{}, in, out, 1e-9, 4);
}

TEST_CASE("kinds: a step of k-means sends once", "[kinds]") {
  CHECK(k_means_program<on<4, 1>>::collectives<ep::all_reduce>() == 1);
  CHECK(k_means_program<on<4, 1>>::collectives() == 1);
}

TEST_CASE("kinds: a GRU and its gradients", "[kinds]") {
  const plains in{wave(1, {3, 12}), wave(2, {4, 12}), wave(3, {12}), wave(4, {5, 8, 3})};
  plains out{plain::number(plain_gru(in))};
  for (std::size_t leaf = 0; leaf < 3; ++leaf) out.push_back(slope(plain_gru, in, leaf));
  everywhere<gru_program>(data_axis{}, in, out);
}

TEST_CASE("kinds: a GRU's gradients are summed once, not in every step", "[kinds]") {
  CHECK(gru_program<on<2, 1>>::collectives<ep::all_reduce>() <= 2);
  CHECK(gru_program<on<2, 1>>::collectives() <= 2);
}
