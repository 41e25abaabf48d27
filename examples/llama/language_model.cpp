// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include "language_model.hpp"

#include "generator.hpp"

#include <llama_settings.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace llama {

namespace {

using step = program<settings, 1>;

/// Whether the cache is written where it lies, and nothing of it copied.
constexpr bool writes_in_place() {
  for (int id = 0; id < step::code.size; ++id) {
    if (step::plan.copied[id] && step::code.code[id].op->facts.part == ep::structure::result) return false;
  }
  return true;
}
static_assert(writes_in_place());
// One sum over the devices looks tokens up, and two in each layer put its halves together (Megatron-LM).
static_assert(step::collectives<ep::all_reduce>() == (settings::devices == 1 ? 0 : 1 + 2 * settings::layers));
static_assert(step::collectives() == step::collectives<ep::all_reduce>());

class model_of_settings : public language_model {
 public:
  model_of_settings(ep::world& where, const std::filesystem::path& folder) : generator_(where, folder) {}

  [[nodiscard]] std::vector<float> read(std::span<const std::int32_t> tokens) override {
    return generator_.read(tokens);
  }
  void restart() override { generator_.restart(); }
  [[nodiscard]] std::int64_t elements_read() const override { return generator_.elements_read(); }

 private:
  generator<settings> generator_;
};

}  // namespace

model_sizes sizes_of_model() {
  model_sizes made;
  made.description = std::string(settings::kind == family::gpt2 ? "GPT-2" : "Llama") + " of " +
                     std::to_string(settings::layers) + " layers, width " + std::to_string(settings::width) + ", " +
                     std::to_string(settings::heads) + " heads";
  if (settings::heads != settings::kv_heads)
    made.description += " on " + std::to_string(settings::kv_heads) + " of keys";
  made.description += ", " + std::to_string(settings::vocabulary) + " tokens";
  made.context = settings::context;
  made.vocabulary = settings::vocabulary;
  const parameters<settings, ep::spec> tree{};
  ep::detail::for_each_leaf(
      tree, [&](const auto& leaf) { made.parameters += std::remove_cvref_t<decltype(leaf)>::shape.elements(); });
  made.bytes_per_device = step::peak_bytes_per_device();
  return made;
}

const espalier::mesh_shape& mesh_of_model() {
  static constexpr espalier::mesh_shape shape = mesh<settings>::value;
  return shape;
}

std::unique_ptr<language_model> read_model(espalier::world& where, const std::filesystem::path& folder) {
  return std::make_unique<model_of_settings>(where, folder);
}

}  // namespace llama
