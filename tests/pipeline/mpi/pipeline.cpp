// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// lab([lab_pipeline]): star "400mbit 400mbit"
// dies([killed_in_pipeline]): 4 rank [0-2] of 4 was ended after [a-zA-Z ]+ of stage [0-2] .*micro-batch [0-3]

#include <support/pipeline_steps.hpp>
#include <support/replica_layers.hpp>

#include <espalier/pipeline/stages/engine/checkpoint.hpp>
#include <espalier/pipeline/stages/messages/transport_mpi.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

/// Plans executed by the ranks of MPI.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

using namespace hand_written;
using Catch::Contains;
using ep::test::rank_in;
using ep::test::size_of;

/// A pipeline of this rank, over all ranks.
struct pipeline {
  explicit pipeline(const model& layers, const pl::execution_plan& plan, double deadline = 60)
      : ranks(espalier::comm::detail::all_ranks(), options(deadline)),
        pipe(pl::make_transport(ranks), layers,
             rank_in() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt) {}
  static ep::comm::mpi_options options(double deadline) {
    ep::comm::mpi_options made;
    made.deadline = std::chrono::duration<double>(deadline);
    return made;
  }
  ep::comm::mpi_communicator ranks;
  pl::engine pipe;
};

/// All ranks in at most four groups, the later ones wider.
std::vector<pl::replica_group> spread(int groups) {
  std::vector<pl::replica_group> all(static_cast<std::size_t>(groups));
  for (int rank = 0; rank < size_of(); ++rank) {
    const int g = rank < groups ? rank : groups - 1 - (rank - groups) % groups;
    all[static_cast<std::size_t>(g)].ranks.push_back(rank);
  }
  return all;
}

}  // namespace

TEST_CASE("schedules over MPI are the single-device step") {
  const model layers(24);
  for (const pl::known_schedule& kind : pl::known_schedules)
    for (int groups = 1; groups <= std::min(4, size_of()); groups += groups < 2 ? 1 : 2) {
      const int chunks = kind.chunks == pl::chunk_count::one ? 1 : 2;
      INFO(kind.name << " on " << groups << " groups");
      const auto order = scheduled(std::string(kind.name), groups, chunks, std::max(4, 2 * groups), groups == 2);
      const auto plan = pl::make_execution_plan(order, cut(groups * chunks), model::count, spread(groups), 13);
      const batch data(13);
      pipeline here(layers, plan);
      const outcome run = run_steps(here.pipe, data, 2);
      REQUIRE_ALL(here.ranks.base(), distance_from_loop(run, data) < 1e-10);
    }
}

TEST_CASE("replicas of several ranks over MPI are the single-device step") {
  for (const int devices : {2, 4}) {
    if (size_of() % devices != 0) continue;
    const replica_model layers(devices);
    const int replicas = size_of() / devices;
    const int stages = std::min(2, replicas);
    std::vector<pl::replica_group> groups(static_cast<std::size_t>(stages));
    for (int rank = 0; rank < size_of(); ++rank)
      groups[static_cast<std::size_t>(std::min(rank / devices, stages - 1))].ranks.push_back(rank);
    const auto plan =
        pl::make_execution_plan(scheduled("1f1b", stages, 1, 4, false), cut(stages), model::count, groups, 12, devices);
    const batch data(12);
    pipeline here(layers, plan);
    const outcome run = run_steps(here.pipe, data, 2);
    REQUIRE_ALL(here.ranks.base(), distance_from_loop(run, data) < 1e-10);
  }
}

TEST_CASE("messages that are not sent at once are the same") {
  if (size_of() < 2) return;
  // Rows of 32 bytes: 4096 of them are beyond what libraries send without asking.
  const model layers(4096);
  const auto order = scheduled("1f1b", 2, 1, 4, false);
  const auto plan = pl::make_execution_plan(order, cut(2), model::count, {{{1}, {}}, {{0}, {}}}, 4 * 4096);
  const batch data(4 * 4096);
  pipeline here(layers, plan);
  const outcome run = run_steps(here.pipe, data, 2);
  REQUIRE_ALL(here.ranks.base(), distance_from_loop(run, data) < 1e-10);
  const pl::measured_run measured = here.pipe.measured();
  if (rank_in() == 0) CHECK(measured.timeline[1].size() == plan.order.lists[0].size());
}

namespace {

/// Waits for a request; `turns`: how often this rank may look.
bool comes(pl::transport& ranks, int request, std::int64_t turns) {
  while (!ranks.finished(request)) {
    if (turns-- == 0) return false;
    ranks.progress(true);
  }
  return true;
}
constexpr std::int64_t patiently = 1 << 20;

std::vector<std::byte> numbered(std::int64_t bytes, int seed) {
  std::vector<std::byte> made(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<std::byte>((i * 2654435761U + static_cast<std::size_t>(seed)) >> 7U);
  return made;
}

}  // namespace

TEST_CASE("messages between hosts arrive whole, in pieces or not", "[.][lab_pipeline]") {
  REQUIRE(size_of() == 2);
  ep::comm::mpi_communicator base(ep::comm::detail::all_ranks(), pipeline::options(60));
  const std::unique_ptr<pl::transport> ranks = pl::make_transport(base);
  const int other = 1 - rank_in();
  const std::int64_t piece = 48 << 10;
  std::vector<std::int64_t> sizes{0,         1,          piece - 1,      piece,      piece + 1,
                                  3 * piece, 64 * piece, 64 * piece + 1, 100 * piece};
  std::vector<std::vector<std::byte>> out, in;
  std::vector<int> requests;
  for (const std::int64_t bytes : sizes) {
    out.push_back(numbered(bytes, rank_in()));
    in.emplace_back(static_cast<std::size_t>(bytes));
  }
  // All of one tag, both ways at once: they keep their order.
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    requests.push_back(ranks->receive(other, pl::transport::first_tag, in[k].data(), sizes[k]));
    requests.push_back(ranks->send(other, pl::transport::first_tag, out[k].data(), sizes[k]));
  }
  bool all = true;
  for (const int request : requests) all = comes(*ranks, request, patiently) && all;
  for (std::size_t k = 0; k < sizes.size(); ++k) all = in[k] == numbered(sizes[k], other) && all;
  REQUIRE_ALL(MPI_COMM_WORLD, all);
}

TEST_CASE("messages between hosts arrive while their sender computes", "[.][lab_pipeline]") {
  REQUIRE(size_of() == 2);
  ep::comm::mpi_communicator base(ep::comm::detail::all_ranks(), pipeline::options(60));
  const std::unique_ptr<pl::transport> ranks = pl::make_transport(base);
  const int tag = pl::transport::first_tag;
  std::vector<std::byte> memory = numbered(5 * (48 << 10) + 100, rank_in());
  const auto bytes = static_cast<std::int64_t>(memory.size());
  for (int n = 0; n < 20; ++n)  // until the network's buffers have grown
    REQUIRE(
        comes(*ranks,
              rank_in() == 0 ? ranks->send(1, tag, memory.data(), bytes) : ranks->receive(0, tag, memory.data(), bytes),
              patiently));
  MPI_Barrier(MPI_COMM_WORLD);
  const auto compute = [](int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); };
  bool in_time = true;
  if (rank_in() == 0) {
    const int request = ranks->send(1, tag, memory.data(), bytes);
    compute(1500);
    in_time = comes(*ranks, request, patiently);
  } else {
    const int request = ranks->receive(0, tag, memory.data(), bytes);
    ranks->progress(false);
    compute(500);  // a hundred times what the bytes take
    for (int n = 0; n < 20; ++n) ranks->progress(false);
    in_time = ranks->finished(request) && memory == numbered(bytes, 0);
    if (!in_time) (void)comes(*ranks, request, patiently);
  }
  REQUIRE_ALL(MPI_COMM_WORLD, in_time);
}

TEST_CASE("schedules between hosts are the single-device step", "[.][lab_pipeline]") {
  // Rows of 32 bytes: messages of several pieces.
  const model layers(6000);
  const auto order = scheduled("zb_h1", 2, 1, 4, false);
  const auto plan = pl::make_execution_plan(order, cut(2), model::count, {{{1}, {}}, {{0}, {}}}, 4 * 6000);
  const batch data(4 * 6000);
  pipeline here(layers, plan);
  const outcome run = run_steps(here.pipe, data, 2);
  REQUIRE_ALL(here.ranks.base(), distance_from_loop(run, data) < 1e-10);
}

TEST_CASE("peaks over MPI are the simulator's") {
  const int groups = std::min(4, size_of());
  const model layers;
  const auto plan =
      pl::make_execution_plan(scheduled("zb_h1", groups, 1, 4, false), cut(groups), model::count, single(groups), 8);
  const batch data(8);
  pipeline here(layers, plan);
  const outcome run = run_steps(here.pipe, data, 1);
  const pl::simulation planned = pl::simulate(plan.order, pl::memory_costs(plan, layers));
  const double expected = rank_in() < groups ? planned.peak_activation_bytes[static_cast<std::size_t>(rank_in())] : 0;
  REQUIRE_ALL(here.ranks.base(), static_cast<double>(run.peak) == expected);
}

TEST_CASE("a failing layer is named on every rank") {
  const int groups = std::min(4, size_of());
  const model layers(12, [](int layer, pl::part kind) {
    if (layer == 9 && kind == pl::part::forward) throw std::runtime_error("the loss is no number");
  });
  const auto plan =
      pl::make_execution_plan(scheduled("1f1b", groups, 1, 4, false), cut(groups), model::count, single(groups), 8);
  const batch data(8);
  std::string text;
  {
    pipeline here(layers, plan, 20);
    try {
      (void)here.pipe.step(data.pointers());
    } catch (const std::runtime_error& error) { text = error.what(); }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK_THAT(text, Contains("rank " + std::to_string(groups - 1) + ", F of stage " + std::to_string(groups - 1)));
  REQUIRE_ALL(MPI_COMM_WORLD, text.find("layer 9 (distance): the loss is no number") != std::string::npos);
}

TEST_CASE("a rank that does nothing is named within the deadline") {
  if (size_of() < 2) return;
  const int groups = std::min(4, size_of());
  const model layers(12, [](int layer, pl::part kind) {
    if (layer == 9 && kind == pl::part::forward) std::this_thread::sleep_for(std::chrono::seconds(3));
  });
  const auto plan =
      pl::make_execution_plan(scheduled("1f1b", groups, 1, 2, false), cut(groups), model::count, single(groups), 4);
  const batch data(4);
  std::string text;
  double seconds = 0;
  {
    pipeline here(layers, plan, 0.5);
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    try {
      (void)here.pipe.step(data.pointers());
    } catch (const std::runtime_error& error) { text = error.what(); }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank_in() != groups - 1) {
    const std::string last = std::to_string(groups - 1);
    CHECK_THAT(text, Contains("rank " + last + " (stage " + last) && Contains("does not answer"));
    CHECK_THAT(text, Contains("it is in F of stage " + last) && Contains("micro-batch 0, layer 9 (distance)"));
    CHECK(seconds < 2.5);
  }
  REQUIRE_ALL(MPI_COMM_WORLD, !text.empty());
}

// The job ends: run by `dies` above; the launcher names the rank that died.
TEST_CASE("when a rank is killed in mid-pipeline, the others say where they were", "[.][killed_in_pipeline]") {
  REQUIRE(size_of() == 4);
  std::signal(SIGTERM, SIG_DFL);  // the test's own main has a handler
  int calls = 0;
  const model layers(12, [&](int layer, pl::part kind) {
    if (layer == 9 && kind == pl::part::forward && ++calls == 3) std::raise(SIGKILL);
  });
  ep::mesh_shape mesh;
  mesh.rank = 1;
  mesh.size[0] = size_of();
  mesh.name[0] = "rank";
  int argc = 0;
  char** argv = nullptr;
  ep::world world(argc, argv, mesh);
  const auto plan = pl::make_execution_plan(scheduled("1f1b", 4, 1, 4, false), cut(4), model::count, single(4), 8);
  pl::engine pipe(pl::make_transport(*world.ranks()), layers,
                  rank_in() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
  const batch data(8);
  (void)pipe.step(data.pointers());
}

TEST_CASE("ranks that wait for long leave their processors to others") {
  if (size_of() < 2) return;
  const int groups = std::min(4, size_of());
  const model layers(12, [](int layer, pl::part kind) {
    if (layer == 9 && kind == pl::part::forward) std::this_thread::sleep_for(std::chrono::milliseconds(150));
  });
  const auto plan =
      pl::make_execution_plan(scheduled("1f1b", groups, 1, 4, false), cut(groups), model::count, single(groups), 8);
  const batch data(8);
  pipeline here(layers, plan);
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t used_before = std::clock();
  (void)here.pipe.step(data.pointers());
  const double used = static_cast<double>(std::clock() - used_before) / CLOCKS_PER_SEC;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CHECK(seconds > 0.5);  // four times 0.15, less what a rank leaves the barrier later than others
  REQUIRE_ALL(MPI_COMM_WORLD, used < 0.3 * seconds);
}

TEST_CASE("a checkpoint of all ranks goes on on rank 0 alone") {
  const int groups = std::min(4, size_of());
  const model layers;
  const batch data(8);
  const auto file = ep::test::of_rank_0(
      (std::filesystem::temp_directory_path() / ("espalier_pipeline_" + std::to_string(::getpid()) + ".safetensors"))
          .string());
  {
    pipeline here(layers, pl::make_execution_plan(scheduled("1f1b", groups, 1, 4, false), cut(groups), model::count,
                                                  single(groups), 8));
    (void)run_steps(here.pipe, data, 2);
    pl::save(here.pipe, file);
  }
  pipeline alone(layers,
                 pl::make_execution_plan(scheduled("gpipe", 1, 1, 2, false), cut(1), model::count, single(1), 8));
  pl::load(alone.pipe, file);
  outcome run = run_steps(alone.pipe, data, 1);
  loop reference;
  (void)reference.step(data);
  (void)reference.step(data);
  const double third = reference.step(data);
  REQUIRE_ALL(alone.ranks.base(), std::abs(run.losses[0] - third) < 1e-10);
  double most = 0;
  for (const auto& [layer, values] : run.weights)
    for (std::size_t i = 0; i < values.size(); ++i)
      most = std::max(most, std::abs(values[i] - reference.weights[layer][i]));
  REQUIRE_ALL(alone.ranks.base(), most < 1e-10);
  if (rank_in() == 0) std::filesystem::remove(file);
}
