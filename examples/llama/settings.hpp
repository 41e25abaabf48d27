// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "json.hpp"
#include "model.hpp"

#include <cmath>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

namespace llama {

/// A checkpoint's `config.json`, read when the program runs.
struct checkpoint_settings {
  family kind = family::llama;
  int vocabulary = 0;
  int width = 0;
  int layers = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int hidden = 0;
  int positions = 0;  ///< the longest text the model was made for
  double epsilon = 0;
  bool tied = false;
  std::vector<int> ends;  ///< tokens that end a text

  double rope_base = 10000;
  std::string rope_kind = "default";
  double rope_factor = 1;
  double rope_low = 1;
  double rope_high = 4;
  double rope_original = 8192;
};

/// Errors: `checkpoint_error` if the file is not there, or of a model that this program does not have.
[[nodiscard]] inline checkpoint_settings read_settings(const std::filesystem::path& folder) {
  const json file = json::read(folder / "config.json");
  checkpoint_settings made;
  const std::string type = file.at("model_type").string();
  const auto require = [&](const char* key, const std::string& found, const std::string& expected) {
    if (found != expected) throw file.fail('"' + std::string(key) + "\": " + found, expected);
  };
  const auto no = [&](const char* key) { require(key, file.boolean_or(key, false) ? "true" : "false", "false"); };
  made.vocabulary = file.at("vocab_size").integer();
  if (type == "gpt2") {
    made.kind = family::gpt2;
    made.width = file.at("n_embd").integer();
    made.layers = file.at("n_layer").integer();
    made.heads = made.kv_heads = file.at("n_head").integer();
    made.head_dim = made.width / made.heads;
    made.hidden = static_cast<int>(file.number_or("n_inner", 4.0 * made.width));
    made.positions = file.at("n_positions").integer();
    made.epsilon = file.number_or("layer_norm_epsilon", 1e-5);
    made.tied = true;
    require("activation_function", file.string_or("activation_function", "gelu_new"), "gelu_new");
    no("scale_attn_by_inverse_layer_idx");
    if (!file.boolean_or("tie_word_embeddings", true)) throw file.fail("\"tie_word_embeddings\": false", "true");
    if (!file.boolean_or("scale_attn_weights", true)) throw file.fail("\"scale_attn_weights\": false", "true");
  } else if (type == "llama") {
    made.width = file.at("hidden_size").integer();
    made.layers = file.at("num_hidden_layers").integer();
    made.heads = file.at("num_attention_heads").integer();
    made.kv_heads = static_cast<int>(file.number_or("num_key_value_heads", made.heads));
    made.head_dim = static_cast<int>(file.number_or("head_dim", made.width / made.heads));
    made.hidden = file.at("intermediate_size").integer();
    made.positions = file.at("max_position_embeddings").integer();
    made.epsilon = file.number_or("rms_norm_eps", 1e-6);
    made.tied = file.boolean_or("tie_word_embeddings", false);
    require("hidden_act", file.string_or("hidden_act", "silu"), "silu");
    no("attention_bias");
    no("mlp_bias");
    // Newer files have all of it in one place.
    const json* rope = file.find("rope_parameters");
    made.rope_base = rope != nullptr ? rope->number_or("rope_theta", 10000) : file.number_or("rope_theta", 10000);
    if (rope == nullptr) rope = file.find("rope_scaling");
    if (rope != nullptr) {
      made.rope_kind = rope->string_or("rope_type", rope->string_or("type", "default"));
      made.rope_factor = rope->number_or("factor", 1);
      made.rope_low = rope->number_or("low_freq_factor", 1);
      made.rope_high = rope->number_or("high_freq_factor", 4);
      made.rope_original = rope->number_or("original_max_position_embeddings", 8192);
      if (made.rope_kind != "default" && made.rope_kind != "linear" && made.rope_kind != "llama3") {
        throw rope->fail("rotary embedding scaled as \"" + made.rope_kind + '"', "default, linear or llama3");
      }
    }
  } else {
    throw file.fail("\"model_type\": \"" + type + '"', "gpt2 or llama");
  }
  if (const json* end = file.find("eos_token_id")) {
    for (const json& one : end->is_list() ? end->elements() : json::list{*end}) made.ends.push_back(one.integer());
  }
  return made;
}

/// Errors: `checkpoint_error` if the checkpoint has other sizes than this program was compiled for.
template <class Config> void require_sizes(const checkpoint_settings& found, const std::filesystem::path& folder) {
  std::string differ;
  const auto compare = [&](const char* what, auto is, auto built) {
    if (is != built) {
      differ += (differ.empty() ? "" : ", ") + std::string(what) + ' ' + std::to_string(is) + " instead of " +
                std::to_string(built);
    }
  };
  if (found.kind != Config::kind)
    differ = Config::kind == family::gpt2 ? "Llama instead of GPT-2" : "GPT-2 instead of Llama";
  compare("vocabulary", found.vocabulary, Config::vocabulary);
  compare("width", found.width, Config::width);
  compare("layers", found.layers, Config::layers);
  compare("heads", found.heads, Config::heads);
  compare("heads of keys", found.kv_heads, Config::kv_heads);
  compare("elements of a head", found.head_dim, Config::head_dim);
  compare("hidden units", found.hidden, Config::hidden);
  compare("tied embedding", int{found.tied}, int{Config::tied});
  compare("epsilon", found.epsilon, Config::epsilon);
  if (Config::kind == family::gpt2) compare("positions", found.positions, Config::positions);
  if (differ.empty()) return;
  throw espalier::io::checkpoint_error(folder / "config.json", differ,
                                       "the model that this program was built for: sizes are types",
                                       "build for it with examples/llama/run " + folder.string());
}

/// The angle by which pair `pair` of a head's elements turns from one position to the next.
[[nodiscard]] inline double rotary_frequency(const checkpoint_settings& of, int pair) {
  const double plain = std::pow(of.rope_base, -2.0 * pair / of.head_dim);
  if (of.rope_kind == "linear") return plain / of.rope_factor;
  if (of.rope_kind != "llama3") return plain;
  // Llama 3.1: long waves are stretched, short ones stay, and between the two bounds it goes from one to the other.
  const double waves = of.rope_original * plain / (2 * std::numbers::pi);  // in the original context
  if (waves < of.rope_low) return plain / of.rope_factor;
  if (waves > of.rope_high) return plain;
  const double kept = (waves - of.rope_low) / (of.rope_high - of.rope_low);
  return (1 - kept) * plain / of.rope_factor + kept * plain;
}

}  // namespace llama
