// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

#include <boost/hana/define_struct.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

// --- 2D: weights and what lies between them split over both axes ----------------------------------------------------

template <class On> struct two_dimensional {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w_in, auto w_out, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto rows = ep::shard<data, model>(x);
      auto h = ep::matmul(rows, ep::shard<data, model>(p.template get<0>()));
      h = ep::relu(ep::shard<data, model>(h));
      auto y = ep::matmul(h, ep::shard<model, data>(p.template get<1>()));
      y = ep::shard<data, model>(y);
      return ep::mean((y - rows) * (y - rows));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w_in, w_out));
    return ep::results(w_in - gradient.template get<0>(), w_out - gradient.template get<1>(), value);
  }
};
template <class On>
using two_dimensional_program =
    ep::program<typename On::mesh, two_dimensional<On>,
                ep::donated<ep::sharded<ep::f64<4, 8>, typename On::data, typename On::model>>,
                ep::donated<ep::sharded<ep::f64<8, 4>, typename On::model, typename On::data>>, ep::f64<8, 4>>;

real plain_two_dimensional(const plains& in) {
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    plain y({4});
    for (int j = 0; j < 8; ++j) {
      real h = 0;
      for (int i = 0; i < 4; ++i) h += in[2](b, i) * in[0](i, j);
      for (int i = 0; i < 4; ++i) y(i) += std::max(h, 0.0L) * in[1](j, i);
    }
    for (int i = 0; i < 4; ++i) total += (y(i) - in[2](b, i)) * (y(i) - in[2](b, i)) / 32;
  }
  return total;
}

// --- SUMMA: all three matrices split over both axes; at once, and panel by panel ------------------------------------

template <class On> struct summa {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto a, auto b, auto left, auto right) const {
    const auto c = ep::shard<data, model>(ep::matmul(ep::shard<data, model>(a), ep::shard<data, model>(b)));
    const auto panel = [](auto sum, const auto& panels) {
      const auto column = ep::shard<data, ep::none>(panels.template get<0>());
      const auto row = ep::shard<ep::none, model>(panels.template get<1>());
      return sum + ep::matmul(column, row);
    };
    const auto start = ep::shard<data, model>(ep::constant<ep::f64<8, 4>>(a, 0.0));
    return ep::results(c, ep::scan(panel, start, ep::results(left, right)));
  }
};
template <class On>
using summa_program =
    ep::program<typename On::mesh, summa<On>, ep::f64<8, 6>, ep::f64<6, 4>, ep::f64<3, 8, 2>, ep::f64<3, 2, 4>>;
// A row of devices hears each panel of a, a column each of b.
static_assert(summa_program<on<2, 2>>::collectives() <= 2);

// --- uneven sizes: 7, 5 and 3 over 2, 4 and 8 -----------------------------------------------------------------------

template <class On> struct uneven {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w, auto gain, auto x) const {
    const auto loss = [&](const auto& p) {
      auto h = ep::einsum<"abi,ij->abj">(x, p.template get<0>());
      h = ep::shard<data, ep::none, model>(h);
      h = ep::exp(-h * h) / (1.0 + ep::sum<0>(h * h));               // over a split dimension
      const auto normal = ep::nn::rms_norm(h, p.template get<1>());  // and over the other
      const auto odds = ep::softmax<0>(normal);
      const auto product = ep::prod<-1>(1.0 + 0.5 * normal);
      return ep::mean(ep::max<2>(odds, ep::keep_dims) - ep::min<0, 1>(h * odds, ep::keep_dims)) + ep::mean(product);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, gain));
    return ep::results(value, gradient, ep::log_softmax<1>(ep::transpose<2, 0, 1>(x)));
  }
};
template <class On>
using uneven_program = ep::program<typename On::mesh, uneven<On>, ep::f64<3, 5>, ep::f64<5>, ep::f64<7, 2, 3>>;

real plain_uneven(const plains& in) {
  const plain &w = in[0], &gain = in[1], &x = in[2];
  plain h({7, 2, 5}), normal({7, 2, 5}), odds({7, 2, 5});
  for (int b = 0; b < 2; ++b) {
    for (int j = 0; j < 5; ++j) {
      real sum = 0;
      for (int a = 0; a < 7; ++a) {
        for (int i = 0; i < 3; ++i) h(a, b, j) += x(a, b, i) * w(i, j);
        sum += h(a, b, j) * h(a, b, j);
      }
      for (int a = 0; a < 7; ++a) h(a, b, j) = std::exp(-h(a, b, j) * h(a, b, j)) / (1 + sum);
    }
  }
  real total = 0;
  for (int a = 0; a < 7; ++a) {
    for (int b = 0; b < 2; ++b) {
      real square = 0, product = 1;
      for (int j = 0; j < 5; ++j) square += h(a, b, j) * h(a, b, j) / 5;
      for (int j = 0; j < 5; ++j) {
        normal(a, b, j) = h(a, b, j) / std::sqrt(square + 1e-5L) * gain(j);
        product *= 1 + 0.5L * normal(a, b, j);
      }
      total += product / 14;
    }
  }
  for (int j = 0; j < 5; ++j) {
    real least = 1e9L;
    for (int b = 0; b < 2; ++b) {
      real sum = 0;
      for (int a = 0; a < 7; ++a) sum += std::exp(normal(a, b, j));
      for (int a = 0; a < 7; ++a) {
        odds(a, b, j) = std::exp(normal(a, b, j)) / sum;
        least = std::min(least, h(a, b, j) * odds(a, b, j));
      }
    }
    total -= least / 5;  // every row's maximum meets every column's minimum: the mean of each
  }
  for (int a = 0; a < 7; ++a) {
    for (int b = 0; b < 2; ++b) {
      real most = 0;
      for (int j = 0; j < 5; ++j) most = std::max(most, odds(a, b, j));
      total += most / 14;
    }
  }
  return total;
}

// --- tiny sizes: 1, 2 and 3 over eight devices ----------------------------------------------------------------------

template <class On> struct tiny {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w, auto x, auto one) const {
    const auto loss = [&](auto weight) {
      const auto rows = ep::shard<data, ep::none>(x);
      auto h = ep::tanh(ep::matmul(rows, weight));
      h = ep::shard<ep::none, ep::axes<data, model>>(h);
      return ep::mean(ep::max<1>(h) * ep::mean<1>(h)) + ep::mean(one * h);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w);
    const auto both = ep::concat<0>(x, x);
    const auto turned = ep::shard<ep::axes<model, data>, ep::none>(ep::transpose<1, 0>(both));
    return ep::results(value, gradient, turned, ep::softmax<0>(one), ep::min<0>(ep::reshard<model, data>(x)));
  }
};
template <class On>
using tiny_program = ep::program<typename On::mesh, tiny<On>, ep::f64<2, 3>, ep::f64<3, 2>, ep::f64<1, 1>>;

real plain_tiny(const plains& in) {
  real total = 0;
  for (int b = 0; b < 3; ++b) {
    real most = -1, mean = 0;
    for (int j = 0; j < 3; ++j) {
      const real h = std::tanh(in[1](b, 0) * in[0](0, j) + in[1](b, 1) * in[0](1, j));
      most = std::max(most, h);
      mean += h / 3;
    }
    total += most * mean / 3 + in[2](0, 0) * mean / 3;
  }
  return total;
}

// --- meshes of 3, 5 and 6 -------------------------------------------------------------------------------------------

template <class On> struct odd_mesh {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto w, auto v, auto x) const {
    const auto loss = [&](const auto& p) {
      auto h = ep::matmul(ep::shard<data, ep::none>(x), p.template get<0>());
      h = ep::sigmoid(ep::shard<data, model>(h));
      const auto y = ep::log_softmax<-1>(ep::matmul(h, p.template get<1>()));
      return -ep::mean(ep::slice<1, 1, 3>(y));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, v));
    return ep::results(value, gradient, ep::reshape<4, 10>(ep::reshard<ep::none, data>(x)));
  }
};
template <class On>
using odd_program = ep::program<typename On::mesh, odd_mesh<On>, ep::f64<4, 7>, ep::f64<7, 3>, ep::f64<10, 4>>;

real plain_odd(const plains& in) {
  real total = 0;
  for (int b = 0; b < 10; ++b) {
    plain y({3});
    for (int j = 0; j < 7; ++j) {
      real h = 0;
      for (int i = 0; i < 4; ++i) h += in[2](b, i) * in[0](i, j);
      for (int o = 0; o < 3; ++o) y(o) += in[1](j, o) / (1 + std::exp(-h));
    }
    const real sum = std::log(std::exp(y(0)) + std::exp(y(1)) + std::exp(y(2)));
    total -= (y(1) - sum + y(2) - sum) / 20;
  }
  return total;
}

// --- ZeRO: AdamW whose moments are split over the data ---------------------------------------------------------------

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f64<8, 3>>, weight), (ep::leaf<Leaf, ep::f64<3>>, bias));
};
template <class Leaf> using zero_state = typename ep::nn::adamw<layer>::template state<Leaf>;
template <class On> struct zero {
  struct loss {
    constexpr auto operator()(const auto& p, auto x) const {
      const auto y = ep::matmul(ep::shard<typename On::data, ep::none>(x), p.weight) + p.bias;
      return ep::mean(y * y * y * y);
    }
  };
  constexpr auto operator()(const auto& state, auto x, auto rate) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(state.parameters, x);
    const auto next =
        ep::nn::adamw_step(state, gradient, rate, {0.9, 0.99, 1e-8, 0.1}, ep::nn::split_state<typename On::data, 8>{});
    return ep::results(next, value);
  }
};
template <class On>
using zero_program =
    ep::program<typename On::mesh, zero<On>, ep::donated<zero_state<ep::spec>>, ep::f64<8, 8>, ep::f64<>>;
static_assert(zero_program<on<4, 1>>::collectives<ep::reduce_scatter>() == 1);
static_assert(zero_program<on<4, 1>>::collectives<ep::all_gather>() == 1);

real plain_zero(const plains& in) {  // weight, bias, x
  real total = 0;
  for (int b = 0; b < 8; ++b) {
    for (int o = 0; o < 3; ++o) {
      real y = in[1](o);
      for (int i = 0; i < 8; ++i) y += in[2](b, i) * in[0](i, o);
      total += y * y * y * y / 24;
    }
  }
  return total;
}

// --- the same by hand, and of one parameter: nothing but the moments is annotated -----------------------------------

template <class On> struct zero_by_hand {
  constexpr auto operator()(auto w, auto m, auto v, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto y = ep::matmul(ep::shard<typename On::data, ep::none>(x), p);
      return ep::mean(y * y * y * y);
    };
    const auto [value, g] = ep::value_and_grad(loss)(w);
    const auto next_m = 0.9 * ep::shard<typename On::data, ep::none>(m) + 0.1 * g;
    const auto next_v = 0.99 * ep::shard<typename On::data, ep::none>(v) + 0.01 * g * g;
    const auto next_w = w - 0.05 * (next_m / (ep::sqrt(next_v) + 1e-3));
    return ep::results(next_w, next_m, next_v, value);
  }
};
template <class On>
using zero_by_hand_program = ep::program<typename On::mesh, zero_by_hand<On>, ep::donated<ep::f64<8, 3>>,
                                         ep::donated<ep::f64<8, 3>>, ep::donated<ep::f64<8, 3>>, ep::f64<8, 8>>;
// The gradient is read by both moments, and summed once, into the parts that they have; only the loss is summed whole.
static_assert(zero_by_hand_program<on<4, 1>>::collectives<ep::reduce_scatter>() == 1);
static_assert(zero_by_hand_program<on<4, 1>>::collectives<ep::all_gather>() == 1);
static_assert(zero_by_hand_program<on<4, 1>>::collectives<ep::all_reduce>() == 1);

// --- einsums --------------------------------------------------------------------------------------------------------

template <class On> struct einsums {
  using data = typename On::data;
  using model = typename On::model;
  constexpr auto operator()(auto a, auto b, auto c, auto d) const {
    const auto ab = ep::shard<data, model>(a);
    const auto chain = ep::einsum<"ij,jk,kl->il">(ab, b, c);
    const auto outer = ep::einsum<"i,k->ki">(ep::einsum<"ij->i">(a), ep::einsum<"jk->k">(b));
    const auto inner = ep::einsum<"ij,ij->">(ab, a);
    const auto batched = ep::einsum<"nij,njk->nki">(d, ep::shard<model, ep::none, data>(ep::transpose<0, 2, 1>(d)));
    const auto four = ep::einsum<"ij,jk,kl,nij->nl">(a, b, c, ep::slice<2, 0, 6>(ep::concat<2>(d, d)));
    const auto kept = ep::einsum<"ij,jk->ijk">(a, b);
    const auto loss = [&](auto x) {
      const auto y =
          ep::einsum<"ij,nik,nil->jkl">(ep::reshard<ep::none, model>(x), d, ep::shard<data, ep::none, model>(d));
      return ep::mean(y * y);
    };
    return ep::results(chain, outer, inner, batched, four, ep::einsum<"ijk->kj">(kept),
                       ep::value_and_grad(loss)(a).gradient);
  }
};
template <class On>
using einsums_program =
    ep::program<typename On::mesh, einsums<On>, ep::f64<4, 6>, ep::f64<6, 5>, ep::f64<5, 8>, ep::f64<3, 4, 4>>;

plains plain_einsums(const plains& in) {
  const plain &a = in[0], &b = in[1], &c = in[2], &d = in[3];
  plain chain({4, 8}), outer({5, 4}), batched({3, 4, 4}), four({3, 8}), kept({5, 6});
  plain inner = plain::number(0);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 6; ++j) {
      inner() += a(i, j) * a(i, j);
      for (int k = 0; k < 5; ++k) {
        kept(k, j) += a(i, j) * b(j, k);
        for (int other = 0; other < 6; ++other) outer(k, i) += a(i, j) * b(other, k);
        for (int l = 0; l < 8; ++l) {
          chain(i, l) += a(i, j) * b(j, k) * c(k, l);
          for (int n = 0; n < 3; ++n) four(n, l) += a(i, j) * b(j, k) * c(k, l) * d(n, i, j % 4);
        }
      }
    }
  }
  for (int n = 0; n < 3; ++n) {
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        for (int k = 0; k < 4; ++k) batched(n, k, i) += d(n, i, j) * d(n, k, j);
      }
    }
  }
  const auto loss = [](const plains& of) {
    real total = 0;
    for (int j = 0; j < 6; ++j) {
      for (int k = 0; k < 4; ++k) {
        for (int l = 0; l < 4; ++l) {
          real y = 0;
          for (int n = 0; n < 3; ++n) {
            for (int i = 0; i < 4; ++i) y += of[0](i, j) * of[3](n, i, k) * of[3](n, i, l);
          }
          total += y * y / 96;
        }
      }
    }
    return total;
  };
  return {chain, outer, inner, batched, four, kept, slope(loss, in, 0)};
}

void descend(plain& parameter, const plain& gradient) {
  for (std::size_t i = 0; i < parameter.data.size(); ++i) parameter.data[i] -= gradient.data[i];
}

// --- operators that do nothing for their sizes: their results are laid out otherwise than their operands -----------

template <class On> struct idle_operators {
  constexpr auto operator()(auto x, auto u, auto n) const {
    const auto loss = [&](auto given) {
      const auto a = ep::shard<typename On::data, ep::none>(ep::tanh(given));
      const auto turned = [](auto idle) { return ep::shard<ep::none, typename On::model>(idle) * idle; };
      return ep::sum(turned(ep::slice<0, 0, 8>(a)) + turned(ep::reshape<8, 6>(a)) +
                     turned(ep::dynamic_slice<0, 8>(a, n)) + turned(ep::dynamic_update_slice<0>(u, a, n)) +
                     turned(ep::transpose<0, 1>(a)) + turned(ep::pad<0, 0, 0>(a)) + turned(ep::broadcast_to<8, 6>(a)) +
                     turned(ep::convert<ep::dtype::f64>(a)) + turned(ep::concat<1>(a)) + turned(ep::roll<0, 0>(a)) +
                     turned(ep::shift<1, 0>(a)));
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(x);
    const auto fixed = ep::shard<ep::none, typename On::model>(
        ep::bit_cast<ep::dtype::f64>(ep::stop_gradient(ep::shard<typename On::data, ep::none>(x))));
    return ep::results(value, gradient, fixed);
  }
};
template <class On>
using idle_program = ep::program<typename On::mesh, idle_operators<On>, ep::f64<8, 6>, ep::f64<8, 6>, ep::i32<>>;

// Whatever the size: of seven rows the slice is one, of eight it is not.
template <int Rows> struct sliced {
  constexpr auto operator()(auto x) const {
    const auto a = ep::shard<on<2, 2>::data, ep::none>(ep::tanh(x));
    return ep::shard<ep::none, on<2, 2>::model>(ep::slice<0, 0, Rows>(a));
  }
};
template <int Rows> using sliced_program = ep::program<on<2, 2>::mesh, sliced<Rows>, ep::f64<8, 6>>;
static_assert(sliced_program<7>::collectives() == 1 && sliced_program<8>::collectives() == 1);

real plain_idle(const plains& in) {
  real sum = 0;
  for (const real x : in[0].data) sum += 11 * std::tanh(x) * std::tanh(x);
  return sum;
}

}  // namespace

TEST_CASE("kinds: weights and activations split over both axes, two steps in place", "[kinds]") {
  plains in{wave(1, {4, 8}), wave(2, {8, 4}), wave(3, {8, 4})};
  const plains start = in;
  real value = 0;
  for (int step = 0; step < 2; ++step) {
    value = plain_two_dimensional(in);
    const plains by{slope(plain_two_dimensional, in, 0), slope(plain_two_dimensional, in, 1)};
    descend(in[0], by[0]);
    descend(in[1], by[1]);
  }
  everywhere<two_dimensional_program>(both_ways{}, start, {in[0], in[1], plain::number(value)}, 1e-9, 2);
}

TEST_CASE("kinds: SUMMA", "[kinds]") {
  const plains in{wave(1, {8, 6}), wave(2, {6, 4}), wave(3, {3, 8, 2}), wave(4, {3, 2, 4})};
  plain c({8, 4}), panels({8, 4});
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int k = 0; k < 6; ++k) c(i, j) += in[0](i, k) * in[1](k, j);
      for (int k = 0; k < 6; ++k) panels(i, j) += in[2](k / 2, i, k % 2) * in[3](k / 2, k % 2, j);
    }
  }
  everywhere<summa_program>(both_axes{}, in, {c, panels});
}

TEST_CASE("kinds: sizes that divide by nothing", "[kinds]") {
  const plains in{wave(1, {3, 5}), wave(2, {5}), wave(3, {7, 2, 3})};
  plains out = value_and_slopes(plain_uneven, in, 2);
  plain logs({3, 7, 2});
  for (int i = 0; i < 3; ++i) {
    for (int b = 0; b < 2; ++b) {
      real sum = 0;
      for (int a = 0; a < 7; ++a) sum += std::exp(in[2](a, b, i));
      for (int a = 0; a < 7; ++a) logs(i, a, b) = in[2](a, b, i) - std::log(sum);
    }
  }
  out.push_back(logs);
  everywhere<uneven_program>(
      few_or_all<meshes<on<2, 2>, on<2, 4>>, meshes<on<1, 1>, on<2, 1>, on<2, 2>, on<4, 2>, on<2, 4>>>{}, in, out);
}

TEST_CASE("kinds: tiny sizes over more devices than elements", "[kinds]") {
  const plains in{wave(1, {2, 3}), wave(2, {3, 2}), wave(3, {1, 1})};
  plains out = value_and_slopes(plain_tiny, in, 1);
  plain turned({2, 6}), least({2});
  for (int i = 0; i < 2; ++i) {
    for (int b = 0; b < 6; ++b) turned(i, b) = in[1](b % 3, i);
    least(i) = std::min({in[1](0, i), in[1](1, i), in[1](2, i)});
  }
  out.insert(out.end(), {turned, plain({1, 1}, 1), least});
  everywhere<tiny_program>(
      few_or_all<meshes<on<2, 4>, on<8, 1>>, meshes<on<1, 1>, on<1, 2>, on<4, 1>, on<2, 4>, on<8, 1>>>{}, in, out);
}

TEST_CASE("kinds: meshes of 3, 5 and 6 devices", "[kinds]") {
  const plains in{wave(1, {4, 7}), wave(2, {7, 3}), wave(3, {10, 4})};
  plains out = value_and_slopes(plain_odd, in, 2);
  out.push_back(in[2]);
  out.back().extents = {4, 10};
  everywhere<odd_program>(
      few_or_all<meshes<on<1, 5>, on<2, 3>>, meshes<on<3, 1>, on<1, 5>, on<2, 3>, on<6, 1>, on<1, 1>>>{}, in, out);
}

TEST_CASE("kinds: ZeRO by hand", "[kinds]") {
  const plain none({3});
  const plains in{wave(1, {8, 3}), wave(2, {8, 3}), plain({8, 3}), wave(3, {8, 8})};
  plains out{in[0], in[1], in[2], plain::number(0)};
  const auto loss = [&](const plains& p) { return plain_zero({p[0], none, in[3]}); };
  const plain by = slope(loss, {in[0]}, 0);
  for (std::size_t i = 0; i < by.data.size(); ++i) {
    const real g = by.data[i];
    out[1].data[i] = 0.9L * in[1].data[i] + 0.1L * g;
    out[2].data[i] = 0.01L * g * g;
    out[0].data[i] -= 0.05L * out[1].data[i] / (std::sqrt(out[2].data[i]) + 1e-3L);
  }
  out[3] = plain::number(loss({in[0]}));
  everywhere<zero_by_hand_program>(both_axes{}, in, out);
}

TEST_CASE("kinds: ZeRO, three steps of AdamW in place", "[kinds]") {
  const plain x = wave(3, {8, 8});
  const real rate = 0.05L;
  plains p{wave(1, {8, 3}), wave(2, {3}), x};
  plains first{plain({8, 3}), plain({3})}, second = first;
  plains in{p[0], p[1], first[0], first[1], second[0], second[1], plain::number(0), x, plain::number(rate)};
  real value = 0;
  for (int step = 1; step <= 3; ++step) {
    value = plain_zero(p);
    const plains by{slope(plain_zero, p, 0), slope(plain_zero, p, 1)};
    for (std::size_t leaf = 0; leaf < 2; ++leaf) {
      for (std::size_t i = 0; i < by[leaf].data.size(); ++i) {
        const real g = by[leaf].data[i];
        real& m = first[leaf].data[i];
        real& v = second[leaf].data[i];
        m = 0.9L * m + 0.1L * g;
        v = 0.99L * v + 0.01L * g * g;
        if (leaf == 0) p[leaf].data[i] *= 1 - rate * 0.1L;  // biases do not decay
        p[leaf].data[i] -=
            rate * (m / (1 - std::pow(0.9L, step))) / (std::sqrt(v / (1 - std::pow(0.99L, step))) + 1e-8L);
      }
    }
  }
  everywhere<zero_program>(
      data_axis{}, in, {p[0], p[1], first[0], first[1], second[0], second[1], plain::number(3), plain::number(value)},
      1e-7, 3);
}

TEST_CASE("kinds: einsums of one to four operands", "[kinds]") {
  const plains in{wave(1, {4, 6}), wave(2, {6, 5}), wave(3, {5, 8}), wave(4, {3, 4, 4})};
  everywhere<einsums_program>(both_ways{}, in, plain_einsums(in));
}

TEST_CASE("kinds: operators that do nothing for their sizes", "[kinds]") {
  const plains in{wave(1, {8, 6}), wave(2, {8, 6}), plain::number(5)};
  plains out = value_and_slopes(plain_idle, in, 1);
  out.push_back(in[0]);
  everywhere<idle_program>(few_or_all<meshes<on<1, 1>, on<2, 4>>, meshes<on<1, 1>, on<2, 1>, on<2, 2>, on<2, 4>>>{}, in,
                           out);
}
