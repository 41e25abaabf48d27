// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// built: once

#include <support/regret.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

// Regret of random programs, some of a fixed seed and some of a fresh one, which is printed and which
// ESPALIER_FUZZ_SEED replaces. benchmarks/run regret has many more of them, and shows the worst.

namespace {

using namespace espalier;
using namespace espalier::test;

/// What is required of all programs of a kind on a mesh.
struct requirement {
  operator_kind kind;
  const char* name;
  std::vector<int> mesh;
  /// At most: the geometric mean, and the share above 2.
  double mean;
  double above_two;
};
// The only place of these bounds, which are the figures of 3,000 programs each: lower them as the passes get better.
const std::vector<requirement> requirements{
    {operator_kind::products, "products", {4}, 1.08, 0.023},
    {operator_kind::products, "products", {2, 2}, 1.17, 0.036},
    {operator_kind::outer_products, "outer products", {4}, 1.40, 0.125},
    {operator_kind::outer_products, "outer products", {2, 2}, 1.49, 0.129},
    {operator_kind::broadcasts, "broadcasts", {4}, 1.53, 0.145},
    {operator_kind::broadcasts, "broadcasts", {2, 2}, 1.66, 0.162},
    {operator_kind::gradients, "gradients", {4}, 1.38, 0.103},
    {operator_kind::gradients, "gradients", {2, 2}, 1.40, 0.109},
    {operator_kind::windows, "windows", {4}, 1.21, 0.065},
    {operator_kind::windows, "windows", {2, 2}, 1.24, 0.052},
    {operator_kind::gathers, "gathers", {4}, 1.32, 0.102},
    {operator_kind::gathers, "gathers", {2, 2}, 1.35, 0.091},
    {operator_kind::loops, "loops", {4}, 1.15, 0.043},
    {operator_kind::loops, "loops", {2, 2}, 1.25, 0.067},
};
/// A sample of programs may have more by so many standard deviations of its figures.
constexpr double deviations = 5;
constexpr int programs = 60;

struct summary {
  double mean = 1;
  /// The standard deviation of the logarithm of the mean.
  double deviation = 0;
  double above_two = 0;
  double worst = 1;
  std::uint64_t worst_seed = 0;
};

regret_settings settings_of(const requirement& one) {
  regret_settings settings;
  settings.program.kind = one.kind;
  settings.program.mesh = mesh_of(one.mesh);
  // Few extents, so that the prices of an operator serve many programs.
  settings.program.sizes = {128, 1024};
  return settings;
}

summary summarise(const requirement& one, std::uint64_t seed) {
  const regret_settings settings = settings_of(one);
  price_memory memory(settings.program.mesh);
  summary result;
  double logarithms = 0;
  double squares = 0;
  for (int n = 0; n < programs; ++n) {
    const std::uint64_t at = seed + static_cast<std::uint64_t>(n);
    const compared_layouts compared = compare_layouts(settings, at, memory);
    const double logarithm = std::log(compared.regret);
    logarithms += logarithm;
    squares += logarithm * logarithm;
    result.above_two += compared.regret > 2 ? 1.0 / programs : 0;
    if (compared.regret <= result.worst) continue;
    result.worst = compared.regret;
    result.worst_seed = at;
  }
  const double mean = logarithms / programs;
  result.mean = std::exp(mean);
  result.deviation = std::sqrt(std::max(0.0, squares / programs - mean * mean) / programs);
  return result;
}

/// The summaries of all requirements, on as many threads as there are processors.
std::vector<summary> summarise_all(std::uint64_t seed) {
  std::vector<summary> made(requirements.size());
  std::vector<std::thread> threads;
  const std::size_t workers = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      for (std::size_t n = w; n < made.size(); n += workers) made[n] = summarise(requirements[n], seed);
    });
  }
  for (std::thread& one : threads) one.join();
  for (std::size_t n = 0; n < made.size(); ++n) {
    std::cout << programs << " programs of " << requirements[n].name << " on " << mesh_of(requirements[n].mesh).size[0]
              << (requirements[n].mesh.size() > 1 ? " x 2" : "") << " devices from seed " << seed << ": regret "
              << made[n].mean << ", above 2 " << made[n].above_two << ", worst " << made[n].worst << " of seed "
              << made[n].worst_seed << '\n';
  }
  return made;
}

std::uint64_t fresh_seed() {
  const char* const text = std::getenv("ESPALIER_FUZZ_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
}

}  // namespace

TEST_CASE("every axis splits any dimension or none, in any order", "[regret]") {
  CHECK(all_layouts(mesh_of({4}), 0).size() == 1);
  CHECK(all_layouts(mesh_of({4}), 2).size() == 3);
  CHECK(all_layouts(mesh_of({1, 4}), 2).size() == 3);
  CHECK(all_layouts(mesh_of({2, 2}), 1).size() == 5);
  CHECK(all_layouts(mesh_of({2, 2}), 2).size() == 11);
  CHECK(all_layouts(mesh_of({2, 2, 2}), 2).size() == 49);
  CHECK(all_layouts_and_partials(mesh_of({4}), 2).size() == 4);
  CHECK(all_layouts_and_partials(mesh_of({2, 2}), 2).size() == 18);
  const std::vector<sharding> all = all_layouts_and_partials(mesh_of({2, 2, 2}), 2);
  for (std::size_t n = 0; n < all.size(); ++n) CHECK(index_of(all, all[n]) == static_cast<int>(n));
}

TEST_CASE("the best layouts are the best of all combinations", "[regret]") {
  // Prices of operators do not add up where collectives share messages: few programs, and they are near.
  int tried = 0;
  int missed = 0;
  int missed_by_descent = 0;
  for (const operator_kind kind : {operator_kind::products, operator_kind::outer_products, operator_kind::loops}) {
    regret_settings settings;
    settings.program.kind = kind;
    settings.program.mesh = mesh_of({4});
    price_memory memory(settings.program.mesh);
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
      const compared_layouts compared = compare_layouts(settings, seed, memory);
      layout_oracle oracle(memory, compared.made.traced, settings.by);
      if (oracle.combinations() > 2000) continue;
      dice random(seed);
      const double least = weighed(oracle.exhaustive_search().price, settings.by);
      ++tried;
      CHECK(compared.best.is_exact);
      CHECK(weighed(compared.best.price, settings.by) >= least);
      missed += weighed(compared.best.price, settings.by) > least ? 1 : 0;
      missed_by_descent += weighed(oracle.descent(settings.descents, random).price, settings.by) > least ? 1 : 0;
    }
  }
  std::cout << tried << " programs in all layouts: dynamic programming missed the best of " << missed << ", descent of "
            << missed_by_descent << '\n';
  CHECK(tried > 20);
  CHECK(missed <= tried / 20);
  CHECK(missed_by_descent <= tried / 20);
}

TEST_CASE("random programs have no more regret than they had", "[regret]") {
  for (const std::uint64_t seed : {std::uint64_t{1}, fresh_seed()}) {
    const std::vector<summary> made = summarise_all(seed);
    for (std::size_t n = 0; n < made.size(); ++n) {
      const requirement& one = requirements[n];
      INFO(one.name << ", requirement " << n << ", seed " << seed);
      CHECK(made[n].mean <= one.mean * std::exp(deviations * made[n].deviation));
      const double chance = std::sqrt(one.above_two * (1 - one.above_two) / programs);
      CHECK(made[n].above_two <= one.above_two + deviations * chance);
    }
  }
}
