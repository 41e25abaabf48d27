// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// together: rules

#include <espalier/testing/executed.hpp>
#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// An exchange whose operand's rows are neighbours in memory leaves them where they are.

namespace {

using namespace espalier;
using namespace espalier::test;

/// A convolution of a value with three taps along the dimension that is split over two devices.
struct halo {
  model m;
  int value = -1;

  halo(const std::vector<std::int64_t>& image, const char* at, const std::function<int(model&, int)>& f) {
    const int x = m.argument(image, at);
    const int w = m.argument({3, 3, image.back(), 2});
    value = f(m, x);
    m.result(m.shard(emit::convolution(m.b, value, w, {.low = {1, 1}, .high = {1, 1}}), at));
  }
};

struct planned_halo {
  location of_exchange;
  bool shares = false;
  /// The bytes that the arena has for the operand.
  std::int64_t bytes = 0;
};

planned_halo plan_of(const std::vector<int>& mesh, halo& one) {
  const spmd_program program = run_merged_on(mesh, one.m);
  const graph& code = program.parts.program;
  const mesh_shape devices = mesh_of(mesh);
  const run_time_plan plan(devices, code);
  planned_halo result;
  for (int id = 0; id < code.code.size(); ++id) {
    const instruction& i = code.code[id];
    if (!detail::is_collective(i.op, collective::exchange)) continue;
    result.of_exchange = plan.tables().where[id];
    const int root = plan.tables().root[id];
    result.shares = root == plan.tables().root[i.operand[0]];
    for (const placed_buffer& b : plan.buffers()) {
      if (b.value == root) result.bytes = b.bytes;
    }
  }
  return result;
}

int negated(model& m, int x) { return m.unary(ops::negate, x); }
int itself(model&, int x) { return x; }

}  // namespace

TEST_CASE("neighbours' rows arrive around a value that stays where it is", "[partition]") {
  // Each device has 4 of 8 rows of 5 x 3 elements, and room for one before them (in whole lines of a cache) and two
  // after: buffers of the exchange have 6 rows on both, that of the first device from its own first on.
  halo plain({1, 8, 5, 3}, "_,x,_,_", negated);
  const planned_halo found = plan_of({2}, plain);
  CHECK(found.of_exchange.is_displaced);
  CHECK(found.shares);
  constexpr std::int64_t row = 5 * 3 * 4;
  CHECK(found.bytes == aligned(row) + aligned(4 * row + 2 * row));
}

TEST_CASE("an exchange has a buffer of its own where rows are no neighbours, or are not ours", "[partition]") {
  halo two_images({2, 8, 5, 3}, "_,x,_,_", negated);
  CHECK_FALSE(plan_of({2}, two_images).of_exchange.is_displaced);
  halo columns({1, 8, 6, 3}, "_,_,x,_", negated);
  CHECK_FALSE(plan_of({2}, columns).of_exchange.is_displaced);
  halo both({1, 8, 6, 3}, "_,x,y,_", negated);
  CHECK_FALSE(plan_of({2, 2}, both).of_exchange.is_displaced);
  halo argument({1, 8, 5, 3}, "_,x,_,_", itself);
  CHECK_FALSE(plan_of({2}, argument).of_exchange.is_displaced);
  // Two images on two devices each: one is left on each.
  halo one_left({2, 8, 5, 3}, "y,x,_,_", negated);
  CHECK(plan_of({2, 2}, one_left).of_exchange.is_displaced);
}

TEST_CASE("of exchanges along two dimensions around one value, one is left where it is", "[partition]") {
  // A device has one row of one column, so that the neighbours of both dimensions would come directly after it.
  model m;
  const int value = negated(m, m.argument({2, 2, 3}, "x,y,_"));
  const int below[]{value, m.argument({1, 2, 3})};
  const int beside[]{value, m.argument({2, 1, 3})};
  m.result(m.shard(emit::concat(m.b, &below[0], 2, 0), "x,y,_"));
  m.result(m.shard(emit::concat(m.b, &beside[0], 2, 1), "x,y,_"));
  const spmd_program program = run_merged_on({2, 2}, m);
  const graph& code = program.parts.program;
  const run_time_plan plan(mesh_of({2, 2}), code);
  int displaced = 0;
  for (int id = 0; id < code.code.size(); ++id) displaced += plan.tables().where[id].is_displaced ? 1 : 0;
  CHECK(displaced == 1);
  const std::vector<tensor_value> made = execute(mesh_of({2, 2}), code, m.arguments);
  CHECK(difference(made, interpret(m.b.result(), m.arguments), 1e-5) == "");
}

namespace {

/// Runs a program on the lockstep devices and on one, and counts the exchanges whose results lie around their operands
/// and the values that change halves in every iteration of a loop.
struct run_around {
  int displaced = 0;
  int alternating = 0;
  std::string fault;

  run_around(const std::vector<int>& mesh, const model& m) {
    const spmd_program program = run_merged_on(mesh, m);
    const graph& code = program.parts.program;
    const run_time_plan plan(mesh_of(mesh), code);
    for (int id = 0; id < code.code.size(); ++id) {
      displaced += plan.tables().where[id].is_displaced ? 1 : 0;
      alternating += plan.tables().where[id].alternates ? 1 : 0;
    }
    fault = difference(execute(mesh_of(mesh), code, m.arguments), interpret(m.b.result(), m.arguments), 1e-4);
  }
};

int smoothed(model& m, int x, int weights) {
  return m.shard(emit::convolution(m.b, x, weights, {.low = {1, 1}, .high = {1, 1}}), "_,x,_,_");
}

}  // namespace

TEST_CASE("halo_room: results are those of a program without room around its values", "[partition][law]") {
  int displaced = 0;
  int alternating = 0;
  for (const int devices : {2, 4}) {
    for (const std::int64_t rows : {8, 11}) {
      // The exchange's result is read by a convolution, and by what expects a buffer that starts where a value does.
      model m;
      const int x = m.argument({1, rows, 5, 3}, "_,x,_,_");
      const int w = m.argument({3, 3, 3, 3});
      const int value = negated(m, x);
      m.result(smoothed(m, value, w));
      m.result(m.shard(negated(m, emit::slice(m.b, value, 1, 1, rows - 1)), "_,x,_,_"));
      m.result(m.unary(ops::tanh, value));
      const run_around straight({devices}, m);
      CAPTURE(devices, rows);
      CHECK(straight.fault == "");
      displaced += straight.displaced;
      for (const int iterations : {1, 2, 3, 4}) {
        for (const int way : {0, 1, 2, 3}) {
          const bool is_reverse = way % 2 == 1;
          const bool in_place = way / 2 == 1;
          CAPTURE(iterations, is_reverse, in_place);
          model looped;
          const int start = negated(looped, looped.argument({1, rows, 5, 3}, "_,x,_,_"));
          const int weights = looped.argument({3, 3, 3, 3});
          emit::region_begin(looped.b, iterations, is_reverse, false);
          const int carry = emit::region_parameter(looped.b, start);
          // A chain computes the next value in the carry's place; a convolution, which reads neighbours, cannot.
          const int smooth = smoothed(looped, carry, weights);
          const int next = emit::region_yield(looped.b, carry, in_place ? looped.unary(ops::tanh, smooth) : smooth);
          emit::region_end(looped.b);
          // The value after the loop is read by a convolution again.
          const int last = emit::region_result(looped.b, next);
          looped.result(last);
          looped.result(smoothed(looped, last, weights));
          const run_around around({devices}, looped);
          CHECK(around.fault == "");
          displaced += around.displaced;
          if (in_place) CHECK(around.alternating == 0);
          alternating += around.alternating;
        }
      }
    }
  }
  CHECK(displaced > 0);
  CHECK(alternating > 0);
}
