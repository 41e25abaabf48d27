// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: passes

#include <espalier/tensor/core/partition/scheduler.hpp>

#include <support/instrumented.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <string>

/// Partitioning and scheduling go on where an earlier constant evaluation stopped: wherever that was, the outcome is
/// that of one go.
namespace {

using namespace espalier;
using namespace espalier::test;

constexpr int most = 1024;

std::string text_of(graph_view g) {
  std::string text;
  const auto add = [&](auto value) { text += std::to_string(value) + ' '; };
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    text += i.op->name;
    for (int d = 0; d < i.shape.rank; ++d) add(i.shape[d]);
    for (int k = 0; k < i.operand_count; ++k) add(g.operand_at(i, k));
    for (const std::int64_t a : i.attribute) add(a);
    add(i.scalar);
    add(i.region);
    add(i.origin);
    const sharding& placed = g.annotations[i.annotation].placement;
    add(placed.unreduced);
    for (int d = 0; d < placed.rank; ++d) add(placed.dim[d].code());
    text += '\n';
  }
  return text;
}

spmd_program completed_case(std::uint32_t seed) {
  random_source random(seed);
  random_graph_options options;
  options.instructions = random.integer(10, 40);
  options.loops = true;
  options.gradients = random.chance(0.5);
  options.irregular = random.chance(0.5);
  options.more_ops = true;
  options.mesh = mesh_of(random.one_of(std::vector<std::vector<int>>{{2, 2}, {4}, {1, 2}, {2, 3}}));
  options.annotated = 0.4;
  return completed_program(options.mesh, random_graph(random, options).code.result());
}

}  // namespace

TEST_CASE("a graph partitioned in parts comes out as in one go", "[partition]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, espalier::test::tried_cases(40))));
  const spmd_program made = completed_case(seed);
  const graph_view g = made.traced;
  REQUIRE(g.size <= most);
  const factor_rule* const rules = made.rules.data();
  const sharding* const of = made.of.data();
  const partitioned whole = partition(made.mesh, g, rules, of);
  REQUIRE(whole.program.code.size() <= most);
  CAPTURE(seed);
  using progress = detail::partition_progress<most, most>;
  for (int cut = 0; cut <= g.size; ++cut) {
    auto state = std::make_unique<progress>();
    {
      detail::partitioner first(made.mesh, g, rules, of);
      first.run(0, cut);
      *state = first.save<most, most>();
    }
    REQUIRE(state->program.fits);
    detail::partitioner second(made.mesh, g, rules, of, *state);
    second.run(cut, g.size);
    const partitioned parts = second.finish();
    REQUIRE(parts.fault == whole.fault);
    REQUIRE(text_of(parts.program) == text_of(whole.program));
    for (int id = 0; id < whole.origin.size(); ++id) REQUIRE(parts.origin[id] == whole.origin[id]);
  }
}

TEST_CASE("too little room for a part is noticed, and the size needed is told", "[partition]") {
  const spmd_program made = completed_case(3);
  const graph_view g = made.traced;
  detail::partitioner work(made.mesh, g, made.rules.data(), made.of.data());
  work.run(0, g.size);
  const auto state = work.save<most, 4>();
  CHECK_FALSE(state.program.fits);
  CHECK(state.program.size == partition(made.mesh, g, made.rules.data(), made.of.data()).program.code.size());
}

TEST_CASE("a schedule made in parts comes out as in one go", "[partition]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, espalier::test::tried_cases(40))));
  const spmd_program made = merged_program(partitioned_program(completed_case(seed).mesh, completed_case(seed).traced));
  const graph_view g = made.parts.program;
  REQUIRE(g.size <= most);
  const schedule whole = make_schedule(g);
  CAPTURE(seed);
  for (int cut = 0; cut < g.size; ++cut) {
    auto state = std::make_unique<detail::schedule_progress<most>>();
    {
      detail::scheduler first(g);
      first.run(0, cut);
      *state = first.save<most>();
    }
    detail::scheduler second(g, *state);
    second.run(cut, g.size);
    const schedule parts = second.finish();
    REQUIRE(parts.launches.size() == whole.launches.size());
    REQUIRE(parts.order.size() == whole.order.size());
    for (int n = 0; n < whole.order.size(); ++n) REQUIRE(parts.order[n] == whole.order[n]);
    for (int u = 0; u < whole.launches.size(); ++u) {
      REQUIRE(parts.launches[u].first == whole.launches[u].first);
      REQUIRE(parts.launches[u].count == whole.launches[u].count);
      REQUIRE(parts.launches[u].fused == whole.launches[u].fused);
    }
    for (int id = 0; id < g.size; ++id) {
      REQUIRE(parts.launch_of[id] == whole.launch_of[id]);
      REQUIRE(parts.role[id] == whole.role[id]);
      REQUIRE(parts.stored[id] == whole.stored[id]);
    }
  }
}
