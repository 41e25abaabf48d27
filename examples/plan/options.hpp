// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "../common/command_line.hpp"

#include <espalier/pipeline.hpp>

#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

namespace plan_example {

/// The options of one run of the program.
struct options {
  std::string file;  ///< empty: the built-in model
  double profile_batch = 0;
  double activations = -1;  ///< bytes; negative: as the profile has them
  int micro_batch = 0;
  espalier::pipeline::cluster machines{{4, 4}, {25e9, 0}, {3.125e9, 0}, std::numeric_limits<double>::infinity()};
  espalier::pipeline::planner_options asked;
  bool compat = false;
  bool json = false;
};

/// Two numbers, inside a host and between hosts, as in 25,3.125.
[[nodiscard]] inline CLI::Validator two_numbers(bool may_be_zero) {
  const auto check = [=](const std::string& text) -> std::string {
    const std::size_t comma = text.find(',');
    const auto fits = [&](const std::string& part) {
      const double value = command_line::number_in(part).value_or(-1);
      return value > 0 || (value == 0 && may_be_zero);
    };
    if (comma != std::string::npos && fits(text.substr(0, comma)) && fits(text.substr(comma + 1))) return {};
    return '"' + text + "\" is not two " + (may_be_zero ? "" : "positive ") +
           "numbers, inside a host and between hosts, as in 25,3.125";
  };
  return {check, ""};
}

/// The N of "...pbs-N...", 1 if there is none.
[[nodiscard]] inline double batch_in_name(const std::string& file) {
  const std::size_t at = file.rfind("pbs-");
  if (at == std::string::npos) return 1;
  int value = 0;
  const auto [end, error] = std::from_chars(file.data() + at + 4, file.data() + file.size(), value);
  return error == std::errc{} && value > 0 ? value : 1;
}

/// Reads the command line into `chosen`. A value is what the program is to end with at once.
/// Errors: `std::invalid_argument` if --hosts cannot be understood.
[[nodiscard]] inline std::optional<int> parse(int argc, char** argv, options& chosen) {
  using command_line::not_negative;
  using command_line::positive;
  using command_line::whole;
  chosen.asked.global_batch = 128;
  command_line::application line(
      "plan",
      "Plans the training step of a model that was profiled layer by layer: stages, devices, micro-batches, schedule.",
      "What is planned, and how, is in docs/planner.md.");
  const auto scaled = [&](const std::string& option, double& variable, double unit, const std::string& value,
                          const std::string& what) {
    return line
        .add_option_function<double>(
            option, [&variable, unit](double given) { variable = unit * given; }, what)
        ->type_name(value);
  };
  const auto pair = [&](const std::string& option, double& inside, double& across, double unit, const std::string& what,
                        const std::string& otherwise) {
    return line
        .add_option_function<std::string>(
            option,
            [&inside, &across, unit](const std::string& text) {
              const std::size_t comma = text.find(',');
              inside = unit * command_line::number_in(text.substr(0, comma)).value_or(0);
              across = unit * command_line::number_in(text.substr(comma + 1)).value_or(0);
            },
            what)
        ->type_name("IN,OUT")
        ->default_str(otherwise);
  };
  line.value("profile", chosen.file, "PROFILE",
             "A graph.txt, as PipeDream and DAPPLE publish them; without it, a small built-in model");
  line.add_option_function<std::string>(
          "--hosts",
          [&](const std::string& text) { chosen.machines.devices_of = espalier::pipeline::parse_hosts(text); },
          "2x8 are two hosts of eight devices, 8,4 two that differ")
      ->type_name("HOSTS")
      ->default_str("2x4");
  CLI::Option* const batch =
      line.value("--batch", chosen.asked.global_batch, "N", "Samples of a step")->check(whole(1, 1 << 30));
  line.value("--profile-batch", chosen.profile_batch, "N",
             "Samples that the profile was measured with; without it from a name like xlnet-36-pbs-1.txt, or else 1")
      ->default_str("")
      ->check(positive());
  line.value("--micro-batch", chosen.micro_batch, "N",
             "Samples below which a device is not faster: a plan gives no device less to gain by it; without it the "
             "profile's batch")
      ->default_str("")
      ->check(whole(1, 1 << 30));
  scaled("--memory", chosen.machines.memory_bytes, 1e9, "GB", "Memory of a device, in 10^9 bytes; without it no limit")
      ->check(positive());
  scaled("--activations", chosen.activations, 1e9, "GB",
         "What the whole model keeps from forward to backward with the profile's batch, where it is known: profiles "
         "know of layers' outputs alone")
      ->check(not_negative());
  line.value("--state", chosen.asked.state_bytes_per_parameter, "N",
             "Bytes of parameter, gradient and optimizer for each parameter of 4 bytes: 16 with Adam")
      ->check(not_negative());
  pair("--bandwidth", chosen.machines.inside.bytes_per_second, chosen.machines.across.bytes_per_second, 1e9,
       "GB/s of a device inside its host, and of a host to others", "25,3.125")
      ->check(two_numbers(false));
  pair("--latency", chosen.machines.inside.latency_seconds, chosen.machines.across.latency_seconds, 1e-6,
       "Microseconds, the same", "0,0")
      ->check(two_numbers(true));
  std::string links;
  line.value("--links", links, "A-B:RATE,...",
             "Pairs of hosts, numbered from 0, that have another rate than the rest, in GB/s: 0-1:50,1-2:12.5")
      ->default_str("");
  line.value("--stages", chosen.asked.most_stages, "N", "No more stages than that")
      ->default_str("")
      ->check(whole(1, 1 << 30));
  line.add_flag_callback(
      "--no-recompute", [&] { chosen.asked.recompute = false; }, "Never run a forward twice to save memory");
  line.add_flag_callback(
      "--no-overlap", [&] { chosen.asked.overlap_all_reduce = false; },
      "Reduce gradients after the last backward only");
  line.value("--alternatives", chosen.asked.alternatives, "N", "Other plans to name")->check(whole(0, 1 << 30));
  line.add_flag(
      "--compat", chosen.compat,
      "The best plans in the evaluator behind DAPPLE's published speed-ups, with its constants: --micro-batch "
      "is then the size of micro-batches; memory and bandwidth are not looked at");
  line.add_flag("--json", chosen.json, "One JSON object instead of tables");
  const std::optional<int> over = command_line::parse(line, argc, argv, [&] {
    if (!chosen.file.empty() && batch->empty())
      throw CLI::ValidationError("--batch is missing: how many samples has a step?");
  });
  if (!links.empty()) espalier::pipeline::set_links(chosen.machines, links, 1e9);
  if (chosen.profile_batch == 0) chosen.profile_batch = batch_in_name(chosen.file);
  chosen.asked.least_share = chosen.micro_batch;
  return over;
}

}  // namespace plan_example
