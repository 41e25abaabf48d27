// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "../common/command_line.hpp"

#include <espalier/base/json.hpp>
#include <espalier/base/table.hpp>
#include <espalier/pipeline.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// Prints the costs of a pipeline schedule: how long a training step takes on it, how much of that its ranks wait, and
// how many activations they hold. docs/pipelines.md says what the schedules are.

namespace pipeline = espalier::pipeline;

namespace {

struct options {
  std::string schedule;
  int stages = 4;
  int micro_batches = 8;
  int chunks = 0;  // 0: what the schedule needs
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double transfer = 0;
  double memory = 0;                // 0: no limit
  std::optional<double> recompute;  // what the input of a stage is of its activations
  std::string picture;
  std::vector<std::string> beside;  // other schedules in the picture
  std::string trace;
  bool json = false;
};

/// Reads the command line into `chosen`. A value is what the program is to end with at once.
std::optional<int> parse(int argc, char** argv, options& chosen) {
  using command_line::not_negative;
  using command_line::whole;
  std::string schedules = "Schedules:";
  for (const auto& one : pipeline::known_schedules) {
    std::string name(one.name);
    name.resize(24, ' ');
    schedules += "\n  " + name + std::string(one.summary);
  }
  command_line::application line(
      "schedule",
      "Simulates one training step of a pipeline: makespan, span, bubble, and the activations each rank holds.\n"
      "Without a name it compares all schedules.",
      schedules);
  CLI::Option* const name = line.value("--schedule", chosen.schedule, "NAME", "One of the schedules below");
  line.value("--stages", chosen.stages, "P", "Ranks of the pipeline")->check(whole(1, 100'000));
  line.value("--micro-batches", chosen.micro_batches, "M", "Micro-batches of a step")->check(whole(1, 100'000));
  line.value("--F", chosen.forward, "T", "Time of a micro-batch on a rank: forward")->check(not_negative());
  line.value("--B", chosen.input_gradient, "T", "The same: gradient of the input")->check(not_negative());
  line.value("--W", chosen.weight_gradient, "T", "The same: gradient of the weights")->check(not_negative());
  line.value("--chunks", chosen.chunks, "V",
             "Stages on each rank, each 1/V of it; without it what the schedule needs, 1 or 2")
      ->default_str("")
      ->check(whole(1, 100'000));
  line.value("--comm", chosen.transfer, "T", "Time of a transfer between neighbours, both ways at once")
      ->check(not_negative());
  line.value("--memory-limit", chosen.memory, "K",
             "A rank may hold the activations of K micro-batches; without it `auto` holds as many as 1f1b")
      ->default_str("")
      ->check(command_line::positive());
  line.add_option("--recompute", chosen.recompute,
                  "Keep only inputs, which are this part of the activations, and do F again before each B")
      ->type_name("PART")
      ->check(not_negative(1));
  CLI::Option* const picture = line.value("--svg", chosen.picture, "FILE", "Write a Gantt chart")->needs(name);
  line.add_option("--beside", chosen.beside,
                  "Draw this schedule below it, on the same scale; more than once for more of them")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->needs(picture);
  line.value("--trace", chosen.trace, "FILE",
             "Write a trace for chrome://tracing or Perfetto; times are taken as milliseconds")
      ->needs(name);
  line.add_flag("--json", chosen.json, "One JSON object instead of a table")->needs(name);
  return command_line::parse(line, argc, argv, [&] {
    if (chosen.forward + chosen.input_gradient + chosen.weight_gradient <= 0)
      throw CLI::ValidationError("F, B and W are all 0: give at least one of them a time");
    const double work = 1.0 * chosen.stages * chosen.micro_batches * std::max(1, chosen.chunks);
    if (work > 2e6) {
      throw CLI::ValidationError(
          std::to_string(static_cast<std::int64_t>(work)) +
          " forwards are more than the 2000000 this program takes: use fewer stages or micro-batches");
    }
  });
}

struct result {
  pipeline::schedule plan;
  pipeline::simulation run;
  int chunks = 1;
};

result simulate(const options& chosen, std::string_view name, int asked_chunks) {
  const pipeline::known_schedule& kind = pipeline::find_schedule(name);
  result r;
  r.chunks = pipeline::chunks_of(kind, asked_chunks);
  pipeline::costs whole = pipeline::uniform_costs(chosen.stages, chosen.forward, chosen.input_gradient,
                                                  chosen.weight_gradient, chosen.transfer);
  if (chosen.memory > 0) whole.memory_bytes.assign(whole.stages.size(), chosen.memory);
  pipeline::costs cost = pipeline::divided(whole, r.chunks);
  std::vector<bool> recomputed;
  if (chosen.recompute) {
    recomputed.assign(cost.stages.size(), true);
    for (auto& stage : cost.stages) stage.input_bytes = stage.activation_bytes * *chosen.recompute;
  }
  r.plan = pipeline::make_schedule(name, chosen.stages, r.chunks, chosen.micro_batches, cost, recomputed);
  r.run = pipeline::simulate(r.plan, cost);
  if (!r.run.complete) throw std::logic_error(r.plan.name + " does not end: " + r.run.waiting.front());
  return r;
}

double largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

// 0.1 + 0.2 is 0.3: sums of durations are rounded to what a reader can mean.
double rounded(double value) { return std::round(value * 1e9) / 1e9; }

std::string text(double value) { return pipeline::detail::short_number(rounded(value)); }

void print_json(const options& chosen, const result& r) {
  const auto number = [](double value) { return espalier::detail::json_number(rounded(value)); };
  const auto list = [&](const std::vector<double>& values) {
    std::string out;
    for (const double value : values) out += (out.empty() ? "" : ", ") + number(value);
    return "[" + out + "]";
  };
  std::cout << "{\"schedule\": " << espalier::detail::json_string(r.plan.name) << ", \"stages\": " << chosen.stages
            << ", \"chunks\": " << r.chunks << ", \"micro_batches\": " << chosen.micro_batches
            << ", \"makespan\": " << number(r.run.makespan) << ", \"span\": " << number(largest(r.run.span))
            << ", \"bubble\": " << number(r.run.bubble) << ", \"span_bubble\": " << number(r.run.span_bubble)
            << ", \"peak\": " << list(r.run.peak_activation_bytes) << ", \"spans\": " << list(r.run.span) << "}"
            << std::endl;
}

void describe(const options& chosen) {
  std::cout << chosen.stages << " ranks, " << chosen.micro_batches << " micro-batches; F " << text(chosen.forward)
            << ", B " << text(chosen.input_gradient) << ", W " << text(chosen.weight_gradient);
  if (chosen.transfer > 0) std::cout << ", transfers " << text(chosen.transfer);
  if (chosen.memory > 0) std::cout << "; at most " << text(chosen.memory) << " micro-batches on a rank";
  if (chosen.recompute) std::cout << "; recomputed from inputs of " << text(*chosen.recompute);
  std::cout << "\n\n";
}

void compare(const options& chosen) {
  describe(chosen);
  espalier::report::table table(
      {{"schedule"}, {"chunks"}, {"makespan"}, {"bubble"}, {"of makespan"}, {"span bubble"}, {"peak"}});
  for (const auto& one : pipeline::known_schedules) {
    std::vector<int> chunks{chosen.chunks};
    if (chosen.chunks == 0 && one.chunks == pipeline::chunk_count::any) chunks = {2, 4};
    if (chosen.chunks == 0 && one.name == "auto") chunks = {1, 2, 4};
    for (const int asked : chunks) {
      try {
        const result r = simulate(chosen, one.name, asked);
        table.row(std::string(one.name), r.chunks, text(r.run.makespan), text(r.run.bubble),
                  espalier::report::format_percent(r.run.bubble / r.run.makespan), text(r.run.span_bubble),
                  text(largest(r.run.peak_activation_bytes)));
      } catch (const std::invalid_argument&) {  // not with so many chunks or micro-batches, or so little memory
        table.row(std::string(one.name), asked == 0 ? std::string("-") : std::to_string(asked), std::string("-"),
                  std::string("-"), std::string("-"), std::string("-"), std::string("-"));
      }
    }
  }
  std::cout
      << table
      << "\nbubble: time that the busiest rank waits in a step; span bubble: the same from its first F to its last W.\n"
         "peak: activations of so many micro-batches on the rank that holds most.\n";
}

void print(const options& chosen, const result& r) {
  std::cout << r.plan.name << ": ";
  describe(chosen);
  std::cout << "makespan " << text(r.run.makespan) << ", longest span " << text(largest(r.run.span)) << ", bubble "
            << text(r.run.bubble) << " (" << espalier::report::format_percent(r.run.bubble / r.run.makespan)
            << " of the makespan)\n\n";
  espalier::report::table table({{"rank"}, {"span"}, {"waits"}, {"peak"}});
  for (std::size_t i = 0; i < r.run.span.size(); ++i)
    table.row(static_cast<std::int64_t>(i), text(r.run.span[i]), text(r.run.makespan - r.run.busy[i]),
              text(r.run.peak_activation_bytes[i]));
  std::cout << table;
  const std::string drawing = pipeline::text_chart(pipeline::chart_of(r.plan, r.run), 150);
  if (!drawing.empty()) std::cout << '\n' << drawing;
}

void write(const std::string& path, const std::string& content, const char* kind) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throw std::runtime_error(path + ": the " + kind + " cannot be written there");
}

int run(const options& chosen) {
  if (chosen.schedule.empty()) {
    compare(chosen);
    return EXIT_SUCCESS;
  }
  const result r = simulate(chosen, chosen.schedule, chosen.chunks);
  if (chosen.json)
    print_json(chosen, r);
  else
    print(chosen, r);
  pipeline::chart drawing = pipeline::chart_of(r.plan, r.run);
  if (!chosen.picture.empty()) {
    std::vector<pipeline::chart> charts{drawing};
    for (const std::string& name : chosen.beside) {
      const result other = simulate(chosen, name, 0);
      charts.push_back(pipeline::chart_of(other.plan, other.run));
    }
    write(chosen.picture, pipeline::svg(charts), "picture");
  }
  if (!chosen.trace.empty()) {
    for (auto& list : drawing.timeline)
      for (auto& entry : list) {
        entry.start /= 1e3;
        entry.end /= 1e3;
      }
    write(chosen.trace, pipeline::chrome_trace({drawing}), "trace");
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    options chosen;
    if (const std::optional<int> over = parse(argc, argv, chosen)) return command_line::ended("schedule", *over);
    return command_line::ended("schedule", run(chosen));
  } catch (const std::invalid_argument& error) {
    std::cerr << "schedule: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "schedule: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
