// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

#include <cstdint>
#include <type_traits>

/// The 3-D U-Net (Çiçek et al. 2016, arXiv 1606.06650, figure 2), written for one device, without batch normalisation.
/// Volumes are [batch, depth, height, width, channels].
namespace unet3d {

namespace ep = espalier;

inline constexpr int input_channels = 3;
inline constexpr int classes = 3;

/// A convolution of `Taps`^3 with a bias.
template <int Taps, int In, int Out> struct convolution {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (ep::leaf<Leaf, ep::f32<Taps, Taps, Taps, In, Out>>, weight),
                             (ep::leaf<Leaf, ep::f32<Out>>, bias));
  };
};
template <class Leaf, int In, int Out> using conv = typename convolution<3, In, Out>::template tree<Leaf>;
template <class Leaf> using conv_to_classes = typename convolution<1, 64, classes>::template tree<Leaf>;

/// Two convolutions, at one resolution.
template <int In, int Between, int Out> struct convolutions {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (conv<Leaf, In, Between>, first), (conv<Leaf, Between, Out>, second));
  };
};
template <class Leaf, int In, int Between, int Out>
using level = typename convolutions<In, Between, Out>::template tree<Leaf>;

/// An up-convolution of 2^3 with stride 2.
template <class Leaf, int Channels> using up = ep::leaf<Leaf, ep::f32<2, 2, 2, Channels, Channels>>;

template <class Leaf> struct parameters {
  BOOST_HANA_DEFINE_STRUCT(parameters, (level<Leaf, input_channels, 32, 64>, down0), (level<Leaf, 64, 64, 128>, down1),
                           (level<Leaf, 128, 128, 256>, down2), (level<Leaf, 256, 256, 512>, bottom),
                           (up<Leaf, 512>, up2), (level<Leaf, 768, 256, 256>, level2), (up<Leaf, 256>, up1),
                           (level<Leaf, 384, 128, 128>, level1), (up<Leaf, 128>, up0),
                           (level<Leaf, 192, 64, 64>, level0), (conv_to_classes<Leaf>, to_classes));
};
using optimizer = ep::nn::sgd<parameters>;

/// How many numbers are learnt.
[[nodiscard]] constexpr std::int64_t parameter_count() {
  std::int64_t count = 0;
  const parameters<ep::spec> tree{};
  ep::detail::for_each_leaf(tree,
                            [&](const auto& leaf) { count += std::remove_cvref_t<decltype(leaf)>::shape.elements(); });
  return count;
}
static_assert(parameter_count() == 19'069'955);

/// A filter starts with as much noise as keeps the size of what passes through (He et al., arXiv 1502.01852). `inputs`
/// is how many numbers each of its sums takes.
[[nodiscard]] constexpr ep::nn::initial initial(const ep::nn::leaf_path& path, std::int64_t inputs) {
  return ep::nn::initial_by_name(path, ep::detail::square_root(2.0 / static_cast<double>(inputs)));
}

constexpr auto convolve(const auto& x, const auto& layer) {
  constexpr ep::convolution_settings same{.low = {1, 1, 1}, .high = {1, 1, 1}};
  return ep::relu(ep::convolution<same>(x, layer.weight) + layer.bias);
}
constexpr auto convolve_twice(const auto& x, const auto& layers) {
  return convolve(convolve(x, layers.first), layers.second);
}
constexpr auto half(const auto& x) {
  return ep::max_pool<ep::pooling_settings{.size = {2, 2, 2}, .stride = {2, 2, 2}}>(x);
}
constexpr auto twice(const auto& x, const auto& weight) {
  constexpr ep::convolution_settings doubling{.low = {1, 1, 1}, .high = {1, 1, 1}, .base_dilation = {2, 2, 2}};
  return ep::convolution<doubling>(x, weight);
}

/// [batch, depth, height, width, 3] -> the logits of each voxel, [batch, depth, height, width, classes]. Depth, height
/// and width are multiples of 8.
constexpr auto logits(const auto& p, const auto& x) {
  const auto down0 = convolve_twice(x, p.down0);
  const auto down1 = convolve_twice(half(down0), p.down1);
  const auto down2 = convolve_twice(half(down1), p.down2);
  const auto bottom = convolve_twice(half(down2), p.bottom);
  const auto level2 = convolve_twice(ep::concat<4>(down2, twice(bottom, p.up2)), p.level2);
  const auto level1 = convolve_twice(ep::concat<4>(down1, twice(level2, p.up1)), p.level1);
  const auto level0 = convolve_twice(ep::concat<4>(down0, twice(level1, p.up0)), p.level0);
  return ep::convolution<ep::convolution_settings{}>(level0, p.to_classes.weight) + p.to_classes.bias;
}

/// (parameters, volumes, the class of each voxel) -> mean cross entropy in nats. `Depth` is the axis of the mesh that
/// the volumes are cut along, and the only annotation there is.
template <class Depth> struct loss {
  constexpr auto operator()(const auto& p, const auto& x, const auto& labels) const {
    return ep::nn::cross_entropy(logits(p, ep::shard<ep::none, Depth, ep::none, ep::none, ep::none>(x)), labels);
  }
};

/// (state, volumes, labels, learning rate) -> (next state, loss before the step).
template <class Depth> struct train_step {
  constexpr auto operator()(const auto& state, const auto& x, const auto& labels, const auto& rate) const {
    const auto [value, gradient] = ep::value_and_grad(loss<Depth>{})(state.parameters, x, labels);
    return ep::results(ep::nn::sgd_step(state, gradient, rate), value);
  }
};

}  // namespace unet3d
