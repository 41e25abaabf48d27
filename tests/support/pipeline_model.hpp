// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/stages/model/model.hpp>
#include <espalier/tensor/core/nn/nn.hpp>
#include <espalier/tensor/core/program/program.hpp>

#include <cstdint>
#include <string>
#include <vector>

/// A small language model as unequal layers: data inputs, an attention block, layers of other widths, a skip
/// connection, tied weights, a loss. In double precision, so that it is comparable with the same model as one program.
namespace pipeline_model {

namespace ep = espalier;
namespace pl = espalier::pipeline;

inline constexpr int context = 4;
inline constexpr int width = 6;
inline constexpr int wide = 10;
inline constexpr int heads = 2;
inline constexpr int words = 7;

struct tokens : pl::field<"tokens", ep::i32<context>> {};
struct targets : pl::field<"targets", ep::i32<context>> {};

struct embedding {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f64<words, width>>, table));
  };
  constexpr auto operator()(const auto& p, const auto& words_of_sample) const {
    return ep::gather<0>(p.table, words_of_sample);
  }
};

struct attention {
  template <class Leaf> struct parameters {
    using project = ep::f64<width, heads, width / heads>;
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, project>, query), (ep::leaf<Leaf, project>, key),
                             (ep::leaf<Leaf, project>, value),
                             (ep::leaf<Leaf, ep::f64<heads, width / heads, width>>, output));
  };
  constexpr auto operator()(const auto& p, const auto& x) const {
    const auto query = ep::einsum<"bsw,whd->bshd">(x, p.query);
    const auto key = ep::einsum<"bsw,whd->bshd">(x, p.key);
    const auto value = ep::einsum<"bsw,whd->bshd">(x, p.value);
    return x + ep::einsum<"bshd,hdw->bsw">(ep::nn::causal_attention(query, key, value), p.output);
  }
};

struct widening {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f64<width, wide>>, weight),
                             (ep::leaf<Leaf, ep::f64<wide>>, bias));
  };
  constexpr auto operator()(const auto& p, const auto& x) const { return ep::relu(ep::nn::dense(x, p.weight, p.bias)); }
};

/// Back to the width of `skipped`, which is added.
struct narrowing {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f64<wide, width>>, weight),
                             (ep::leaf<Leaf, ep::f64<width>>, bias));
  };
  constexpr auto operator()(const auto& p, const auto& x, const auto& skipped) const {
    return ep::gelu(ep::nn::dense(x, p.weight, p.bias)) + skipped * skipped;
  }
};

/// No parameters.
struct standardising {
  constexpr auto operator()(const auto& x) const { return ep::tanh(x); }
};

/// Its own norm, and the table of the embedding.
struct head {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f64<width>>, gain),
                             (ep::leaf<Leaf, ep::f64<width>>, bias));
  };
  constexpr auto operator()(const auto& p, const auto& tied, const auto& x, const auto& next) const {
    const auto z = ep::nn::layer_norm(x, p.gain, p.bias);
    return ep::nn::cross_entropy_sum(ep::einsum<"bsw,vw->bsv">(z, tied.table), next);
  }
};

struct training {
  static constexpr ep::nn::adamw_settings optimizer{.weight_decay = 0.1};
};

template <class Batches>
using model = pl::model<Batches, training,                                          //
                        pl::named<"embedding", embedding, pl::reads<tokens>>,       //
                        pl::named<"attention", attention>,                          //
                        pl::named<"widening", widening>,                            //
                        pl::named<"narrowing", narrowing, pl::skips<"embedding">>,  //
                        pl::named<"standardising", standardising>,                  //
                        pl::named<"head", head, pl::tied<"embedding">, pl::reads<targets>>>;

/// The same in one piece: the parameters of all layers, and the sum of the losses of a batch.
template <class Leaf> struct all_parameters {
  BOOST_HANA_DEFINE_STRUCT(all_parameters, (embedding::parameters<Leaf>, embedding_layer),
                           (attention::parameters<Leaf>, attention_layer), (widening::parameters<Leaf>, widening_layer),
                           (narrowing::parameters<Leaf>, narrowing_layer), (head::parameters<Leaf>, head_layer));
};
struct whole_loss {
  constexpr auto operator()(const auto& p, const auto& given, const auto& next) const {
    const auto first = embedding{}(p.embedding_layer, given);
    const auto second = widening{}(p.widening_layer, attention{}(p.attention_layer, first));
    const auto third = standardising{}(narrowing{}(p.narrowing_layer, second, first));
    return head{}(p.head_layer, p.embedding_layer, third, next);
  }
};
struct whole_gradient {
  constexpr auto operator()(const auto& p, const auto& given, const auto& next) const {
    const auto [loss, gradient] = ep::value_and_grad(whole_loss{})(p, given, next);
    return ep::results(loss, gradient);
  }
};
template <int Rows>
using whole_program =
    ep::program<ep::mesh<>, whole_gradient, all_parameters<ep::spec>, ep::i32<Rows, context>, ep::i32<Rows, context>>;

/// Any words, the same in every run.
[[nodiscard]] inline std::int32_t word(int sample, int position) {
  return static_cast<std::int32_t>((sample * 5 + position * position * 3 + sample * position) % words);
}

/// Numbers that are not small, and a rate that changes from step to step.
[[nodiscard]] inline pl::training_options options() {
  pl::training_options chosen;
  chosen.seed = 7;
  chosen.initial = [](const std::string&, const ep::leaf_path& path) {
    return path.is("gain") ? ep::nn::initial{1, 0.3} : ep::nn::initial::normal(0.4);
  };
  chosen.rate = [](std::int64_t number) { return 0.01 / static_cast<double>(number); };
  return chosen;
}

/// The data that a step of so many samples is given.
class step_data {
 public:
  step_data(const std::vector<pl::data_facts>& wanted, int samples) {
    for (const pl::data_facts& one : wanted) {
      std::vector<std::int32_t>& all = rows_.emplace_back();
      for (int s = 0; s < samples; ++s)
        for (int p = 0; p < context; ++p) all.push_back(word(s, p + (one.name == "targets" ? 1 : 0)));
    }
    for (const auto& one : rows_) begins_.push_back(one.data());
  }
  [[nodiscard]] const std::vector<const void*>& pointers() const { return begins_; }

 private:
  std::vector<std::vector<std::int32_t>> rows_;
  std::vector<const void*> begins_;
};

}  // namespace pipeline_model
