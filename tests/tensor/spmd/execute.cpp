// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <espalier/tensor/run/execute/chain_steps.hpp>

#include <catch2/catch.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ep = espalier;

namespace {

template <int Data, int Model> struct on {
  struct data : ep::axis<"data", Data> {};
  struct model : ep::axis<"model", Model> {};
  using mesh = ep::mesh<data, model>;
  template <template <class, class, class> class Program> using program = Program<mesh, data, model>;
};

template <class Program> void agrees(int times = 1) {
  ep::world world(Program::mesh::value);
  const testing::comparison seen = testing::run_and_compare<Program>(world, times);
  CHECK(seen.finite);
  CHECK(seen.compared > 0);
  CHECK(seen.worst < 1e-11);
}

template <class Mesh, class Data, class Model>
using kept = testing::programs::training_program<Mesh, Data, Model, false>;
template <class Mesh, class Data, class Model>
using recomputed = testing::programs::training_program<Mesh, Data, Model, true>;

// --- results that are larger than caches -----------------------------------------------------------------------------

// A chain of 64 bytes per element, over 32 MiB on one device and on each of two. No block of it is whole cache lines.
constexpr int tall = 1031;
constexpr int broad = 1030;

template <class Data> struct large_chain {
  constexpr auto operator()(auto given) const {
    const auto x = ep::shard<Data, ep::none>(given);
    const auto half = ep::exp(x) * 0.5;
    return ep::results(half, x - half, x * x);
  }
};
template <class Mesh, class Data, class>
using large_program = ep::program<Mesh, large_chain<Data>, ep::f64<tall, broad>>;

double given_at(std::int64_t i) { return static_cast<double>(i % 1009) / 256 - 2; }

template <class Program> void agrees_with_library() {
  ep::world world(Program::mesh::value);
  ep::runner<Program> run(world);
  auto x = run.template argument<0>();
  x.for_each([](double& element, std::int64_t i) { element = given_at(i); });
  for (int time = 0; time < 2; ++time) {
    const auto [half, rest, square] = run(x);
    const auto halves = ep::gather(world, half);
    const auto rests = ep::gather(world, rest);
    const auto squares = ep::gather(world, square);
    int wrong = 0;
    for (std::int64_t i = 0; i < std::int64_t{tall} * broad; ++i) {
      const double e = std::exp(given_at(i)) / 2;
      const auto n = static_cast<std::size_t>(i);
      const bool right = std::abs(halves[n] - e) <= 1e-15 * e * 2 && std::abs(rests[n] - (given_at(i) - e)) <= 1e-14 &&
                         squares[n] == given_at(i) * given_at(i);
      wrong += right ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("results that are larger than caches are written past them", "[execute]") {
  agrees_with_library<on<1, 1>::program<large_program>>();
  agrees_with_library<on<2, 1>::program<large_program>>();

  // c = a b, d = a c, a = a a: c is read again, and a is overwritten.
  char memory[4]{};
  const auto rows_at = [&](int which) {
    ep::detail::row_cursor rows;
    rows.base = &memory[which];
    rows.size = 4;
    rows.is_stream = true;
    return rows;
  };
  ep::detail::placed_step<int> steps[3];
  const int operands[3][2]{{0, 1}, {0, 2}, {0, 0}};
  const int results[3]{2, 3, 0};
  for (int n = 0; n < 3; ++n) {
    steps[n].operand_count = 2;
    for (int k = 0; k < 2; ++k) steps[n].operand[k] = rows_at(operands[n][k]);
    steps[n].result = rows_at(results[n]);
    steps[n].is_stored = true;
  }
  ep::fused_chain chain;
  chain.step_count = 3;
  chain.rows = 8;
  chain.columns = chain.block_columns = 128;
  constexpr std::int64_t passed = 8 * 128 * 9 * 4;
  const auto streamed = [&] { return steps[0].is_streamed + 2 * steps[1].is_streamed + 4 * steps[2].is_streamed; };
  ep::detail::choose_streamed(chain, &steps[0], passed + 1);
  CHECK(streamed() == 0);
  ep::detail::choose_streamed(chain, &steps[0], passed);
  CHECK(streamed() == (ep::detail::has_streaming_stores ? 2 : 0));
}

TEST_CASE("fused chains compute what the interpreter does", "[execute]") {
  agrees<on<1, 1>::program<testing::programs::chains_program>>();
  agrees<on<2, 2>::program<testing::programs::chains_program>>();
  agrees<on<2, 4>::program<testing::programs::chains_program>>();
}

TEST_CASE("gathers, joins, cuts and their gradients", "[execute]") {
  agrees<on<1, 1>::program<testing::programs::movers_program>>();
  agrees<on<2, 1>::program<testing::programs::movers_program>>();
  agrees<on<2, 2>::program<testing::programs::movers_program>>();
  agrees<on<4, 2>::program<testing::programs::movers_program>>();
}

TEST_CASE("exchanges of boxes, and their gradients", "[execute]") {
  agrees<on<1, 2>::program<testing::programs::switches_program>>();
  agrees<on<2, 2>::program<testing::programs::switches_program>>();
  agrees<on<2, 4>::program<testing::programs::switches_program>>();
}

TEST_CASE("loops with gradients update their parameters in place", "[execute]") {
  agrees<on<1, 1>::program<kept>>(3);
  agrees<on<2, 2>::program<kept>>(3);
  agrees<on<4, 2>::program<kept>>(3);
  agrees<on<2, 2>::program<recomputed>>(3);
}

TEST_CASE("attention with split heads and classes", "[execute]") {
  agrees<on<1, 1>::program<testing::programs::attention_program>>();
  agrees<on<2, 2>::program<testing::programs::attention_program>>();
  agrees<on<1, 4>::program<testing::programs::attention_program>>();
}
