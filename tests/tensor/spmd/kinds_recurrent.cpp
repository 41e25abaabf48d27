// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- an LSTM: a carry of two parts, its gradients, and what it says on the way --------------------------------------

template <class Leaf> struct lstm_weights {
  BOOST_HANA_DEFINE_STRUCT(lstm_weights, (ep::leaf<Leaf, ep::f64<3, 16>>, input),
                           (ep::leaf<Leaf, ep::f64<4, 16>>, recurrent), (ep::leaf<Leaf, ep::f64<16>>, bias));
};
template <class On, bool Tells> struct lstm {
  struct loss {
    constexpr auto operator()(const auto& weights, auto xs) const {
      const auto cell = [&](const auto& state, auto x) {
        const auto h = ep::shard<typename On::data, ep::none>(state.template get<0>());
        const auto gates = ep::matmul(x, weights.input) + ep::matmul(h, weights.recurrent) + weights.bias;
        const auto keep = ep::sigmoid(ep::slice<1, 0, 4>(gates) + 1.0);
        const auto write = ep::sigmoid(ep::slice<1, 4, 8>(gates));
        const auto show = ep::sigmoid(ep::slice<1, 8, 12>(gates));
        const auto c = keep * state.template get<1>() + write * ep::tanh(ep::slice<1, 12, 16>(gates));
        const auto next = show * ep::tanh(c);
        if constexpr (Tells) {
          return ep::results(ep::results(next, c), next);
        } else {
          return ep::results(next, c);
        }
      };
      const auto nothing = ep::constant<ep::f64<8, 4>>(xs, 0.0);
      const auto last = ep::scan(cell, ep::results(nothing, nothing), xs);
      if constexpr (Tells) {
        const auto& hs = last.template get<1>();
        return ep::mean(hs * hs) + ep::mean(last.template get<0>().template get<1>());
      } else {
        return ep::mean(last.template get<0>() * last.template get<1>());
      }
    }
  };
  constexpr auto operator()(const auto& weights, auto xs) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(weights, xs);
    return ep::results(value, gradient);
  }
};
template <class On>
using lstm_program = ep::program<typename On::mesh, lstm<On, false>, lstm_weights<ep::spec>, ep::f64<5, 8, 3>>;
template <class On>
using telling_lstm_program = ep::program<typename On::mesh, lstm<On, true>, lstm_weights<ep::spec>, ep::f64<5, 8, 3>>;

real plain_sigmoid(real a) { return 1 / (1 + std::exp(-a)); }
template <bool Tells> real plain_lstm(const plains& in) {
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    plain h({4}), c({4});
    for (int t = 0; t < 5; ++t) {
      plain gates = in[2];
      for (int g = 0; g < 16; ++g) {
        for (int i = 0; i < 3; ++i) gates(g) += in[3](t, b, i) * in[0](i, g);
        for (int i = 0; i < 4; ++i) gates(g) += h(i) * in[1](i, g);
      }
      for (int j = 0; j < 4; ++j) {
        c(j) = plain_sigmoid(gates(j) + 1) * c(j) + plain_sigmoid(gates(4 + j)) * std::tanh(gates(12 + j));
        h(j) = plain_sigmoid(gates(8 + j)) * std::tanh(c(j));
        if (Tells) total += h(j) * h(j) / 160;
      }
    }
    for (int j = 0; j < 4; ++j) total += (Tells ? c(j) : h(j) * c(j)) / 32;
  }
  return total;
}

// --- carries that hand on what they were: a wave, a delay line, a swap ----------------------------------------------

template <class On> struct wave_equation {
  constexpr auto operator()(auto start, auto speed) const {
    const auto loss = [&](const auto& p) {
      const auto step = [&](const auto& state) {
        const auto u = ep::shard<typename On::data, typename On::model>(state.template get<0>());
        const auto left = ep::concat<1>(ep::slice<1, 9, 10>(u), ep::slice<1, 0, 9>(u));
        const auto right = ep::concat<1>(ep::slice<1, 1, 10>(u), ep::slice<1, 0, 1>(u));
        const auto next = 2.0 * u - state.template get<1>() + p.template get<1>() * (left - 2.0 * u + right);
        return ep::results(next, u);
      };
      const auto& u = p.template get<0>();
      const auto last = ep::repeat<6>(step, ep::results(u, 0.9 * u));
      return ep::mean(last.template get<0>() * last.template get<0>()) + ep::mean(last.template get<1>());
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(start, speed));
    return ep::results(value, gradient);
  }
};
template <class On> using wave_program = ep::program<typename On::mesh, wave_equation<On>, ep::f64<4, 10>, ep::f64<>>;

real plain_wave(const plains& in) {
  plain u = in[0], before = in[0];
  for (real& one : before.data) one *= 0.9L;
  for (int t = 0; t < 6; ++t) {
    plain next = u;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < 10; ++i) {
        next(r, i) = 2 * u(r, i) - before(r, i) + in[1]() * (u(r, (i + 9) % 10) - 2 * u(r, i) + u(r, (i + 1) % 10));
      }
    }
    before = u;
    u = next;
  }
  real total = 0;
  for (std::size_t i = 0; i < 40; ++i) total += (u.data[i] * u.data[i] + before.data[i]) / 40;
  return total;
}

template <class On> struct delay_line {
  constexpr auto operator()(auto a, auto b, auto c, auto inputs) const {
    const auto step = [](const auto& line, auto x) {
      const auto& first = line.template get<0>();
      const auto& second = line.template get<1>();
      const auto& third = line.template get<2>();
      const auto fresh = ep::shard<typename On::data>(x + 0.5 * first - 0.25 * third);
      return ep::results(ep::results(fresh, first, second), second * third);
    };
    const auto swap = [](const auto& pair) { return ep::results(pair.template get<1>(), pair.template get<0>()); };
    const auto count = [](auto sum, auto number) {
      return sum * 0.5 + ep::convert<ep::dtype::f64>(number * number) * c_of(sum);
    };
    return ep::results(ep::scan(step, ep::results(a, b, c), inputs), ep::repeat<3>(swap, ep::results(a, b)),
                       ep::repeat<4>(count, c));
  }
  static constexpr auto c_of(const auto& sum) { return ep::tanh(sum); }
};
template <class On>
using delay_program = ep::program<typename On::mesh, delay_line<On>, ep::f64<6>, ep::f64<6>, ep::f64<6>, ep::f64<7, 6>>;

plains plain_delay(const plains& in) {
  plain a = in[0], b = in[1], c = in[2], out({7, 6}), counted = in[2];
  for (int t = 0; t < 7; ++t) {
    for (int i = 0; i < 6; ++i) {
      out(t, i) = b(i) * c(i);
      const real fresh = in[3](t, i) + 0.5L * a(i) - 0.25L * c(i);
      c(i) = b(i);
      b(i) = a(i);
      a(i) = fresh;
    }
  }
  for (int n = 0; n < 4; ++n) {
    for (real& one : counted.data) one = one * 0.5L + static_cast<real>(n * n) * std::tanh(one);
  }
  return {a, b, c, out, in[1], in[0], counted};
}

// --- conjugate gradients as a loop, and their gradient by the matrix ------------------------------------------------

template <class On> struct conjugate_loop {
  constexpr auto operator()(auto a, auto b) const {
    const auto loss = [&](auto matrix) {
      const auto step = [&](const auto& state) {
        const auto& r = state.template get<1>();
        const auto& p = state.template get<2>();
        const auto ap = ep::einsum<"ij,j->i">(ep::shard<typename On::data, typename On::model>(matrix), p);
        const auto square = ep::sum(r * r);
        const auto alpha = square / ep::sum(p * ap);
        const auto rest = r - alpha * ap;
        return ep::results(state.template get<0>() + alpha * p, rest, rest + (ep::sum(rest * rest) / square) * p);
      };
      const auto solved = ep::repeat<4>(step, ep::results(0.0 * b, b, b));
      return ep::mean(solved.template get<0>() * solved.template get<0>());
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(a);
    return ep::results(value, gradient);
  }
};
template <class On>
using conjugate_program = ep::program<typename On::mesh, conjugate_loop<On>, ep::f64<6, 6>, ep::f64<6>>;

real plain_conjugate(const plains& in) {
  std::vector<real> x(6), r(in[1].data), p(r);
  const auto dot = [](const std::vector<real>& v, const std::vector<real>& w) {
    real sum = 0;
    for (std::size_t i = 0; i < v.size(); ++i) sum += v[i] * w[i];
    return sum;
  };
  for (int step = 0; step < 4; ++step) {
    std::vector<real> ap(6);
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::size_t j = 0; j < 6; ++j) ap[i] += in[0].data[6 * i + j] * p[j];
    }
    const real square = dot(r, r);
    const real alpha = square / dot(p, ap);
    for (std::size_t i = 0; i < 6; ++i) {
      x[i] += alpha * p[i];
      r[i] -= alpha * ap[i];
    }
    const real beta = dot(r, r) / square;
    for (std::size_t i = 0; i < 6; ++i) p[i] = r[i] + beta * p[i];
  }
  return dot(x, x) / 6;
}

// --- linear attention with a state of two parts, and its gradients --------------------------------------------------

template <class On> struct linear_attention {
  constexpr auto operator()(auto wq, auto wk, auto wv, auto xs) const {
    const auto loss = [&](const auto& w) {
      const auto step = [&](const auto& state, auto x) {
        x = ep::shard<typename On::data, ep::none>(x);
        const auto q = ep::exp(ep::einsum<"bi,ihd->bhd">(x, w.template get<0>()));
        const auto k = ep::exp(ep::einsum<"bi,ihd->bhd">(x, w.template get<1>()));
        auto v = ep::einsum<"bi,ihe->bhe">(x, w.template get<2>());
        v = ep::shard<typename On::data, typename On::model, ep::none>(v);
        const auto sums = state.template get<0>() + ep::einsum<"bhd,bhe->bhde">(k, v);
        const auto total = state.template get<1>() + k;
        const auto y = ep::einsum<"bhd,bhde->bhe">(q, sums) / ep::reshape<4, 2, 1>(ep::einsum<"bhd,bhd->bh">(q, total));
        return ep::results(ep::results(sums, total), y);
      };
      const auto start =
          ep::results(ep::constant<ep::f64<4, 2, 2, 2>>(xs, 0.0), ep::constant<ep::f64<4, 2, 2>>(xs, 0.0));
      const auto ys = ep::scan(step, start, xs).template get<1>();
      return ep::mean(ys * ys);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(wq, wk, wv));
    return ep::results(value, gradient);
  }
};
template <class On>
using linear_program = ep::program<typename On::mesh, linear_attention<On>, ep::f64<3, 2, 2>, ep::f64<3, 2, 2>,
                                   ep::f64<3, 2, 2>, ep::f64<5, 4, 3>>;

real plain_linear(const plains& in) {
  real total = 0;
  for (int b = 0; b < 4; ++b) {
    for (int h = 0; h < 2; ++h) {
      plain sums({2, 2}), below({2});
      for (int t = 0; t < 5; ++t) {
        const auto project = [&](const plain& w, int d) {
          real sum = 0;
          for (int i = 0; i < 3; ++i) sum += in[3](t, b, i) * w(i, h, d);
          return sum;
        };
        real under = 0;
        for (int d = 0; d < 2; ++d) {
          const real k = std::exp(project(in[1], d));
          below(d) += k;
          for (int e = 0; e < 2; ++e) sums(d, e) += k * project(in[2], e);
          under += std::exp(project(in[0], d)) * below(d);
        }
        for (int e = 0; e < 2; ++e) {
          const real y = (std::exp(project(in[0], 0)) * sums(0, e) + std::exp(project(in[0], 1)) * sums(1, e)) / under;
          total += y * y / 80;
        }
      }
    }
  }
  return total;
}

// --- whole numbers and booleans -------------------------------------------------------------------------------------

template <class On> struct whole_numbers {
  constexpr auto operator()(auto a, auto b, auto flags) const {
    const auto rows = ep::shard<typename On::data, typename On::model>(a);
    const auto step = [&](auto sum, auto row) {
      return ep::results(sum * 3 - row, ep::maximum(row, ep::slice<0, 0, 5>(b)));
    };
    const auto run = ep::scan(step, b, rows);
    return ep::results(-rows, run, ep::sum<0>(rows * rows - b), ep::max<1>(rows), ep::min(rows),
                       ep::sum<0>(ep::convert<ep::dtype::i32>(ep::shard<typename On::data, ep::none>(flags))));
  }
};
template <class On>
using whole_program = ep::program<typename On::mesh, whole_numbers<On>, ep::i32<6, 5>, ep::i32<5>, ep::boolean<8, 3>>;

}  // namespace

TEST_CASE("kinds: an LSTM and its gradients", "[kinds]") {
  const plains in{wave(1, {3, 16}), wave(2, {4, 16}), wave(3, {16}), wave(4, {5, 8, 3})};
  everywhere<lstm_program>(data_axis{}, in, value_and_slopes(plain_lstm<false>, in, 3));
  everywhere<telling_lstm_program>(few_or_all<meshes<on<4, 1>>, meshes<on<1, 1>, on<4, 1>>>{}, in,
                                   value_and_slopes(plain_lstm<true>, in, 3));
}

TEST_CASE("kinds: a wave, which needs its last two states, and its gradients", "[kinds]") {
  const plains in{wave(1, {4, 10}), plain::number(0.3L)};
  everywhere<wave_program>(both_ways{}, in, value_and_slopes(plain_wave, in, 2));
}

TEST_CASE("kinds: a delay line, a swap, and a loop that knows its step", "[kinds]") {
  const plains in{wave(1, {6}), wave(2, {6}), wave(3, {6}), wave(4, {7, 6})};
  everywhere<delay_program>(data_axis{}, in, plain_delay(in));
}

TEST_CASE("kinds: conjugate gradients as a loop, and their gradient", "[kinds]") {
  const plain root = wave(1, {6, 6});
  plains in{plain({6, 6}), wave(2, {6})};
  for (int i = 0; i < 6; ++i) {
    in[0](i, i) = 2;
    for (int j = 0; j < 6; ++j) {
      for (int k = 0; k < 6; ++k) in[0](i, j) += root(i, k) * root(j, k);
    }
  }
  everywhere<conjugate_program>(both_axes{}, in, value_and_slopes(plain_conjugate, in, 1), 1e-8);
}

TEST_CASE("kinds: linear attention's gradients", "[kinds]") {
  const plains in{wave(1, {3, 2, 2}), wave(2, {3, 2, 2}), wave(3, {3, 2, 2}), wave(4, {5, 4, 3})};
  everywhere<linear_program>(both_ways{}, in, value_and_slopes(plain_linear, in, 3));
}

TEST_CASE("kinds: whole numbers", "[kinds]") {
  plains in{indices(1, {6, 5}, 40), indices(2, {5}, 9), indices(3, {8, 3}, 2)};
  for (real& one : in[0].data) one -= 20;
  plain negative = in[0], sum = in[1], larger = in[0], columns({5}), most({6}, -99), counts({3});
  real least = 99;
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 5; ++j) {
      const real a = in[0](i, j);
      negative(i, j) = -a;
      sum(j) = sum(j) * 3 - a;
      larger(i, j) = std::max(a, in[1](j));
      columns(j) += a * a - in[1](j);
      most(i) = std::max(most(i), a);
      least = std::min(least, a);
    }
  }
  for (int i = 0; i < 24; ++i) counts(i % 3) += in[2].data[static_cast<std::size_t>(i)];
  everywhere<whole_program>(both_axes{}, in, {negative, sum, larger, columns, most, plain::number(least), counts}, 0);
}
