// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include "support/counting_transport.hpp"
#include "support/staged_model.hpp"

#include <espalier/pipeline/stages/engine/checkpoint.hpp>
#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/measure/estimate.hpp>
#include <espalier/pipeline/stages/measure/measure.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>
#include <espalier/pipeline/stages/plan/predict.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Stages on meshes of their own: equal to one device, and nothing moves twice or in vain.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

using namespace staged;
using Catch::Contains;

int ranks_of(const pl::execution_plan& plan) {
  int ranks = 0;
  for (const pl::replica_group& group : plan.groups) ranks += static_cast<int>(group.ranks.size());
  return ranks;
}

/// Steps of a plan: their losses, what is there afterwards, and what moved in the last one.
struct outcome {
  std::vector<double> losses;
  tensor_values tensors;
  std::vector<ep::test::moved_bytes> moved;  ///< by rank
  std::vector<std::int64_t> peaks;           ///< by rank
};

using on_engine = std::function<void(pl::engine&)>;
outcome run(const pl::execution_plan& plan, int count, const on_engine& before = {}, const on_engine& after = {}) {
  outcome found;
  std::mutex one_at_a_time;
  found.moved.resize(static_cast<std::size_t>(ranks_of(plan)));
  found.peaks.resize(found.moved.size());
  ep::comm::run_devices(ranks_of(plan), [&](ep::comm::in_process_communicator& here) {
    const auto rank = static_cast<std::size_t>(here.rank());
    ep::test::moved_bytes moved;
    pl::engine engine(std::make_unique<ep::test::counting_transport>(
                          pl::make_transport(here), ep::test::tags_between_stages(plan, layers()), moved),
                      layers(), here.rank() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
    const pipeline_model::step_data data(engine.data_wanted(), plan.samples());
    if (before) before(engine);
    std::vector<double> losses;
    for (int step = 0; step < count; ++step) {
      moved = {};
      const pl::step_report report = engine.step(data.pointers());
      losses.push_back(report.loss);
      found.peaks[rank] = report.peak_activation_bytes;
    }
    if (after) after(engine);
    found.moved[rank] = moved;
    const std::lock_guard lock(one_at_a_time);
    if (here.rank() == 0) found.losses = losses;
    add_tensors(engine, found.tensors);
  });
  return found;
}

double difference(const outcome& a, const outcome& b) {
  return std::max(largest_difference(a.losses, b.losses), largest_difference(a.tensors, b.tensors));
}

const outcome& on_one_device() {
  static const outcome found = run(planned("1f1b", {0}, {{alone, 1}}, samples, 3), steps);
  return found;
}

}  // namespace

TEST_CASE("Stages on different meshes train as on one device", "[pipeline_stages]") {
  REQUIRE(on_one_device().losses.size() == steps);
  CHECK(on_one_device().losses[steps - 1] < on_one_device().losses[0]);
  for (const stage_meshes& one : two_stages)
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
      CAPTURE(one.name, schedule);
      CHECK(difference(run(planned(schedule, {0, 2}, one.groups, samples, 3), steps), on_one_device()) < 1e-10);
    }
  // Two stages of each rank, skips from the first stage to the third, and F once more before B.
  const pl::execution_plan others[]{
      planned("zb_v", {0, 1, 2, 3}, {{on_model, 1}, {alone, 1}}, samples, 4),
      planned("interleaved_1f1b", {0, 1, 2, 3}, {{on_data, 1}, {on_model, 1}}, samples, 4),
      planned("1f1b", {0, 1, 2}, {{on_model, 1}, {alone, 1}, {on_data, 1}}, samples, 3),
      planned("zb_h1", {0, 1, 2}, {{alone, 2}, {on_both, 1}, {on_model, 1}}, samples, 3),
      planned("1f1b", {0, 2}, {{on_data, 1}, {on_model, 1}}, samples, 3, {true, true})};
  for (const pl::execution_plan& plan : others) CHECK(difference(run(plan, steps), on_one_device()) < 1e-10);
}

TEST_CASE("Rows may be fewer than the devices that share them", "[pipeline_stages]") {
  // One row on a mesh that splits rows: the second device has none.
  const outcome wanted = run(planned("1f1b", {0}, {{alone, 1}}, 3, 3), steps);
  CHECK(difference(run(planned("1f1b", {0, 2}, {{on_data, 1}, {on_both, 1}}, 3, 3), steps), wanted) < 1e-10);
  CHECK(difference(run(planned("1f1b", {0, 2}, {{on_both, 1}, {alone, 2}}, 3, 3), steps), wanted) < 1e-10);
}

TEST_CASE("Between stages of different meshes moves what is missing", "[pipeline_stages]") {
  // In a step stage 1 reads two values of all samples: the widened one, and the one that skips it. All of their
  // elements come once to each device of stage 1 that needs them, and their gradients to each device of stage 0.
  struct expectation {
    std::vector<group_on> groups;
    std::int64_t forth, back;  ///< elements a row
  };
  const std::vector<expectation> all{
      // Features of the widened value are split over the model axis, rows over the data axis; the skipping value has
      // copies on the devices of the model axis.
      {{{on_model, 1}, {on_data, 1}}, wide + width, wide + 2 * width},
      {{{on_data, 1}, {on_model, 1}}, wide + 2 * width, wide + width},
      {{{alone, 1}, {on_model, 1}}, wide + 2 * width, wide + width},
      {{{on_model, 1}, {alone, 1}}, wide + width, wide + 2 * width},
      {{{on_both, 1}, {on_model, 1}}, wide + 2 * width, wide + 2 * width},
      {{{alone, 1}, {on_both, 1}}, wide + 2 * width, wide + width}};
  for (const expectation& one : all)
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      const outcome found = run(planned(schedule, {0, 2}, one.groups, samples, 3), 2);
      const std::size_t first = one.groups[0].mesh == on_both ? 4 : one.groups[0].mesh == alone ? 1 : 2;
      std::int64_t sent[2]{};
      std::int64_t received[2]{};
      for (std::size_t rank = 0; rank < found.moved.size(); ++rank) {
        sent[rank < first ? 0 : 1] += found.moved[rank].sent;
        received[rank < first ? 0 : 1] += found.moved[rank].received;
      }
      constexpr std::int64_t rows = std::int64_t{samples} * context * sizeof(double);
      CHECK(sent[0] == one.forth * rows);
      CHECK(received[1] == one.forth * rows);
      CHECK(sent[1] == one.back * rows);
      CHECK(received[0] == one.back * rows);
    }
}

TEST_CASE("Tied weights on different meshes are summed share by share", "[pipeline_stages]") {
  // The table has seven words, of which ranks 0 to 3 sum 1, 2, 2 and 2. Stage 0 has words 0 to 3 on rank 0, 4 to 6 on
  // rank 1; stage 1 all of them on ranks 2 and 3. Shares come from both stages, but for what a rank has itself: 6 and 3
  // words. Then the ranks lack 3, 3, 5 and 5 words of the sum. No other parameters are on two ranks.
  const outcome found = run(planned("1f1b", {0, 2}, {{on_model, 1}, {on_data, 1}}, samples, 3), 1);
  std::int64_t sent = 0;
  for (const ep::test::moved_bytes& one : found.moved) sent += one.sent_of_parameters;
  CHECK(sent == std::int64_t{6 + 3 + 3 + 3 + 5 + 5} * width * 8);
}

TEST_CASE("Copies on a mesh share what they send", "[pipeline_stages]") {
  // The skipping value is whole on both devices of stage 0, and needed on both devices of stage 1.
  const outcome found = run(planned("1f1b", {0, 2}, {{on_model, 1}, {on_data, 1}}, samples, 3), 1);
  CHECK(found.moved[0].sent == found.moved[1].sent);
  CHECK(found.moved[2].sent == found.moved[3].sent);
}

TEST_CASE("Stages on different meshes hold what the simulator says", "[pipeline_stages]") {
  for (const stage_meshes& one : two_stages) {
    if (one.groups[0].replicas + one.groups[1].replicas > 2) continue;  // shares are not equal
    const pl::execution_plan plan = planned("1f1b", {0, 2}, one.groups, samples, 3);
    const outcome found = run(plan, 1);
    const std::vector<double> peaks = pl::peak_activation_bytes(plan.order, pl::memory_costs(plan, layers()));
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const int rank : plan.groups[g].ranks) {
        CAPTURE(one.name, rank);
        CHECK(static_cast<double>(found.peaks[static_cast<std::size_t>(rank)]) == peaks[g]);
      }
  }
}

TEST_CASE("Checkpoints and evaluations know nothing of stages' meshes", "[pipeline_stages]") {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "espalier_pipeline_stages.safetensors";
  const auto save = [&](pl::engine& engine) { pl::save(engine, file); };
  const auto load = [&](pl::engine& engine) { pl::load(engine, file); };
  const pl::execution_plan staged_plan = planned("zb_h1", {0, 2}, {{on_both, 1}, {on_model, 1}}, samples, 3);
  const pl::execution_plan other = planned("1f1b", {0, 1}, {{on_model, 1}, {on_data, 2}}, samples, 3);
  const outcome wanted = run(planned("1f1b", {0}, {{alone, 1}}, samples, 3), 4);
  (void)run(staged_plan, 2, {}, save);
  CHECK(largest_difference(run(other, 2, load).losses, {wanted.losses[2], wanted.losses[3]}) < 1e-10);
  std::filesystem::remove(file);
  double loss = 0;
  (void)run(staged_plan, 2, {}, [&](pl::engine& engine) {
    const pipeline_model::step_data data(engine.data_wanted(), samples);
    const double found = engine.evaluation(samples, 3).step(data.pointers()).loss;
    if (engine.rank() == 0) loss = found;
  });
  CHECK(std::abs(loss - wanted.losses[2]) < 1e-10);
}

TEST_CASE("Layers are measured and counted on each mesh", "[pipeline_stages]") {
  std::vector<pl::profile> measured;
  for (int mesh = 0; mesh < layers().meshes(); ++mesh) {
    pl::measure_options asked;
    asked.rows = 2;
    asked.mesh = mesh;
    asked.repetitions = 1;
    measured.push_back(pl::measure(layers(), "small", asked));
    const pl::profile counted = pl::estimate(layers(), "small", 2, {1e9, 1e9}, mesh);
    // Its rows are split over the data axis, its features over the model axis.
    const int parts = mesh == on_both ? 4 : mesh == alone ? 1 : 2;
    // The value that skips it crosses after it, too; of that, devices of the model axis have copies.
    const int row_parts = mesh == on_both || mesh == on_data ? 2 : 1;
    CHECK(measured.back().layers[1].output_bytes ==
          2 * context * wide * 8 / parts + 2 * context * width * 8 / row_parts);
    CHECK(counted.layers[1].output_bytes == measured.back().layers[1].output_bytes);
  }
  const pl::execution_plan plan = planned("1f1b", {0, 2}, {{on_both, 1}, {alone, 1}}, samples, 2);
  pl::cluster machine;
  machine.devices_of = {5};
  const pl::costs costs = pl::predicted_costs(plan, layers(), measured, machine);
  CHECK(costs.stages[0].forward_seconds ==
        Approx(1.5 * (measured[on_both].layers[0].forward_seconds + measured[on_both].layers[1].forward_seconds)));
  CHECK(costs.stages[1].forward_seconds ==
        Approx(1.5 * (measured[alone].layers[2].forward_seconds + measured[alone].layers[3].forward_seconds)));
  pl::measure_options wrong;
  wrong.mesh = 4;
  CHECK_THROWS_WITH(pl::measure(layers(), "small", wrong),
                    Contains("mesh 4 of a model that is compiled for 4: choose one of its list"));
}

TEST_CASE("Meshes that the model is not compiled for are refused", "[pipeline_stages]") {
  pl::execution_plan plan = planned("1f1b", {0, 2}, {{on_model, 1}, {alone, 1}}, samples, 3);
  plan.groups[1].mesh = 4;
  CHECK_THROWS_WITH(pl::check(plan, layers(), 3),
                    Contains("group 1 is on mesh 4, but the model is compiled for 0 (one device), 1 (model 2), 2 (data "
                             "2), 3 (data 2, model 2)"));
  plan.groups[1].mesh = on_data;
  CHECK_THROWS_WITH(pl::check(plan, layers(), 3),
                    Contains("group 1 has replicas of 1 rank, but its mesh, data 2, has 2 devices"));
}
