// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

#include <type_traits>

/// A GPT (Radford et al. 2019), written for one device. Only `megatron` knows of a mesh.
namespace gpt {

namespace ep = espalier;

/// The options of a model. Derive from it to change one.
template <int Vocabulary, int Width, int Heads, int Layers, int Context, int Batch,
          template <int...> class Element = ep::f32>
struct config {
  static_assert(Width % Heads == 0, "gpt: the heads share the width equally, so it must be a multiple of their number");
  static constexpr int vocabulary = Vocabulary;
  static constexpr int width = Width;
  static constexpr int heads = Heads;
  static constexpr int head_dim = Width / Heads;
  static constexpr int layers = Layers;
  static constexpr int context = Context;
  static constexpr int batch = Batch;
  static constexpr int hidden = 4 * Width;

  /// The output projection is the token embedding.
  static constexpr bool tied_embedding = false;
  /// Query, key, value and output projection have a bias.
  static constexpr bool attention_bias = false;
  /// The gradient computes each block again instead of keeping its activations.
  static constexpr bool recompute_blocks = false;
  static constexpr ep::nn::adamw_settings optimizer{.weight_decay = 0.1};

  template <int... Extents> using tensor = Element<Extents...>;
  /// The type of a batch; the targets are the tokens one further.
  using tokens = ep::i32<Batch, Context>;
  using rate = ep::f32<>;
};

/// The parameters. Members named `gain` and `bias` are recognised by nn's conventions.
template <class Config> struct trees {
  template <int... Extents> using tensor = typename Config::template tensor<Extents...>;
  static constexpr int width = Config::width;
  static constexpr int heads = Config::heads;
  static constexpr int head_dim = Config::head_dim;
  static constexpr int hidden = Config::hidden;

  template <class Leaf> struct norm {
    BOOST_HANA_DEFINE_STRUCT(norm, (ep::leaf<Leaf, tensor<width>>, gain), (ep::leaf<Leaf, tensor<width>>, bias));
  };

  template <class Leaf> struct to_heads {
    BOOST_HANA_DEFINE_STRUCT(to_heads, (ep::leaf<Leaf, tensor<width, heads, head_dim>>, weight));
  };
  template <class Leaf> struct to_heads_with_bias {
    BOOST_HANA_DEFINE_STRUCT(to_heads_with_bias, (ep::leaf<Leaf, tensor<width, heads, head_dim>>, weight),
                             (ep::leaf<Leaf, tensor<heads, head_dim>>, bias));
  };
  template <class Leaf> struct from_heads {
    BOOST_HANA_DEFINE_STRUCT(from_heads, (ep::leaf<Leaf, tensor<heads, head_dim, width>>, weight));
  };
  template <class Leaf> struct from_heads_with_bias {
    BOOST_HANA_DEFINE_STRUCT(from_heads_with_bias, (ep::leaf<Leaf, tensor<heads, head_dim, width>>, weight),
                             (ep::leaf<Leaf, tensor<width>>, bias));
  };
  template <class Leaf>
  using project_in = std::conditional_t<Config::attention_bias, to_heads_with_bias<Leaf>, to_heads<Leaf>>;
  template <class Leaf>
  using project_out = std::conditional_t<Config::attention_bias, from_heads_with_bias<Leaf>, from_heads<Leaf>>;

  template <class Leaf> struct to_hidden {
    BOOST_HANA_DEFINE_STRUCT(to_hidden, (ep::leaf<Leaf, tensor<width, hidden>>, weight),
                             (ep::leaf<Leaf, tensor<hidden>>, bias));
  };
  template <class Leaf> struct from_hidden {
    BOOST_HANA_DEFINE_STRUCT(from_hidden, (ep::leaf<Leaf, tensor<hidden, width>>, weight),
                             (ep::leaf<Leaf, tensor<width>>, bias));
  };

  template <class Leaf> struct block {
    BOOST_HANA_DEFINE_STRUCT(block, (norm<Leaf>, attention_norm), (project_in<Leaf>, query), (project_in<Leaf>, key),
                             (project_in<Leaf>, value), (project_out<Leaf>, output), (norm<Leaf>, mlp_norm),
                             (to_hidden<Leaf>, up), (from_hidden<Leaf>, down));
  };

  /// All layers' parameters stacked, so that the compiler sees one layer whatever their number.
  template <class Leaf> using all_blocks = block<ep::stacked<Leaf, Config::layers>>;

  template <class Leaf> struct tied {
    BOOST_HANA_DEFINE_STRUCT(tied, (ep::leaf<Leaf, tensor<Config::vocabulary, width>>, token),
                             (ep::leaf<Leaf, tensor<Config::context, width>>, position), (all_blocks<Leaf>, blocks),
                             (norm<Leaf>, final_norm));
  };
  template <class Leaf> struct untied {
    BOOST_HANA_DEFINE_STRUCT(untied, (ep::leaf<Leaf, tensor<Config::vocabulary, width>>, token),
                             (ep::leaf<Leaf, tensor<Config::context, width>>, position), (all_blocks<Leaf>, blocks),
                             (norm<Leaf>, final_norm), (ep::leaf<Leaf, tensor<width, Config::vocabulary>>, head));
  };

  using optimizer = std::conditional_t<Config::tied_embedding, ep::nn::adamw<tied>, ep::nn::adamw<untied>>;
};

/// The model's parameters, and what the training step carries on: parameters, both moments and the step's number.
template <class Config, class Leaf>
using parameters = std::conditional_t<Config::tied_embedding, typename trees<Config>::template tied<Leaf>,
                                      typename trees<Config>::template untied<Leaf>>;
template <class Config, class Leaf> using state = typename trees<Config>::optimizer::template state<Leaf>;

/// How a parameter starts (GPT-2, section 2.3): what is added to the residual stream is scaled down, so that the sum
/// over all layers keeps its size.
template <class Config> [[nodiscard]] constexpr ep::nn::initial initial(const ep::nn::leaf_path& path) {
  const bool is_residual = path.is("output", "weight") || path.is("down", "weight");
  return ep::nn::initial_by_name(path, is_residual ? 0.02 / ep::detail::square_root(2.0 * Config::layers) : 0.02);
}

/// The layouts of tensors (Megatron-LM, arXiv 1909.08053): the batch is split over Data; heads, hidden units and
/// vocabulary over Model. Layouts that are not named here follow by completion. An axis that the program's mesh does
/// not have counts as `none`, so one model serves every mesh.
template <class Data = ep::none, class Model = ep::none> struct megatron {
  /// [batch, sequence, width], between blocks
  static constexpr auto residual(const auto& x, ep::source_line where = ep::source_line::current()) {
    return place<Data, ep::none, ep::none>(x, where);
  }
  /// [batch, sequence, heads, head_dim]; key and value follow the query
  static constexpr auto heads(const auto& x, ep::source_line where = ep::source_line::current()) {
    return place<Data, ep::none, Model, ep::none>(x, where);
  }
  /// [batch, sequence, hidden]
  static constexpr auto hidden(const auto& x, ep::source_line where = ep::source_line::current()) {
    return place<Data, ep::none, Model>(x, where);
  }
  /// [batch, sequence, vocabulary]
  static constexpr auto logits(const auto& x, ep::source_line where = ep::source_line::current()) {
    return place<Data, ep::none, Model>(x, where);
  }
  /// [vocabulary, width]
  static constexpr auto embedding(const auto& x, ep::source_line where = ep::source_line::current()) {
    return place<Model, ep::none>(x, where);
  }
  using state = ep::nn::like_parameters;

 private:
  template <class Mesh, class Axis>
  using present = std::conditional_t<(Mesh::template index_of<Axis> >= 0), Axis, ep::none>;

  template <class... Axes, class X> static constexpr auto place(const X& x, ep::source_line where) {
    if constexpr (ep::Failed<X>) {
      return x;
    } else if constexpr ((std::is_same_v<present<typename X::mesh, Axes>, ep::none> && ...)) {
      return x;
    } else {
      return ep::shard<present<typename X::mesh, Axes>...>(x, where);
    }
  }
};

/// The same, and the optimizer's state is split over Data as well (ZeRO).
template <class Config, class Data, class Model = ep::none> struct megatron_zero : megatron<Data, Model> {
  using state = ep::nn::split_state<Data, Config::width>;
};

/// One transformer block: attention and MLP, each on the normalised residual stream, to which it is added.
/// Trailing comments: a mesh with axes data and model, batch b, context s, width w, heads h of dimension d.
template <class Layout> struct transformer_block {
  constexpr auto operator()(const auto& x, const auto& layer) const {
    const auto a = ep::nn::layer_norm(x, layer.attention_norm.gain, layer.attention_norm.bias);
    const auto query = Layout::heads(project<"bsw,whd->bshd">(a, layer.query));  // f32[b@data, s, h@model, d]
    const auto key = project<"bsw,whd->bshd">(a, layer.key);                     // as the query, by completion
    const auto value = project<"bsw,whd->bshd">(a, layer.value);
    const auto mixed = ep::nn::causal_attention(query, key, value);                      // f32[b@data, s, h@model, d]
    const auto y = Layout::residual(x + project<"bshd,hdw->bsw">(mixed, layer.output));  // f32[b@data, s, w]
    const auto m = ep::nn::layer_norm(y, layer.mlp_norm.gain, layer.mlp_norm.bias);
    const auto hidden = Layout::hidden(ep::nn::dense(m, layer.up.weight, layer.up.bias));  // f32[b@data, s, 4w@model]
    return Layout::residual(y + ep::nn::dense(ep::gelu(hidden), layer.down.weight, layer.down.bias));
  }

 private:
  template <ep::detail::fixed_string Formula>
  static constexpr auto project(const auto& x, const auto& by, ep::source_line where = ep::source_line::current()) {
    const auto y = ep::einsum<Formula>(x, by.weight, where);
    if constexpr (requires { by.bias; }) {
      const ep::pinned_line line(*x.owner, where);
      return y + by.bias;
    } else {
      return y;
    }
  }
};

/// Logits for every next token: tokens i32[b, s], s <= context -> [b, s, vocabulary].
template <class Config, class Layout = megatron<>> struct forward {
  constexpr auto operator()(const auto& parameters, const auto& tokens) const {
    const auto table = Layout::embedding(parameters.token);  // f32[v@model, w]
    const auto position = first_rows(parameters.position, tokens);
    const auto x = Layout::residual(ep::gather<0>(table, tokens) + position);  // f32[b@data, s, w]
    const auto y = through_blocks(x, parameters.blocks);
    const auto z = ep::nn::layer_norm(y, parameters.final_norm.gain, parameters.final_norm.bias);
    if constexpr (Config::tied_embedding) {
      return Layout::logits(ep::einsum<"bsw,vw->bsv">(z, table));  // f32[b@data, s, v@model]
    } else {
      return Layout::logits(ep::einsum<"bsw,wv->bsv">(z, parameters.head));
    }
  }

 private:
  static constexpr auto through_blocks(const auto& x, const auto& blocks) {
    if constexpr (Config::recompute_blocks) {
      return ep::scan(transformer_block<Layout>{}, x, blocks, ep::recompute);
    } else {
      return ep::scan(transformer_block<Layout>{}, x, blocks);
    }
  }
  template <class Tokens> static constexpr auto first_rows(const auto& position, const Tokens&) {
    if constexpr (ep::Failed<Tokens>) {
      return position;
    } else {
      return ep::slice<0, 0, Tokens::extent(-1)>(position);
    }
  }
};

/// The mean cross entropy in nats per token, a scalar; also the program that measures held-out text.
template <class Config, class Layout = megatron<>> struct loss {
  constexpr auto operator()(const auto& parameters, const auto& tokens, const auto& targets) const {
    return ep::nn::cross_entropy(forward<Config, Layout>{}(parameters, tokens), targets);
  }
};

/// One step of training: (state, tokens, targets, learning rate) -> (next state, loss before the step).
///
///     using step = ep::program<mesh, gpt::train_step<config, gpt::megatron<data, model>>,
///                              ep::donated<gpt::state<config, ep::spec>>, config::tokens, config::tokens,
///                              config::rate>;
template <class Config, class Layout = megatron<>> struct train_step {
  constexpr auto operator()(const auto& state, const auto& tokens, const auto& targets, const auto& rate) const {
    const auto [value, gradient] = ep::value_and_grad(loss<Config, Layout>{})(state.parameters, tokens, targets);
    const auto next = ep::nn::adamw_step(state, gradient, rate, Config::optimizer, typename Layout::state{});
    return ep::results(next, value);
  }
};

}  // namespace gpt
