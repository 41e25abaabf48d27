// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: never
// together: rules

#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

// The partitioner's results for single ops whose tensors are placed in every way (the numbers are those of XLA's
// partitioner tests as listed in GSPMD's reference): the collectives, and the same numbers as on one device.

namespace {

using namespace espalier;
using namespace espalier::test;

/// "all_gather(x), all_reduce(xy)": kinds and axes alone.
std::string kinds_of(const spmd_program& program) {
  static const std::string names = "xyzwstuv";
  std::string text;
  for (const collective_use& use : program.collectives) {
    text += (text.empty() ? "" : ", ") + std::string(name_of(use.kind)) + "(";
    for (int a = 0; a < max_axes; ++a) {
      if (has_axis(use.axes, a)) text += names[static_cast<std::size_t>(a)];
    }
    text += ")";
  }
  return text;
}

TEST_CASE("an einsum's collectives follow from where its operands and result are") {
  struct einsum_case {
    const char* formula;
    std::vector<std::int64_t> left, right;
    const char* left_at;
    const char* right_at;
    const char* result_at;
    std::vector<int> mesh;
    const char* expected;
  };
  const std::vector<einsum_case> cases{
      // 26, 27: batch
      {"bij,bjk->bik", {4, 3, 5}, {4, 5, 2}, "x,_,_", "x,_,_", "x,_,_", {2}, ""},
      {"bij,bjk->bik", {5, 3, 5}, {5, 5, 2}, "x,_,_", "_,_,_", "x,_,_", {2}, ""},
      // 28: contracting dimensions, two of them: one joint reduction
      {"ijkl,klm->ijm", {3, 4, 4, 6}, {4, 6, 5}, "_,_,x,y", "x,y,_", "_,_,_", {2, 2}, "all_reduce(xy)"},
      {"ijkl,klm->ijm", {3, 4, 5, 7}, {5, 7, 5}, "_,_,x,y", "x,y,_", "_,_,_", {2, 2}, "all_reduce(xy)"},
      // 29, 40: scattered, not reduced and sliced
      {"ik,kj->ij", {8, 8}, {8, 6}, "_,x", "x,_", "x,_", {4}, "reduce_scatter(x)"},
      {"ik,kj->ij", {7, 9}, {9, 6}, "_,x", "x,_", "_,x", {2}, "reduce_scatter(x)"},
      // 30: not contracted
      {"bik,bkj->bij", {3, 8, 4}, {3, 4, 4}, "_,x,_", "_,_,_", "_,x,_", {4}, ""},
      // 31: both gathered along their rows and columns
      {"ik,kj->ij", {8, 8}, {8, 8}, "x,y", "x,y", "x,y", {2, 2}, "all_gather(y), all_gather(x)"},
      // 34
      {"bik,bkj->bij", {4, 6, 4}, {4, 4, 6}, "x,y,_", "x,y,_", "x,y,_", {2, 2}, "all_gather(y)"},
      // 36
      {"bik,bkj->bij", {4, 6, 4}, {4, 4, 6}, "x,_,y", "x,_,y", "x,_,y", {2, 2}, "all_gather(y)"},
      // 37: batch and contracting
      {"bik,bkj->bij", {4, 6, 4}, {4, 4, 6}, "x,y,z", "x,z,_", "x,y,_", {2, 2, 2}, "all_reduce(z)"},
      // 41: left partial
      {"ik,kj->ij", {6, 8}, {8, 4}, "_,x", "x,_", "_,_!x", {2}, ""},
      {"ik,kj->ij", {6, 8}, {8, 4}, "y,x", "x,_", "y,_!x", {2, 2}, ""},
      // the worked example of section 4.4
      {"ab,bc->ac", {8, 8}, {8, 8}, "x,_", "x,y", "x,y", {2, 2}, "all_gather(x)"},
      // an outer product, on both its axes at once
      {"i,j->ij", {5}, {7}, "x", "y", "x,y", {2, 2}, ""},
  };
  for (const einsum_case& c : cases) {
    CAPTURE(c.formula, c.left_at, c.right_at, c.result_at, c.mesh);
    model m;
    random_source random(1);
    const auto place = [&](const std::vector<std::int64_t>& sizes, const char* at) {
      const extents shape = shape_of(sizes);
      const int id = emit::argument(m.b, dtype::f32, shape, static_cast<int>(m.arguments.size()));
      m.b[id].annotation = m.b.annotate(shape, sharding_of(at));
      m.arguments.push_back(random_tensor(random, shape));
      return id;
    };
    const int left = place(c.left, c.left_at);
    const int right = place(c.right, c.right_at);
    const int made = m.shard(m.einsum(c.formula, left, right), c.result_at);
    const bool partial = sharding_of(c.result_at).unreduced != 0;
    if (!partial) m.result(made);
    const int id = m.b.size();
    if (partial) m.result(m.shard(m.unary(ops::negate, made), c.result_at));
    CHECK(id > 0);
    const spmd_program program = partitioned_program(mesh_of(c.mesh), m.b.result());
    INFO(program.text());
    // A result that leaves the program is whole: its reduction comes last.
    std::string kinds = kinds_of(program);
    if (partial) {
      REQUIRE(kinds == "all_reduce(x)");
      REQUIRE(program.parts.program.code[program.parts.program.code.size() - 1].op == &ops::result);
      REQUIRE(communicates(program.parts.program.code[program.parts.program.code.size() - 2]));
    } else {
      REQUIRE(kinds == c.expected);
    }
    REQUIRE(fault_of(program, interpret(m.b.result(), m.arguments), m.arguments) == "");
  }
}

TEST_CASE("work that no tensor's axes split is split where putting its result together costs less") {
  const auto product = [](std::int64_t k) {
    model m;
    const int x = m.argument({64, k}, "_,_");
    m.result(m.shard(m.einsum("ik,kj->ij", x, m.argument({k, 64}, "_,_")), "_,_"));
    return m;
  };
  // An eighth of the work is left, and 7/8 of the result travel.
  const spmd_program large = run_on({2, 4}, product(8192));
  CAPTURE(large.summary());
  CHECK(large.total_bytes() == 64 * 64 * 4 * 7 / 8);
  std::int64_t work = 0;
  const graph_view local = large.parts.program;
  for (int id = 0; id < local.size; ++id) {
    if (local[id].op->facts.contracts) work += local[id].op->flops(graph_view(local).view(id));
  }
  CHECK(work == 2 * 64 * 64 * 8192 / 8);
  // If little is gained, nothing is sent that was not asked for.
  CHECK(run_on({2, 4}, product(1024)).collectives.empty());
  // So is what waits for memory, however large.
  model sum;
  sum.result(sum.shard(sum.sum(sum.argument({2048, 1024}, "_,_"), 1), "_"));
  CHECK(run_on({2, 4}, sum).collectives.empty());
}

TEST_CASE("a change of layout is one step where one will do") {
  struct layout_case {
    std::vector<std::int64_t> shape;
    const char* from;
    const char* to;
    std::vector<int> mesh;
    const char* expected;
  };
  const std::vector<layout_case> cases{
      {{4, 6}, "x,_", "_,_", {2}, "all_gather(x)"},              // 1
      {{8, 2}, "x,_", "_,x", {2}, "all_to_all(x)"},              // 4
      {{7, 31, 8}, "_,x,_", "x,_,_", {2}, "all_to_all(x)"},      // 5
      {{4, 4}, "x,y", "x,_", {2, 2}, "all_gather(y)"},           // 8
      {{4, 4}, "x,_", "x,y", {2, 2}, ""},                        // 9
      {{8, 8}, "_,x", "y,x", {2, 4}, ""},                        // 11
      {{8, 8}, "x,y", "y,x", {2, 2}, "collective_permute(xy)"},  // 17
      {{19, 19}, "x,y", "y,x", {2, 2}, "collective_permute(xy)"},
      {{64, 256}, "x,y", "y,x", {2, 4}, "exchange(xy)"},
      {{19, 19}, "x,y", "_,x", {2, 2}, "exchange(xy)"},
      {{8, 8}, "x,y", "_,_", {2, 2}, "all_gather(xy)"},
  };
  for (const layout_case& c : cases) {
    CAPTURE(c.from, c.to, c.mesh);
    model m;
    m.result(m.reshard(m.argument(c.shape, c.from), c.to));
    m.b[m.b.size() - 1].annotation = -1;
    const spmd_program program = run_on(c.mesh, m);
    // The result itself is in the layout asked for: nothing more happens.
    CHECK(kinds_of(program) == c.expected);
  }
}

TEST_CASE("layouts whose axes change places move what each device lacks") {
  model turned;
  turned.result(turned.reshard(turned.argument({64, 256}, "x,y"), "y,x"));
  const spmd_program swap = run_on({2, 4}, turned);
  CHECK(kinds_of(swap) == "exchange(xy)");
  CHECK(swap.total_bytes() == 8192);
  // A tensor and its transpose: 256 / 2 x 256 / 4 elements of 4 bytes.
  model m;
  const int a = m.argument({256, 256}, "x,y");
  m.result(m.shard(m.add(a, m.transpose(a, {1, 0})), "x,y"));
  const spmd_program symmetric = run_on({2, 4}, m);
  CAPTURE(symmetric.summary());
  CHECK(symmetric.collectives.size() == 1);
  CHECK(symmetric.total_bytes() == 32768);
}

TEST_CASE("elementwise ops, sources, transpositions and broadcasts work where they are") {
  for (const std::int64_t n : {8, 3}) {
    model m;
    const int a = m.argument({n, n}, "x,_"), b = m.argument({n, n});
    const int sum = m.shard(m.add(a, b), "x,_");                           // 20
    const int index = emit::iota(m.b, dtype::i32, extents_of({n, n}), 0);  // 22
    const int large =
        emit::select(m.b, emit::compare(m.b, ops::less, index, emit::constant_like(m.b, index, 2)), sum, a);
    const int turned = m.shard(m.transpose(large, {1, 0}), "_,x");
    const int wide = m.shard(emit::broadcast_along(m.b, b, extents_of({4, n, n}), 1), "y,x,_");  // 21
    m.result(turned);
    m.result(wide);
    const spmd_program program = run_on({2, 2}, m);
    CHECK(kinds_of(program) == "");
  }
}

TEST_CASE("reductions fill padding with what changes nothing, integers too") {
  for (const reduction kind : {reduction::sum, reduction::prod, reduction::max, reduction::min}) {
    for (const std::int64_t n : {8, 5, 3}) {
      for (const std::vector<int>& mesh : {std::vector<int>{2}, {4}, {8}, {2, 2}, {2, 4}}) {
        CAPTURE(name_of(kind), n, mesh);
        model m;
        const int x = m.argument({n, 3, n}, mesh.size() > 1 ? "x,_,y" : "x,_,_");
        const int whole = m.indices({n, 4}, 5, "x,_");
        m.result(emit::reduce(m.b, kind, x, 7));  // 23
        m.result(emit::reduce(m.b, kind, x, 5));
        m.result(emit::reduce(m.b, kind, whole, 1));
        m.result(emit::reduce(m.b, kind, x, 2));  // 24
        const spmd_program program = run_on(mesh, m);
        CHECK(program.count(collective::all_reduce) == static_cast<std::int64_t>(program.collectives.size()));
        CHECK(program.collectives.size() == 3);
      }
    }
  }
}

TEST_CASE("a table split by rows adds up lookups, and takes updates where they belong") {
  for (const std::int64_t rows : {8, 17, 3}) {
    for (const std::vector<int>& mesh : {std::vector<int>{2, 1}, {4, 1}, {2, 2}, {4, 2}}) {
      CAPTURE(rows, mesh);
      const axis_mask both = mesh[1] > 1 ? x_axis | y_axis : x_axis;
      model m;
      const int table = m.argument({rows, 6}, "xy,_");
      const int index = m.indices({5}, static_cast<int>(rows) + 2);  // some outside of the table
      m.result(emit::gather(m.b, table, index, 0));                  // 66
      const spmd_program gather = run_on(mesh, m);
      CHECK(gather.count(collective::all_reduce, both) == 1);
      CHECK(gather.collectives.size() == 1);

      model s;
      const int updates = s.argument({5, 6});
      const int at = s.indices({5}, static_cast<int>(rows) + 2);
      s.result(s.shard(emit::scatter_add(s.b, extents_of({rows, 6}), at, updates, 0), "xy,_"));  // 68
      const spmd_program scatter = run_on(mesh, s);
      // Only the result, which has no annotation, follows the annotation.
      CHECK(kinds_of(scatter) == "");

      model t;
      const int terms = t.argument({8, 6}, "x,_");
      const int some = t.indices({8}, static_cast<int>(rows), "x");
      t.result(t.shard(emit::scatter_add(t.b, extents_of({rows, 6}), some, terms, 0), "_,_"));  // 69
      const spmd_program index_split = run_on(mesh, t);
      CHECK(kinds_of(index_split) == "all_reduce(x)");
    }
  }
}

TEST_CASE("lookups pass through columns and indices without communication") {
  model m;
  const int table = m.argument({9, 6}, "_,x");
  const int index = m.indices({8, 3}, 9, "y,_");
  m.result(emit::gather(m.b, table, index, 0));  // 65
  CHECK(kinds_of(run_on({2, 2}, m)) == "");
  CHECK(kinds_of(run_on({4, 2}, m)) == "");
}

TEST_CASE("what is joined along a split dimension moves only to where it is missing") {
  // 60: rows of 32 bytes. Of the first tensor devices 1 to 3 send two each, of the second device 0 sends all three.
  for (const std::int64_t n : {8, 7}) {
    model m;
    const int a = m.argument({n, 8}, "x,_"), b = m.argument({n + 4, 8}, "x,_");
    const int parts[]{a, b};
    m.result(m.shard(emit::concat(m.b, &parts[0], 2, 0), "x,_"));
    const spmd_program program = run_on({4}, m);
    CAPTURE(n);
    CHECK(kinds_of(program) == "exchange(x), exchange(x)");
    if (n == 8) CHECK(program.summary() == "exchange(x) 64, exchange(x) 96");
  }
}

TEST_CASE("slices, pads, shifts and turns along a split dimension bring what is missing") {
  // 8 elements of 4 bytes on 4 devices, two each: what the device that sends most sends.
  struct window_case {
    const char* name;
    int (*apply)(builder&, int);
    const char* moves;
  };
  const window_case cases[]{
      // 53, 54: one element to a neighbour, as from a hand-written program.
      {"shift", [](builder& b, int x) { return emit::pad_around(b, x, 0, 1, -1, 0); }, "exchange(x) 4"},
      {"shift back", [](builder& b, int x) { return emit::pad_around(b, x, 0, -1, 1, 0); }, "exchange(x) 4"},
      {"roll", [](builder& b, int x) { return emit::roll(b, x, 0, 1); }, "exchange(x) 4"},
      // All change their device.
      {"reverse", [](builder& b, int x) { return emit::reverse(b, x, 0); }, "exchange(x) 8"},
      // Elements that are left out do not move: elements 0 and 1 stay, 2 and 3 are lost.
      {"lower half", [](builder& b, int x) { return emit::slice(b, x, 0, 0, 4); }, "exchange(x) 8"},
      // Every second one: device d has elements 2d and 2d + 1, its result is element 2d.
      {"every second", [](builder& b, int x) { return emit::slice(b, x, 0, 0, 4, 2); }, ""},
      {"with zeros between", [](builder& b, int x) { return emit::pad(b, x, 0, 0, 16, 2); }, ""},
  };
  for (const window_case& c : cases) {
    model m;
    m.result(m.shard(c.apply(m.b, m.argument({8}, "x")), "x"));
    const spmd_program program = run_on({4}, m);
    CAPTURE(c.name);
    CHECK(program.summary() == c.moves);
  }
}

TEST_CASE("reshapes split and merge dimensions in place where the split is even") {
  struct reshape_case {
    std::vector<std::int64_t> from, to;
    const char* at;
    const char* then;
    const char* expected;
  };
  const std::vector<reshape_case> cases{
      {{8, 6}, {2, 4, 6}, "x,_", "x,_,_", ""},
      {{8, 6}, {2, 4, 6}, "xy,_", "x,y,_", ""},
      {{2, 4, 6}, {8, 6}, "x,y,_", "xy,_", ""},
      {{5, 6}, {5, 2, 3}, "x,_", "x,_,_", ""},
      {{5, 6}, {5, 2, 3}, "x,y", "x,y,_", ""},
      {{6, 4, 8}, {8, 3, 8}, "_,_,x", "_,_,x", ""},  // the dimensions after the reordered ones pass
      {{8, 1, 3}, {8, 3}, "x,_,_", "x,_", ""},
      {{6}, {3, 2}, "x", "x,_", "exchange(x)"},  // an uneven one: what lies between the parts moves
      {{6}, {3, 2}, "x", "_,x", "exchange(x), all_to_all(x)"},
  };
  for (const reshape_case& c : cases) {
    CAPTURE(c.at, c.then);
    model m;
    m.result(m.shard(m.reshape(m.argument(c.from, c.at), c.to), c.then));
    CHECK(kinds_of(run_on({2, 2}, m)) == c.expected);
  }
}

TEST_CASE("pending sums pass through linear ops and are reduced once") {
  model m;
  const int a = m.argument({6, 8}, "_,x"), b = m.argument({8, 4}, "x,_");
  const int c = m.argument({6, 8}, "_,x"), d = m.argument({8, 4}, "x,_");
  const int sum = m.add(m.einsum("ik,kj->ij", a, b), m.einsum("ik,kj->ij", c, d));
  const int scaled = emit::scale(m.b, m.unary(ops::negate, m.transpose(sum, {1, 0})), 3);
  m.result(m.sum(scaled, 1));
  const spmd_program program = run_on({4}, m);
  CHECK(kinds_of(program) == "all_reduce(x)");
  // The all_reduce comes after the last sum, when it is smallest.
  CHECK(program.bytes(collective::all_reduce) == (6 + 2 * 2) * 4);
}

TEST_CASE("partials that are added to whole terms are added to each other first, and reduced once") {
  // x is whole, p, q, r: [rows, columns] are partials over the mesh. An all_reduce of n bytes over d devices sends
  // 2 n (d - 1) / d.
  enum class form { chain, chain_of_differences, tree, scaled, turned, ends_whole, one_partial, two_readers };
  struct sum_case {
    form what;
    int all_reduces;
  };
  const std::vector<sum_case> cases{
      {form::chain, 1},                 // ((x + p) + q) + r
      {form::chain_of_differences, 1},  // r - (q - (x - p))
      {form::tree, 1},                  // (x + p) + (y - q)
      {form::scaled, 1},                // (x + p) * 3 / y + q
      {form::turned, 1},                // transpose(x + p) + transpose(q)
      {form::ends_whole, 1},            // ((x + p) + y) + q) + x
      {form::one_partial, 1},           // (x + p) + y: in the order that it is written in
      {form::two_readers, 2},           // tanh(x + p) + ((x + p) + q): the first sum is needed
  };
  for (const std::vector<int>& mesh : {std::vector<int>{2}, {4}, {8}, {3}}) {
    for (const std::int64_t rows : {8, 5}) {
      for (const sum_case& c : cases) {
        CAPTURE(mesh, rows, static_cast<int>(c.what));
        model m;
        const auto partial = [&] {
          return m.einsum("ik,kj->ij", m.argument({rows, 16}, "_,x"), m.argument({16, 6}, "x,_"));
        };
        const int x = m.argument({rows, 6}), y = m.argument({rows, 6});
        const int first = m.add(x, partial());
        const auto subtract = [&](int a, int b) { return emit::subtract(m.b, a, b); };
        int sum = first;
        if (c.what == form::chain) sum = m.add(m.add(first, partial()), partial());
        if (c.what == form::chain_of_differences)
          sum = subtract(partial(), subtract(partial(), subtract(x, partial())));
        if (c.what == form::tree) sum = m.add(first, subtract(y, partial()));
        if (c.what == form::scaled) {
          const int by = m.add(m.multiply(y, y), emit::constant_like(m.b, y, 1));
          sum = m.add(emit::divide(m.b, emit::scale(m.b, first, 3), by), partial());
        }
        if (c.what == form::turned) sum = m.add(m.transpose(first, {1, 0}), m.transpose(partial(), {1, 0}));
        if (c.what == form::ends_whole) sum = m.add(m.add(m.add(first, y), partial()), x);
        if (c.what == form::one_partial) sum = m.add(first, y);
        if (c.what == form::two_readers) sum = m.add(m.unary(ops::tanh, first), m.add(first, partial()));
        m.result(m.unary(ops::tanh, sum));
        const spmd_program program = run_on(mesh, m);
        CHECK(program.count(collective::all_reduce) == c.all_reduces);
        CHECK(program.collectives.size() == static_cast<std::size_t>(c.all_reduces));
        if (48 * rows % mesh[0] == 0 && rows * 6 % mesh[0] == 0)
          CHECK(program.most_bytes() == c.all_reduces * 2 * (rows * 6 * 4 / mesh[0]) * (mesh[0] - 1));
      }
    }
  }
  // A result that is split over the axis of the partials: three reduce_scatters become one.
  model m;
  int sum = m.argument({8, 6}, "x,_");
  for (int n = 0; n < 3; ++n)
    sum = m.add(sum, m.einsum("ik,kj->ij", m.argument({8, 16}, "_,x"), m.argument({16, 6}, "x,_")));
  m.result(m.shard(m.unary(ops::tanh, sum), "x,_"));
  const spmd_program program = run_on({4}, m);
  CHECK(kinds_of(program) == "reduce_scatter(x)");
  CHECK(program.most_bytes() == 8 * 6 * 4 / 4 * 3);
}

TEST_CASE("a partial that is wanted in finer shards after elementwise ops is scattered to them") {
  enum class form { plain, norm, shifted, two_terms, also_whole, also_product };
  struct scatter_case {
    form what;
    const char* expected;
  };
  const std::vector<scatter_case> cases{
      {form::plain, "reduce_scatter(x)"},                   // g * 3
      {form::norm, "reduce_scatter(x), all_reduce(x)"},     // g * sum(g * g)
      {form::shifted, "reduce_scatter(x), all_reduce(x)"},  // (g + w) * sum((g + w) * (g + w)), w: whole
      {form::two_terms, "reduce_scatter(x)"},               // ((w + g) + h) * 3, h: another partial
      {form::also_whole, "all_reduce(x)"},                  // g * 3, and g itself is a result
      {form::also_product, "all_reduce(x)"},                // g * 3, and g times its transpose, of the same size
  };
  for (const std::vector<int>& mesh : {std::vector<int>{2}, {4}, {8}, {3}}) {
    for (const std::int64_t rows : {8, 5}) {
      for (const scatter_case& c : cases) {
        CAPTURE(mesh, rows, c.expected);
        model m;
        const int w = m.argument({rows, 6}, "_,_");
        const int terms = m.einsum("ik,kj->ij", m.argument({rows, 16}, "_,x"), m.argument({16, 6}, "x,_"));
        int g = emit::match(m.b, terms, w);
        if (c.what == form::shifted) g = m.add(g, w);
        if (c.what == form::two_terms) {
          const int more = m.einsum("ik,kj->ij", m.argument({rows, 8}, "_,x"), m.argument({8, 6}, "x,_"));
          g = m.add(m.add(w, terms), more);
        }
        int scaled = emit::scale(m.b, g, 3);
        if (c.what == form::norm || c.what == form::shifted) scaled = m.multiply(g, m.total(m.multiply(g, g)));
        m.result(m.unary(ops::tanh, m.reshard(scaled, "x,_")));
        if (c.what == form::also_whole) m.result(g);
        if (c.what == form::also_product) m.result(m.einsum("ij,kj->ik", g, g));
        CHECK(kinds_of(run_on(mesh, m)) == c.expected);
      }
    }
  }
}

TEST_CASE("small all_reduces that wait together move as one") {
  struct merge_case {
    std::vector<std::vector<std::int64_t>> shapes;  // each is summed over its first dimension
    const char* at;
    bool chained;  // each sum reads the one before
    int expected;
  };
  const std::vector<merge_case> cases{
      {{{8, 3}, {8, 5}}, "x,_", false, 1},
      {{{8, 3}, {4, 5}, {8, 7}, {8, 1}, {12, 2}, {8, 6}}, "x,_", false, 1},
      {{{8, 3}, {8, 5}, {8, 7}}, "x,_", true, 3},                 // the next needs the last
      {{{8, 3}, {8, 2000}, {8, 5000}, {8, 5}}, "x,_", false, 2},  // 20 kB go alone
      {{{8, 4}, {8, 6}, {8, 2}}, "x,y", false, 1},                // parts of sums
      {{{8, 4}, {8, 5}, {8, 7}, {8, 6}}, "x,y", false, 1},        // 5 and 7 split unevenly: what is real travels
      {std::vector<std::vector<std::int64_t>>(35, {8, 2}), "x,_", false, 1},
  };
  for (const merge_case& c : cases) {
    CAPTURE(c.shapes.size(), c.at, c.chained);
    model m;
    int before = -1;
    std::vector<int> sums;
    for (const std::vector<std::int64_t>& shape : c.shapes) {
      int x = m.argument(shape, c.at);
      if (c.chained && before >= 0) x = m.multiply(x, m.total(m.unary(ops::tanh, before)));
      before = m.sum(x, 1);
      sums.push_back(before);
    }
    for (const int sum : sums) m.result(sum);
    CHECK(run_merged_on({2, 2}, m).count(collective::all_reduce) == c.expected);
  }
  // Sums over other axes, and maxima, wait by themselves.
  model m;
  std::vector<int> found;
  for (const char* at : {"x,_", "y,_"}) {
    for (int n = 0; n < 2; ++n) found.push_back(m.sum(m.argument({8, 3 + n}, at), 1));
  }
  for (int n = 0; n < 2; ++n) found.push_back(emit::reduce(m.b, reduction::max, m.argument({8, 5}, "x,_"), 1));
  for (const int one : found) m.result(one);
  CHECK(run_merged_on({2, 2}, m).count(collective::all_reduce) == 3);
}

TEST_CASE("collectives of a kind that are ready together move as one") {
  struct move_case {
    collective kind;
    const char* from;
    const char* to;
  };
  const std::vector<move_case> cases{{collective::all_gather, "x,_", "_,_"},
                                     {collective::all_gather, "x,y", "x,_"},
                                     {collective::all_to_all, "x,_", "_,x"},
                                     {collective::collective_permute, "x,y", "y,x"},
                                     {collective::exchange, "xy,_", "y,x"}};
  for (const auto& [kind, from, to] : cases) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{8, 4}, {7, 4}, {5, 3}}) {
      for (const int times : {1, 2, 6, 35}) {
        CAPTURE(name_of(kind), from, to, shape, times);
        model m;
        std::vector<int> moved;
        for (int n = 0; n < times; ++n) moved.push_back(m.reshard(m.argument(shape, from), to));
        for (const int one : moved) m.result(m.unary(ops::tanh, one));
        const spmd_program apart = run_on({2, 2}, m);
        const spmd_program merged = run_merged_on({2, 2}, m);
        CAPTURE(apart.summary(), merged.summary());
        CHECK(apart.collectives.size() == static_cast<std::size_t>(times));
        CHECK(merged.collectives.size() == 1);
        CHECK(merged.count(kind) == 1);
        // Elements that a device lacks come once. (An exchange counts the most of all devices, maybe different ones.)
        CHECK((shape[0] == 8 ? merged.total_bytes() == apart.total_bytes()
                             : merged.total_bytes() <= apart.total_bytes()));
      }
    }
  }
  // Partial sums are scattered together.
  model scattered;
  std::vector<int> sums;
  for (int n = 0; n < 3; ++n) {
    sums.push_back(scattered.shard(
        scattered.einsum("ik,kj->ij", scattered.argument({4, 6}, "_,x"), scattered.argument({6, 8 + n / 2}, "x,_")),
        "x,_"));
  }
  for (const int one : sums) scattered.result(scattered.unary(ops::tanh, one));
  CHECK(run_on({2, 2}, scattered).count(collective::reduce_scatter) == 3);
  CHECK(run_merged_on({2, 2}, scattered).count(collective::reduce_scatter) == 1);  // the third has another shape

  // One of another shape; one that is computed from another, one over another axis, one that is large.
  const auto gathered = [](auto second) {
    model m;
    const int first = m.reshard(m.argument({8, 4}, "x,_"), "_,_");
    const int other = second(m, first);
    m.result(m.unary(ops::tanh, first));
    m.result(m.unary(ops::tanh, other));
    return run_merged_on({2, 2}, m).collectives.size();
  };
  CHECK(gathered([](model& m, int /*first*/) { return m.reshard(m.argument({8, 4}, "x,_"), "_,_"); }) == 1);
  CHECK(gathered([](model& m, int /*first*/) { return m.reshard(m.argument({3, 5, 2}, "_,x,_"), "_,_,_"); }) == 1);
  CHECK(gathered([](model& m, int first) {
          const int sum = m.add(m.argument({8, 4}, "x,_"), m.shard(m.unary(ops::exp, first), "x,_"));
          return m.reshard(m.shard(sum, "x,_"), "_,_");
        }) == 2);
  CHECK(gathered([](model& m, int /*first*/) { return m.reshard(m.argument({8, 4}, "y,_"), "_,_"); }) == 2);
  model large;
  for (int n = 0; n < 2; ++n) {
    large.result(large.unary(ops::tanh, large.reshard(large.argument({8, 4096}, "x,_"), "_,_")));
  }
  CHECK(run_merged_on({2, 2}, large).count(collective::all_gather) == 2);
  // Each is small, but not all together.
  model many;
  for (int n = 0; n < 40; ++n) {
    many.result(many.unary(ops::tanh, many.reshard(many.argument({8, 500}, "x,_"), "_,_")));
  }
  CHECK(run_merged_on({2, 2}, many).count(collective::all_gather) == 2);
}

TEST_CASE("exchanges of what windows need travel together where they bring little") {
  // `count` tensors, each without its first element along dimension `dim`, which is split; how many exchanges that
  // takes.
  const auto shortened = [](int count, int dim, std::int64_t rows, std::int64_t columns) {
    model m;
    const char* const at = dim == 0 ? "x,_" : "_,x";
    std::vector<int> arguments;
    for (int n = 0; n < count; ++n) {
      const std::int64_t more = 4 * n;
      arguments.push_back(dim == 0 ? m.argument({rows + more, columns}, at) : m.argument({rows, columns + more}, at));
    }
    for (const int x : arguments) {
      m.result(m.shard(m.unary(ops::tanh, emit::slice(m.b, x, dim, 1, m.b[x].shape[dim] - 1)), at));
    }
    const spmd_program apart = run_on({2, 2}, m);
    const spmd_program merged = run_merged_on({2, 2}, m);
    CHECK(merged.total_bytes() <= apart.total_bytes());
    CHECK(apart.count(collective::exchange) >= count);
    return merged.count(collective::exchange);
  };
  CHECK(shortened(3, 0, 8, 5) == shortened(1, 0, 8, 5));
  CHECK(shortened(3, 1, 5, 8) == shortened(1, 1, 5, 8));
  // Rows of large tensors can stay where they are, with those of the neighbours around them. Others are as many large
  // buffers at once: a few are worth it. Rows may be large themselves.
  CHECK(shortened(3, 0, 4096, 5) == shortened(1, 0, 4096, 5));
  CHECK(shortened(3, 1, 5, 4096) == shortened(1, 1, 5, 4096));
  CHECK(shortened(30, 1, 5, 4096) > shortened(1, 1, 5, 4096));
  CHECK(shortened(3, 0, 8, 4096) == 3 * shortened(1, 0, 8, 4096));

  // The parts of a join go there in two exchanges for one reader, however large its operands.
  model joined;
  const int parts[]{joined.argument({8, 3}, "x,_"), joined.argument({12, 3}, "x,_")};
  joined.result(joined.shard(emit::concat(joined.b, &parts[0], 2, 0), "x,_"));
  CHECK(run_on({2, 2}, joined).count(collective::exchange) == 2);
  CHECK(run_merged_on({2, 2}, joined).count(collective::exchange) == 1);
}

TEST_CASE("small all_reduces move as one whatever order the program is written in") {
  // Each is read at once, by what only a result is computed from.
  model updates;
  for (int n = 0; n < 5; ++n) {
    const int sum = updates.sum(updates.argument({8, 3 + n}, "x,_"), 1);
    updates.result(updates.unary(ops::exp, updates.add(updates.unary(ops::tanh, sum), updates.argument({3 + n}))));
  }
  CHECK(run_merged_on({2, 2}, updates).count(collective::all_reduce) == 1);

  // More than one collective takes: those that come forward for a reader fill it.
  model many;
  for (int n = 0; n < 40; ++n) {
    const int sum = many.sum(many.argument({8, 4000 + n}, "x,_"), 1);
    many.result(many.unary(ops::exp, many.add(many.unary(ops::tanh, sum), many.argument({4000 + n}))));
  }
  CHECK(run_merged_on({2, 2}, many).count(collective::all_reduce) == 2);

  // The first's reader reads something large, too: the second comes forward, for it is little work.
  model forward;
  const int large = forward.argument({8, 4096}, "x,_");
  const int one = forward.sum(forward.argument({8, 3}, "x,_"), 1);
  const int scaled = forward.multiply(large, forward.total(forward.unary(ops::tanh, one)));
  const int two = forward.sum(forward.unary(ops::exp, forward.argument({8, 5}, "x,_")), 1);
  forward.result(forward.unary(ops::exp, scaled));
  forward.result(forward.unary(ops::exp, two));
  CHECK(run_merged_on({2, 2}, forward).count(collective::all_reduce) == 1);

  // The second takes much to compute, but the first's reader can wait until the end.
  model late;
  late.result(late.unary(ops::exp, late.sum(late.argument({8, 3}, "x,_"), 1)));
  late.result(late.unary(ops::exp, late.sum(late.unary(ops::exp, late.argument({8, 4096}, "x,_")), 3)));
  CHECK(run_merged_on({2, 2}, late).count(collective::all_reduce) == 1);

  // The first's reader would keep one large value while the other is computed: two it is.
  model memory;
  for (int n = 0; n < 2; ++n) {
    const int x = memory.unary(ops::exp, memory.argument({8, 4096}, "x,_"));
    const int sum = memory.total(memory.unary(ops::tanh, memory.sum(x, 1)));
    memory.result(memory.sum(memory.unary(ops::exp, memory.multiply(x, sum)), 2));
  }
  CHECK(run_merged_on({2, 2}, memory).count(collective::all_reduce) == 2);

  // Over the other axis the second sum follows the first, and with the third nothing waits for it.
  model kinds;
  const int a = kinds.unary(ops::tanh, kinds.sum(kinds.argument({8, 4}, "x,_"), 1));
  const int b = kinds.sum(kinds.multiply(kinds.argument({8, 4}, "y,_"), a), 1);
  kinds.result(kinds.unary(ops::exp, b));
  kinds.result(kinds.unary(ops::exp, kinds.sum(kinds.argument({8, 4}, "x,_"), 1)));
  CHECK(run_merged_on({2, 2}, kinds).count(collective::all_reduce) == 2);

  // A sum and what it is divided by, a sum over the same devices.
  model mean;
  const int x = mean.argument({8, 3}, "x,_");
  const int weight = mean.argument({8}, "x");
  const int total = mean.sum(mean.multiply(mean.transpose(x, {1, 0}), weight), 2);
  const int weights = emit::broadcast_to(mean.b, mean.unary(ops::exp, mean.sum(weight, 1)), shape_of({3}));
  mean.result(mean.b.append(ops::divide, dtype::f32, shape_of({3}), total, weights));
  CHECK(run_merged_on({2, 2}, mean).count(collective::all_reduce) == 1);
}

TEST_CASE("small all_reduces wait for a loop that does not read them, and move as one inside") {
  for (const bool reads : {false, true}) {
    CAPTURE(reads);
    model m;
    builder& b = m.b;
    const int sum = m.sum(m.argument({8, 3}, "x,_"), 1);
    const int x = m.argument({8, 3}, "x,_");
    const int state = m.argument({3});
    emit::region_begin(b, 4, false, false);
    const int carry = emit::region_parameter(b, state);
    const int other = emit::region_parameter(b, state);
    const int product = m.multiply(x, m.unary(ops::tanh, reads ? m.add(carry, sum) : carry));
    const int next = emit::region_yield(b, carry, m.sum(product, 1));
    const int other_next = emit::region_yield(b, other, m.sum(m.multiply(product, other), 1));
    emit::region_end(b);
    const int last = m.sum(m.multiply(x, emit::region_result(b, next)), 1);
    for (const int one : {sum, last, emit::region_result(b, other_next)}) m.result(one);
    const spmd_program program = run_merged_on({2}, m);
    // One in each iteration, the last, and the first with it if it may wait so long.
    CHECK(program.count(collective::all_reduce) == (reads ? 6 : 5));
    // The values that the body passes on are together at its end, after the collective, and nothing else is in it.
    const graph_view code = program.parts.program;
    int loop = -1;
    for (int id = 0; id < code.size; ++id) {
      if (code[id].op == &ops::region_begin) {
        loop = id;
        continue;
      }
      if (code[id].op == &ops::region_end) {
        CHECK((code[id - 1].op == &ops::region_yield && code[id - 2].op == &ops::region_yield));
        loop = -1;
      }
      CHECK(code[id].region == loop);
    }
  }
}

TEST_CASE("a sum that only a loop's body reads is reduced once, before the loop") {
  model m;
  const int sum = m.sum(m.argument({8, 3}, "x,_"), 1);
  const int state = m.argument({3});
  emit::region_begin(m.b, 4, false, false);
  const int carry = emit::region_parameter(m.b, state);
  const int next = emit::region_yield(m.b, carry, m.unary(ops::tanh, m.multiply(sum, carry)));
  emit::region_end(m.b);
  m.result(emit::region_result(m.b, next));
  CHECK(run_on({2}, m).count(collective::all_reduce) == 1);
}

TEST_CASE("the gradient of what a loop's body slices is reduced once, behind the loop") {
  // With a factor that changes the pieces cannot leave the loop, but their partial sums can.
  for (const bool changing : {false, true}) {
    CAPTURE(changing);
    model m;
    builder& b = m.b;
    const int w = m.argument({8, 4});
    const int factors = m.argument({5, 8, 4});
    const int state = m.argument({6, 4}, "x,_");
    emit::region_begin(b, 5, false, false);
    const int carry = emit::region_parameter(b, state);
    const int all = changing ? m.multiply(w, emit::loop_slice(b, factors)) : w;
    int sum = carry;
    for (int n = 0; n < 2; ++n) {
      sum = m.unary(ops::tanh, m.einsum("bi,io->bo", sum, emit::slice(b, all, 0, 4 * n, 4)));
    }
    const int next = emit::region_yield(b, carry, sum);
    emit::region_end(b);
    m.train(m.mean(emit::region_result(b, next)), {w});
    CHECK(run_on({2}, m).count(collective::all_reduce) == 2);
    CHECK(run_merged_on({2}, m).count(collective::all_reduce) == 1);
  }
}

TEST_CASE("a sum that the user keeps pending is not reduced behind his back") {
  const auto faulty = [](const op_info& op, bool partial) {
    model m;
    const int a = m.argument({6, 8}, partial ? "_,x" : "_,_"), b = m.argument({8, 4}, partial ? "x,_" : "_,_");
    m.result(m.unary(op, m.shard(m.einsum("ik,kj->ij", a, b), "_,_!x")));
    return partitioned_program(mesh_of({2}), m.b.result()).parts.fault;
  };
  CHECK(faulty(ops::negate, true) == partition_fault::nothing);
  CHECK(faulty(ops::tanh, true) == partition_fault::partial_sum_dropped);
  CHECK(faulty(ops::negate, false) == partition_fault::no_partial_sum);
  // Not for another one's sake either.
  model share;
  const int terms = share.argument({8, 3}, "x,_");
  const int whole = share.unary(ops::exp, share.sum(terms, 3));
  const int parts = share.multiply(share.sum(terms, 1), whole);
  share.result(share.unary(ops::negate, share.shard(parts, "_!x")));
  CHECK(partitioned_program(mesh_of({2}), share.b.result()).parts.fault == partition_fault::nothing);
  // Nor is its gradient refused, when the sum is carried out where he says.
  model trained;
  const int weights = trained.argument({8, 4}, "x,_");
  const int terms_of = trained.shard(trained.einsum("ik,kj->ij", trained.argument({6, 8}, "_,x"), weights), "_,_!x");
  trained.train(trained.total(trained.unary(ops::tanh, trained.reshard(terms_of, "_,_"))), {weights});
  CHECK(run_on({2}, trained).count(collective::all_reduce) == 1);
  // If another op reads the sum, it gets it whole.
  model m;
  const int a = m.argument({6, 8}, "_,x"), b = m.argument({8, 4}, "x,_");
  const int product = m.einsum("ik,kj->ij", a, b);
  m.result(m.unary(ops::tanh, product));
  m.result(m.sum(m.shard(product, "_,_!x"), 3));
  CHECK(run_on({2}, m).count(collective::all_reduce) == 2);
}

TEST_CASE("carries are laid out as the body keeps them, whatever came before") {
  for (const std::int64_t n : {8, 5}) {
    model m;
    const int x = m.argument({n, 6}, "_,x"), w = m.argument({6, 6}, "_,y");
    const int ones = emit::constant_like(m.b, x, 1);
    emit::region_begin(m.b, 3, false, false);
    const int one = emit::region_parameter(m.b, x);
    const int two = emit::region_parameter(m.b, ones);
    const int h = m.shard(m.unary(ops::tanh, m.einsum("bm,mh->bh", one, w)), "x,y");
    const int mixed = m.add(h, two);
    const int out = m.sum(mixed, 1);
    const int next_one = emit::region_yield(m.b, one, two);  // handed over crosswise
    const int next_two = emit::region_yield(m.b, two, mixed);
    emit::region_end(m.b);
    m.result(emit::region_result(m.b, next_one));
    m.result(emit::region_result(m.b, next_two));
    m.result(emit::loop_stack(m.b, out));
    m.result(emit::loop_sum(m.b, out));
    static_cast<void>(run_on({2, 2}, m));
    static_cast<void>(run_on({4, 2}, m));
    static_cast<void>(run_on({2, 1}, m));
  }
}

}  // namespace
