// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gpt {

/// A command line that cannot be understood.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What one run of the program is asked to do.
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
  bool help = false;
};

inline constexpr const char* usage =
    "usage: gpt [options]\n"
    "  --text FILE         train on this text (default: the project's documentation and headers)\n"
    "  --root DIR          the project's folder, if it is not where this program was built from\n"
    "  --steps N           length of the training, which the learning rate follows (2400)\n"
    "  --stop N            do at most N of these in this run\n"
    "  --rate X            highest learning rate (0.002)\n"
    "  --seed N            of the parameters, the batches and the sample (1)\n"
    "  --checkpoint FILE   write parameters and optimizer state there at the end (safetensors)\n"
    "  --resume FILE       start from such a file, written on any mesh\n"
    "  --losses FILE       write every step's loss there as `step,loss`\n"
    "  --topology FILE     make the ranks' collectives for this network; `probe` measures it first\n"
    "  --place             and put the mesh on its ranks so that they take the least time\n"
    "  --sample N          characters of generated text at the end (400)\n"
    "  --temperature X     of the sample: lower is more cautious (0.8)\n"
    "The model's and the mesh's sizes are types. To build with others: examples/run --width 256 --layers 8\n"
    "(also --heads, --context, --batch, --vocabulary, --data, --model).\n";

namespace detail {

[[nodiscard]] inline std::int64_t whole_number(std::string_view option, const std::string& text, std::int64_t least) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < least || value > std::int64_t{1} << 40) {
    throw usage_error(std::string(option) + " is \"" + text + "\", expected a whole number of at least " +
                      std::to_string(least));
  }
  return value;
}

[[nodiscard]] inline double positive_number(std::string_view option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value <= 0) {
    throw usage_error(std::string(option) + " is \"" + text + "\", expected a positive number");
  }
  return value;
}

}  // namespace detail

/// Errors: `usage_error`.
[[nodiscard]] inline options parse(int argc, char** argv) {
  options result;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--help" || option == "-h") {
      result.help = true;
      return result;
    }
    const auto value = [&]() -> std::string {
      if (++i == argc) throw usage_error(std::string(option) + " needs a value");
      return argv[i];
    };
    if (option == "--text")
      result.text = value();
    else if (option == "--root")
      result.root = value();
    else if (option == "--steps")
      result.steps = detail::whole_number(option, value(), 1);
    else if (option == "--stop")
      result.stop = detail::whole_number(option, value(), 1);
    else if (option == "--rate")
      result.rate = detail::positive_number(option, value());
    else if (option == "--seed")
      result.seed = static_cast<std::uint64_t>(detail::whole_number(option, value(), 0));
    else if (option == "--checkpoint")
      result.checkpoint = value();
    else if (option == "--resume")
      result.resume = value();
    else if (option == "--losses")
      result.losses = value();
    else if (option == "--topology")
      result.topology = value();
    else if (option == "--place")
      result.place = true;
    else if (option == "--sample")
      result.sample = detail::whole_number(option, value(), 0);
    else if (option == "--temperature")
      result.temperature = detail::positive_number(option, value());
    else
      throw usage_error("there is no option " + std::string(option));
  }
  if (result.place && result.topology.empty()) {
    throw usage_error("--place needs the network to place on: give --topology FILE or --topology probe");
  }
  return result;
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
