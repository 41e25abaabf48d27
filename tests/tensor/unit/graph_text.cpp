// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: random_programs

#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/report/dump.hpp>
#include <espalier/testing/random_program_graph.hpp>
#include <support/graph_text.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <limits>
#include <sstream>
#include <string>
#include <string_view>

// The text of graphs (docs/graph_text.md): what it looks like, what is wrong with one, and that nothing of a random
// program is lost.

namespace {

using namespace espalier;
using namespace espalier::test;

/// Returns the error of `parse_graph` for a text.
std::string error_of(const std::string& text) {
  try {
    static_cast<void>(parsed(text));
  } catch (const graph_text_error& error) { return error.what(); }
  return "";
}

/// Every kind of line. What is written here is printed so.
constexpr const char* layer = R"(mesh data=2, model=4
window #0 : dim=1 size=3 low=1 extent=16@model
window #1 : dim=0 size=2 stride=2 dilation=3 base_dilation=4 extent=8 wraps
%0 = argument<number=0> : f32[64@data, 256]
%1 = argument<number=1> : f32[256@?, 1024@model?] replicated@data
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64@data, 1024@model] label "hidden" at "mlp.cpp":31
%3 = constant<value=0.1> : f64[]
%4 = reduce_sum<dims={0, 1}, kind=sum> %2 : f32[] sum@data*model
%5 = all_reduce<axes=data*model, combine=sum> %4 : f32[] whole
%6 = slice<dim=1, start=4, step=-1> %2 : f32[64@data, 4@model] local [32, 1] origin 2
%7 = all_reduce<axes=data*model, combine=max> %4 : f32[] whole travels_along
%8 = exchange<axes=model, combine=sum, windows=#0, window_count=1> %6 : f32[64@data, 4] local [32, 4]
%9 = region_begin<iterations=3, reverse> : i32[] {
  %10 = region_parameter %0 : f32[64, 256]
  %11 = softmax<dims={1}> %10, %10, %10 : f32[64, 256]
  %12 = region_yield %10, %11 : f32[64, 256]
} %13 = region_end %9 : i32[]
%14 = region_result %12 : f32[64, 256]
%15 = concat<dim=0, windows=#0> %14, %14, %14, %14, %14, %14 : f32[384, 256]
%16 = transpose<order=[1, 0]> %15 : f32[256, 384]
%17 = result<number=0, sums_travel_as=bf16> %16 : f32[256, 384]
%18 = result<number=1> %14, %0 : f32[64, 256] region %9
)";

}  // namespace

TEST_CASE("a graph's text is printed as it was read") {
  const parsed_graph read = parsed(layer);
  CHECK(to_text(read.mesh, read.parts, read.code, {.lines = true}) == layer);
  CHECK(fault_of_text(read.mesh, read.parts, read.code) == "");
  const instruction& product = read.code.code[2];
  CHECK(product.op == &ops::einsum);
  CHECK(product.shape == extents{2, {64, 1024}});
  CHECK(attributes_of<einsum_attributes>(product).right[1] == 'h');
  CHECK(read.code.annotations[product.annotation].placement.dim[1] == axis_list(1));
  CHECK(read.code.code[11].region == 9);
  CHECK(attributes_of<region_attributes>(read.code.code[9]).reverse);
  CHECK(read.code.code[13].region == -1);
  CHECK(read.code.code[7].op->facts.travels_along);
  CHECK(attributes_of<border_attributes>(read.code.code[17]).sums_travel_as == static_cast<int>(dtype::bf16) + 1);
}

TEST_CASE("a graph's text names the parts of axes as explain does") {
  const std::string text =
      "mesh model=2*2, data=3\n"
      "%0 = argument<number=0> : f32[2@model:(1)2, 4@model:(2)2]\n"
      "%1 = argument<number=1> : f32[8@model*data] sum@model:(2)2\n";
  // An axis stands once in a layout: only the first part is free for the second line's sum.
  CHECK(to_text(parsed(text).mesh, parsed(text).parts, parsed(text).code) == text);
  CHECK(parsed(text).mesh.size[0] == 4);
  CHECK(parsed(text).device_mesh().rank == 3);
  CHECK(parsed(text).code.annotations[1].placement.dim[0] == axis_list(0).with(1).with(2));
}

TEST_CASE("a graph's text names the orders of an axis") {
  const std::string text =
      "mesh x=2*2 as back, y=4 as ring [0, 1, 3, 2]\n"
      "%0 = argument<number=0> : f32[8@back:(2)2*ring, 4@back:(1)2]\n"
      "%1 = argument<number=1> : f32[8@back*y]\n";
  const parsed_graph read = parsed(text);
  CHECK(to_text(read.mesh, read.parts, read.code) == text);
  CHECK(read.mesh.ordered == 3);
  CHECK(read.mesh.order[0] == nullptr);
  const mesh_shape mesh = read.device_mesh();
  CHECK(mesh.rank == 3);
  CHECK(mesh.ordered == 7);
  const axis_list ring = read.code.annotations[0].placement.dim[0];
  CHECK(ring == axis_list(1 + max_axes).with(2 + max_axes));
  // Devices 2 and 3 are the last of the ring, in the other order; both parts of `back` count backwards.
  CHECK(mesh.coordinate(3, 2 + max_axes) == 2);
  CHECK(mesh.coordinate(2, 2 + max_axes) == 3);
  CHECK(mesh.position(2, ring) == 7);
  CHECK(mesh.position(0, read.code.annotations[1].placement.dim[0].first(2)) == 3);
  CHECK(error_of("mesh x=4 as ring [0, 1, 1, 2]\n") ==
        "line 1, column 26: read \",\", expected each device of the axis once");
  CHECK(error_of("mesh x=4 as ring [0, 1, 2]\n").find("as many devices as the axis has") != std::string::npos);
}

TEST_CASE("numbers in a graph's text are exact") {
  for (const double x : {0.1, -0.0, 1e300, 5e-324, std::numeric_limits<double>::infinity(), 16777217.0, 1.0 / 3}) {
    builder b;
    emit::constant(b, dtype::f64, extents{}, x);
    CHECK(fault_of_text({}, {}, b.result()) == "");
  }
  builder b;
  emit::constant(b, dtype::f64, extents{}, std::bit_cast<double>(std::uint64_t{0xfff8000000000123}));
  CHECK(fault_of_text({}, {}, b.result()) == "");
  CHECK(to_text({}, b.result()) == "%0 = constant<value=nan(0xfff8000000000123)> : f64[]\n");
}

TEST_CASE("what is wrong with a graph's text is said with its place") {
  CHECK(error_of("%0 = argumemt<number=0> : f32[2]") ==
        "line 1, column 6: read \"argumemt\", expected an operator's name");
  CHECK(error_of("\n%x = argument<number=0> : f32[2]\n%y = negate %z : f32[2]") ==
        "line 3, column 14: read \"z\", expected a value of a line before this one");
  CHECK(error_of("%0 = slice<dim=0, begin=1> : f32[2]") ==
        "line 1, column 19: read \"begin\", expected an attribute of the operator: dim, start, step");
  CHECK(error_of("mesh x=2\n%0 = argument<number=0> : f32[2@y]") ==
        "line 2, column 33: read \"y\", expected an axis of the mesh (x)");
  CHECK(error_of("%0 = reduce<dims={0}, kind=mean> : f32[2]") ==
        "line 1, column 28: read \"mean\", expected one of sum|prod|max|min");
  CHECK(error_of("%0 = argument<number=0> : f31[2]") ==
        "line 1, column 27: read \"f31\", expected an element type, such as f32");
  CHECK(error_of("%0 = argument<number=0> : f32[2") == "line 1, column 32: read the end of the line, expected \"]\"");
  CHECK(error_of("%0 = argument<number=0> : f32[2] %1") ==
        "line 1, column 34: read \"%\", expected an instruction's end");
  CHECK(error_of("%0 = region_begin<iterations=2> : i32[] {\n") ==
        "line 2, column 1: read the end of the line, expected \"}\" and the region_end of %0");
  CHECK(error_of("%0 = einsum<\"ab,bc\"> : f32[2]") ==
        "line 1, column 13: read \"\"\", expected two operands and a result, as in \"ab,bc->ac\"");
}

TEST_CASE("to_text: parse_graph(to_text(g)) is g, and its text is the same", "[law]") {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    program_options options;
    options.kind = seed % 2 == 0 ? numbers::smooth : numbers::whole;
    options.gradients = seed % 3 == 0 ? 1 : 0;
    options.mesh = mesh_of(seed % 4 < 2 ? std::vector<int>{2, 2} : std::vector<int>{4});
    options.annotated = 0.3;
    const graph g = random_program_graph(seed, options);
    REQUIRE(fault_of_text(options.mesh, axis_parts::whole(options.mesh), g) == "");
    const spmd_program program = merged_program(partitioned_program(options.mesh, g));
    if (is_refused(program)) continue;
    REQUIRE(fault_of_text(options.mesh, program.axes, program.parts.program) == "");
  }
}

namespace {

struct rows : axis<"rows", 2> {};

/// Each iteration adds the sum over all rows.
struct row_sums {
  constexpr auto operator()(const auto& x) const {
    return repeat<3>([&](const auto& total) { return total + sum<0>(x * total); }, sum<0>(x));
  }
};
using step = program<mesh<rows>, row_sums, sharded<f32<4, 8>, rows, none>>;

/// The output of `dump<step>`.
constexpr const char* dumped = R"(after trace:
mesh rows=2
%0 = argument<number=0> : f32[4@rows, 8]
%1 = reduce_sum<dims={0}, kind=sum> %0 : f32[8]
%2 = region_begin<iterations=3> : i32[] {
  %3 = region_parameter %1 : f32[8]
  %4 = broadcast<target=[1]> %3 : f32[4, 8]
  %5 = multiply %0, %4 : f32[4, 8]
  %6 = reduce_sum<dims={0}, kind=sum> %5 : f32[8]
  %7 = add %3, %6 : f32[8]
  %8 = region_yield %3, %7 : f32[8]
} %9 = region_end %2 : i32[]
%10 = region_result %8 : f32[8]
%11 = result<number=0> %10 : f32[8]

after normalise: unchanged

after merge_computations: unchanged

after complete:
mesh rows=2
%0 = argument<number=0> : f32[4@rows, 8]
%1 = reduce_sum<dims={0}, kind=sum> %0 : f32[8@?]
%2 = region_begin<iterations=3> : i32[] whole {
  %3 = region_parameter %1 : f32[8@?]
  %4 = broadcast<target=[1]> %3 : f32[4@rows?, 8@?]
  %5 = multiply %0, %4 : f32[4@rows?, 8@?]
  %6 = reduce_sum<dims={0}, kind=sum> %5 : f32[8@?]
  %7 = add %3, %6 : f32[8@?]
  %8 = region_yield %3, %7 : f32[8@?]
} %9 = region_end %2 : i32[] whole
%10 = region_result %8 : f32[8@?]
%11 = result<number=0> %10 : f32[8@?]

after partition:
mesh rows=2
%0 = argument<number=0> : f32[4@rows, 8] local [2, 8] origin 0
%1 = reduce_sum<dims={0}, kind=sum> %0 : f32[8] sum@rows origin 1
%2 = all_reduce<axes=rows, combine=sum> %1 : f32[8@?] origin 2
%3 = region_begin<iterations=3> : i32[] whole origin 2 {
  %4 = region_parameter %2 : f32[8@?] origin 3
  %5 = broadcast<target=[1]> %4 : f32[4@rows, 8] local [2, 8] origin 4
  %6 = multiply %0, %5 : f32[4@rows, 8] local [2, 8] origin 5
  %7 = reduce_sum<dims={0}, kind=sum> %6 : f32[8] sum@rows origin 6
  %8 = all_reduce<axes=rows, combine=sum> %7 : f32[8] whole origin 7
  %9 = add %4, %8 : f32[8] whole origin 7
  %10 = region_yield %4, %9 : f32[8@?] origin 8
} %11 = region_end %3 : i32[] whole origin 9
%12 = region_result %10 : f32[8@?] origin 10
%13 = result<number=0> %12 : f32[8@?] origin 11

after merge_all: unchanged

after merge_collectives: unchanged

schedule:
%0
%1, fused
%2
%3
%4
%6 %7, fused
%8
%9, fused
%11
%12
%13
)";

/// The reshaped tensor has 2 rows and 4 columns: an axis of 4 devices is split into a sub-axis of 2 for each.
struct refolded {
  constexpr auto operator()(const auto& x) const { return exp(reshape<2, 4>(x)); }
};
struct four : axis<"four", 4> {};
using step_on_parts = program<mesh<four>, refolded, sharded<f32<8>, four>>;

/// The message with which the graph of one pass is refused after `mutate` has changed it.
template <class Mutate> std::string refusal_after(std::string_view pass, const Mutate& mutate) {
  std::string message;
  detail::for_each_pass<step>([&](detail::pass_graph made) {
    if (made.pass != pass) return;
    graph broken;
    detail::copy_tables(broken, made.code);
    for (int id = 0; id < made.code.size; ++id) broken.code.push_back(made.code[id]);
    mutate(broken);
    made.code = broken;
    try {
      detail::check_pass(made);
    } catch (const graph_error& error) { message = error.what(); }
  });
  return message;
}

}  // namespace

TEST_CASE("dump writes the graph after every pass") {
  std::ostringstream out;
  dump<step>(out);
  CHECK(out.str() == dumped);
  std::ostringstream of_value;
  dump(of_value, compile<mesh<rows>, sharded<f32<4, 8>, rows, none>>([](const auto& x) { return row_sums{}(x); }));
  CHECK(of_value.str() == dumped);
}

TEST_CASE("dump names the sub-axes of a split axis") {
  std::ostringstream out;
  dump<step_on_parts>(out);
  CHECK_THAT(out.str(), Catch::Contains("after cut_axes:\nmesh four=2*2\n"));
}

TEST_CASE("check_passes names the pass and the instruction of a broken graph") {
  check_passes<step>();
  check_passes<step_on_parts>();
  CHECK(refusal_after("normalise", [](graph&) {}) == "");
  CHECK(refusal_after("normalise", [](graph& g) { g.code[5].shape[1] = 7; }) ==
        "after normalise, %5 = multiply %0, %4 : f32[4, 7]: its operands' shapes do not fit together");
  CHECK(refusal_after("partition", [](graph& g) { g.code[8].region = -1; }) ==
        "after partition, %8 = all_reduce<axes=rows, combine=sum> %7 : f32[8] whole origin 7: an operand is computed "
        "in a loop that it is not in");
  CHECK(refusal_after("complete", [](graph& g) { g.annotations[5].placement.unreduced = bit_of(0); }) ==
        "after complete, %4 = broadcast<target=[1]> %3 : f32[4@rows?, 8@?] sum@rows: its layout uses an axis twice");
  CHECK(refusal_after("merge_collectives", [](graph& g) { g.code[6].operand[1] = 9; }) ==
        "after merge_collectives, %6 = multiply: operand 1 is %9, which is not an instruction before it");
}
