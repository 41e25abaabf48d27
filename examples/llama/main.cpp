// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Generates text with somebody else's model: `llama FOLDER` inside this process, `mpirun -n 2 llama FOLDER` on ranks.
#include "compare.hpp"
#include "language_model.hpp"
#include "options.hpp"
#include "settings.hpp"
#include "text/tokenizer.hpp"

#include <espalier/report.hpp>
#include <espalier/runner.hpp>
#include <espalier/tensor/run/io/safetensors_header.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace llama {
namespace {

namespace report = espalier::report;
using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) { return std::chrono::duration<double>(clock::now() - start).count(); }

/// Draws a token from softmax(logits / temperature); the likeliest, if that is 0.
std::int32_t choose(std::span<const float> logits, double temperature, std::mt19937_64& random) {
  if (temperature == 0) return best_of(logits);
  const double highest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (const float one : logits) weights.push_back(std::exp((static_cast<double>(one) - highest) / temperature));
  std::discrete_distribution<std::int32_t> draw(weights.begin(), weights.end());
  return draw(random);
}

int show_comparison(std::ostream& out, const comparison& found) {
  out << "logits    of " << found.tokens - 1 << " tokens differ by at most " << found.largest << ", all read at once "
      << found.in_chunks << '\n'
      << "greedy    " << found.same_tokens << " of " << found.greedy_tokens << " tokens are the same\n"
      << (found.agree() ? "both implementations agree to 1e-4\n" : "the implementations DIFFER\n");
  return found.agree() ? 0 : 1;
}

void generate(const options& chosen, const tokenizer& words, const std::vector<std::int32_t>& ends,
              language_model& model, std::ostream& out) {
  const std::vector<std::int32_t> prompt = words.encode(chosen.prompt);
  std::mt19937_64 random(chosen.seed);
  out << '\n' << words.decode(prompt) << std::flush;
  const clock::time_point start = clock::now();
  std::vector<float> logits = model.read(prompt);
  const double reading = seconds_since(start);

  const clock::time_point begin = clock::now();
  std::string pending;  // bytes of a character that is not whole yet
  int made = 0;
  int read = 0;
  while (made < chosen.tokens) {
    const std::int32_t next = choose(logits, chosen.temperature, random);
    if (!chosen.ignore_end && std::find(ends.begin(), ends.end(), next) != ends.end()) break;
    ++made;
    pending += words.decode(std::span(&next, 1));
    if (espalier::detail::is_utf8(pending) || pending.size() > 4) {
      out << pending << std::flush;
      pending.clear();
    }
    if (made == chosen.tokens) break;
    logits = model.read(std::span(&next, 1));
    ++read;
  }
  const double making = seconds_since(begin);
  out << pending << "\n\nprompt    " << prompt.size() << " tokens, "
      << report::format_scaled(static_cast<double>(prompt.size()) / reading, "tokens/s") << '\n';
  out << "generated " << made << " tokens";
  if (read > 0) out << ", " << report::format_scaled(read / making, "tokens/s");
  out << '\n';
}

int run(int argc, char** argv) {
  options chosen;
  if (const std::optional<int> over = parse(argc, argv, chosen)) return *over;
  espalier::world where(argc, argv, mesh_of_model());
  std::ostream quiet(nullptr);
  std::ostream& out = where.is_root() ? std::cout : quiet;

  const model_sizes sizes = sizes_of_model();
  out << "model     " << sizes.description << ", " << report::format_count(sizes.parameters) << " parameters\n"
      << "devices   " << where.mesh_value().devices() << ", each with " << report::format_bytes(sizes.bytes_per_device)
      << '\n';
  std::unique_ptr<tokenizer> words;
  std::vector<std::int32_t> ends;
  espalier::together(where, [&] {
    ends = read_settings(chosen.checkpoint).ends;
    if (!chosen.compare.empty()) return;
    words = std::make_unique<tokenizer>(chosen.checkpoint);
    const std::size_t needed = words->encode(chosen.prompt).size() + static_cast<std::size_t>(chosen.tokens);
    if (words->encode(chosen.prompt).empty()) throw espalier::error_on_all_ranks("--prompt has no tokens: give a text");
    if (needed > static_cast<std::size_t>(sizes.context)) {
      throw espalier::error_on_all_ranks("prompt and --tokens are " + std::to_string(needed) +
                                         " tokens, the cache has room for " + std::to_string(sizes.context) +
                                         ": ask for fewer, or build with a larger --context");
    }
  });
  const clock::time_point start = clock::now();
  const std::unique_ptr<language_model> model = read_model(where, chosen.checkpoint);
  out << "read      " << report::format_count(model->elements_read()) << " parameters by this process in "
      << report::format_fixed(seconds_since(start), 2) << " s\n";
  if (!chosen.compare.empty()) return show_comparison(out, compare(where, *model, sizes.vocabulary, chosen.compare));
  generate(chosen, *words, ends, *model, out);
  return 0;
}

}  // namespace
}  // namespace llama

int main(int argc, char** argv) {
  return espalier::guarded_main(argc, argv, [&] { return llama::run(argc, argv); });
}
