// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/core.hpp>
#include <espalier/nn.hpp>

#include <type_traits>

/// Two families of language models, written for one device, as they generate: each call reads some tokens after those
/// that it has read before, whose keys and values are in a cache, and gives the logits for the next.
namespace llama {

namespace ep = espalier;

/// The family that a checkpoint's `config.json` names, on which shapes depend; `configure.cmake` writes it as a type.
enum class family { gpt2, llama };

/// The only axis: heads, hidden units and vocabulary are split over it.
template <class Config> struct model : ep::axis<"model", Config::devices> {};
template <class Config> using mesh = ep::mesh<model<Config>>;

/// The keys and values of all tokens read so far. [layers, heads of keys, context, head_dim]
template <class Config> struct cache {
  using kept = ep::f32<Config::layers, Config::kv_heads, Config::context, Config::head_dim>;
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (ep::leaf<Leaf, kept>, keys), (ep::leaf<Leaf, kept>, values));
  };
};

/// The parameters, in the order of dimensions that the families' checkpoints have: GPT-2's matrices are [in, out],
/// Llama's [out, in]. Queries have a dimension more than keys: `group` heads read the same keys.
template <class Config> struct trees {
  static constexpr int width = Config::width;
  static constexpr int heads = Config::kv_heads;
  static constexpr int group = Config::heads / Config::kv_heads;
  static constexpr int head_dim = Config::head_dim;
  static constexpr int hidden = Config::hidden;
  template <class Leaf, int... Extents> using tensor = ep::leaf<Leaf, ep::f32<Extents...>>;

  template <class Leaf> struct norm {
    BOOST_HANA_DEFINE_STRUCT(norm, (tensor<Leaf, width>, gain), (tensor<Leaf, width>, bias));
  };
  template <class Leaf> struct query_in {
    BOOST_HANA_DEFINE_STRUCT(query_in, (tensor<Leaf, width, heads, group, head_dim>, weight),
                             (tensor<Leaf, heads, group, head_dim>, bias));
  };
  template <class Leaf> struct to_heads {
    BOOST_HANA_DEFINE_STRUCT(to_heads, (tensor<Leaf, width, heads, head_dim>, weight),
                             (tensor<Leaf, heads, head_dim>, bias));
  };
  template <class Leaf> struct from_heads {
    BOOST_HANA_DEFINE_STRUCT(from_heads, (tensor<Leaf, heads, group, head_dim, width>, weight),
                             (tensor<Leaf, width>, bias));
  };
  template <class Leaf> struct to_hidden {
    BOOST_HANA_DEFINE_STRUCT(to_hidden, (tensor<Leaf, width, hidden>, weight), (tensor<Leaf, hidden>, bias));
  };
  template <class Leaf> struct from_hidden {
    BOOST_HANA_DEFINE_STRUCT(from_hidden, (tensor<Leaf, hidden, width>, weight), (tensor<Leaf, width>, bias));
  };
  template <class Leaf> struct gpt2_block {
    BOOST_HANA_DEFINE_STRUCT(gpt2_block, (norm<Leaf>, attention_norm), (query_in<Leaf>, query), (to_heads<Leaf>, key),
                             (to_heads<Leaf>, value), (from_heads<Leaf>, output), (norm<Leaf>, mlp_norm),
                             (to_hidden<Leaf>, up), (from_hidden<Leaf>, down));
  };
  template <class Leaf> using gpt2_blocks = gpt2_block<ep::stacked<Leaf, Config::layers>>;
  /// The output projection is the token embedding.
  template <class Leaf> struct gpt2 {
    BOOST_HANA_DEFINE_STRUCT(gpt2, (tensor<Leaf, Config::vocabulary, width>, token),
                             (tensor<Leaf, Config::positions, width>, position), (gpt2_blocks<Leaf>, blocks),
                             (norm<Leaf>, final_norm));
  };

  template <class Leaf> struct llama_block {
    BOOST_HANA_DEFINE_STRUCT(llama_block, (tensor<Leaf, width>, attention_norm),
                             (tensor<Leaf, heads, group, head_dim, width>, query),
                             (tensor<Leaf, heads, head_dim, width>, key), (tensor<Leaf, heads, head_dim, width>, value),
                             (tensor<Leaf, width, heads, group, head_dim>, output), (tensor<Leaf, width>, mlp_norm),
                             (tensor<Leaf, hidden, width>, gate), (tensor<Leaf, hidden, width>, up),
                             (tensor<Leaf, width, hidden>, down));
  };
  template <class Leaf> using llama_blocks = llama_block<ep::stacked<Leaf, Config::layers>>;
  template <class Leaf> struct llama {
    BOOST_HANA_DEFINE_STRUCT(llama, (tensor<Leaf, Config::vocabulary, width>, token), (llama_blocks<Leaf>, blocks),
                             (tensor<Leaf, width>, final_norm), (tensor<Leaf, Config::vocabulary, width>, head));
  };
  template <class Leaf> struct llama_tied {
    BOOST_HANA_DEFINE_STRUCT(llama_tied, (tensor<Leaf, Config::vocabulary, width>, token), (llama_blocks<Leaf>, blocks),
                             (tensor<Leaf, width>, final_norm));
  };
};

template <class Config, class Leaf>
using parameters =
    std::conditional_t<Config::kind == family::gpt2, typename trees<Config>::template gpt2<Leaf>,
                       std::conditional_t<Config::tied, typename trees<Config>::template llama_tied<Leaf>,
                                          typename trees<Config>::template llama<Leaf>>>;

/// The angles by which Llama turns queries and keys, at every position: [positions, head_dim] each. (GPT-2 does not use
/// it: its positions are parameters.)
template <class Config> struct rotation {
  using angles = ep::f32<Config::context, Config::head_dim>;
  template <class Leaf> struct tree {
    BOOST_HANA_DEFINE_STRUCT(tree, (ep::leaf<Leaf, angles>, cosine), (ep::leaf<Leaf, angles>, sine));
  };
};

/// The attention of t tokens: each sees all that the cache has from before `position`, and the new tokens up to itself.
/// query [heads, group, t, d], key and value [heads, t, d], cached_keys and cached_values [heads, context, d] ->
/// [heads, group, t, d]. The cache is read where it lies; that it is written later, for all layers at once, is why the
/// new keys come apart from it.
constexpr auto cached_attention(const auto& query, const auto& key, const auto& value, const auto& cached_keys,
                                const auto& cached_values, const auto& position) {
  using query_type = std::remove_cvref_t<decltype(query)>;
  constexpr int tokens = query_type::extent(-2);
  constexpr int context = std::remove_cvref_t<decltype(cached_keys)>::extent(-2);
  const auto scaled = query * (1 / ep::detail::square_root(query_type::extent(-1)));
  const auto is_old = ep::iota<ep::i32<context>, 0>(query) < position;
  const auto before = ep::select(is_old, ep::einsum<"hgtd,hcd->hgtc">(scaled, cached_keys), -1e30F);
  const auto own = ep::nn::hide_future(ep::einsum<"hgtd,hcd->hgtc">(scaled, key));
  const auto weights = ep::softmax<-1>(ep::concat<-1>(before, own));
  return ep::einsum<"hgtc,hcd->hgtd">(ep::slice<-1, 0, context>(weights), cached_values) +
         ep::einsum<"hgtc,hcd->hgtd">(ep::slice<-1, context, context + tokens>(weights), value);
}

/// x [..., t, d] with the pairs (i, i + d/2) of its last dimension turned by the angles of each token's position,
/// [t, d] each: rotary embedding (Su et al., arXiv 2104.09864) as Llama has it. `sine` is negative in its first half.
template <class X, class Angles> constexpr auto turn(const X& x, const Angles& cosine, const Angles& sine) {
  return x * cosine + ep::roll<-1, X::extent(-1) / 2>(x) * sine;
}

/// Calls `layer(x, parameters, keys, values)` for each layer, with the cache's part that is the layer's own; it gives
/// results(x, results(new keys, new values)), [heads, t, d] each. Gives results(x, cache) with these written from
/// `position` on.
template <class Cache>
constexpr auto through_layers(const auto& layer, const auto& x, const auto& blocks, const Cache& cached,
                              const auto& position) {
  const auto body = [&](const auto& before, const auto& of_layer) {
    return layer(before, of_layer.template get<0>(), of_layer.template get<1>(), of_layer.template get<2>());
  };
  const auto out = ep::scan(body, x, ep::results(blocks, cached.keys, cached.values));
  const auto& fresh = out.template get<1>();
  return ep::results(out.template get<0>(),
                     Cache{ep::dynamic_update_slice<2>(cached.keys, fresh.template get<0>(), position),
                           ep::dynamic_update_slice<2>(cached.values, fresh.template get<1>(), position)});
}

/// The layouts of the parameters and of the values computed with them. Layouts not named here follow by completion.
template <class Config> struct layout {
  using axis = model<Config>;
  static constexpr auto heads(const auto& x) { return ep::shard<axis, ep::none, ep::none, ep::none>(x); }
  static constexpr auto hidden(const auto& x) { return ep::shard<ep::none, axis>(x); }
  static constexpr auto embedding(const auto& x) { return ep::shard<axis, ep::none>(x); }
  static constexpr auto logits(const auto& x) { return ep::shard<axis>(x); }
};

/// The logits after the last of some tokens: y [t, width], table [vocabulary, width] -> [vocabulary].
template <class Y, class Table> constexpr auto last_logits(const Y& y, const Table& table) {
  const auto last = ep::slice<0, Y::extent(0) - 1, Y::extent(0)>(y);
  return ep::einsum<"w,vw->v">(ep::reshape<Y::extent(-1)>(last), table);
}

/// GPT-2 (Radford et al. 2019): layer norms, learnt positions, GELU.
template <class Config> struct gpt2 {
  using at = layout<Config>;

  template <class Position> struct layer {
    const Position& position;

    constexpr auto operator()(const auto& x, const auto& p, const auto& keys, const auto& values) const {
      const auto a = norm(x, p.attention_norm);
      const auto query = at::heads(ep::einsum<"tw,whgd->hgtd">(a, p.query.weight) + row(p.query.bias));
      const auto key = ep::einsum<"tw,whd->htd">(a, p.key.weight) + row(p.key.bias);
      const auto value = ep::einsum<"tw,whd->htd">(a, p.value.weight) + row(p.value.bias);
      const auto mixed = cached_attention(query, key, value, keys, values, position);
      const auto y = x + ep::einsum<"hgtd,hgdw->tw">(mixed, p.output.weight) + p.output.bias;
      const auto m = norm(y, p.mlp_norm);
      const auto hidden = at::hidden(ep::gelu(ep::nn::dense(m, p.up.weight, p.up.bias)));
      return ep::results(y + ep::nn::dense(hidden, p.down.weight, p.down.bias), ep::results(key, value));
    }
    /// A bias of heads, [..., d], for every token: [..., 1, d].
    template <class Bias> static constexpr auto row(const Bias& bias) {
      if constexpr (Bias::rank == 2) {
        return ep::reshape<Bias::extent(0), 1, Bias::extent(1)>(bias);
      } else {
        return ep::reshape<Bias::extent(0), Bias::extent(1), 1, Bias::extent(2)>(bias);
      }
    }
  };
  static constexpr auto norm(const auto& x, const auto& by) {
    return ep::nn::layer_norm(x, by.gain, by.bias, Config::epsilon);
  }

  constexpr auto operator()(const auto& p, const auto& cached, const auto& /*angles*/, const auto& tokens,
                            const auto& position) const {
    const auto table = at::embedding(p.token);
    using tokens_type = std::remove_cvref_t<decltype(tokens)>;
    const auto places = ep::dynamic_slice<0, tokens_type::extent(0)>(p.position, position);
    const auto x = ep::gather<0>(table, tokens) + places;
    const layer<std::remove_cvref_t<decltype(position)>> one{position};
    const auto out = through_layers(one, x, p.blocks, cached, position);
    return ep::results(out.template get<1>(),
                       at::logits(last_logits(norm(out.template get<0>(), p.final_norm), table)));
  }
};

/// Llama (Touvron et al., arXiv 2302.13971 and 2307.09288): root-mean-square norms, rotary embedding, groups of queries
/// that read the same keys, SwiGLU.
template <class Config> struct llama {
  using at = layout<Config>;

  template <class Position, class Angles> struct layer {
    const Position& position;
    const Angles& cosine;
    const Angles& sine;

    constexpr auto operator()(const auto& x, const auto& p, const auto& keys, const auto& values) const {
      const auto a = ep::nn::rms_norm(x, p.attention_norm, Config::epsilon);
      const auto query = turn(at::heads(ep::einsum<"tw,hgdw->hgtd">(a, p.query)), cosine, sine);
      const auto key = turn(ep::einsum<"tw,hdw->htd">(a, p.key), cosine, sine);
      const auto value = ep::einsum<"tw,hdw->htd">(a, p.value);
      const auto mixed = cached_attention(query, key, value, keys, values, position);
      const auto y = x + ep::einsum<"hgtd,whgd->tw">(mixed, p.output);
      const auto m = ep::nn::rms_norm(y, p.mlp_norm, Config::epsilon);
      const auto gate = at::hidden(ep::silu(ep::einsum<"tw,hw->th">(m, p.gate)));
      const auto hidden = gate * ep::einsum<"tw,hw->th">(m, p.up);
      return ep::results(y + ep::einsum<"th,wh->tw">(hidden, p.down), ep::results(key, value));
    }
  };

  constexpr auto operator()(const auto& p, const auto& cached, const auto& angles, const auto& tokens,
                            const auto& position) const {
    constexpr int count = std::remove_cvref_t<decltype(tokens)>::extent(0);
    const auto table = at::embedding(p.token);
    const auto cosine = ep::dynamic_slice<0, count>(angles.cosine, position);
    const auto sine = ep::dynamic_slice<0, count>(angles.sine, position);
    const layer<std::remove_cvref_t<decltype(position)>, std::remove_cvref_t<decltype(cosine)>> one{position, cosine,
                                                                                                    sine};
    const auto out = through_layers(one, ep::gather<0>(table, tokens), p.blocks, cached, position);
    const auto z = ep::nn::rms_norm(out.template get<0>(), p.final_norm, Config::epsilon);
    if constexpr (Config::tied) {
      return ep::results(out.template get<1>(), at::logits(last_logits(z, table)));
    } else {
      return ep::results(out.template get<1>(), at::logits(last_logits(z, at::embedding(p.head))));
    }
  }
};

/// (parameters, cache, angles, tokens [Count], position of the first) -> (cache, logits [vocabulary])
template <class Config, int Count>
using program = ep::program<mesh<Config>, std::conditional_t<Config::kind == family::gpt2, gpt2<Config>, llama<Config>>,
                            parameters<Config, ep::spec>, ep::donated<typename cache<Config>::template tree<ep::spec>>,
                            typename rotation<Config>::template tree<ep::spec>, ep::i32<Count>, ep::i32<>>;

}  // namespace llama
