// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Measures how long planning pipelines takes, and how good their schedules are on paper:
//
//     bench_pipeline_plans planning DEVICES ROW FOLDER
//     bench_pipeline_plans schedules

#include "machine.hpp"

#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/read_profile.hpp>
#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/simulate.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace espalier;
using benchmarks::report;
namespace pl = espalier::pipeline;

/// Hosts of eight devices, 25 GB/s inside and 25 Gbit/s across, and 16 GB: DAPPLE's configuration A.
void planning(int devices, const std::string& row, const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".txt" && entry.path().stem() != "LICENSE") files.push_back(entry.path());
  std::sort(files.begin(), files.end());

  pl::cluster machines;
  machines.devices_of.assign(static_cast<std::size_t>(devices / 8), 8);
  machines.inside = {25e9, 0};
  machines.across = {3.125e9, 0};
  machines.memory_bytes = 16e9;
  pl::planner_options asked;
  asked.global_batch = 8 * devices;  // of the samples that the profiles are for
  for (const std::filesystem::path& file : files) {
    const pl::profile model = pl::read_profile(file.string(), 1);
    const double taken = benchmarks::seconds([&] { benchmarks::keep(pl::make_plan(model, machines, asked)); });
    report(row + "/" + file.stem().string(), "ours", taken, "s");
  }
}

double largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

/// Eight ranks, 32 micro-batches, F = B = W = 1: bubbles and peaks beside those of 1F1B.
void bubbles() {
  constexpr int ranks = 8;
  constexpr int micro_batches = 32;
  const pl::costs whole = pl::uniform_costs(ranks);
  const pl::simulation usual = pl::simulate(pl::make_schedule("1f1b", ranks, 1, micro_batches, whole), whole);
  const auto compare = [&](const std::string& name, int chunks, double memory) {
    pl::costs cost = pl::divided(whole, chunks);
    cost.memory_bytes.assign(ranks, memory);
    const pl::simulation run = pl::simulate(pl::make_schedule("auto", ranks, chunks, micro_batches, cost), cost);
    report("bubble_" + name, "ours", run.bubble, "");
    report("bubble_" + name, "1f1b", usual.bubble, "");
    report("peak_" + name, "ours", largest(run.peak_activation_bytes), "");
    report("peak_" + name, "1f1b", largest(usual.peak_activation_bytes), "");
  };
  for (const int chunks : {1, 2, 4})
    compare(std::to_string(chunks) + "_chunk" + (chunks > 1 ? "s" : ""), chunks, largest(usual.peak_activation_bytes));
  compare("little_memory", 2, 5);
}

/// Pipelines of 2 to 8 unequal stages: a third of their hops are inside a host, the others take up to two thirds of
/// what an average stage needs for a micro-batch.
void random_pipelines() {
  std::mt19937 random(1);
  const auto between = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  constexpr int count = 2000;
  double worst = 0;
  int not_faster = 0;
  double held[2] = {0, 0};
  for (int repeat = 0; repeat < count; ++repeat) {
    const int ranks = std::uniform_int_distribution<int>(2, 8)(random);
    const int micro_batches = std::uniform_int_distribution<int>(ranks, 4 * ranks)(random);
    pl::costs cost;
    for (int s = 0; s < ranks; ++s) {
      pl::stage_costs& one = cost.stages.emplace_back();
      one.forward_seconds = between(0.5, 1.5);
      one.input_gradient_seconds = between(0.5, 1.5);
      one.weight_gradient_seconds = between(0.5, 1.5);
      if (s > 0) cost.hops.push_back(pl::hop_of(between(0, 3) < 1 ? 0.02 : between(0, 2)));
    }
    const auto run = [&](const char* name) {
      return pl::simulate(pl::make_schedule(name, ranks, 1, micro_batches, cost), cost);
    };
    const pl::simulation ours = run("1f1b");
    const pl::simulation pa = run("1f1b_PA");
    const pl::simulation pb = run("1f1b_PB");
    worst = std::max(worst, ours.makespan / std::min(pa.makespan, pb.makespan));
    not_faster += ours.makespan < pa.makespan * (1 - 1e-9) ? 0 : 1;
    for (const double bytes : ours.peak_activation_bytes) held[0] += bytes;
    for (const double bytes : pb.peak_activation_bytes) held[1] += bytes;
  }
  report("random_slowest", "ours", worst, "");
  report("random_not_faster_than_pa", "ours", 100.0 * not_faster / count, "%");
  report("random_held", "ours", held[0] / count, "");
  report("random_held", "1f1b_PB", held[1] / count, "");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 4 && words[0] == "planning") {
      planning(std::stoi(words[1]), words[2], words[3]);
    } else if (words.size() == 1 && words[0] == "schedules") {
      bubbles();
      random_pipelines();
    } else {
      throw std::invalid_argument("usage: bench_pipeline_plans planning DEVICES ROW FOLDER | schedules");
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_pipeline_plans: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
