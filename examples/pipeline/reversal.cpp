// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "task.hpp"

#include <espalier/nn.hpp>
#include <espalier/stages.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace pipeline_example {

namespace {

inline constexpr int words = 16;
inline constexpr int length = 24;
inline constexpr int head_dim = 16;

struct source : pl::field<"source", ep::i32<length>> {};
/// The number that the decoder has written before each place, and the number it is to write there.
struct written : pl::field<"written", ep::i32<length>> {};
struct wanted : pl::field<"wanted", ep::i32<length>> {};

/// Words and their places.
template <int Width> struct embedding {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<words, Width>>, token),
                             (ep::leaf<Leaf, ep::f32<length, Width>>, position));
  };
  constexpr auto operator()(const auto& p, const auto& text) const { return ep::gather<0>(p.token, text) + p.position; }
};

/// Queries of one width, keys and values of another.
template <int Width, int From> struct attention {
  static constexpr int heads = Width / head_dim;
  template <class Leaf> struct parameters {
    using project = ep::f32<From, heads, head_dim>;
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<Width, heads, head_dim>>, query),
                             (ep::leaf<Leaf, project>, key), (ep::leaf<Leaf, project>, value),
                             (ep::leaf<Leaf, ep::f32<heads, head_dim, Width>>, output));
  };
  template <bool IsCausal> static constexpr auto mix(const auto& p, const auto& x, const auto& memory) {
    const auto query = ep::einsum<"bsw,whd->bshd">(x, p.query);
    const auto key = ep::einsum<"bsw,whd->bshd">(memory, p.key);
    const auto value = ep::einsum<"bsw,whd->bshd">(memory, p.value);
    if constexpr (IsCausal) {
      return ep::einsum<"bshd,hdw->bsw">(ep::nn::causal_attention(query, key, value), p.output);
    } else {
      const auto weights = ep::softmax<-1>(ep::nn::attention_scores(query, key));
      return ep::einsum<"bshd,hdw->bsw">(ep::nn::attention_mix(weights, value), p.output);
    }
  }
};

template <int Width> struct feed_forward {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<Width>>, gain), (ep::leaf<Leaf, ep::f32<Width>>, bias),
                             (ep::leaf<Leaf, ep::f32<Width, 4 * Width>>, up),
                             (ep::leaf<Leaf, ep::f32<4 * Width, Width>>, down));
  };
  static constexpr auto mix(const auto& p, const auto& x) {
    return ep::matmul(ep::gelu(ep::matmul(ep::nn::layer_norm(x, p.gain, p.bias), p.up)), p.down);
  }
};

template <int Width> struct norm {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<Width>>, gain),
                             (ep::leaf<Leaf, ep::f32<Width>>, bias));
  };
};

/// Every place sees all places.
template <int Width> struct encoder_block {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (typename norm<Width>::template parameters<Leaf>, first_norm),
                             (typename attention<Width, Width>::template parameters<Leaf>, self),
                             (typename feed_forward<Width>::template parameters<Leaf>, rest));
  };
  constexpr auto operator()(const auto& p, const auto& x) const {
    const auto a = ep::nn::layer_norm(x, p.first_norm.gain, p.first_norm.bias);
    const auto y = x + attention<Width, Width>::template mix<false>(p.self, a, a);
    return y + feed_forward<Width>::mix(p.rest, y);
  }
};

/// Every place sees those before it, and all that the encoder has found.
template <int Width, int From> struct decoder_block {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (typename norm<Width>::template parameters<Leaf>, first_norm),
                             (typename attention<Width, Width>::template parameters<Leaf>, self),
                             (typename norm<Width>::template parameters<Leaf>, second_norm),
                             (typename attention<Width, From>::template parameters<Leaf>, across),
                             (typename feed_forward<Width>::template parameters<Leaf>, rest));
  };
  constexpr auto operator()(const auto& p, const auto& x, const auto& memory) const {
    const auto a = ep::nn::layer_norm(x, p.first_norm.gain, p.first_norm.bias);
    const auto y = x + attention<Width, Width>::template mix<true>(p.self, a, a);
    const auto b = ep::nn::layer_norm(y, p.second_norm.gain, p.second_norm.bias);
    const auto z = y + attention<Width, From>::template mix<false>(p.across, b, memory);
    return z + feed_forward<Width>::mix(p.rest, z);
  }
};

template <int Width> struct head {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<Width>>, gain), (ep::leaf<Leaf, ep::f32<Width>>, bias),
                             (ep::leaf<Leaf, ep::f32<Width, words>>, weight));
  };
  constexpr auto operator()(const auto& p, const auto& x, const auto& next) const {
    const auto logits = ep::matmul(ep::nn::layer_norm(x, p.gain, p.bias), p.weight);
    return ep::nn::cross_entropy_sum(logits, next) * (1.0 / length);
  }
};

struct settings {
  static constexpr ep::nn::adamw_settings optimizer{.beta2 = 0.99, .weight_decay = 0.01};
};

inline constexpr int wide = 96;
inline constexpr int narrow = 32;
using writer = decoder_block<narrow, wide>;
using model = pl::model<pl::batches<1, 2, 4>, settings,                                           //
                        pl::named<"read", embedding<wide>, pl::reads<source>>,                    //
                        pl::named<"encoder1", encoder_block<wide>>,                               //
                        pl::named<"encoder2", encoder_block<wide>>,                               //
                        pl::named<"write", embedding<narrow>, pl::inputs<>, pl::reads<written>>,  //
                        pl::named<"decoder1", writer, pl::skips<"encoder2">>,                     //
                        pl::named<"decoder2", writer, pl::skips<"encoder2">>,                     //
                        pl::named<"decoder3", writer, pl::skips<"encoder2">>,                     //
                        pl::named<"head", head<narrow>, pl::reads<wanted>>>;

/// A word of a sample of a step: always the same, and like any other.
std::int32_t word(std::uint64_t seed, std::int64_t step, int sample, int place) {
  const double u = ep::nn::uniform_at(seed, static_cast<std::uint32_t>(sample),
                                      static_cast<std::uint64_t>(step * length + place))[0];
  return static_cast<std::int32_t>(u * (words - 1)) + 1;  // 0 is the beginning
}

}  // namespace

task reversal_task(const pl::training_options& training) {
  pl::training_options chosen = training;
  chosen.initial = [](const std::string&, const ep::leaf_path& path) { return ep::nn::initial_by_name(path, 0.1); };
  task made;
  made.title = "encoder of 2 blocks of width 96, decoder of 3 blocks of width 32, that reverse 24 words";
  made.model = std::make_unique<model>(std::move(chosen));
  made.fill = [seed = training.seed](const std::string& name, std::int64_t step, int sample, std::byte* row) {
    auto* const to = reinterpret_cast<std::int32_t*>(row);
    for (int k = 0; k < length; ++k) {
      const auto backwards = [&](int place) { return word(seed, step, sample, length - 1 - place); };
      if (name == "source") to[k] = word(seed, step, sample, k);
      if (name == "wanted") to[k] = backwards(k);
      if (name == "written") to[k] = k == 0 ? 0 : backwards(k - 1);
    }
  };
  made.chance = std::log(static_cast<double>(words - 1));
  return made;
}

}  // namespace pipeline_example
