// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

#include <boost/hana/define_struct.hpp>

/// The layers of a Transformer, written for one device. Dimensions have the names of the GSPMD paper (arXiv 2105.04663,
/// section 3.2): batch B, sequence S, model M, heads N of dimension D, hidden units H.
namespace layouts {

namespace ep = espalier;

inline constexpr int B = 16;
inline constexpr int S = 16;
inline constexpr int M = 64;
inline constexpr int N = 8;
inline constexpr int D = 8;
inline constexpr int H = 128;
inline constexpr int layer_count = 4;

template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (ep::leaf<Leaf, ep::f32<M>>, attention_gain),
                           (ep::leaf<Leaf, ep::f32<M, N, D>>, query), (ep::leaf<Leaf, ep::f32<M, N, D>>, key),
                           (ep::leaf<Leaf, ep::f32<M, N, D>>, value), (ep::leaf<Leaf, ep::f32<N, D, M>>, output),
                           (ep::leaf<Leaf, ep::f32<M>>, mlp_gain), (ep::leaf<Leaf, ep::f32<M, H>>, up),
                           (ep::leaf<Leaf, ep::f32<H, M>>, down));
};
template <class Leaf> using layers = layer<ep::stacked<Leaf, layer_count>>;
using activations = ep::f32<B, S, M>;

/// Attention and a feed-forward network, each added to the residual stream. `Layout` places the seven kinds of tensors
/// that the paper annotates; its functions are named after their dimensions.
template <class Layout> struct apply_layer {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto a = ep::nn::rms_norm(x, w.attention_gain);
    const auto query = Layout::bsnd(ep::einsum<"bsm,mnd->bsnd">(a, Layout::mnd(w.query)));
    const auto key = Layout::bsnd(ep::einsum<"bsm,mnd->bsnd">(a, Layout::mnd(w.key)));
    const auto value = Layout::bsnd(ep::einsum<"bsm,mnd->bsnd">(a, Layout::mnd(w.value)));
    const auto mixed = ep::nn::causal_attention(query, key, value);
    const auto y = Layout::bsm(x + ep::einsum<"bsnd,ndm->bsm">(mixed, Layout::ndm(w.output)));
    const auto m = ep::nn::rms_norm(y, w.mlp_gain);
    const auto hidden = Layout::bsh(ep::einsum<"bsm,mh->bsh">(m, Layout::mh(w.up)));
    return Layout::bsm(y + ep::einsum<"bsh,hm->bsm">(ep::relu(hidden), Layout::hm(w.down)));
  }
};

template <class Layout> struct loss {
  constexpr auto operator()(const auto& weights, const auto& x, const auto& target) const {
    const auto difference = ep::scan(apply_layer<Layout>{}, Layout::bsm(x), weights) - target;
    return ep::mean(difference * difference);
  }
};

/// A step of gradient descent: (weights, x, target) -> (next weights, loss before the step).
template <class Layout> struct train_step {
  constexpr auto operator()(const auto& weights, const auto& x, const auto& target) const {
    const auto [value, gradient] = ep::value_and_grad(loss<Layout>{})(weights, x, target);
    return ep::results(ep::tree_zip([](auto w, auto g) { return w - 0.05 * g; }, weights, gradient), value);
  }
};
template <class Mesh, class Layout>
using training = ep::program<Mesh, train_step<Layout>, ep::donated<layers<ep::spec>>, activations, activations>;

}  // namespace layouts
