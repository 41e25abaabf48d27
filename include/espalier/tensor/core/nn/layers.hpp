// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/nn/constant_math.hpp>
#include <espalier/tensor/core/nn/initialise.hpp>
#include <espalier/tensor/core/nn/mlp.hpp>
#include <espalier/tensor/core/nn/norm.hpp>

#include <boost/hana/define_struct.hpp>

// Layers: a tree of parameters that says how it starts, and is called in a program. A member of a model's tree is
// declared by `nn::layer<Leaf, nn::linear<256, 10>>`:
//
//     using conv = nn::convolution_layer<settings, ep::f32<3, 3, 1, 8>>;
//     template <class Leaf> struct model {
//       BOOST_HANA_DEFINE_STRUCT(model, (nn::layer<Leaf, conv>, stem), (nn::layer<Leaf, nn::linear<8, 10>>, head));
//     };
//     ep::nn::initialise(state.parameters, 42);      // before the first step
//     const auto h = p.stem(x), y = p.head(h);       // in the program
//
// A header of its own: programs without layers do not pay for Hana's macro.

namespace espalier::nn {

/// The parameters of a layer, as a member of a tree.
template <class Leaf, class Layer> using layer = typename Layer::template tree<Leaf>;

/// x times a matrix, plus a bias: [..., In] -> [..., Out]. Weights start with the deviation sqrt(1 / In), so that
/// numbers of variance 1 stay so; the bias as 0.
template <int In, int Out, template <int...> class Tensor = f32> struct linear {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (leaf<Leaf, Tensor<In, Out>>, weight), (leaf<Leaf, Tensor<Out>>, bias));
    [[nodiscard]] static constexpr initial start(const leaf_path& path) {
      return path.is("bias") ? initial::zeros() : initial::normal(detail::square_root(1.0 / In));
    }
    template <Traced X> constexpr auto operator()(const X& x, source_line where = source_line::current()) const {
      return dense(x, weight, bias, where);
    }
  };
};

namespace convolving {
template <class Filter> struct features_of {
  static constexpr extents shape = plain<Filter>::shape;
  using bias = tensor_for<plain<Filter>::type, extents{1, {shape[shape.rank - 1]}}>;
  /// Elements of the input that one of the result is made of.
  static constexpr double inputs = static_cast<double>(shape.product(0, shape.rank - 1));
};
}  // namespace convolving

/// A convolution, plus a bias: [n, spatial ..., channels] -> [n, spatial ..., features]. `Filter` is its tensor type,
/// for example `f32<3, 3, 8, 16>`. Filters start with the deviation sqrt(2 / inputs of one element), for a ReLU after
/// it (He et al., arXiv 1502.01852); the bias as 0.
template <class Filter, convolution_settings Settings = convolution_settings{}> struct convolution_layer {
  using shape = convolving::features_of<Filter>;
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (leaf<Leaf, Filter>, weight), (leaf<Leaf, typename shape::bias>, bias));
    [[nodiscard]] static constexpr initial start(const leaf_path& path) {
      return path.is("bias") ? initial::zeros() : initial::normal(detail::square_root(2.0 / shape::inputs));
    }
    template <Traced X> constexpr auto operator()(const X& x, source_line where = source_line::current()) const {
      if constexpr (Failed<X>) {
        return x;
      } else {
        const pinned_line line(*x.owner, where);
        return detail::binary<&ops::add, detail::binary_result::same>(convolution<Settings>(x, weight, where), bias,
                                                                      where);
      }
    }
  };
};

/// A row of a table for each token: integers [...] -> [..., Width]. Rows start with the deviation 0.02, as GPT-2's.
template <int Vocabulary, int Width, template <int...> class Tensor = f32> struct embedding {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (leaf<Leaf, Tensor<Vocabulary, Width>>, table));
    [[nodiscard]] static constexpr initial start(const leaf_path& /*path*/) { return initial::normal(0.02); }
    template <Traced Tokens>
    constexpr auto operator()(const Tokens& tokens, source_line where = source_line::current()) const {
      return gather<0>(table, tokens, where);
    }
  };
};

/// `layer_norm`, with its gain, which starts as 1, and its bias, as 0.
template <int Width, template <int...> class Tensor = f32> struct layer_norm_layer {
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (leaf<Leaf, Tensor<Width>>, gain), (leaf<Leaf, Tensor<Width>>, bias));
    [[nodiscard]] static constexpr initial start(const leaf_path& path) { return initial_by_name(path); }
    template <Traced X> constexpr auto operator()(const X& x, source_line where = source_line::current()) const {
      return layer_norm(x, gain, bias, norm_epsilon, where);
    }
  };
};

}  // namespace espalier::nn
