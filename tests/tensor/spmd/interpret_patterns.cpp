// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/nn/losses.hpp>

#include <support/spmd_model.hpp>

#include <catch2/catch.hpp>

// GSPMD's parallelism patterns (section 3; Table 1, Figures 7 and 8), written as a user writes them, with even and
// uneven sizes: every one is run on all devices of a mesh and must compute what one device computes, with exactly the
// collectives that the pattern is known for.

namespace {

using namespace espalier;
using namespace espalier::test;

using collective::all_gather;
using collective::all_reduce;
using collective::all_to_all;
using collective::collective_permute;
using collective::reduce_scatter;

constexpr std::int64_t f32_bytes = 4;

/// Returns the bytes that one device sends of `elements` that are all reduced among n.
std::int64_t all_reduce_bytes(std::int64_t elements, std::int64_t n) {
  return (elements + ceil_div(elements, n) * (n - 2)) * f32_bytes;
}

/// Multi-head attention over x [batch, sequence, model]; `heads` annotates queries, keys and values.
int attention(model& m, int x, const std::vector<int>& weights, const std::string& heads = "") {
  int part[3]{};
  for (int k = 0; k < 3; ++k) {
    part[k] = m.einsum("bsm,mnd->bsnd", x, weights[static_cast<std::size_t>(k)]);
    if (!heads.empty()) part[k] = m.shard(part[k], heads);
  }
  const int scores = emit::hide_future(m.b, m.einsum("bqnd,bknd->bnqk", part[0], part[1]));
  const int mixed = m.einsum("bnqk,bknd->bqnd", emit::softmax(m.b, scores, 8), part[2]);
  return m.einsum("bsnd,ndm->bsm", mixed, weights[3]);
}

int square_mean(model& m, int x) { return m.mean(m.multiply(x, x)); }

TEST_CASE("data parallelism reduces each gradient once, and nothing else but the loss") {
  for (const std::int64_t batch : {8, 11}) {
    const std::int64_t in = 5, hidden = 7;
    model m;
    const int x = m.argument({batch, in}, "x,_");
    const int w1 = m.argument({in, hidden}), b1 = m.argument({hidden}), w2 = m.argument({hidden, in});
    const int h = m.relu(m.add(m.einsum("bm,mh->bh", x, w1), b1));
    m.train(square_mean(m, m.einsum("bh,hm->bm", h, w2)), {w1, b1, w2});
    for (const int n : {1, 2, 4, 8}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.count(all_reduce) == (n > 1 ? 4 : 0));
      CHECK(program.collectives.size() == (n > 1 ? 4U : 0U));
      if (n == 1) continue;
      const std::int64_t expected =
          2 * all_reduce_bytes(in * hidden, n) + all_reduce_bytes(hidden, n) + all_reduce_bytes(1, n);
      CHECK(program.total_bytes() == expected);
    }
  }
}

TEST_CASE("a Megatron MLP reduces once forward and once backward") {
  for (const std::int64_t hidden : {8, 13}) {
    const std::int64_t batch = 6, width = 10;
    model m;
    const int x = m.argument({batch, width});
    const int w1 = m.argument({width, hidden}), w2 = m.argument({hidden, width});
    const int h = m.shard(m.relu(m.einsum("bm,mh->bh", x, w1)), "?,x");
    m.train(square_mean(m, m.einsum("bh,hm->bm", h, w2)), {x, w1, w2});
    for (const int n : {2, 4}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.collectives.size() == 2);
      CHECK(program.count(all_reduce) == 2);
      CHECK(program.bytes(all_reduce) == 2 * all_reduce_bytes(batch * width, n));
    }
    // Data parallelism is on the other axis: the loss and both weights' gradients.
    m.b[x].annotation = m.b.annotate(m.b[x].shape, sharding_of("y,_"));
    const spmd_program both = run_on({2, 2}, m);
    CAPTURE(both.summary());
    CHECK(both.count(all_reduce, x_axis) == 2);
    CHECK(both.count(all_reduce, y_axis) == 3);
    CHECK(both.collectives.size() == 5);
  }
}

TEST_CASE("attention with sharded heads communicates only behind its output projection") {
  for (const std::int64_t heads : {4, 3}) {
    model m;
    const std::int64_t batch = 4, length = 6, width = 8, size = 3;
    const int x = m.argument({batch, length, width}, "y,_,_");
    std::vector<int> w;
    for (int k = 0; k < 3; ++k) w.push_back(m.argument({width, heads, size}));
    w.push_back(m.argument({heads, size, width}));
    m.train(square_mean(m, m.add(attention(m, m.normalised(x), w, "y,_,x,_"), x)), w);
    for (const std::vector<int>& sizes : {std::vector<int>{2}, {4}, {2, 2}, {2, 4}}) {
      const mesh_shape mesh = mesh_of({sizes[0], sizes.size() > 1 ? sizes[1] : 1});
      const spmd_program program = run_on({mesh.size[0], mesh.size[1]}, m);
      CAPTURE(program.summary());
      CHECK(program.count(all_reduce, x_axis) == 1);
      CHECK(program.bytes(all_reduce, x_axis) ==
            all_reduce_bytes(ceil_div(batch, mesh.size[1]) * length * width, mesh.size[0]));
      CHECK(program.count(all_reduce) == (mesh.size[1] > 1 ? 6 : 1));
      CHECK(program.collectives.size() == static_cast<std::size_t>(program.count(all_reduce)));
    }
  }
}

TEST_CASE("an embedding sharded by rows is looked up where the rows are") {
  for (const std::int64_t rows : {16, 19}) {
    model m;
    const std::int64_t width = 6;
    const int table = m.argument({rows, width}, "x,_");
    const int tokens = m.indices({4, 5}, static_cast<int>(rows));
    const int found = emit::gather(m.b, table, tokens, 0);
    m.result(found);
    m.train(square_mean(m, found), {table});
    for (const int n : {2, 4, 8}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      // Every device adds the gradients of its own rows: only the rows found are reduced, never the table gathered.
      CHECK(program.collectives.size() == 1);
      CHECK(program.bytes(all_reduce) == all_reduce_bytes(4 * 5 * width, n));
    }
  }
}

TEST_CASE("fully sharded weights are gathered layer by layer and their gradients scattered") {
  for (const bool recompute : {false, true}) {
    for (const std::int64_t width : {8, 7}) {
      const std::int64_t batch = 40, layers = 3;
      model m;
      const int x = m.argument({batch, width}, "x,_");
      const int w = m.argument({layers, width, width}, "_,x,_");
      emit::region_begin(m.b, layers, false, recompute);
      const int carry = emit::region_parameter(m.b, x);
      const int h = m.unary(ops::tanh, m.einsum("bm,mh->bh", carry, emit::loop_slice(m.b, w)));
      const int next = emit::region_yield(m.b, carry, h);
      emit::region_end(m.b);
      const int loss = square_mean(m, emit::region_result(m.b, next));
      m.result(loss);
      m.result(m.gradients(loss, {w})[0], w);
      for (const int n : {2, 4}) {
        const spmd_program program = run_on({n}, m);
        CAPTURE(program.summary());
        CHECK(program.count(all_gather) == 2 * layers);
        CHECK(program.count(reduce_scatter) == layers);
        CHECK(program.count(all_reduce) == 1);
        CHECK(program.collectives.size() == 4);
        // The stacked gradient is never whole on a device.
        const graph_view code = program.parts.program;
        for (int id = 0; id < code.size; ++id) {
          if (code[id].op == &ops::loop_stack && code[id].shape.rank == 3) {
            CHECK(code[id].shape.elements() < layers * batch * width);
          }
        }
      }
    }
  }
}

TEST_CASE("optimizer state sharded over data scatters gradients and gathers weights") {
  for (const std::int64_t width : {8, 9}) {
    const std::int64_t batch = 64;
    model m;
    const int x = m.argument({batch, width}, "x,_");
    const int w = m.argument({width, width}, "_,_"), momentum = m.argument({width, width}, "x,_");
    const int y = m.einsum("bm,mh->bh", x, w);
    const int loss = square_mean(m, y);
    const int gradient = m.gradients(loss, {w})[0];
    const int moved = m.add(emit::scale(m.b, momentum, 0.9), m.shard(gradient, "x,_"));
    m.result(loss);
    m.result(moved, momentum);
    m.result(emit::subtract(m.b, w, emit::scale(m.b, moved, 0.1)), w);
    for (const int n : {2, 4}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.count(reduce_scatter) == 1);
      CHECK(program.count(all_gather) == 1);
      CHECK(program.count(all_reduce) == 1);  // the loss
      CHECK(program.bytes(all_reduce) == all_reduce_bytes(1, n));
      CHECK(program.collectives.size() == 3);
    }
  }
}

/// One Transformer layer annotated like the last row of GSPMD's Table 1, on a mesh (x, y).
struct transformer {
  model m;
  int input = -1;
  int output = -1;
  std::vector<int> weights;

  explicit transformer(bool even) {
    const std::int64_t batch = even ? 8 : 7, length = 24, width = even ? 16 : 13, heads = 4, size = 4,
                       hidden = even ? 32 : 27;
    input = m.argument({batch, length, width}, "x,_,y");
    for (int k = 0; k < 3; ++k) weights.push_back(m.argument({width, heads, size}, "x,y,_"));
    weights.push_back(m.argument({heads, size, width}, "y,_,x"));
    weights.push_back(m.argument({width, hidden}, "x,y"));
    weights.push_back(m.argument({hidden, width}, "y,x"));
    int x = m.shard(attention(m, input, {weights[0], weights[1], weights[2], weights[3]}, "x,_,y,_"), "x,_,y");
    const int h = m.shard(m.relu(m.einsum("bsm,mh->bsh", x, weights[4])), "x,_,y");
    output = m.shard(m.einsum("bsh,hm->bsm", h, weights[5]), "x,_,y");
  }
};

TEST_CASE("the 2D finalized Transformer layer: weights along x, activations along y") {
  for (const bool even : {true, false}) {
    transformer t(even);
    t.m.result(t.output);
    for (const std::vector<int>& sizes : {std::vector<int>{2, 2}, {2, 4}, {4, 2}}) {
      const spmd_program program = run_on(sizes, t.m);
      CAPTURE(program.summary());
      CHECK(program.count(all_gather, x_axis) == 6);
      CHECK(program.count(all_gather, y_axis) == 2);
      CHECK(program.count(reduce_scatter, y_axis) == 2);
      CHECK(program.collectives.size() == 10);
    }
  }
  transformer t(true);
  t.m.train(square_mean(t.m, t.output), t.weights);
  const spmd_program program = run_on({2, 2}, t.m);
  CAPTURE(program.summary());
  CHECK(program.count(reduce_scatter, x_axis) == 6);
  CHECK(program.count(all_reduce) == 1);
  CHECK(program.count(all_to_all) + program.count(collective_permute) == 0);
}

TEST_CASE("experts on one axis with the batch switch between them by all_to_all") {
  for (const std::int64_t batch : {8, 7}) {
    const std::int64_t experts = 4, width = 6, hidden = 8;
    model m;
    const int x = m.argument({experts, batch, width}, "_,x,_");
    const int w1 = m.argument({experts, width, hidden}, "x,_,_"), w2 = m.argument({experts, hidden, width}, "x,_,_");
    const int h = m.shard(m.relu(m.einsum("ebm,emh->ebh", x, w1)), "x,_,_");
    const int y = m.shard(m.einsum("ebh,ehm->ebm", h, w2), "_,x,_");
    m.train(square_mean(m, y), {w1, w2});
    for (const int n : {2, 4}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.count(all_to_all) == 3);
      CHECK(program.count(all_reduce) == 1);
      CHECK(program.collectives.size() == 4);
    }
  }
}

TEST_CASE("cross entropy over a sharded vocabulary reduces one number a row, three times") {
  for (const std::int64_t vocabulary : {16, 21}) {
    const std::int64_t batch = 6, width = 5;
    model m;
    const int x = m.argument({batch, width});
    const int w = m.argument({width, vocabulary}, "_,x");
    const int targets = m.indices({batch}, static_cast<int>(vocabulary));
    const int logits = m.einsum("bm,mv->bv", x, w);
    m.train(m.mean(emit::cross_entropy(m.b, logits, targets)), {w});
    for (const int n : {2, 4}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.collectives.size() == 3);
      CHECK(program.bytes(all_reduce) == 3 * all_reduce_bytes(batch, n));
    }
  }
}

TEST_CASE("a tied embedding's two gradients are reduced as one") {
  for (const std::int64_t batch : {8, 6}) {
    const std::int64_t rows = 11, width = 6;
    model m;
    const int table = m.argument({rows, width});
    const int tokens = m.indices({batch, 3}, static_cast<int>(rows), "x,_");
    const int found = emit::gather(m.b, table, tokens, 0);
    const int logits = m.einsum("bsm,vm->bsv", m.unary(ops::tanh, found), table);
    m.train(m.mean(emit::cross_entropy(m.b, logits, tokens)), {table});
    for (const int n : {2, 4}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.count(all_reduce) == 2);
      CHECK(program.collectives.size() == 2);
      CHECK(program.bytes(all_reduce) == all_reduce_bytes(rows * width, n) + all_reduce_bytes(1, n));
    }
  }
}

TEST_CASE("a sharded sequence is reduced to what is left of it") {
  for (const std::int64_t length : {8, 11}) {
    const std::int64_t batch = 3, width = 5;
    model m;
    const int x = m.argument({batch, length, width}, "_,x,_");
    const int w = m.argument({width, width});
    const int pooled = m.sum(m.einsum("bsm,mh->bsh", m.normalised(x), w), 2);
    const int highest = emit::reduce(m.b, reduction::max, x, 2);
    const int lowest = emit::reduce(m.b, reduction::min, x, 6);
    m.result(highest);
    m.result(lowest);
    m.train(square_mean(m, pooled), {w});
    for (const int n : {2, 4, 8}) {
      const spmd_program program = run_on({n}, m);
      CAPTURE(program.summary());
      CHECK(program.count(all_reduce) == 4);
      CHECK(program.collectives.size() == 4);
    }
  }
}

TEST_CASE("sums, extrema and recurrences along a split dimension start from what the parts before carry on") {
  using test_kind = std::pair<cumulation, bool>;
  for (const std::int64_t rows : {16, 13, 5}) {
    for (const auto& [kind, reverse] :
         {test_kind{cumulation::sum, false}, test_kind{cumulation::prod, true}, test_kind{cumulation::max, true},
          test_kind{cumulation::min, false}, test_kind{cumulation::recurrence, false},
          test_kind{cumulation::late_recurrence, true}}) {
      model m;
      const int x = m.argument({rows, 3}, "xy,_"), y = m.argument({rows, 3});
      const bool recurs = kind >= cumulation::recurrence;
      const cumulate_attributes how{0, kind, reverse, false};
      const int made = recurs ? emit::recurrence(m.b, x, y, how) : emit::cumulate(m.b, x, how);
      m.train(square_mean(m, made), {x});
      for (const std::vector<int>& sizes : {std::vector<int>{2, 1}, {4, 1}, {2, 2}, {2, 3}}) {
        CHECK(!run_on(sizes, m).collectives.empty());
      }
    }
  }
}

TEST_CASE("nobody annotates, nobody communicates") {
  model m;
  const int x = m.argument({6, 5}), w = m.argument({5, 7});
  m.train(square_mean(m, m.relu(m.einsum("bm,mh->bh", m.normalised(x), w))), {w});
  for (const std::vector<int>& sizes : {std::vector<int>{2}, {8}, {2, 4}}) {
    const spmd_program program = run_on(sizes, m);
    CHECK(program.collectives.empty());
    for (const layout& l : program.parts.program.annotations) CHECK(l.placement.tiled() == 0);
  }
}

TEST_CASE("a mesh of one device runs the program as if nobody had annotated it") {
  transformer t(false);
  t.m.train(square_mean(t.m, t.output), t.weights);
  const graph annotated = run_on({1, 1}, t.m).parts.program;
  for (layout& l : t.m.b.result().annotations) l.placement = sharding::all_open(l.shape.rank);
  const graph plain = run_on({1, 1}, t.m).parts.program;
  REQUIRE(annotated.code.size() == plain.code.size());
  for (int id = 0; id < plain.code.size(); ++id) {
    CAPTURE(id, plain.code[id].op->name);
    CHECK(annotated.code[id].op == plain.code[id].op);
    CHECK(annotated.code[id].shape == plain.code[id].shape);
    CHECK(annotated.code[id].op != &ops::local_slice);
    for (int k = 0; k < plain.code[id].operand_count; ++k) {
      CHECK(graph_view(annotated).operand_at(annotated.code[id], k) == graph_view(plain).operand_at(plain.code[id], k));
    }
  }
}

TEST_CASE("what a loop reads from outside is laid out before it") {
  for (const std::int64_t width : {8, 7}) {
    const std::int64_t batch = 64;
    model m;
    const int x = m.argument({batch, width}, "x,_");
    const int w = m.argument({width, width}, "_,x");
    emit::region_begin(m.b, 5, false, false);
    const int carry = emit::region_parameter(m.b, x);
    const int h = m.shard(m.unary(ops::tanh, m.einsum("bm,mh->bh", carry, w)), "x,_");
    const int next = emit::region_yield(m.b, carry, h);
    emit::region_end(m.b);
    m.train(square_mean(m, emit::region_result(m.b, next)), {w});
    const spmd_program program = run_on({4}, m);
    CAPTURE(program.summary());
    // One gather of the weights for all iterations of both loops, one reduction of the summed gradient.
    CHECK(program.count(all_gather) == 1);
    CHECK(program.count(reduce_scatter) == 1);
    CHECK(program.count(all_reduce) == 1);
    CHECK(program.collectives.size() == 3);
  }
}

}  // namespace
