// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: engine

#include <support/instrumented.hpp>
#include <support/pipeline_steps.hpp>

#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/stages/engine/checkpoint.hpp>
#include <espalier/pipeline/stages/measure/estimate.hpp>
#include <espalier/pipeline/stages/measure/probed_cluster.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>
#include <espalier/pipeline/stages/plan/choose.hpp>
#include <espalier/pipeline/stages/plan/predict.hpp>
#include <espalier/pipeline/trace.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Plans executed by the threads of this process: equal to one loop over the batch, within the memory that the
/// simulator says, and with words where something goes wrong.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

using namespace hand_written;
using Catch::Contains;

std::mutex one_at_a_time;  // assertions of several threads

/// Runs `body(engine)` on all ranks of a plan; engines are made with the plan on rank 0 only.
void run_ranks(int ranks, const model& layers, const pl::execution_plan& plan,
               const std::function<void(pl::engine&)>& body, double deadline = 30) {
  ep::comm::in_process_group group(ranks, std::chrono::duration<double>(deadline));
  ep::comm::run_devices(group, [&](ep::comm::in_process_communicator& here) {
    std::optional<pl::execution_plan> mine;
    if (here.rank() == 0) mine = plan;
    pl::engine pipe(pl::make_transport(here), layers, mine);
    body(pipe);
  });
}

std::vector<outcome> outcomes(int ranks, const model& layers, const pl::execution_plan& plan, const batch& data,
                              int steps = 2) {
  std::vector<outcome> runs(static_cast<std::size_t>(ranks));
  run_ranks(ranks, layers, plan,
            [&](pl::engine& pipe) { runs[static_cast<std::size_t>(pipe.rank())] = run_steps(pipe, data, steps); });
  return runs;
}

int ranks_of(const pl::execution_plan& plan) {
  int ranks = 0;
  for (const auto& group : plan.groups) ranks += static_cast<int>(group.ranks.size());
  return ranks;
}

/// Every rank's values are those of the loop, and each has the loss.
void require_equal_to_loop(const pl::execution_plan& plan) {
  const model layers;
  const batch data(plan.samples());
  for (const outcome& run : outcomes(ranks_of(plan), layers, plan, data)) {
    REQUIRE(run.losses.size() == 2);
    REQUIRE(distance_from_loop(run, data) < 1e-10);
  }
}

/// Returns the engine's error on all ranks when it refuses a plan.
std::string refusal(const pl::execution_plan& plan, int ranks, const model& layers = model()) {
  try {
    run_ranks(ranks, layers, plan, [](pl::engine&) {});
  } catch (const std::invalid_argument& error) { return error.what(); }
  return "not refused";
}

/// Returns by rank the error that a step threw; nothing where it ended well.
std::vector<std::string> failures(int ranks, const model& layers, const pl::execution_plan& plan, double deadline) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  const batch data(plan.samples());
  run_ranks(
      ranks, layers, plan,
      [&](pl::engine& pipe) {
        try {
          (void)pipe.step(data.pointers());
        } catch (const std::runtime_error& error) { texts[static_cast<std::size_t>(pipe.rank())] = error.what(); }
      },
      deadline);
  return texts;
}

}  // namespace

TEST_CASE("the loop's gradients are those of finite differences") {
  const batch data(3);
  loop exact;
  (void)exact.differentiate(data);
  const auto gradients = exact.gradients;
  for (const auto& [layer, values] : gradients)
    for (std::size_t i = 0; i < values.size(); ++i) {
      loop other;
      constexpr double h = 1e-5;
      other.weights[layer][i] += h;
      const double above = other.differentiate(data);
      other.weights[layer][i] -= 2 * h;
      const double below = other.differentiate(data);
      REQUIRE((above - below) / (2 * h) == Approx(values[i]).margin(1e-8));
    }
}

TEST_CASE("every schedule on one to four stages is the single-device step") {
  for (const pl::known_schedule& kind : pl::known_schedules) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      const int chunks = kind.chunks == pl::chunk_count::one ? 1 : 2;
      for (const bool recomputed : {false, true}) {
        INFO(kind.name << " on " << ranks << " ranks, recomputed " << recomputed);
        const int micro_batches = std::max(4, 2 * ranks);  // what dualpipe_v needs
        const auto order = scheduled(std::string(kind.name), ranks, chunks, micro_batches, recomputed);
        const auto plan = pl::make_execution_plan(order, cut(ranks * chunks), model::count, single(ranks),
                                                  2 * micro_batches + (recomputed ? 0 : 3));
        require_equal_to_loop(plan);
      }
    }
  }
}

TEST_CASE("replicas of unequal numbers and shares are the single-device step") {
  using groups = std::vector<pl::replica_group>;
  const groups one_by_three{{{0}, {}}, {{1, 2, 3}, {1, 3, 2}}};
  const groups three_by_two{{{2, 0, 4}, {}}, {{1, 3}, {2, 1}}};
  const groups chain{{{0, 1}, {}}, {{2}, {}}, {{3, 4, 5}, {}}, {{6, 7}, {3, 1}}};
  const groups alone{{{0, 1, 2}, {}}};
  for (const groups& some : {one_by_three, three_by_two, chain, alone})
    for (const char* name : {"gpipe", "1f1b", "zb_h1", "interleaved_zb", "zb_v"}) {
      const auto width = static_cast<int>(some.size());
      const int chunks = std::string(name).find("_v") != std::string::npos || name[0] == 'i' ? 2 : 1;
      for (const int samples : {24, 13, 6}) {  // six: some replicas get no row of some micro-batches
        INFO(name << " on " << width << " groups, " << samples << " samples");
        const auto order = scheduled(name, width, chunks, 4, samples == 13);
        require_equal_to_loop(pl::make_execution_plan(order, cut(width * chunks), model::count, some, samples));
      }
    }
}

TEST_CASE("random plans are the single-device step, again and again") {
  std::mt19937 random(15);
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int trial = 0; trial < espalier::test::tried_cases(120); ++trial) {
    const pl::known_schedule& kind =
        pl::known_schedules[static_cast<std::size_t>(draw(0, static_cast<int>(pl::known_schedules.size()) - 1))];
    const int width = draw(1, 4);
    const int chunks = kind.chunks == pl::chunk_count::one ? 1 : 2;
    std::vector<int> first(9);
    std::iota(first.begin(), first.end(), 1);
    std::shuffle(first.begin(), first.end(), random);
    first.resize(static_cast<std::size_t>(width * chunks - 1));
    first.push_back(0);
    std::sort(first.begin(), first.end());
    std::vector<int> ranks(static_cast<std::size_t>(draw(width, 7)));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    std::vector<pl::replica_group> groups(static_cast<std::size_t>(width));
    for (std::size_t k = 0; k < ranks.size(); ++k) {
      const std::size_t g = k < groups.size() ? k : static_cast<std::size_t>(draw(0, width - 1));
      groups[g].ranks.push_back(ranks[k]);
      groups[g].shares.push_back(draw(1, 3));
    }
    const int micro_batches = draw(2 * width, 2 * width + 4);
    std::vector<bool> again;
    for (int s = 0; s < width * chunks; ++s) again.push_back(draw(0, 2) == 0);
    const auto order = pl::make_schedule(kind.name, width, chunks, micro_batches,
                                         pl::uniform_costs(width * chunks, draw(1, 3), draw(1, 3), draw(1, 3)), again);
    const auto plan =
        pl::make_execution_plan(order, first, model::count, groups, draw(1, 4) * micro_batches + draw(0, 3));
    INFO("trial " << trial << ": " << kind.name << " on " << width << " groups, " << plan.samples() << " samples in "
                  << micro_batches << " micro-batches");
    const model layers;
    const batch data(plan.samples());
    for (const outcome& run : outcomes(static_cast<int>(ranks.size()), layers, plan, data, 3))
      REQUIRE(distance_from_loop(run, data) < 1e-10);
  }
}

TEST_CASE("what is held at the peak is what the simulator says") {
  for (const pl::known_schedule& kind : pl::known_schedules)
    for (const bool recomputed : {false, true}) {
      const int chunks = kind.chunks == pl::chunk_count::one ? 1 : 2;
      const auto order = scheduled(std::string(kind.name), 3, chunks, 6, recomputed);
      auto groups = single(3);
      groups[1].ranks = {1, 3};
      const auto plan = pl::make_execution_plan(order, cut(3 * chunks), model::count, groups, 12);
      const model layers;
      pl::costs cost = pl::memory_costs(plan, layers);
      const pl::simulation run = pl::simulate(plan.order, cost);
      const auto measured = outcomes(4, layers, plan, batch(12), 1);
      INFO(kind.name << ", recomputed " << recomputed);
      for (std::size_t g = 0; g < plan.groups.size(); ++g)
        for (const int rank : plan.groups[g].ranks)
          CHECK(static_cast<double>(measured[static_cast<std::size_t>(rank)].peak) == run.peak_activation_bytes[g]);
    }
}

TEST_CASE("bits do not depend on the schedule") {
  const batch data(8);
  const model layers;
  std::vector<outcome> first;
  for (const char* name : {"gpipe", "1f1b_PA", "1f1b_PB", "zb_h1", "zb_h2", "auto"}) {
    const auto order = scheduled(name, 3, 1, 4, false);
    REQUIRE_FALSE(pl::reorders_gradients(order));
    const auto runs = outcomes(3, layers, pl::make_execution_plan(order, cut(3), model::count, single(3), 8), data);
    if (first.empty()) first = runs;
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
      INFO(name << ", rank " << rank);
      CHECK(runs[rank].losses == first[rank].losses);
      CHECK(runs[rank].gradients == first[rank].gradients);
      CHECK(runs[rank].weights == first[rank].weights);
    }
  }
}

TEST_CASE("all generators add gradients in the order of the micro-batches; a list that does not is known") {
  for (const pl::known_schedule& kind : pl::known_schedules)
    for (int ranks = 2; ranks <= 6; ++ranks) {
      const auto order =
          scheduled(std::string(kind.name), ranks, kind.chunks == pl::chunk_count::one ? 1 : 2, 13, false);
      INFO(kind.name << " on " << ranks);
      CHECK_FALSE(pl::reorders_gradients(order));
    }
  auto swapped = scheduled("zb_h1", 2, 1, 3, false);
  std::vector<pl::instruction*> weights;
  for (pl::instruction& step : swapped.lists[1])
    if (step.kind == pl::action::weight_gradient) weights.push_back(&step);
  REQUIRE(weights.size() == 3);
  std::swap(weights[1]->micro_batch, weights[2]->micro_batch);
  CHECK(pl::reorders_gradients(swapped));
}

TEST_CASE("what the planner finds is executed") {
  const model layers;
  for (const int devices : {2, 4, 5}) {
    pl::profile costs{"ten layers", 1, {}};
    for (int l = 0; l < model::count; ++l)
      costs.layers.push_back({"layer", 1e-3, 1e-3 * (1 + l % 3), 1e-3, 1000, 1e5 * (l % 4), 100});
    pl::cluster machines;
    machines.devices_of = {devices};
    machines.inside = {1e7, 1e-5};
    machines.across = {1e7, 1e-5};
    pl::planner_options asked;
    asked.global_batch = 11;
    const pl::planning planned = pl::make_plan(costs, machines, asked);
    std::vector<pl::plan> all{planned.best};
    for (const pl::alternative& other : planned.others)
      if (other.fits) all.push_back(other.candidate);
    int several_stages = 0;
    for (const pl::plan& one : all) {
      const auto plan = pl::make_execution_plan(one, 11);
      several_stages += plan.stages.size() > 1 ? 1 : 0;
      const batch data(11);
      INFO(one.schedule_name << ", " << plan.stages.size() << " stages on " << devices << " devices");
      for (const outcome& run : outcomes(devices, layers, plan, data)) REQUIRE(distance_from_loop(run, data) < 1e-10);
    }
    CHECK(several_stages > 0);
  }
}

TEST_CASE("a plan whose numbers of rows are not compiled gives way to the next, and in the end to data parallelism") {
  const auto with_rows = [](const std::vector<int>& rows) {
    auto made = std::make_unique<model>(4);
    for (int l = 0; l < model::count; ++l) {
      pl::layer_facts& facts = made->change(l);
      std::vector<pl::kept_facts> kept;
      for (const int one : rows) kept.push_back(facts.kept[static_cast<std::size_t>(one) - 1]);
      facts.batches = rows;
      facts.kept = kept;
    }
    return made;
  };
  pl::planning found;
  const auto of_two_stages = [](int micro_batches) {
    pl::plan one;
    one.micro_batches = micro_batches;
    one.order = pl::make_schedule("1f1b", 2, 1, micro_batches, pl::uniform_costs(2));
    for (const int s : {0, 1}) {
      pl::plan_stage stage;
      stage.first = s * 5;
      stage.last = stage.first + 5;
      stage.devices = {s};
      one.stages.push_back(stage);
    }
    return one;
  };
  found.best = of_two_stages(4);                                       // 2 rows
  found.others.push_back({"too large", false, of_two_stages(2), ""});  // 4 rows
  found.others.push_back({"smaller", true, of_two_stages(8), ""});     // 1 row
  const auto chosen = [&](const std::vector<int>& rows) { return pl::executable_plan(found, *with_rows(rows), 2, 8); };
  CHECK(chosen({1, 2, 4}).order.micro_batches == 4);
  CHECK(chosen({1, 4}).order.micro_batches == 8);
  const pl::execution_plan all = chosen({4});
  CHECK(all.stages.size() == 1);
  CHECK(all.groups.front().ranks == std::vector<int>{0, 1});
  CHECK(all.order.micro_batches == 1);
  CHECK_THROWS_WITH(chosen({3}), Contains("no plan can be executed") && Contains("2 rows"));
}

TEST_CASE("what a probed network says of hosts is what the planner is told") {
  ep::comm::network net;
  net.ranks = 3;
  net.unit = 1e6;
  net.host = {7, 7, 2};
  net.resources = {{"card of 7", 100}, {"card of 2", 50}, {"between 0 and 1", 800}};
  for (const int a : {0, 1}) {
    net.edges.push_back({a, 2, {0, 1}, 2e-4});
    net.edges.push_back({2, a, {0, 1}, 1e-4});
  }
  const pl::transfer_rate assumed{5e9, 1e-6};
  const pl::cluster shared = pl::cluster_of(net, assumed);
  CHECK(shared.devices_of == std::vector<int>{2, 1});
  CHECK(shared.across.bytes_per_second == 50e6);
  CHECK(shared.across.latency_seconds == 2e-4);
  CHECK(shared.inside.bytes_per_second == 5e9);
  net.edges.push_back({0, 1, {2}, 3e-6});
  net.edges.push_back({1, 0, {2}, 3e-6});
  CHECK(pl::cluster_of(net, assumed).inside.bytes_per_second == 800e6);
  CHECK(pl::cluster_of(net, assumed).inside.latency_seconds == 3e-6);
  net.host = {7, 2, 7};
  CHECK_THROWS_WITH(pl::cluster_of(net, assumed), Contains("rank 2") && Contains("host by host"));
  net.host = {7, 7, 2};
  net.edges.erase(net.edges.begin());
  CHECK_THROWS_WITH(pl::cluster_of(net, assumed), Contains("nothing connects rank 0 to rank 2"));
}

TEST_CASE("hosts of a probed network that are connected otherwise have rates of their own") {
  ep::comm::network net;
  net.ranks = 4;
  net.unit = 1e6;
  net.host = {7, 7, 2, 5};
  net.resources = {{"7 and 2", 100}, {"2 and 5", 400}, {"7 and 5", 105}};
  const auto connect = [&](int a, int b, int resource) {
    net.edges.push_back({a, b, {resource}, 1e-4});
    net.edges.push_back({b, a, {resource}, 2e-4});
  };
  for (const int a : {0, 1}) {
    connect(a, 2, 0);
    connect(a, 3, 2);
  }
  connect(2, 3, 1);
  const pl::transfer_rate assumed{5e9, 1e-6};
  const pl::cluster machines = pl::cluster_of(net, assumed);
  CHECK(machines.across.bytes_per_second == 100e6);
  CHECK(machines.rate(0, 1).bytes_per_second == 100e6);
  CHECK(machines.rate(1, 2).bytes_per_second == 400e6);
  CHECK(machines.rate(2, 0).bytes_per_second == 105e6);
  CHECK(machines.rate(0, 1).latency_seconds == 1e-4);
  CHECK(machines.rate(1, 0).latency_seconds == 2e-4);
  // The slowest pair of ranks of two hosts counts.
  net.resources.push_back({"1 and 5 alone", 20});
  net.edges[4].resources.push_back(3);
  REQUIRE((net.edges[4].from == 1 && net.edges[4].to == 2));
  CHECK(pl::cluster_of(net, assumed).rate(0, 1).bytes_per_second == 20e6);
  net.edges[4].resources.pop_back();
  // Differences of less than a tenth are those of a measurement.
  net.resources[1].capacity = 109;
  CHECK(pl::cluster_of(net, assumed).between.empty());
  CHECK(pl::cluster_of(net, assumed).rate(1, 2).bytes_per_second == 100e6);
}

TEST_CASE("layers that do not say what they do cannot be estimated") {
  CHECK_THROWS_WITH(pl::estimate(model(), "ten layers", 1, {1, 1}), Contains("does not say what it does: measure it"));
}

TEST_CASE("a plan's step is predicted from the layers' profile and the machines' rates") {
  const model layers;
  pl::profile measured{"ten layers", 2, {}};  // of two samples
  for (int l = 0; l < model::count; ++l) {
    pl::layer_profile one;
    one.name = std::to_string(l);
    one.forward_seconds = 1 + l;
    one.input_gradient_seconds = 100;
    one.weight_gradient_seconds = 1000;
    one.optimizer_seconds = 0.5;
    one.parameter_bytes = 8;
    measured.layers.push_back(one);
  }
  pl::cluster machines;
  machines.devices_of = {2, 1};  // ranks 0 and 1 share a host
  machines.inside = {100, 0.25};
  machines.across = {10, 3};
  const pl::schedule order = pl::make_schedule("1f1b", 2, 1, 2, pl::uniform_costs(2));
  const pl::execution_plan plan = pl::make_execution_plan(order, {0, 4}, model::count, {{{0, 1}, {}}, {{2}, {}}}, 8);
  const pl::costs found = pl::predicted_costs(plan, layers, measured, machines);
  REQUIRE(found.stages.size() == 2);
  // Four samples a micro-batch: two on each of ranks 0 and 1, all on rank 2.
  CHECK(found.stages[0].forward_seconds == Approx(1 + 2 + 3 + 4));
  CHECK(found.stages[0].input_gradient_seconds == Approx(400));
  CHECK(found.stages[1].forward_seconds == Approx(2 * (5 + 6 + 7 + 8 + 9 + 10)));
  CHECK(found.stages[1].weight_gradient_seconds == Approx(2 * 6000));
  CHECK(found.stages[0].optimizer_seconds == Approx(2));
  CHECK(found.stages[0].all_reduce_seconds == Approx(2 * 0.25 + 32 / 100.0));
  CHECK(found.stages[1].all_reduce_seconds == 0);
  CHECK(found.stages[0].activation_bytes == pl::memory_costs(plan, layers).stages[0].activation_bytes);
  // Layer 4 reads layers 3 and 0; layer 7 reads layer 2: three activations of four samples with four numbers.
  REQUIRE(found.hops.size() == 1);
  CHECK(found.hops[0].activation_bytes == 3 * 4 * 4 * 8);
  CHECK(found.hops[0].gradient_bytes == 3 * 4 * 4 * 8);
  CHECK(found.hops[0].latency_seconds == 3);
  CHECK(found.hops[0].bytes_per_second == Approx(10));
}

TEST_CASE("a value that several stages read crosses each cut once") {
  // Layers 1 and 4 read layer 0, layers 3 and 7 layer 2; otherwise each reads the one before it.
  const model layers;
  const auto moved = [&](const std::vector<int>& cuts) {
    const int stages = static_cast<int>(cuts.size());
    const pl::schedule order = pl::make_schedule("1f1b", stages, 1, 1, pl::uniform_costs(stages));
    const pl::execution_plan plan = pl::make_execution_plan(order, cuts, model::count, single(stages), 1);
    std::vector<std::vector<std::int64_t>> bytes(static_cast<std::size_t>(stages),
                                                 std::vector<std::int64_t>(static_cast<std::size_t>(stages), 0));
    const pl::detail::routes paths(plan, layers);
    for (const pl::detail::message& one : paths.messages())
      bytes[static_cast<std::size_t>(one.from)][static_cast<std::size_t>(one.to)] += paths.bytes(one);
    pl::profile measured{"model", 1, std::vector<pl::layer_profile>(model::count)};
    pl::cluster machines;
    machines.devices_of.assign(static_cast<std::size_t>(stages), 1);
    const pl::costs priced = pl::predicted_costs(plan, layers, measured, machines);
    for (std::size_t cut = 1; cut < static_cast<std::size_t>(stages); ++cut) {
      std::int64_t crossing = 0;  // bytes that ranks before the cut send to ranks after it
      for (std::size_t from = 0; from < cut; ++from)
        for (std::size_t to = cut; to < static_cast<std::size_t>(stages); ++to) crossing += bytes[from][to];
      CHECK(crossing == pl::detail::crossing_bytes(layers, cuts[cut] - 1, 0, 1));
      CHECK(static_cast<double>(crossing) == priced.hops[cut - 1].activation_bytes);
    }
    return bytes;
  };
  constexpr std::int64_t value = 4 * 8;
  using table = std::vector<std::vector<std::int64_t>>;
  // Rank 0 sends its layer's output once; rank 1 hands it on. Gradients take the same way back.
  CHECK(moved({0, 1, 4}) == table{{0, value, 0}, {value, 0, 3 * value}, {0, 3 * value, 0}});
  // Layer 2 goes from rank 0 to rank 1, which reads it, and from there past rank 2 to rank 3.
  CHECK(moved({0, 3, 5, 7}) ==
        table{{0, 2 * value, 0, 0}, {2 * value, 0, value, value}, {0, value, 0, value}, {0, value, value, 0}});

  // And both train as one device does.
  for (const std::vector<int>& cuts : {std::vector<int>{0, 1, 4}, std::vector<int>{0, 3, 5, 7}})
    for (const char* name : {"gpipe", "1f1b", "zb_h1"}) {
      const int stages = static_cast<int>(cuts.size());
      INFO(name << " of " << stages);
      require_equal_to_loop(
          pl::make_execution_plan(scheduled(name, stages, 1, 4, false), cuts, model::count, single(stages), 8));
    }
}

TEST_CASE("losses are computed between steps, and nothing is learned of them") {
  const auto shared = std::vector<pl::replica_group>{{{0, 1}, {}}, {{2}, {}}};
  const std::vector<pl::execution_plan> plans{
      pl::make_execution_plan(scheduled("1f1b", 1, 1, 2, false), {0}, model::count, single(1), 8),
      pl::make_execution_plan(scheduled("zb_h1", 3, 1, 6, true), cut(3), model::count, single(3), 8),
      pl::make_execution_plan(scheduled("zb_v", 2, 2, 6, false), cut(4), model::count, single(2), 8),
      pl::make_execution_plan(scheduled("interleaved_1f1b", 2, 2, 4, false), cut(4), model::count, single(2), 8),
      pl::make_execution_plan(scheduled("1f1b", 2, 1, 4, false), cut(2), model::count, shared, 8)};
  const model layers;
  for (const pl::execution_plan& plan : plans) {
    INFO(plan.order.name);
    const batch data(8);
    std::vector<outcome> runs(static_cast<std::size_t>(ranks_of(plan)));
    run_ranks(ranks_of(plan), layers, plan, [&](pl::engine& pipe) {
      loop reference;
      outcome& run = runs[static_cast<std::size_t>(pipe.rank())];
      for (int step = 0; step < 3; ++step) {
        for (const auto& [samples, micro_batches] : {std::pair(5, 5), std::pair(11, 2), std::pair(5, 5)}) {
          const batch other(samples);
          pl::engine& evaluation = pipe.evaluation(samples, micro_batches);
          const pl::step_report report = evaluation.step(other.pointers());
          const double error = std::abs(report.loss - reference.differentiate(other));
          const std::lock_guard lock(one_at_a_time);
          CHECK(error < 1e-12);
          CHECK(report.peak_activation_bytes <= plan.samples() * 4 * 8 * model::count);
          CHECK(evaluation.steps_done() == 0);
        }
        run.losses.push_back(pipe.step(data.pointers()).loss);
        (void)reference.step(data);
      }
      read_blocks(pipe, run);
      CHECK(pipe.steps_done() == 3);
    });
    for (const outcome& run : runs) CHECK(distance_from_loop(run, data) < 1e-10);
  }
}

TEST_CASE("a plan that does not train is refused where there is nothing to evaluate, or its lists are others") {
  const auto plan = pl::make_execution_plan(scheduled("1f1b", 2, 1, 4, false), cut(2), model::count, single(2), 8);
  CHECK_THAT(refusal(pl::forward_only(plan, 8, 4), 2), Contains("needs parameters") && Contains("evaluation("));
  pl::execution_plan other = pl::forward_only(plan, 8, 4);
  std::swap(other.order.lists[0][0], other.order.lists[0][2]);
  CHECK_THAT(refusal(other, 2), Contains("not those of forward_only"));
  const model few(2);
  run_ranks(2, few, plan, [&](pl::engine& pipe) {
    std::string text;
    try {
      (void)pipe.evaluation(9, 2);
    } catch (const std::invalid_argument& error) { text = error.what(); }
    const batch data(8);
    const double loss = pipe.step(data.pointers()).loss;  // goes on
    const std::lock_guard lock(one_at_a_time);
    CHECK_THAT(text, Contains("5 rows of micro-batch 0") && Contains("compiled for 1, 2"));
    CHECK(loss == Approx(loop().differentiate(data)));
  });
}

TEST_CASE("1F1B needs less memory than GPipe, in fact and not only in the count") {
  const model layers;
  std::vector<std::int64_t> reserved;
  for (const char* name : {"gpipe", "1f1b"}) {
    const auto plan = pl::make_execution_plan(scheduled(name, 2, 1, 12, false), cut(2), model::count, single(2), 12);
    run_ranks(2, layers, plan, [&](pl::engine& pipe) {
      if (pipe.rank() == 0) reserved.push_back(pipe.memory().blocks);
    });
  }
  CHECK(3 * reserved[1] < reserved[0]);
}

TEST_CASE("a layer that throws is named on every rank") {
  const auto plan = pl::make_execution_plan(scheduled("1f1b", 3, 1, 6, false), cut(3), model::count, single(3), 6);
  std::atomic<int> calls{0};
  const model layers(12, [&](int layer, pl::part kind) {
    if (layer == 5 && kind == pl::part::input_gradient && ++calls == 3) throw std::runtime_error("out of range: 7");
  });
  const auto texts = failures(3, layers, plan, 20);
  for (const std::string& text : texts) {
    CHECK_THAT(text, Contains("rank 1, BW of stage 1 (layers 3 to 5), micro-batch 2"));
    CHECK_THAT(text, Contains("layer 5 (square): out of range: 7"));
  }
  CHECK_THAT(texts[0], Contains("noticed by rank 0"));
}

TEST_CASE("a rank that stops is named within the deadline, with its layer and micro-batch") {
  const auto plan = pl::make_execution_plan(scheduled("zb_h1", 3, 1, 4, false), cut(3), model::count, single(3), 8);
  std::atomic<int> calls{0};
  const model layers(12, [&](int layer, pl::part kind) {
    if (layer == 4 && kind == pl::part::forward && ++calls == 2) std::this_thread::sleep_for(std::chrono::seconds(2));
  });
  const auto start = std::chrono::steady_clock::now();
  std::mutex mutex;
  std::vector<double> seconds;
  std::vector<std::string> texts;
  const batch data(8);
  run_ranks(
      3, layers, plan,
      [&](pl::engine& pipe) {
        try {
          (void)pipe.step(data.pointers());
        } catch (const ep::comm::comm_error& error) {
          const std::lock_guard lock(mutex);
          if (pipe.rank() == 1) return;
          texts.emplace_back(error.what());
          seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
      },
      0.4);
  REQUIRE(texts.size() == 2);
  for (const std::string& text : texts)
    CHECK_THAT(text, Contains("rank 1 (stage 1: layers 3 to 5) is still in F of stage 1 (layers 3 to 5), "
                              "micro-batch 1, layer 4 (product)"));
  for (const double one : seconds) CHECK(one < 1.5);
}

TEST_CASE("plans that cannot be executed are refused with what would do") {
  const auto order = scheduled("1f1b", 2, 1, 4, false);
  const auto plan = pl::make_execution_plan(order, {0, 5}, model::count, single(2), 8);
  CHECK(refusal(plan, 2) == "not refused");

  auto wrong = plan;
  wrong.stages[1].first = 6;
  CHECK_THAT(refusal(wrong, 2), Contains("stage 1 has layers [6, 10), but it must begin with layer 5"));
  wrong = plan;
  wrong.stages[1].last = 9;
  CHECK_THAT(refusal(wrong, 2), Contains("the stages end with layer 8, but the model has 10 layers"));
  wrong = plan;
  wrong.stages.push_back({10, 10});
  CHECK_THAT(refusal(wrong, 2), Contains("3 runs of layers for a schedule of 2 stages"));
  wrong = plan;
  wrong.groups[1].ranks = {0};
  CHECK_THAT(refusal(wrong, 2), Contains("rank 0 is in group 0 and in group 1"));
  wrong = plan;
  wrong.groups[1].ranks = {2};
  CHECK_THAT(refusal(wrong, 2), Contains("group 1 has rank 2, but there are 2 ranks"));
  wrong = plan;
  wrong.groups[1].ranks.clear();
  CHECK_THAT(refusal(wrong, 2), Contains("group 1 has no ranks"));
  wrong = plan;
  wrong.groups[0].shares = {1, 2};
  CHECK_THAT(refusal(wrong, 2), Contains("group 0 has 2 shares for 1 ranks"));
  wrong = plan;
  wrong.groups[0].shares = {0};
  CHECK_THAT(refusal(wrong, 2), Contains("a share of 0"));
  wrong = plan;
  wrong.groups.pop_back();
  CHECK_THAT(refusal(wrong, 2), Contains("1 groups of ranks, but its schedule 2 lists"));
  wrong = plan;
  wrong.micro_batch_rows = {8};
  CHECK_THAT(refusal(wrong, 2), Contains("the samples of 1 micro-batches, but its schedule has 4"));
  wrong = plan;
  wrong.micro_batch_rows[2] = 0;
  CHECK_THAT(refusal(wrong, 2), Contains("micro-batch 2 has 0 samples"));
  wrong = plan;
  wrong.order.lists[1].erase(wrong.order.lists[1].begin() + 1);  // its first F
  CHECK_THAT(refusal(wrong, 2), Contains("cannot be executed: rank 1 "));
  wrong = plan;
  auto& list = wrong.order.lists[0];
  list.insert(list.begin(), {pl::action::optimizer, 0, 0});
  CHECK_THAT(refusal(wrong, 2), Contains("behind an optimizer's step"));
  wrong = plan;
  wrong.order.lists[0].insert(wrong.order.lists[0].begin(), {pl::action::all_reduce, 0, 0});
  CHECK_THAT(refusal(wrong, 2), Contains("behind the all-reduce of its gradients"));

  const model few(1);
  CHECK_THAT(refusal(plan, 2, few), Contains("stage 0 gives rank 0 2 rows of micro-batch 0, but layer 0 (dense) is "
                                             "compiled for 1") &&
                                        Contains("what this plan needs: 2"));
  CHECK_THROWS_WITH(pl::make_execution_plan(order, {0, 5}, model::count, single(2), 3),
                    Contains("a batch of 3 samples cannot be cut into 4 micro-batches"));
}

TEST_CASE("a model that contradicts itself is refused") {
  const auto plan = pl::make_execution_plan(scheduled("gpipe", 1, 1, 2, false), {0}, model::count, single(1), 4);
  const auto refused = [&](const std::function<void(model&)>& change) {
    model layers;
    change(layers);
    return refusal(plan, 1, layers);
  };
  CHECK_THAT(refused([](model& m) { m.change(4).inputs[1].layer = 4; }), Contains("only earlier layers have one"));
  CHECK_THAT(refused([](model& m) { m.change(3).parameters_of = {4}; }), Contains("layer 4, which has none"));
  CHECK_THAT(refused([](model& m) { m.change(1).parameters_of = {0}; }), Contains("does not list itself once"));
  CHECK_THAT(refused([](model& m) { m.change(1).parameters[1].offset = 132; }), Contains("lay it inside"));
  CHECK_THAT(refused([](model& m) { m.change(8).parameters[0].name = "layer1.w"; }), Contains("rename one of them"));
  CHECK_THAT(refused([](model& m) { m.change(9).inputs[0].layer = 7; }),
             Contains("nothing reads the output of layer 8"));
  CHECK_THAT(refused([](model& m) { m.change(9).data[0].name = "x"; }),
             Contains("data of one name has rows of one type"));
  CHECK_THAT(refused([](model& m) { m.change(2).kept.pop_back(); }), Contains("what it keeps"));
  CHECK_THAT(refused([](model& m) { m.change(9).output.type = ep::dtype::i32; }), Contains("floating type"));
}

TEST_CASE("ranks that pass different plans or models are told so") {
  const auto plan = pl::make_execution_plan(scheduled("1f1b", 2, 1, 4, false), cut(2), model::count, single(2), 8);
  auto other = plan;
  other.micro_batch_rows = {3, 2, 2, 1};
  const model layers;
  const model fewer(7);
  const auto told = [&](const pl::execution_plan& second, const model& second_model) {
    std::vector<std::string> texts(2);
    ep::comm::run_devices(2, [&](ep::comm::in_process_communicator& here) {
      try {
        const bool first = here.rank() == 0;
        const pl::engine pipe(pl::make_transport(here), first ? layers : second_model, first ? plan : second);
      } catch (const std::invalid_argument& error) { texts[static_cast<std::size_t>(here.rank())] = error.what(); }
    });
    CHECK(texts[0] == texts[1]);
    return texts[0];
  };
  CHECK(told(plan, layers).empty());
  CHECK_THAT(told(other, layers), Contains("rank 1 has another plan than rank 0"));
  CHECK_THAT(told(plan, fewer), Contains("rank 1 has another model than rank 0"));
}

TEST_CASE("data that a rank reads must be there; a rank without work needs none") {
  const auto plan =
      pl::make_execution_plan(scheduled("1f1b", 2, 1, 2, false), cut(2), model::count, {{{2}, {}}, {{0}, {}}}, 4);
  const batch data(4);
  const model layers;
  loop reference;
  const double loss = reference.differentiate(data);
  run_ranks(3, layers, plan, [&](pl::engine& pipe) {
    std::vector<const void*> given(pipe.data_wanted().size(), nullptr);
    if (pipe.rank() == 2) {
      const std::lock_guard lock(one_at_a_time);
      REQUIRE(given.size() == 2);
      REQUIRE_THROWS_WITH(pipe.step(given), Contains("rank 2 was given no \"x\", which layer 0 (dense) reads"));
      given[0] = data.x.data();
    }
    if (pipe.rank() == 0) given[1] = data.target.data();
    const double mine = pipe.step(given).loss;
    const std::lock_guard lock(one_at_a_time);
    CHECK(mine == Approx(loss).epsilon(1e-12));
  });
}

TEST_CASE("a checkpoint goes on under another plan") {
  const batch data(8);
  const model layers;
  const auto path = std::filesystem::temp_directory_path() / "espalier_pipeline_engine.safetensors";
  const auto first = pl::make_execution_plan(scheduled("zb_v", 2, 2, 4, false), cut(4), model::count, single(2), 8);
  auto second = pl::make_execution_plan(scheduled("gpipe", 3, 1, 2, true), {0, 2, 6}, model::count,
                                        {{{1}, {}}, {{0, 3}, {}}, {{2}, {}}}, 8);
  run_ranks(2, layers, first, [&](pl::engine& pipe) {
    (void)run_steps(pipe, data, 2);
    pl::save(pipe, path);
  });
  loop reference;
  (void)reference.step(data);
  (void)reference.step(data);
  const double third = reference.step(data);
  run_ranks(4, layers, second, [&](pl::engine& pipe) {
    pl::load(pipe, path);
    const std::int64_t before = pipe.steps_done();
    const outcome run = run_steps(pipe, data, 1);
    const std::lock_guard lock(one_at_a_time);
    CHECK(before == 2);
    CHECK(std::abs(run.losses[0] - third) < 1e-10);
    for (const auto& [layer, values] : run.weights)
      for (std::size_t i = 0; i < values.size(); ++i)
        REQUIRE(std::abs(values[i] - reference.weights[layer][i]) < 1e-10);
  });
  std::filesystem::remove(path);
}

TEST_CASE("a measured step has every instruction, in order, and no receive ends before its send began") {
  const auto plan = pl::make_execution_plan(scheduled("zb_h1", 3, 1, 4, false), cut(3), model::count, single(3), 8);
  const batch data(8);
  const model layers;
  run_ranks(3, layers, plan, [&](pl::engine& pipe) {
    (void)run_steps(pipe, data, 2);
    const pl::measured_run run = pipe.measured();
    if (pipe.rank() != 0) return;
    REQUIRE(run.timeline.size() == 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      REQUIRE(run.timeline[rank].size() == plan.order.lists[rank].size());
      double before = 0;
      for (std::size_t k = 0; k < run.timeline[rank].size(); ++k) {
        const pl::timed& entry = run.timeline[rank][k];
        CHECK(entry.step == plan.order.lists[rank][k]);
        CHECK(entry.start >= before);
        CHECK(entry.end >= entry.start);
        CHECK(entry.end <= run.makespan);
        before = entry.start;
        if (entry.step.kind != pl::action::receive_activation) continue;
        for (const pl::timed& sent : run.timeline[rank - 1])
          if (sent.step == pl::instruction{pl::action::send_activation, entry.step.stage - 1, entry.step.micro_batch})
            CHECK(entry.end >= sent.start);
      }
    }
    const pl::chart planned = pl::chart_of(plan.order, pl::simulate(plan.order, pl::uniform_costs(3)));
    const pl::chart measured = pl::chart_of(plan, run);
    CHECK(measured.timeline.size() == planned.timeline.size());
    CHECK_THAT(pl::svg({planned, measured}), Contains("measured: makespan"));
    CHECK_THAT(pl::chrome_trace({planned, measured}), Contains("\"pid\": 1"));
  });
}
