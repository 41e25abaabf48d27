// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

/// A small residual network (He et al. 2016, arXiv 1512.03385, section 4.2), written for one device. Images are
/// [batch, height, width, channels].
namespace resnet {

namespace ep = espalier;

/// Scale and shift after a normalisation. Members named `gain` and `bias` are recognised by nn's conventions.
template <int Channels> struct norm_of {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (ep::leaf<Leaf, ep::f32<Channels>>, gain),
                             (ep::leaf<Leaf, ep::f32<Channels>>, bias));
  };
};
template <class Leaf, int Channels> using norm = typename norm_of<Channels>::template tree<Leaf>;

/// Two convolutions of 3 x 3 around which the input passes.
template <int Channels> struct block_of {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (ep::leaf<Leaf, ep::f32<3, 3, Channels, Channels>>, first),
                             (norm<Leaf, Channels>, first_norm),
                             (ep::leaf<Leaf, ep::f32<3, 3, Channels, Channels>>, second),
                             (norm<Leaf, Channels>, second_norm));
  };
};
template <class Leaf, int Channels> using block = typename block_of<Channels>::template tree<Leaf>;

inline constexpr int classes = 4;

template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<3, 3, 1, 8>>, stem), (norm<Leaf, 8>, stem_norm),
                           (block<Leaf, 8>, block1), (ep::leaf<Leaf, ep::f32<3, 3, 8, 16>>, narrow1),
                           (norm<Leaf, 16>, narrow1_norm), (block<Leaf, 16>, block2),
                           (ep::leaf<Leaf, ep::f32<3, 3, 16, 32>>, narrow2), (norm<Leaf, 32>, narrow2_norm),
                           (block<Leaf, 32>, block3), (ep::leaf<Leaf, ep::f32<32, classes>>, head),
                           (ep::leaf<Leaf, ep::f32<classes>>, head_bias));
};
using optimizer = ep::nn::adamw<parameters>;

inline constexpr ep::convolution_settings same{.low = {1, 1}, .high = {1, 1}};
inline constexpr ep::convolution_settings halving{.stride = {2, 2}, .low = {1, 1}, .high = {1, 1}};

/// Each channel with mean 0 and variance 1 over the whole batch (Ioffe and Szegedy, arXiv 1502.03167), wherever its
/// images lie. The variance is the mean square less the square of the mean: a sum that need not wait for the mean, so
/// both are one all-reduce, and so are their gradients. (Where a mean is much larger than the deviation, digits are
/// lost.)
constexpr auto batch_norm(const auto& x, const auto& p) {
  const auto mean = ep::mean<0, 1, 2>(x, ep::keep_dims);
  const auto square = ep::mean<0, 1, 2>(x * x, ep::keep_dims);
  const auto variance = ep::maximum(square - mean * mean, 0.0);
  return (x - mean) * ep::rsqrt(variance + 1e-5) * p.gain + p.bias;
}

constexpr auto residual(const auto& x, const auto& p) {
  const auto first = ep::relu(batch_norm(ep::convolution<same>(x, p.first), p.first_norm));
  return ep::relu(x + batch_norm(ep::convolution<same>(first, p.second), p.second_norm));
}

/// [batch, height, width, 1] -> logits [batch, classes]
constexpr auto logits(const auto& p, const auto& x) {
  const auto stem = ep::relu(batch_norm(ep::convolution<same>(x, p.stem), p.stem_norm));
  const auto level1 = residual(stem, p.block1);
  const auto narrow1 = ep::relu(batch_norm(ep::convolution<halving>(level1, p.narrow1), p.narrow1_norm));
  const auto level2 = residual(narrow1, p.block2);
  const auto narrow2 = ep::relu(batch_norm(ep::convolution<halving>(level2, p.narrow2), p.narrow2_norm));
  const auto level3 = residual(narrow2, p.block3);
  return ep::nn::dense(ep::mean<1, 2>(level3), p.head, p.head_bias);
}

/// (parameters, images, classes) -> mean cross entropy in nats. Images are split over `Data`, rows of an image over
/// `Rows`, and nothing else is said.
template <class Data, class Rows> struct loss {
  constexpr auto operator()(const auto& p, const auto& images, const auto& labels) const {
    return ep::nn::cross_entropy(logits(p, ep::shard<Data, Rows, ep::none, ep::none>(images)), labels);
  }
};

/// (state, images, classes, learning rate) -> (next state, loss before the step)
template <class Data, class Rows> struct train_step {
  constexpr auto operator()(const auto& state, const auto& images, const auto& labels, const auto& rate) const {
    const auto [value, gradient] = ep::value_and_grad(loss<Data, Rows>{})(state.parameters, images, labels);
    return ep::results(ep::nn::adamw_step(state, gradient, rate), value);
  }
};

}  // namespace resnet
