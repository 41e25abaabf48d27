// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/command_line.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace llama {

/// The options of one run of the program.
struct options {
  std::string checkpoint;
  std::string prompt = "The trees along the wall";
  int tokens = 32;
  double temperature = 0;
  std::uint64_t seed = 1;
  bool ignore_end = false;
  std::string compare;
};

/// Reads the command line into `chosen`. A value is what the program is to end with at once.
[[nodiscard]] inline std::optional<int> parse(int argc, char** argv, options& chosen) {
  command_line::application line(
      "llama",
      "Generates text with a model of the GPT-2 or Llama family, read from a Hugging Face checkpoint.\n"
      "The model is split over the devices while it is read: llama inside one process, mpirun -n N llama on N ranks.",
      "The model's sizes and the number of devices are types. To build for another checkpoint and run it:\n"
      "  examples/llama/run FOLDER --devices 2 --context 2048 --prompt \"Once upon a time\"");
  line.value("checkpoint", chosen.checkpoint, "FOLDER", "with config.json, tokenizer.json and model*.safetensors")
      ->required()
      ->check(CLI::Validator(CLI::ExistingDirectory).description(""));
  line.value("--prompt", chosen.prompt, "TEXT", "Text to continue");
  line.value("--tokens", chosen.tokens, "N", "Tokens to generate")->check(command_line::whole(0, 1 << 30));
  line.value("--temperature", chosen.temperature, "X", "0 takes the likeliest token; higher is bolder")
      ->check(command_line::not_negative());
  line.value("--seed", chosen.seed, "N", "Of the choice of tokens")->check(command_line::whole(0));
  line.add_flag("--ignore-end", chosen.ignore_end, "Go on behind tokens that end a text");
  line.value("--compare", chosen.compare, "FILE",
             "Instead, read the `tokens` of this safetensors file and compare logits with its `logits`");
  return command_line::parse(line, argc, argv);
}

}  // namespace llama
