// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "../../examples/gpt/model.hpp"
#include "../steps/torch_values.hpp"
#include "models.hpp"

#include <espalier/pipeline/stages/model/model.hpp>

#include <boost/hana/define_struct.hpp>

#include <string_view>
#include <utility>

namespace espalier::benchmarks {

namespace {

namespace pl = espalier::pipeline;

/// `layers` is what initial values are numbered by.
struct settings : gpt::config<1024, 256, 8, 8, 128, 16> {
  static constexpr bool attention_bias = true;
  static constexpr nn::adamw_settings optimizer{.weight_decay = 0};
};
using trees = gpt::trees<settings>;

struct tokens : pl::field<"tokens", i32<settings::context>> {};
struct targets : pl::field<"targets", i32<settings::context>> {};

struct embedding {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (leaf<Leaf, f32<settings::vocabulary, settings::width>>, token),
                             (leaf<Leaf, f32<settings::context, settings::width>>, position));
  };
  constexpr auto operator()(const auto& p, const auto& words) const { return gather<0>(p.token, words) + p.position; }
};

struct block {
  template <class Leaf> using parameters = typename trees::template block<Leaf>;
  constexpr auto operator()(const auto& p, const auto& x) const {
    return gpt::transformer_block<gpt::megatron<>>{}(x, p);
  }
};

struct head {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (leaf<Leaf, f32<settings::width>>, gain),
                             (leaf<Leaf, f32<settings::width>>, bias),
                             (leaf<Leaf, f32<settings::width, settings::vocabulary>>, head));
  };
  constexpr auto operator()(const auto& p, const auto& x, const auto& next) const {
    const auto z = nn::layer_norm(x, p.gain, p.bias);
    return sum(nn::cross_entropy_each(einsum<"bsw,wv->bsv">(z, p.head), next)) * (1.0 / settings::context);
  }
};

using model =
    pl::model<pl::batches<2>, settings, pl::named<"embedding", embedding, pl::reads<tokens>>,
              pl::named<"block0", block>, pl::named<"block1", block>, pl::named<"block2", block>,
              pl::named<"block3", block>, pl::named<"block4", block>, pl::named<"block5", block>,
              pl::named<"block6", block>, pl::named<"block7", block>, pl::named<"head", head, pl::reads<targets>>>;

/// A parameter's name, "block3.query.weight", asked as an nn::leaf_path is.
struct dotted_path {
  std::string_view name;
  [[nodiscard]] bool is(std::string_view last) const { return name.ends_with("." + std::string(last)); }
  [[nodiscard]] bool is(std::string_view owner, std::string_view last) const {
    return name.ends_with("." + std::string(owner) + "." + std::string(last));
  }
  [[nodiscard]] std::string str() const { return std::string(name); }
};

void start_as_torch(pl::engine& engine) {
  for (pl::detail::parameter_block& one : engine.store().blocks())
    for (const pl::tensor_facts& leaf : engine.model().facts(one.owner).parameters) {
      const torch_parameter from = torch_parameter_of<settings>(dotted_path{leaf.name});
      auto* const first = reinterpret_cast<float*>(one.parameters.data() + leaf.offset);
      for (std::int64_t i = 0; i < leaf.elements(); ++i)
        first[i] = from.value(static_cast<std::uint64_t>(one.owner) - 1, static_cast<std::uint64_t>(i));
    }
}

}  // namespace

layers_to_train pipelined_gpt() {
  layers_to_train made;
  pl::training_options training;
  training.rate = [](std::int64_t) { return 1e-3; };
  made.model = std::make_unique<model>(std::move(training));
  made.equal_split = [](int stages) {
    std::vector<int> first{0};
    for (int s = 1; s < stages; ++s) first.push_back(1 + s * settings::layers / stages);
    return first;
  };
  made.fill = [](const std::string& name, std::int64_t step, int sample, std::byte* row) {
    auto* const to = reinterpret_cast<std::int32_t*>(row);
    const int shift = name == "targets" ? 1 : 0;
    for (int k = 0; k < settings::context; ++k)
      to[k] = drawn_token(step % 8, sample, k + shift, settings::context, settings::vocabulary);
  };
  made.start = start_as_torch;
  return made;
}

}  // namespace espalier::benchmarks
