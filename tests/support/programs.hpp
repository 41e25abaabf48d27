// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/program/program.hpp>

/// Programs that between them use every op and every way of fusing, storing and moving its operands. Written with
/// float64, so that the executor and the oracle may differ by rounding only. Sizes are odd on purpose.
namespace testing::programs {

namespace ep = espalier;

/// Chains with operands of every stride: full, per row, per column, scalar, repeated in the middle.
template <class Data, class Model> struct chains {
  constexpr auto operator()(auto x, auto row, auto column, auto plane) const {
    x = ep::shard<Data, ep::none, Model>(x);
    auto a = ep::tanh(x + column) * row - 0.5 * plane;
    auto b = ep::select(a < 0.25, a, ep::exp(-a * a));
    auto centred = b - ep::mean<-1>(b, ep::keep_dims);
    auto normal = centred * ep::rsqrt(ep::mean<-1>(centred * centred, ep::keep_dims) + 1e-3);
    return ep::results(normal, ep::max<-1>(b), ep::sum<0, 1>(normal * x), ep::min<1>(b), ep::softmax<-1>(b));
  }
};
template <class Mesh, class Data, class Model>
using chains_program =
    ep::program<Mesh, chains<Data, Model>, ep::f64<6, 5, 7>, ep::f64<5, 1>, ep::f64<7>, ep::f64<5, 7>>;

/// Gradients through everything that moves elements.
template <class Data, class Model> struct movers {
  constexpr auto loss(auto table, auto weight, auto index) const {
    auto rows = ep::gather<0>(table, index);  // [4, 6, 5]
    rows = ep::shard<Data, ep::none, ep::none>(rows);
    auto wide = ep::concat<2>(rows, ep::slice<2, 1, 4>(rows), rows);  // [4, 6, 13]
    auto turned = ep::transpose<1, 0, 2>(wide);                       // [6, 4, 13]
    auto flat = ep::reshape<24, 13>(turned);
    auto mixed = ep::silu(ep::einsum<"nk,km->nm">(flat, weight));  // [24, 7]
    mixed = ep::shard<ep::open, Model>(mixed);
    auto hot = ep::one_hot<7, ep::dtype::f64>(ep::reshape<24>(index));
    return ep::sum(mixed * hot) +
           ep::mean(ep::prod<1>(ep::slice<1, 0, 3>(mixed), ep::keep_dims) + ep::log_softmax<0>(mixed) * 0.1);
  }
  constexpr auto operator()(auto table, auto weight, auto index) const {
    const auto by_table = [&](auto t, auto w, auto i) { return loss(t, w, i); };
    const auto [value, gradient] = ep::value_and_grad(by_table)(table, weight, index);
    const auto by_weight = [&](auto w, auto t, auto i) { return loss(t, w, i); };
    return ep::results(value, gradient, ep::value_and_grad(by_weight)(weight, table, index).gradient);
  }
};
template <class Mesh, class Data, class Model>
using movers_program = ep::program<Mesh, movers<Data, Model>, ep::f64<9, 5>, ep::f64<13, 7>, ep::i32<4, 6>>;

/// Changes of layout that no named collective does alone, and their gradients.
template <class Data, class Model> struct switches {
  constexpr auto operator()(auto x) const {
    x = ep::shard<Data, Model>(x);
    const auto loss = [](auto a) {
      const auto turned = ep::reshard<Model, Data>(ep::tanh(a));
      const auto columns = ep::reshard<ep::none, Data>(a * 0.5);
      return ep::mean(turned * turned + columns);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(x);
    return ep::results(value, gradient, ep::reshard<ep::none, Data>(x), ep::reshard<Model, Data>(x));
  }
};
template <class Mesh, class Data, class Model>
using switches_program = ep::program<Mesh, switches<Data, Model>, ep::f64<10, 7>>;

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f64<6, 10>>, up), (ep::leaf<Leaf, ep::f64<10, 6>>, down),
                           (ep::leaf<Leaf, ep::f64<6>>, gain));
};
template <class Leaf> using layers = layer<ep::stacked<Leaf, 3>>;

/// A loop over stacked parameters with its gradient and an update in place: donated, with and without recomputation.
template <class Data, class Model, bool Recompute> struct training {
  struct body {
    constexpr auto operator()(auto x, const auto& one) const {
      auto h = ep::gelu(ep::einsum<"bm,mh->bh">(x * one.gain, one.up));
      h = ep::shard<Data, Model>(h);
      return x + ep::einsum<"bh,hm->bm">(h, one.down);
    }
  };
  struct loss {
    constexpr auto operator()(const auto& parameters, auto x) const {
      const auto y = [&] {
        if constexpr (Recompute) {
          return ep::scan(body{}, x, parameters, ep::recompute);
        } else {
          return ep::scan(body{}, x, parameters);
        }
      }();
      return ep::mean(y * y);
    }
  };
  constexpr auto operator()(const auto& parameters, auto x) const {
    const auto [value, gradient] = ep::value_and_grad(loss{})(parameters, x);
    auto next = parameters;
    ep::detail::for_each_pair(next, gradient, [](auto& p, const auto& g) { p = p - 0.1 * g; });
    return ep::results(next, value);
  }
};
template <class Mesh, class Data, class Model, bool Recompute>
using training_program =
    ep::program<Mesh, training<Data, Model, Recompute>, ep::donated<layers<ep::spec>>, ep::f64<7, 6>>;

/// Causal attention and cross entropy with classes split over a mesh axis.
template <class Data, class Model> struct attention {
  constexpr auto operator()(auto x, auto w, auto out, auto targets) const {
    const auto loss = [&](auto weight, auto input) {
      auto q = ep::einsum<"bsw,whd->bshd">(ep::shard<Data, ep::none, ep::none>(input), weight);
      q = ep::shard<Data, ep::none, Model, ep::none>(q);
      const auto mixed = ep::nn::causal_attention(q, ep::tanh(q), ep::sigmoid(q));
      auto logits = ep::einsum<"bshd,hdv->bsv">(mixed, out);
      logits = ep::shard<Data, ep::none, Model>(logits);
      return ep::nn::cross_entropy(logits, targets);
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(w, x);
    return ep::results(value, gradient);
  }
};
template <class Mesh, class Data, class Model>
using attention_program =
    ep::program<Mesh, attention<Data, Model>, ep::f64<3, 5, 6>, ep::f64<6, 3, 2>, ep::f64<3, 2, 5>, ep::i32<3, 5>>;

}  // namespace testing::programs
