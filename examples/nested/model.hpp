// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>
#include <espalier/vmap.hpp>

#include <boost/hana/define_struct.hpp>

/// An encoder of mixtures of experts and a decoder that reads what it has encoded, each a pipeline of its own in one
/// program, for one device. Dimensions have the names of the GSPMD paper (arXiv 2105.04663): T micro-batches of B texts
/// each, sequence S, model M, vocabulary V, hidden units H, experts E of capacity C, L stages.
namespace nested {

namespace ep = espalier;

inline constexpr int T = 4;
inline constexpr int B = 8;
inline constexpr int S = 64;
inline constexpr int M = 32;
inline constexpr int V = 1024;
inline constexpr int H = 16;
inline constexpr int E = 4;
inline constexpr int C = 20;

template <class Leaf> struct encoder_layer {
  BOOST_HANA_DEFINE_STRUCT(encoder_layer, (ep::leaf<Leaf, ep::f32<M>>, gain), (ep::leaf<Leaf, ep::f32<M, M>>, mix),
                           (ep::leaf<Leaf, ep::f32<M, E>>, gate), (ep::leaf<Leaf, ep::f32<E, M, H>>, up),
                           (ep::leaf<Leaf, ep::f32<E, H, M>>, down));
};
template <class Leaf> struct decoder_layer {
  BOOST_HANA_DEFINE_STRUCT(decoder_layer, (ep::leaf<Leaf, ep::f32<M>>, gain), (ep::leaf<Leaf, ep::f32<M, M>>, query),
                           (ep::leaf<Leaf, ep::f32<M, H>>, up), (ep::leaf<Leaf, ep::f32<H, M>>, down));
};
template <int L> struct of_stages {
  template <class Leaf> struct parameters {
    using encoder_type = encoder_layer<ep::stacked<Leaf, L>>;
    using decoder_type = decoder_layer<ep::stacked<Leaf, L>>;
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<V, M>>, words), (encoder_type, encoder),
                             (decoder_type, decoder));
  };
};
using texts = ep::i32<T, B, S>;

template <int L, class X, class Y> struct on {
  using none = ep::none;

  /// A micro-batch through L stages, one after the other
  struct encoder_stage {
    constexpr auto operator()(const auto& x, const auto& w) const {
      const auto n = ep::nn::rms_norm(x, w.gain);
      const auto h = x + ep::tanh(ep::einsum<"bsm,mn->bsn">(n, w.mix));
      const auto odds = ep::softmax<-1>(ep::einsum<"bsm,me->bse">(h, w.gate));
      const auto chosen = ep::one_hot<E>(ep::argmax<-1>(odds));
      const auto before = ep::cumsum<1>(chosen) - chosen;
      const auto place = ep::one_hot<C>(ep::convert<ep::dtype::i32>(ep::sum<-1>(before * chosen)));
      const auto dispatch = ep::einsum<"bse,bsc->bsec">(chosen, place);
      const auto taken = ep::shard<Y, none, none, none>(ep::einsum<"bsec,bsm->ebcm">(dispatch, h));
      const auto hidden = ep::relu(ep::einsum<"ebcm,emh->ebch">(taken, w.up));
      const auto answers = ep::einsum<"ebch,ehm->ebcm">(hidden, w.down);
      const auto back = ep::shard<none, Y, none, none>(answers);
      return h + ep::einsum<"bsec,ebcm->bsm">(ep::expand_dims<3>(odds) * dispatch, back);
    }
  };
  struct decoder_stage {
    constexpr auto operator()(const auto& x, const auto& w, const auto& memory) const {
      const auto q = ep::matmul(ep::nn::rms_norm(x, w.gain), w.query);
      const auto seen = ep::softmax<-1>(ep::einsum<"bsm,btm->bst">(q, memory));
      const auto h = x + ep::einsum<"bst,btm->bsm">(seen, memory);
      return h + ep::matmul(ep::relu(ep::matmul(h, w.up)), w.down);
    }
  };

  static constexpr auto buffer(const auto& v) { return ep::shard<X, Y, none, none>(v); }

  template <class Stage> static constexpr auto pipeline(const Stage& stage, const auto& inputs) {
    const auto is_first = ep::equal(ep::iota<ep::i32<L, B, S, M>, 0>(inputs), 0);
    const auto step = [&](auto state, auto given) {
      const auto [input, t] = given;
      const auto fed =
          ep::select(is_first, ep::broadcast_to<L, B, S, M>(input), ep::shift<0, 1>(state));
      const auto next = buffer(stage(fed, t));
      return ep::results(next, next);
    };
    const auto start = buffer(ep::constant<ep::f32<L, B, S, M>>(inputs, 0));
    const auto all = ep::scan(step, start, ep::results(ep::pad<0, 0, L - 1>(inputs), ep::iota<ep::i32<T + L - 1>, 0>(inputs))).template get<1>();
    return ep::take<1, -1>(ep::slice<0, L - 1, T + L - 1>(all));
  }

  static constexpr auto embed(const auto& words, const auto& ids) {
    const auto rows = ep::gather<0>(words, ep::shard<X, none, none>(ids));
    return ep::reshard<none, Y, none, none>(ep::shard<X, Y, none, none>(rows));
  }

  struct loss {
    constexpr auto operator()(const auto& p, const auto& source, const auto& written, const auto& wanted) const {
      const auto words = ep::shard<Y, none>(p.words);
      const auto encode = [&](const auto& fed, const auto&) { return ep::vmap(encoder_stage{})(fed, placed(p.encoder)); };
      const auto encoded = ep::shard<X, Y, none, none>(pipeline(encode, embed(words, source)));
      const auto memory = ep::reshard<none, Y, none, none>(encoded);
      const auto decode = [&](const auto& fed, const auto& t) {
        const auto number = ep::minimum(ep::maximum(t - ep::iota<ep::i32<L>, 0>(fed), 0), T - 1);
        return ep::vmap<0, 0, 0, ep::unmapped>([](auto x, auto w, auto at, auto all) {
          return decoder_stage{}(x, w, ep::gather<0>(all, at));
        })(fed, p.decoder, number, memory);
      };
      const auto decoded = ep::shard<X, Y, none, none>(pipeline(decode, embed(words, written)));
      const auto logits = ep::shard<X, none, none, Y>(ep::einsum<"tbsm,vm->tbsv">(decoded, words));
      return ep::nn::cross_entropy(logits, ep::shard<X, none, none>(wanted));
    }
  };
  static constexpr auto placed(auto w) {
    w.gain = ep::shard<X, none>(w.gain);
    w.mix = ep::shard<X, none, none>(w.mix);
    w.gate = ep::shard<X, none, none>(w.gate);
    w.up = ep::shard<X, Y, none, none>(w.up);
    w.down = ep::shard<X, Y, none, none>(w.down);
    return w;
  }

  struct train_step {
    constexpr auto operator()(const auto& p, const auto& source, const auto& written, const auto& wanted) const {
      const auto [value, gradient] = ep::value_and_grad(loss{})(p, source, written, wanted);
      return ep::results(ep::tree_zip([](auto w, auto g) { return w - 0.5 * g; }, p, gradient), value);
    }
  };
};

template <class Mesh, int L, class X, class Y>
using training = ep::program<Mesh, typename on<L, X, Y>::train_step,
                             ep::donated<typename of_stages<L>::template parameters<ep::spec>>, texts, texts, texts>;
template <class Mesh, int L, class X, class Y>
using evaluation = ep::program<Mesh, typename on<L, X, Y>::loss,
                               typename of_stages<L>::template parameters<ep::spec>, texts, texts, texts>;

}  // namespace nested
