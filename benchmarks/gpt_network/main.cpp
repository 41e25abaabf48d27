// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

// A data-parallel training step's communication on the network it finds: all-reduces made for it beside the MPI
// library's own. The same process, program and buffers do both, step by step in turn.
//
//     mpirun -n 4 bench_gpt_network ROW

#include "../machine.hpp"
#include "step.hpp"

#include <espalier/comm.hpp>
#include <espalier/tensor/run/execute/guard.hpp>
#include <espalier/tensor/run/execute/world.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace espalier;
using namespace espalier::benchmarks;

/// Carries out collectives by one of two engines, and notes how long each was in them.
class switched_engine : public comm::collective_engine {
 public:
  using sent = std::optional<std::int64_t>;
  using engine = std::unique_ptr<comm::collective_engine>;

  switched_engine(engine ours, engine theirs) : engines_{std::move(ours), std::move(theirs)} {}

  void prepare(const comm::transfer_group& group) override {
    for (const auto& one : engines_) one->prepare(group);
  }
  void prepare(const comm::transfer& moves) override {
    for (const auto& one : engines_) one->prepare(moves);
  }
  sent all_reduce(const comm::transfer_group& group, const void* source, void* target, std::int64_t count,
                  const comm::reducer& by, const comm::context* where) override {
    return noted(count * size_of(by.type),
                 [&](auto& one) { return one.all_reduce(group, source, target, count, by, where); });
  }
  sent exchange(const comm::transfer& moves, const void* source, void* target, const comm::context* where) override {
    return noted(0, [&](auto& one) { return one.exchange(moves, source, target, where); });
  }
  sent reduce_exchange(const comm::transfer& moves, const void* source, void* target, const comm::reducer& by,
                       const comm::context* where) override {
    return noted(0, [&](auto& one) { return one.reduce_exchange(moves, source, target, by, where); });
  }

  void use_library(bool yes) {
    library_ = yes;
    seconds_ = 0;
    calls_ = 0;
    bytes_ = 0;
  }
  [[nodiscard]] double spent() const { return seconds_; }
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  template <class Call> sent noted(std::int64_t bytes, const Call& call) {
    sent result;
    seconds_ += seconds([&] { result = call(*engines_[library_ ? 1 : 0]); });
    // Collectives that no engine serves are done after this, and would not be in the time.
    if (!result) throw comm::comm_error("the step has a collective that the engine does not serve");
    ++calls_;
    bytes_ += bytes;
    return result;
  }

  std::array<engine, 2> engines_;
  bool library_ = false;
  double seconds_ = 0;
  int calls_ = 0;
  std::int64_t bytes_ = 0;
};

/// Returns the time of the rank that spent most.
double slowest(double mine) {
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

int run(int argc, char** argv) {
  const std::string row = argc > 1 ? argv[1] : "gpt_step_communication";
  world here(argc, argv, four_replicas_mesh());
  if (here.ranks() == nullptr) {
    std::fprintf(stderr, "usage: mpirun -n 4 bench_gpt_network ROW\n");
    return EXIT_FAILURE;
  }
  comm::mpi_communicator& ranks = *here.ranks();
  const comm::network net = comm::network_of(comm::probe(ranks.base()));
  comm::collectives_options library;
  library.forced = comm::choice{comm::method::library, 0};
  auto both = std::make_unique<switched_engine>(std::make_unique<comm::network_engine>(ranks.base(), net),
                                                std::make_unique<comm::network_engine>(ranks.base(), net, library));
  switched_engine& engine = *both;
  ranks.use(std::move(both));
  const auto step = make_four_replicas(here);

  constexpr int warm_up = 48;  // in which ours tries ways and chunk sizes
  constexpr int measured = 11;
  std::vector<double> spent[2];
  std::vector<double> whole[2];
  for (int n = 0; n < warm_up + 2 * measured; ++n) {
    const bool theirs = n >= warm_up && n % 2 == 1;
    MPI_Barrier(MPI_COMM_WORLD);
    engine.use_library(theirs);
    const double taken = slowest(seconds([&] { step->run(n); }));
    const double inside = slowest(engine.spent());
    if (n < warm_up) continue;
    spent[theirs ? 1 : 0].push_back(inside);
    whole[theirs ? 1 : 0].push_back(taken);
  }
  const double loss = step->loss();
  if (!here.is_root()) return EXIT_SUCCESS;
  std::printf(
      "%s: %d all-reduces of %.2f MB together in a step; the whole step %.0f ms, %.0f ms with the library's; loss "
      "%.4f\n",
      row.c_str(), engine.calls(), static_cast<double>(engine.bytes()) / 1e6, median(whole[0]) * 1e3,
      median(whole[1]) * 1e3, loss);
  report(row, "ours", median(spent[0]) * 1e3, "ms");
  report(row, "Open MPI", median(spent[1]) * 1e3, "ms");
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return espalier::guarded_main(argc, argv, [&] { return run(argc, argv); });
}
