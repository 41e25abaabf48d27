// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// sanitized: no

// The meshes that plans put their stages on, against all plans of one to three stages.

#include <espalier/pipeline/stages/plan/choose_meshes.hpp>
#include <support/hand_written_layers.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pl = espalier::pipeline;

using Catch::Contains;

namespace {

/// The layers of the tests' model, for meshes of so many devices. They are planned for, not made.
class model_on_meshes : public hand_written::model {
 public:
  explicit model_on_meshes(std::vector<int> devices) : devices_(std::move(devices)) {}
  [[nodiscard]] int meshes() const override { return static_cast<int>(devices_.size()); }
  [[nodiscard]] espalier::mesh_shape replica_mesh(int mesh) const override {
    espalier::mesh_shape shape;
    shape.rank = 1;
    shape.size[0] = devices_[static_cast<std::size_t>(mesh)];
    return shape;
  }

 private:
  std::vector<int> devices_;
};

/// A profile of one sample for each mesh. One layer takes as long as several others, and devices that share it make it
/// that much faster, others hardly. Replicas of `large` layers spend long on summing gradients.
std::vector<pl::profile> random_profiles(const model_on_meshes& layers, bool large, std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(1e-3, 4e-3);
  std::uniform_real_distribution<double> gain(0, 1);
  const int heavy = std::uniform_int_distribution<int>(0, layers.layers() - 1)(random);
  std::vector<pl::layer_profile> alone;
  for (int l = 0; l < layers.layers(); ++l) {
    pl::layer_profile& one = alone.emplace_back();
    const double times = l == heavy ? 16 : 1;
    one.name = layers.facts(l).name;
    one.forward_seconds = times * seconds(random);
    one.input_gradient_seconds = times * seconds(random);
    one.weight_gradient_seconds = times * seconds(random);
    one.activation_bytes = static_cast<double>(pl::detail::activation_bytes(layers, l, 0, 1));
    one.output_bytes = static_cast<double>(pl::detail::crossing_bytes(layers, l, 0, 1));
    one.parameter_bytes = large ? 3e7 : static_cast<double>(layers.facts(l).parameter_bytes);
  }
  std::vector<pl::profile> all;
  for (int mesh = 0; mesh < layers.meshes(); ++mesh) {
    pl::profile& made = all.emplace_back(pl::profile{"model", 1.0, alone});
    for (int l = 0; l < layers.layers(); ++l) {
      pl::layer_profile& one = made.layers[static_cast<std::size_t>(l)];
      const double faster = 1 + (l == heavy ? 0.9 : 0.3 * gain(random)) * (layers.devices(mesh) - 1);
      one.forward_seconds /= faster;
      one.input_gradient_seconds /= faster;
      one.weight_gradient_seconds /= faster;
    }
  }
  return all;
}

pl::cluster machines_of(std::vector<int> hosts) {
  pl::cluster machines;
  machines.devices_of = std::move(hosts);
  machines.inside = {1e9, 1e-6};
  machines.across = {1e8, 1e-5};
  return machines;
}

/// The fastest of all plans with 1F1B whose stages have consecutive ranks.
class every_plan {
 public:
  every_plan(const model_on_meshes& layers, const pl::detail::mesh_search& search, int ranks, int samples)
      : layers_(layers), search_(search), ranks_(ranks), samples_(samples) {}

  double fastest(int stages) {
    first_layers_ = {0};
    groups_.clear();
    add_stages(stages, 0);
    return best_;
  }

 private:
  void add_stages(int left, int rank) {
    if (left == 0) {
      try_it();
      return;
    }
    for (int mesh = 0; mesh < layers_.meshes(); ++mesh)
      for (int count = layers_.devices(mesh); rank + count <= ranks_; count += layers_.devices(mesh)) {
        pl::replica_group group;
        group.mesh = mesh;
        group.devices = layers_.devices(mesh);
        for (int k = 0; k < count; ++k) group.ranks.push_back(rank + k);
        groups_.push_back(group);
        if (left == 1) {
          add_stages(0, rank + count);
        } else {
          for (int next = first_layers_.back() + 1; next + left - 1 <= layers_.layers(); ++next) {
            first_layers_.push_back(next);
            add_stages(left - 1, rank + count);
            first_layers_.pop_back();
          }
        }
        groups_.pop_back();
      }
  }
  void try_it() {
    const int stages = static_cast<int>(groups_.size());
    for (int count = 1; count <= samples_; ++count) {
      if (samples_ % count != 0) continue;
      const auto one =
          search_.priced(pl::make_execution_plan(pl::make_schedule("1f1b", stages, 1, count, pl::uniform_costs(stages)),
                                                 first_layers_, layers_.layers(), groups_, samples_));
      if (one) best_ = std::min(best_, one->seconds);
    }
  }

  const model_on_meshes& layers_;
  const pl::detail::mesh_search& search_;
  int ranks_;
  int samples_;
  std::vector<int> first_layers_;
  std::vector<pl::replica_group> groups_;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace

TEST_CASE("stages get the meshes that no other plan of one to three stages is faster with") {
  std::mt19937 random(7);
  constexpr int samples = 8;
  int mixed = 0;
  int cases = 0;
  for (const std::vector<int>& hosts : {std::vector<int>{2}, {3}, {4}, {2, 2}, {3, 1}}) {
    const pl::cluster machines = machines_of(hosts);
    const model_on_meshes layers({1, 2});
    for (int k = 0; k < 8; ++k) {
      const std::vector<pl::profile> measured = random_profiles(layers, k % 2 == 0, random);
      pl::planner_options asked;
      asked.global_batch = samples;
      const pl::predicted_plan found = pl::plan_on_meshes(layers, measured, machines, asked);
      CHECK_NOTHROW(pl::check(found.plan, layers, machines.devices()));
      CHECK(pl::simulate(found.plan.order, found.predicted).makespan == found.seconds);
      const pl::detail::mesh_search search(layers, measured, machines);
      every_plan all(layers, search, machines.devices(), samples);
      const double least = std::min({all.fastest(1), all.fastest(2), all.fastest(3)});
      INFO("ranks " << machines.devices() << ", case " << k << ", stages " << found.plan.stages.size());
      CHECK(found.seconds <= least * (1 + 1e-9));
      ++cases;
      const auto is_other = [&](const pl::replica_group& group) {
        return group.mesh != found.plan.groups.front().mesh;
      };
      mixed += std::any_of(found.plan.groups.begin(), found.plan.groups.end(), is_other) ? 1 : 0;
    }
  }
  CHECK(mixed > cases / 8);
}

TEST_CASE("meshes are chosen for what fits into the memory of a device") {
  std::mt19937 random(3);
  const model_on_meshes layers({1, 2});
  const std::vector<pl::profile> measured = random_profiles(layers, false, random);
  pl::cluster machines = machines_of({2, 2});
  pl::planner_options asked;
  asked.global_batch = 8;
  const pl::predicted_plan free = pl::plan_on_meshes(layers, measured, machines, asked);
  const std::vector<double> held = pl::simulate(free.plan.order, free.predicted).peak_bytes;
  machines.memory_bytes = 0.9 * *std::max_element(held.begin(), held.end());
  const pl::predicted_plan found = pl::plan_on_meshes(layers, measured, machines, asked);
  for (const double bytes : pl::simulate(found.plan.order, found.predicted).peak_bytes)
    CHECK(bytes <= machines.memory_bytes);
  machines.memory_bytes = 10;
  CHECK_THROWS_WITH(pl::plan_on_meshes(layers, measured, machines, asked),
                    Contains("no plan fits on any mesh of the model: no plan fits: a device has"));
}

TEST_CASE("each mesh of a model needs a profile") {
  std::mt19937 random(3);
  const model_on_meshes layers({1, 2});
  std::vector<pl::profile> measured = random_profiles(layers, false, random);
  measured.pop_back();
  CHECK_THROWS_WITH(pl::plan_on_meshes(layers, measured, machines_of({2}), {}),
                    Contains("1 profiles of a model for 2 meshes: give one for each"));
}
