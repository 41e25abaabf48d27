// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Trains a character-level GPT on a 2 x 2 mesh: `gpt` inside this process, `mpirun -n 4 gpt` on four ranks.
#include "corpus.hpp"
#include "losses.hpp"
#include "machine.hpp"
#include "ngram.hpp"
#include "options.hpp"
#include "resume.hpp"
#include "sample.hpp"
#include "settings.hpp"
#include "summary.hpp"
#include "topology.hpp"
#include "trainer.hpp"

#include <espalier/io.hpp>
#include <espalier/report.hpp>
#include <espalier/runner.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace gpt {
namespace {

/// The folder above examples/gpt, as the compiler saw it.
std::string project_root() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().string();
}

source_text read_text(const options& chosen) {
  if (!chosen.text.empty()) return read_text_file(chosen.text);
  return read_project_text(chosen.root.empty() ? project_root() : chosen.root);
}

/// A mistake in a name must not show after minutes of training.
void check_folder_of(const std::string& file, const char* option) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    throw std::runtime_error(std::string(option) + " " + file + ": there is no folder " + folder.string());
  }
}

/// Bytes as hexadecimal digits: metadata is text.
std::string spelled(const vocabulary& symbols) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (int id = 0; id < symbols.size(); ++id) {
    const auto byte = static_cast<unsigned char>(symbols.decode(id));
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

void save(ep::world& where, trainer& model, const vocabulary& symbols, std::int64_t done, const std::string& path) {
  const ep::io::metadata_map notes{{step_note, std::to_string(done)}, {"gpt.vocabulary", spelled(symbols)}};
  ep::save_checkpoint(where, model.state(), path, notes);
}

/// Returns the number of steps done, of `steps`.
std::int64_t resume(ep::world& where, trainer& model, const vocabulary& symbols, const std::string& path,
                    std::int64_t steps) {
  std::int64_t done = 0;
  ep::together(where, [&] {
    const ep::io::safetensors_reader file(path);
    const auto note = file.metadata().find("gpt.vocabulary");
    if (note == file.metadata().end() || note->second != spelled(symbols)) {
      throw ep::io::checkpoint_error(path, "the characters of another text", "those of the text to train on",
                                     "give the text it was trained on with --text");
    }
    done = steps_done(file, steps);
  });
  ep::load_checkpoint(where, model.state(), path);
  return done;
}

/// The loss that the GPT has to beat, on the characters it is measured on.
double ngram_loss(const corpus& text, std::int64_t windows) {
  std::vector<std::span<const std::int32_t>> training;
  for (const stretch& part : text.training()) training.push_back(text.tokens(part));
  const ngram_model model(settings::vocabulary, 4, training);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(windows * text.context()));
  std::vector<std::int32_t> targets(tokens.size());
  text.held_out_batch(0, tokens, targets);
  return model.cross_entropy(tokens, targets, text.context());
}

void describe_text(std::ostream& out, const source_text& source, const vocabulary& symbols, const corpus& text) {
  out << "text      "
      << (source.files.size() == 1 ? source.files.front() : std::to_string(source.files.size()) + " files") << ", "
      << report::format_count(static_cast<std::int64_t>(source.text.size())) << " characters, " << symbols.size()
      << " different; " << report::format_count(text.held_out_characters()) << " held out\n";
  if (symbols.dropped_bytes() > 0) {
    out << "          the vocabulary has no room for " << symbols.dropped_bytes() << " rare ones ("
        << symbols.dropped_characters() << " characters)\n";
  }
}

/// @param losses null on ranks other than the first, and if they were not asked for
void train(ep::world& where, trainer& model, const options& chosen, std::int64_t done, std::int64_t last,
           loss_file* losses, std::ostream& out) {
  report::progress_options shown = report::progress::options_for(std::cout);
  if (where.uses_mpi()) shown.terminal = false;  // mpirun gives ranks a terminal, wherever their output goes
  shown.first_step = done;
  shown.flops_per_token = flops_per_token();
  shown.peak_flops = matrix_product_rate(where);
  if (where.is_root())
    out << "peak      " << report::format_scaled(shown.peak_flops, "FLOP/s") << " in matrix products\n\n";
  report::progress line(out, last, shown);
  for (std::int64_t number = done; number < last; ++number) {
    const double loss = model.step(number, learning_rate(chosen, number));
    if (!std::isfinite(loss)) {
      throw ep::error_on_all_ranks("the loss of step " + std::to_string(number + 1) +
                                   " is not finite: choose a lower --rate");
    }
    if (!where.is_root()) continue;
    if (losses != nullptr) losses->add(number + 1, loss);
    line.update(number + 1, loss, tokens_per_step);
  }
}

/// The loss on held-out text. A step's loss is the one before it: what the last step has done shows here.
double loss_after(ep::world& where, trainer& model, std::int64_t last) {
  const double held_out = model.held_out_loss();
  ep::together(where, [&] {
    if (model.is_finite() && (std::isfinite(held_out) || model.evaluated_windows() == 0)) return;
    throw ep::error_on_all_ranks("after step " + std::to_string(last) +
                                 " the model is not finite, and was not written: choose a lower --rate");
  });
  return held_out;
}

int run(int argc, char** argv) {
  options chosen;
  if (const std::optional<int> over = parse(argc, argv, chosen)) return *over;
  ep::world where(argc, argv, mesh{});
  std::ostream quiet(nullptr);
  std::ostream& out = where.is_root() ? std::cout : quiet;

  source_text source;
  ep::together(where, [&] {
    check_folder_of(chosen.checkpoint, "--checkpoint");
    check_folder_of(chosen.losses, "--losses");
    source = read_text(chosen);
  });
  const vocabulary symbols(source.text, settings::vocabulary);
  std::optional<corpus> text;
  ep::together(where, [&] { text.emplace(source.text, symbols, settings::context); });
  describe_text(out, source, symbols, *text);
  describe_model(out, where);
  if (!chosen.topology.empty()) {
    const ep::comm::mesh_traffic traffic = ep::traffic_of<training_program>();
    out << "network   " << use_topology(where, chosen.topology, chosen.place ? &traffic : nullptr) << '\n';
  }

  trainer model(where, *text, chosen.seed);
  out << std::flush;
  const std::int64_t done = chosen.resume.empty() ? 0 : resume(where, model, symbols, chosen.resume, chosen.steps);
  ep::together(where, [&] {
    if (chosen.resume.empty() || model.is_finite()) return;
    throw ep::error_on_all_ranks("the model in " + chosen.resume +
                                 " is not finite: resume from a checkpoint of an earlier step");
  });
  if (done > 0) out << "resumed   after step " << done << " of " << chosen.resume << '\n';
  const std::int64_t last = chosen.stop == 0 ? chosen.steps : std::min(chosen.steps, done + chosen.stop);
  std::unique_ptr<loss_file> losses;
  ep::together(where, [&] {
    if (where.is_root() && !chosen.losses.empty()) losses = std::make_unique<loss_file>(chosen.losses);
  });
  train(where, model, chosen, done, last, losses.get(), out);
  const double held_out = loss_after(where, model, last);
  if (!chosen.checkpoint.empty()) {
    save(where, model, symbols, last, chosen.checkpoint);
    out << "wrote " << chosen.checkpoint << '\n';
  }

  out << '\n';
  describe_step(out);
  if (where.is_root()) {
    out << "\nheld-out loss, nats per character:  " << report::format_fixed(held_out, 4) << " GPT";
    if (last < chosen.steps) {
      out << " after " << last << " of " << chosen.steps << " steps\n";
    } else {
      const double ngram = ngram_loss(*text, model.evaluated_windows());
      out << ",  " << report::format_fixed(ngram, 4) << " smoothed 4-gram model:  the GPT is "
          << (held_out < ngram ? "below" : "NOT below") << '\n';
    }
  }
  if (chosen.sample > 0) {
    const std::string text_made =
        generate(where, model.state().parameters, symbols, "/// ", chosen.sample, chosen.temperature, chosen.seed);
    out << "\nsample, at temperature " << report::format_fixed(chosen.temperature, 1) << ":\n" << text_made << '\n';
  }
  out << std::flush;
  ep::together(where, [&] {
    if (losses) losses->finish();
  });
  return 0;
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) {
  return espalier::guarded_main(argc, argv, [&] { return gpt::run(argc, argv); });
}
