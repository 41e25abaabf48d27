// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/partition/shifted_rows.hpp>
#include <espalier/tensor/core/partition/sums_by_rows.hpp>
#include <espalier/tensor/run/execute/steps.hpp>

#include <espalier/testing/executed.hpp>
#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

// Which steps there are of programs with shifts, sums and carries, and what they compute on several devices.

namespace {

using namespace espalier;
using namespace espalier::test;

/// The steps of a program by what they run: the names of the ops of kernels and chains, `copy` for copies.
struct found_steps {
  std::vector<std::string> kernels;
  std::vector<std::string> chains;
  int copies = 0;
  std::int64_t arena = 0;
};

/// Partitions for a mesh, executes over poisoned memory, with rows cut from `limits.whole` on, and compares with one
/// device without a schedule.
found_steps steps_on(const std::vector<int>& sizes, const model& m, row_limits limits = {}) {
  CAPTURE(sizes);
  const spmd_program program = run_merged_on(sizes, m);
  const graph& code = program.parts.program;
  const std::vector<tensor_value> got = execute(mesh_of(sizes), code, m.arguments, limits);
  const std::vector<tensor_value> expected = interpret(m.b.result(), m.arguments);
  REQUIRE(got.size() == expected.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    REQUIRE(got[r].data.size() == expected[r].data.size());
    for (std::size_t n = 0; n < got[r].data.size(); ++n) {
      INFO("result " << r << ", element " << n);
      REQUIRE(std::abs(got[r].data[n] - expected[r].data[n]) <= 1e-4 * (1 + std::abs(expected[r].data[n])));
    }
  }
  const run_time_plan plan(mesh_of(sizes), code, limits);
  const program_tables& t = plan.tables();
  const detail::step_list steps(t);
  found_steps found;
  found.arena = t.arena_bytes;
  for (int n = 0; n < steps.size(); ++n) {
    const detail::device_step& s = steps[n];
    if (s.kind == detail::step_kind::copy) ++found.copies;
    if (s.kind == detail::step_kind::kernel) found.kernels.emplace_back(t.code[s.target].op->name);
    if (s.kind != detail::step_kind::chain) continue;
    std::string names;
    for (int k = 0; k < t.launches[s.launch].count; ++k)
      names += (k > 0 ? " " : "") + std::string(t.code[t.order[t.launches[s.launch].first + k]].op->name);
    found.chains.push_back(names);
  }
  return found;
}

using names = std::vector<std::string>;
const std::vector<std::vector<int>> all_meshes{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {2, 4}, {8, 1}};

int shifted(model& m, int x, int dim, int by) { return emit::pad(m.b, x, dim, by, m.b[x].shape[dim]); }

}  // namespace

TEST_CASE("a chain reads the neighbours of its rows and columns where they are", "[partition]") {
  model m;
  const int x = m.argument({13, 9}, "x,y");
  int sum = emit::scale(m.b, x, 4);
  for (const int dim : {0, 1}) {
    for (const int by : {1, -2}) sum = emit::subtract(m.b, sum, shifted(m, x, dim, by));
  }
  m.result(sum);
  for (const auto& mesh : all_meshes) {
    const found_steps found = steps_on(mesh, m);
    CHECK(found.kernels == names{});
    CHECK(found.chains == names{"multiply subtract subtract subtract subtract"});
  }
}

TEST_CASE("circles, parts, and shifts of shifts are read where they are", "[partition]") {
  model m;
  const int x = m.argument({12, 8, 10}, "x,none,y");
  const int circle = emit::roll(m.b, emit::roll(m.b, x, 0, 5), 2, 3);
  const int part = emit::slice(m.b, emit::slice(m.b, x, 0, 1, 9), 2, 2, 8);
  const int moved = shifted(m, shifted(m, shifted(m, x, 0, 2), 1, -3), 2, 1);
  const int other = emit::slice(m.b, emit::slice(m.b, emit::add(m.b, circle, moved), 0, 3, 9), 2, 0, 8);
  m.result(emit::multiply(m.b, part, other));
  const found_steps alone = steps_on({1, 1}, m);
  CHECK(alone.kernels == names{});
  CHECK(alone.chains == names{"add", "multiply"});
  for (const auto& mesh : all_meshes) steps_on(mesh, m);
}

TEST_CASE("rows that are cut into blocks are shifted, too", "[partition]") {
  model m;
  const int line = m.argument({1000}, "x");
  const int plane = m.argument({3, 200}, "y,x");
  m.result(emit::add(m.b, shifted(m, line, 0, 3), emit::roll(m.b, line, 0, 500)));
  m.result(emit::add(m.b, shifted(m, shifted(m, plane, 0, 1), 1, -7), emit::roll(m.b, plane, 1, 33)));
  for (const auto& mesh : all_meshes) {
    steps_on(mesh, m, {40, 16});
    steps_on(mesh, m);
  }
}

TEST_CASE("what is shifted is complete before its neighbours are read", "[partition]") {
  model m;
  const int x = m.argument({11, 6}, "x,none");
  const int square = emit::multiply(m.b, x, x);
  const int sum = emit::add(m.b, shifted(m, square, 0, 1), square);
  // A number for each row is none for each element.
  m.result(emit::add(m.b, m.sum(sum, 2), shifted(m, m.sum(square, 2), 0, -1)));
  m.result(sum);
  const found_steps alone = steps_on({1, 1}, m);
  CHECK(alone.kernels == names{});
  REQUIRE(alone.chains.size() >= 2);
  CHECK(alone.chains[0].find("multiply") == 0);
  CHECK(alone.chains[0].find("add") == std::string::npos);
  for (const auto& mesh : all_meshes) steps_on(mesh, m);
}

TEST_CASE("shifts are computed where a chain cannot, or should not, read further", "[partition]") {
  model m;
  const int x = m.argument({16, 8});
  const int w = m.argument({8, 8});
  // Few of many rows, every other one, for a product, and around one circle twice, though through a pad.
  m.result(m.unary(ops::tanh, emit::slice(m.b, x, 0, 3, 4)));
  m.result(m.unary(ops::tanh, emit::slice(m.b, x, 0, 0, 8, 2)));
  m.result(m.einsum("ij,jk->ik", shifted(m, x, 0, 1), w));
  m.result(m.unary(ops::tanh, emit::roll(m.b, shifted(m, x, 1, 2), 1, 3)));
  const found_steps found = steps_on({1}, m);
  CHECK(found.kernels == names{"slice", "slice", "pad", "einsum", "pad"});
  for (const auto& mesh : all_meshes) steps_on(mesh, m);
}

TEST_CASE("of many shifts one after the other, the last ones are read through", "[partition]") {
  model m;
  const int x = m.argument({9, 7}, "x,y");
  int moved = x;
  // Of one dimension after the other, so that no two are one.
  for (int n = 0; n < 9; ++n) moved = shifted(m, moved, n % 2, n % 3 == 0 ? 1 : -1);
  m.result(m.unary(ops::tanh, moved));
  const found_steps alone = steps_on({1, 1}, m);
  CHECK(alone.kernels == names(5, "pad"));
  for (const auto& mesh : all_meshes) steps_on(mesh, m);
}

TEST_CASE("the next value of a carry is computed in its place", "[partition]") {
  model m;
  const int start = m.argument({13, 9}, "x,y");
  const int other = m.argument({13, 9}, "x,y");
  emit::region_begin(m.b, 3, false, false);
  const int x = emit::region_parameter(m.b, start);
  const int d = emit::region_parameter(m.b, other);
  // d is read further by another chain, before it is written.
  const int product = emit::add(m.b, shifted(m, d, 0, 1), shifted(m, d, 1, -1));
  const int total = emit::scale(m.b, m.total(m.multiply(product, product)), 0.01);
  const int next_x = emit::region_yield(m.b, x, emit::add(m.b, x, m.multiply(d, total)));
  const int next_d = emit::region_yield(m.b, d, emit::subtract(m.b, m.multiply(d, total), product));
  emit::region_end(m.b);
  m.result(emit::region_result(m.b, next_x));
  m.result(emit::region_result(m.b, next_d));
  for (const auto& mesh : all_meshes) {
    const found_steps found = steps_on(mesh, m);
    // Before and after the loop.
    CHECK(found.copies <= 4);
    if (mesh == std::vector<int>{1, 1}) {
      // x, d and the product, of 468 bytes in 512, and numbers in 64 bytes each.
      CHECK(found.arena == 3 * 512 + 9 * 64);
    }
  }
}

namespace {
/// The copies of a loop of three iterations whose carries `body` makes of carries: f(model, carry, other carry, next).
template <class Body> int copies_in_loop(const Body& body) {
  model m;
  const int start = m.argument({10, 12}, "x,y");
  const int other = m.argument({10, 12}, "x,y");
  emit::region_begin(m.b, 3, false, false);
  const int a = emit::region_parameter(m.b, start);
  const int b = emit::region_parameter(m.b, other);
  int next[2]{};
  body(m, a, b, next);
  const int next_a = emit::region_yield(m.b, a, next[0]);
  const int next_b = emit::region_yield(m.b, b, next[1]);
  emit::region_end(m.b);
  m.result(emit::region_result(m.b, next_a));
  m.result(emit::region_result(m.b, next_b));
  for (const auto& mesh : all_meshes) steps_on(mesh, m);
  // Two copies before the loop, and two of results.
  return steps_on({1, 1}, m).copies - 4;
}
}  // namespace

TEST_CASE("carries that are still read are copied", "[partition]") {
  const auto half = [](model& m, int x) { return emit::scale(m.b, x, 0.5); };
  SECTION("both in their places") {
    CHECK(copies_in_loop([&](model& m, int a, int b, int* next) {
            next[0] = emit::add(m.b, half(m, a), b);
            next[1] = half(m, b);
          }) == 0);
  }
  SECTION("one chain that reads the other's carry after it is written") {
    CHECK(copies_in_loop([&](model& m, int a, int b, int* next) {
            next[0] = half(m, a);
            next[1] = emit::add(m.b, emit::add(m.b, next[0], a), b);
          }) == 1);
  }
  SECTION("exchanged") {
    CHECK(copies_in_loop([&](model& m, int a, int b, int* next) {
            next[0] = half(m, b);
            next[1] = half(m, a);  // the b before is no longer read
          }) == 1);
  }
  SECTION("exchanged as they are") {
    CHECK(copies_in_loop([&](model&, int a, int b, int* next) {
            next[0] = b;
            next[1] = a;
          }) >= 2);
  }
  SECTION("read further by the chain that makes the next value") {
    CHECK(copies_in_loop([&](model& m, int a, int b, int* next) {
            next[0] = emit::add(m.b, a, shifted(m, a, 0, 1));
            next[1] = emit::add(m.b, b, emit::roll(m.b, b, 1, 1));
          }) == 2);
  }
  SECTION("read after its next value is known") {
    CHECK(copies_in_loop([&](model& m, int a, int b, int* next) {
            next[0] = half(m, a);
            const int total = m.total(m.multiply(next[0], next[0]));
            next[1] = emit::add(m.b, m.multiply(b, emit::scale(m.b, total, 0.01)), shifted(m, a, 0, -1));
          }) == 1);
  }
  SECTION("the next value of two") {
    CHECK(copies_in_loop(
              [&](model& m, int a, int b, int* next) { next[0] = next[1] = emit::add(m.b, half(m, a), b); }) == 1);
  }
}

TEST_CASE("a donated argument is not overwritten by a chain that reads it further", "[partition]") {
  model m;
  const int x = m.argument({11, 8}, "x,y");
  m.result(emit::add(m.b, x, shifted(m, x, 0, 1)), x);
  CHECK(steps_on({1, 1}, m).copies == 1);
  for (const auto& mesh : all_meshes) steps_on(mesh, m);
}

TEST_CASE("what a chain makes is reduced to one number row by row", "[partition]") {
  const auto with = [](std::vector<std::int64_t> shape, const op_info& op, reduction kind, bool is_made) {
    model m;
    const int x = m.argument(shape, shape.size() == 2 ? "x,none" : "x,none,y");
    const int made = is_made ? m.multiply(x, x) : x;
    const auto all = (std::int64_t{1} << shape.size()) - 1;
    m.result(emit::reduce_with(m.b, op, kind, made, all));
    for (const auto& mesh : all_meshes) steps_on(mesh, m);
    return steps_on({1, 1}, m);
  };
  const auto sum = [&](std::vector<std::int64_t> shape, bool is_made) {
    return with(std::move(shape), ops::reduce_sum, reduction::sum, is_made);
  };
  CHECK(sum({6, 64}, true).chains == names{"multiply reduce_sum", "reduce_sum"});
  CHECK(sum({6, 64}, true).kernels == names{});
  CHECK(sum({3, 4, 80}, true).chains == names{"multiply reduce_sum"});
  CHECK(sum({3, 4, 80}, true).kernels == names{"reduce_sum"});
  // Short rows, a single one, and what is in memory anyway.
  CHECK(sum({6, 63}, true).chains == names{"multiply"});
  CHECK(sum({1, 64}, true).chains == names{"multiply"});
  CHECK(sum({6, 64}, false).kernels == names{"reduce_sum"});
  CHECK(with({6, 70}, ops::reduce, reduction::max, true).chains == names{"multiply reduce", "reduce"});
  CHECK(with({6, 70}, ops::reduce, reduction::min, true).chains == names{"multiply reduce", "reduce"});
}
