// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/runner.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace llama {

/// The model that this program was built for, without its types: what only one file needs to know compiles once.
class language_model {
 public:
  language_model() = default;
  language_model(const language_model&) = delete;
  language_model& operator=(const language_model&) = delete;
  virtual ~language_model() = default;

  /// Reads tokens that follow those read before; gives the logits for the one after them, on every process. Collective.
  /// Errors: `std::length_error` if they do not fit the cache.
  [[nodiscard]] virtual std::vector<float> read(std::span<const std::int32_t> tokens) = 0;
  /// Forgets all tokens.
  virtual void restart() = 0;
  /// How many parameters this process has read from the files.
  [[nodiscard]] virtual std::int64_t elements_read() const = 0;
};

/// The sizes of a model that are known before anything is read.
struct model_sizes {
  std::string description;  ///< "llama of 2 layers, width 32, 8 heads on 4 of keys, 320 tokens"
  int context = 0;          ///< tokens that the cache has room for
  int vocabulary = 0;
  std::int64_t parameters = 0;
  std::int64_t bytes_per_device = 0;
};
[[nodiscard]] model_sizes sizes_of_model();

/// The mesh that the model is split over.
[[nodiscard]] const espalier::mesh_shape& mesh_of_model();

/// Reads the checkpoint in `folder`. Collective. Errors: `checkpoint_error`, under MPI `error_on_all_ranks`.
[[nodiscard]] std::unique_ptr<language_model> read_model(espalier::world& where, const std::filesystem::path& folder);

}  // namespace llama
