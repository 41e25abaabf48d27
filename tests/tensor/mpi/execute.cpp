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

/// Takes 24 columns apart on four devices and more into 2 x 12 or 2 x 2 x 6: sums and copies along parts of the axis.
template <class Data, class Model> struct taken_apart {
  constexpr auto operator()(auto x, auto weight) const {
    const auto loss = [](const auto& p) {
      const auto two = ep::reshape<6, 2, 12>(ep::tanh(p.template get<0>() * p.template get<1>()));
      const auto sums = ep::sum<1>(two);
      const auto products = ep::einsum<"abk,ack->abc">(two, ep::transpose<0, 1, 2>(two * two));
      return ep::mean(sums * sums) + ep::mean(products);
    };
    x = ep::shard<Data, Model>(x);
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(x, weight));
    return ep::results(value, gradient, ep::max<0, 3>(ep::reshape<6, 2, 2, 6>(x)));
  }
};
template <class Mesh, class Data, class Model>
using taken_apart_program = ep::program<Mesh, taken_apart<Data, Model>, ep::f64<6, 24>, ep::f64<6, 24>>;

template <int Data, int Model> void require_parts() {
  using program = typename testing::on<Data, Model>::template program<taken_apart_program>;
  static_assert((program::parts.count > 2) == (Model > 2));
  testing::require_agreement<program>(2);
}

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

TEST_CASE("what moves along parts of an axis moves between the right ranks", "[execute]") {
  const int ranks = espalier::test::size_of();
  if (ranks == 1) require_parts<1, 1>();
  if (ranks == 2) require_parts<1, 2>();
  if (ranks == 4) require_parts<1, 4>();
  if (ranks == 8) require_parts<2, 4>();
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
