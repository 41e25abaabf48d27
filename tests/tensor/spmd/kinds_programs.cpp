// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- a whole training run as one program: the gradient is taken inside the loop -------------------------------------

template <class On> struct training_run {
  constexpr auto operator()(auto w, auto v, auto xs, auto ys) const {
    const auto step = [](const auto& parameters, const auto& batch) {
      const auto loss = [&](const auto& p) {
        const auto h = ep::matmul(batch.template get<0>(), p.template get<0>());
        const auto y = ep::matmul(ep::tanh(ep::shard<typename On::data, typename On::model>(h)), p.template get<1>());
        const auto error = y - batch.template get<1>();
        return ep::mean(error * error);
      };
      const auto [value, gradient] = ep::value_and_grad(loss)(parameters);
      const auto w_next = parameters.template get<0>() - 0.3 * gradient.template get<0>();
      const auto v_next = parameters.template get<1>() - 0.3 * gradient.template get<1>();
      return ep::results(ep::results(w_next, v_next), value);
    };
    return ep::scan(step, ep::results(w, v), ep::results(xs, ys));
  }
};
template <class On>
using training_program = ep::program<typename On::mesh, training_run<On>, ep::donated<ep::f64<3, 4>>,
                                     ep::donated<ep::f64<4, 2>>, ep::f64<5, 8, 3>, ep::f64<5, 8, 2>>;
// Each step has the collectives of the split layer, and of the gradients.
static_assert(training_program<on<2, 2>>::collectives() == training_program<on<2, 2>>::collectives<ep::all_reduce>());

real plain_batch(const plains& in) {  // w, v, xs, ys, number of the batch
  const int t = static_cast<int>(in[4]());
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    plain y({2});
    for (int j = 0; j < 4; ++j) {
      real h = 0;
      for (int i = 0; i < 3; ++i) h += in[2](t, b, i) * in[0](i, j);
      for (int o = 0; o < 2; ++o) y(o) += std::tanh(h) * in[1](j, o);
    }
    for (int o = 0; o < 2; ++o) total += (y(o) - in[3](t, b, o)) * (y(o) - in[3](t, b, o)) / 16;
  }
  return total;
}

// --- greedy decoding with a cache: tokens and positions are carried -------------------------------------------------

template <class On> struct decoding {
  constexpr auto operator()(auto table, auto wk, auto first, auto positions) const {
    const auto head = ep::shard<ep::none, typename On::model>(ep::transpose<1, 0>(table));
    const auto step = [&](const auto& state, auto position) {
      const auto x = ep::gather<0>(table, state.template get<0>());
      const auto here = ep::equal(ep::iota<ep::i32<5>, 0>(x), position);
      const auto key = ep::reshape<4, 1, 3>(ep::matmul(x, wk));
      auto cache = ep::select(ep::reshape<1, 5, 1>(here), key, state.template get<1>());
      cache = ep::shard<typename On::data, ep::none, ep::none>(cache);
      const auto seen = ep::iota<ep::i32<5>, 0>(x) <= position;
      const auto weights = ep::softmax<-1>(ep::select(seen, ep::einsum<"bd,btd->bt">(x, cache), -1e9));
      const auto logits = ep::matmul(x + ep::einsum<"bt,btd->bd">(weights, cache), head);
      const auto best = logits >= ep::max<1>(logits, ep::keep_dims);
      const auto token = ep::min<1>(ep::select(best, ep::iota<ep::i32<4, 7>, 1>(x), 7));
      return ep::results(ep::results(token, cache, state.template get<2>() + position), token);
    };
    const auto empty = ep::constant<ep::f64<4, 5, 3>>(table, 0.0);
    return ep::scan(step, ep::results(first, empty, ep::constant<ep::i32<>>(table, 0)), positions);
  }
};
template <class On>
using decoding_program =
    ep::program<typename On::mesh, decoding<On>, ep::f64<7, 3>, ep::f64<3, 3>, ep::i32<4>, ep::i32<5>>;

plains plain_decoding(const plains& in) {
  plain token = in[2], cache({4, 5, 3}), tokens({5, 4});
  for (int t = 0; t < 5; ++t) {
    for (int b = 0; b < 4; ++b) {
      plain x({3});
      for (int d = 0; d < 3; ++d) x(d) = in[0](static_cast<int>(token(b)), d);
      for (int d = 0; d < 3; ++d) {
        for (int i = 0; i < 3; ++i) cache(b, t, d) += x(i) * in[1](i, d);
      }
      plain weight({5}), mixed = x;
      real sum = 0;
      for (int u = 0; u <= t; ++u) {
        real score = 0;
        for (int d = 0; d < 3; ++d) score += x(d) * cache(b, u, d);
        weight(u) = std::exp(score);
        sum += weight(u);
      }
      for (int u = 0; u <= t; ++u) {
        for (int d = 0; d < 3; ++d) mixed(d) += weight(u) / sum * cache(b, u, d);
      }
      real top = -1e9L;
      for (int v = 0; v < 7; ++v) {
        real logit = 0;
        for (int d = 0; d < 3; ++d) logit += mixed(d) * in[0](v, d);
        if (logit > top) {
          top = logit;
          tokens(t, b) = v;
        }
      }
      token(b) = tokens(t, b);
    }
  }
  return {token, cache, plain::number(10), tokens};
}

// --- bodies that attract each other; a convolution with batch norm and pooling; shortest paths ----------------------

template <class On> struct far_and_near {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto x, auto mass, auto image, auto kernel, auto distance) const {
    const auto energy = [&](auto places) {
      const auto left = ep::shard<data, ep::none, ep::none>(ep::reshape<6, 1, 2>(places));
      const auto apart = left - ep::reshape<1, 6, 2>(places);
      return ep::sum(mass * ep::reshape<6, 1>(mass) / ep::sqrt(ep::sum<2>(apart * apart) + 0.1));
    };
    const auto [value, force] = ep::value_and_grad(energy)(x);

    const auto network = [&](const auto& p) {
      const auto pixels = ep::shard<data, ep::none, model>(p.template get<0>());  // batch, channels, width
      const auto edge = ep::constant<ep::f64<4, 2, 1>>(x, 0.0);
      const auto wide = ep::concat<2>(edge, pixels, edge);
      const auto tap = [&](auto part, auto weights) {
        return ep::einsum<"bcw,cd->bdw">(part, ep::reshape<2, 3>(weights));
      };
      const auto y = tap(ep::slice<2, 0, 8>(wide), ep::slice<2, 0, 1>(p.template get<1>())) +
                     tap(ep::slice<2, 1, 9>(wide), ep::slice<2, 1, 2>(p.template get<1>())) +
                     tap(ep::slice<2, 2, 10>(wide), ep::slice<2, 2, 3>(p.template get<1>()));
      const auto centred = y - ep::mean<0, 2>(y, ep::keep_dims);
      const auto variance = ep::mean<0, 2>(centred * centred, ep::keep_dims);
      const auto normal = ep::relu(centred / ep::sqrt(variance + 1e-3));
      const auto pool = ep::max<3>(ep::reshape<4, 3, 4, 2>(normal));
      return ep::mean(pool * pool) + ep::mean(ep::log(variance + 1.0));
    };
    const auto [loss, gradient] = ep::value_and_grad(network)(ep::results(image, kernel));

    for (int doubling = 0; doubling < 3; ++doubling) {
      distance = ep::min<1>(ep::reshape<5, 5, 1>(distance) + ep::reshape<1, 5, 5>(distance));
      distance = ep::shard<data, model>(distance);
    }
    return ep::results(value, force, loss, gradient, distance);
  }
};
template <class On>
using far_program = ep::program<typename On::mesh, far_and_near<On>, ep::f64<6, 2>, ep::f64<6>, ep::f64<4, 2, 8>,
                                ep::f64<2, 3, 3>, ep::i32<5, 5>>;

real plain_energy(const plains& in) {
  real total = 0;
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      real square = 0.1L;
      for (int k = 0; k < 2; ++k) square += (in[0](i, k) - in[0](j, k)) * (in[0](i, k) - in[0](j, k));
      total += in[1](i) * in[1](j) / std::sqrt(square);
    }
  }
  return total;
}
real plain_network(const plains& in) {
  plain y({4, 3, 8}), mean({3}), variance({3});
  for (int b = 0; b < 4; ++b) {
    for (int d = 0; d < 3; ++d) {
      for (int w = 0; w < 8; ++w) {
        for (int c = 0; c < 2; ++c) {
          for (int k = 0; k < 3; ++k) {
            if (w + k >= 1 && w + k <= 8) y(b, d, w) += in[0](b, c, w + k - 1) * in[1](c, d, k);
          }
        }
        mean(d) += y(b, d, w) / 32;
      }
    }
  }
  for (int b = 0; b < 4; ++b) {
    for (int d = 0; d < 3; ++d) {
      for (int w = 0; w < 8; ++w) variance(d) += (y(b, d, w) - mean(d)) * (y(b, d, w) - mean(d)) / 32;
    }
  }
  real total = 0;
  for (int d = 0; d < 3; ++d) {
    total += std::log(variance(d) + 1) / 3;
    for (int b = 0; b < 4; ++b) {
      for (int w = 0; w < 8; w += 2) {
        const real most = std::max(y(b, d, w), y(b, d, w + 1)) - mean(d);
        if (most > 0) total += most * most / (variance(d) + 1e-3L) / 48;
      }
    }
  }
  return total;
}

// --- a loop in a loop, both with captured values, an output each, kept and recomputed -------------------------------

template <class On, bool Recompute> struct captured {
  constexpr auto operator()(auto start, auto xs, auto w, auto scale, auto bias) const {
    const auto loss = [](const auto& p) {
      const auto outer = [&](auto h, const auto& layer) {
        const auto inner = [&](auto c, auto x) {
          auto z = ep::matmul(c, layer.template get<0>()) * p.template get<3>() + x;
          z = ep::shard<typename On::data, typename On::model>(z);
          return ep::results(ep::tanh(z + layer.template get<1>()), ep::mean<0>(z) * ep::mean<0>(h));
        };
        const auto run = [&] {
          if constexpr (Recompute) {
            return ep::scan(inner, h, p.template get<1>(), ep::recompute);
          } else {
            return ep::scan(inner, h, p.template get<1>());
          }
        }();
        return ep::results(run.template get<0>() + 0.1 * h, ep::sum<0>(run.template get<1>()));
      };
      const auto run = ep::scan(outer, p.template get<0>(), ep::results(p.template get<2>(), p.template get<4>()));
      return ep::mean(run.template get<0>() * run.template get<0>()) + ep::mean(ep::exp(run.template get<1>()));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(start, xs, w, scale, bias));
    return ep::results(value, gradient);
  }
};
template <class On, bool Recompute>
using captured_program = ep::program<typename On::mesh, captured<On, Recompute>, ep::f64<6, 4>, ep::f64<3, 6, 4>,
                                     ep::f64<2, 4, 4>, ep::f64<4>, ep::f64<2, 4>>;
template <class On> using kept_program = captured_program<On, false>;
template <class On> using recomputed_program = captured_program<On, true>;

real plain_captured(const plains& in) {
  plain h = in[0];
  real total = 0;
  for (int l = 0; l < 2; ++l) {
    plain c = h, sum({4}), mean({4});
    for (int b = 0; b < 6; ++b) {
      for (int j = 0; j < 4; ++j) mean(j) += h(b, j) / 6;
    }
    for (int t = 0; t < 3; ++t) {
      plain next({6, 4});
      for (int b = 0; b < 6; ++b) {
        for (int j = 0; j < 4; ++j) {
          real z = 0;
          for (int i = 0; i < 4; ++i) z += c(b, i) * in[2](l, i, j);
          z = z * in[3](j) + in[1](t, b, j);
          sum(j) += z / 6 * mean(j);
          next(b, j) = std::tanh(z + in[4](l, j));
        }
      }
      c = next;
    }
    for (int j = 0; j < 4; ++j) total += std::exp(sum(j)) / 8;
    for (std::size_t i = 0; i < h.data.size(); ++i) h.data[i] = c.data[i] + 0.1L * h.data[i];
  }
  for (const real one : h.data) total += one * one / 24;
  return total;
}

// --- donated arguments whose new values read all of the old: nothing may be written before it was read ---------------

template <class On> struct in_place {
  constexpr auto operator()(auto p, auto q, auto r, auto s, auto order) const {
    const auto split = ep::shard<typename On::data, typename On::model>(q);
    const auto rolled = ep::concat<0>(ep::slice<0, 1, 6>(s), ep::slice<0, 0, 1>(s));
    const auto centred = r - ep::mean<0>(r, ep::keep_dims);  // columns: all rows before the first is written
    return ep::results(ep::transpose<1, 0>(p), ep::matmul(split, p), ep::gather<0>(centred, order), rolled);
  }
};
template <class On>
using in_place_program =
    ep::program<typename On::mesh, in_place<On>, ep::donated<ep::f64<6, 6>>, ep::donated<ep::f64<6, 6>>,
                ep::donated<ep::f32<6, 6>>, ep::donated<ep::i32<6, 6>>, ep::i32<6>>;

plains plain_in_place(const plains& in) {
  plains next{plain({6, 6}), plain({6, 6}), plain({6, 6}), plain({6, 6})};
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      next[0](j, i) = in[0](i, j);
      real mean = 0;
      for (int k = 0; k < 6; ++k) {
        next[1](i, j) += in[1](i, k) * in[0](k, j);
        mean += in[2](k, j) / 6;
      }
      next[2](i, j) = in[2](static_cast<int>(in[4](i)), j) - mean;
      next[3](i, j) = in[3]((i + 1) % 6, j);
    }
  }
  return next;
}

}  // namespace

TEST_CASE("kinds: a training run in a loop, in place", "[kinds]") {
  plains now{wave(1, {3, 4}), wave(2, {4, 2}), wave(3, {5, 8, 3}), wave(4, {5, 8, 2}), plain::number(0)};
  const plains in(now.begin(), now.begin() + 4);
  plain losses({5});
  for (int t = 0; t < 5; ++t) {
    now[4]() = t;
    losses(t) = plain_batch(now);
    const plains by{slope(plain_batch, now, 0), slope(plain_batch, now, 1)};
    for (std::size_t leaf = 0; leaf < 2; ++leaf) {
      for (std::size_t i = 0; i < by[leaf].data.size(); ++i) now[leaf].data[i] -= 0.3L * by[leaf].data[i];
    }
  }
  everywhere<training_program>(both_ways{}, in, {now[0], now[1], losses});
}

TEST_CASE("kinds: greedy decoding with a cache", "[kinds]") {
  plains in{wave(1, {7, 3}, 2), wave(2, {3, 3}, 2), indices(3, {4}, 7), plain({5})};
  for (int t = 0; t < 5; ++t) in[3](t) = t;
  everywhere<decoding_program>(both_axes{}, in, plain_decoding(in));
}

TEST_CASE("kinds: bodies, a convolution and shortest paths", "[kinds]") {
  const plains in{wave(1, {6, 2}), wave(2, {6}), wave(3, {4, 2, 8}), wave(4, {2, 3, 3}), indices(5, {5, 5}, 30)};
  plain distance = in[4];
  for (int doubling = 0; doubling < 3; ++doubling) {
    plain next({5, 5}, 1000);
    for (int i = 0; i < 5; ++i) {
      for (int j = 0; j < 5; ++j) {
        for (int k = 0; k < 5; ++k) next(i, j) = std::min(next(i, j), distance(i, k) + distance(k, j));
      }
    }
    distance = next;
  }
  plains out = value_and_slopes(plain_energy, {in[0], in[1]}, 1);
  const plains network = value_and_slopes(plain_network, {in[2], in[3]}, 2);
  out.insert(out.end(), network.begin(), network.end());
  out.push_back(distance);
  everywhere<far_program>(both_axes{}, in, out);
}

TEST_CASE("kinds: gradients of what loops in loops capture, carry, read and tell", "[kinds]") {
  const plains in{wave(1, {6, 4}), wave(2, {3, 6, 4}), wave(3, {2, 4, 4}), wave(4, {4}), wave(5, {2, 4})};
  const plains out = value_and_slopes(plain_captured, in, 5);
  everywhere<kept_program>(few_or_all<meshes<on<4, 2>>, meshes<on<1, 1>, on<2, 1>, on<4, 2>>>{}, in, out);
  everywhere<recomputed_program>(few_or_all<meshes<on<2, 2>>, meshes<on<1, 1>, on<2, 2>>>{}, in, out);
}

TEST_CASE("kinds: new values in place of all that they are made of, three steps", "[kinds]") {
  plains now{wave(1, {6, 6}), wave(2, {6, 6}), wave(3, {6, 6}), indices(4, {6, 6}, 99), indices(5, {6}, 6)};
  const plains in = now;
  for (int step = 0; step < 3; ++step) {
    const plains next = plain_in_place(now);
    std::copy(next.begin(), next.end(), now.begin());
  }
  everywhere<in_place_program>(both_ways{}, in, {now[0], now[1], now[2], now[3]}, 1e-6, 3);
}
