// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- conjugate gradients for three right-hand sides -----------------------------------------------------------------

template <class On> struct conjugate_gradients {
  constexpr auto operator()(auto a, auto b) const {
    const auto matrix = ep::shard<typename On::data, typename On::model>(a);
    auto x = ep::constant<ep::f64<8, 3>>(b, 0.0);
    auto r = b;
    auto p = b;
    auto square = ep::sum<0>(r * r);
    for (int step = 0; step < 5; ++step) {
      const auto ap = ep::matmul(matrix, p);
      const auto alpha = square / ep::sum<0>(p * ap);
      x = x + alpha * p;
      r = r - alpha * ap;
      const auto next = ep::sum<0>(r * r);
      p = r + (next / square) * p;
      square = next;
    }
    return ep::results(x, ep::sqrt(square));
  }
};
template <class On>
using conjugate_program = ep::program<typename On::mesh, conjugate_gradients<On>, ep::f64<8, 8>, ep::f64<8, 3>>;

// --- heat in a rod: explicit steps with a source, time as a loop; and its gradient by the conductivity --------------

template <class On> struct heat {
  static constexpr auto laplacian(const auto& u) {  // the ends are kept at 0
    const auto edge = ep::constant<ep::f64<4, 1>>(u, 0.0);
    const auto wide = ep::concat<1>(edge, u, edge);
    return ep::slice<1, 0, 12>(wide) - 2.0 * u + ep::slice<1, 2, 14>(wide);
  }
  constexpr auto operator()(auto start, auto conductivity, auto source) const {
    const auto loss = [&](auto k) {
      const auto step = [&](auto u, auto now) {
        u = ep::shard<typename On::data, typename On::model>(u);
        const auto next = u + k * laplacian(u) + now;
        return ep::results(next, ep::max<1>(next));
      };
      const auto run = ep::scan(step, start, source);
      return ep::mean(run.template get<0>() * run.template get<0>()) + ep::mean(run.template get<1>());
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(conductivity);
    return ep::results(value, gradient);
  }
};
template <class On>
using heat_program = ep::program<typename On::mesh, heat<On>, ep::f64<4, 12>, ep::f64<>, ep::f64<6, 12>>;

real plain_heat(const plains& in) {
  plain u = in[0];
  real total = 0;
  for (int t = 0; t < 6; ++t) {
    plain next = u;
    for (int r = 0; r < 4; ++r) {
      real most = -9;
      for (int i = 0; i < 12; ++i) {
        const real left = i > 0 ? u(r, i - 1) : 0;
        const real right = i < 11 ? u(r, i + 1) : 0;
        next(r, i) += in[1]() * (left - 2 * u(r, i) + right) + in[2](t, i);
        most = std::max(most, next(r, i));
      }
      total += most / 24;
    }
    u = next;
  }
  for (const real one : u.data) total += one * one / 48;
  return total;
}

// --- a loop in a loop: layers, and in each layer steps in time ------------------------------------------------------

template <class On> struct nested {
  constexpr auto operator()(auto w, auto mix, auto xs) const {
    const auto loss = [&](const auto& p) {
      const auto layer = [&](const auto& sequence, const auto& weights) {
        const auto& input = weights.template get<0>();
        const auto step = [&](auto h, auto x) {
          h = ep::tanh(ep::matmul(x, input) + h * weights.template get<1>());
          h = ep::shard<typename On::data, typename On::model>(h);
          return ep::results(h, h + x);
        };
        const auto start = ep::constant<ep::f64<4, 3>>(sequence, 0.25);
        return ep::scan(step, start, sequence).template get<1>();
      };
      const auto last = ep::scan(layer, xs, p);
      return ep::mean(last * last);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, mix));
    return ep::results(value, gradient);
  }
};
template <class On>
using nested_program = ep::program<typename On::mesh, nested<On>, ep::f64<2, 3, 3>, ep::f64<2, 3>, ep::f64<5, 4, 3>>;

real plain_nested(const plains& in) {
  plain xs = in[2];
  for (int l = 0; l < 2; ++l) {
    plain h({4, 3}, 0.25L);
    for (int t = 0; t < 5; ++t) {
      plain next({4, 3});
      for (int b = 0; b < 4; ++b) {
        for (int j = 0; j < 3; ++j) {
          real sum = h(b, j) * in[1](l, j);
          for (int i = 0; i < 3; ++i) sum += xs(t, b, i) * in[0](l, i, j);
          next(b, j) = std::tanh(sum);
        }
      }
      h = next;
      for (int b = 0; b < 4; ++b) {
        for (int j = 0; j < 3; ++j) xs(t, b, j) += h(b, j);
      }
    }
  }
  real total = 0;
  for (const real one : xs.data) total += one * one / 60;
  return total;
}

// --- deep residual layers, recomputed in the gradient, with AdamW's little brother in place -------------------------

template <class Leaf> struct residual {
  BOOST_HANA_DEFINE_STRUCT(residual, (ep::leaf<Leaf, ep::f64<4, 6>>, up), (ep::leaf<Leaf, ep::f64<6, 4>>, down),
                           (ep::leaf<Leaf, ep::f64<4>>, gain));
};
template <class Leaf> using residuals = residual<ep::stacked<Leaf, 3>>;
template <class Leaf> using residual_state = typename ep::nn::sgd<residuals>::template state<Leaf>;
template <class On> struct deep {
  struct loss {
    constexpr auto operator()(const auto& layers, auto x) const {
      const auto body = [](auto h, const auto& one) {
        const auto normal = ep::nn::rms_norm(h, one.gain);
        const auto inner = ep::silu(ep::shard<typename On::data, typename On::model>(ep::matmul(normal, one.up)));
        return h + ep::matmul(inner, one.down);
      };
      const auto y = ep::scan(body, x, layers, ep::recompute);
      return ep::mean(y * y);
    }
  };
  constexpr auto operator()(const auto& state, auto x, auto rate) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(state.parameters, x);
    return ep::results(ep::nn::sgd_step(state, gradient, rate, {0.5, 0.0}), value);
  }
};
template <class On>
using deep_program =
    ep::program<typename On::mesh, deep<On>, ep::donated<residual_state<ep::spec>>, ep::f64<8, 4>, ep::f64<>>;

real plain_deep(const plains& in) {
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    std::vector<real> h;
    for (int i = 0; i < 4; ++i) h.push_back(in[3](b, i));
    for (int l = 0; l < 3; ++l) {
      real square = 0;
      for (const real one : h) square += one * one / 4;
      std::vector<real> next = h;
      for (int j = 0; j < 6; ++j) {
        real inner = 0;
        for (int i = 0; i < 4; ++i) {
          inner += h[static_cast<std::size_t>(i)] / std::sqrt(square + 1e-5L) * in[2](l, i) * in[0](l, i, j);
        }
        for (int i = 0; i < 4; ++i)
          next[static_cast<std::size_t>(i)] += inner / (1 + std::exp(-inner)) * in[1](l, j, i);
      }
      h = next;
    }
    for (const real one : h) total += one * one / 32;
  }
  return total;
}

// --- power iteration and a running sum: carries of several parts, several outputs -----------------------------------

template <class On> struct several_parts {
  constexpr auto operator()(auto a, auto start, auto shifts) const {
    const auto matrix = ep::shard<typename On::data, typename On::model>(a);
    const auto step = [&](const auto& carry, auto shift) {
      const auto v = ep::matmul(matrix, ep::reshape<8, 1>(carry.template get<0>()));
      const auto moved = ep::reshape<8>(v) + shift * carry.template get<0>();
      const auto length = ep::sqrt(ep::sum(moved * moved));
      const auto unit = moved / length;
      const auto sum = carry.template get<1>() + unit;
      const auto count = carry.template get<2>() + 1;
      return ep::results(ep::results(unit, sum, count), ep::results(length, unit * 2.0));
    };
    const auto carry = ep::results(start, ep::constant<ep::f64<8>>(start, 0.0), ep::constant<ep::i32<>>(start, 3));
    return ep::scan(step, carry, shifts);
  }
};
template <class On>
using several_program = ep::program<typename On::mesh, several_parts<On>, ep::f64<8, 8>, ep::f64<8>, ep::f64<4>>;

}  // namespace

TEST_CASE("kinds: conjugate gradients", "[kinds]") {
  const plain root = wave(1, {8, 8});
  const plain b = wave(2, {8, 3});
  plain a({8, 8}), x({8, 3}), length({3});
  for (int i = 0; i < 8; ++i) {
    a(i, i) = 2;
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < 8; ++k) a(i, j) += root(i, k) * root(j, k);
    }
  }
  for (int c = 0; c < 3; ++c) {
    std::vector<real> r, p;
    for (int i = 0; i < 8; ++i) r.push_back(b(i, c));
    p = r;
    real square = 0;
    for (const real one : r) square += one * one;
    for (int step = 0; step < 5; ++step) {
      std::vector<real> ap(8);
      real below = 0, next = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        for (std::size_t j = 0; j < 8; ++j) ap[i] += a(static_cast<int>(i), static_cast<int>(j)) * p[j];
        below += p[i] * ap[i];
      }
      for (std::size_t i = 0; i < 8; ++i) {
        x(static_cast<int>(i), c) += square / below * p[i];
        r[i] -= square / below * ap[i];
        next += r[i] * r[i];
      }
      for (std::size_t i = 0; i < 8; ++i) p[i] = r[i] + next / square * p[i];
      square = next;
    }
    length(c) = std::sqrt(square);
  }
  everywhere<conjugate_program>(both_ways{}, {a, b}, {x, length}, 1e-8);
}

TEST_CASE("kinds: heat in a rod, and its gradient by the conductivity", "[kinds]") {
  const plains in{wave(1, {4, 12}), plain::number(0.2L), wave(3, {6, 12})};
  everywhere<heat_program>(both_axes{}, in, {plain::number(plain_heat(in)), slope(plain_heat, in, 1)});
}

TEST_CASE("kinds: a loop over time in a loop over layers, and its gradients", "[kinds]") {
  const plains in{wave(1, {2, 3, 3}), wave(2, {2, 3}), wave(3, {5, 4, 3})};
  everywhere<nested_program>(both_ways{}, in, value_and_slopes(plain_nested, in, 2));
}

TEST_CASE("kinds: deep residual layers, three steps of SGD in place", "[kinds]") {
  plains p{wave(1, {3, 4, 6}), wave(2, {3, 6, 4}), wave(3, {3, 4}), wave(4, {8, 4})};
  plains velocity{plain({3, 4, 6}), plain({3, 6, 4}), plain({3, 4})};
  const plains in{
      p[0], p[1], p[2], velocity[0], velocity[1], velocity[2], plain::number(0), p[3], plain::number(0.25L)};
  real value = 0;
  for (int step = 0; step < 3; ++step) {
    value = plain_deep(p);
    const plains by{slope(plain_deep, p, 0), slope(plain_deep, p, 1), slope(plain_deep, p, 2)};
    for (std::size_t leaf = 0; leaf < 3; ++leaf) {
      for (std::size_t i = 0; i < by[leaf].data.size(); ++i) {
        velocity[leaf].data[i] = 0.5L * velocity[leaf].data[i] + by[leaf].data[i];
        p[leaf].data[i] -= 0.25L * velocity[leaf].data[i];
      }
    }
  }
  everywhere<deep_program>(
      both_axes{}, in,
      {p[0], p[1], p[2], velocity[0], velocity[1], velocity[2], plain::number(3), plain::number(value)}, 1e-9, 3);
}

TEST_CASE("kinds: a carry of three parts and an output of two", "[kinds]") {
  const plains in{wave(1, {8, 8}), wave(2, {8}), wave(3, {4})};
  plain unit = in[1], sum({8}), lengths({4}), doubles({4, 8});
  for (int t = 0; t < 4; ++t) {
    plain moved({8});
    for (int i = 0; i < 8; ++i) {
      moved(i) = in[2](t) * unit(i);
      for (int j = 0; j < 8; ++j) moved(i) += in[0](i, j) * unit(j);
      lengths(t) += moved(i) * moved(i);
    }
    lengths(t) = std::sqrt(lengths(t));
    for (int i = 0; i < 8; ++i) {
      unit(i) = moved(i) / lengths(t);
      sum(i) += unit(i);
      doubles(t, i) = 2 * unit(i);
    }
  }
  everywhere<several_program>(both_ways{}, in, {unit, sum, plain::number(7), lengths, doubles});
}
