// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// together: random_programs

#include <espalier/testing/naive.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

/// Checks the generator of random programs: it draws well-formed programs, the same ones everywhere, and all that it
/// promises.
namespace {

using namespace espalier;
using namespace espalier::test;

/// A number that differs where two graphs do.
constexpr std::uint64_t fingerprint(graph_view g) {
  std::uint64_t hash = 14695981039346656037U;
  const auto mix = [&](std::int64_t x) { hash = (hash ^ static_cast<std::uint64_t>(x)) * 1099511628211U; };
  for (int id = 0; id < g.size; ++id) {
    const instruction& i = g[id];
    for (const char* letter = i.op->name; *letter != '\0'; ++letter) mix(*letter);
    mix(static_cast<int>(i.type));
    for (int d = 0; d < i.shape.rank; ++d) mix(i.shape[d]);
    for (const int operand : i.operand) mix(operand);
    for (const std::int64_t attribute : i.attribute) mix(attribute);
    mix(static_cast<std::int64_t>(i.scalar * 1e6));
    mix(i.region);
    mix(i.annotation);
  }
  return hash;
}

constexpr program_options small(numbers kind) {
  program_options options;
  options.kind = kind;
  options.instructions = 8;
  options.loops = 0.3;
  options.gradients = 1;
  return options;
}

template <std::uint32_t Seed, numbers Kind> struct evaluated {
  static constexpr int size = random_program_graph(Seed, small(Kind)).code.size();
  static constexpr std::uint64_t print = fingerprint(random_program_graph(Seed, small(Kind)));
};
static_assert(evaluated<1, numbers::smooth>::size > 20);
static_assert(evaluated<2, numbers::whole>::size > 20);

program_options options_of(std::uint32_t seed, numbers kind) {
  static const std::vector<std::vector<int>> meshes{{2}, {4}, {8}, {2, 2}, {2, 4}, {2, 2, 2}, {3}, {3, 2}, {1, 2}, {5}};
  program_options options;
  options.kind = kind;
  options.mesh = mesh_of(meshes[seed % meshes.size()]);
  return options;
}

bool close(const std::vector<tensor_value>& one, const std::vector<tensor_value>& other, double tolerance) {
  if (one.size() != other.size()) return false;
  for (std::size_t r = 0; r < one.size(); ++r) {
    if (!(one[r].shape == other[r].shape) || one[r].data.size() != other[r].data.size()) return false;
    double scale = 1;
    for (const double x : one[r].data) scale = std::max(scale, std::abs(x));
    for (std::size_t i = 0; i < one[r].data.size(); ++i) {
      const bool same = one[r].data[i] == other[r].data[i];
      if (!same && !(std::abs(one[r].data[i] - other[r].data[i]) <= tolerance * scale)) return false;
    }
  }
  return true;
}

/// Returns the value before ops that hand it on as it is.
int source_of(graph_view g, int id) {
  while (g[id].op == &ops::copy || g[id].op == &ops::stop_gradient || g[id].op == &ops::reshape) id = g[id].operand[0];
  return id;
}

/// Counts what a program has of the things that a program can do to its loops, arguments and results.
class census {
 public:
  std::map<std::string, int> of;

  void take(graph_view g) {
    std::map<int, int> replaced;
    std::map<int, int> returned;
    std::vector<int> replaces(static_cast<std::size_t>(g.size), -1);
    std::vector<bool> read(static_cast<std::size_t>(g.size), false);
    for (int id = 0; id < g.size; ++id) {
      const instruction& i = g[id];
      ++of[i.op->name];
      ++of[name_of(i.type)];
      for (int k = 0; k < i.operand_count; ++k) read[static_cast<std::size_t>(g.operand_at(i, k))] = true;
      if (i.shape.rank == 6) ++of["six dimensions"];
      if (i.operand_count > inline_operands) ++of["many operands"];
      if (i.op == &ops::region_begin) loop(g, id);
      if (i.op == &ops::region_yield) next(g, id);
      if (i.op == &ops::loop_slice && g[source_of(g, i.operand[0])].op == &ops::loop_stack)
        ++of["a stack read by a loop"];
      if (i.op == &ops::loop_stack) stack(g, i.operand[0]);
      if (i.op != &ops::result) continue;
      if (++returned[i.operand[0]] == 2) ++of["a value returned twice"];
      if (g[i.operand[0]].op == &ops::argument) ++of["an argument returned"];
      if (g[i.operand[0]].op == &ops::constant) ++of["a constant returned"];
      if (g[i.operand[0]].op == &ops::iota) ++of["an index returned"];
      if (i.operand_count < 2) continue;
      // Only an argument may be donated, once, to a result like it.
      REQUIRE(g[i.operand[1]].op == &ops::argument);
      REQUIRE(g[i.operand[1]].shape == i.shape);
      REQUIRE(g[i.operand[1]].type == i.type);
      REQUIRE(++replaced[i.operand[1]] == 1);
      replaces[static_cast<std::size_t>(i.operand[1])] = source_of(g, i.operand[0]);
    }
    for (const auto& [argument, times] : replaced) donation(g, replaces, argument);
    for (int id = 0; id < g.size; ++id) {
      if (g[id].op == &ops::argument && !read[static_cast<std::size_t>(id)]) ++of["an argument that nobody reads"];
    }
  }

 private:
  void loop(graph_view g, int id) {
    int depth = 1;
    for (int l = g[id].region; l >= 0; l = g[l].region) ++depth;
    ++of["loops at depth " + std::to_string(depth)];
    const region_attributes attributes = attributes_of<region_attributes>(g[id]);
    ++of["loops of " + std::to_string(attributes.iterations)];
    if (attributes.reverse) ++of["backwards"];
    if (attributes.recompute) ++of["recomputed"];
    bool slices = false;
    std::map<int, int> passed;
    for (int k = id; k < g.size; ++k) {
      if (g[k].region != id) continue;
      slices = slices || g[k].op == &ops::loop_slice;
      if (g[k].op == &ops::region_yield && ++passed[g[k].operand[1]] == 2) ++of["a value for two carries"];
    }
    if (!slices) ++of["loops without slices"];
  }
  void next(graph_view g, int id) {
    const int carry = g[id].operand[0];
    const int value = source_of(g, g[id].operand[1]);
    if (value == carry) ++of["a carry unchanged"];
    if (g[value].region != g[id].region) ++of["a value from outside handed on"];
    if (value == carry || g[value].op != &ops::region_parameter || g[value].region != g[id].region) return;
    ++of["a carry as another one"];
    if (!(g[value].shape == g[carry].shape)) ++of["a carry as another one of another shape"];
    for (int k = 0; k < g.size; ++k) {
      if (g[k].op != &ops::region_yield || g[k].operand[0] != value) continue;
      const int back = source_of(g, g[k].operand[1]);
      if (back == carry) ++of["two carries exchanged"];
      if (back != carry && back != value && g[back].op == &ops::region_parameter) ++of["a delay line or a ring"];
    }
  }
  void stack(graph_view g, int value) {
    if (g[value].op == &ops::region_parameter) ++of["a carry stacked"];
    if (g[value].op == &ops::copy && g[g[value].operand[0]].region != g[value].region) ++of["an outside value stacked"];
  }
  void donation(graph_view g, const std::vector<int>& replaces, int argument) {
    const auto place = [&](int id) { return replaces[static_cast<std::size_t>(id)]; };
    ++of["an argument donated"];
    const int value = place(argument);
    if (value == argument) ++of["an argument in its own place"];
    if (value == argument || g[value].op != &ops::argument) return;
    ++of["an argument in another's place"];
    if (!(g[value].shape == g[argument].shape)) ++of["an argument's reshape in another's place"];
    if (place(value) == argument) ++of["two arguments swapped"];
    if (place(value) >= 0 && place(value) != value && place(place(value)) == argument) ++of["a ring of three"];
  }
};

}  // namespace

TEST_CASE("random programs are the same in a constant evaluation") {
  CHECK(evaluated<1, numbers::smooth>::print == fingerprint(random_program_graph(1, small(numbers::smooth))));
  CHECK(evaluated<2, numbers::whole>::print == fingerprint(random_program_graph(2, small(numbers::whole))));
  CHECK(evaluated<1, numbers::smooth>::print != fingerprint(random_program_graph(3, small(numbers::smooth))));
}

TEST_CASE("random programs have all that a program can have") {
  census found;
  for (std::uint32_t seed = 1; seed <= 2400; ++seed) {
    CAPTURE(seed);
    found.take(random_program_graph(seed, options_of(seed, seed % 2 == 0 ? numbers::smooth : numbers::whole)));
  }
  for (const char* const name : {"six dimensions",
                                 "many operands",
                                 "loops at depth 1",
                                 "loops at depth 2",
                                 "loops at depth 3",
                                 "loops at depth 4",
                                 "loops of 1",
                                 "backwards",
                                 "recomputed",
                                 "loops without slices",
                                 "a value for two carries",
                                 "a carry unchanged",
                                 "a value from outside handed on",
                                 "a carry as another one",
                                 "a carry as another one of another shape",
                                 "two carries exchanged",
                                 "a delay line or a ring",
                                 "a carry stacked",
                                 "an outside value stacked",
                                 "a stack read by a loop",
                                 "a value returned twice",
                                 "an argument returned",
                                 "a constant returned",
                                 "an index returned",
                                 "an argument that nobody reads",
                                 "an argument donated",
                                 "an argument in its own place",
                                 "an argument in another's place",
                                 "an argument's reshape in another's place",
                                 "two arguments swapped",
                                 "a ring of three",
                                 "f32",
                                 "f64",
                                 "bf16",
                                 "i32",
                                 "u32",
                                 "i64",
                                 "i8",
                                 "f16",
                                 "bool"}) {
    CAPTURE(name, found.of[name]);
    CHECK(found.of[name] >= 10);
  }
  for (const op_info* const op : {&ops::exp,
                                  &ops::log,
                                  &ops::sqrt,
                                  &ops::rsqrt,
                                  &ops::tanh,
                                  &ops::sigmoid,
                                  &ops::relu,
                                  &ops::silu,
                                  &ops::gelu,
                                  &ops::silu_slope,
                                  &ops::gelu_slope,
                                  &ops::argument,
                                  &ops::result,
                                  &ops::add,
                                  &ops::subtract,
                                  &ops::multiply,
                                  &ops::divide,
                                  &ops::negate,
                                  &ops::reduce_sum,
                                  &ops::broadcast,
                                  &ops::less,
                                  &ops::less_equal,
                                  &ops::equal,
                                  &ops::not_equal,
                                  &ops::logical_and,
                                  &ops::logical_or,
                                  &ops::logical_not,
                                  &ops::maximum,
                                  &ops::minimum,
                                  &ops::select,
                                  &ops::concat,
                                  &ops::top_k,
                                  &ops::further_result,
                                  &ops::put_along,
                                  &ops::constant,
                                  &ops::convert,
                                  &ops::einsum,
                                  &ops::gather,
                                  &ops::scatter_add,
                                  &ops::dynamic_slice,
                                  &ops::dynamic_update_slice,
                                  &ops::iota,
                                  &ops::random_bits,
                                  &ops::reduce,
                                  &ops::reshape,
                                  &ops::region_begin,
                                  &ops::loop_sum,
                                  &ops::copy,
                                  &ops::shard,
                                  &ops::reshard,
                                  &ops::match,
                                  &ops::sin,
                                  &ops::cos,
                                  &ops::tan,
                                  &ops::atan2,
                                  &ops::erf,
                                  &ops::erfc,
                                  &ops::erf_inv,
                                  &ops::expm1,
                                  &ops::log1p,
                                  &ops::pow,
                                  &ops::abs,
                                  &ops::sign,
                                  &ops::clamp,
                                  &ops::is_finite,
                                  &ops::floor,
                                  &ops::ceil,
                                  &ops::trunc,
                                  &ops::round,
                                  &ops::remainder,
                                  &ops::total_less,
                                  &ops::total_less_equal,
                                  &ops::total_equal,
                                  &ops::bitwise_and,
                                  &ops::bitwise_or,
                                  &ops::bitwise_xor,
                                  &ops::bitwise_not,
                                  &ops::shift_left,
                                  &ops::shift_right_logical,
                                  &ops::shift_right_arithmetic,
                                  &ops::bit_cast,
                                  &ops::slice,
                                  &ops::pad,
                                  &ops::softmax,
                                  &ops::standardise,
                                  &ops::stop_gradient,
                                  &ops::transpose,
                                  &ops::convolution,
                                  &ops::convolution_input_gradient,
                                  &ops::convolution_filter_gradient,
                                  &ops::sum_pool,
                                  &ops::max_pool,
                                  &ops::pool_equal,
                                  &ops::spread_equal}) {
    CAPTURE(op->name, found.of[op->name]);
    CHECK(found.of[op->name] >= 10);
  }
}

TEST_CASE("random programs of whole numbers are exact in every type") {
  int exact = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    program_options options;
    options.kind = numbers::whole;
    options.gradients = seed % 2 == 0 ? 1 : 0;
    const graph g = random_program_graph(seed, options);
    const std::vector<tensor_value> data = random_program_arguments(g, seed, options.kind);
    const naive_outcome found = naive_run(g, data);
    if (options.gradients == 0) REQUIRE(found.is_exact);
    exact += found.is_exact ? 1 : 0;
    // A bf16 gradient is no longer exact, nor is one that was divided.
    const naive_outcome stored = naive_run(g, data, naive_storage::typed);
    REQUIRE(close(found.results, stored.results, found.is_exact ? 0 : 0x1p-6));
    REQUIRE(close(found.results, interpret(g, data), found.is_exact ? 0 : 1e-9));
  }
  CHECK(exact > 250);
}

TEST_CASE("gradients of random programs are what differences say") {
  int compared = 0;
  int nonzero = 0;
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    program_options options;
    options.gradients = 1;
    options.stop_gradients = false;
    options.instructions = 12;
    program_generator generator(seed, options);
    graph g = generator.make();
    const program_generator::derivatives& made = generator.differentiated();
    REQUIRE(made.without_rule == -1);
    // Only the loss and its gradients, in this order.
    for (instruction& i : g.code) {
      if (i.op == &ops::result) i.op = &ops::copy;
    }
    builder b;
    b.result() = g;
    emit::result(b, made.loss, 0);
    for (int k = 0; k < made.gradients.size(); ++k) emit::result(b, made.gradients[k], k + 1);
    const std::vector<tensor_value> data = random_program_arguments(b.result(), seed, options.kind);
    const std::vector<tensor_value> exact = naive_interpret(b.result(), data);
    b.result() = g;
    emit::result(b, made.loss, 0);
    for (int k = 0; k < made.by.size(); ++k) {
      // The gradient is by an argument, or by the name for it that all others use.
      const int wanted = made.by[k];
      const bool is_name =
          g.code[wanted].op == &ops::reshape && g.code[g.code[wanted].operand[0]].shape == g.code[wanted].shape;
      const int argument = is_name ? g.code[wanted].operand[0] : wanted;
      if (g.code[argument].op != &ops::argument) continue;
      const auto number = static_cast<std::size_t>(attributes_of<border_attributes>(g.code[argument]).number);
      const std::vector<double>& gradient = exact[static_cast<std::size_t>(k) + 1].data;
      for (std::size_t at = 0; at < gradient.size(); at += 1 + gradient.size() / 3) {
        std::vector<tensor_value> moved = data;
        const auto loss_at = [&](double step) {
          moved[number].data[at] = data[number].data[at] + step;
          return naive_interpret(b.result(), moved)[0].data[0];
        };
        const double step = 1e-5;
        const double difference = (loss_at(step) - loss_at(-step)) / (2 * step);
        const double scale = std::max({1.0, std::abs(exact[0].data[0]), std::abs(difference)});
        ++compared;
        nonzero += gradient[at] != 0 ? 1 : 0;
        if (std::abs(gradient[at] - difference) <= 1e-5 * scale) continue;
        CAPTURE(seed, k, number, at, gradient[at], difference, exact[0].data[0]);
        CHECK(false);
      }
    }
  }
  CHECK(compared > 1000);
  CHECK(nonzero > 400);
}

TEST_CASE("values of random programs that are to be laid out alike are") {
  int pairs = 0;
  int split = 0;
  int followers = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const numbers kind = seed % 2 == 0 ? numbers::smooth : numbers::whole;
    program_options options = options_of(seed / 2, kind);
    options.alike = 0.4;
    options.priorities = seed % 3 == 0 ? 2 : 0;
    const graph g = random_program_graph(seed, options);
    const spmd_program program = completed_program(options.mesh, g);
    for (int id = 0; id < program.traced.code.size(); ++id) {
      const instruction& i = program.traced.code[id];
      if ((i.op != &ops::shard_as && i.op != &ops::shard_like) || i.operand_count < 2) continue;
      sharding other = program.of[static_cast<std::size_t>(i.operand[1])];
      other.unreduced = 0;
      CAPTURE(id, i.op->name);
      REQUIRE(program.of[static_cast<std::size_t>(id)].same_layout(other));
      (i.op == &ops::shard_as ? pairs : followers) += 1;
      split += other.tiled() != 0 ? 1 : 0;
    }
  }
  CHECK(pairs > 100);
  CHECK(followers > 100);
  CHECK(split > 100);
}

TEST_CASE("random programs compute on a mesh what the naive meaning says") {
  int refused = 0;
  int conflicts = 0;
  for (std::uint32_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    const numbers kind = seed % 2 == 0 ? numbers::smooth : numbers::whole;
    const program_options options = options_of(seed / 2, kind);
    const graph g = random_program_graph(seed, options);
    const std::vector<tensor_value> data = random_program_arguments(g, seed, kind);
    conflicts += find_conflict(g).first >= 0 ? 1 : 0;
    const spmd_program program = merged_program(partitioned_program(options.mesh, g));
    if (is_refused(program)) {
      ++refused;
      continue;
    }
    REQUIRE(fault_of(program, naive_interpret(g, data), data) == "");
  }
  CHECK(conflicts > 20);
  // Few ask for a partial sum where there is none.
  CHECK(refused <= 8);
}
