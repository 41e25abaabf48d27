// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300
// dies([killed_rank]): 4 rank [0-2] of 4 was ended after [a-z_]+ .[^ ]*programs.hpp:[0-9]+. began: another rank died

#include <catch2/catch.hpp>
#include <support/mpi_programs.hpp>
#include <support/mpi_require.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>

#include <boost/mpi/collectives.hpp>
#include <boost/mpi/communicator.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#if defined(_OPENMP)
#include <omp.h>
#endif

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

struct eight : ep::axis<"eight", 8> {};
/// In each of 10,000 iterations one of two branches, which communicate in other ways; a sum decides that each rank adds
/// up by itself, and of which the last bit counts.
struct undecided {
  constexpr auto operator()(auto x, const auto& w) const {
    const auto all = ep::sum(w);
    const auto body = [&](const auto& s, const auto& step) {
      const auto x_now = s.template get<0>();
      const auto count = s.template get<1>();
      const auto scale = 1.0 + 0.001 * ep::convert<ep::dtype::f64>(step);
      return ep::cond(
          ep::sum(w * scale) > scale * all, [&] { return ep::results(x_now + 1e-9 * ep::sum(x_now), count + 1); },
          [&] { return ep::results(x_now - 1e-9 * ep::max(x_now), count); });
    };
    const auto start = ep::results(ep::shard<eight>(x), ep::constant<ep::i32<>>(x, 0));
    return ep::scan(body, start, ep::iota<ep::i32<10000>, 0>(x));
  }
};

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

TEST_CASE("ranks with other numbers of threads take the same of two branches ten thousand times", "[execute]") {
  if (espalier::test::size_of() != 8) return;
  using program = ep::program<ep::mesh<eight>, undecided, ep::f64<16>, ep::f64<3030>>;
  int argc = 0;
  char** argv = nullptr;
  ep::world world(argc, argv, ep::mesh<eight>{});
  const int rank = world.device(0);
#if defined(_OPENMP)
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1 + rank % 3);
#endif
  ep::runner<program> run(world);
  const auto x = run.argument<0>();
  const auto w = run.argument<1>();
  x.for_each([](double& element, std::int64_t n) { element = static_cast<double>(n); });
  // As if each rank had rounded otherwise.
  w.for_each([&](double& element, std::int64_t n) { element = 1.0 / static_cast<double>(3 + (n + 7 * rank) % 101); });
  const auto& results = run(x, w);
  const int count = *results.get<1>().data(0);
#if defined(_OPENMP)
  omp_set_num_threads(threads);
#endif
  CHECK(count > 0);
  CHECK(count < 10000);
  const boost::mpi::communicator all;
  CHECK(boost::mpi::all_reduce(all, count, boost::mpi::minimum<int>()) == count);
  CHECK(boost::mpi::all_reduce(all, count, boost::mpi::maximum<int>()) == count);
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
