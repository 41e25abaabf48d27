// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// Trains a model as a pipeline of stages that is planned from what its layers were measured to take on this machine:
// `pipeline` on threads of this process, `mpirun -n 4 pipeline` on four ranks; `pipeline --help` has the options.
#include "options.hpp"
#include "task.hpp"

#include <espalier/base/table.hpp>
#include <espalier/pipeline.hpp>
#include <espalier/report.hpp>
#include <espalier/runner.hpp>
#include <espalier/stages.hpp>

#if defined(ESPALIER_USE_MPI)
#include <espalier/comm/probe/probe.hpp>
#include <espalier/comm/topology/paths.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pipeline_example {
namespace {

std::string project_root() {
  return std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().string();
}

/// Measures the layers on `rows` samples of the first step.
pl::profile measured_profile(const task& work, int rows, int mesh) {
  pl::measure_options asked;
  asked.rows = rows;
  asked.mesh = mesh;
  asked.repetitions = 15;
  asked.fill = [&](const pl::data_facts& data, std::byte* to, int count) {
    for (int s = 0; s < count; ++s) work.fill(data.name, 0, s, to + s * data.row.bytes());
  };
  return pl::measure(*work.model, work.title, asked);
}

struct chosen_plan {
  pl::execution_plan plan;
  pl::costs costs;  ///< what the simulator is told of it
};

/// "zb_v, 16 micro-batches; layers 0-2 on rank 0 | 3-5 on rank 1"
std::string text_of(const pl::execution_plan& plan) {
  std::string text = plan.order.name + ", " + std::to_string(plan.order.micro_batches) + " micro-batch" +
                     (plan.order.micro_batches == 1 ? "" : "es") + "; layers ";
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const pl::replica_group& group = plan.groups[static_cast<std::size_t>(plan.group_of(static_cast<int>(s)))];
    text += (s == 0 ? "" : " | ") + std::to_string(plan.stages[s].first) + "-" +
            std::to_string(plan.stages[s].last - 1) + " on " + ep::comm::detail::list_ranks(group.ranks);
    if (group.devices > 1) text += ", which share each layer by " + std::to_string(group.devices);
  }
  return text;
}

/// The rate of copies between ranks that share memory.
constexpr pl::transfer_rate within_a_host{4e9, 2e-5};

/// Returns the machine that connects the ranks.
pl::cluster machine_of(ep::comm::in_process_communicator& ranks) {
  pl::cluster machine;
  machine.devices_of = {ranks.size()};
  machine.inside = machine.across = within_a_host;
  return machine;
}
#if defined(ESPALIER_USE_MPI)
/// All ranks call it, and find the same.
pl::cluster machine_of(ep::comm::mpi_communicator& ranks) {
  return pl::cluster_of(ep::comm::network_of(ep::comm::probe(ranks.base())), within_a_host);
}
#endif

chosen_plan make_chosen_plan(const task& work, const options& asked, const pl::cluster& machine, std::ostream& out) {
  const int mesh = asked.share - 1;
  const pl::profile measured = measured_profile(work, 1, mesh);
  const int ranks = machine.devices() * asked.share;
  pl::planner_options wanted;
  wanted.global_batch = asked.batch;
  const pl::planning found = pl::make_plan(measured, machine, wanted);
  espalier::report::table layers({{"layer"}, {"F"}, {"B"}, {"W"}, {"keeps"}, {"parameters"}});
  for (const pl::layer_profile& one : measured.layers) {
    using espalier::report::format_duration;
    layers.row(one.name, format_duration(one.forward_seconds), format_duration(one.input_gradient_seconds),
               format_duration(one.weight_gradient_seconds),
               espalier::report::format_bytes(static_cast<std::int64_t>(one.activation_bytes)),
               espalier::report::format_bytes(static_cast<std::int64_t>(one.parameter_bytes)));
  }
  out << "measured, for one sample:\n";
  layers.print(out, "  ");
  out << '\n';
  pl::print(out, measured, wanted, found);
  chosen_plan chosen{pl::executable_plan(found, *work.model, ranks, asked.batch, mesh), {}};
  std::vector<pl::profile> profiles(static_cast<std::size_t>(work.model->meshes()), measured);
  chosen.costs = pl::predicted_costs(chosen.plan, *work.model, profiles, machine);
  out << "\nexecuted, as layers are compiled for some numbers of samples: " << text_of(chosen.plan) << '\n';
  return chosen;
}

/// Each stage on the mesh that it is fastest with.
chosen_plan make_plan_on_meshes(const task& work, const options& asked, const pl::cluster& machine, std::ostream& out) {
  std::vector<pl::profile> profiles;
  for (int mesh = 0; mesh < work.model->meshes(); ++mesh) profiles.push_back(measured_profile(work, 1, mesh));
  pl::planner_options wanted;
  wanted.global_batch = asked.batch;
  pl::predicted_plan found = pl::plan_on_meshes(*work.model, profiles, machine, wanted);
  out << "executed, meshes as is best for each stage: " << text_of(found.plan) << '\n';
  return {std::move(found.plan), std::move(found.predicted)};
}

/// Stages by hand, each on a mesh of its own, with about as many layers.
chosen_plan make_plan_by_hand(const task& work, const options& asked, const pl::cluster& machine, std::ostream& out) {
  const int stages = static_cast<int>(asked.stages.size());
  std::vector<pl::profile> profiles;
  for (int mesh = 0; mesh < work.model->meshes(); ++mesh) profiles.push_back(measured_profile(work, 1, mesh));
  std::vector<pl::replica_group> groups;
  std::vector<int> first_layers;
  int rank = 0;
  for (int s = 0; s < stages; ++s) {
    pl::replica_group& group = groups.emplace_back();
    group.devices = asked.stages[static_cast<std::size_t>(s)];
    group.mesh = group.devices - 1;
    for (int k = 0; k < group.devices; ++k) group.ranks.push_back(rank++);
    first_layers.push_back(s * work.model->layers() / stages);
  }
  // Layers are compiled for micro-batches of up to four samples.
  const int micro_batches = std::max(1, asked.batch / 4);
  chosen_plan chosen{
      pl::make_execution_plan(pl::make_schedule("1f1b", stages, 1, micro_batches, pl::uniform_costs(stages)),
                              first_layers, work.model->layers(), std::move(groups), asked.batch),
      {}};
  // The planner's machines count replicas, where all are alike.
  const bool are_alike = std::count(asked.stages.begin(), asked.stages.end(), asked.stages.front()) == stages;
  chosen.costs = pl::predicted_costs(chosen.plan, *work.model, profiles,
                                     are_alike ? pl::cluster_of_replicas(machine, asked.stages.front()) : machine);
  out << "executed, stages by hand: " << text_of(chosen.plan) << '\n';
  return chosen;
}

/// All samples of a step: each rank makes them itself.
class batch_data {
 public:
  batch_data(const task& work, const std::vector<pl::data_facts>& wanted, int samples)
      : work_(work), wanted_(wanted), samples_(samples) {
    for (const pl::data_facts& data : wanted) {
      rows_.emplace_back(static_cast<std::size_t>(data.row.bytes() * samples));
      begins_.push_back(rows_.back().data());
    }
  }
  const std::vector<const void*>& of_step(std::int64_t step) {
    for (std::size_t d = 0; d < wanted_.size(); ++d)
      for (int s = 0; s < samples_; ++s)
        work_.fill(wanted_[d].name, step, s, rows_[d].data() + s * wanted_[d].row.bytes());
    return begins_;
  }

 private:
  const task& work_;
  std::vector<pl::data_facts> wanted_;
  int samples_;
  std::vector<std::vector<std::byte>> rows_;
  std::vector<const void*> begins_;
};

void draw(const std::string& path, const chosen_plan& chosen, const pl::measured_run& run) {
  const pl::simulation planned = pl::simulate(chosen.plan.order, chosen.costs);
  pl::chart first = pl::chart_of(chosen.plan.order, planned);
  first.title = chosen.plan.order.name + ", planned: makespan " + pl::detail::short_number(planned.makespan) + " s";
  std::ofstream file(path);
  file << pl::svg({first, pl::chart_of(chosen.plan, run)}) << '\n';
  if (!file) throw std::runtime_error("the picture cannot be written to " + path + ": check the path");
}

template <class Communicator>
void train(Communicator& ranks, const task& work, const options& asked, std::ostream& quiet) {
  const bool is_root = ranks.rank() == 0;
  std::ostream& out = is_root ? std::cout : quiet;
  std::optional<chosen_plan> chosen;
  const int share = std::max(1, asked.share);
  if (ranks.size() % share != 0)
    throw std::invalid_argument(std::to_string(ranks.size()) + " ranks cannot share each layer by " +
                                std::to_string(share) + ": start a multiple of that");
  const pl::cluster machine = pl::cluster_of_replicas(machine_of(ranks), share);
  if (is_root)
    chosen = !asked.stages.empty() ? make_plan_by_hand(work, asked, machine, out)
             : asked.share == 0    ? make_plan_on_meshes(work, asked, machine, out)
                                   : make_chosen_plan(work, asked, machine, out);
  pl::engine engine(pl::make_transport(ranks), *work.model,
                    chosen ? std::optional<pl::execution_plan>(chosen->plan) : std::nullopt);
  if (!asked.resume.empty()) {
    pl::load(engine, asked.resume);
    out << "resumed after step " << engine.steps_done() << " of " << asked.resume << '\n';
  }
  out << "\nwithout learning the loss is " << espalier::report::format_fixed(work.chance, 3) << '\n';
  batch_data data(work, engine.data_wanted(), asked.batch);
  pl::step_report report;
  double quickest = 1e300;
  const std::int64_t first = engine.steps_done();
  for (std::int64_t step = first; step < first + asked.steps; ++step) {
    report = engine.step(data.of_step(step));
    quickest = std::min(quickest, report.seconds);
    const std::int64_t done = step - first + 1;
    if (done == 1 || done == asked.steps || done % std::max<std::int64_t>(1, asked.steps / 10) == 0)
      out << "step " << step + 1 << "  loss " << espalier::report::format_fixed(report.loss, 4) << std::endl;
  }
  const pl::measured_run run = engine.measured();
  // Cut as the batches are: for these numbers of samples the layers are compiled.
  pl::engine& judge = engine.evaluation(asked.batch, engine.plan().order.micro_batches);
  out << "on samples that it has not learned from the loss is "
      << espalier::report::format_fixed(judge.step(data.of_step(held_out)).loss, 4) << '\n';
  if (is_root) {
    const pl::simulation planned = pl::simulate(chosen->plan.order, chosen->costs);
    const double most = *std::max_element(planned.peak_activation_bytes.begin(), planned.peak_activation_bytes.end());
    using espalier::report::format_bytes;
    using espalier::report::format_duration;
    out << "\na step takes " << format_duration(quickest) << ", planned " << format_duration(planned.makespan)
        << "; this rank held " << format_bytes(report.peak_activation_bytes) << " of activations, planned "
        << format_bytes(static_cast<std::int64_t>(planned.peak_activation_bytes.front()))
        << " (most: " << format_bytes(static_cast<std::int64_t>(most)) << ")\n";
    if (!asked.svg.empty()) {
      draw(asked.svg, *chosen, run);
      out << "wrote " << asked.svg << '\n';
    }
  }
  if (!asked.checkpoint.empty()) {
    pl::save(engine, asked.checkpoint);
    out << "wrote " << asked.checkpoint << '\n';
  }
}

int run(int argc, char** argv) {
  options asked;
  if (const std::optional<int> over = parse(argc, argv, asked)) return *over;
  ep::mesh_shape mesh;
  mesh.rank = 1;
  mesh.size[0] = ep::comm::under_mpi_launcher() ? ep::comm::launcher_size() : asked.ranks;
  mesh.name[0] = "rank";
  ep::world where(argc, argv, mesh);
  pl::training_options training;
  training.seed = asked.seed;
  training.rate = [rate = asked.rate](std::int64_t step) {
    return step < 10 ? rate * static_cast<double>(step) / 10 : rate;
  };
  const task work = asked.model == "gpt" ? gpt_task(training, asked.root.empty() ? project_root() : asked.root)
                                         : reversal_task(training);
  if (where.is_root()) std::cout << work.title << ", on " << mesh.devices() << " devices\n";
  where.on_devices([&](int, espalier::comm::any_communicator& communicator) {
    std::ostream quiet(nullptr);
    if (auto* const threads = communicator.as<espalier::comm::in_process_communicator>()) {
      train(*threads, work, asked, quiet);
    }
#if defined(ESPALIER_USE_MPI)
    if (auto* const ranks = communicator.as<espalier::comm::mpi_communicator>()) train(*ranks, work, asked, quiet);
#endif
  });
  return 0;
}

}  // namespace
}  // namespace pipeline_example

int main(int argc, char** argv) {
  return espalier::guarded_main(argc, argv, [&] { return pipeline_example::run(argc, argv); });
}
