// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Plans a pipeline from a profile and says why: `plan PROFILE --hosts 2x8 --batch 1024`; `plan --help` has the options.
#include <espalier/base/table.hpp>
#include <espalier/pipeline.hpp>

#include <algorithm>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "built_in.hpp"
#include "options.hpp"

namespace {

namespace pipeline = espalier::pipeline;
using espalier::report::format_fixed;

pipeline::profile model_of(const plan_example::options& chosen) {
  pipeline::profile model = chosen.file.empty() ? plan_example::built_in_profile()
                                                : pipeline::read_profile(chosen.file, chosen.profile_batch);
  if (chosen.activations >= 0) model = with_activation_memory(std::move(model), chosen.activations);
  return model;
}

void describe(const pipeline::profile& model, const plan_example::options& chosen) {
  const pipeline::profile_sums sums(model);
  const pipeline::cluster& machines = chosen.machines;
  double slowest = machines.hosts() > 1 ? machines.rate(0, 1).bytes_per_second : machines.across.bytes_per_second;
  double fastest = slowest;
  for (int a = 0; a < machines.hosts(); ++a)
    for (int b = 0; b < machines.hosts(); ++b) {
      if (a == b) continue;
      slowest = std::min(slowest, machines.rate(a, b).bytes_per_second);
      fastest = std::max(fastest, machines.rate(a, b).bytes_per_second);
    }
  std::cout << model.name << ": " << model.size() << " layers, "
            << espalier::report::format_scaled(sums.parameter(0, model.size()) / chosen.asked.bytes_per_parameter)
            << " parameters, " << espalier::report::format_duration(sums.seconds(0, model.size()) / model.batch)
            << " a sample on one device\n"
            << pipeline::to_string(machines.devices_of) << " devices; " << machines.inside.bytes_per_second / 1e9
            << " GB/s inside a host, " << slowest / 1e9;
  if (fastest > slowest) std::cout << " to " << fastest / 1e9;
  std::cout << " GB/s between hosts; ";
  if (machines.memory_bytes < 1e300)
    std::cout << machines.memory_bytes / 1e9 << " GB each";
  else
    std::cout << "no limit on memory";
  std::cout << "; a batch of " << chosen.asked.global_batch << " samples\n\n";
}

// Compares with the evaluator of the published numbers, with and without its fault; devices follow one another.
void compare_with_published(const pipeline::profile& model, const plan_example::options& chosen) {
  pipeline::published_setting setting;
  setting.global_batch = chosen.asked.global_batch;
  setting.micro_batch = std::max(1, chosen.micro_batch);
  setting.host_ends.clear();
  int devices = 0;
  for (const int count : chosen.machines.devices_of) setting.host_ends.push_back(devices += count);
  espalier::report::table lines({{"stages"}, {"counts a layer twice"}, {"layers"}, {"devices"}, {"speed-up"}});
  std::string json;
  for (const bool twice : {true, false}) {
    setting.layer_twice = twice;
    for (int stages = 1; stages <= std::min({3, devices, model.size()}); ++stages) {
      const pipeline::published_plan best = best_published_plan(model, setting, stages, devices);
      std::string layers;
      std::string widths;
      std::string list;
      for (const pipeline::published_stage& one : best.stages) {
        layers += (layers.empty() ? "" : " | ") + std::to_string(one.first) + "-" + std::to_string(one.last - 1);
        widths += (widths.empty() ? "" : ":") + std::to_string(one.devices.size());
        list += (list.empty() ? "" : ", ") + std::string("{\"first_layer\": ") + std::to_string(one.first) +
                ", \"last_layer\": " + std::to_string(one.last - 1) +
                ", \"devices\": " + std::to_string(one.devices.size()) + "}";
      }
      lines.row(stages, twice, layers, widths, format_fixed(best.speed_up, 4));
      json += (json.empty() ? "" : ", ") + std::string("{\"layer_twice\": ") + (twice ? "true" : "false") +
              ", \"speed_up\": " + espalier::detail::json_number(best.speed_up) + ", \"stages\": [" + list + "]}";
    }
  }
  if (chosen.json) {
    std::cout << "{\"published_evaluator\": [" << json << "]}\n";
    return;
  }
  describe(model, chosen);
  std::cout << "In the published evaluator, " << setting.micro_batches() << " micro-batches of " << setting.micro_batch
            << ", its bandwidths, memory not looked at:\n";
  lines.print(std::cout, "  ");
}

void run(const plan_example::options& chosen) {
  const pipeline::profile model = model_of(chosen);
  if (chosen.compat) {
    compare_with_published(model, chosen);
    return;
  }
  const pipeline::planning result = make_plan(model, chosen.machines, chosen.asked);
  if (chosen.json) {
    std::cout << to_json(result) << "\n";
    return;
  }
  describe(model, chosen);
  print(std::cout, model, chosen.asked, result);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    plan_example::options chosen;
    if (const std::optional<int> over = plan_example::parse(argc, argv, chosen))
      return command_line::ended("plan", *over);
    run(chosen);
    return command_line::ended("plan", 0);
  } catch (const std::exception& error) { std::cerr << "plan: " << error.what() << "\n"; }
  return 2;
}
