// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/command_line.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pipeline_example {

/// The options of one run of the program.
struct options {
  std::string model = "gpt";
  std::int64_t steps = 30;
  int ranks = 2;            ///< in one process; mpirun says it otherwise
  int share = 1;            ///< devices that share each layer; 0: what each stage is fastest with
  std::vector<int> stages;  ///< the same of each stage, where they differ
  int batch = 16;
  double rate = 2e-3;
  std::uint64_t seed = 1;
  std::string svg;
  std::string checkpoint;
  std::string resume;
  std::string root;
};

/// Reads the command line into `chosen`. A value is what the program is to end with at once.
[[nodiscard]] inline std::optional<int> parse(int argc, char** argv, options& chosen) {
  using command_line::whole;
  command_line::application line("pipeline",
                                 "Plans the pipeline of a model from what its layers take, and trains it so:\n"
                                 "pipeline inside one process, mpirun -n 4 pipeline on four ranks.");
  const auto model = [](const std::string& name) -> std::string {
    return name == "gpt" || name == "reversal" ? "" : "there is no model \"" + name + "\"; there are gpt and reversal";
  };
  line.value("--model", chosen.model, "NAME", "gpt, or reversal: an encoder and a decoder of other width and depth")
      ->check(CLI::Validator(model, ""));
  line.value("--ranks", chosen.ranks, "N", "Devices inside this process; under mpirun, the ranks are")
      ->check(whole(1, 64));
  line.value("--share", chosen.share, "N",
             "Devices that share each layer: 1, or 2 with --model gpt; 0: as is best for each stage")
      ->check(whole(0, 2));
  line.value("--stages", chosen.stages, "N,N",
             "Stages by hand: of each, the devices that share its layers (--model gpt)")
      ->default_str("none")
      ->delimiter(',')
      ->check(whole(1, 2));
  line.value("--batch", chosen.batch, "N", "Samples of a step")->check(whole(1, 4096));
  line.value("--steps", chosen.steps, "N", "Steps of training")->check(whole(1, 1'000'000'000));
  line.value("--rate", chosen.rate, "X", "Learning rate")->check(command_line::not_negative(10));
  line.value("--seed", chosen.seed, "N", "Of parameters and samples")->check(whole(0));
  line.value("--svg", chosen.svg, "FILE", "Draw the step as it was planned and as it was measured");
  line.value("--checkpoint", chosen.checkpoint, "FILE",
             "Write parameters and optimizer state there at the end (safetensors)");
  line.value("--resume", chosen.resume, "FILE", "Start from such a file, written under any plan");
  line.value("--root", chosen.root, "DIR", "The project's folder, if it is not where this program was built from");
  return command_line::parse(line, argc, argv, [&] {
    if (chosen.share > 1 && chosen.model != "gpt") {
      throw CLI::ValidationError("--share", "2 devices can share the layers of --model gpt only: those of " +
                                                chosen.model + " are for one device each");
    }
    if (!chosen.stages.empty() && chosen.model != "gpt")
      throw CLI::ValidationError("--stages", "there are stages by hand of --model gpt only");
    if (chosen.stages.size() > 6)
      throw CLI::ValidationError("--stages", std::to_string(chosen.stages.size()) + " stages of 6 layers");
  });
}

}  // namespace pipeline_example
