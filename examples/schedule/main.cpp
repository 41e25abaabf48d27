// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/detail/json.hpp>
#include <espalier/pipeline.hpp>
#include <espalier/report/table.hpp>

#include <algorithm>
#include <charconv>
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
#include <system_error>
#include <vector>

// What a pipeline schedule costs: how long a training step takes on it, how much of that its ranks wait, and how many
// activations they hold. docs/pipelines.md says what the schedules are.

namespace pipeline = espalier::pipeline;

namespace {

struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

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
  bool help = false;
};

std::string usage() {
  std::string text =
      "usage: schedule [--schedule NAME] [options]\n"
      "Simulates one training step of a pipeline: makespan, span, bubble, and the activations each rank holds.\n"
      "Without a name it compares all schedules.\n\n"
      "  --schedule NAME      one of the schedules below\n"
      "  --stages P           ranks of the pipeline (4)\n"
      "  --micro-batches M    micro-batches of a step (8)\n"
      "  --F f --B b --W w    time of a micro-batch on a rank: forward, gradient of the input, gradient of the\n"
      "                       weights (1 each)\n"
      "  --chunks V           stages on each rank, each 1/V of it (what the schedule needs: 1 or 2)\n"
      "  --comm C             time of a transfer between neighbours, both ways at once (0)\n"
      "  --memory-limit K     a rank may hold the activations of K micro-batches (auto: as 1f1b)\n"
      "  --recompute I        keep only inputs, I of the activations (0 to 1), and do F again before each B\n"
      "  --svg FILE           writes a Gantt chart\n"
      "  --beside NAME        draws this schedule below it, on the same scale; more than once for more of them\n"
      "  --trace FILE         writes a trace for chrome://tracing or Perfetto; times are taken as milliseconds\n"
      "  --json               one JSON object instead of a table\n\n"
      "schedules:\n";
  for (const auto& one : pipeline::known_schedules) {
    std::string name(one.name);
    name.resize(18, ' ');
    text += "  " + name + std::string(one.summary) + "\n";
  }
  return text;
}

double number(std::string_view option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0) || !std::isfinite(value))
    throw usage_error(std::string(option) + " is \"" + std::string(text) + "\", expected a number, 0 or more");
  return value;
}

int count(std::string_view option, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > 100'000)
    throw usage_error(std::string(option) + " is \"" + std::string(text) +
                      "\", expected a whole number from 1 to 100000");
  return value;
}

options parse(int argc, char** argv) {
  options chosen;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const auto value = [&]() -> std::string_view {
      if (i + 1 == argc) throw usage_error(std::string(argument) + " needs a value");
      return argv[++i];
    };
    if (argument == "--schedule") {
      chosen.schedule = value();
    } else if (argument == "--stages") {
      chosen.stages = count(argument, value());
    } else if (argument == "--micro-batches") {
      chosen.micro_batches = count(argument, value());
    } else if (argument == "--chunks") {
      chosen.chunks = count(argument, value());
    } else if (argument == "--F") {
      chosen.forward = number(argument, value());
    } else if (argument == "--B") {
      chosen.input_gradient = number(argument, value());
    } else if (argument == "--W") {
      chosen.weight_gradient = number(argument, value());
    } else if (argument == "--comm") {
      chosen.transfer = number(argument, value());
    } else if (argument == "--memory-limit") {
      chosen.memory = number(argument, value());
      if (chosen.memory == 0) throw usage_error("--memory-limit is 0, expected at least the part of one micro-batch");
    } else if (argument == "--recompute") {
      chosen.recompute = number(argument, value());
      if (*chosen.recompute > 1) throw usage_error("--recompute is more than 1: inputs are a part of the activations");
    } else if (argument == "--svg") {
      chosen.picture = value();
    } else if (argument == "--beside") {
      chosen.beside.emplace_back(value());
    } else if (argument == "--trace") {
      chosen.trace = value();
    } else if (argument == "--json") {
      chosen.json = true;
    } else if (argument == "--help" || argument == "-h") {
      chosen.help = true;
    } else {
      throw usage_error("there is no option " + std::string(argument));
    }
  }
  if (chosen.forward + chosen.input_gradient + chosen.weight_gradient <= 0)
    throw usage_error("F, B and W are all 0: give at least one of them a time");
  if (chosen.schedule.empty() && (chosen.json || !chosen.picture.empty() || !chosen.trace.empty()))
    throw usage_error("--json, --svg and --trace are of one schedule: name it with --schedule");
  if (!chosen.beside.empty() && chosen.picture.empty())
    throw usage_error("--beside is about a picture: name its file with --svg");
  const double work = 1.0 * chosen.stages * chosen.micro_batches * std::max(1, chosen.chunks);
  if (work > 2e6)
    throw usage_error(std::to_string(static_cast<std::int64_t>(work)) +
                      " forwards are more than the 2000000 this program takes: use fewer stages or micro-batches");
  return chosen;
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
  if (chosen.help) {
    std::cout << usage();
    return EXIT_SUCCESS;
  }
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
    return run(parse(argc, argv));
  } catch (const usage_error& error) {
    std::cerr << "schedule: " << error.what() << "; --help says more\n";
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "schedule: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "schedule: " << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
