// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/nn.hpp>

/// A small vision transformer (Dosovitskiy et al., arXiv 2010.11929): pictures are cut into patches, the patches are a
/// sequence, and the mean over the sequence tells the class. Blocks are in a scan and computed again in the gradient.
namespace vit {

namespace ep = espalier;

constexpr int batch = 32;
constexpr int side = 24;
constexpr int patch = 4;
constexpr int grid = side / patch;
constexpr int tokens = grid * grid;
constexpr int width = 48;
constexpr int heads = 4;
constexpr int head_size = width / heads;
constexpr int hidden = 96;
constexpr int layers = 3;
constexpr int classes = 6;

template <class Leaf> struct norm {
  BOOST_HANA_DEFINE_STRUCT(norm, (ep::leaf<Leaf, ep::f32<width>>, gain), (ep::leaf<Leaf, ep::f32<width>>, bias));
};
template <class Leaf> struct block {
  BOOST_HANA_DEFINE_STRUCT(block, (norm<Leaf>, first), (norm<Leaf>, second),
                           (ep::leaf<Leaf, ep::f32<3, width, heads, head_size>>, qkv),
                           (ep::leaf<Leaf, ep::f32<heads, head_size, width>>, out),
                           (ep::leaf<Leaf, ep::f32<width, hidden>>, up),
                           (ep::leaf<Leaf, ep::f32<hidden, width>>, down));
};
template <class Leaf> struct parameters {
  using blocks_type = block<ep::stacked<Leaf, layers>>;
  BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<patch * patch, width>>, embed),
                           (ep::leaf<Leaf, ep::f32<tokens, width>>, position), (blocks_type, blocks),
                           (norm<Leaf>, last), (ep::leaf<Leaf, ep::f32<width, classes>>, head));
};
using optimizer = ep::nn::adamw<parameters>;

/// The model on a mesh that splits the batch over `Data`, and heads and hidden units over `Model` (Megatron-LM).
template <class Data, class Model> struct on {
  struct layer {
    constexpr auto operator()(auto x, const auto& p) const {
      const auto normed = ep::nn::layer_norm(x, p.first.gain, p.first.bias);
      const auto qkv =
          ep::shard<ep::none, Data, ep::none, Model, ep::none>(ep::einsum<"bsw,cwhd->cbshd">(normed, p.qkv));
      const auto mixed = ep::nn::attention(ep::take<0, 0>(qkv), ep::take<0, 1>(qkv), ep::take<0, 2>(qkv));
      x = x + ep::einsum<"bshd,hdw->bsw">(mixed, p.out);
      const auto wide = ep::gelu(ep::matmul(ep::nn::layer_norm(x, p.second.gain, p.second.bias), p.up));
      return x + ep::matmul(ep::shard<Data, ep::none, Model>(wide), p.down);
    }
  };
  struct logits {
    constexpr auto operator()(const auto& p, auto images) const {
      const auto cut = ep::transpose<0, 1, 3, 2, 4>(ep::reshape<batch, grid, patch, grid, patch>(images));
      auto x = ep::matmul(ep::reshape<batch, tokens, patch * patch>(cut), p.embed) + p.position;
      x = ep::scan(layer{}, ep::shard<Data, ep::none, ep::none>(x), p.blocks, ep::recompute);
      return ep::matmul(ep::mean<1>(ep::nn::layer_norm(x, p.last.gain, p.last.bias)), p.head);
    }
  };
  struct loss {
    constexpr auto operator()(const auto& p, auto images, auto labels) const {
      return ep::nn::cross_entropy(logits{}(p, images), labels);
    }
  };
  /// Forward and gradient in bf16, masters, moments and the update in f32.
  struct train_step {
    constexpr auto operator()(const auto& state, auto images, auto labels, auto rate) const {
      const auto computed = ep::value_and_grad(ep::mixed<ep::f32, ep::bf16>(loss{}))(state.parameters, images, labels);
      const auto [clipped, length] = ep::clip_by_global_norm(computed.gradient, 1.0);
      return ep::results(ep::nn::adamw_step(state, clipped, rate), computed.value, length);
    }
  };
  struct classify {
    constexpr auto operator()(const auto& p, auto images) const { return ep::argmax<-1>(logits{}(p, images)); }
  };
};

}  // namespace vit
