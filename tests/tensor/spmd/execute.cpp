// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// timeout: 300

#include <catch2/catch.hpp>
#include <support/programs.hpp>
#include <support/run_program.hpp>

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

}  // namespace

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
