// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: random_programs

#include "gradients_check.hpp"

#include <string>

namespace {

using namespace espalier;
using namespace gradients_check;
using test::extents_of;
using test::random_source;

constexpr extents pair_shape{1, {2}};

int count(const graph& g, const op_info& op) {
  int found = 0;
  for (const instruction& i : g.code) found += i.op == &op ? 1 : 0;
  return found;
}
int find_label(const graph& g, const char* label) {
  for (int id = 0; id < g.code.size(); ++id) {
    if (g.code[id].label != nullptr && std::string(g.code[id].label) == label) return id;
  }
  return -1;
}
int argument(builder& b, int index) { return emit::argument(b, dtype::f64, pair_shape, index); }

}  // namespace

TEST_CASE("normalise drops what no result depends on, but no argument") {
  builder b;
  argument(b, 0);
  const int x = argument(b, 1);
  argument(b, 2);
  emit::negate(b, emit::add(b, x, x));
  emit::result(b, emit::multiply(b, x, x), 0);
  const graph normal = normalise(b.result());
  CHECK(normal.code.size() == 5);
  REQUIRE(count(normal, ops::argument) == 3);
  for (int index = 0; index < 3; ++index) {
    CHECK(attributes_of<border_attributes>(normal.code[index]).number == index);
  }
  CHECK(count(normal, ops::multiply) == 1);
}

TEST_CASE("normalise drops loops and carries that nothing uses") {
  builder b;
  const int x = argument(b, 0);
  const auto loop = [&](int init) {
    emit::region_begin(b, 3, false, false);
    const int one = emit::region_parameter(b, init);
    const int two = emit::region_parameter(b, init);
    const int three = emit::region_parameter(b, init);
    // `one` needs `two`, `three` only itself.
    const int next_one = emit::region_yield(b, one, emit::add(b, one, two));
    const int next_two = emit::region_yield(b, two, emit::scale(b, two, 0.5));
    const int next_three = emit::region_yield(b, three, emit::negate(b, three));
    emit::region_end(b);
    return std::vector<int>{emit::region_result(b, next_one), emit::region_result(b, next_two),
                            emit::region_result(b, next_three), emit::loop_stack(b, b[next_two].operand[1])};
  };
  SECTION("the whole loop") {
    loop(x);
    emit::result(b, x, 0);
    CHECK(normalise(b.result()).code.size() == 2);
  }
  SECTION("the third carry") {
    emit::result(b, loop(x)[0], 0);
    const graph normal = normalise(b.result());
    CHECK(count(normal, ops::region_parameter) == 2);
    CHECK(count(normal, ops::region_yield) == 2);
    CHECK(count(normal, ops::region_result) == 1);
    CHECK(count(normal, ops::negate) == 0);
    CHECK(count(normal, ops::loop_stack) == 0);
  }
  SECTION("all but what a stack needs") {
    emit::result(b, loop(x)[3], 0);
    const graph normal = normalise(b.result());
    CHECK(count(normal, ops::region_parameter) == 1);
    CHECK(count(normal, ops::loop_stack) == 1);
    CHECK(count(normal, ops::region_result) == 0);
    CHECK(count(normal, ops::add) == 0);
  }
  SECTION("a loop that only a dead loop reads") {
    loop(loop(x)[0]);
    emit::result(b, x, 0);
    CHECK(normalise(b.result()).code.size() == 2);
  }
  run_all_forms(b.result(), {tensor_value{pair_shape, {1, 2}}});
}

TEST_CASE("normalise moves stacks and sums behind their loop, and outer instructions in front of inner loops") {
  builder b;
  const int x = argument(b, 0);
  const int first_loop = emit::region_begin(b, 2, false, false);
  const int carry = emit::region_parameter(b, x);
  const int doubled = emit::add(b, carry, carry);
  const int next = emit::region_yield(b, carry, doubled);
  emit::region_end(b);
  emit::result(b, emit::region_result(b, next), 0);
  const int second_loop = emit::region_begin(b, 2, true, false);
  const int third_loop = emit::region_begin(b, 3, false, false);
  // Both stand inside the third loop; the stack belongs outside of all, the slice to the second.
  const int stack = emit::loop_stack(b, doubled);
  b.region = second_loop;
  const int slice = emit::loop_slice(b, stack);
  b.region = third_loop;
  const int inner = emit::region_parameter(b, slice);
  const int inner_next = emit::region_yield(b, inner, emit::multiply(b, inner, slice));
  emit::region_end(b);
  const int total = emit::negate(b, emit::region_result(b, inner_next));
  const int sum = emit::loop_sum(b, total);
  emit::region_end(b);
  emit::result(b, sum, 1);
  CHECK(b[sum].region == -1);
  const auto results = run_all_forms(b.result(), {tensor_value{pair_shape, {1, 0.5}}});
  CHECK(results[0].data == std::vector<double>{4, 2});
  // -(2^4 + 4^4), -(1 + 2^4)
  CHECK(results[1].data == std::vector<double>{-272, -17});
  const graph normal = normalise(b.result());
  int end = 0;
  while (normal.code[end].op != &ops::region_end) ++end;
  CHECK(normal.code[end].operand[0] == 1);
  CHECK(normal.code[end + 1].op == &ops::loop_stack);
  CHECK(count(normal, ops::region_begin) == 3);
  CHECK(first_loop < second_loop);
}

TEST_CASE("normalise passes aliases by, and keeps a copy where a loop needs one") {
  builder b;
  const int x = argument(b, 0);
  const auto alias = [&](int id) { return b.append(ops::stop_gradient, dtype::f64, b[id].shape, id); };
  SECTION("chains of them") {
    const int y = b.append(ops::reshape, dtype::f64, pair_shape, alias(alias(x)));
    emit::result(b, emit::add(b, y, alias(x)), 0);
    const graph normal = normalise(b.result());
    CHECK(normal.code.size() == 3);
    CHECK(normal.code[1].operand[0] == 0);
    CHECK(normal.code[1].operand[1] == 0);
  }
  SECTION("carries that swap, as seen through aliases") {
    const int y = emit::negate(b, x);
    emit::region_begin(b, 3, false, false);
    const int one = emit::region_parameter(b, x);
    const int two = emit::region_parameter(b, y);
    const int next_one = emit::region_yield(b, one, alias(two));
    const int next_two = emit::region_yield(b, two, alias(alias(one)));
    emit::region_end(b);
    emit::result(b, emit::region_result(b, next_one), 0);
    emit::result(b, emit::region_result(b, next_two), 1);
    const graph normal = normalise(b.result());
    CHECK(count(normal, ops::copy) == 2);
    for (const instruction& i : normal.code) {
      if (i.op == &ops::region_yield) CHECK(normal.code[i.operand[1]].op != &ops::region_parameter);
    }
  }
  SECTION("a stack and a sum of what stands outside") {
    emit::region_begin(b, 3, false, false);
    const int one = alias(x);
    const int carry = emit::region_parameter(b, x);
    const int next = emit::region_yield(b, carry, emit::add(b, carry, one));
    emit::region_end(b);
    emit::result(b, emit::loop_stack(b, one), 0);
    emit::result(b, emit::loop_sum(b, one), 1);
    emit::result(b, emit::region_result(b, next), 2);
    CHECK(count(normalise(b.result()), ops::copy) == 1);
    const auto results = run_all_forms(b.result(), {tensor_value{pair_shape, {1, 2}}});
    CHECK(results[0].data == std::vector<double>{1, 2, 1, 2, 1, 2});
    CHECK(results[1].data == std::vector<double>{3, 6});
    CHECK(results[2].data == std::vector<double>{4, 8});
  }
  run_all_forms(b.result(), {tensor_value{pair_shape, {1, 2}}});
}

TEST_CASE("labels stay with the value they name") {
  builder b;
  const int x = argument(b, 0);
  const int y = emit::negate(b, x);
  const int stopped = b.append(ops::stop_gradient, dtype::f64, pair_shape, y);
  b[stopped].label = "first";
  const int again = b.append(ops::stop_gradient, dtype::f64, pair_shape, stopped);
  b[again].label = "second";
  const int same = emit::negate(b, x);
  b[same].label = "third";
  const int other = emit::add(b, x, x);
  const int other_again = emit::add(b, x, x);
  b[other_again].label = "fourth";
  int index = 0;
  for (const int id : {again, same, other, other_again}) emit::result(b, id, index++);
  const graph normal = normalise(b.result());
  const graph merged = merge_common_subexpressions(normal);
  for (const graph* g : {&normal, &merged}) {
    for (const char* label : {"first", "second", "third", "fourth"}) {
      CAPTURE(label);
      CHECK(find_label(*g, label) >= 0);
    }
  }
  CHECK(merged.code[find_label(merged, "first")].op == &ops::negate);
  CHECK(find_label(merged, "first") != find_label(merged, "third"));
  CHECK(count(normal, ops::add) == 2);
  CHECK(count(merged, ops::add) == 1);
}

TEST_CASE("annotations keep their numbers, and annotated instructions their placement") {
  builder b;
  const int x = argument(b, 0);
  const int note = b.annotate(pair_shape, sharding::whole(1));
  const int other = b.annotate(pair_shape, sharding::all_open(1));
  const int one = emit::annotated(b, ops::shard, x, note);
  const int same = emit::annotated(b, ops::shard, x, note);
  const int different = emit::annotated(b, ops::shard, x, other);
  emit::result(b, emit::add(b, emit::add(b, one, same), different), 0);
  const graph normal = normalise(b.result());
  const graph merged = merge_common_subexpressions(normal, false);
  CHECK(normal.annotations.size() == 2);
  CHECK(merged.annotations.size() == 2);
  CHECK(count(normal, ops::shard) == 3);
  REQUIRE(count(merged, ops::shard) == 2);
  CHECK(merged.code[1].annotation == note);
  CHECK(merged.code[2].annotation == other);
  // Once all is laid out, nobody asks what completion might have done.
  CHECK(count(merge_common_subexpressions(normal), ops::shard) == 1);
}

TEST_CASE("what differs in anything is not merged") {
  builder b;
  const int x = argument(b, 0);
  const int wide = emit::argument(b, dtype::f64, extents_of({2, 2}), 1);
  std::vector<int> made;
  for (const double value : {0.0, -0.0, 1.0}) made.push_back(emit::constant(b, dtype::f64, pair_shape, value));
  for (const int dim : {0, 1}) made.push_back(emit::reduce_sum(b, wide, 1 << dim));
  for (const op_info* op : {&ops::add, &ops::multiply, &ops::less})
    made.push_back(b.append(*op, dtype::f64, pair_shape, x, x));
  made.push_back(emit::add(b, x, made[0]));
  made.push_back(emit::add(b, made[0], x));
  made.push_back(emit::convert(b, emit::convert(b, x, dtype::f32), dtype::f64));
  made.push_back(emit::convert(b, emit::convert(b, x, dtype::bf16), dtype::f64));
  int index = 0;
  for (const int id : made) emit::result(b, id, index++);
  CHECK(merge_common_subexpressions(b.result()).code.size() == b.size());
  run_all_forms(b.result(), {tensor_value{pair_shape, {1, 1.0 / 3}}, tensor_value{extents_of({2, 2}), {1, 2, 3, 4}}});
}

TEST_CASE("equal instructions of one loop are merged, of different loops not") {
  builder b;
  const int x = argument(b, 0);
  const int outside = emit::negate(b, x);
  emit::region_begin(b, 2, false, false);
  const int carry = emit::region_parameter(b, x);
  const int one = emit::negate(b, x);
  const int two = emit::negate(b, x);
  const int next = emit::region_yield(b, carry, emit::add(b, emit::add(b, carry, one), two));
  emit::region_end(b);
  emit::result(b, emit::region_result(b, next), 0);
  emit::result(b, emit::loop_stack(b, one), 1);
  emit::result(b, emit::loop_stack(b, two), 2);
  emit::result(b, emit::loop_sum(b, two), 3);
  emit::result(b, emit::loop_sum(b, two), 4);
  emit::result(b, outside, 5);
  const graph merged = merge_common_subexpressions(normalise(b.result()));
  CHECK(count(merged, ops::negate) == 2);
  CHECK(count(merged, ops::loop_stack) == 1);
  CHECK(count(merged, ops::loop_sum) == 1);
  run_all_forms(b.result(), {tensor_value{pair_shape, {1, 2}}});
}

TEST_CASE("two thousand random programs compute the same in every form") {
  int dropped = 0;
  int merged_away = 0;
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    random_source random(seed);
    test::random_graph_options options;
    options.gradients = random.chance(0.7);
    const test::random_program program = test::random_graph(random, options);
    run_all_forms(program.code.result(), program.arguments);
    const graph normal = normalise(program.code.result());
    dropped += program.code.size() - normal.code.size();
    merged_away += normal.code.size() - merge_common_subexpressions(normal).code.size();
  }
  CHECK(dropped > 20000);
  CHECK(merged_away > 5000);
}

TEST_CASE("normalise takes out of a loop what does not change in it and is no larger than its operands") {
  builder b;
  const int x = argument(b, 0);
  const int w = emit::argument(b, dtype::f64, extents_of({4, 2}), 1);
  const auto name = [&](int id, const char* label) {
    b[id].label = label;
    return id;
  };
  emit::region_begin(b, 3, false, false);
  const int carry = emit::region_parameter(b, x);
  emit::region_begin(b, 2, false, false);
  const int inner = emit::region_parameter(b, carry);
  const int row = name(emit::reshape(b, emit::slice(b, w, 0, 1, 1), pair_shape), "row");
  const int scaled = name(emit::scale(b, row, 0.5), "scaled");
  const int from_carry = name(emit::multiply(b, scaled, carry), "from carry");
  const int varying = name(emit::multiply(b, from_carry, inner), "varying");
  const extents wide_shape = extents_of({3, 2});
  const int many = emit::broadcast_along(b, row, wide_shape, 1);
  const int wide = name(emit::multiply(b, many, b.append(ops::iota, dtype::f64, wide_shape)), "wide");
  const int index = name(b.append(ops::iota, dtype::f64, pair_shape), "index");
  const int squares = name(emit::multiply(b, index, index), "squares");
  const int collected = name(emit::negate(b, row), "collected");
  const int next =
      emit::region_yield(b, inner, emit::add(b, varying, emit::add(b, squares, emit::reduce_sum(b, wide, 1))));
  emit::region_end(b);
  const int passed = emit::region_yield(b, carry, emit::region_result(b, next));
  const int sum = emit::loop_sum(b, collected);
  const int outer_sum = emit::own(b, sum);
  emit::region_end(b);
  emit::result(b, emit::region_result(b, passed), 0);
  emit::result(b, emit::loop_sum(b, outer_sum), 1);

  const graph normal = normalise(b.result());
  const auto depth = [&](const char* label) {
    int levels = 0;
    for (int l = normal.code[find_label(normal, label)].region; l >= 0; l = normal.code[l].region) ++levels;
    return levels;
  };
  CHECK(depth("row") == 0);
  CHECK(depth("scaled") == 0);
  CHECK(depth("from carry") == 1);
  CHECK(depth("varying") == 2);
  CHECK(depth("wide") == 2);
  CHECK(depth("squares") == 2);
  CHECK(depth("collected") == 2);
  random_source random(3);
  const std::vector<tensor_value> data{test::random_tensor(random, pair_shape),
                                       test::random_tensor(random, extents_of({4, 2}))};
  const std::vector<tensor_value> before = interpret(b.result(), data);
  const std::vector<tensor_value> after = interpret(normal, data);
  for (std::size_t r = 0; r < before.size(); ++r) CHECK(before[r].data == after[r].data);
}
