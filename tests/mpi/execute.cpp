// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300
// dies([killed_rank]): 4 rank [0-2] of 4 was ended after [a-z_]+ .[^ ]*programs.hpp:[0-9]+. began: another rank died

#include <catch2/catch.hpp>
#include <support/mpi_programs.hpp>
#include <support/mpi_require.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>

#include <chrono>
#include <csignal>
#include <thread>

namespace ep = espalier;

namespace {

template <class Mesh, class Data, class Model>
using training = testing::programs::training_program<Mesh, Data, Model, false>;

/// Types of one, two, four and eight bytes in every collective. (Of f16 what is not rounded.)
template <class Data, class Model> struct short_and_long {
  constexpr auto operator()(auto a, auto b, auto c, auto d) const {
    const auto split = ep::shard<Data, Model>(a);
    return ep::results(ep::sum<0>(split), ep::einsum<"ij,jk->ik">(split, a), ep::transpose<1, 0>(split) - a,
                       ep::sum(ep::shard<Data, Model>(b)), ep::gather<0>(ep::shard<Data, Model>(b), ep::max<1>(a)),
                       ep::max<0>(ep::shard<Model, Data>(c)), ep::sum<1>(ep::reshard<ep::none, Data>(c)),
                       ep::max<0>(ep::shard<Data, Model>(d)), ep::reshard<Model, Data>(ep::shard<Data, Model>(d)));
  }
};
template <class Mesh, class Data, class Model>
using short_and_long_program =
    ep::program<Mesh, short_and_long<Data, Model>, ep::i64<6, 6>, ep::u32<7, 5>, ep::i8<6, 9>, ep::f16<9, 5>>;

}  // namespace

TEST_CASE("a training step on ranks computes what the interpreter does", "[execute]") {
  testing::require_agreement_on_all_ranks<training>(3);
}

TEST_CASE("elements of one to eight bytes travel between ranks", "[execute]") {
  testing::require_agreement_on_all_ranks<short_and_long_program>();
}

TEST_CASE("attention on ranks computes what the interpreter does", "[execute]") {
  testing::require_agreement_on_all_ranks<testing::programs::attention_program>();
}

TEST_CASE("exchanges on ranks move what the interpreter moves", "[execute]") {
  static_assert(testing::on<4, 2>::program<testing::programs::switches_program>::collectives<ep::exchange>() >= 2);
  static_assert(testing::on<2, 2>::program<testing::programs::switches_program>::collectives<ep::exchange>() >= 1);
  testing::require_agreement_on_all_ranks<testing::programs::switches_program>(2);
}

TEST_CASE("a mesh of another size than the number of ranks is refused on all of them", "[execute]") {
  struct wide : ep::axis<"wide", 16> {};
  int argc = 0;
  char** argv = nullptr;
  CHECK_THROWS_WITH(ep::world(argc, argv, ep::mesh<wide>{}),
                    Catch::Contains("16 devices") && Catch::Contains("mpirun -n 16"));
}

// The job ends: run by `dies` above.
TEST_CASE("when a rank is killed in the middle of a step, the others say where they were", "[.][killed_rank]") {
  std::signal(SIGTERM, SIG_DFL);  // the test's own main has a handler
  using program = testing::on<2, 2>::program<training>;
  int argc = 0;
  char** argv = nullptr;
  ep::world world(argc, argv, program::mesh{});
  std::thread killer;
  if (world.device(0) == 3) {
    killer = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      std::raise(SIGKILL);
    });
  }
  for (int n = 0; n < 1000000; ++n) (void)testing::run_and_compare<program>(world, 1000);
  killer.join();
}
