// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/shifting_buffer.hpp"

#include <espalier/core.hpp>
#include <espalier/nn.hpp>
#include <espalier/vmap.hpp>

#include <boost/hana/define_struct.hpp>

/// An encoder of mixtures of experts and a decoder that reads what it has encoded, each a pipeline of its own in the
/// same program (GSPMD, arXiv 2105.04663, figure 2). One mesh serves four purposes: x splits the batch where words are
/// looked up and predicted, and the stages in between; y splits the vocabulary, the texts of a micro-batch, and the
/// experts. Dimensions have the names of the paper: T micro-batches of B texts, sequence S, model M, vocabulary V,
/// hidden units H, experts E of capacity C; L stages of one layer each.
namespace nested {

namespace ep = espalier;

inline constexpr int T = 4;
inline constexpr int B = 8;
inline constexpr int S = 48;
inline constexpr int M = 32;
inline constexpr int V = 896;
inline constexpr int H = 16;
inline constexpr int E = 4;
/// A place for each token, and a quarter more: an expert that is asked more often turns tokens away.
inline constexpr int C = S * 5 / 4 / E;

/// A dense layer, and one of E experts for each token.
template <class Leaf> struct encoder_layer {
  BOOST_HANA_DEFINE_STRUCT(encoder_layer, (ep::leaf<Leaf, ep::f32<M>>, gain), (ep::leaf<Leaf, ep::f32<M, M>>, dense),
                           (ep::leaf<Leaf, ep::f32<M, E>>, gate), (ep::leaf<Leaf, ep::f32<E, M, H>>, up),
                           (ep::leaf<Leaf, ep::f32<E, H, M>>, down));
};
/// Attention to what is encoded, and a dense network.
template <class Leaf> struct decoder_layer {
  BOOST_HANA_DEFINE_STRUCT(decoder_layer, (ep::leaf<Leaf, ep::f32<M>>, gain), (ep::leaf<Leaf, ep::f32<M, M>>, query),
                           (ep::leaf<Leaf, ep::f32<M, H>>, up), (ep::leaf<Leaf, ep::f32<H, M>>, down));
};
/// The parameters: `words` begins both pipelines and ends the second.
template <int L> struct with_stages {
  template <class Leaf> struct parameters {
    using encoder_type = encoder_layer<ep::stacked<Leaf, L>>;
    using decoder_type = decoder_layer<ep::stacked<Leaf, L>>;
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<V, M>>, words), (encoder_type, encoder),
                             (decoder_type, decoder));
  };
};
using texts = ep::i32<T, B, S>;

/// The model of L stages on a mesh with the axes X and Y, or on one device (`ep::none` twice).
template <int L, class X, class Y> struct on {
  using none = ep::none;

  // --- one stage on one micro-batch, [B, S, M] ----------------------------------------------------------------------

  struct encoder_stage {
    constexpr auto operator()(const auto& x, const auto& w) const {
      const auto h = x + ep::tanh(ep::einsum<"bsm,mn->bsn">(ep::nn::rms_norm(x, w.gain), w.dense));
      const auto odds = ep::softmax<-1>(ep::einsum<"bsm,me->bse">(h, w.gate));
      // Each token goes to the expert that it most likely wants, as long as that has room (Switch, arXiv 2101.03961).
      const auto chosen = ep::one_hot<E>(ep::argmax<-1>(odds));
      const auto before = ep::cumsum<1>(chosen) - chosen;
      const auto place = ep::one_hot<C>(ep::convert<ep::dtype::i32>(ep::sum<-1>(before * chosen)));
      const auto dispatch = ep::einsum<"bse,bsc->bsec">(chosen, place);
      const auto taken = ep::shard<Y, none, none, none>(ep::einsum<"bsec,bsm->ebcm">(dispatch, h));
      const auto hidden = ep::relu(ep::einsum<"ebcm,emh->ebch">(taken, w.up));
      const auto answers = ep::shard<none, Y, none, none>(ep::einsum<"ebch,ehm->ebcm">(hidden, w.down));
      return h + ep::einsum<"bsec,ebcm->bsm">(ep::expand_dims<3>(odds) * dispatch, answers);
    }
  };
  struct decoder_stage {
    constexpr auto operator()(const auto& x, const auto& w, const auto& memory) const {
      const auto query = ep::matmul(ep::nn::rms_norm(x, w.gain), w.query);
      const auto seen = ep::softmax<-1>(ep::einsum<"bsm,btm->bst">(query, memory) * 0.2);
      const auto h = x + ep::einsum<"bst,btm->bsm">(seen, memory);
      return h + ep::matmul(ep::relu(ep::matmul(h, w.up)), w.down);
    }
  };

  // --- both pipelines ---------------------------------------------------------------------------------------------

  /// A lookup in a table that is split by its rows is a sum over y, which is scattered over the texts; all stages get
  /// all micro-batches.
  static constexpr auto embed(const auto& words, const auto& text) {
    const auto rows = ep::gather<0>(words, ep::shard<X, none, none>(text));
    return to_stages(ep::shard<X, Y, none, none>(rows));
  }
  static constexpr auto to_stages(const auto& rows) { return ep::reshard<none, Y, none, none>(rows); }

  /// The mean cross-entropy of the words `wanted` after `source` was read and, of the result, `written`.
  struct loss {
    constexpr auto operator()(const auto& p, const auto& source, const auto& written, const auto& wanted) const {
      const auto words = ep::shard<Y, none>(p.words);
      auto encoder = p.encoder;
      encoder.up = ep::shard<X, Y, none, none>(encoder.up);
      encoder.down = ep::shard<X, Y, none, none>(encoder.down);

      const auto encode = [&](const auto& state, const auto& /*t*/) {
        return ep::vmap(encoder_stage{})(state, encoder);
      };
      const auto encoded =
          ep::shard<X, Y, none, none>(pipelined::shifting_buffer<L, X, Y>(encode, embed(words, source)));

      // Stage s works on micro-batch t - s, and reads what was encoded of that.
      const auto memory = to_stages(encoded);
      const auto decode = [&](const auto& state, const auto& t) {
        const auto number = ep::minimum(ep::maximum(t - ep::iota<ep::i32<L>, 0>(state), 0), T - 1);
        const auto one = [](const auto& x, const auto& w, const auto& n, const auto& all) {
          return decoder_stage{}(x, w, ep::gather<0>(all, n));
        };
        return ep::vmap<0, 0, 0, ep::unmapped>(one)(state, p.decoder, number, memory);
      };
      const auto decoded =
          ep::shard<X, Y, none, none>(pipelined::shifting_buffer<L, X, Y>(decode, embed(words, written)));
      const auto logits = ep::shard<X, none, none, Y>(ep::einsum<"tbsm,vm->tbsv">(decoded, words));
      return ep::nn::cross_entropy(logits, ep::shard<X, none, none>(wanted));
    }
  };

  /// A step of gradient descent: (parameters, source, written, wanted) -> (next parameters, loss before the step).
  struct train_step {
    constexpr auto operator()(const auto& p, const auto& source, const auto& written, const auto& wanted) const {
      const auto [value, gradient] = ep::value_and_grad(loss{})(p, source, written, wanted);
      return ep::results(ep::tree_zip([](auto w, auto g) { return w - rate * g; }, p, gradient), value);
    }
  };
  static constexpr double rate = 0.25;
};

template <int L> using parameters = typename with_stages<L>::template parameters<ep::spec>;
template <class Mesh, int L, class X, class Y>
using training = ep::program<Mesh, typename on<L, X, Y>::train_step, ep::donated<parameters<L>>, texts, texts, texts>;
template <class Mesh, int L, class X, class Y>
using evaluation = ep::program<Mesh, typename on<L, X, Y>::loss, parameters<L>, texts, texts, texts>;

}  // namespace nested
