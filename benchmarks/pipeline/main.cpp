// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Pipelines that run, a thread on each rank: what their steps take, beside other schedules, the simulator and PyTorch.
//
//     mpirun -n 2 bench_pipeline ROW

#include "../machine.hpp"
#include "models.hpp"

#include <espalier/comm.hpp>
#include <espalier/pipeline/planner.hpp>
#include <espalier/pipeline/schedules/by_name.hpp>
#include <espalier/pipeline/stages/measure/measure.hpp>
#include <espalier/pipeline/stages/messages/transport_mpi.hpp>
#include <espalier/pipeline/stages/plan/choose.hpp>
#include <espalier/pipeline/stages/plan/predict.hpp>
#include <espalier/tensor/run/execute/guard.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;
namespace pl = espalier::pipeline;

double largest(double mine) {
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

/// Returns the mean of a value that is measured on all ranks at the same time, as they work in a step.
double mean(double mine, int ranks) {
  double sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum / ranks;
}

pl::profile profile_of(const layers_to_train& work, int ranks) {
  pl::measure_options asked;
  asked.rows = work.micro_batch;
  asked.repetitions = 15;
  asked.fill = [&](const pl::data_facts& data, std::byte* rows, int count) {
    for (int s = 0; s < count; ++s) work.fill(data.name, 0, s, rows + s * data.row.bytes());
  };
  MPI_Barrier(MPI_COMM_WORLD);
  pl::profile made = pl::measure(*work.model, "layers", asked);
  for (pl::layer_profile& one : made.layers)
    for (double* value :
         {&one.forward_seconds, &one.input_gradient_seconds, &one.weight_gradient_seconds, &one.optimizer_seconds})
      *value = mean(*value, ranks);
  return made;
}

/// Measures a message between neighbours, from `a` to `b` and back: of a few bytes, and of 256 KiB.
pl::transfer_rate rate_between(int a, int b, int rank) {
  constexpr int large = 256 << 10;
  const auto one_way = [&](int bytes) {
    std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
    const auto there = [&](int from, int to) {
      if (rank == from) MPI_Send(memory.data(), bytes, MPI_BYTE, to, 1, MPI_COMM_WORLD);
      if (rank == to) MPI_Recv(memory.data(), bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    };
    return median_seconds(
               [&] {
                 there(a, b);
                 there(b, a);
               },
               {3, 11}) /
           2;
  };
  MPI_Barrier(MPI_COMM_WORLD);
  double found[2] = {one_way(64), one_way(large)};
  MPI_Bcast(&found[0], 2, MPI_DOUBLE, a, MPI_COMM_WORLD);
  return {large / std::max(found[1] - found[0], 1e-9), found[0]};
}

class bench {
 public:
  bench(world& here, layers_to_train work)
      : communicator_(*here.ranks()),
        ranks_(communicator_.size()),
        work_(std::move(work)),
        profile_(profile_of(work_, ranks_)) {
    machines_.devices_of.assign(1, ranks_);
    for (int k = 0; k + 1 < ranks_; ++k) hops_.push_back(rate_between(k, k + 1, communicator_.rank()));
    if (!hops_.empty()) machines_.inside = machines_.across = hops_.front();
  }

  [[nodiscard]] bool is_root() const { return communicator_.rank() == 0; }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] int micro_batches() const { return work_.samples / work_.micro_batch; }

  /// Returns the costs of a plan for the simulator; its hops as they were measured.
  [[nodiscard]] pl::costs costs_of(const pl::execution_plan& plan) const {
    pl::costs made = pl::predicted_costs(plan, *work_.model, profile_, machines_);
    for (std::size_t k = 0; k < made.hops.size() && k < hops_.size(); ++k) {
      made.hops[k].latency_seconds = hops_[k].latency_seconds;
      made.hops[k].bytes_per_second = hops_[k].bytes_per_second;
    }
    return made;
  }

  /// Returns a plan of as many equal stages as there are ranks, with a schedule of that name; `in_flight`:
  /// micro-batches whose activations a rank may hold, 0: any number.
  [[nodiscard]] pl::execution_plan equal_stages(std::string_view name, double in_flight = 0) const {
    std::vector<pl::replica_group> groups;
    for (int k = 0; k < ranks_; ++k) groups.push_back({{k}, {}});
    const auto made = [&](pl::schedule order) {
      return pl::make_execution_plan(std::move(order), work_.equal_split(ranks_), work_.model->layers(), groups,
                                     work_.samples);
    };
    pl::costs cost = costs_of(made(pl::gpipe(ranks_, micro_batches())));
    for (const pl::stage_costs& one : cost.stages)
      if (in_flight > 0) cost.memory_bytes.push_back(one.state_bytes + in_flight * one.activation_bytes);
    return made(pl::make_schedule(name, ranks_, 1, micro_batches(), cost));
  }
  /// The planner's choice; `pipelined`: among plans of several stages.
  [[nodiscard]] pl::execution_plan planned(bool pipelined) const {
    pl::planner_options wanted;
    wanted.global_batch = work_.samples;
    wanted.least_share = 1;
    wanted.alternatives = 32;
    pl::planning found = pl::make_plan(profile_, machines_, wanted);
    for (std::size_t k = 0; pipelined && found.best.stages.size() < 2 && k < found.others.size(); ++k)
      if (found.others[k].fits) found.best = found.others[k].candidate;
    return pl::executable_plan(found, *work_.model, ranks_, work_.samples);
  }

  /// An engine for rank 0's plan.
  [[nodiscard]] std::unique_ptr<pl::engine> engine_for(const pl::execution_plan& plan) {
    auto made = std::make_unique<pl::engine>(pl::make_transport(communicator_), *work_.model,
                                             is_root() ? std::optional(plan) : std::nullopt);
    work_.start(*made);
    return made;
  }

  /// One step, and the seconds of the rank that took longest.
  double step(pl::engine& engine) {
    std::vector<std::vector<std::byte>> rows;
    std::vector<const void*> data;
    for (const pl::data_facts& wanted : engine.data_wanted()) {
      const std::int64_t bytes = wanted.row.bytes();
      rows.emplace_back(static_cast<std::size_t>(bytes * work_.samples));
      for (int s = 0; s < work_.samples; ++s)
        work_.fill(wanted.name, engine.steps_done(), s, rows.back().data() + s * bytes);
      data.push_back(rows.back().data());
    }
    MPI_Barrier(MPI_COMM_WORLD);
    report_ = engine.step(data);
    return largest(report_.seconds);
  }
  [[nodiscard]] const pl::step_report& last() const { return report_; }

  struct timed {
    std::vector<double> seconds;  ///< medians, by engine
    std::string losses;           ///< of the first engine's first steps
  };
  /// Steps of several engines in turn.
  [[nodiscard]] timed time(const std::vector<pl::engine*>& engines, int measured = 20) {
    constexpr int warm_up = 3;
    timed result;
    std::vector<std::vector<double>> samples(engines.size());
    for (int n = 0; n < warm_up + measured; ++n)
      for (std::size_t k = 0; k < engines.size(); ++k) {
        const double taken = step(*engines[k]);
        if (n >= warm_up) samples[k].push_back(taken);
        if (k == 0 && n < 8) result.losses += (n > 0 ? ", " : "") + std::to_string(report_.loss);
      }
    for (std::vector<double>& one : samples) result.seconds.push_back(median(std::move(one)));
    return result;
  }

 private:
  comm::mpi_communicator& communicator_;
  int ranks_;
  layers_to_train work_;
  pl::profile profile_;
  pl::cluster machines_;
  std::vector<pl::transfer_rate> hops_;
  pl::step_report report_;
};

/// A step whose ranks hold two micro-batches each, and what a W needs besides until it is done, beside one that holds
/// all: memory, or time.
void against_gpipe(bench& all, const std::string& row, bool memory) {
  const auto ours = all.engine_for(all.equal_stages("auto", 2.1));
  const auto theirs = all.engine_for(all.equal_stages("gpipe"));
  if (!memory) {
    const bench::timed found = all.time({ours.get(), theirs.get()});
    if (!all.is_root()) return;
    benchmarks::report(row, "ours", found.seconds[0] * 1e3, "ms");
    benchmarks::report(row, "gpipe", found.seconds[1] * 1e3, "ms");
    return;
  }
  for (const auto& [engine, name] : {std::pair(ours.get(), "ours"), std::pair(theirs.get(), "gpipe")}) {
    all.step(*engine);
    const double most = largest(static_cast<double>(all.last().peak_activation_bytes));
    if (all.is_root()) benchmarks::report(row, name, most / (1 << 20), "MiB");
  }
}

/// Memory is not short: a rank may hold the micro-batches that a schedule without a bubble needs, twice as many as
/// there are stages.
void against_peer(bench& all, const std::string& row) {
  const auto engine = all.engine_for(all.equal_stages("auto", 2.1 * all.ranks()));
  const bench::timed found = all.time({engine.get()});
  if (all.is_root())
    benchmarks::report(row, "ours", found.seconds[0] * 1e3, "ms", "\"losses\": [" + found.losses + "]");
}

void against_simulator(bench& all, const std::string& row) {
  const pl::execution_plan plan = all.equal_stages("auto");
  const double predicted = pl::simulate(plan.order, all.costs_of(plan)).makespan;
  const auto engine = all.engine_for(plan);
  const bench::timed found = all.time({engine.get()});
  if (!all.is_root()) return;
  benchmarks::report(row, "ours", found.seconds[0] * 1e3, "ms");
  benchmarks::report(row, "simulator", predicted * 1e3, "ms");
}

void against_equal_split(bench& all, const std::string& row, bool pipelined) {
  const auto ours = all.engine_for(all.planned(pipelined));
  const auto naive = all.engine_for(all.equal_stages("1f1b"));
  if (all.is_root()) {
    for (const pl::layer_run& one : ours->plan().stages) std::printf("planned: layers %d-%d\n", one.first, one.last);
    std::printf("planned: %s, %d micro-batches\n", ours->plan().order.name.c_str(), ours->plan().order.micro_batches);
  }
  const bench::timed found = all.time({ours.get(), naive.get()});
  if (!all.is_root()) return;
  benchmarks::report(row, "ours", found.seconds[0] * 1e3, "ms");
  benchmarks::report(row, "equal split, 1f1b", found.seconds[1] * 1e3, "ms");
}

void overhead(bench& all, const std::string& row) {
  const auto engine = all.engine_for(all.equal_stages("auto"));
  std::vector<double> samples;
  for (int n = 0; n < 220; ++n) {
    all.step(*engine);
    const double most = largest(all.last().overhead_seconds());
    if (n >= 20) samples.push_back(most);
  }
  if (all.is_root()) benchmarks::report(row, "ours", median(std::move(samples)) * 1e6, "us");
}

int run(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "";
  mesh_shape mesh;
  mesh.rank = 1;
  mesh.size[0] = comm::under_mpi_launcher() ? comm::launcher_size() : 1;
  mesh.name[0] = "rank";
  world here(argc, argv, mesh);
  if (here.ranks() == nullptr || row.empty()) {
    std::fprintf(stderr, "usage: mpirun -n 2 bench_pipeline ROW\n");
    return EXIT_FAILURE;
  }
  set_threads(1);
  const auto is = [&](std::string_view end) { return row.ends_with(end); };
  bench all(here, is("equal_split") ? uneven_layers() : is("overhead") ? tiny_layers() : pipelined_gpt());
  if (is("memory_vs_gpipe")) {
    against_gpipe(all, row, true);
  } else if (is("vs_gpipe")) {
    against_gpipe(all, row, false);
  } else if (is("vs_torch")) {
    against_peer(all, row);
  } else if (is("vs_simulator")) {
    against_simulator(all, row);
  } else if (is("equal_split")) {
    against_equal_split(all, row, row.starts_with("stages"));
  } else if (is("overhead")) {
    overhead(all, row);
  } else {
    throw std::invalid_argument("bench_pipeline: there is no row " + row);
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return espalier::guarded_main(argc, argv, [&] { return run(argc, argv); });
}
