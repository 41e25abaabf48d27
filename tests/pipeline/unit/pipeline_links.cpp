// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// sanitized: no

// Plans for hosts that are not connected alike.

#include <espalier/pipeline/planner.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "pipeline_profiles.hpp"

using namespace espalier::pipeline;
namespace inner = espalier::pipeline::detail;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

cluster machines_of(std::vector<int> devices_of, const std::string& links) {
  cluster made{std::move(devices_of), {1e10, 1e-6}, {1e9, 1e-5}, infinite};
  if (!links.empty()) set_links(made, links, 1e9);
  return made;
}

/// The same hosts under other numbers: host h is number[h].
cluster renumbered(const cluster& machines, const std::vector<int>& number) {
  cluster made = machines;
  for (int a = 0; a < machines.hosts(); ++a) {
    const auto to = [&](int host) { return static_cast<std::size_t>(number[static_cast<std::size_t>(host)]); };
    made.devices_of[to(a)] = machines.devices_of[static_cast<std::size_t>(a)];
    for (int b = 0; b < machines.hosts(); ++b)
      made.between[to(a) * machines.devices_of.size() + to(b)] = machines.rate(a, b);
  }
  return made;
}

planner_options asked(int batch) {
  planner_options made;
  made.global_batch = batch;
  made.all_schedules = false;
  made.recompute = false;
  return made;
}

/// The best plan with any hosts, of one device each, for any stage.
class brute_force {
 public:
  brute_force(const profile& model, const cluster& machines, const planner_options& wanted)
      : problem_(model, machines, wanted), evaluate_(problem_) {
    std::vector<int> stage_of(static_cast<std::size_t>(machines.hosts()), 0);
    for (int stages = 1; stages <= std::min(machines.hosts(), problem_.layers()); ++stages) deal(stage_of, 0, stages);
  }
  [[nodiscard]] double best() const { return best_; }

 private:
  void deal(std::vector<int>& stage_of, std::size_t host, int stages) {
    if (host < stage_of.size()) {
      for (stage_of[host] = 0; stage_of[host] < stages; ++stage_of[host]) deal(stage_of, host + 1, stages);
      return;
    }
    std::vector<inner::stage_devices> devices(static_cast<std::size_t>(stages));
    for (int s = 0; s < stages; ++s) {
      inner::stage_devices& one = devices[static_cast<std::size_t>(s)];
      for (const int of : stage_of) one.chosen.count.push_back(of == s ? 1 : 0);
      one.count = std::accumulate(one.chosen.count.begin(), one.chosen.count.end(), 0);
      if (one.count == 0) return;
      one.all_reduce = all_reduce_seconds(problem_.machines(), one.chosen.count);
      if (s > 0)
        one.transfer = transfer_seconds(problem_.machines(), devices[static_cast<std::size_t>(s) - 1].chosen.count,
                                        one.chosen.count);
    }
    inner::candidate partition;
    for (const int count : problem_.micro_batch_counts(false)) {
      partition.micro_batches = count;
      cut(partition, devices, 0);
    }
  }
  void cut(inner::candidate& partition, const std::vector<inner::stage_devices>& devices, int first) {
    const std::size_t s = partition.stages.size();
    if (s == devices.size()) {
      best_ = std::min(best_, evaluate_(partition).seconds);
      return;
    }
    const int behind = static_cast<int>(devices.size() - s) - 1;
    for (int last = first + 1; last + behind <= problem_.layers(); ++last) {
      if (behind == 0 && last != problem_.layers()) continue;
      partition.stages.push_back({first, last, &devices[s]});
      cut(partition, devices, last);
      partition.stages.pop_back();
    }
  }

  inner::planning_problem problem_;
  inner::partition_evaluator evaluate_;
  double best_ = infinite;
};

/// Hosts of one device, each pair of them, and each way, at one of four rates.
cluster random_links(std::mt19937& random, int hosts) {
  cluster made{std::vector<int>(static_cast<std::size_t>(hosts), 1), {1e10, 1e-6}, {1e8, 1e-5}, infinite};
  made.between.assign(static_cast<std::size_t>(hosts * hosts), made.across);
  for (transfer_rate& pair : made.between)
    pair.bytes_per_second = std::vector<double>{5e7, 1e8, 4e8, 1.6e9}[random() % 4];
  return made;
}

}  // namespace

TEST_CASE("what operations take between hosts that differ") {
  // 0 and 1 are near, 2 is as far from 0 as any, and nearer to 1.
  const cluster machines = machines_of({2, 2, 2}, "0-1:4,1-2:2");
  const auto move = [&](std::vector<int> from, std::vector<int> to) {
    return transfer_seconds(machines, from, to)(1e9);
  };
  CHECK(move({1, 0, 0}, {0, 1, 0}) == Approx(0.25 + 1e-5));
  CHECK(move({0, 1, 0}, {0, 0, 1}) == Approx(0.5 + 1e-5));
  CHECK(move({1, 0, 0}, {0, 0, 1}) == Approx(1 + 1e-5));
  // A half from each at once: that of 0 takes as long as all that comes in at 2 over its fastest pair.
  CHECK(move({1, 1, 0}, {0, 0, 1}) == Approx(0.5 + 1e-5));
  // A half to each.
  CHECK(move({0, 1, 0}, {1, 0, 1}) == Approx(0.25 + 1e-5));
  const auto reduce = [&](std::vector<int> taken) { return all_reduce_seconds(machines, taken)(1e9); };
  CHECK(reduce({1, 1, 0}) == Approx(0.25 + 2e-5));
  CHECK(reduce({0, 1, 1}) == Approx(0.5 + 2e-5));
  CHECK(reduce({1, 0, 1}) == Approx(1 + 2e-5));
  CHECK(reduce({1, 1, 1}) == Approx(4.0 / 3 + 4e-5));
  // Four hosts in a ring of fast links: found, whatever their numbers are.
  for (const char* ring : {"0-1:4,1-2:4,2-3:4,3-0:4", "0-2:4,2-1:4,1-3:4,3-0:4", "0-3:4,3-1:4,1-2:4,2-0:4"})
    CHECK(all_reduce_seconds(machines_of({1, 1, 1, 1}, ring), {1, 1, 1, 1})(1e9) == Approx(1.5 / 4 + 6e-5));
}

TEST_CASE("hosts that are given equal links are connected alike") {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const profile model = profile_data::random_profile(random, 3 + static_cast<int>(random() % 6));
    cluster alike = machines_of({2, 1, 2, 2}, "");
    const double expected = make_plan(model, alike, asked(24)).best.times.step;
    alike.between.assign(16, alike.across);
    CHECK(make_plan(model, alike, asked(24)).best.times.step == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("placements of a stage go on where links are fast") {
  const host_order hosts(machines_of({1, 1, 1, 1}, "0-2:4,2-1:4,1-3:4"));
  CHECK_FALSE(hosts.alike());
  // The chain is 0, 2, 1, 3: its two ends, and the two in the middle, differ from each other by their numbers only as a
  // whole, not one by one.
  CHECK(hosts.kind(0) != hosts.kind(3));
  CHECK(hosts.from(2) == std::vector<int>{2, 0, 1, 3});
  free_devices free({1, 1, 1, 1});
  CHECK(placements(free, 1, hosts).size() == 4);
  free.take({0, 0, 1, 0});
  std::vector<std::vector<int>> next;
  for (const placement& one : placements(free, 1, hosts)) next.push_back(one.count);
  std::sort(next.begin(), next.end());
  CHECK(next == std::vector<std::vector<int>>{{0, 0, 0, 1}, {0, 1, 0, 0}, {1, 0, 0, 0}});
  // Two at a time: any two of so few.
  CHECK(placements(free_devices({1, 1, 1, 1}), 2, hosts).size() == 6);
  // Of many, those that are near each other: neighbours in a ring, for the first stage from four beginnings, which are
  // the nearest to the first host; of two hosts that are as near, to the first one.
  const std::vector<int> seven(7, 1);
  const host_order ring(machines_of(seven, "0-1:4,1-2:4,2-3:4,3-4:4,4-5:4,5-6:4,6-0:4"));
  CHECK_FALSE(ring.are_few());
  next.clear();
  for (const placement& one : placements(free_devices(seven), 2, ring)) next.push_back(one.count);
  std::sort(next.begin(), next.end());
  CHECK(next == std::vector<std::vector<int>>{{0, 1, 1, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 1}, {1, 1, 0, 0, 0, 0, 0}});
  // Where one host's links are slow, the others can be exchanged.
  const host_order slow(machines_of({1, 1, 1, 1}, "0-2:0.1,1-2:0.1,3-2:0.1"));
  CHECK(slow.kind(0) == slow.kind(1));
  CHECK(slow.kind(0) == slow.kind(3));
  CHECK(slow.kind(0) != slow.kind(2));
  CHECK(placements(free_devices({1, 1, 1, 1}), 1, slow).size() == 2);
}

TEST_CASE("hosts with other numbers of devices are taken in any order") {
  // One from each of two hosts of two; by their numbers the single one is always among them.
  const cluster machines = machines_of({2, 1, 2, 2}, "");
  const host_order hosts(machines);
  CHECK(hosts.kind(0) == hosts.kind(1));
  std::vector<std::vector<int>> counts;
  for (const placement& one : placements(free_devices(machines.devices_of), 2, hosts)) counts.push_back(one.count);
  std::sort(counts.begin(), counts.end());
  CHECK(counts == std::vector<std::vector<int>>{{0, 1, 1, 0}, {1, 0, 1, 0}, {2, 0, 0, 0}});
}

TEST_CASE("plans do not depend on the numbers of hosts") {
  std::mt19937 random(4);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const profile model = profile_data::random_profile(random, 4 + static_cast<int>(random() % 4));
    const cluster chain = machines_of({1, 1, 1, 1}, "0-1:0.4,1-2:0.1,2-3:0.4,0-2:0.05,0-3:0.05,1-3:0.05");
    const double expected = make_plan(model, chain, asked(16)).best.times.step;
    std::vector<int> number{0, 1, 2, 3};
    std::shuffle(number.begin(), number.end(), random);
    CHECK(make_plan(model, renumbered(chain, number), asked(16)).best.times.step == Approx(expected).epsilon(1e-9));
  }
}

TEST_CASE("plans for few hosts that differ are as good as the best of all") {
  std::mt19937 random(5);
  for (int repeat = 0; repeat < 80; ++repeat) {
    const profile model = profile_data::random_profile(random, 3 + static_cast<int>(random() % 4));
    const cluster machines = random_links(random, 3 + repeat % 4);
    const double best = brute_force(model, machines, asked(12)).best();
    const double found = make_plan(model, machines, asked(12)).best.times.step;
    INFO("repeat " << repeat << ": " << found << " s, the best " << best << " s");
    CHECK(found <= best * (1 + 1e-9));
  }
}

TEST_CASE("plans for more hosts that differ are not far from the best of all") {
  std::mt19937 random(6);
  double sum = 0;
  constexpr int cases = 20;
  for (int repeat = 0; repeat < cases; ++repeat) {
    const profile model = profile_data::random_profile(random, 3);
    const cluster machines = random_links(random, 7);
    sum += make_plan(model, machines, asked(12)).best.times.step / brute_force(model, machines, asked(12)).best();
  }
  INFO("on average " << sum / cases << " of the best");
  CHECK(sum / cases < 1.05);
}

TEST_CASE("links that cannot be are refused with the values") {
  const auto refused = [](const std::string& links, const std::string& words) {
    CHECK_THROWS_WITH(machines_of({1, 1}, links), Catch::Contains(links) && Catch::Contains(words));
  };
  refused("0-2:1", "there are 2 hosts, and none is 2");
  refused("0-1", "no pair with a rate");
  refused("0:1-1", "no pair with a rate");
  refused("a-1:1", "\"a\" is no host");
  refused("0-1:0", "\"0\" is no positive rate");
  refused("0-1:fast", "\"fast\" is no positive rate");
  refused("0-0:1", "no link to itself");
  refused("0-1:1,", "no pair with a rate");
  const profile model = profile_data::read("hpgo/vgg19", 32);
  cluster machines = machines_of({1, 1}, "0-1:1");
  machines.between.pop_back();
  CHECK_THROWS_WITH(make_plan(model, machines, asked(32)),
                    Catch::Contains("rates of 3 pairs") && Catch::Contains("have 4"));
  machines = machines_of({1, 1}, "0-1:1");
  machines.between[2].bytes_per_second = -1;
  CHECK_THROWS_WITH(make_plan(model, machines, asked(32)),
                    Catch::Contains("from host 1 to host 0 is") && Catch::Contains("-1"));
}
