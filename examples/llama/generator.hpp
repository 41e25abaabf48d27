// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "checkpoint.hpp"
#include "model.hpp"
#include "settings.hpp"

#include <espalier/runner.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace llama {

/// How many tokens of a prompt are read at once.
inline constexpr int chunk = 16;

/// A model with its cache: reads tokens, and says what comes next.
template <class Config> class generator {
 public:
  /// Reads the checkpoint in `folder`. Errors: `checkpoint_error`, under MPI `error_on_all_ranks`.
  generator(ep::world& where, const std::filesystem::path& folder)
      : where_(where),
        read_one_(where),
        read_chunk_(where),
        parameters_(read_one_.template argument<0>()),
        cache_(read_one_.template argument<1>()),
        angles_(read_one_.template argument<2>()),
        token_(read_one_.template argument<3>()),
        tokens_(read_chunk_.template argument<3>()),
        position_(read_one_.template argument<4>()) {
    checkpoint_settings found;
    ep::together(where, [&] {
      found = read_settings(folder);
      require_sizes<Config>(found, folder);
    });
    elements_read_ = load_parameters<Config>(where, parameters_, folder);
    const auto angle = [&](std::int64_t index) {
      const int pair = static_cast<int>(index % Config::head_dim) % (Config::head_dim / 2);
      return static_cast<double>(index / Config::head_dim) * rotary_frequency(found, pair);
    };
    angles_.cosine.for_each(
        [&](float& element, std::int64_t index) { element = static_cast<float>(std::cos(angle(index))); });
    angles_.sine.for_each([&](float& element, std::int64_t index) {
      const bool first_half = index % Config::head_dim < Config::head_dim / 2;
      element = static_cast<float>((first_half ? -1 : 1) * std::sin(angle(index)));
    });
  }

  /// How many tokens have been read, of at most `Config::context`.
  [[nodiscard]] int position() const { return now_; }
  /// How many parameters this process has read from the files.
  [[nodiscard]] std::int64_t elements_read() const { return elements_read_; }

  /// Forgets all tokens.
  void restart() { now_ = 0; }

  /// Reads tokens that follow those read before; gives the logits for the one after them, on every process. Collective.
  /// Errors: `std::length_error` if they do not fit the cache.
  [[nodiscard]] std::vector<float> read(std::span<const std::int32_t> text) {
    if (static_cast<std::int64_t>(text.size()) > Config::context - now_) {
      throw std::length_error("the text has more tokens than the cache has room for, " +
                              std::to_string(Config::context) + ": build with a larger --context");
    }
    std::vector<float> logits;
    while (!text.empty()) {
      const bool whole_chunk = text.size() >= chunk;
      const auto count = static_cast<std::size_t>(whole_chunk ? chunk : 1);
      logits = whole_chunk ? run(read_chunk_, tokens_, text, text.size() < 2 * chunk)
                           : run(read_one_, token_, text, text.size() == 1);
      now_ += static_cast<int>(count);
      text = text.subspan(count);
    }
    return logits;
  }

 private:
  template <class Runner, class Tokens>
  std::vector<float> run(Runner& program, const Tokens& tokens, std::span<const std::int32_t> text, bool wanted) {
    tokens.for_each(
        [&](std::int32_t& element, std::int64_t index) { element = text[static_cast<std::size_t>(index)]; });
    position_.for_each([&](std::int32_t& element, std::int64_t) { element = now_; });
    const auto& out = program(parameters_, cache_, angles_, tokens, position_);
    if (!wanted) return {};
    return ep::gather(where_, out.template get<1>());
  }

  ep::world& where_;
  ep::runner<program<Config, 1>> read_one_;
  ep::runner<program<Config, chunk>> read_chunk_;
  parameters<Config, ep::arrays> parameters_;
  typename cache<Config>::template tree<ep::arrays> cache_;
  typename rotation<Config>::template tree<ep::arrays> angles_;
  ep::sharded_array<ep::i32<1>> token_;
  ep::sharded_array<ep::i32<chunk>> tokens_;
  ep::sharded_array<ep::i32<>> position_;
  std::int64_t elements_read_ = 0;
  int now_ = 0;
};

}  // namespace llama
