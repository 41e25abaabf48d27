// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pipeline_example {

/// A command line that cannot be understood.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct options {
  std::string model = "gpt";
  std::int64_t steps = 30;
  int ranks = 2;  ///< in one process; mpirun says it otherwise
  int share = 1;  ///< devices that share each layer
  int batch = 16;
  double rate = 2e-3;
  std::uint64_t seed = 1;
  std::string svg;
  std::string checkpoint;
  std::string resume;
  std::string root;
  bool help = false;
};

inline constexpr const char* usage =
    "usage: pipeline [options]      (or mpirun -n 4 pipeline [options])\n"
    "  --model NAME        gpt, or reversal: an encoder and a decoder of other width and depth (gpt)\n"
    "  --ranks N           devices inside this process; under mpirun, the ranks are (2)\n"
    "  --share N           devices that share each layer: 1, or 2 with --model gpt (1)\n"
    "  --batch N           samples of a step (16)\n"
    "  --steps N           steps of training (30)\n"
    "  --rate X            learning rate (0.002)\n"
    "  --seed N            of parameters and samples (1)\n"
    "  --svg FILE          draw the step as it was planned and as it was measured\n"
    "  --checkpoint FILE   write parameters and optimizer state there at the end (safetensors)\n"
    "  --resume FILE       start from such a file, written under any plan\n"
    "  --root DIR          the project's folder, if it is not where this program was built from\n";

/// Errors: `usage_error`.
[[nodiscard]] inline options parse(int argc, char** argv) {
  options result;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--help" || name == "-h") {
      result.help = true;
      return result;
    }
    const auto text = [&]() -> std::string {
      if (++i == argc) throw usage_error(std::string(name) + " needs a value");
      return argv[i];
    };
    const auto number = [&](double least, double most) {
      const std::string value = text();
      char* end = nullptr;
      const double read = std::strtod(value.c_str(), &end);
      if (value.empty() || *end != '\0' || !(read >= least && read <= most))
        throw usage_error(std::string(name) + " is \"" + value + "\", expected a number from " +
                          std::to_string(static_cast<long long>(least)) + " to " +
                          std::to_string(static_cast<long long>(most)));
      return read;
    };
    if (name == "--model") {
      result.model = text();
      if (result.model != "gpt" && result.model != "reversal")
        throw usage_error("there is no model \"" + result.model + "\"; there are gpt and reversal");
    } else if (name == "--ranks") {
      result.ranks = static_cast<int>(number(1, 64));
    } else if (name == "--share") {
      result.share = static_cast<int>(number(1, 2));
    } else if (name == "--batch") {
      result.batch = static_cast<int>(number(1, 4096));
    } else if (name == "--steps") {
      result.steps = static_cast<std::int64_t>(number(1, 1e9));
    } else if (name == "--rate") {
      result.rate = number(0, 10);
    } else if (name == "--seed") {
      result.seed = static_cast<std::uint64_t>(number(0, 1e15));
    } else if (name == "--svg") {
      result.svg = text();
    } else if (name == "--checkpoint") {
      result.checkpoint = text();
    } else if (name == "--resume") {
      result.resume = text();
    } else if (name == "--root") {
      result.root = text();
    } else {
      throw usage_error("there is no option " + std::string(name));
    }
  }
  if (result.share > 1 && result.model != "gpt")
    throw usage_error("--share 2 needs --model gpt: the layers of " + result.model + " are for one device each");
  return result;
}

}  // namespace pipeline_example
