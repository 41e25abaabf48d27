// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/command_line.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

namespace gpt {

/// The options of one run of the program.
struct options {
  std::string text;  ///< file to train on; empty: the project's documentation and headers
  std::string root;  ///< the project's folder; empty: where this program's source was
  std::int64_t steps = 2400;
  std::int64_t stop = 0;  ///< steps to do in this run, 0: all
  std::uint64_t seed = 1;
  double rate = 2e-3;      ///< the highest learning rate
  std::string checkpoint;  ///< file to write at the end
  std::string resume;      ///< file to start from
  std::string losses;      ///< file for `step,loss`
  std::string topology;    ///< file, or "probe"; empty: the ranks' network is not looked at
  bool place = false;      ///< devices go to the ranks where this topology serves the program best
  std::int64_t sample = 400;
  double temperature = 0.8;
};

/// Reads the command line into `chosen`. A value is what the program is to end with at once.
[[nodiscard]] inline std::optional<int> parse(int argc, char** argv, options& chosen) {
  using command_line::whole;
  command_line::application line(
      "gpt", "Trains a character-level GPT: gpt inside one process, mpirun -n 4 gpt on four ranks.",
      "The model's and the mesh's sizes are types. To build with others: examples/run --width 256 --layers 8\n"
      "(also --heads, --context, --batch, --vocabulary, --data, --model).");
  line.value("--text", chosen.text, "FILE",
             "Train on this text; without it on the project's documentation and headers");
  line.value("--root", chosen.root, "DIR", "The project's folder, if it is not where this program was built from");
  line.value("--steps", chosen.steps, "N", "Length of the training, which the learning rate follows")->check(whole(1));
  line.value("--stop", chosen.stop, "N", "Do at most N of these in this run")->check(whole(1))->default_str("");
  line.value("--rate", chosen.rate, "X", "Highest learning rate")->check(command_line::positive());
  line.value("--seed", chosen.seed, "N", "Of the parameters, the batches and the sample")->check(whole(0));
  line.value("--checkpoint", chosen.checkpoint, "FILE",
             "Write parameters and optimizer state there at the end (safetensors)");
  line.value("--resume", chosen.resume, "FILE", "Start from such a file, written on any mesh");
  line.value("--losses", chosen.losses, "FILE", "Write every step's loss there as `step,loss`");
  CLI::Option* const topology = line.value("--topology", chosen.topology, "FILE",
                                           "Make the ranks' collectives for this network; `probe` measures it first");
  line.add_flag("--place", chosen.place, "Put the mesh on its ranks so that they take the least time there")
      ->needs(topology);
  line.value("--sample", chosen.sample, "N", "Characters of generated text at the end")->check(whole(0));
  line.value("--temperature", chosen.temperature, "X", "Of the sample: lower is more cautious")
      ->check(command_line::positive());
  return command_line::parse(line, argc, argv);
}

/// The learning rate of step `step`, from 0: a linear start, then a cosine down to a tenth.
[[nodiscard]] inline double learning_rate(const options& chosen, std::int64_t step) {
  constexpr double pi = 3.14159265358979323846;
  const double warm_up = std::min(100.0, 0.1 * static_cast<double>(chosen.steps));
  const auto now = static_cast<double>(step);
  if (now < warm_up) return chosen.rate * (now + 1) / (warm_up + 1);
  const double done = (now - warm_up) / (static_cast<double>(chosen.steps) - warm_up);
  return chosen.rate * (0.1 + 0.45 * (1 + std::cos(pi * done)));
}

}  // namespace gpt
