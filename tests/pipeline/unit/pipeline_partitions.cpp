// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: engine

// The cost of a partition, as the planner computes it: its clock, its memory, its cluster.
// processors: 1
#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/durations.hpp>
#include <espalier/pipeline/one_forward_one_backward.hpp>
#include <espalier/pipeline/planner/assemble.hpp>
#include <espalier/pipeline/planner/candidate.hpp>
#include <espalier/pipeline/planner/devices.hpp>
#include <espalier/pipeline/planner/problem.hpp>
#include <espalier/pipeline/schedules/one_f_one_b.hpp>
#include <espalier/pipeline/simulate.hpp>

#include <support/instrumented.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "pipeline_profiles.hpp"

using namespace espalier::pipeline;
namespace inner = espalier::pipeline::detail;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("the quick clock says what the simulator says") {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> unit(0, 1);
  for (int repeat = 0; repeat < 500; ++repeat) {
    std::vector<inner::line_stage> line(1 + random() % 6);
    const int micro_batches = 1 + static_cast<int>(random() % 20);
    costs cost;
    for (std::size_t s = 0; s < line.size(); ++s) {
      inner::line_stage& one = line[s];
      one.forward = unit(random);
      one.backward = 2 * unit(random);
      one.tail = unit(random);
      one.transfer = unit(random) < 0.3 ? 0 : unit(random);
      one.latency = unit(random) < 0.5 ? 0 : unit(random);
      stage_costs stage;
      stage.forward_seconds = one.forward;
      stage.input_gradient_seconds = stage.weight_gradient_seconds = one.backward / 2;
      stage.all_reduce_seconds = one.tail;
      cost.stages.push_back(stage);
      if (s + 1 == line.size()) continue;
      hop_costs hop = hop_of(one.transfer);
      hop.latency_seconds = one.latency;
      cost.hops.push_back(hop);
    }
    inner::set_in_flight(line, micro_batches);
    std::vector<int> in_flight;
    for (const inner::line_stage& one : line) in_flight.push_back(one.in_flight);
    CHECK(in_flight == warm_up_per_hop(cost, micro_batches));
    if (repeat % 2 == 0) {  // and with fewer in flight than would be best
      for (inner::line_stage& one : line)
        one.in_flight = 1 + static_cast<int>(random() % static_cast<unsigned>(one.in_flight));
      inner::limit_in_flight(line);
      in_flight.clear();
      for (const inner::line_stage& one : line) in_flight.push_back(one.in_flight);
    }
    inner::one_forward_one_backward clock;
    const double seconds = clock.seconds(line, micro_batches);
    CHECK(seconds == Approx(simulate(one_f_one_b(micro_batches, in_flight), cost).makespan).epsilon(1e-12));
    CHECK(inner::step_bound(line, micro_batches) <= seconds * (1 + 1e-12));
  }
  // Stages that wait for one another in a circle.
  std::vector<inner::line_stage> stuck(2);
  stuck[0].forward = stuck[1].forward = 1;
  stuck[1].in_flight = 2;
  CHECK(inner::one_forward_one_backward().seconds(stuck, 4) == infinite);
}

TEST_CASE("of what little memory leaves of 1F1B, nearly the best is chosen") {
  std::mt19937 random(8);
  int limited = 0;
  int again = 0;
  for (int repeat = 0; repeat < espalier::test::tried_cases(300); ++repeat) {
    INFO("repeat " << repeat);
    const profile model = profile_data::random_profile(random, 8);
    cluster machines{{2, 3}, {25e9, 2e-6}, {3.125e9, 2e-5}, infinite};
    planner_options asked;
    asked.global_batch = 48;
    inner::device_tree tree(machines);
    inner::candidate partition;
    partition.micro_batches = 6;
    int state = inner::device_tree::start;
    const int stages = 2 + static_cast<int>(random() % 2);
    for (int s = 0; s < stages; ++s) {
      const int count = s + 1 == stages ? tree.left(state) : 1;
      const auto& step = tree.steps(state, count)[0];
      partition.stages.push_back({2 * s, s + 1 == stages ? 8 : 2 * s + 2, &step.devices});
      state = step.next;
    }
    const inner::planning_problem roomy(model, machines, asked);
    costs cost = inner::simulated_costs(roomy, partition);
    double least = 0;
    for (const stage_costs& one : cost.stages) least = std::max(least, one.state_bytes + one.activation_bytes);
    machines.memory_bytes = least * (1 + 0.005 * static_cast<double>(random() % 100));
    cost.memory_bytes.assign(cost.stages.size(), machines.memory_bytes);
    const inner::planning_problem problem(model, machines, asked);
    const inner::partition_step ours = inner::partition_evaluator(problem)(partition);

    double rule = infinite;  // each stage as many as its hop needs and it can hold
    double best = infinite;  // any numbers that fit
    for (unsigned mask = 0; mask < 1U << stages; ++mask) {
      std::vector<bool> recomputed;
      for (int s = 0; s < stages; ++s) recomputed.push_back((mask >> s & 1U) != 0);
      const auto step = [&](const std::vector<int>& warm_up) {
        schedule order = one_f_one_b(6, warm_up);
        order.recomputed = recomputed;
        return fits(order, cost) ? simulate(order, cost).makespan : infinite;
      };
      for (int a = 1; a <= 6; ++a)
        for (int b = 1; b <= a; ++b)
          for (int c = 1; c <= (stages == 3 ? b : 1); ++c)
            best = std::min(best, step(stages == 3 ? std::vector<int>{a, b, c} : std::vector<int>{a, b}));
      try {
        rule = std::min(rule, step(warm_up_per_hop(cost, 6, recomputed)));
      } catch (const std::invalid_argument&) {
        continue;  // recomputing needs room for an input more
      }
    }
    REQUIRE(rule < infinite);
    CHECK(ours.seconds <= rule * (1 + 1e-9));
    CHECK(ours.seconds >= best * (1 - 1e-9));
    CHECK(ours.seconds <= best * 1.15);
    const double free_step = inner::partition_evaluator(roomy)(partition).seconds;
    limited += ours.seconds > free_step * (1 + 1e-9) ? 1 : 0;
    again += std::count(ours.recomputed.begin(), ours.recomputed.end(), 1) > 0 ? 1 : 0;
  }
  CHECK(limited >= espalier::test::tried_cases(15));
  CHECK(again >= espalier::test::tried_cases(5));
}

TEST_CASE("what operations take on a cluster") {
  const cluster machines{{4, 4, 4}, {1e10, 1e-6}, {1e9, 1e-5}, infinite};
  const auto reduce = [&](std::vector<int> taken) { return all_reduce_seconds(machines, taken); };
  CHECK(reduce({1, 0, 0})(1e9) == 0);
  // A ring of four: each device sends 2 * 3 / 4 of the bytes, in 6 steps.
  CHECK(reduce({4, 0, 0})(1e9) == Approx(0.15 + 6e-6));
  // One device on each host: 2 * 2 / 3 of the bytes over each network card.
  CHECK(reduce({1, 1, 1})(1e9) == Approx(4.0 / 3 + 4e-5));
  // Four on each: a ring through all takes 2 * 11 / 12 over the network, levels 2 * 3 / 4 inside and 2 * 2 / 3 across.
  CHECK(reduce({4, 4, 4})(1e9) == Approx(0.15 + 4.0 / 3 + 6e-6 + 4e-5));
  // Two and one: a ring of three, 2 * 2 / 3 across, is slower than half of it inside first.
  CHECK(reduce({2, 1, 0})(1e9) == Approx(0.1 + 1.0 + 2e-6 + 2e-5));
  const auto move = [&](std::vector<int> from, std::vector<int> to) { return transfer_seconds(machines, from, to); };
  // Inside a host each of two receivers takes a half.
  CHECK(move({2, 0, 0}, {2, 0, 0})(1e9) == Approx(0.05 + 1e-6));
  CHECK(move({1, 0, 0}, {3, 0, 0})(1e9) == Approx(0.1 + 1e-6));
  // From one host to another everything crosses.
  CHECK(move({4, 0, 0}, {0, 4, 0})(1e9) == Approx(1 + 1e-5));
  // Shares stay where both have devices: nothing crosses, or a half.
  CHECK(move({2, 2, 0}, {1, 1, 0})(1e9) == Approx(0.05 + 1e-6));
  CHECK(move({2, 2, 0}, {0, 3, 0})(1e9) == Approx(0.5 + 1e-5));
  // Two hosts send a half each, the third receives it all; and the other way round.
  CHECK(move({1, 1, 0}, {0, 0, 1})(1e9) == Approx(1 + 1e-5));
  CHECK(move({0, 0, 1}, {1, 1, 0})(1e9) == Approx(1 + 1e-5));
}
