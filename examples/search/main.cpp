// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include "layouts.hpp"

#include <espalier/base/table.hpp>
#include <espalier/search.hpp>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <limits>
#include <vector>

// Looks for the annotations of a GPT on 2 x 4 devices: once for the least time, and once for a device with little
// memory. What it finds is compared with Megatron's layout and the five of the GSPMD paper. Nothing is run.

namespace {

using namespace search;

/// What a step takes in each layout that people would write.
struct known_layout {
  const char* name;
  ep::predicted_run run;
};
std::vector<known_layout> known_layouts() {
  return {{"data parallel", ep::predict_run<step<data_parallel>>()},
          {"model parallel", ep::predict_run<step<model_parallel>>()},
          {"Megatron, batch over x", ep::predict_run<step<megatron<x, y>>>()},
          {"Megatron, batch over y", ep::predict_run<step<megatron<y, x>>>()},
          {"2D, attempt 1", ep::predict_run<step<attempt_1>>()},
          {"2D, attempt 2", ep::predict_run<step<attempt_2>>()},
          {"2D, finalized", ep::predict_run<step<finalized>>()}};
}

/// Prints what a search finds. Returns whether it fits, and takes no longer than the best of the others that fit, by
/// more than a twentieth.
bool finds_as_good(const ep::annotation_search_settings& settings, const std::vector<known_layout>& others) {
  double least = std::numeric_limits<double>::infinity();
  for (const known_layout& one : others) {
    if (one.run.memory <= settings.memory) least = std::min(least, one.run.seconds());
  }
  const ep::found_annotations found = ep::search_annotations<step<unannotated>>(settings);
  // Under a limit many layouts are nearly equal, and compilers that round differently find different ones.
  if (found.found.memory > settings.memory || settings.memory > found.without.memory) found.print(std::cout);
  const bool is_good = found.fits && found.found.seconds() <= 1.05 * least;
  std::cout << "as good as the best above that fits: " << (is_good ? "yes" : "NO") << '\n';
  return is_good;
}

}  // namespace

int main() {
  const std::vector<known_layout> others = known_layouts();
  ep::report::table table({{"layout"}, {"sent"}, {"collectives"}, {"memory"}, {"time"}});
  for (const auto& [name, run] : others) {
    table.add({name, ep::report::format_bytes(run.bytes), ep::report::format_count(run.collectives),
               ep::report::format_bytes(run.memory), ep::report::format_duration(run.seconds())});
  }
  table.print(std::cout);
  std::cout << "\nas fast as possible:\n\n";
  const bool is_fast = finds_as_good({.most_tried = 3000}, others);
  constexpr std::int64_t memory = 16 << 20;
  std::cout << "\nin " << ep::report::format_bytes(memory) << ":\n\n";
  const bool is_small = finds_as_good({.memory = memory, .most_tried = 3000}, others);
  return is_fast && is_small ? 0 : 1;
}
