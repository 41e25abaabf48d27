// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// The planner: against every plan of two and three stages, within memory, in time.
// processors: 1
// optimised: yes
// sanitized: no
#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/device_sets.hpp>
#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/print_plan.hpp>
#include <espalier/pipeline/schedules/zero_bubble.hpp>
#include <espalier/pipeline/simulate.hpp>
#include <espalier/pipeline/validate.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pipeline_profiles.hpp"

using namespace espalier::pipeline;
namespace inner = espalier::pipeline::detail;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

cluster machines_of(std::vector<int> devices_of, double memory = infinite) {
  return {std::move(devices_of), {25e9, 2e-6}, {3.125e9, 2e-5}, memory};
}

/// Calls `visit` with every partition into so many stages, of all layers and all devices, with every placement.
template <class Visit> class all_partitions {
 public:
  all_partitions(const inner::planning_problem& problem, int stages, int micro_batches, Visit visit)
      : problem_(problem), stages_(stages), visit_(visit) {
    partition_.micro_batches = micro_batches;
    extend(0, free_devices(problem.machines().devices_of));
  }

 private:
  void extend(int first, const free_devices& free) {
    const int missing = stages_ - static_cast<int>(partition_.stages.size());
    if (missing == 0) return visit_(partition_);
    for (int count = 1; count <= free.left() - (missing - 1); ++count) {
      if (missing == 1 && count != free.left()) continue;
      for (const placement& offered : placements(free, count)) {
        inner::stage_devices devices;
        devices.chosen = offered;
        devices.count = count;
        devices.all_reduce = all_reduce_seconds(problem_.machines(), offered.count);
        if (!partition_.stages.empty())
          devices.transfer =
              transfer_seconds(problem_.machines(), partition_.stages.back().devices->chosen.count, offered.count);
        free_devices next = free;
        next.take(offered.count);
        for (int last = first + 1; last + missing - 1 <= problem_.layers(); ++last) {
          if (missing == 1 && last != problem_.layers()) continue;
          partition_.stages.push_back({first, last, &devices});
          extend(last, next);
          partition_.stages.pop_back();
        }
      }
    }
  }

  const inner::planning_problem& problem_;
  int stages_;
  Visit visit_;
  inner::candidate partition_;
};

double best_by_brute_force(const profile& model, const cluster& machines, const planner_options& asked, int stages,
                           bool small = false) {
  const inner::planning_problem problem(model, machines, asked);
  inner::partition_evaluator evaluate(problem);
  double best = infinite;
  for (const int count : problem.micro_batch_counts(small))
    all_partitions(problem, stages, count,
                   [&](const inner::candidate& one) { best = std::min(best, evaluate(one).seconds); });
  return best;
}

planner_options one_f_one_b_only(int global_batch, int least_share, int most_stages) {
  planner_options asked;
  asked.global_batch = global_batch;
  asked.least_share = least_share;
  asked.most_stages = most_stages;
  asked.all_schedules = false;
  asked.alternatives = 20;
  return asked;
}

/// Checks what any plan has to hold, whatever it costs.
void check_plan(const profile& model, const cluster& machines, const planner_options& asked, const plan& made) {
  REQUIRE(!made.stages.empty());
  CHECK(asked.global_batch % made.micro_batches == 0);
  int layer = 0;
  for (const plan_stage& one : made.stages) {
    CHECK(one.first == layer);
    CHECK(one.last > one.first);
    layer = one.last;
  }
  CHECK(layer == model.size());
  std::vector<int> used;
  for (int r = 0; r < made.order.ranks(); ++r) {
    const std::vector<int>& own = made.stages[static_cast<std::size_t>(r)].devices;
    used.insert(used.end(), own.begin(), own.end());
  }
  std::sort(used.begin(), used.end());
  CHECK(used == profile_data::devices(0, machines.devices()));
  for (std::size_t s = 0; s < made.stages.size(); ++s)
    CHECK(made.stages[s].devices == made.stages[static_cast<std::size_t>(made.order.rank_of[s])].devices);
  for (const double bytes : made.memory_bytes) CHECK(bytes <= machines.memory_bytes * (1 + 1e-9));
  const plan_times& times = made.times;
  CHECK(times.work + times.bubble + times.transfer + times.all_reduce == Approx(times.step).epsilon(1e-9));
}

}  // namespace

TEST_CASE("no plan of two or three stages of a published profile is better than the planner's") {
  for (const std::string& name : profile_data::names()) {
    const profile model = profile_data::read(name, 4);
    if (model.size() > 64) continue;
    INFO(name);
    const cluster small = machines_of({2, 2});
    const planner_options asked = one_f_one_b_only(32, 4, 3);
    const planning found = make_plan(model, small, asked);
    check_plan(model, small, asked, found.best);
    double best = infinite;
    for (int stages = 1; stages <= 3; ++stages) best = std::min(best, best_by_brute_force(model, small, asked, stages));
    CHECK(found.best.times.step <= best * (1 + 1e-9));

    const cluster large = machines_of({8, 8});
    const planner_options two = one_f_one_b_only(64, 16, 2);
    CHECK(make_plan(model, large, two).best.times.step <=
          std::min(best_by_brute_force(model, large, two, 1), best_by_brute_force(model, large, two, 2)) * (1 + 1e-9));
  }
}

TEST_CASE("no plan of random models on random machines is better, with memory that binds and without overlap") {
  std::mt19937 random(9);
  int bound_by_memory = 0;
  int recomputed = 0;
  int small = 0;
  int nothing = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    INFO("repeat " << repeat);
    const profile model = profile_data::random_profile(random, 4 + static_cast<int>(random() % 7));
    const std::vector<std::vector<int>> shapes{{1, 1, 1}, {3}, {2, 1}, {2, 2}, {1, 3}};
    planner_options asked = one_f_one_b_only(24, 1 + static_cast<int>(random() % 3), 3);
    asked.overlap_all_reduce = random() % 2 == 0;
    cluster machines = machines_of(shapes[random() % shapes.size()]);
    const double free_step = make_plan(model, machines, asked).best.times.step;
    machines.memory_bytes = 1e7 * (0.5 + static_cast<double>(random() % 100) / 10);
    double best = infinite;
    const int most = std::min(3, machines.devices());
    for (int stages = 1; stages <= most; ++stages)
      best = std::min(best, best_by_brute_force(model, machines, asked, stages));
    if (best == infinite) {  // then, and only then, micro-batches that are too small to be fast
      for (int stages = 1; stages <= most; ++stages)
        best = std::min(best, best_by_brute_force(model, machines, asked, stages, true));
      small += best < infinite ? 1 : 0;
    }
    if (best == infinite) {
      ++nothing;
      CHECK_THROWS_WITH(make_plan(model, machines, asked), Catch::Contains("no plan fits"));
      continue;
    }
    const planning found = make_plan(model, machines, asked);
    check_plan(model, machines, asked, found.best);
    CHECK(found.best.times.step <= best * (1 + 1e-9));
    CHECK(found.best.times.step >= free_step * (1 - 1e-9));
    bound_by_memory += found.best.times.step > free_step * (1 + 1e-9) ? 1 : 0;
    for (const plan_stage& one : found.best.stages) recomputed += one.recomputed ? 1 : 0;
  }
  // Otherwise this test would not say much.
  CHECK(bound_by_memory >= 10);
  CHECK(recomputed >= 3);
  CHECK(small >= 1);
  CHECK(nothing >= 1);
}

TEST_CASE("with every schedule, no random partition with ZB-H1 is better") {
  std::mt19937 random(4);
  for (const char* name : {"hpgo/vgg19", "hpgo/xlnet_36", "dapple/amoeba-18-pbs-8"}) {
    INFO(name);
    const profile model = profile_data::read(name, 8);
    const cluster machines = machines_of({4, 4});
    planner_options asked = one_f_one_b_only(128, 8, 0);
    asked.all_schedules = true;
    const planning found = make_plan(model, machines, asked);
    check_plan(model, machines, asked, found.best);
    const inner::planning_problem problem(model, machines, asked);
    inner::device_tree tree(machines);
    for (int repeat = 0; repeat < 2000; ++repeat) {
      inner::candidate partition;
      partition.micro_batches = 1 << (random() % 5);
      const int stages = 1 + static_cast<int>(random() % 4);
      int state = inner::device_tree::start;
      int first = 0;
      for (int s = 0; s < stages; ++s) {
        const int left = stages - s;
        const int some = tree.left(state) - (left - 1);
        const auto& steps =
            tree.steps(state, left == 1 ? some : 1 + static_cast<int>(random() % static_cast<unsigned>(some)));
        const auto& step = steps[random() % steps.size()];
        const int layers = model.size() - first - (left - 1);
        const int last =
            left == 1 ? model.size() : first + 1 + static_cast<int>(random() % static_cast<unsigned>(layers));
        partition.stages.push_back({first, last, &step.devices});
        first = last;
        state = step.next;
      }
      const costs cost = inner::simulated_costs(problem, partition);
      CHECK(found.best.times.step <= simulate(zb_h1(stages, partition.micro_batches), cost).makespan * (1 + 1e-9));
    }
  }
}

TEST_CASE("planning takes no longer than it should") {
  for (const std::string& name : profile_data::names()) {
    INFO(name);
    const profile model = profile_data::read(name, 16);
    planner_options asked;
    asked.global_batch = 512;
    const planning found = make_plan(model, machines_of({8, 8}, 16e9), asked);
    check_plan(model, machines_of({8, 8}, 16e9), asked, found.best);
    // On an idle core, one second; tests share theirs.
    CHECK(found.seconds < 4);
  }
}

TEST_CASE("data parallelism is a plan like any other") {
  // Little to reduce: all devices compute everything.
  profile model{"light", 1, {}};
  for (int k = 0; k < 8; ++k) model.layers.push_back({"layer", 1e-2, 1e-2, 1e-2, 1e6, 1e3, 1e7});
  planner_options asked;
  asked.global_batch = 64;
  const planning light = make_plan(model, machines_of({4, 4}), asked);
  CHECK(light.best.stages.size() == 1);
  CHECK(light.best.speed_up == Approx(8).epsilon(0.01));
  // Much to reduce over a slow network, little to hand on: a pipeline, and the reason names the all-reduces.
  for (layer_profile& one : model.layers) {
    one.parameter_bytes = 1e9;
    one.output_bytes = 1e4;
  }
  const planning heavy = make_plan(model, machines_of({4, 4}), asked);
  CHECK(heavy.best.stages.size() > 1);
  const auto plain = std::find_if(heavy.others.begin(), heavy.others.end(),
                                  [](const alternative& one) { return one.name == "data parallel"; });
  REQUIRE(plain != heavy.others.end());
  CHECK(plain->fits);
  CHECK_THAT(plain->reason, Catch::Contains("all-reduces hold it up"));
  // Gradients are reduced while the layers before are still computed.
  asked.most_stages = 1;
  const double overlapped = make_plan(model, machines_of({4, 4}), asked).best.times.step;
  asked.overlap_all_reduce = false;
  CHECK(overlapped < make_plan(model, machines_of({4, 4}), asked).best.times.step);
  // 8 layers of 4 GB of state each, on devices of 20 GB.
  asked = {};
  asked.global_batch = 64;
  const planning limited = make_plan(model, machines_of({4, 4}, 20e9), asked);
  const auto large = std::find_if(limited.others.begin(), limited.others.end(),
                                  [](const alternative& one) { return one.name == "data parallel"; });
  REQUIRE(large != limited.others.end());
  CHECK(!large->fits);
  CHECK_THAT(large->reason, Catch::Contains("needs 32.0 GB on each device, which has 20.0 GB"));
}

TEST_CASE("odd questions have answers") {
  std::mt19937 random(6);
  for (int repeat = 0; repeat < 150; ++repeat) {
    INFO("repeat " << repeat);
    profile model = profile_data::random_profile(random, 1 + static_cast<int>(random() % 9));
    if (repeat % 5 == 0)
      for (layer_profile& one : model.layers) one.parameter_bytes = one.weight_gradient_seconds = 0;
    if (repeat % 7 == 0 && model.size() > 1)
      model.layers.front().forward_seconds = model.layers.front().input_gradient_seconds = 0;
    cluster machines;
    const int hosts = 1 + static_cast<int>(random() % 4);
    for (int h = 0; h < hosts; ++h) machines.devices_of.push_back(1 + static_cast<int>(random() % 5));
    machines.inside = {1e9, 1e-6};
    machines.across = {random() % 2 == 0 ? 1e8 : 1e11, 1e-5};  // also where hosts are closer than devices
    if (repeat % 4 == 0) machines.inside.bytes_per_second = machines.across.bytes_per_second = infinite;
    if (repeat % 3 == 0) machines.memory_bytes = 3e8;  // with batches of 127, only micro-batches of one sample fit
    planner_options asked;
    const std::vector<int> batches{1, 7, 12, 127, 720};
    asked.global_batch = batches[random() % batches.size()];
    const planning found = make_plan(model, machines, asked);
    check_plan(model, machines, asked, found.best);
    for (const alternative& other : found.others) {
      CHECK(!other.reason.empty());
      if (!other.fits) continue;
      check_plan(model, machines, asked, other.candidate);
      CHECK(other.candidate.times.step >= found.best.times.step * (1 - 1e-9));
      CHECK(validate(other.candidate.order).empty());
    }
    CHECK(validate(found.best.order).empty());
    // No plan does the work faster than all devices together.
    CHECK(found.best.speed_up <= machines.devices() * (1 + 1e-9));
  }
}

TEST_CASE("plans are printed, as text and as JSON") {
  const profile model = profile_data::read("hpgo/vgg19", 32);
  planner_options asked;
  asked.global_batch = 1024;
  const cluster machines = machines_of({8, 8}, 16e9);
  const planning found = make_plan(model, machines, asked);
  std::ostringstream text;
  print(text, model, asked, found);
  for (const char* part : {"in flight", "all-reduces add", "other plans", "samples/s"})
    CHECK_THAT(text.str(), Catch::Contains(part));
  const std::string json = to_json(found);
  CHECK(std::count(json.begin(), json.end(), '{') == std::count(json.begin(), json.end(), '}'));
  for (const char* part : {"\"step_seconds\": ", "\"others\": [", "\"reason\": ", "\"planning_seconds\": "})
    CHECK_THAT(json, Catch::Contains(part));
  // The same question has the same answer.
  CHECK(to_json(make_plan(model, machines, asked).best) == to_json(found.best));
}

TEST_CASE("what cannot be planned is refused with the values") {
  profile model = profile_data::read("hpgo/vgg19", 32);
  planner_options asked;
  CHECK_THROWS_WITH(make_plan(model, machines_of({}), asked), Catch::Contains("no hosts"));
  CHECK_THROWS_WITH(make_plan(model, machines_of({8, 0}), asked), Catch::Contains("host 1 has 0 devices"));
  cluster slow = machines_of({2});
  slow.across.bytes_per_second = 0;
  CHECK_THROWS_WITH(make_plan(model, slow, asked), Catch::Contains("bandwidth across hosts"));
  asked.global_batch = 0;
  CHECK_THROWS_WITH(make_plan(model, machines_of({2}), asked), Catch::Contains("0 samples"));
  asked.global_batch = 64;
  CHECK_THROWS_WITH(make_plan(model, machines_of({2, 2}, 1e8), asked),
                    Catch::Contains("no plan fits: a device has 0.10 GB"));
  model.layers[3].forward_seconds = -1;
  CHECK_THROWS_WITH(make_plan(model, machines_of({2}), asked), Catch::Contains("forward_seconds of layer"));
  CHECK_THROWS_WITH(make_plan(profile{}, machines_of({2}), asked), Catch::Contains("no layers"));
  CHECK(parse_hosts("4x8") == std::vector<int>(4, 8));
  CHECK(parse_hosts("8,4,4") == std::vector<int>{8, 4, 4});
  for (const char* text : {"", "x", "4x", "0x8", "4x8x2", "a", "8,,4", "9999x9999"})
    CHECK_THROWS_WITH(parse_hosts(text), Catch::Contains("write 4x8"));
}
