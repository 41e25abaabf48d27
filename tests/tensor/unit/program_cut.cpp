// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// processors: 1
// together: cases

#include <espalier/testing/random_graph.hpp>
#include <support/spmd_check.hpp>

#include <espalier/tensor/core/program/cut.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

/// Graphs cut in parts: together they compute what the whole does, each thing once, and hand on as little as they can.
namespace {

using namespace espalier;
using namespace espalier::test;

struct parts_of_graph {
  cut_numbers numbers;
  graph whole;
  graph part[3];
};

[[nodiscard]] int number_of(const instruction& i) { return attributes_of<border_attributes>(i).number; }
[[nodiscard]] int highest(graph_view g, structure kind) {
  int most = -1;
  for (int id = 0; id < g.size; ++id)
    if (structure_of(g[id]) == kind) most = std::max(most, number_of(g[id]));
  return most;
}
[[nodiscard]] std::int64_t bytes(const instruction& i) { return i.shape.elements() * size_of(i.type); }

/// Cuts twice; `segment_of_result` says where each result is handed out.
[[nodiscard]] parts_of_graph cut_in_three(graph_view g, const std::vector<int>& segment_of_result) {
  const auto label = [&](int number) { return segment_of_result.at(static_cast<std::size_t>(number)); };
  parts_of_graph made;
  made.whole.code.reserve(g.size);
  for (int id = 0; id < g.size; ++id) made.whole.code.push_back(g[id]);
  detail::copy_tables(made.whole, g);
  made.numbers = {highest(g, structure::argument) + 1, highest(g, structure::result) + 1, 1};
  cut_graph first = cut(g, segments_by_results(g, label), 0, made.numbers);
  cut_numbers second = made.numbers;
  second.results = std::max(second.results, highest(first.early, structure::result) + 1);
  cut_graph rest = cut(first.late, segments_by_results(first.late, label), 1, second);
  made.part[0] = first.early;
  made.part[1] = rest.early;
  made.part[2] = rest.late;
  return made;
}

/// Runs the parts one after the other: each reads what those before it hand on.
[[nodiscard]] std::vector<tensor_value> run(const parts_of_graph& parts, std::vector<tensor_value> arguments) {
  const auto count = static_cast<std::size_t>(parts.numbers.arguments);
  arguments.resize(count);
  std::vector<tensor_value> results(static_cast<std::size_t>(parts.numbers.results));
  for (const graph& part : parts.part) {
    const std::vector<tensor_value> made = interpret(part, arguments);
    for (int id = 0; id < part.code.size(); ++id) {
      if (structure_of(part.code[id]) != structure::result) continue;
      const auto number = static_cast<std::size_t>(number_of(part.code[id]));
      if (number < results.size()) results[number] = made[number];
      if (arguments.size() <= count + number) arguments.resize(count + number + 1);
      arguments[count + number] = made[number];
    }
  }
  return results;
}

[[nodiscard]] bool same_bits(const std::vector<tensor_value>& one, const std::vector<tensor_value>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](const auto& a, const auto& b) {
    return a.shape == b.shape && a.data.size() == b.data.size() &&
           std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(double)) == 0;
  });
}

/// Counts, by op, the instructions that may not be done twice.
[[nodiscard]] std::map<std::string, int> work_in(graph_view g) {
  std::map<std::string, int> count;
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    const bool may_repeat =
        i.region < 0 && !i.op->facts.bound_to_region && (i.operand_count == 0 || i.op->facts.cheap_to_repeat);
    if (structure_of(i) != structure::argument && structure_of(i) != structure::result && !may_repeat)
      ++count[i.op->name];
  }
  return count;
}
[[nodiscard]] bool work_is_done_once(const parts_of_graph& parts) {
  std::map<std::string, int> sum;
  for (const graph& part : parts.part)
    for (const auto& [name, count] : work_in(part)) sum[name] += count;
  return sum == work_in(parts.whole);
}

/// Bytes of what the first part hands on.
[[nodiscard]] std::int64_t handed_on(const parts_of_graph& parts) {
  std::int64_t sum = 0;
  for (const instruction& i : parts.part[0].code)
    if (structure_of(i) == structure::result && number_of(i) >= parts.numbers.results) sum += bytes(i);
  return sum;
}
/// The same if all that a later part reads was handed on.
[[nodiscard]] std::int64_t all_that_is_read(graph_view g, const std::vector<int>& segment_of_result) {
  const detail::list<int> part =
      segments_by_results(g, [&](int number) { return segment_of_result.at(static_cast<std::size_t>(number)); });
  std::set<int> read;
  std::set<int> readable;
  for (int id = 0; id < g.size; ++id) {
    if (structure_of(g[id]) == structure::result && number_of(g[id]) == 0 && part[id] == 0)
      readable.insert(g[id].operand[0]);
    for (int k = 0; k < g[id].operand_count && part[id] > 0 && part[id] != no_segment; ++k) {
      const int operand = g.operand_at(g[id], k);
      if (part[operand] == 0 && structure_of(g[operand]) != structure::argument) read.insert(operand);
    }
  }
  std::int64_t sum = 0;
  for (const int id : read)
    if (readable.count(id) == 0) sum += bytes(g[id]);
  return sum;
}

constexpr dtype type = dtype::f64;

}  // namespace

TEST_CASE("Random programs in three parts compute what they compute in one", "[program_cut]") {
  int with_loops = 0;
  int crossing = 0;
  int smaller = 0;
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    program_options options;
    options.instructions = 12;
    options.gradients = 1;
    options.annotated = 0;
    const graph made = run_passes(passes_on_tensors, mesh_shape{}, random_program_graph(seed, options));
    random_source random(seed);
    std::vector<int> segment_of_result(static_cast<std::size_t>(highest(made, structure::result)) + 1);
    for (int& part : segment_of_result) part = random.integer(0, 2);
    const parts_of_graph parts = cut_in_three(made, segment_of_result);
    const std::vector<tensor_value> arguments = random_program_arguments(made, seed, options.kind);
    INFO("seed " << seed);
    REQUIRE(same_bits(run(parts, arguments), interpret(made, arguments)));
    REQUIRE(work_is_done_once(parts));
    const std::int64_t simple = all_that_is_read(made, segment_of_result);
    REQUIRE(handed_on(parts) <= simple);
    crossing += handed_on(parts) > 0 ? 1 : 0;
    smaller += handed_on(parts) < simple ? 1 : 0;
    for (const instruction& i : made.code) with_loops += structure_of(i) == structure::region_begin ? 1 : 0;
  }
  // The sample has what the test is about.
  CHECK(with_loops > 50);
  CHECK(crossing > 100);
  CHECK(smaller > 30);
}

TEST_CASE("What is handed on takes the fewest bytes", "[program_cut]") {
  const extents large = extents_of({8, 4});
  const extents row = extents_of({4});
  const auto parts = [](int number) { return number; };
  const auto cut_here = [&](const builder& b) {
    return cut(b.result(), segments_by_results(b.result(), parts), 0, {2, 2, 1});
  };
  const auto handed_on = [](const cut_graph& made) {
    std::vector<extents> shapes;
    for (const instruction& i : made.early.code)
      if (structure_of(i) == structure::result && number_of(i) >= 2) shapes.push_back(i.shape);
    return shapes;
  };
  SECTION("the row that is broadcast") {
    builder b;
    const int x = emit::argument(b, type, row, 0);
    const int root = b.append(ops::sqrt, type, row, x);
    const int wide = emit::broadcast_to(b, root, large);
    const int y = b.append(ops::exp, type, large, wide);
    emit::result(b, y, 0);
    emit::result(b, b.append(ops::tanh, type, large, wide), 1);
    const auto shapes = handed_on(cut_here(b));
    REQUIRE(shapes.size() == 1);
    CHECK(shapes[0] == row);
  }
  SECTION("a mask rather than the numbers it is made of") {
    builder b;
    const int x = emit::argument(b, type, large, 0);
    const int z = b.append(ops::tanh, type, large, x);
    const int y = b.append(ops::exp, type, large, z);
    emit::result(b, y, 0);
    const int mask = emit::compare(b, ops::less, z, emit::constant_like(b, z, 0));
    emit::result(b, emit::keep_where(b, mask, emit::argument(b, type, large, 1)), 1);
    const cut_graph made = cut_here(b);
    REQUIRE(handed_on(made).size() == 1);
    for (const instruction& i : made.early.code)
      if (structure_of(i) == structure::result && number_of(i) == 2) CHECK(i.type == dtype::boolean);
  }
  SECTION("but nothing where the mask follows from the result") {
    builder b;
    const int x = emit::argument(b, type, large, 0);
    const int y = b.append(ops::relu, type, large, x);
    emit::result(b, y, 0);
    const int mask = emit::compare(b, ops::less_equal, y, emit::constant_like(b, y, 0));
    emit::result(b, emit::drop_where(b, mask, emit::argument(b, type, large, 1)), 1);
    const cut_graph made = cut_here(b);
    CHECK(handed_on(made).empty());
    bool reads_result = false;
    for (const instruction& i : made.late.code)
      reads_result = reads_result || (structure_of(i) == structure::argument && number_of(i) == 2 + 0);
    CHECK(reads_result);
  }
  SECTION("never an argument") {
    builder b;
    const int x = emit::argument(b, type, large, 0);
    emit::result(b, b.append(ops::exp, type, large, x), 0);
    emit::result(b, b.append(ops::tanh, type, large, x), 1);
    CHECK(handed_on(cut_here(b)).empty());
  }
}

TEST_CASE("A loop stays whole in the first part that needs it", "[program_cut]") {
  builder b;
  const extents shape = extents_of({3});
  const int x = emit::argument(b, type, shape, 0);
  emit::region_begin(b, 4, false, false);
  const int carry = emit::region_parameter(b, x);
  const int next = b.append(ops::tanh, type, shape, carry);
  const int passed = emit::region_yield(b, carry, next);
  emit::region_end(b);
  emit::result(b, emit::region_result(b, passed), 0);
  emit::result(b, b.append(ops::exp, type, extents_of({4, 3}), emit::loop_stack(b, next)), 1);
  const graph g = run_passes(passes_on_tensors, mesh_shape{}, b.result());
  const cut_graph made = cut(g, segments_by_results(g, [](int number) { return number; }), 0, {1, 2, 1});
  const auto loops = [](const graph& one) {
    return std::count_if(one.code.begin(), one.code.end(),
                         [](const instruction& i) { return structure_of(i) == structure::region_begin; });
  };
  CHECK(loops(made.early) == 1);
  CHECK(loops(made.late) == 0);
  // The stack is handed on, not the loop repeated.
  CHECK(std::count_if(made.early.code.begin(), made.early.code.end(), [](const instruction& i) {
          return structure_of(i) == structure::result && number_of(i) == 2 && i.shape == extents_of({4, 3});
        }) == 1);
}
