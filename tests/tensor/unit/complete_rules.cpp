// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never
// together: rules

#include <espalier/testing/random_program_graph.hpp>
#include <support/spmd_check.hpp>
#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// Completion as a function of its own (GSPMD section 3.5): what every value's sharding becomes from a few annotations.

namespace {

using namespace espalier;
using namespace espalier::test;

/// The shardings after completion, by the ids of the graph under construction.
class completed_shardings {
 public:
  completed_shardings(const std::vector<int>& sizes, const model& m) {
    const mesh_shape mesh = mesh_of(sizes);
    const graph_view g = m.b.result();
    std::vector<factor_rule> rules;
    for (int id = 0; id < g.size; ++id) rules.push_back(g[id].op->factors(g.view(id)));
    of_.resize(static_cast<std::size_t>(g.size));
    cause_.resize(static_cast<std::size_t>(g.size));
    complete(mesh, g, rules.data(), of_.data(), cause_.data());
  }
  /// Axes alone: "[x,_]".
  [[nodiscard]] std::string operator[](int id) const {
    sharding s = of_[static_cast<std::size_t>(id)];
    s.open = 0;
    return text_of(s);
  }
  [[nodiscard]] int cause(int id) const { return cause_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<sharding> of_;
  std::vector<int> cause_;
};

TEST_CASE("shardings go through elementwise ops both ways") {
  model m;
  const int a = m.argument({8, 6}), b = m.argument({8, 6});
  const int sum = m.add(a, b);
  const int shown = m.shard(m.unary(ops::tanh, sum), "x,_");
  const int after = m.unary(ops::exp, shown);
  m.result(after);
  const completed_shardings s({2}, m);
  CHECK(s[a] == "[x,_]");
  CHECK(s[b] == "[x,_]");
  CHECK(s[sum] == "[x,_]");
  CHECK(s[after] == "[x,_]");
  CHECK(s.cause(shown) == shown);
  CHECK(s.cause(after) == shown);
}

TEST_CASE("annotations are never changed, and closed dimensions stop what comes") {
  model m;
  const int a = m.argument({8, 6}, "x,_"), b = m.argument({8, 6}, "_,y");
  const int whole = m.shard(m.add(a, b), "_,_");
  const int open = m.shard(m.add(a, b), "?,?");
  const int some = m.shard(m.add(a, b), "x?,?|y");
  m.result(whole);
  m.result(open);
  m.result(some);
  const completed_shardings s({2, 2}, m);
  CHECK(s[a] == "[x,_]");
  CHECK(s[b] == "[_,y]");
  CHECK(s[whole] == "[_,_]");
  CHECK(s[open] == "[x,y]");
  CHECK(s[some] == "[x,_|y]");
}

TEST_CASE("an einsum merges what its operands say") {
  model m;
  const int a = m.argument({8, 6}, "y,_"), b = m.argument({6, 4}, "_,x");
  const int c = m.einsum("ab,bc->ac", a, b);  // Figure 3: AyB, BCx -> AyCx
  m.result(c);
  CHECK(completed_shardings({2, 2}, m)[c] == "[y,x]");

  model batch;
  const int d = batch.argument({8, 4, 6}, "x,_,_"), e = batch.argument({8, 6, 4});
  const int f = batch.einsum("bij,bjk->bik", d, e);
  batch.result(f);
  const completed_shardings s({2}, batch);
  CHECK(s[e] == "[x,_,_]");
  CHECK(s[f] == "[x,_,_]");
}

TEST_CASE("longer lists win over their prefixes; contradictions keep what they have in common") {
  model m;
  const int a = m.argument({8, 6}, "x,_"), b = m.argument({8, 6}, "xy,_"), c = m.argument({8, 6}, "xz,_");
  const int finer = m.add(a, b);
  const int torn = m.add(b, c);
  m.result(finer);
  m.result(torn);
  const completed_shardings s({2, 2, 2}, m);
  CHECK(s[finer] == "[xy,_]");
  CHECK(s[torn] == "[x,_]");
}

TEST_CASE("an axis splits one dimension of a tensor only") {
  model m;
  const int a = m.argument({8, 6}, "x,_"), b = m.argument({6, 4}, "_,x");
  const int c = m.einsum("ab,bc->ac", a, b);
  m.result(c);
  CHECK(completed_shardings({2}, m)[c] == "[x,_]");
}

TEST_CASE("elementwise ops come before einsums") {
  model m;
  const int a = m.argument({8, 6}, "x,_"), b = m.argument({6, 8}), c = m.argument({8, 8}, "_,x");
  const int product = m.einsum("ab,bc->ac", a, b);
  const int sum = m.add(product, c);
  m.result(sum);
  CHECK(completed_shardings({2}, m)[sum] == "[_,x]");
}

TEST_CASE("broadcasts carry shardings back before they carry them on") {
  // Figure 4: were the bias's sharding carried on first, the larger tensor would have to communicate.
  model m;
  const int bias = m.argument({8});
  const int wide = emit::broadcast_to(m.b, bias, extents_of({4, 8}));
  const int x = m.argument({4, 8}, "_,x");
  const int sum = m.add(x, wide);
  m.result(sum);
  const completed_shardings back({2}, m);
  CHECK(back[bias] == "[x]");
  CHECK(back[wide] == "[_,x]");

  model first;
  const int small = first.argument({8}, "x");
  const int large = emit::broadcast_to(first.b, small, extents_of({4, 8}));
  const int other = first.argument({4, 8}, "x,_");
  const int both = first.add(other, large);
  first.result(both);
  CHECK(completed_shardings({2}, first)[both] == "[x,_]");

  // If no other op says anything, they do carry them on.
  model last;
  const int only = last.argument({8}, "x");
  const int repeated = emit::broadcast_to(last.b, only, extents_of({4, 8}));
  const int any = last.argument({4, 8});
  const int total = last.add(any, repeated);
  last.result(total);
  const completed_shardings forward({2}, last);
  CHECK(forward[total] == "[_,x]");
  CHECK(forward[any] == "[_,x]");
}

TEST_CASE("reshapes carry splits of whole factors, and uneven ones of the outermost") {
  model m;
  const int a = m.argument({8, 6}, "xy,_");
  const int split = m.reshape(a, {2, 4, 6});
  const int merged = m.reshape(split, {8, 6});
  m.result(merged);
  const completed_shardings s({2, 2}, m);
  CHECK(s[split] == "[x,y,_]");
  CHECK(s[merged] == "[xy,_]");

  model odd;
  const int b = odd.argument({6, 5}, "x,_");
  const int reordered = odd.reshape(b, {3, 2, 5});
  const int kept = odd.reshape(odd.argument({5, 7}, "x,_"), {5, 1, 7});
  // Elements 0 to 3 of 6 are not whole rows of either factor.
  const int inner = odd.reshape(odd.argument({2, 6}, "_,x"), {12});
  // Neither extent divides the other.
  const int blocked = odd.reshape(odd.argument({6, 4}, "x,_"), {8, 3});
  odd.result(reordered);
  odd.result(inner);
  odd.result(blocked);
  odd.result(kept);
  const completed_shardings t({2}, odd);
  CHECK(t[reordered] == "[x,_,_]");
  CHECK(t[inner] == "[_]");
  CHECK(t[blocked] == "[_,_]");
  CHECK(t[kept] == "[x,_,_]");
}

TEST_CASE("loops carry shardings in, around and out") {
  model m;
  const int x = m.argument({8, 6}), w = m.argument({3, 6, 6});
  emit::region_begin(m.b, 3, false, false);
  const int carry = emit::region_parameter(m.b, x);
  const int layer = emit::loop_slice(m.b, w);
  const int h = m.einsum("bm,mh->bh", carry, m.shard(layer, "y,_"));
  const int next = emit::region_yield(m.b, carry, h);
  emit::region_end(m.b);
  const int out = emit::region_result(m.b, next), stack = emit::loop_stack(m.b, h);
  m.result(m.shard(out, "x,_"));
  m.result(stack);
  const completed_shardings s({2, 2}, m);
  // The weights' y comes back through the contraction, and around the loop.
  CHECK(s[out] == "[x,y]");
  CHECK(s[h] == "[x,y]");
  CHECK(s[stack] == "[_,x,y]");
  CHECK(s[w] == "[_,y,_]");
  CHECK(s[x].substr(0, 2) == "[x");
}

TEST_CASE("gradients and results in an argument's place are laid out like it") {
  model m;
  const int x = m.argument({8, 6}, "x,_"), w = m.argument({6, 4}, "_,y");
  const int loss = m.mean(m.einsum("bm,mh->bh", x, w));
  const int gradient = m.gradients(loss, {w})[0];
  const int stepped = emit::subtract(m.b, w, gradient);
  m.result(stepped, w);
  const completed_shardings s({2, 2}, m);
  CHECK(s[gradient] == "[_,y]");
  CHECK(s[stepped] == "[_,y]");
}

TEST_CASE("completion comes to rest, whatever the annotations") {
  random_source random(11);
  for (int n = 0; n < 300; ++n) {
    random_graph_options options;
    options.instructions = 20;
    options.mesh = mesh_of({2, 2});
    options.annotated = 0.5;
    const random_program made = random_graph(random, options);
    const spmd_program program = completed_program(options.mesh, made.code.result());
    for (int id = 0; id < program.traced.code.size(); ++id) {
      const int annotation = program.traced.code[id].annotation;
      if (annotation < 0) continue;
      // Only what is left open may have been refined.
      const sharding& given = program.traced.annotations[annotation].placement;
      const sharding& now = program.of[static_cast<std::size_t>(id)];
      for (int d = 0; d < given.rank; ++d) {
        REQUIRE(now.dim[d].starts_with(given.dim[d]));
        if (!given.is_open(d)) REQUIRE(now.dim[d] == given.dim[d]);
        REQUIRE((now.dim[d].mask() & given.replicated) == 0);
      }
    }
  }
}

/// Completes as `complete` does, but visits every op in each sweep, whether anything changed or not.
void complete_by_visiting_all(const mesh_shape& mesh, graph_view g, const factor_rule* rules, sharding* of,
                              int* cause) {
  const auto size = static_cast<std::size_t>(g.size);
  const auto operands = static_cast<std::size_t>(count_operands(g));
  const auto forward = std::make_unique<bool[]>(size);
  const auto backward = std::make_unique<bool[]>(size);
  std::vector<int> first(size);
  std::vector<int> reader(operands);
  std::vector<int> next(operands);
  list_readers(g, first.data(), reader.data(), next.data());
  const completion_view state{of, cause, forward.get(), backward.get(), first.data(), reader.data(), next.data()};
  start_completion(g, state);
  for (int level = 0; level <= detail::last_level; ++level) {
    bool changed = true;
    while (changed) {
      std::fill_n(forward.get(), size, true);
      std::fill_n(backward.get(), size, true);
      changed = sweep_completion(mesh, g, rules, state, level).changed;
    }
  }
  refine_sums(g, rules, state);
}

TEST_CASE("completion visits all that have something to say") {
  const std::vector<std::vector<int>> meshes{{2}, {4}, {2, 2}, {4, 2}, {3, 2}, {2, 2, 2}};
  int refined = 0;
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    program_options options;
    options.mesh = mesh_of(meshes[seed % meshes.size()]);
    options.instructions = 10 + static_cast<int>(seed % 30);
    const graph traced = run_passes(passes_on_tensors, options.mesh, random_program_graph(seed, options));
    const graph_view g = traced;
    std::vector<factor_rule> rules;
    for (int id = 0; id < g.size; ++id) rules.push_back(g[id].op->factors(g.view(id)));
    const auto size = static_cast<std::size_t>(g.size);
    std::vector<sharding> of(size), expected(size);
    std::vector<int> cause(size), expected_cause(size);
    complete(options.mesh, g, rules.data(), of.data(), cause.data());
    complete_by_visiting_all(options.mesh, g, rules.data(), expected.data(), expected_cause.data());
    INFO("seed " << seed);
    REQUIRE(cause == expected_cause);
    for (std::size_t id = 0; id < size; ++id) {
      REQUIRE(text_of(of[id]) == text_of(expected[id]));
      refined += cause[id] >= 0 && cause[id] != static_cast<int>(id) ? 1 : 0;
    }
  }
  CHECK(refined > 5000);
}

}  // namespace
