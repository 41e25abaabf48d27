// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Compares the layouts that the passes choose for random programs with the best of all layouts: the regret of a
// program is the price of a run as the passes lay it out, over the price of a run with the best layouts.
//
//     bench_regret [--kind NAME] [--mesh 2x2] [--number 1000] [--seed 1] [--sizes 128,1000] [--worst 10]
//                  [--by time|movement|bytes] [--check]
//
// Nothing runs: programs are graphs, which the passes take as values.

#include <espalier/tensor/core/graph/text.hpp>
#include <support/regret.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::test;

struct named_kind {
  const char* name;
  operator_kind kind;
};
constexpr named_kind kinds[]{{"products", operator_kind::products},
                             {"outer_products", operator_kind::outer_products},
                             {"broadcasts", operator_kind::broadcasts},
                             {"gradients", operator_kind::gradients},
                             {"windows", operator_kind::windows},
                             {"gathers", operator_kind::gathers},
                             {"loops", operator_kind::loops}};

/// Combinations of layouts of a program for which all are tried where that is asked for.
constexpr double most_checked = 20'000;

struct settings {
  std::vector<named_kind> kinds;
  std::vector<std::string> meshes;
  long number = 1000;
  std::uint64_t seed = 1;
  std::vector<int> sizes;
  price_measure by = price_measure::time;
  int worst = 10;
  bool checks = false;
};

mesh_shape mesh_named(const std::string& text) {
  std::vector<int> sizes;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t length = 0;
    sizes.push_back(std::stoi(text.substr(at), &length));
    at += length + 1;
  }
  return mesh_of(sizes);
}

struct outcome {
  std::uint64_t seed = 0;
  double regret = 1;
  /// The passes' program is cheaper than the oracle's.
  bool beats = false;
  /// The passes' program moves no more than the oracle's: it is dearer because devices repeat work that no annotation
  /// splits.
  bool only_works_more = false;
  bool is_exact = false;
  /// All combinations were tried; whether one is cheaper than what dynamic programming found, or what descents found.
  bool is_checked = false;
  bool is_missed = false;
  bool descent_misses = false;
  /// The best layouts, written as annotations, lead all passes to a dearer program.
  bool is_dearer_annotated = false;
};

regret_settings settings_for(const named_kind& kind, const mesh_shape& mesh, const settings& wanted) {
  regret_settings one;
  one.program.kind = kind.kind;
  one.program.mesh = mesh;
  if (!wanted.sizes.empty()) one.program.sizes = wanted.sizes;
  one.by = wanted.by;
  return one;
}

outcome outcome_of(const regret_settings& settings, price_memory& memory, std::uint64_t seed, bool checks) {
  const compared_layouts one = compare_layouts(settings, seed, memory);
  outcome result;
  result.seed = seed;
  result.regret = one.regret;
  result.beats = one.beats_best;
  result.only_works_more =
      weighed(one.chosen, price_measure::movement) <= weighed(one.best.price, price_measure::movement);
  result.is_exact = one.best.is_exact;
  if (checks) {
    const double best = weighed(one.best.price, settings.by);
    layout_oracle oracle(memory, one.made.traced, settings.by);
    const spmd_program annotated = merged_program(partitioned_on(memory.mesh(), oracle.annotated(one.best), false));
    result.is_dearer_annotated = weighed(price_of_program(annotated), settings.by) > best;
    if (oracle.combinations() <= most_checked) {
      dice random(seed);
      result.is_checked = true;
      const double least = weighed(oracle.exhaustive_search().price, settings.by);
      result.is_missed = least < best;
      result.descent_misses = least < weighed(oracle.descent(settings.descents, random).price, settings.by);
      if (result.is_missed) std::cout << "seed " << seed << ": by sums " << best << ", of all " << least << '\n';
    }
  }
  return result;
}

std::string price_text(const run_price& price) {
  return std::to_string(price.bytes) + " bytes, " + std::to_string(price.starts) + " starts, " +
         std::to_string(price.work) + " operations";
}

/// The graph with these layouts, a line each.
std::vector<std::string> lines_of(const mesh_shape& mesh, graph_view g, const std::vector<sharding>& of) {
  graph laid_out;
  detail::copy_tables(laid_out, g);
  for (int id = 0; id < g.size; ++id) {
    instruction i = g[id];
    sharding placement = of[static_cast<std::size_t>(id)];
    placement.open = 0;
    laid_out.annotations.push_back({i.shape, placement});
    i.annotation = laid_out.annotations.size() - 1;
    laid_out.code.push_back(i);
  }
  std::vector<std::string> lines;
  for (int id = 0; id < g.size; ++id) lines.push_back(to_text(mesh, axis_parts::whole(mesh), laid_out, id));
  return lines;
}

void print(const compared_layouts& one, const mesh_shape& mesh) {
  const std::vector<std::string> chosen = lines_of(one.made.mesh, one.made.traced, one.made.of);
  const std::vector<std::string> best = lines_of(mesh, one.made.traced, one.best.of);
  std::size_t width = 0;
  for (const std::string& line : chosen) width = std::max(width, line.size());
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    std::cout << "    " << chosen[n];
    if (chosen[n] != best[n])
      std::cout << std::string(width - chosen[n].size(), ' ')
                << "   best: " << best[n].substr(best[n].rfind(" : ") + 3);
    std::cout << '\n';
  }
  std::cout << "  the passes: " << price_text(one.chosen) << ": " << one.made.summary()
            << "\n  the best:   " << price_text(one.best.price) << '\n';
}

void run(const named_kind& kind, const std::string& mesh_text, const settings& wanted) {
  const mesh_shape mesh = mesh_named(mesh_text);
  const regret_settings drawn = settings_for(kind, mesh, wanted);
  const auto workers = static_cast<long>(std::max(1U, std::min(2U, std::thread::hardware_concurrency())));
  std::vector<std::vector<outcome>> found(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (long w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      price_memory memory(mesh);
      for (long n = w; n < wanted.number; n += workers) {
        const std::uint64_t seed = wanted.seed + static_cast<std::uint64_t>(n);
        try {
          found[static_cast<std::size_t>(w)].push_back(outcome_of(drawn, memory, seed, wanted.checks));
        } catch (const std::exception& e) {
          // A fault of the passes, which the fuzz tests look for.
          std::cerr << "bench_regret: seed " << seed << ": " << e.what() << '\n';
          std::exit(1);
        }
      }
    });
  }
  for (std::thread& one : threads) one.join();
  std::vector<outcome> all;
  for (const auto& some : found) all.insert(all.end(), some.begin(), some.end());
  double logarithms = 0;
  long above = 0;
  long far_above = 0;
  double logarithms_moving = 0;
  long moving_far_above = 0;
  long beats = 0;
  long exact = 0;
  long checked = 0;
  long missed = 0;
  long descent_missed = 0;
  long dearer = 0;
  for (const outcome& one : all) {
    logarithms += std::log(one.regret);
    above += one.regret > 1.1 ? 1 : 0;
    far_above += one.regret > 2 ? 1 : 0;
    if (!one.only_works_more) {
      logarithms_moving += std::log(one.regret);
      moving_far_above += one.regret > 2 ? 1 : 0;
    }
    beats += one.beats ? 1 : 0;
    exact += one.is_exact ? 1 : 0;
    checked += one.is_checked ? 1 : 0;
    missed += one.is_missed ? 1 : 0;
    dearer += one.is_dearer_annotated ? 1 : 0;
    descent_missed += one.descent_misses ? 1 : 0;
  }
  std::sort(all.begin(), all.end(), [](const outcome& a, const outcome& b) {
    return a.regret != b.regret ? a.regret > b.regret : a.seed < b.seed;
  });
  const auto count = static_cast<double>(all.size());
  std::printf("%-16s %-6s %7ld %8.4f %7.2f%% %7.2f%% %8.4f %7.2f%% %10.1f %7.2f%% %6ld\n", kind.name, mesh_text.c_str(),
              wanted.number, std::exp(logarithms / count), 100 * static_cast<double>(above) / count,
              100 * static_cast<double>(far_above) / count, std::exp(logarithms_moving / count),
              100 * static_cast<double>(moving_far_above) / count, all.front().regret,
              100 * static_cast<double>(exact) / count, beats);
  if (wanted.checks)
    std::printf(
        "  of %ld tried in all layouts, dynamic programming missed %ld and descent %ld; as annotations, %ld are "
        "dearer\n",
        checked, missed, descent_missed, dearer);
  std::fflush(stdout);
  price_memory memory(mesh);
  for (std::size_t n = 0; n < all.size() && n < static_cast<std::size_t>(wanted.worst); ++n) {
    if (all[n].regret <= 1) break;
    std::printf("  seed %llu: regret %.2f%s\n", static_cast<unsigned long long>(all[n].seed), all[n].regret,
                all[n].only_works_more ? ", by repeated work alone" : "");
    std::fflush(stdout);
    print(compare_layouts(drawn, all[n].seed, memory), mesh);
  }
}

[[noreturn]] void refuse(const std::string& what) {
  std::cerr << "bench_regret: there is " << what << "; see docs/benchmarks.md\n";
  std::exit(2);
}

settings settings_of(int argc, char** argv) {
  settings wanted;
  for (int n = 1; n < argc; ++n) {
    const std::string option = argv[n];
    const auto value = [&] { return std::string(n + 1 < argc ? argv[++n] : ""); };
    if (option == "--kind") {
      const std::string name = value();
      const auto* const found =
          std::find_if(std::begin(kinds), std::end(kinds), [&](const named_kind& one) { return one.name == name; });
      if (found == std::end(kinds)) refuse("no kind of programs " + name);
      wanted.kinds.push_back(*found);
    } else if (option == "--mesh") {
      wanted.meshes.push_back(value());
    } else if (option == "--number") {
      wanted.number = std::stol(value());
    } else if (option == "--seed") {
      wanted.seed = std::stoull(value());
    } else if (option == "--worst") {
      wanted.worst = std::stoi(value());
    } else if (option == "--sizes") {
      // Extents, as in 129,1000.
      const std::string text = value();
      for (std::size_t at = 0; at < text.size();) {
        std::size_t length = 0;
        wanted.sizes.push_back(std::stoi(text.substr(at), &length));
        at += length + 1;
      }
    } else if (option == "--check") {
      wanted.checks = true;
    } else if (option == "--by") {
      const std::string measure = value();
      if (measure != "bytes" && measure != "movement" && measure != "time") refuse("no measure " + measure);
      wanted.by = measure == "bytes"  ? price_measure::bytes
                  : measure == "time" ? price_measure::time
                                      : price_measure::movement;
    } else {
      refuse("no option " + option);
    }
  }
  if (wanted.kinds.empty()) wanted.kinds.assign(std::begin(kinds), std::end(kinds));
  if (wanted.meshes.empty()) wanted.meshes = {"4", "2x2"};
  return wanted;
}

}  // namespace

int main(int argc, char** argv) {
  const settings wanted = settings_of(argc, argv);
  std::printf("%-16s %-6s %7s %8s %8s %8s %8s %8s %10s %8s %6s\n", "kind", "mesh", "number", "mean", ">1.1", ">2",
              "moving", ">2", "worst", "exact", "beats");
  for (const named_kind& kind : wanted.kinds) {
    for (const std::string& mesh : wanted.meshes) run(kind, mesh, wanted);
  }
}
