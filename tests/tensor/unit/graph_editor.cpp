// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: passes
#include <catch2/catch.hpp>
#include <espalier/tensor/core/graph/editor.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

namespace {

using namespace espalier;

constexpr extents pair_shape{1, {2}};

/// %0 = argument, %1 = exp %0, %2 = neg %1, %3 = result %2.
graph three_steps() {
  builder b;
  const int first = emit::argument(b, dtype::f64, pair_shape, 0);
  const int raised = b.append(ops::exp, dtype::f64, pair_shape, first);
  const int negated = emit::negate(b, raised);
  emit::result(b, negated, 0);
  return b.result();
}
/// A concat of the argument and five constants: operands beyond those that an instruction has room for.
graph with_many_operands() {
  builder b;
  int parts[6]{emit::argument(b, dtype::f64, pair_shape, 0)};
  for (int k = 1; k < 6; ++k) parts[k] = emit::constant(b, dtype::f64, pair_shape, k);
  instruction joined = builder::make(ops::concat, dtype::f64, extents{1, {12}});
  set_attributes(joined, concat_attributes{0});
  emit::result(b, b.append(joined, parts, 6), 0);
  return b.result();
}

}  // namespace

TEST_CASE("a program that an editor places as it is has the numbers that it had") {
  const graph g = three_steps();
  graph_editor edit(g);
  for (int id = 0; id < edit.source_size(); ++id) edit.place(id);
  const graph same = edit.finish();
  REQUIRE(same.code.size() == 4);
  for (int id = 1; id < 4; ++id) {
    CHECK(same.code[id].op == g.code[id].op);
    CHECK(same.code[id].operand[0] == id - 1);
  }
}

TEST_CASE("readers of a value that is replaced read what replaces it, also if that is replaced later") {
  graph_editor edit(three_steps());
  edit.place(0);
  const int flat = edit.append(builder::make(ops::tanh, dtype::f64, pair_shape, 0));
  edit.replace(1, flat);
  edit.place(2);
  // The negation, too, has become something else, which reads what the negation read.
  const int root = edit.append(builder::make(ops::sqrt, dtype::f64, pair_shape, 1));
  edit.replace(2, root);
  edit.place(3);
  CHECK(edit.standing_for(1) == flat);
  const graph made = edit.finish();
  REQUIRE(made.code.size() == 5);
  CHECK(made.code[1].op == &ops::tanh);
  CHECK(made.code[1].operand[0] == 0);
  CHECK(made.code[2].operand[0] == 1);
  CHECK(made.code[3].op == &ops::sqrt);
  CHECK(made.code[3].operand[0] == 1);
  CHECK(made.code[4].operand[0] == 3);
}

TEST_CASE("what replaces a value may have been replaced before or after it") {
  for (const bool before : {false, true}) {
    graph_editor edit(three_steps());
    edit.place(0);
    if (before) edit.replace(1, 0);
    edit.replace(2, 1);
    if (!before) edit.replace(1, 0);
    edit.place(3);
    const graph made = edit.finish();
    REQUIRE(made.code.size() == 2);
    CHECK(made.code[1].op == &ops::result);
    CHECK(made.code[1].operand[0] == 0);
  }
}

TEST_CASE("what moves past others takes its operands along, and what is left out leaves no gap") {
  builder b;
  const int first = emit::argument(b, dtype::f64, pair_shape, 0);
  const int unread = b.append(ops::exp, dtype::f64, pair_shape, first);
  const int begin = b.append(ops::region_begin, dtype::f64, extents{});
  b.region = begin;
  const int inner = b.append(ops::tanh, dtype::f64, pair_shape, first);
  b.region = -1;
  const int outer = emit::negate(b, first);
  const int sum = emit::add(b, inner, outer);
  emit::result(b, sum, 0);

  graph_editor edit(b.result());
  for (const int id : {first, outer, begin, inner, sum, 6}) edit.place(id);
  edit.drop_unread([](const instruction& i, const instruction*) { return i.op->fuse == fusion::elementwise; });
  const graph made = edit.finish();
  REQUIRE(made.code.size() == 6);
  CHECK(made.code[1].op == &ops::negate);
  CHECK(made.code[3].op == &ops::tanh);
  CHECK(made.code[3].region == 2);
  CHECK(made.code[4].operand[0] == 3);
  CHECK(made.code[4].operand[1] == 1);

  graph_editor again(b.result());
  for (int id = 0; id < again.source_size(); ++id) again.place(id);
  again.drop_unread([](const instruction& i, const instruction*) { return i.op->fuse == fusion::elementwise; });
  const graph dropped = again.finish();
  REQUIRE(dropped.code.size() == 6);
  CHECK(dropped.code[unread].op == &ops::region_begin);
  CHECK(dropped.code[2].region == 1);
  CHECK(dropped.code[4].operand[0] == 2);
  CHECK(dropped.code[4].operand[1] == 3);
}

TEST_CASE("an instruction with many operands and its copy name theirs apart") {
  graph_editor edit(with_many_operands());
  for (int id = 0; id < 6; ++id) edit.place(id == 0 ? 0 : 6 - id);  // the constants the other way round
  edit.place(6);
  edit.append(edit[6]);
  edit.place(7);
  const graph made = edit.finish();
  REQUIRE(made.code.size() == 9);
  for (const int joined : {6, 7}) {
    const instruction& i = made.code[joined];
    REQUIRE(i.operand_count == 6);
    CHECK(i.operand_at(0, made.further.data()) == 0);
    for (int k = 1; k < 6; ++k) CHECK(made.code[i.operand_at(k, made.further.data())].scalar == k);
  }
}
