// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/kinds.hpp>

namespace ep = espalier;
using namespace testing::kinds;

namespace {

std::vector<real> plain_softmax(const std::vector<real>& scores) {
  real sum = 0;
  std::vector<real> result;
  for (const real one : scores) sum += std::exp(one);
  for (const real one : scores) result.push_back(std::exp(one) / sum);
  return result;
}

// --- grouped-query attention: 4 heads ask, 2 answer; causal ---------------------------------------------------------

template <class On> struct grouped_queries {
  constexpr auto operator()(auto wq, auto wk, auto wv, auto wo, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto rows = ep::shard<typename On::data, ep::none, ep::none>(x);
      const auto heads = ep::einsum<"bsw,whd->bshd">(rows, p.template get<0>());
      auto q = ep::reshape<2, 4, 2, 2, 3>(heads);  // groups of two
      q = ep::shard<typename On::data, ep::none, typename On::model, ep::none, ep::none>(q);
      const auto k = ep::einsum<"bsw,wgd->bsgd">(rows, p.template get<1>());
      const auto v = ep::einsum<"bsw,wgd->bsgd">(rows, p.template get<2>());
      const auto scores = ep::einsum<"bqgrd,bkgd->bgrqk">(q, k) * 0.5773502691896258;
      const auto weights = ep::softmax<-1>(ep::nn::hide_future(scores));
      const auto mixed = ep::einsum<"bgrqk,bkgd->bqgrd">(weights, v);
      const auto y = ep::einsum<"bshd,hdw->bsw">(ep::reshape<2, 4, 4, 3>(mixed), p.template get<3>());
      return ep::mean(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(wq, wk, wv, wo));
    return ep::results(value, gradient);
  }
};
template <class On>
using grouped_program = ep::program<typename On::mesh, grouped_queries<On>, ep::f64<5, 4, 3>, ep::f64<5, 2, 3>,
                                    ep::f64<5, 2, 3>, ep::f64<4, 3, 5>, ep::f64<2, 4, 5>>;
static_assert(grouped_program<on<2, 2>>::collectives<ep::all_reduce>() == 2);
static_assert(grouped_program<on<2, 2>>::collectives() == 2);

real plain_grouped(const plains& in) {
  const plain &wq = in[0], &wk = in[1], &wv = in[2], &wo = in[3], &x = in[4];
  const auto project = [&](const plain& w, int b, int s, int h, int d) {
    real sum = 0;
    for (int i = 0; i < 5; ++i) sum += x(b, s, i) * w(i, h, d);
    return sum;
  };
  real total = 0;
  for (int b = 0; b < 2; ++b) {
    for (int s = 0; s < 4; ++s) {
      plain y({5});
      for (int h = 0; h < 4; ++h) {
        std::vector<real> scores;
        for (int t = 0; t <= s; ++t) {
          real score = 0;
          for (int d = 0; d < 3; ++d) score += project(wq, b, s, h, d) * project(wk, b, t, h / 2, d);
          scores.push_back(score / std::sqrt(3.0L));
        }
        const std::vector<real> weights = plain_softmax(scores);
        for (int t = 0; t <= s; ++t) {
          for (int d = 0; d < 3; ++d) {
            const real mixed = weights[static_cast<std::size_t>(t)] * project(wv, b, t, h / 2, d);
            for (int i = 0; i < 5; ++i) y(i) += mixed * wo(h, d, i);
          }
        }
      }
      for (int i = 0; i < 5; ++i) total += y(i) * y(i) / 40;
    }
  }
  return total;
}

// --- cross attention over a memory of which some places are padding -------------------------------------------------

template <class On> struct cross_attention {
  constexpr auto operator()(auto wq, auto wkv, auto x, auto memory, auto present) const {
    const auto loss = [&](const auto& p) {
      auto q = ep::einsum<"bsw,whd->bshd">(x, p.template get<0>());
      q = ep::shard<typename On::data, ep::none, typename On::model, ep::none>(q);
      const auto kv = ep::einsum<"btw,whd->bthd">(memory, p.template get<1>());  // keys, then values
      const auto k = ep::slice<3, 0, 2>(kv);
      const auto v = ep::slice<3, 2, 4>(kv);
      auto scores = ep::nn::attention_scores(q, k);
      scores = ep::select(ep::reshape<4, 1, 1, 5>(present), scores, -1e9);
      const auto y = ep::nn::attention_mix(ep::softmax<-1>(scores), v);
      return ep::mean(y * y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(wq, wkv));
    return ep::results(value, gradient);
  }
};
template <class On>
using cross_program = ep::program<typename On::mesh, cross_attention<On>, ep::f64<3, 4, 2>, ep::f64<3, 4, 4>,
                                  ep::f64<4, 3, 3>, ep::f64<4, 5, 3>, ep::boolean<4, 5>>;
static_assert(cross_program<on<2, 4>>::collectives<ep::all_reduce>() == 2);
static_assert(cross_program<on<2, 4>>::collectives() == 2);

real plain_cross(const plains& in) {
  const plain &wq = in[0], &wkv = in[1], &x = in[2], &memory = in[3], &present = in[4];
  real total = 0;
  for (int b = 0; b < 4; ++b) {
    for (int h = 0; h < 4; ++h) {
      plain kv({5, 4});
      for (int t = 0; t < 5; ++t) {
        for (int d = 0; d < 4; ++d) {
          for (int i = 0; i < 3; ++i) kv(t, d) += memory(b, t, i) * wkv(i, h, d);
        }
      }
      for (int s = 0; s < 3; ++s) {
        std::vector<real> scores;
        for (int t = 0; t < 5; ++t) {
          real score = 0;
          for (int d = 0; d < 2; ++d) {
            real q = 0;
            for (int i = 0; i < 3; ++i) q += x(b, s, i) * wq(i, h, d);
            score += q * kv(t, d) / std::sqrt(2.0L);
          }
          scores.push_back(present(b, t) != 0 ? score : -1e9L);
        }
        const std::vector<real> weights = plain_softmax(scores);
        for (int d = 2; d < 4; ++d) {
          real y = 0;
          for (int t = 0; t < 5; ++t) y += weights[static_cast<std::size_t>(t)] * kv(t, d);
          total += y * y * y / 96;
        }
      }
    }
  }
  return total;
}

// --- linear attention: as a loop over time with a state, and as one masked product ----------------------------------

template <class On> struct linear_attention {
  static constexpr auto feature(const auto& x) { return ep::select(x > 0.0, x + 1.0, ep::exp(x)); }
  constexpr auto operator()(auto q, auto k, auto v) const {  // [time, batch, heads, size]
    const auto step = [](const auto& state, const auto& now) {
      const auto fk = feature(now.template get<1>());
      const auto fq = feature(now.template get<0>());
      auto sums = state.template get<0>() + ep::einsum<"bhd,bhe->bhde">(fk, now.template get<2>());
      sums = ep::shard<typename On::data, typename On::model, ep::none, ep::none>(sums);
      const auto total = state.template get<1>() + fk;
      const auto above = ep::einsum<"bhd,bhde->bhe">(fq, sums);
      const auto below = ep::einsum<"bhd,bhd->bh">(fq, total);
      return ep::results(ep::results(sums, total), above / ep::reshape<4, 4, 1>(below));
    };
    const auto start = ep::results(ep::constant<ep::f64<4, 4, 3, 2>>(q, 0.0), ep::constant<ep::f64<4, 4, 3>>(q, 0.0));
    const auto looped = ep::scan(step, start, ep::results(q, k, v)).template get<1>();

    const auto weights = ep::einsum<"sbhd,tbhd->bhst">(feature(q), feature(k));
    const auto row = ep::iota<ep::i32<5, 5>, 0>(q);
    const auto column = ep::iota<ep::i32<5, 5>, 1>(q);
    const auto seen = ep::select(column <= row, weights, 0.0);
    const auto normal = seen / ep::sum<-1>(seen, ep::keep_dims);
    return ep::results(looped, ep::einsum<"bhst,tbhe->sbhe">(normal, v));
  }
};
template <class On>
using linear_program =
    ep::program<typename On::mesh, linear_attention<On>, ep::f64<5, 4, 4, 3>, ep::f64<5, 4, 4, 3>, ep::f64<5, 4, 4, 2>>;
static_assert(linear_program<on<2, 2>>::collectives() == 0);

plain plain_linear(const plains& in) {
  const auto feature = [](real x) { return x > 0 ? x + 1 : std::exp(x); };
  plain y({5, 4, 4, 2});
  for (int b = 0; b < 4; ++b) {
    for (int h = 0; h < 4; ++h) {
      for (int s = 0; s < 5; ++s) {
        real below = 0;
        for (int t = 0; t <= s; ++t) {
          real weight = 0;
          for (int d = 0; d < 3; ++d) weight += feature(in[0](s, b, h, d)) * feature(in[1](t, b, h, d));
          below += weight;
          for (int e = 0; e < 2; ++e) y(s, b, h, e) += weight * in[2](t, b, h, e);
        }
        for (int e = 0; e < 2; ++e) y(s, b, h, e) /= below;
      }
    }
  }
  return y;
}

// --- a mixture of experts: every token goes to its best two ---------------------------------------------------------

template <class On> struct mixture {
  constexpr auto operator()(auto router, auto up, auto down, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto tokens = ep::shard<typename On::data, ep::none>(x);
      const auto odds = ep::softmax<-1>(ep::matmul(tokens, p.template get<0>()));
      const auto best = ep::max<-1>(odds, ep::keep_dims);
      const auto rest = ep::select(odds >= best, -1.0, odds);
      const auto chosen = odds >= ep::max<-1>(rest, ep::keep_dims);
      const auto gate = ep::select(chosen, odds, 0.0);
      const auto share = gate / ep::sum<-1>(gate, ep::keep_dims);
      auto h = ep::relu(ep::einsum<"ni,eih->enh">(tokens, p.template get<1>()));
      h = ep::shard<typename On::model, typename On::data, ep::none>(h);  // an expert lives on one model device
      const auto y = ep::einsum<"ne,enh,eho->no">(share, h, p.template get<2>());
      const auto load = ep::mean<0>(odds);
      return ep::mean(y * y) + 0.1 * ep::sum(load * load);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(router, up, down));
    return ep::results(value, gradient);
  }
};
template <class On>
using mixture_program =
    ep::program<typename On::mesh, mixture<On>, ep::f64<3, 4>, ep::f64<4, 3, 5>, ep::f64<4, 5, 2>, ep::f64<8, 3>>;

real plain_mixture(const plains& in) {
  const plain &router = in[0], &up = in[1], &down = in[2], &x = in[3];
  real total = 0;
  plain load({4});
  for (int n = 0; n < 8; ++n) {
    std::vector<real> scores(4);
    for (int e = 0; e < 4; ++e) {
      for (int i = 0; i < 3; ++i) scores[static_cast<std::size_t>(e)] += x(n, i) * router(i, e);
    }
    const std::vector<real> odds = plain_softmax(scores);
    std::vector<real> sorted = odds;
    std::sort(sorted.begin(), sorted.end());
    plain y({2});
    for (int e = 0; e < 4; ++e) {
      const real odd = odds[static_cast<std::size_t>(e)];
      load(e) += odd / 8;
      if (odd < sorted[2]) continue;
      for (int j = 0; j < 5; ++j) {
        real h = 0;
        for (int i = 0; i < 3; ++i) h += x(n, i) * up(e, i, j);
        for (int o = 0; o < 2; ++o) y(o) += odd / (sorted[2] + sorted[3]) * std::max(h, 0.0L) * down(e, j, o);
      }
    }
    for (int o = 0; o < 2; ++o) total += y(o) * y(o) / 16;
  }
  for (int e = 0; e < 4; ++e) total += 0.1L * load(e) * load(e);
  return total;
}

// --- three axes: data, sequence and model ---------------------------------------------------------------------------

template <int Data, int Sequence, int Model> struct three {
  struct data : ep::axis<"data", Data> {};
  struct sequence : ep::axis<"sequence", Sequence> {};
  struct model : ep::axis<"model", Model> {};
  using mesh = ep::mesh<data, sequence, model>;
};
template <class On> struct block {
  constexpr auto operator()(auto wqkv, auto wo, auto gain, auto bias, auto x) const {
    const auto loss = [&](const auto& p) {
      const auto rows = ep::shard<typename On::data, typename On::sequence, ep::none>(x);
      const auto normal = ep::nn::layer_norm(rows, p.template get<2>(), p.template get<3>());
      auto qkv = ep::einsum<"bsw,wnhd->nbshd">(normal, p.template get<0>());
      qkv = ep::shard<ep::none, typename On::data, ep::open, typename On::model, ep::none>(qkv);
      const auto part = [&](auto one) { return ep::reshape<2, 4, 2, 2>(one); };
      const auto q = part(ep::slice<0, 0, 1>(qkv));
      const auto k = part(ep::slice<0, 1, 2>(qkv));
      const auto v = part(ep::slice<0, 2, 3>(qkv));
      const auto mixed = ep::nn::causal_attention(q, k, v);
      auto y = rows + ep::einsum<"bshd,hdw->bsw">(mixed, p.template get<1>());
      y = ep::shard<typename On::data, typename On::sequence, ep::none>(y);
      return ep::mean(y * y);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(wqkv, wo, gain, bias));
    return ep::results(value, gradient);
  }
};
template <class On>
using block_program = ep::program<typename On::mesh, block<On>, ep::f64<4, 3, 2, 2>, ep::f64<2, 2, 4>, ep::f64<4>,
                                  ep::f64<4>, ep::f64<2, 4, 4>>;

real plain_block(const plains& in) {
  const plain &wqkv = in[0], &wo = in[1], &gain = in[2], &bias = in[3], &x = in[4];
  real total = 0;
  for (int b = 0; b < 2; ++b) {
    plain qkv({3, 4, 2, 2});
    for (int s = 0; s < 4; ++s) {
      real mean = 0, square = 0;
      for (int w = 0; w < 4; ++w) mean += x(b, s, w) / 4;
      for (int w = 0; w < 4; ++w) square += (x(b, s, w) - mean) * (x(b, s, w) - mean) / 4;
      for (int w = 0; w < 4; ++w) {
        const real normal = (x(b, s, w) - mean) / std::sqrt(square + 1e-5L) * gain(w) + bias(w);
        for (int n = 0; n < 3; ++n) {
          for (int h = 0; h < 2; ++h) {
            for (int d = 0; d < 2; ++d) qkv(n, s, h, d) += normal * wqkv(w, n, h, d);
          }
        }
      }
    }
    for (int s = 0; s < 4; ++s) {
      plain y({4});
      for (int w = 0; w < 4; ++w) y(w) = x(b, s, w);
      for (int h = 0; h < 2; ++h) {
        std::vector<real> scores;
        for (int t = 0; t <= s; ++t) {
          scores.push_back((qkv(0, s, h, 0) * qkv(1, t, h, 0) + qkv(0, s, h, 1) * qkv(1, t, h, 1)) / std::sqrt(2.0L));
        }
        const std::vector<real> weights = plain_softmax(scores);
        for (int t = 0; t <= s; ++t) {
          for (int d = 0; d < 2; ++d) {
            for (int w = 0; w < 4; ++w) y(w) += weights[static_cast<std::size_t>(t)] * qkv(2, t, h, d) * wo(h, d, w);
          }
        }
      }
      for (int w = 0; w < 4; ++w) total += y(w) * y(w) / 32;
    }
  }
  return total;
}

}  // namespace

TEST_CASE("kinds: grouped-query attention", "[kinds]") {
  const plains in{wave(1, {5, 4, 3}), wave(2, {5, 2, 3}), wave(3, {5, 2, 3}), wave(4, {4, 3, 5}), wave(5, {2, 4, 5})};
  everywhere<grouped_program>(both_axes{}, in, value_and_slopes(plain_grouped, in, 4));
}

TEST_CASE("kinds: cross attention with padding", "[kinds]") {
  plains in{wave(1, {3, 4, 2}), wave(2, {3, 4, 4}), wave(3, {4, 3, 3}), wave(4, {4, 5, 3}), indices(5, {4, 5}, 2)};
  for (int b = 0; b < 4; ++b) in[4](b, b) = 1;  // one place at least
  everywhere<cross_program>(both_axes{}, in, value_and_slopes(plain_cross, in, 2));
}

TEST_CASE("kinds: linear attention, step by step and at once", "[kinds]") {
  const plains in{wave(1, {5, 4, 4, 3}), wave(2, {5, 4, 4, 3}), wave(3, {5, 4, 4, 2})};
  const plain out = plain_linear(in);
  everywhere<linear_program>(both_axes{}, in, {out, out});
}

TEST_CASE("kinds: a mixture of experts", "[kinds]") {
  const plains in{wave(1, {3, 4}, 2), wave(2, {4, 3, 5}), wave(3, {4, 5, 2}), wave(4, {8, 3}, 2)};
  everywhere<mixture_program>(both_axes{}, in, value_and_slopes(plain_mixture, in, 3));
}

TEST_CASE("kinds: an attention block over three axes", "[kinds]") {
  const plains in{wave(1, {4, 3, 2, 2}), wave(2, {2, 2, 4}), wave(3, {4}), wave(4, {4}), wave(5, {2, 4, 4})};
  everywhere<block_program>(few_or_all<meshes<three<2, 1, 2>, three<2, 2, 2>>,
                                       meshes<three<1, 1, 1>, three<1, 2, 1>, three<2, 1, 2>, three<2, 2, 2>>>{},
                            in, value_and_slopes(plain_block, in, 4));
}
