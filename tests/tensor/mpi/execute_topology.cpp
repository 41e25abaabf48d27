// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// timeout: 300
// ranks: 2 4 8

// The executor's collectives through generated ones: the same results as without.

#include <espalier/comm/placement.hpp>
#include <espalier/comm/run/engine.hpp>
#include <espalier/comm/topology/topology.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>
#include <espalier/tensor/run/execute/placement.hpp>
#include <espalier/tensor/run/execute/traffic.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <boost/mpi/communicator.hpp>
#include <catch2/catch.hpp>
#include <support/mpi_programs.hpp>
#include <support/mpi_require.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>
#include <tensor/unit/reshard_layouts.hpp>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ep = espalier;
namespace comm = espalier::comm;

namespace {

/// Hosts of two ranks: links of 10 inside, of 4 between them, through a card of 5 each way that both ranks share.
comm::topology cluster(int ranks) {
  comm::topology machine;
  for (int r = 0; r < ranks; ++r) machine.vertices.push_back({std::to_string(r), false, r / 2});
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b)
      if (a != b) machine.links.push_back({a, b, a / 2 == b / 2 ? 10.0 : 4.0, 1e-6});
  for (int host = 0; 2 * host < ranks && ranks > 2; ++host) {
    comm::share(machine, "out" + std::to_string(host), 5, {2 * host, 2 * host + 1}, comm::side::out);
    comm::share(machine, "in" + std::to_string(host), 5, {2 * host, 2 * host + 1}, comm::side::in);
  }
  return machine;
}

/// Numbers whose sums are exact.
std::vector<double> numbers(std::int64_t count, int device) {
  std::vector<double> made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i) {
    made[i] = static_cast<double>((i * 7 + static_cast<std::size_t>(device) * 31) % 1009) - 300;
  }
  return made;
}

/// Which kinds the engine has served.
struct tally {
  std::array<int, 8> served{};
  int& of(ep::collective kind) { return served[static_cast<std::size_t>(kind)]; }
};

/// Carries out a step on this device, by the communicator and by the engine.
void compare(comm::mpi_communicator& plain, comm::network_engine& engine, const ep::mesh_shape& mesh,
             const ep::extents& shape, const ep::sharding& from, const ep::reshard_step& step, tally& seen) {
  constexpr int times = 4;  // so that the tuner tries several ways
  const int device = plain.rank();
  const std::vector<double> source = numbers(local_shape(mesh, shape, from).elements(), device);
  const auto target = static_cast<std::size_t>(local_shape(mesh, shape, step.after).elements());
  std::vector<double> right(target, -1);
  if (step.kind == ep::collective::all_reduce) {
    const ep::axis_list axes = ep::list_of(step.axes);
    comm::transfer_group group;
    group.self = mesh.position(device, axes);
    for (int k = 0; k < static_cast<int>(mesh.parts(axes)); ++k) group.members.push_back(mesh.member(device, axes, k));
    plain.prepare(group);
    engine.prepare(group);
    const auto count = static_cast<std::int64_t>(source.size());
    plain.all_reduce(group, source.data(), right.data(), count,
                     ep::comm::reducer_of(ep::dtype::f64, ep::reduction::sum));
    for (int n = 0; n < times && count > 0; ++n) {
      std::vector<double> made(target, -1);
      const auto sent = engine.all_reduce(group, source.data(), made.data(), count,
                                          ep::comm::reducer_of(ep::dtype::f64, ep::reduction::sum), nullptr);
      REQUIRE_ALL(MPI_COMM_WORLD, sent.has_value());
      CHECK(made == right);
      ++seen.of(step.kind);
    }
    return;
  }
  const bool reduces = step.kind == ep::collective::reduce_scatter;
  const comm::transfer moves = ep::detail::make_transfer(mesh, shape, ep::dtype::f64, from, step.after, step.axes,
                                                         step.kind, device, static_cast<int>(step.kind));
  plain.prepare(moves);
  engine.prepare(moves);
  if (reduces) {
    plain.reduce_exchange(moves, source.data(), right.data(), ep::comm::reducer_of(moves.type, ep::reduction::sum));
  } else {
    plain.exchange(moves, source.data(), right.data());
  }
  for (int n = 0; n < times; ++n) {
    std::vector<double> made(target, -1);
    const auto sent = reduces ? engine.reduce_exchange(moves, source.data(), made.data(),
                                                       ep::comm::reducer_of(moves.type, ep::reduction::sum), nullptr)
                              : engine.exchange(moves, source.data(), made.data(), nullptr);
    if (!sent) break;  // a permutation, or nothing to do
    CHECK(made == right);
    CHECK(*sent >= 0);
    ++seen.of(step.kind);
  }
}

void compare_all(comm::collectives_options options, unsigned seed) {
  const boost::mpi::communicator everyone;
  comm::mpi_communicator plain(everyone);
  comm::network_engine engine(everyone, comm::network_of(cluster(everyone.size())), options);
  std::vector<ep::mesh_shape> meshes;
  if (everyone.size() == 2) meshes = {reshard_checks::mesh_of({2})};
  if (everyone.size() == 4) meshes = {reshard_checks::mesh_of({4}), reshard_checks::mesh_of({2, 2})};
  if (everyone.size() == 8) meshes = {reshard_checks::mesh_of({4, 2}), reshard_checks::mesh_of({2, 2, 2})};
  std::mt19937 random(seed);
  tally seen;
  for (const ep::mesh_shape& mesh : meshes) {
    for (const ep::extents& shape : {reshard_checks::shape_of({8, 16}), reshard_checks::shape_of({5, 7}),
                                     reshard_checks::shape_of({3, 64, 9}), reshard_checks::shape_of({1, 3})}) {
      const std::vector<ep::sharding> layouts = reshard_checks::all_layouts(mesh, shape.rank);
      for (int n = 0; n < 12; ++n) {
        ep::sharding from = layouts[random() % layouts.size()];
        const ep::sharding to = layouts[random() % layouts.size()];
        if (!reshard_checks::reachable(from, to)) continue;
        const ep::reshard_plan plan = ep::plan_reshard(mesh, shape, ep::dtype::f64, from, to);
        for (int i = 0; i < plan.count; ++i) {
          const ep::reshard_step& step = plan.step[i];
          INFO("seed " << seed << ", step " << name_of(step.kind) << " from " << reshard_checks::text_of(mesh, from)
                       << " to " << reshard_checks::text_of(mesh, step.after) << ", " << shape[0] << " x " << shape[1]);
          if (step.kind != ep::collective::local_slice) compare(plain, engine, mesh, shape, from, step, seen);
          from = step.after;
        }
      }
    }
  }
  CHECK((everyone.size() == 2 || seen.of(ep::collective::exchange) > 0));
  CHECK(seen.of(ep::collective::all_gather) > 0);
  CHECK(seen.of(ep::collective::all_to_all) > 0);
  CHECK(seen.of(ep::collective::reduce_scatter) > 0);
}

/// `cluster` becomes the topology of a world.
struct on_cluster {
  template <class World> void operator()(World& world) const {
    comm::use_topology(*world.ranks(), cluster(world.mesh_value().devices()));
  }
};

/// Places the world as if hosts of two ranks had been given every other rank, and almost all went along the last axis.
template <class Program> void agrees_when_placed() {
  int argc = 0;
  char** argv = nullptr;
  ep::world world(argc, argv, typename Program::mesh{});
  const int ranks = world.mesh_value().devices();
  const auto host_of = [&](int rank) { return rank % (ranks / 2); };
  comm::topology machine = cluster(ranks);
  const auto dealt = [&](int vertex) { return vertex % 2 * (ranks / 2) + vertex / 2; };
  for (comm::topology::link& link : machine.links) {
    link.from = dealt(link.from);
    link.to = dealt(link.to);
  }
  for (int r = 0; r < ranks; ++r) machine.vertices[static_cast<std::size_t>(r)].host = host_of(r);
  comm::mesh_traffic traffic = ep::traffic_of<Program>();
  traffic.items.push_back({comm::collective::all_reduce, 2U, 1, 1e9});
  const comm::placement chosen = ep::place_on(world, machine, traffic);
  REQUIRE_ALL(MPI_COMM_WORLD, chosen.rank_of.front() == 0);
  if (ranks > 2) REQUIRE_ALL(MPI_COMM_WORLD, chosen.after < 0.6 * chosen.before);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  REQUIRE_ALL(MPI_COMM_WORLD, chosen.rank_of[static_cast<std::size_t>(world.device(0))] == rank);
  REQUIRE_ALL(MPI_COMM_WORLD, world.is_root() == (rank == 0));
  REQUIRE_ALL(MPI_COMM_WORLD, world.ranks()->rank() == world.device(0));
  // Neighbours along the last axis are on one host.
  for (std::size_t d = 0; d < chosen.rank_of.size(); d += 2) {
    REQUIRE_ALL(MPI_COMM_WORLD, host_of(chosen.rank_of[d]) == host_of(chosen.rank_of[d + 1]));
  }
  const testing::comparison seen = testing::run_and_compare<Program>(world, 4);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.finite);
  REQUIRE_ALL(MPI_COMM_WORLD, seen.worst < 1e-11);
}

template <class Mesh, class Data, class Model>
using training = testing::programs::training_program<Mesh, Data, Model, false>;

}  // namespace

TEST_CASE("transfers through generated collectives end as without them", "[execute]") { compare_all({}, 1); }

TEST_CASE("transfers along trees and routes end as without them", "[execute]") {
  comm::collectives_options options;
  options.forced = comm::choice{comm::method::trees, 0};
  compare_all(options, 2);
}

TEST_CASE("transfers in few rounds end as without them", "[execute]") {
  comm::collectives_options options;
  options.forced = comm::choice{comm::method::low_latency, 0};
  compare_all(options, 3);
}

TEST_CASE("programs on a topology compute what the interpreter does", "[execute]") {
  testing::require_agreement_on_all_ranks<training, 2>(4, on_cluster{});
  testing::require_agreement_on_all_ranks<testing::programs::attention_program, 2>(4, on_cluster{});
  testing::require_agreement_on_all_ranks<testing::programs::movers_program, 2>(4, on_cluster{});
}

TEST_CASE("a world placed on other ranks computes what the interpreter does", "[execute]") {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 2) agrees_when_placed<typename testing::on<1, 2>::template program<training>>();
  if (ranks == 4) agrees_when_placed<typename testing::on<2, 2>::template program<training>>();
  if (ranks == 8) agrees_when_placed<typename testing::on<4, 2>::template program<training>>();
}

TEST_CASE("a transfer that was copied after it was prepared is refused", "[execute]") {
  const boost::mpi::communicator everyone;
  comm::network_engine engine(everyone, comm::network_of(cluster(everyone.size())));
  comm::transfer moves;
  moves.type = ep::dtype::f64;
  moves.self = everyone.rank();
  for (int k = 0; k < everyone.size(); ++k) {
    moves.members.push_back(k);
    moves.outgoing.push_back(comm::contiguous_block(3));
    moves.incoming.push_back(comm::contiguous_block(3, 0, 3 * k));
  }
  engine.prepare(moves);
  const comm::transfer copy = moves;
  const std::vector<double> source = numbers(3, everyone.rank());
  std::vector<double> target(static_cast<std::size_t>(3 * everyone.size()), -1);
  CHECK_THROWS_WITH(engine.exchange(copy, source.data(), target.data(), nullptr),
                    Catch::Contains("had not been prepared"));
  REQUIRE_ALL(MPI_COMM_WORLD, engine.exchange(moves, source.data(), target.data(), nullptr).has_value());
  CHECK(target.back() == numbers(3, everyone.size() - 1).back());
}

TEST_CASE("a permutation is left to the communicator", "[execute]") {
  const boost::mpi::communicator everyone;
  comm::network_engine engine(everyone, comm::network_of(cluster(everyone.size())));
  comm::transfer moves;
  moves.type = ep::dtype::f64;
  moves.self = everyone.rank();
  const int next = (moves.self + 1) % everyone.size();
  const int last = (moves.self + everyone.size() - 1) % everyone.size();
  for (int k = 0; k < everyone.size(); ++k) {
    moves.members.push_back(k);
    moves.outgoing.push_back(k == next ? comm::contiguous_block(3) : comm::empty_block());
    moves.incoming.push_back(k == last ? comm::contiguous_block(3) : comm::empty_block());
  }
  engine.prepare(moves);
  const std::vector<double> source = numbers(3, everyone.rank());
  std::vector<double> target(3, -1);
  CHECK(!engine.exchange(moves, source.data(), target.data(), nullptr).has_value());
}

TEST_CASE("ranks that prepare different groups are told so", "[execute]") {
  const boost::mpi::communicator everyone;
  comm::network_engine engine(everyone, comm::network_of(cluster(everyone.size())));
  comm::transfer_group group;
  // Rank 0 leaves the last one out.
  for (int k = 0; k < everyone.size() - (everyone.rank() == 0 ? 1 : 0); ++k) group.members.push_back(k);
  group.self = everyone.rank();
  CHECK_THROWS_WITH(engine.prepare(group), Catch::Contains("different groups"));
}
