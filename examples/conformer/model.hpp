// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/shifting_buffer.hpp"

#include <espalier/core.hpp>
#include <espalier/nn.hpp>
#include <espalier/vmap.hpp>

#include <boost/hana/define_struct.hpp>

/// A Conformer (Gulati et al., arXiv 2005.08100) as a pipeline, which the GSPMD paper (arXiv 2105.04663, table 5)
/// trains for speech: each stage is a layer, split over the mesh axis x; y splits the recordings of a micro-batch.
/// Dimensions: T micro-batches of B recordings of S frames of M features; N heads of dimension D; hidden units H; a
/// convolution over K frames; L stages.
namespace conformer {

namespace ep = espalier;

inline constexpr int T = 4;
inline constexpr int B = 4;
inline constexpr int S = 12;
inline constexpr int M = 8;
inline constexpr int N = 2;
inline constexpr int D = M / N;
inline constexpr int H = 16;
inline constexpr int K = 5;

template <class Leaf> struct norm {
  BOOST_HANA_DEFINE_STRUCT(norm, (ep::leaf<Leaf, ep::f32<M>>, gain), (ep::leaf<Leaf, ep::f32<M>>, bias));
};
template <class Leaf> struct feed_forward {
  BOOST_HANA_DEFINE_STRUCT(feed_forward, (norm<Leaf>, before), (ep::leaf<Leaf, ep::f32<M, H>>, up),
                           (ep::leaf<Leaf, ep::f32<H, M>>, down));
};
template <class Leaf> struct layer {
  BOOST_HANA_DEFINE_STRUCT(layer, (feed_forward<Leaf>, first), (norm<Leaf>, before_attention),
                           (ep::leaf<Leaf, ep::f32<3, M, N, D>>, qkv), (ep::leaf<Leaf, ep::f32<N, D, M>>, joined),
                           (norm<Leaf>, before_convolution), (ep::leaf<Leaf, ep::f32<M, 2 * M>>, gated),
                           (ep::leaf<Leaf, ep::f32<K, 1, M>>, filter), (norm<Leaf>, filtered),
                           (ep::leaf<Leaf, ep::f32<M, M>>, mixed), (feed_forward<Leaf>, second), (norm<Leaf>, last));
};
using recordings = ep::f32<T, B, S, M>;

/// Half of what a feed-forward network adds.
constexpr auto half_step(const auto& x, const auto& w) {
  const auto n = ep::nn::layer_norm(x, w.before.gain, w.before.bias);
  return x + 0.5 * ep::matmul(ep::silu(ep::matmul(n, w.up)), w.down);
}
/// A gated linear unit, a convolution of each feature over the frames, and a mix of features. (The norm after the
/// convolution is one of each frame, not of the batch.)
inline constexpr ep::convolution_settings over_frames{.low = {K / 2}, .high = {K / 2}, .groups = M};
constexpr auto convolution_module(const auto& x, const auto& w) {
  const auto n = ep::nn::layer_norm(x, w.before_convolution.gain, w.before_convolution.bias);
  const auto both = ep::matmul(n, w.gated);
  const auto gated = ep::slice<2, 0, M>(both) * ep::sigmoid(ep::slice<2, M, 2 * M>(both));
  const auto filtered = ep::convolution<over_frames>(gated, w.filter);
  const auto normed = ep::nn::layer_norm(filtered, w.filtered.gain, w.filtered.bias);
  return x + ep::matmul(ep::silu(normed), w.mixed);
}
constexpr auto attention(const auto& x, const auto& w) {
  const auto n = ep::nn::layer_norm(x, w.before_attention.gain, w.before_attention.bias);
  const auto qkv = ep::einsum<"bsm,cmnd->cbsnd">(n, w.qkv);
  const auto mixed = ep::nn::attention(ep::take<0, 0>(qkv), ep::take<0, 1>(qkv), ep::take<0, 2>(qkv));
  return x + ep::einsum<"bsnd,ndm->bsm">(mixed, w.joined);
}
/// A layer on one micro-batch, [B, S, M].
struct apply_layer {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto a = half_step(x, w.first);
    const auto b = convolution_module(attention(a, w), w);
    return ep::nn::layer_norm(half_step(b, w.second), w.last.gain, w.last.bias);
  }
};

/// The model on a mesh with the axes X and Y, or on one device (`ep::none` twice).
template <int L, class X, class Y> struct on {
  /// The mean squared error of all layers one after the other: (weights, recordings, target) -> loss.
  struct loss {
    constexpr auto operator()(const auto& w, const auto& input, const auto& target) const {
      const auto stages = [&](const auto& state, const auto& /*t*/) { return ep::vmap(apply_layer{})(state, w); };
      const auto batch = [](const auto& v) { return ep::shard<X, Y, ep::none, ep::none>(v); };
      const auto fed = ep::reshard<ep::none, Y, ep::none, ep::none>(batch(input));
      const auto difference = batch(pipelined::shifting_buffer<L, X, Y>(stages, fed)) - target;
      return ep::mean(difference * difference);
    }
  };
  /// A step of gradient descent: (weights, recordings, target) -> (next weights, loss before the step).
  struct train_step {
    constexpr auto operator()(const auto& w, const auto& input, const auto& target) const {
      const auto [value, gradient] = ep::value_and_grad(loss{})(w, input, target);
      return ep::results(ep::tree_zip([](auto one, auto g) { return one - rate * g; }, w, gradient), value);
    }
  };
  static constexpr double rate = 0.1;
};

template <int L> using weights = layer<ep::stacked<ep::spec, L>>;
template <class Mesh, int L, class X, class Y>
using training = ep::program<Mesh, typename on<L, X, Y>::train_step, ep::donated<weights<L>>, recordings, recordings>;
template <class Mesh, int L, class X, class Y>
using evaluation = ep::program<Mesh, typename on<L, X, Y>::loss, weights<L>, recordings, recordings>;

}  // namespace conformer
