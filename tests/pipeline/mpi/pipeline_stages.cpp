// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// built: once

#include <support/counting_transport.hpp>
#include <support/staged_model.hpp>

#include <espalier/pipeline/stages/messages/transport_mpi.hpp>

#include <catch2/catch.hpp>
#include <support/mpi_ranks.hpp>
#include <support/mpi_require.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Stages on meshes of their own, executed by the ranks of MPI. Those that a plan does not need only look on.
namespace ep = espalier;
namespace pl = espalier::pipeline;

namespace {

using namespace staged;
using ep::test::rank_in;
using ep::test::size_of;

struct outcome {
  std::vector<double> losses;
  tensor_values tensors;  ///< what this rank has of them; elsewhere it is no number
  std::int64_t sent = 0;  ///< in the last step, by all ranks
};

outcome run(const pl::execution_plan& plan) {
  ep::comm::mpi_options chosen;
  chosen.deadline = std::chrono::seconds(60);
  ep::comm::mpi_communicator ranks(ep::comm::detail::all_ranks(), chosen);
  ep::test::moved_bytes moved;
  pl::engine engine(std::make_unique<ep::test::counting_transport>(
                        pl::make_transport(ranks), ep::test::tags_between_stages(plan, layers()), moved),
                    layers(), rank_in() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
  const pipeline_model::step_data data(engine.data_wanted(), plan.samples());
  outcome found;
  for (int step = 0; step < steps; ++step) {
    moved = {};
    found.losses.push_back(engine.step(data.pointers()).loss);
  }
  add_tensors(engine, found.tensors);
  MPI_Allreduce(&moved.sent, &found.sent, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  return found;
}

/// Returns the distance of the losses, and of this rank's parts of the tensors.
double distance(const outcome& mine, const outcome& wanted) {
  double most = largest_difference(mine.losses, wanted.losses);
  for (const auto& [name, values] : mine.tensors)
    for (std::size_t k = 0; k < values.size(); ++k)
      if (!std::isnan(values[k])) most = std::max(most, std::abs(values[k] - wanted.tensors.at(name)[k]));
  return most;
}

/// Rank 0's tensors, of a plan on that rank alone.
outcome on_one_device() {
  outcome found = run(planned("1f1b", {0}, {{alone, 1}}, samples, 3));
  for (const char* layer : {"embedding.table", "widening.weight", "widening.bias", "narrowing.weight", "narrowing.bias",
                            "head.gain", "head.bias"})
    for (const std::string& name : {std::string(layer), "gradient of " + std::string(layer)}) {
      std::vector<double>& values = found.tensors[name];
      auto count = static_cast<int>(values.size());
      MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
      values.resize(static_cast<std::size_t>(count));
      MPI_Bcast(values.data(), count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
  return found;
}

}  // namespace

TEST_CASE("stages on different meshes over MPI are the single-device step") {
  const outcome wanted = on_one_device();
  REQUIRE_ALL(MPI_COMM_WORLD, wanted.losses[steps - 1] < wanted.losses[0]);
  for (const stage_meshes& one : two_stages) {
    const pl::execution_plan plan = planned("1f1b", {0, 2}, one.groups, samples, 3);
    if (plan.groups.back().ranks.back() >= size_of()) continue;
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
      INFO(one.name << " " << schedule);
      const outcome found = run(planned(schedule, {0, 2}, one.groups, samples, 3));
      REQUIRE_ALL(MPI_COMM_WORLD, distance(found, wanted) < 1e-10);
    }
  }
  if (size_of() < 3) return;
  const outcome found = run(planned("zb_v", {0, 1, 2, 3}, {{on_model, 1}, {alone, 1}}, samples, 4));
  REQUIRE_ALL(MPI_COMM_WORLD, distance(found, wanted) < 1e-10);
}

TEST_CASE("between stages of different meshes moves over MPI what is missing") {
  if (size_of() < 4) return;
  // Of each row the widened value and its gradient, each once; and what skips it, whose copies on the model axis need
  // two gradients.
  const outcome found = run(planned("zb_h1", {0, 2}, {{on_model, 1}, {on_data, 1}}, samples, 3));
  constexpr std::int64_t rows = std::int64_t{samples} * context * sizeof(double);
  REQUIRE_ALL(MPI_COMM_WORLD, found.sent == rows * (2 * wide + 3 * width));
}
