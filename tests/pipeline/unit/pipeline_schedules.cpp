// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: yes
// sanitized: no
// processors: 1
// timeout: 300
#include <espalier/pipeline.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace espalier::pipeline;

constexpr double close = 1e-9;  // relative: sums of the same numbers in another order

// The lines of a file of tests/data/pipeline, cut at commas, without its remarks and heads.
std::vector<std::vector<std::string>> rows_of(const std::string& name) {
  const auto path =
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "data" / "pipeline" / name;
  std::ifstream file(path);
  std::vector<std::vector<std::string>> rows;
  bool heads = true;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (!heads) {
      std::istringstream cells(line);
      auto& row = rows.emplace_back();
      for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
    }
    heads = false;
  }
  return rows;
}

double largest(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

// A source of numbers that is the same with every standard library.
struct chance {
  std::mt19937 random;

  int whole(int low, int high) { return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1)); }
  double between(double low, double high) { return low + (high - low) * static_cast<double>(random() % 100'000) / 1e5; }
  bool one_in(int count) { return whole(1, count) == 1; }
};

TEST_CASE("schedules cost what an independent simulation says") {
  const auto rows = rows_of("schedules.csv");
  REQUIRE(rows.size() == 132);
  for (const auto& row : rows) {
    CAPTURE(row);
    const int ranks = std::stoi(row[1]);
    const int micro_batches = std::stoi(row[2]);
    const int chunks = std::stoi(row[3]);
    const costs whole = uniform_costs(ranks, std::stod(row[4]), std::stod(row[5]), std::stod(row[6]));
    const costs cost = divided(whole, chunks);
    const schedule plan = make_schedule(row[0], ranks, chunks, micro_batches, cost);
    CHECK(validate(plan).empty());
    const simulation run = simulate(plan, cost);
    CHECK(run.makespan == Approx(std::stod(row[7])).epsilon(close));
    CHECK(run.bubble == Approx(std::stod(row[8])).margin(1e-9));
    CHECK(run.span_bubble == Approx(std::stod(row[9])).margin(1e-9));
    std::istringstream peaks(row[10]);
    for (const double peak : run.peak_activation_bytes) {
      double expected = -1;
      peaks >> expected;
      CHECK(peak == Approx(expected).epsilon(close));
    }
    CHECK(quick_makespan(plan, cost) == Approx(run.makespan).epsilon(close));
  }
}

TEST_CASE("the zero-bubble paper's table 5 is reproduced") {
  const auto rows = rows_of("zero_bubble.csv");
  REQUIRE(rows.size() == 12);
  for (const auto& row : rows) {
    CAPTURE(row);
    const double heads = std::stod(row[1]);
    const double hidden = std::stod(row[2]);
    const int ranks = std::stoi(row[3]);
    const int micro_batches = std::stoi(row[4]);
    costs cost = uniform_costs(ranks, std::stod(row[5]), std::stod(row[6]), std::stod(row[7]));
    cost.hops.assign(cost.stages.size() - 1, {});
    for (hop_costs& hop : cost.hops) hop.latency_seconds = std::stod(row[8]);
    for (stage_costs& stage : cost.stages) {  // the paper's section 2.2, bytes per token of a layer
      stage.activation_bytes = 34 * hidden + 5 * heads * 1024;
      stage.weight_gradient_bytes = 32 * hidden;
    }
    const auto rate = [&](const schedule& plan) {
      const simulation run = simulate(plan, cost);
      const double span = largest(run.span);
      const double waits = std::round((span - run.busy[0]) / span * 1e4) / 1e4;
      return waits;
    };
    const auto within = [&](double activations) {
      costs limited = cost;
      limited.memory_bytes.assign(cost.stages.size(), activations * ranks * cost.stages[0].activation_bytes);
      const schedule plan = zb_heuristic(micro_batches, limited, goal::span);
      CHECK(validate(plan, limited).empty());
      return plan;
    };
    CHECK(rate(one_f_one_b(micro_batches, warm_up_pa(ranks))) == Approx(std::stod(row[9])));
    CHECK(rate(zb_h1(ranks, micro_batches)) == Approx(std::stod(row[10])));
    CHECK(rate(zb_h2(ranks, micro_batches)) == Approx(std::stod(row[11])));
    CHECK(rate(within(1)) == Approx(std::stod(row[12])));
    CHECK(rate(within(2)) == Approx(std::stod(row[13])));
  }
}

TEST_CASE("V-Half and V-Min are no worse than their authors' own") {
  struct promise {
    const char* name;
    int ranks;
    double forward, input_gradient, weight_gradient;
    double bubble;
    double peak;
  };
  for (const promise& one : {promise{"v_half", 4, 1, 1, 1, 2.5, 3}, promise{"v_half", 8, 1, 1, 1, 8.5, 5},
                             promise{"v_min", 4, 1, 1, 1, 5.5, 2}, promise{"v_min", 8, 1, 1, 1, 13.5, 4},
                             promise{"v_half", 8, 100, 110, 80, 1045, 5}, promise{"v_min", 8, 100, 110, 80, 2655, 4}}) {
    CAPTURE(one.name, one.ranks, one.forward);
    const costs cost = divided(uniform_costs(one.ranks, one.forward, one.input_gradient, one.weight_gradient), 2);
    const schedule plan = make_schedule(one.name, one.ranks, 2, 4 * one.ranks, cost);
    CHECK(validate(plan).empty());
    const simulation run = simulate(plan, cost);
    CHECK(run.bubble <= one.bubble * (1 + close));
    CHECK(largest(run.peak_activation_bytes) <= one.peak * (1 + close));
  }
  for (const int ranks : {2, 3, 4, 5, 6, 7, 12, 16}) {
    CAPTURE(ranks);
    const costs cost = divided(uniform_costs(ranks), 2);
    const schedule half = v_half(ranks, 3 * ranks, cost);
    const schedule least = v_min(ranks, 3 * ranks, cost);
    CHECK(validate(half).empty());
    CHECK(validate(least).empty());
    CHECK(largest(peak_activation_bytes(half, cost)) <= (ranks + 1) / 2 + 1 + close);
    CHECK(largest(peak_activation_bytes(least, cost)) <= (ranks + 4) / 3 + close);
  }
}

TEST_CASE("the automatic schedule keeps bubbles small at the memory of 1F1B") {
  const int ranks = 8;
  const int micro_batches = 32;
  const double peak_1f1b =
      largest(peak_activation_bytes(one_f_one_b(micro_batches, warm_up_pa(ranks)), uniform_costs(ranks)));
  REQUIRE(peak_1f1b == 8);
  const auto best = [&](int chunks, double memory) {
    costs cost = divided(uniform_costs(ranks), chunks);
    if (memory > 0) cost.memory_bytes.assign(ranks, memory);
    const schedule plan = automatic(ranks, chunks, micro_batches, cost);
    CHECK(validate(plan, cost).empty());
    const simulation run = simulate(plan, cost);
    CHECK(largest(run.peak_activation_bytes) <= (memory > 0 ? memory : peak_1f1b) * (1 + close));
    return run.bubble;
  };
  CHECK(best(1, 0) <= 7 + close);
  CHECK(best(2, 0) <= 3.5 + close);
  CHECK(best(4, 0) <= 1.75 + close);
  CHECK(best(2, 5) <= 8.5 + close);
  CHECK(best(4, 5) <= 8.5 + close);
}

// A pipeline of one stage per rank; a third of its hops are inside a host, the others take up to two thirds of what an
// average stage needs for a micro-batch.
costs random_pipeline(chance& random, int ranks, bool even) {
  costs cost;
  for (int s = 0; s < ranks; ++s) {
    stage_costs one;
    one.forward_seconds = even ? 1 : random.between(0.5, 1.5);
    one.input_gradient_seconds = even ? 1 : random.between(0.5, 1.5);
    one.weight_gradient_seconds = even ? 1 : random.between(0.5, 1.5);
    cost.stages.push_back(one);
  }
  for (int s = 0; s + 1 < ranks; ++s) cost.hops.push_back(hop_of(random.one_in(3) ? 0.02 : random.between(0, 2)));
  return cost;
}

TEST_CASE("warm-ups that know their hops are never slower than PA and PB, and hold less than PB") {
  for (const bool even : {true, false}) {
    chance random{std::mt19937(17)};
    int faster_than_pa = 0;
    int faster_than_pb = 0;
    double held = 0;
    double held_by_pb = 0;
    const int repeats = 600;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      const int ranks = random.whole(2, 8);
      const int micro_batches = random.whole(ranks, 4 * ranks);
      const costs cost = random_pipeline(random, ranks, even);
      const auto seconds = [&](const std::vector<int>& warm_up) {
        return quick_makespan(one_f_one_b(micro_batches, warm_up), cost);
      };
      const std::vector<int> least = least_warm_up(cost, micro_batches);
      const double ours = seconds(least);
      const double pa = seconds(warm_up_pa(ranks));
      const double pb = seconds(warm_up_pb(ranks));
      const double all_first = seconds(std::vector<int>(static_cast<std::size_t>(ranks), micro_batches));
      CAPTURE(even, repeat, ranks, micro_batches);
      CHECK(ours <= std::min(pa, pb) * (1 + close));
      // The rule's schedule, before anything is taken away, needs no simulation to be as good.
      CHECK(seconds(warm_up_per_hop(cost, micro_batches)) <= std::min({pa, pb, all_first}) * (1 + close));
      faster_than_pa += ours < pa * (1 - close) ? 1 : 0;
      faster_than_pb += ours < pb * (1 - close) ? 1 : 0;
      for (int i = 0; i < ranks; ++i) {
        held += least[static_cast<std::size_t>(i)];
        held_by_pb += std::min(warm_up_pb(ranks)[static_cast<std::size_t>(i)], micro_batches);
      }
    }
    CAPTURE(even, faster_than_pa, faster_than_pb, held, held_by_pb);
    CHECK(faster_than_pa >= 0.8 * repeats);
    CHECK(faster_than_pb > 0);
    CHECK(held < held_by_pb);
  }
}

TEST_CASE("without transfer times the warm-up is PA, with short equal ones PB") {
  CHECK(warm_up_per_hop(uniform_costs(5), 20) == warm_up_pa(5));
  CHECK(warm_up_per_hop(uniform_costs(5, 1, 1, 1, 1.5), 20) == warm_up_pb(5));
  CHECK(warm_up_per_hop(uniform_costs(5, 1, 1, 1, 1.6), 20) == std::vector<int>{13, 10, 7, 4, 1});
  CHECK(warm_up_per_hop(uniform_costs(5), 3) == std::vector<int>{3, 3, 3, 2, 1});
  costs cost = uniform_costs(4);
  cost.memory_bytes = {9, 2, 9, 9};
  CHECK(warm_up_per_hop(cost, 20) == std::vector<int>{4, 2, 2, 1});
  cost.memory_bytes[3] = 0.5;
  CHECK_THROWS_AS(warm_up_per_hop(cost, 20), std::invalid_argument);
}

TEST_CASE("where memory allows few micro-batches, no three neighbours start with the same number") {
  costs cost = uniform_costs(8);
  cost.memory_bytes.assign(8, 4);
  const auto seconds = [&](const std::vector<int>& warm_up) {
    return simulate(one_f_one_b(32, warm_up), cost).makespan;
  };
  CHECK(warm_up_per_hop(cost, 32) == std::vector<int>{4, 4, 4, 4, 4, 3, 2, 1});
  CHECK(least_warm_up(cost, 32) == std::vector<int>{4, 4, 3, 3, 2, 2, 1, 1});
  CHECK(seconds(least_warm_up(cost, 32)) < 0.5 * seconds(warm_up_per_hop(cost, 32)));
}

// Any stages, hops and memory.
costs random_costs(chance& random, const std::vector<int>& rank_of, int ranks, std::vector<bool>& recomputed) {
  costs cost;
  const bool even = random.one_in(4);
  const bool transfers = !random.one_in(3);
  for (std::size_t s = 0; s < rank_of.size(); ++s) {
    if (even && s > 0) {
      cost.stages.push_back(cost.stages[0]);
      continue;
    }
    stage_costs one;
    one.forward_seconds = random.between(0.2, 2);
    one.input_gradient_seconds = random.between(0.2, 2);
    one.weight_gradient_seconds = random.between(0, 2);
    one.activation_bytes = random.between(1, 4);
    one.weight_gradient_bytes = one.activation_bytes * random.between(0.1, 1);
    one.input_bytes = one.activation_bytes * random.between(0, 0.5);
    one.state_bytes = random.between(0, 20);
    if (random.one_in(3)) one.all_reduce_seconds = random.between(0, 5);
    if (random.one_in(3)) one.optimizer_seconds = random.between(0, 1);
    cost.stages.push_back(one);
  }
  if (transfers)
    for (std::size_t s = 0; s + 1 < rank_of.size(); ++s) {
      hop_costs hop = hop_of(random.between(0, 1));
      hop.gradient_bytes = random.between(0, 1);
      hop.latency_seconds = random.one_in(2) ? random.between(0, 0.5) : 0;
      cost.hops.push_back(hop);
    }
  if (random.one_in(4))
    for (std::size_t s = 0; s < rank_of.size(); ++s) recomputed.push_back(random.one_in(2));
  if (random.one_in(2)) {
    cost.memory_bytes.assign(static_cast<std::size_t>(ranks), 0.0);
    for (std::size_t s = 0; s < rank_of.size(); ++s)
      cost.memory_bytes[static_cast<std::size_t>(rank_of[s])] +=
          cost.stages[s].state_bytes + random.between(0.5, 2 * ranks) * cost.stages[s].activation_bytes;
  }
  return cost;
}

// Whether each rank could do one micro-batch after another.
bool holds_one_micro_batch(const costs& cost, const std::vector<int>& rank_of, const std::vector<bool>& recomputed) {
  if (cost.memory_bytes.empty()) return true;
  std::vector<double> held(cost.memory_bytes.size(), 0.0);
  std::vector<double> reserve(cost.memory_bytes.size(), 0.0);
  for (std::size_t s = 0; s < rank_of.size(); ++s) {
    const auto r = static_cast<std::size_t>(rank_of[s]);
    const stage_costs& one = cost.stages[s];
    const bool again = !recomputed.empty() && recomputed[s];
    held[r] += one.state_bytes + (again ? one.input_bytes : one.activation_bytes);
    if (again) reserve[r] = std::max(reserve[r], one.activation_bytes);
  }
  for (std::size_t r = 0; r < held.size(); ++r)
    if (held[r] + reserve[r] > cost.memory_bytes[r]) return false;
  return true;
}

TEST_CASE("schedules of random pipelines are valid, within memory, and not below the bound") {
  chance random{std::mt19937(23)};
  int refused = 0;
  int optimal = 0;
  const int repeats = 5000;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const bool any = repeat % 10 == 0;  // the automatic one, which takes longest
    const auto& kind =
        any ? known_schedules.back()
            : known_schedules[static_cast<std::size_t>(random.whole(0, static_cast<int>(known_schedules.size()) - 2))];
    const int ranks = random.whole(1, any ? 4 : 6);
    const int chunks = chunks_of(kind, kind.chunks == chunk_count::any ? random.whole(1, any ? 2 : 3) : 0);
    int micro_batches = random.whole(1, any ? 8 : 16);
    if (kind.name == "dualpipe_v") micro_batches = 2 * ranks + micro_batches;
    const bool v = kind.chunks == chunk_count::two;
    const std::vector<int> rank_of = v ? v_placement(ranks, chunks) : loop_placement(ranks, chunks);
    std::vector<bool> recomputed;
    const costs cost = random_costs(random, rank_of, ranks, recomputed);
    CAPTURE(repeat, kind.name, ranks, chunks, micro_batches);
    schedule plan;
    try {
      if (any) {
        automatic_options options;
        options.evaluations = 60;
        options.recomputed = recomputed;
        options.placement = chunks == 2 && random.one_in(2) ? stage_placement::v : stage_placement::loop;
        // Limits are by rank, and fit the placement they were made for.
        if (!cost.memory_bytes.empty()) options.placement = stage_placement::loop;
        plan = automatic(ranks, chunks, micro_batches, cost, options);
      } else {
        plan = make_schedule(kind.name, ranks, chunks, micro_batches, cost, recomputed);
      }
    } catch (const std::invalid_argument&) {
      ++refused;
      if (any) {
        CHECK_FALSE(holds_one_micro_batch(cost, rank_of, recomputed));
      } else if (kind.name.starts_with("1f1b")) {
        CHECK_FALSE(holds_one_micro_batch(cost, rank_of, recomputed));
      } else {
        costs unlimited = cost;
        unlimited.memory_bytes.clear();
        CHECK_FALSE(fits(make_schedule(kind.name, ranks, chunks, micro_batches, unlimited, recomputed), cost));
      }
      continue;
    }
    const auto faults = validate(plan, cost);
    CAPTURE(faults);
    CHECK(faults.empty());
    const simulation run = simulate(plan, cost);
    CHECK(run.complete);
    const double bound = lower_bound(plan, cost);
    CHECK(run.makespan >= bound * (1 - close));
    CHECK(run.makespan >= largest(run.busy) * (1 - close));
    optimal += run.makespan <= bound * (1 + close) ? 1 : 0;
  }
  CHECK(refused > 100);
  CHECK(refused < repeats / 3);
  CHECK(optimal > 100);
}

TEST_CASE("schedules that are known to be optimal meet the bound") {
  chance random{std::mt19937(29)};
  for (int repeat = 0; repeat < 200; ++repeat) {
    const int ranks = random.whole(1, 8);
    const int micro_batches = ranks * random.whole(2, 4);
    const double forward = random.between(0.5, 2);
    const double gradient = forward * random.between(0.5, 1);  // the first B is back before the warm-up ends
    // W at least as long as B: it fills what B would wait.
    const double weights = gradient * random.between(1, 1.5);
    CAPTURE(ranks, micro_batches, forward, gradient, weights);
    const auto is_optimal = [&](const schedule& plan, int chunks) {
      const costs cost = divided(uniform_costs(ranks, forward, gradient, weights), chunks);
      return simulate(plan, cost).makespan <= lower_bound(plan, cost) * (1 + close);
    };
    CHECK(is_optimal(gpipe(ranks, micro_batches), 1));
    CHECK(is_optimal(one_f_one_b(micro_batches, warm_up_pa(ranks)), 1));
    CHECK(is_optimal(zb_h1(ranks, micro_batches), 1));
    CHECK(is_optimal(interleaved_zb(ranks, 2, micro_batches), 2));
    CHECK(is_optimal(interleaved_zb(ranks, 3, micro_batches), 3));
  }
}

// The least makespan of two ranks with one stage each, by trying every order of their lists that keeps micro-batches in
// order.
double least_of_all_orders(int micro_batches, const costs& cost) {
  schedule plan;
  plan.micro_batches = micro_batches;
  plan.rank_of = loop_placement(2, 1);
  plan.lists.resize(2);
  std::vector<std::vector<instruction>> orders[2];
  for (const int r : {0, 1}) {
    std::vector<instruction> list;
    const std::function<void(int, int, int)> extend = [&](int forwards, int gradients, int weights) {
      if (weights == micro_batches) {
        plan.lists[static_cast<std::size_t>(r)] = list;
        if (cost.memory_bytes.empty() ||
            peak_of(list, plan, cost) <= cost.memory_bytes[static_cast<std::size_t>(r)] * (1 + close))
          orders[r].push_back(list);
        return;
      }
      const auto next = [&](action kind, int micro_batch, int f, int b, int w) {
        list.push_back({kind, r, micro_batch});
        extend(f, b, w);
        list.pop_back();
      };
      if (forwards < micro_batches) next(action::forward, forwards, forwards + 1, gradients, weights);
      if (gradients < forwards) next(action::input_gradient, gradients, forwards, gradients + 1, weights);
      if (weights < gradients) next(action::weight_gradient, weights, forwards, gradients, weights + 1);
    };
    extend(0, 0, 0);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const auto& first : orders[0])
    for (const auto& second : orders[1]) {
      plan.lists = {first, second};
      least = std::min(least, quick_makespan(plan, cost));
    }
  return least;
}

TEST_CASE("the automatic schedule of small pipelines is the best of all") {
  chance random{std::mt19937(31)};
  int at_bound = 0;
  for (int repeat = 0; repeat < 60; ++repeat) {
    costs cost = random_pipeline(random, 2, false);
    cost.stages[random.one_in(2) ? 1 : 0].all_reduce_seconds = random.between(0, 3);
    const double memory = random.whole(1, 3);
    cost.memory_bytes = {memory, memory};
    const int micro_batches = 3;
    const double least = least_of_all_orders(micro_batches, cost);
    const schedule plan = automatic(2, 1, micro_batches, cost);
    CAPTURE(repeat, memory);
    CHECK(simulate(plan, cost).makespan == Approx(least).epsilon(close));
    const double bound = lower_bound(plan, cost);
    CHECK(bound <= least * (1 + close));
    at_bound += bound >= least * (1 - close) ? 1 : 0;
  }
  CHECK(at_bound > 0);
}

TEST_CASE("backwards are split on those ranks whose memory allows it") {
  // A B that is split holds 1 % more until its W than the F before it: too much for a rank that holds two
  // micro-batches, not for the last one, which holds one. What it sends early saves its W at the end: 32 + 8 x 48
  // against 40 + 8 x 48.
  costs two = uniform_costs(2);
  for (stage_costs& one : two.stages) {
    one.forward_seconds = one.input_gradient_seconds = one.weight_gradient_seconds = 16;
    one.weight_gradient_bytes = 1.01;
  }
  two.memory_bytes = {2, 2};
  const double merged = simulate(one_f_one_b(8, warm_up_pa(2)), two).makespan;
  CHECK(merged == Approx(9 * 48.0));
  const schedule found = automatic(2, 1, 8, two);
  CHECK(validate(found, two).empty());
  CHECK(simulate(found, two).makespan == Approx(merged - 16));
  const auto count = [&](std::size_t rank, action kind) {
    return std::count_if(found.lists[rank].begin(), found.lists[rank].end(),
                         [&](const instruction& step) { return step.kind == kind; });
  };
  CHECK(count(0, action::backward) >= 6);  // the last one or two, when less is held, may be split
  CHECK(count(1, action::weight_gradient) > 0);
}

TEST_CASE("the local search shortens schedules of uneven stages") {
  chance random{std::mt19937(37)};
  int shorter = 0;
  for (int repeat = 0; repeat < 40; ++repeat) {
    const int ranks = random.whole(3, 6);
    costs cost = random_pipeline(random, ranks, false);
    cost.memory_bytes.assign(static_cast<std::size_t>(ranks), ranks);
    const schedule plan = zb_h1(ranks, 3 * ranks);
    const double before = quick_makespan(plan, cost);
    const schedule after = improve(plan, cost, 400);
    CHECK(validate(after, cost).empty());
    CHECK(quick_makespan(after, cost) <= before);
    shorter += quick_makespan(after, cost) < before * (1 - 1e-3) ? 1 : 0;
    CHECK(improve(plan, cost, 400).lists == after.lists);
  }
  CHECK(shorter >= 20);
}

TEST_CASE("the automatic schedule is no slower than those with a name, of uneven stages too") {
  chance random{std::mt19937(41)};
  for (int repeat = 0; repeat < 12; ++repeat) {
    const int ranks = random.whole(2, 5);
    const int micro_batches = random.whole(2, 3) * ranks;
    costs cost = random_pipeline(random, ranks, repeat % 2 == 0);
    cost.memory_bytes.assign(static_cast<std::size_t>(ranks), random.whole(1, 2 * ranks));
    const double ours = simulate(automatic(ranks, 1, micro_batches, cost), cost).makespan;
    for (const auto& kind : known_schedules) {
      if (kind.chunks == chunk_count::two || kind.name == "auto") continue;
      CAPTURE(repeat, kind.name, ranks, micro_batches);
      schedule other;
      try {
        other = make_schedule(kind.name, ranks, 1, micro_batches, cost);
      } catch (const std::invalid_argument&) {  // needs more memory
        continue;
      }
      CHECK(ours <= simulate(other, cost).makespan * (1 + close));
    }
  }
}

TEST_CASE("the automatic schedule without a limit is no slower than 1F1B, whatever transfers take") {
  chance random{std::mt19937(43)};
  for (int repeat = 0; repeat < 40; ++repeat) {
    const int ranks = random.whole(2, 6);
    const int micro_batches = random.whole(ranks, 3 * ranks);
    const costs cost = random_pipeline(random, ranks, repeat % 2 == 0);
    const double ours = simulate(automatic(ranks, 1, micro_batches, cost), cost).makespan;
    CAPTURE(repeat, ranks, micro_batches);
    for (const char* name : {"1f1b", "1f1b_PA", "1f1b_PB"})
      CHECK(ours <= simulate(make_schedule(name, ranks, 1, micro_batches, cost), cost).makespan * (1 + close));
    const costs halves = divided(cost, 2);
    const double with_two = simulate(automatic(ranks, 2, micro_batches, halves), halves).makespan;
    CHECK(with_two <= simulate(interleaved_1f1b(ranks, 2, micro_batches), halves).makespan * (1 + close));
  }
}

TEST_CASE("arguments that make no schedule are refused with a remedy") {
  CHECK_THROWS_WITH(gpipe(0, 4), "a pipeline of 0 ranks with 1 stages each: both numbers must be at least 1");
  CHECK_THROWS_WITH(gpipe(2, 0), "a schedule of 0 micro-batches: there must be at least 1");
  CHECK_THROWS_WITH(one_f_one_b(8, {2, 3, 1}),
                    "rank 0 starts with 2 forwards, but 3 are needed before the first gradient can come: let no rank "
                    "start with fewer than the next one");
  CHECK_THROWS_WITH(dualpipe_v(4, 7),
                    "dualpipe_v on 4 ranks needs at least 8 micro-batches, there are 7: use more, or zb_v");
  CHECK_THROWS_WITH(chunks_of(find_schedule("zb_v"), 4), "zb_v has 2 stages per rank, not 4");
  CHECK_THROWS_WITH(find_schedule("1f1"), Catch::StartsWith("there is no schedule \"1f1\"; there are gpipe, 1f1b_PA"));
  costs cost = uniform_costs(4);
  cost.memory_bytes.assign(4, 3);
  CHECK_THROWS_WITH(make_schedule("zb_h1", 4, 1, 8, cost),
                    "zb_h1 holds 4 bytes on rank 0, the limit is 3: use auto, which keeps to it, or one of the "
                    "schedules that hold less");
  CHECK(largest(peak_bytes(make_schedule("1f1b_PA", 4, 1, 8, cost), cost)) == 3);
  cost.memory_bytes[2] = 0.5;
  CHECK_THROWS_WITH(make_schedule("auto", 4, 1, 8, cost),
                    Catch::StartsWith("rank 2 may hold 0.5 bytes, too few for its state and one micro-batch"));
  cost = uniform_costs(8);
  cost.memory_bytes.assign(4, 1);
  CHECK_THROWS_WITH(make_schedule("auto", 4, 2, 8, cost), Catch::Contains("(1, 1, 1, 1 bytes)"));
}

// The laws that comments state as @post: each test has the name of the function and the law, as they stand there.

TEST_CASE("make_schedule: every F comes before its B and every B before its W, each once, on the rank of its stage",
          "[law]") {
  chance random{std::mt19937(31)};
  for (int trial = 0; trial < 600; ++trial) {
    const auto& kind = known_schedules[static_cast<std::size_t>(trial) % known_schedules.size()];
    const int ranks = random.whole(1, 5);
    const int chunks = chunks_of(kind, kind.chunks == chunk_count::any ? random.whole(1, 2) : 0);
    const int micro_batches = (kind.name == "dualpipe_v" ? 2 * ranks : 0) + random.whole(1, 9);
    const costs cost = divided(uniform_costs(ranks, random.between(0.5, 2), random.between(0.5, 2), 1), chunks);
    CAPTURE(trial, kind.name, ranks, chunks, micro_batches);
    const schedule plan = make_schedule(kind.name, ranks, chunks, micro_batches, cost);
    REQUIRE(plan.stages() == ranks * chunks);
    for (int stage = 0; stage < plan.stages(); ++stage) {
      for (int m = 0; m < micro_batches; ++m) {
        std::string done;
        for (int rank = 0; rank < plan.ranks(); ++rank) {
          for (const instruction& step : plan.lists[static_cast<std::size_t>(rank)]) {
            if (step.stage != stage || step.micro_batch != m || !is_computation(step.kind)) continue;
            REQUIRE(rank == plan.rank_of[static_cast<std::size_t>(stage)]);
            done += name_of(step.kind);
          }
        }
        REQUIRE((done == "FBW"));
      }
    }
  }
}

TEST_CASE(
    "within_memory: no rank starts with more than it was given, than the rank before it, or than its memory holds",
    "[law]") {
  chance random{std::mt19937(32)};
  int shortened = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int ranks = random.whole(1, 6);
    std::vector<bool> recomputed;
    const costs cost = random_costs(random, loop_placement(ranks, 1), ranks, recomputed);
    if (!holds_one_micro_batch(cost, loop_placement(ranks, 1), recomputed)) continue;
    std::vector<int> given;
    for (int r = 0; r < ranks; ++r) given.push_back(random.whole(1, 12));
    const std::vector<int> warm_up = within_memory(given, cost, recomputed);
    REQUIRE(warm_up.size() == given.size());
    for (std::size_t r = 0; r < warm_up.size(); ++r) {
      REQUIRE((warm_up[r] >= 1 && warm_up[r] <= given[r]));
      if (r > 0) REQUIRE(warm_up[r] <= warm_up[r - 1]);
      if (cost.memory_bytes.empty()) continue;
      const stage_costs& one = cost.stages[r];
      const bool again = !recomputed.empty() && recomputed[r];
      const double bytes = one.state_bytes + (again ? one.activation_bytes : 0) +
                           warm_up[r] * (again ? one.input_bytes : one.activation_bytes);
      REQUIRE(bytes <= cost.memory_bytes[r] * (1 + close));
      shortened += warm_up[r] < given[r] ? 1 : 0;
    }
  }
  CHECK(shortened > 100);
}

/// Whether every rank has one stage of each chunk.
bool has_each_chunk_once(const std::vector<int>& rank_of, int ranks, int chunks) {
  std::vector<int> stages(static_cast<std::size_t>(ranks * chunks), 0);
  for (std::size_t s = 0; s < rank_of.size(); ++s)
    ++stages.at(s / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) +
                static_cast<std::size_t>(rank_of[s]));
  return rank_of.size() == stages.size() && std::count(stages.begin(), stages.end(), 1) == ranks * chunks;
}

TEST_CASE(
    "loop_placement: every rank has one stage of each chunk, and each stage's rank is one after that of the stage "
    "before it",
    "[law]") {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      const std::vector<int> rank_of = loop_placement(ranks, chunks);
      REQUIRE(has_each_chunk_once(rank_of, ranks, chunks));
      for (std::size_t s = 1; s < rank_of.size(); ++s) REQUIRE(rank_of[s] == (rank_of[s - 1] + 1) % ranks);
    }
  }
}

TEST_CASE(
    "v_placement: every rank has one stage of each chunk, and neighbouring stages are on neighbouring ranks or on "
    "one",
    "[law]") {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      const std::vector<int> rank_of = v_placement(ranks, chunks);
      REQUIRE(has_each_chunk_once(rank_of, ranks, chunks));
      for (std::size_t s = 1; s < rank_of.size(); ++s) {
        const bool turns = s % static_cast<std::size_t>(ranks) == 0;
        REQUIRE(std::abs(rank_of[s] - rank_of[s - 1]) == (turns ? 0 : 1));
      }
    }
  }
}

}  // namespace
