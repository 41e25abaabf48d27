// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/comm/in_process.hpp>
#include <espalier/pipeline/cluster.hpp>
#include <espalier/pipeline/stages/messages/peer_communicator.hpp>
#include <espalier/pipeline/stages/messages/peer_messages.hpp>
#include <espalier/pipeline/stages/messages/transport_in_process.hpp>
#include <espalier/testing/collapsed_block.hpp>
#include <support/pipeline_steps.hpp>
#include <support/replica_layers.hpp>

#include <catch2/catch.hpp>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

/// The messages between a replica's devices: the results are those of the collectives of threads, which share no code
/// with it; and plans whose replicas are several ranks.
namespace ep = espalier;
namespace pl = espalier::pipeline;
namespace ec = espalier::comm;

namespace {

using Catch::Contains;

/// Calls body(peers, threads) on each device of a replica.
template <class Body> void on_devices(int devices, const Body& body) {
  std::vector<int> members(static_cast<std::size_t>(devices));
  std::iota(members.begin(), members.end(), 0);
  ec::in_process_group group(devices, std::chrono::duration<double>(20));
  ec::run_devices(group, [&](ec::in_process_communicator& threads) {
    const std::unique_ptr<pl::transport> ranks = pl::make_transport(threads);
    pl::detail::peer_messages link(members, *ranks, [&](pl::detail::peer_messages& messages) {
      pl::detail::wait_until(
          *ranks, [&] { return messages.is_done(); }, [] {}, [] { throw pl::peer_error("nothing has come"); });
    });
    pl::detail::peer_communicator peers(link);
    body(peers, threads);
    threads.barrier();
  });
}

/// How wide the columns of a member are; of every third there are none.
std::int64_t width(int member) { return member % 3 == 2 ? 0 : 3 * member + 2; }
std::int64_t column(int member) {
  std::int64_t first = 0;
  for (int k = 0; k < member; ++k) first += width(k);
  return first;
}

/// Each member has `rows` rows of all columns, and gets all members' rows of its own: strided on one side, or on both.
ec::transfer columns_to_members(int members, int self, std::int64_t rows, bool strided_target) {
  ec::transfer moves;
  moves.self = self;
  moves.channel = 1;
  for (int k = 0; k < members; ++k) moves.members.push_back(k);
  const std::int64_t all = column(members);
  for (int k = 0; k < members; ++k) {
    const auto box = [&](std::int64_t first, std::int64_t count, std::int64_t target, std::int64_t stride) {
      ec::block made;
      made.extent[6] = rows;
      made.extent[7] = count;
      made.source_stride[6] = all;
      made.source_stride[7] = made.target_stride[7] = 1;
      made.target_stride[6] = stride;
      made.source_offset = first;
      made.target_offset = target;
      return ec::collapsed(made);
    };
    moves.outgoing.push_back(box(column(k), width(k), 0, width(k)));
    const std::int64_t own = width(self);
    moves.incoming.push_back(strided_target ? box(column(self), own, k * own, members * own)
                                            : box(column(self), own, k * rows * own, own));
  }
  return moves;
}

template <class T> std::vector<T> drawn(std::int64_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<T> values;
  for (std::int64_t k = 0; k < count; ++k)
    values.push_back(static_cast<T>(static_cast<double>(random() % 20001) / 10000 - 1));
  return values;
}

std::mutex one_at_a_time;  // assertions of several threads
void require(bool holds) {
  const std::lock_guard lock(one_at_a_time);
  REQUIRE(holds);
}

}  // namespace

TEST_CASE("devices of a replica exchange what threads exchange") {
  for (const int devices : {1, 2, 3, 5})
    for (const bool strided : {false, true})
      on_devices(devices, [&](auto& peers, auto& threads) {
        constexpr std::int64_t rows = 7;
        const ec::transfer moves = columns_to_members(devices, threads.rank(), rows, strided);
        peers.prepare(moves);
        threads.prepare(moves);
        const std::int64_t count = rows * devices * width(threads.rank());
        for (int round = 0; round < 3; ++round) {
          const auto source = drawn<double>(rows * column(devices), 10 * round + threads.rank());
          std::vector<double> ours(static_cast<std::size_t>(count + 1), 7);
          std::vector<double> theirs = ours;
          ec::transfer doubles = moves;
          doubles.type = ep::dtype::f64;
          peers.prepare(doubles);
          peers.exchange(doubles, source.data(), ours.data());
          threads.exchange(doubles, source.data(), theirs.data());
          require(ours == theirs);
        }
        require(peers.counters()[1] == threads.counters()[1]);
      });
}

TEST_CASE("devices of a replica reduce as threads do") {
  for (const int devices : {1, 2, 3, 4})
    on_devices(devices, [&](auto& peers, auto& threads) {
      // Columns of one width: a reduce-scatter.
      constexpr std::int64_t rows = 5;
      constexpr std::int64_t own = 4;
      ec::transfer moves;
      moves.self = threads.rank();
      moves.type = ep::dtype::f32;
      for (int k = 0; k < devices; ++k) moves.members.push_back(k);
      for (int k = 0; k < devices; ++k)
        for (auto* list : {&moves.outgoing, &moves.incoming}) {
          ec::block box;
          box.extent[6] = rows;
          box.extent[7] = own;
          box.source_stride[6] = own * devices;
          box.source_stride[7] = box.target_stride[7] = 1;
          box.target_stride[6] = own;
          box.source_offset = own * (list == &moves.outgoing ? k : threads.rank());
          list->push_back(box);
        }
      peers.prepare(moves);
      threads.prepare(moves);
      const auto source = drawn<float>(rows * own * devices, threads.rank());
      std::vector<float> ours(rows * own);
      std::vector<float> theirs = ours;
      for (const ep::reduction kind : {ep::reduction::sum, ep::reduction::max}) {
        peers.reduce_exchange(moves, source.data(), ours.data(), ep::comm::reducer_of(moves.type, kind));
        threads.reduce_exchange(moves, source.data(), theirs.data(), ep::comm::reducer_of(moves.type, kind));
        require(ours == theirs);
      }
      // Little, in one round, and much, in two; in place, and not.
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{20001}}) {
        const auto terms = drawn<float>(count, 100 + threads.rank());
        const ec::transfer_group group = moves;
        peers.prepare(group);
        std::vector<float> sums(terms.size());
        std::vector<float> in_place = terms;
        std::vector<float> wanted(terms.size());
        peers.all_reduce(group, terms.data(), sums.data(), count,
                         ep::comm::reducer_of(ep::dtype::f32, ep::reduction::sum));
        peers.all_reduce(group, in_place.data(), in_place.data(), count,
                         ep::comm::reducer_of(ep::dtype::f32, ep::reduction::sum));
        threads.all_reduce(group, terms.data(), wanted.data(), count,
                           ep::comm::reducer_of(ep::dtype::f32, ep::reduction::sum));
        require(sums == in_place);
        for (std::size_t k = 0; k < sums.size(); ++k)
          if (std::abs(sums[k] - wanted[k]) > 1e-5F) require(false);
      }
      int number = threads.rank() == 0 ? 42 : 0;
      peers.broadcast(&number, sizeof number, 0);
      require(number == 42);
      peers.barrier();
    });
}

TEST_CASE("each device of a replica talks to the same device of others") {
  using namespace hand_written;
  const replica_model layers(2);
  // Two stages, of two and one replicas of two ranks each.
  std::vector<pl::replica_group> groups{{{0, 1, 2, 3}, {2, 1}}, {{4, 5}, {}}};
  const pl::execution_plan plan =
      pl::make_execution_plan(scheduled("1f1b", 2, 1, 4, false), cut(2), model::count, groups, 12, 2);
  const pl::detail::routes paths(plan, layers);
  for (const pl::detail::message& one : paths.messages()) REQUIRE(plan.device_of(one.from) == plan.device_of(one.to));
  const batch data(12);
  ec::in_process_group group(6, std::chrono::duration<double>(20));
  ec::run_devices(group, [&](ec::in_process_communicator& here) {
    pl::engine pipe(pl::make_transport(here), layers,
                    here.rank() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
    const outcome run = run_steps(pipe, data, 2);
    require(distance_from_loop(run, data) < 1e-10);
  });
  CHECK(pl::detail::parameter_store::users_of(plan, layers, 1, 0) == std::vector<int>{0, 2, 4});
  CHECK(pl::detail::parameter_store::users_of(plan, layers, 1, 1) == std::vector<int>{1, 3, 5});
}

TEST_CASE("a planner's devices are replicas of several ranks") {
  pl::plan planned;
  planned.order = hand_written::scheduled("1f1b", 2, 1, 2, false);
  planned.stages.resize(2);
  planned.stages[0].last = 4;
  planned.stages[0].devices = {0, 2};
  planned.stages[1].first = 4;
  planned.stages[1].last = 10;
  planned.stages[1].devices = {1};
  const pl::execution_plan made = pl::make_execution_plan(planned, 8, 2);
  CHECK(made.groups[0].ranks == std::vector<int>{0, 1, 4, 5});
  CHECK(made.groups[1].ranks == std::vector<int>{2, 3});
  CHECK(made.replicas(0) == 2);
  CHECK(made.rows_of(0, 1, 0) == pl::row_interval{2, 4});
  CHECK(made.replica_of(5) == std::vector<int>{4, 5});
  CHECK(made.device_of(5) == 1);
}

TEST_CASE("machines whose devices are replicas") {
  pl::cluster machines;
  machines.devices_of = {4, 2};
  machines.inside = {8e9, 1e-6};
  machines.across = {1e9, 1e-5};
  const pl::cluster pairs = pl::cluster_of_replicas(machines, 2);
  CHECK(pairs.devices_of == std::vector<int>{2, 1});
  CHECK(pairs.inside.bytes_per_second == 8e9);
  CHECK(pairs.across.bytes_per_second == 5e8);
  CHECK_THROWS_WITH(pl::cluster_of_replicas(machines, 4), Contains("host 1 has 2 devices, which are no replicas of 4"));
}

TEST_CASE("a device that its peers wait for is named") {
  using namespace hand_written;
  class stuck : public pl::layer {
   public:
    explicit stuck(pl::replica_link& link) : communicator_(link) {}
    void prepare(int) override {}
    void forward(const pl::layer_memory&) override {
      if (communicator_.rank() == 1) throw std::runtime_error("out of luck");
      communicator_.barrier();
    }
    void input_gradient(const pl::layer_memory&) override {}
    void weight_gradient(const pl::layer_memory&) override {}
    void initialise(std::byte*, std::byte*) override {}
    void step(std::byte*, const std::byte*, std::byte*, std::int64_t) override {}

   private:
    pl::detail::peer_communicator communicator_;
  };
  class stuck_model : public replica_model {
   public:
    using replica_model::replica_model;
    [[nodiscard]] std::unique_ptr<pl::layer> make(int index, int mesh, pl::replica_link& link) const override {
      if (index == 4) return std::make_unique<stuck>(link);
      return replica_model::make(index, mesh, link);
    }
  };
  const stuck_model layers(2);
  const pl::execution_plan plan =
      pl::make_execution_plan(scheduled("1f1b", 1, 1, 2, false), cut(1), model::count, {{{0, 1}, {}}}, 4, 2);
  std::vector<std::string> texts(2);
  const batch data(4);
  ec::in_process_group group(2, std::chrono::duration<double>(20));
  ec::run_devices(group, [&](ec::in_process_communicator& here) {
    pl::engine pipe(pl::make_transport(here), layers,
                    here.rank() == 0 ? std::optional<pl::execution_plan>(plan) : std::nullopt);
    try {
      (void)pipe.step(data.pointers());
    } catch (const std::runtime_error& error) { texts[static_cast<std::size_t>(here.rank())] = error.what(); }
  });
  CHECK_THAT(texts[0], Contains("rank 1") && Contains("layer 4 (product): out of luck"));
  CHECK_THAT(texts[1], Contains("layer 4 (product): out of luck"));
}
