// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "../gpt/corpus.hpp"
#include "../gpt/model.hpp"
#include "task.hpp"

#include <espalier/stages.hpp>

#include <boost/hana/define_struct.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

// The layers of examples/gpt, one by one: a stage of a pipeline is a run of them.
namespace pipeline_example {

namespace {

struct settings : gpt::config<128, 64, 4, 4, 32, 1> {
  static constexpr ep::nn::adamw_settings optimizer{.beta2 = 0.99, .weight_decay = 0.1};
};
/// The devices of a replica, which share heads, hidden units and vocabulary.
struct across : ep::axis<"across", 2> {};
using layout = gpt::megatron<ep::none, across>;
/// A stage has replicas of one device each, or of two.
struct training_on_either : settings {
  using meshes = pl::meshes<ep::mesh<>, ep::mesh<across>>;
};
using trees = gpt::trees<settings>;

struct tokens : pl::field<"tokens", ep::i32<settings::context>> {};
struct targets : pl::field<"targets", ep::i32<settings::context>> {};

struct embedding {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::f32<settings::vocabulary, settings::width>>, token),
                             (ep::leaf<Leaf, ep::f32<settings::context, settings::width>>, position));
  };
  constexpr auto operator()(const auto& p, const auto& words) const {
    return ep::gather<0>(layout::embedding(p.token), words) + p.position;
  }
};

struct block {
  template <class Leaf> using parameters = typename trees::template block<Leaf>;
  constexpr auto operator()(const auto& p, const auto& x) const { return gpt::transformer_block<layout>{}(x, p); }
};

/// The last norm, and the embedding once more.
struct head {
  template <class Leaf> using parameters = typename trees::template norm<Leaf>;
  constexpr auto operator()(const auto& p, const auto& tied, const auto& x, const auto& next) const {
    const auto z = ep::nn::layer_norm(x, p.gain, p.bias);
    const auto each = ep::nn::cross_entropy_each(layout::logits(ep::einsum<"bsw,vw->bsv">(z, tied.token)), next);
    return ep::sum(each) * (1.0 / settings::context);
  }
};

using model = pl::model<pl::batches<1, 2, 4>, training_on_either,  //
                        pl::named<"embedding", embedding, pl::reads<tokens>>, pl::named<"block1", block>,
                        pl::named<"block2", block>, pl::named<"block3", block>, pl::named<"block4", block>,
                        pl::named<"head", head, pl::tied<"embedding">, pl::reads<targets>>>;

}  // namespace

task gpt_task(const pl::training_options& training, const std::string& root) {
  struct text_data {
    gpt::source_text source;
    gpt::vocabulary symbols;
    gpt::corpus windows;
    explicit text_data(gpt::source_text text)
        : source(std::move(text)),
          symbols(source.text, settings::vocabulary),
          windows(source.text, symbols, settings::context) {}
  };
  pl::training_options chosen = training;
  chosen.initial = [](const std::string&, const ep::leaf_path& path) {
    ep::nn::initial start = gpt::initial<settings>(path);
    start.deviation *= 3;  // a narrow model starts faster from larger numbers
    return start;
  };
  const auto text = std::make_shared<text_data>(gpt::read_project_text(root));
  task made;
  made.title = "GPT of 4 blocks, width 64, context 32, on " + std::to_string(text->source.files.size()) + " files";
  made.model = std::make_unique<model>(std::move(chosen));
  made.fill = [text, seed = training.seed](const std::string& name, std::int64_t step, int sample, std::byte* row) {
    const std::int64_t window = step == held_out
                                    ? text->windows.held_out_window(sample % text->windows.held_out_windows())
                                    : text->windows.training_window(seed, step, sample);
    const std::int64_t start = window + (name == "targets" ? 1 : 0);
    auto* const to = reinterpret_cast<std::int32_t*>(row);
    for (int k = 0; k < settings::context; ++k) to[k] = text->windows.tokens()[static_cast<std::size_t>(start + k)];
  };
  made.chance = std::log(static_cast<double>(text->symbols.size()));
  return made;
}

}  // namespace pipeline_example
