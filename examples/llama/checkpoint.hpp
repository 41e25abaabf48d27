// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "json.hpp"
#include "model.hpp"

#include <espalier/io.hpp>
#include <espalier/nn.hpp>
#include <espalier/runner.hpp>
#include <espalier/tensor/run/io/safetensors_header.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace llama {

/// The tensors of a checkpoint, in one file or in several with an index.
class checkpoint_files {
 public:
  /// Errors: `checkpoint_error`.
  explicit checkpoint_files(const std::filesystem::path& folder) : folder_(folder) {
    const std::filesystem::path index = folder / "model.safetensors.index.json";
    if (!std::filesystem::exists(index)) {
      open("model.safetensors");
      return;
    }
    const json file = json::read(index);
    for (const auto& [name, where] : file.at("weight_map").members()) open(where.string());
  }

  /// The file that has a tensor. What holds a model without its head leaves the names' first part away, so that
  /// `transformer.wte.weight` may also be called `wte.weight`: `name` is set to what it is called.
  [[nodiscard]] const espalier::io::safetensors_reader& file_of(std::string& name) const {
    std::string shorter = name;
    for (const char* first : {"transformer.", "model."}) {
      if (name.rfind(first, 0) == 0) shorter = name.substr(std::strlen(first));
    }
    for (const std::string& called : {name, shorter}) {
      for (const auto& [path, file] : files_) {
        if (file->find(called) == nullptr) continue;
        name = called;
        return *file;
      }
    }
    throw espalier::io::checkpoint_error(folder_, "no tensor \"" + name + '"', "one of that name",
                                         "give the folder of a complete checkpoint");
  }

 private:
  void open(const std::string& name) {
    std::unique_ptr<espalier::io::safetensors_reader>& file = files_[name];
    if (!file) file = std::make_unique<espalier::io::safetensors_reader>(folder_ / name);
  }

  std::filesystem::path folder_;
  std::map<std::string, std::unique_ptr<espalier::io::safetensors_reader>> files_;
};

/// The place of a parameter in a file. `rows` of its dimensions, without layers, are the file's first one; the others
/// are its second. It is number `part` of `parts` tensors that lie side by side along the file's last dimension.
struct source {
  std::string name;
  int rows = 1;
  int parts = 1;
  int part = 0;
};

namespace detail {

[[nodiscard]] inline source gpt2_source(const ep::leaf_path& path, int layer) {
  if (path.is("token")) return {"transformer.wte.weight"};
  if (path.is("position")) return {"transformer.wpe.weight"};
  const std::string own = path.is("gain") ? "weight" : path.name;
  if (path.parent->is("final_norm")) return {"transformer.ln_f." + own};
  const std::string block = "transformer.h." + std::to_string(layer) + '.';
  const bool is_bias = path.is("bias");
  if (path.parent->is("attention_norm")) return {block + "ln_1." + own};
  if (path.parent->is("mlp_norm")) return {block + "ln_2." + own};
  if (path.parent->is("up")) return {block + "mlp.c_fc." + own};
  if (path.parent->is("down")) return {block + "mlp.c_proj." + own};
  if (path.parent->is("output")) return {block + "attn.c_proj." + own, is_bias ? 1 : 3};
  // Queries, keys and values of all heads are one matrix.
  const int part = path.parent->is("query") ? 0 : path.parent->is("key") ? 1 : 2;
  return {block + "attn.c_attn." + own, is_bias ? 0 : 1, 3, part};
}

[[nodiscard]] inline source llama_source(const ep::leaf_path& path, int layer) {
  if (path.is("token")) return {"model.embed_tokens.weight"};
  if (path.is("head")) return {"lm_head.weight"};
  if (path.is("final_norm")) return {"model.norm.weight"};
  const std::string block = "model.layers." + std::to_string(layer) + '.';
  if (path.is("attention_norm")) return {block + "input_layernorm.weight"};
  if (path.is("mlp_norm")) return {block + "post_attention_layernorm.weight"};
  if (path.is("query")) return {block + "self_attn.q_proj.weight", 3};
  if (path.is("key")) return {block + "self_attn.k_proj.weight", 2};
  if (path.is("value")) return {block + "self_attn.v_proj.weight", 2};
  if (path.is("output")) return {block + "self_attn.o_proj.weight"};
  return {block + "mlp." + path.name + "_proj.weight"};
}

/// Reads a box of a tensor of any floating type as f32.
inline void read_as_f32(const ep::io::safetensors_reader& file, const std::string& name,
                        const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& starts,
                        const std::vector<std::int64_t>& sizes, float* to, const std::vector<std::int64_t>& strides) {
  const ep::dtype type = file.find(name)->type;
  if (type == ep::dtype::f32) {
    file.read_reshaped(name, shape, starts, sizes, to, strides);
    return;
  }
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  ep::with_storage(type, [&](auto element) {
    if constexpr (std::is_arithmetic_v<decltype(element)> && !std::is_floating_point_v<decltype(element)>) {
      throw ep::io::checkpoint_error(file.path(), "tensor \"" + name + "\" is not of floating-point numbers",
                                     "F32, F16, BF16 or F64", "use a checkpoint that is not quantised");
    } else {
      std::vector<decltype(element)> packed(static_cast<std::size_t>(count));
      file.read_reshaped(name, shape, starts, sizes, packed.data());
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i;
        std::int64_t at = 0;
        for (std::size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) at += rest % sizes[d] * strides[d];
        to[at] = static_cast<float>(packed[static_cast<std::size_t>(i)]);
      }
    }
  });
}

}  // namespace detail

/// Fills a model's parameters, each process those of its own devices: none holds the whole. Gives the number of
/// elements that this process has read. Collective. Errors: `checkpoint_error`, under MPI `error_on_all_ranks`.
template <class Config>
std::int64_t load_parameters(ep::world& where, const parameters<Config, ep::arrays>& into,
                             const std::filesystem::path& folder) {
  std::int64_t elements = 0;
  ep::together(where, [&] {
    const checkpoint_files files(folder);
    ep::for_each_named_leaf(into, [&](const auto& array, const ep::leaf_path& path) {
      using tensor = typename std::remove_cvref_t<decltype(array)>::tensor;
      const bool is_stacked = path.str().rfind("blocks.", 0) == 0;
      const int first = is_stacked ? 1 : 0;  // of the dimensions that the file has
      for (int layer = 0; layer < (is_stacked ? Config::layers : 1); ++layer) {
        source from =
            Config::kind == family::gpt2 ? detail::gpt2_source(path, layer) : detail::llama_source(path, layer);
        const ep::io::safetensors_reader& file = files.file_of(from.name);
        // The file's shape, and the same with a dimension for each of ours, and one for the parts.
        std::vector<std::int64_t> in_file;
        std::vector<std::int64_t> seen;
        for (int d = first; d < tensor::rank; ++d) {
          if (from.parts > 1 && d - first == from.rows) seen.push_back(from.parts);
          seen.push_back(tensor::shape[d]);
          if (d == first || d - first == from.rows) in_file.push_back(1);
          in_file.back() *= tensor::shape[d];
        }
        in_file.back() *= from.parts;
        if (file.find(from.name)->shape != in_file) {
          ep::io::tensor_spec wanted{from.name, file.find(from.name)->type, in_file};
          throw ep::io::checkpoint_error(file.path(),
                                         '"' + from.name + "\" is " + ep::detail::describe(*file.find(from.name)),
                                         ep::detail::describe(wanted), "build the program for this checkpoint");
        }
        for (int k = 0; k < array.local_count(); ++k) {
          std::vector<std::int64_t> starts;
          std::vector<std::int64_t> sizes;
          std::vector<std::int64_t> strides;
          std::int64_t count = 1;
          for (int d = first; d < tensor::rank; ++d) {
            if (from.parts > 1 && d - first == from.rows) {
              starts.push_back(from.part);
              sizes.push_back(1);
              strides.push_back(0);
            }
            const ep::interval held = array.held(k, d);
            starts.push_back(held.start);
            sizes.push_back(held.size);
            strides.push_back(ep::stride_of(array.local_extents(), d));
            count *= held.size;
          }
          if (count == 0) continue;
          float* const to = array.data(k) + (is_stacked ? layer * ep::stride_of(array.local_extents(), 0) : 0);
          detail::read_as_f32(file, from.name, seen, starts, sizes, to, strides);
          elements += count;
        }
      }
    });
  });
  return elements;
}

}  // namespace llama
