// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include "support/layer_harness.hpp"
#include "support/pipeline_model.hpp"

#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/stages/engine/checkpoint.hpp>
#include <espalier/pipeline/stages/engine/engine.hpp>
#include <espalier/pipeline/stages/measure/measure.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>

#include <boost/hana/define_struct.hpp>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Layers that the devices of a replica share, in pipelines: equal to one device.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

using namespace pipeline_model;
struct model_axis : ep::axis<"model", 2> {};

/// The table split by words, of which there are seven: unevenly.
struct split_embedding : embedding {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters,
                             (ep::leaf<Leaf, ep::sharded<ep::f64<words, width>, model_axis, ep::none>>, table));
  };
};
/// One head on each device.
struct split_attention : attention {
  constexpr auto operator()(const auto& p, const auto& x) const {
    auto split = p;
    split.query = ep::shard<ep::none, model_axis, ep::none>(p.query);
    split.output = ep::shard<model_axis, ep::none, ep::none>(p.output);
    return attention::operator()(split, x);
  }
};
/// Hands its features on as they are split.
struct split_widening : widening {
  constexpr auto operator()(const auto& p, const auto& x) const {
    return ep::shard<ep::none, ep::none, model_axis>(widening::operator()(p, x));
  }
};

/// Plain steps: AdamW's are the same for a gradient that is twice as large.
template <class Mesh> struct training_on {
  static constexpr ep::nn::sgd_settings optimizer{.momentum = 0.5};
  using mesh = Mesh;
};
template <class Mesh, class Embedding, class Attention, class Widening, class Batches>
using model_on =
    pl::model<Batches, training_on<Mesh>,                                                                            //
              pl::named<"embedding", Embedding, pl::reads<tokens>>,                                                  //
              pl::named<"attention", Attention>,                                                                     //
              pl::named<"widening", Widening>,                                                                       //
              pl::named<"narrowing", narrowing, pl::skips<"embedding">>, pl::named<"standardising", standardising>,  //
              pl::named<"head", head, pl::tied<"embedding">, pl::reads<targets>>>;

/// A product that is large enough to be work, its columns split.
struct features : pl::field<"features", ep::f64<256>> {};
template <class Columns> struct product {
  template <class Leaf> struct parameters {
    BOOST_HANA_DEFINE_STRUCT(parameters, (ep::leaf<Leaf, ep::sharded<ep::f64<256, 256>, ep::none, Columns>>, weight));
  };
  constexpr auto operator()(const auto& p, const auto& x) const { return ep::matmul(x, p.weight); }
};
struct squares {
  constexpr auto operator()(const auto& x) const { return ep::sum(x * x); }
};
template <class Mesh, class Columns>
using product_on = pl::model<pl::batches<64>, training_on<Mesh>,
                             pl::named<"product", product<Columns>, pl::reads<features>>, pl::named<"loss", squares>>;

using rows = pl::batches<1, 2>;
using one_device = model_on<ep::mesh<>, embedding, attention, widening, rows>;
using two_devices = model_on<ep::mesh<model_axis>, split_embedding, split_attention, split_widening, rows>;

/// Steps of a plan, with `before` the first one and `after` the last; rank 0's losses.
using on_engine = std::function<void(pl::engine&)>;
std::vector<double> losses_of(const pl::layer_model& model, const pl::execution_plan& plan, int ranks, int steps,
                              const on_engine& before = {}, const on_engine& after = {}) {
  std::vector<double> losses;
  ep::comm::run_devices(ranks, [&](ep::comm::in_process_communicator& here) {
    pl::engine engine(pl::make_transport(here), model,
                      here.rank() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
    const step_data data(engine.data_wanted(), plan.samples());
    if (before) before(engine);
    for (int step = 0; step < steps; ++step) {
      const double loss = engine.step(data.pointers()).loss;
      if (here.rank() == 0) losses.push_back(loss);
    }
    if (after) after(engine);
  });
  return losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : 1e300;
  for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) most = std::max(most, std::abs(a[k] - b[k]));
  return std::isfinite(most) ? most : 1e300;
}

/// Stages of so many replicas each, of `devices` ranks.
pl::execution_plan planned(const char* schedule, const std::vector<int>& first_layers, const std::vector<int>& replicas,
                           int devices, int samples, int micro_batches, std::vector<bool> recomputed = {}) {
  const int stages = static_cast<int>(first_layers.size());
  std::vector<pl::replica_group> groups(replicas.size());
  int rank = 0;
  for (std::size_t g = 0; g < replicas.size(); ++g)
    for (int k = 0; k < replicas[g] * devices; ++k) groups[g].ranks.push_back(rank++);
  const int chunks = stages / static_cast<int>(replicas.size());
  return pl::make_execution_plan(pl::make_schedule(schedule, static_cast<int>(replicas.size()), chunks, micro_batches,
                                                   pl::uniform_costs(stages), std::move(recomputed)),
                                 first_layers, 6, std::move(groups), samples, devices);
}

}  // namespace

TEST_CASE("Layers that two devices share train as on one", "[pipeline_mesh]") {
  constexpr int samples = 6;
  constexpr int steps = 3;
  const one_device whole(options());
  const two_devices split(options());
  const std::vector<double> wanted = losses_of(whole, planned("1f1b", {0}, {1}, 1, samples, 3), 1, steps);
  CHECK(wanted[2] < wanted[0]);
  CHECK(split.devices() == 2);

  CHECK(largest_difference(losses_of(split, planned("1f1b", {0}, {1}, 2, samples, 3), 2, steps), wanted) < 1e-10);
  CHECK(largest_difference(losses_of(split, planned("1f1b", {0, 2}, {1, 1}, 2, samples, 3), 4, steps), wanted) < 1e-10);
  CHECK(largest_difference(losses_of(split, planned("zb_h1", {0, 2, 4}, {1, 1, 1}, 2, samples, 3), 6, steps), wanted) <
        1e-10);
  // Unequal replicas, each two devices.
  CHECK(largest_difference(losses_of(split, planned("1f1b", {0, 3}, {2, 1}, 2, samples, 3), 6, steps), wanted) < 1e-10);
  CHECK(largest_difference(losses_of(split, planned("1f1b", {0, 2}, {1, 1}, 2, samples, 3, {true, true}), 4, steps),
                           wanted) < 1e-10);
}

TEST_CASE("Each device of a replica holds its part of the layers", "[pipeline_mesh]") {
  const one_device whole(options());
  const two_devices split(options());
  // The table: four of the seven words; query, key, value and output: a head.
  CHECK(split.facts(0).parameters[0].shape == std::vector<std::int64_t>{4, width});
  for (std::size_t k = 0; k < 3; ++k)
    CHECK(split.facts(1).parameters[k].shape == std::vector<std::int64_t>{width, 1, width / heads});
  CHECK(split.facts(1).parameters[3].shape == std::vector<std::int64_t>{1, width / heads, width});
  CHECK(split.facts(1).state_bytes < whole.facts(1).state_bytes * 2 / 3);
  CHECK(split.facts(2).output.shape == std::vector<std::int64_t>{context, wide / 2});
  // The values that layers keep are split with their features.
  CHECK(split.facts(1).kept[1].kept_bytes + split.facts(1).kept[1].kept_through_bytes <
        whole.facts(1).kept[1].kept_bytes + whole.facts(1).kept[1].kept_through_bytes);
}

TEST_CASE("Checkpoints know nothing of meshes", "[pipeline_mesh]") {
  const one_device whole(options());
  const two_devices split(options());
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "espalier_pipeline_mesh.safetensors";
  const auto save = [&](pl::engine& engine) { pl::save(engine, file); };
  const auto load = [&](pl::engine& engine) { pl::load(engine, file); };
  constexpr int samples = 6;
  const pl::execution_plan alone = planned("1f1b", {0}, {1}, 1, samples, 3);
  const pl::execution_plan shared = planned("1f1b", {0, 2}, {2, 1}, 2, samples, 3);
  const std::vector<double> wanted = losses_of(whole, alone, 1, 4);
  const auto last_two = [&](const std::vector<double>& found) {
    return largest_difference(found, {wanted[2], wanted[3]});
  };
  (void)losses_of(split, shared, 6, 2, {}, save);
  CHECK(last_two(losses_of(whole, alone, 1, 2, load)) < 1e-10);
  (void)losses_of(whole, alone, 1, 2, {}, save);
  CHECK(last_two(losses_of(split, shared, 6, 2, load)) < 1e-10);
  std::filesystem::remove(file);
}

TEST_CASE("A replica of two devices is measured", "[pipeline_mesh]") {
  const two_devices split(options());
  pl::measure_options asked;
  asked.rows = 2;
  asked.repetitions = 3;
  const pl::profile found = pl::measure(split, "small", asked);
  REQUIRE(found.layers.size() == 6);
  for (const pl::layer_profile& one : found.layers) CHECK(one.forward_seconds > 0);
  CHECK(found.layers[2].output_bytes == 2 * context * (wide / 2 + width) * 8);  // and what skips this layer
}

TEST_CASE("The work of a layer is that of each of its devices", "[pipeline_mesh]") {
  const product_on<ep::mesh<>, ep::none> whole(options());
  const product_on<ep::mesh<model_axis>, model_axis> split(options());
  const auto operations = [](const pl::layer_model& model, pl::part which) {
    return model.facts(0).work[0][static_cast<std::size_t>(which)].operations;
  };
  for (const pl::part which : {pl::part::forward, pl::part::weight_gradient}) {
    CHECK(operations(whole, which) == 2.0 * 64 * 256 * 256);
    CHECK(operations(split, which) == 2.0 * 64 * 256 * 128);
  }
}

TEST_CASE("Plans for another mesh are refused", "[pipeline_mesh]") {
  const two_devices split(options());
  using Catch::Contains;
  CHECK_THROWS_WITH(pl::check(planned("1f1b", {0, 2}, {1, 1}, 1, 6, 3), split, 2),
                    Contains("group 0 has replicas of 1 rank, but its mesh, model 2, has 2 devices"));
  pl::execution_plan wrong = planned("1f1b", {0, 2}, {1, 1}, 2, 6, 3);
  wrong.groups[1].ranks.pop_back();
  CHECK_THROWS_WITH(pl::check(wrong, split, 4), Contains("group 1 has 1 ranks, which are no replicas of 2 ranks each"));
}
