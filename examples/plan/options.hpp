// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/plan.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace plan_example {

/// A command line that cannot be understood.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr const char* usage =
    "usage: plan PROFILE --hosts 2x8 --batch N [options]\n"
    "Plans the training step of a model that was profiled layer by layer: stages, devices, micro-batches, schedule.\n"
    "  PROFILE              a graph.txt, as PipeDream and DAPPLE publish them; without it, a small built-in model\n"
    "  --hosts 2x8          two hosts of eight devices; 8,4 for hosts that differ (2x4)\n"
    "  --batch N            samples of a step (128)\n"
    "  --profile-batch N    samples that the profile was measured with (from a name like xlnet-36-pbs-1.txt, or else "
    "1)\n"
    "  --micro-batch N      samples below which a device is not faster: a plan gives no device less to gain by it\n"
    "                       (the profile's batch)\n"
    "  --memory GB          memory of a device, in 10^9 bytes (no limit)\n"
    "  --activations GB     what the whole model keeps from forward to backward with the profile's batch, where it is\n"
    "                       known: profiles know of layers' outputs alone\n"
    "  --state N            bytes of parameter, gradient and optimizer for each parameter of 4 bytes (16: Adam)\n"
    "  --bandwidth IN,OUT   GB/s of a device inside its host, and of a host to others (25,3.125)\n"
    "  --latency IN,OUT     microseconds, the same (0,0)\n"
    "  --stages N           no more stages than that\n"
    "  --no-recompute       never run a forward twice to save memory\n"
    "  --no-overlap         reduce gradients after the last backward only\n"
    "  --alternatives N     other plans to name (8)\n"
    "  --compat             the best plans in the evaluator behind DAPPLE's published speed-ups, with its constants:\n"
    "                       --micro-batch is then the size of micro-batches; memory and bandwidth are not looked at\n"
    "  --json               one JSON object instead of tables\n"
    "What is planned, and how, is in docs/planner.md.\n";

/// What one run of the program is asked to do.
struct options {
  std::string file;  ///< empty: the built-in model
  double profile_batch = 0;
  double activations = -1;  ///< bytes; negative: as the profile has them
  int micro_batch = 0;
  espalier::pipeline::cluster machines{{4, 4}, {25e9, 0}, {3.125e9, 0}, std::numeric_limits<double>::infinity()};
  espalier::pipeline::planner_options asked;
  bool compat = false;
  bool json = false;
  bool help = false;
};

[[nodiscard]] inline int whole_number(std::string_view option, std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least)
    throw usage_error(std::string(option) + " is \"" + std::string(text) + "\", expected a whole number of at least " +
                      std::to_string(least));
  return value;
}

[[nodiscard]] inline double number(std::string_view option, std::string_view text, bool may_be_zero) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool read = error == std::errc{} && end == text.data() + text.size() && std::isfinite(value);
  if (!read || value < 0 || (value == 0 && !may_be_zero))
    throw usage_error(std::string(option) + " is \"" + std::string(text) + "\", expected " +
                      (may_be_zero ? "a number that is not negative" : "a positive number"));
  return value;
}

[[nodiscard]] inline std::pair<double, double> two_numbers(std::string_view option, std::string_view text,
                                                           bool may_be_zero) {
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos)
    throw usage_error(std::string(option) + " is \"" + std::string(text) +
                      "\", expected two numbers, inside a host and between hosts, as in 25,3.125");
  return {number(option, text.substr(0, comma), may_be_zero), number(option, text.substr(comma + 1), may_be_zero)};
}

/// The N of "...pbs-N...", 1 if there is none.
[[nodiscard]] inline double batch_in_name(const std::string& file) {
  const std::size_t at = file.rfind("pbs-");
  if (at == std::string::npos) return 1;
  int value = 0;
  const auto [end, error] = std::from_chars(file.data() + at + 4, file.data() + file.size(), value);
  return error == std::errc{} && value > 0 ? value : 1;
}

/// Errors: `usage_error`.
[[nodiscard]] inline options parse(int argc, char** argv) {
  options result;
  result.asked.global_batch = 128;
  bool batch_given = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&]() -> std::string_view {
      if (++i == argc) throw usage_error(std::string(option) + " needs a value");
      return argv[i];
    };
    if (option == "--help" || option == "-h") {
      result.help = true;
      return result;
    }
    if (option == "--hosts") {
      result.machines.devices_of = espalier::pipeline::parse_hosts(value());
    } else if (option == "--batch") {
      result.asked.global_batch = whole_number(option, value(), 1);
      batch_given = true;
    } else if (option == "--profile-batch") {
      result.profile_batch = number(option, value(), false);
    } else if (option == "--micro-batch") {
      result.micro_batch = whole_number(option, value(), 1);
    } else if (option == "--memory") {
      result.machines.memory_bytes = 1e9 * number(option, value(), false);
    } else if (option == "--activations") {
      result.activations = 1e9 * number(option, value(), true);
    } else if (option == "--state") {
      result.asked.state_bytes_per_parameter = number(option, value(), true);
    } else if (option == "--bandwidth") {
      const auto [inside, across] = two_numbers(option, value(), false);
      result.machines.inside.bytes_per_second = 1e9 * inside;
      result.machines.across.bytes_per_second = 1e9 * across;
    } else if (option == "--latency") {
      const auto [inside, across] = two_numbers(option, value(), true);
      result.machines.inside.latency_seconds = 1e-6 * inside;
      result.machines.across.latency_seconds = 1e-6 * across;
    } else if (option == "--stages") {
      result.asked.most_stages = whole_number(option, value(), 1);
    } else if (option == "--no-recompute") {
      result.asked.recompute = false;
    } else if (option == "--no-overlap") {
      result.asked.overlap_all_reduce = false;
    } else if (option == "--alternatives") {
      result.asked.alternatives = whole_number(option, value(), 0);
    } else if (option == "--compat") {
      result.compat = true;
    } else if (option == "--json") {
      result.json = true;
    } else if (option.substr(0, 1) == "-") {
      throw usage_error("there is no option " + std::string(option));
    } else if (!result.file.empty()) {
      throw usage_error("two profiles, " + result.file + " and " + std::string(option) + ": give one");
    } else {
      result.file = option;
    }
  }
  if (!result.file.empty() && !batch_given) throw usage_error("--batch is missing: how many samples has a step?");
  if (result.profile_batch == 0) result.profile_batch = batch_in_name(result.file);
  result.asked.least_share = result.micro_batch;
  return result;
}

}  // namespace plan_example
