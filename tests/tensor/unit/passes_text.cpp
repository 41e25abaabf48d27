// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: passes

#include <espalier/tensor/core/program/check_graph.hpp>
#include <espalier/tensor/core/program/pass_list.hpp>

#include <support/graph_text.hpp>
#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <string>

// The result of each pass on a graph, before and after (docs/graph_text.md).

namespace {

using namespace espalier;
using namespace espalier::test;

/// The text of what a pass makes of a graph.
std::string after(const pass& run, const std::string& before, graph_stage stage) {
  const parsed_graph g = parsed(before);
  const graph made = run.run(g.mesh, g.code);
  check(g.mesh, made, stage, run.name);
  return to_text(g.mesh, g.parts, made);
}
std::string normalised(const std::string& before) { return after(passes_on_tensors[0], before, graph_stage::tensors); }
std::string merged(const std::string& before) { return after(passes_on_tensors[1], before, graph_stage::tensors); }
std::string merged_buffers(const std::string& before) {
  return after(passes_on_buffers[0], before, graph_stage::buffers);
}

std::string reduced_after_loops(const std::string& before) {
  const parsed_graph g = parsed(before);
  check(g.mesh, g.code, graph_stage::buffers, "the text");
  const graph made = reduce_after_loops(g.mesh, g.code);
  check(g.mesh, made, graph_stage::buffers, "reduce_after_loops");
  return to_text(g.mesh, g.parts, made);
}
std::string collectives_merged(const std::string& before) {
  return after(passes_on_buffers[1], before, graph_stage::buffers);
}
/// Returns the graph with the layouts that completion gives every value.
std::string completed(const std::string& before) {
  const parsed_graph g = parsed(before);
  const spmd_program program = completed_program(g.mesh, g.code);
  graph laid_out = program.traced;
  for (int id = 0; id < laid_out.code.size(); ++id) {
    instruction& i = laid_out.code[id];
    i.annotation = laid_out.annotations.push_back({i.shape, program.of[static_cast<std::size_t>(id)]});
  }
  return to_text(g.mesh, program.axes, laid_out);
}
std::string in_buffers(const std::string& before) {
  const parsed_graph g = parsed(before);
  const spmd_program program = completed_program(g.mesh, g.code);
  const graph buffers = partition(program.mesh, program.traced, program.rules.data(), program.of.data()).program;
  check(program.mesh, buffers, graph_stage::buffers, "partition");
  return to_text(g.mesh, program.axes, buffers);
}

}  // namespace

TEST_CASE("normalise drops what nobody reads") {
  CHECK(normalised(R"(%0 = argument<number=0> : f32[4]
%1 = exp %0 : f32[4]
%2 = negate %0 : f32[4]
%3 = result<number=0> %2 : f32[4]
)") == R"(%0 = argument<number=0> : f32[4]
%1 = negate %0 : f32[4]
%2 = result<number=0> %1 : f32[4]
)");
}

TEST_CASE("normalise puts a stacked output after its loop") {
  CHECK(normalised(R"(%0 = argument<number=0> : f32[4]
%1 = region_begin<iterations=3> : i32[] {
  %2 = region_parameter %0 : f32[4]
  %3 = exp %2 : f32[4]
  %4 = loop_stack %3 : f32[3, 4] region none
  %5 = region_yield %2, %3 : f32[4]
} %6 = region_end %1 : i32[]
%7 = result<number=0> %4 : f32[3, 4]
)") == R"(%0 = argument<number=0> : f32[4]
%1 = region_begin<iterations=3> : i32[] {
  %2 = region_parameter %0 : f32[4]
  %3 = exp %2 : f32[4]
  %4 = region_yield %2, %3 : f32[4]
} %5 = region_end %1 : i32[]
%6 = loop_stack %3 : f32[3, 4]
%7 = result<number=0> %6 : f32[3, 4]
)");
}

TEST_CASE("normalise takes what does not change out of a loop") {
  CHECK(normalised(R"(%0 = argument<number=0> : f32[4]
%1 = region_begin<iterations=3> : i32[] {
  %2 = region_parameter %0 : f32[4]
  %3 = exp %0 : f32[4]
  %4 = add %2, %3 : f32[4]
  %5 = region_yield %2, %4 : f32[4]
} %6 = region_end %1 : i32[]
%7 = region_result %5 : f32[4]
%8 = result<number=0> %7 : f32[4]
)") == R"(%0 = argument<number=0> : f32[4]
%1 = exp %0 : f32[4]
%2 = region_begin<iterations=3> : i32[] {
  %3 = region_parameter %0 : f32[4]
  %4 = add %3, %1 : f32[4]
  %5 = region_yield %3, %4 : f32[4]
} %6 = region_end %2 : i32[]
%7 = region_result %5 : f32[4]
%8 = result<number=0> %7 : f32[4]
)");
}

TEST_CASE("normalise leaves in a branch what only the branch needs, and keeps what decides about a loop") {
  const std::string branch = R"(%0 = argument<number=0> : f32[4]
%1 = argument<number=1> : i32[]
%2 = region_begin<iterations=3> : i32[] {
  %3 = region_parameter %0 : f32[4]
  %4 = region_begin<iterations=1, kind=branch, scalar=2> %1 : i32[] {
    %5 = region_parameter %3 : f32[4]
    %6 = exp %0 : f32[4]
    %7 = region_yield %5, %6 : f32[4]
  } %8 = region_end %4 : i32[]
  %9 = region_result %7 : f32[4]
  %10 = region_yield %3, %9 : f32[4]
} %11 = region_end %2 : i32[]
%12 = region_result %10 : f32[4]
%13 = result<number=0> %12 : f32[4]
)";
  CHECK(normalised(branch) == branch);
  // The counter is read by nobody; the condition, through what has no effect, by the loop.
  CHECK(normalised(R"(%0 = argument<number=0> : f32[]
%1 = argument<number=1> : bool[]
%2 = constant<value=0> : i32[]
%3 = region_begin<iterations=9, kind=until_or_at_most> %1 : i32[] {
  %4 = region_parameter %2 : i32[]
  %5 = region_parameter %0 : f32[]
  %6 = exp %5 : f32[]
  %7 = less %6, %0 : bool[]
  %8 = stop_gradient %7 : bool[]
  %9 = region_yield %4, %4 : i32[]
  %10 = region_yield %5, %6 : f32[]
} %11 = region_end %3, %8 : i32[]
%12 = region_result %9 : i32[]
%13 = region_result %10 : f32[]
%14 = result<number=0> %13 : f32[]
)") == R"(%0 = argument<number=0> : f32[]
%1 = argument<number=1> : bool[]
%2 = region_begin<iterations=9, kind=until_or_at_most> %1 : i32[] {
  %3 = region_parameter %0 : f32[]
  %4 = exp %3 : f32[]
  %5 = less %4, %0 : bool[]
  %6 = region_yield %3, %4 : f32[]
} %7 = region_end %2, %5 : i32[]
%8 = region_result %6 : f32[]
%9 = result<number=0> %8 : f32[]
)");
}

TEST_CASE("merge_computations makes one of two equal instructions") {
  CHECK(merged(R"(%0 = argument<number=0> : f32[4]
%1 = exp %0 : f32[4]
%2 = exp %0 : f32[4]
%3 = add %1, %2 : f32[4]
%4 = result<number=0> %3 : f32[4]
)") == R"(%0 = argument<number=0> : f32[4]
%1 = exp %0 : f32[4]
%2 = add %1, %1 : f32[4]
%3 = result<number=0> %2 : f32[4]
)");
}

TEST_CASE("merge_computations follows equal operands") {
  CHECK(merged(R"(%0 = argument<number=0> : f32[4, 6]
%1 = transpose<order=[1, 0]> %0 : f32[6, 4]
%2 = transpose<order=[1, 0]> %0 : f32[6, 4]
%3 = reduce_sum<dims={0}, kind=sum> %1 : f32[4]
%4 = reduce_sum<dims={0}, kind=sum> %2 : f32[4]
%5 = multiply %3, %4 : f32[4]
%6 = result<number=0> %5 : f32[4]
)") == R"(%0 = argument<number=0> : f32[4, 6]
%1 = transpose<order=[1, 0]> %0 : f32[6, 4]
%2 = reduce_sum<dims={0}, kind=sum> %1 : f32[4]
%3 = multiply %2, %2 : f32[4]
%4 = result<number=0> %3 : f32[4]
)");
}

TEST_CASE("merge_computations keeps what differs in an attribute alone") {
  CHECK(merged(R"(%0 = argument<number=0> : f32[8]
%1 = slice<dim=0, start=0, step=1> %0 : f32[4]
%2 = slice<dim=0, start=4, step=1> %0 : f32[4]
%3 = slice<dim=0, start=0, step=1> %0 : f32[4]
%4 = add %1, %2 : f32[4]
%5 = add %4, %3 : f32[4]
%6 = result<number=0> %5 : f32[4]
)") == R"(%0 = argument<number=0> : f32[8]
%1 = slice<dim=0, start=0, step=1> %0 : f32[4]
%2 = slice<dim=0, start=4, step=1> %0 : f32[4]
%3 = add %1, %2 : f32[4]
%4 = add %3, %1 : f32[4]
%5 = result<number=0> %4 : f32[4]
)");
}

TEST_CASE("merge_all makes one of two equal collectives") {
  CHECK(merged_buffers(R"(mesh x=2
%0 = argument<number=0> : f32[4@x] local [2]
%1 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
%2 = all_reduce<axes=x, combine=sum> %1 : f32[] whole
%3 = all_reduce<axes=x, combine=sum> %1 : f32[] whole
%4 = multiply %2, %3 : f32[] whole
%5 = result<number=0> %4 : f32[] whole
)") == R"(mesh x=2
%0 = argument<number=0> : f32[4@x] local [2]
%1 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
%2 = all_reduce<axes=x, combine=sum> %1 : f32[] whole
%3 = multiply %2, %2 : f32[] whole
%4 = result<number=0> %3 : f32[] whole
)");
}

TEST_CASE("merge_all keeps collectives over different axes") {
  CHECK(merged_buffers(R"(mesh x=2, y=2
%0 = argument<number=0> : f32[4@x, 4@y] local [2, 2]
%1 = all_gather<axes=x, combine=sum> %0 : f32[4, 4@y] local [4, 2]
%2 = all_gather<axes=x, combine=sum> %0 : f32[4, 4@y] local [4, 2]
%3 = all_gather<axes=y, combine=sum> %0 : f32[4@x, 4] local [2, 4]
%4 = result<number=0> %1 : f32[4, 4@y] local [4, 2]
%5 = result<number=1> %2 : f32[4, 4@y] local [4, 2]
%6 = result<number=2> %3 : f32[4@x, 4] local [2, 4]
)") == R"(mesh x=2, y=2
%0 = argument<number=0> : f32[4@x, 4@y] local [2, 2]
%1 = all_gather<axes=x, combine=sum> %0 : f32[4, 4@y] local [4, 2]
%2 = all_gather<axes=y, combine=sum> %0 : f32[4@x, 4] local [2, 4]
%3 = result<number=0> %1 : f32[4, 4@y] local [4, 2]
%4 = result<number=1> %1 : f32[4, 4@y] local [4, 2]
%5 = result<number=2> %2 : f32[4@x, 4] local [2, 4]
)");
}

TEST_CASE("merge_all makes one of two equal computations after partitioning") {
  CHECK(merged_buffers(R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4]
%1 = exp %0 : f32[8@x] local [4]
%2 = exp %0 : f32[8@x] local [4]
%3 = add %1, %2 : f32[8@x] local [4]
%4 = result<number=0> %3 : f32[8@x] local [4]
)") == R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4]
%1 = exp %0 : f32[8@x] local [4]
%2 = add %1, %1 : f32[8@x] local [4]
%3 = result<number=0> %2 : f32[8@x] local [4]
)");
}

TEST_CASE("reduce_after_loops adds up terms, and what a carry starts with once") {
  CHECK(reduced_after_loops(R"(mesh x=4
%0 = argument<number=0> : f32[12] whole
%1 = argument<number=1> : f32[5, 16@x, 12] local [5, 4, 12]
%2 = region_begin<iterations=5> : i32[] whole {
  %3 = region_parameter %0 : f32[12] whole
  %4 = loop_slice %1 : f32[16@x, 12] local [4, 12]
  %5 = reduce_sum<dims={0}, kind=sum> %4 : f32[12] sum@x
  %6 = all_reduce<axes=x, combine=sum> %5 : f32[12] whole
  %7 = add %3, %6 : f32[12] whole
  %8 = region_yield %3, %7 : f32[12] whole
} %9 = region_end %2 : i32[] whole
%10 = region_result %8 : f32[12] whole
%11 = result<number=0> %10 : f32[12] whole
)") == R"(mesh x=4
%0 = argument<number=0> : f32[12] whole
%1 = argument<number=1> : f32[5, 16@x, 12] local [5, 4, 12]
%2 = iota<dim=0> : i32[4@x] local [1]
%3 = reshape %2 : i32[] sum@x
%4 = constant<value=1> : i32[] sum@x
%5 = less %3, %4 : bool[] sum@x
%6 = broadcast<target=[]> %5 : bool[12] sum@x
%7 = constant<value=-0> : f32[12] sum@x
%8 = select %6, %0, %7 : f32[12] sum@x
%9 = region_begin<iterations=5> : i32[] whole {
  %10 = region_parameter %8 : f32[12] sum@x
  %11 = loop_slice %1 : f32[16@x, 12] local [4, 12]
  %12 = reduce_sum<dims={0}, kind=sum> %11 : f32[12] sum@x
  %13 = add %10, %12 : f32[12] sum@x
  %14 = region_yield %10, %13 : f32[12] sum@x
} %15 = region_end %9 : i32[] whole
%16 = region_result %14 : f32[12] sum@x
%17 = all_reduce<axes=x, combine=sum> %16 : f32[12] whole
%18 = result<number=0> %17 : f32[12] whole
)");
}

TEST_CASE("reduce_after_loops scatters after the loop, and adds what a split carry starts with there") {
  CHECK(reduced_after_loops(R"(mesh x=2
%0 = argument<number=0> : f32[4@x] local [2]
%1 = argument<number=1> : f32[3, 8@x, 4] local [3, 4, 4]
%2 = region_begin<iterations=3> : i32[] whole {
  %3 = region_parameter %0 : f32[4@x] local [2]
  %4 = loop_slice %1 : f32[8@x, 4] local [4, 4]
  %5 = reduce_sum<dims={0}, kind=sum> %4 : f32[4] sum@x
  %6 = reduce_scatter<axes=x, combine=sum> %5 : f32[4@x] local [2]
  %7 = add %3, %6 : f32[4@x] local [2]
  %8 = region_yield %3, %7 : f32[4@x] local [2]
} %9 = region_end %2 : i32[] whole
%10 = region_result %8 : f32[4@x] local [2]
%11 = result<number=0> %10 : f32[4@x] local [2]
)") == R"(mesh x=2
%0 = argument<number=0> : f32[4@x] local [2]
%1 = argument<number=1> : f32[3, 8@x, 4] local [3, 4, 4]
%2 = constant<value=-0> : f32[4] sum@x
%3 = region_begin<iterations=3> : i32[] whole {
  %4 = region_parameter %2 : f32[4] sum@x
  %5 = loop_slice %1 : f32[8@x, 4] local [4, 4]
  %6 = reduce_sum<dims={0}, kind=sum> %5 : f32[4] sum@x
  %7 = add %4, %6 : f32[4] sum@x
  %8 = region_yield %4, %7 : f32[4] sum@x
} %9 = region_end %3 : i32[] whole
%10 = region_result %8 : f32[4] sum@x
%11 = reduce_scatter<axes=x, combine=sum> %10 : f32[4@x] local [2]
%12 = add %0, %11 : f32[4@x] local [2]
%13 = result<number=0> %12 : f32[4@x] local [2]
)");
}

TEST_CASE("reduce_after_loops follows a carry through inner loops, in the type of sums") {
  CHECK(reduced_after_loops(R"(mesh x=2
%0 = argument<number=0> : bf16[3, 2, 8@x, 4] local [3, 2, 4, 4]
%1 = constant<value=0> : bf16[4] whole
%2 = region_begin<iterations=3> : i32[] whole {
  %3 = region_parameter %1 : bf16[4] whole
  %4 = loop_slice %0 : bf16[2, 8@x, 4] local [2, 4, 4]
  %5 = region_begin<iterations=2> : i32[] whole {
    %6 = region_parameter %3 : bf16[4] whole
    %7 = loop_slice %4 : bf16[8@x, 4] local [4, 4]
    %8 = reduce_sum<dims={0}, kind=sum> %7 : f32[4] sum@x
    %9 = all_reduce<axes=x, combine=sum> %8 : f32[4] whole
    %10 = convert %9 : bf16[4] whole
    %11 = add %10, %6 : bf16[4] whole
    %12 = region_yield %6, %11 : bf16[4] whole
  } %13 = region_end %5 : i32[] whole
  %14 = region_result %12 : bf16[4] whole
  %15 = region_yield %3, %14 : bf16[4] whole
} %16 = region_end %2 : i32[] whole
%17 = region_result %15 : bf16[4] whole
%18 = result<number=0> %17 : bf16[4] whole
)") == R"(mesh x=2
%0 = argument<number=0> : bf16[3, 2, 8@x, 4] local [3, 2, 4, 4]
%1 = constant<value=0> : bf16[4] whole
%2 = constant<value=0> : f32[4] sum@x
%3 = region_begin<iterations=3> : i32[] whole {
  %4 = region_parameter %2 : f32[4] sum@x
  %5 = loop_slice %0 : bf16[2, 8@x, 4] local [2, 4, 4]
  %6 = region_begin<iterations=2> : i32[] whole {
    %7 = region_parameter %4 : f32[4] sum@x
    %8 = loop_slice %5 : bf16[8@x, 4] local [4, 4]
    %9 = reduce_sum<dims={0}, kind=sum> %8 : f32[4] sum@x
    %10 = add %9, %7 : f32[4] sum@x
    %11 = region_yield %7, %10 : f32[4] sum@x
  } %12 = region_end %6 : i32[] whole
  %13 = region_result %11 : f32[4] sum@x
  %14 = region_yield %4, %13 : f32[4] sum@x
} %15 = region_end %3 : i32[] whole
%16 = region_result %14 : f32[4] sum@x
%17 = all_reduce<axes=x, combine=sum> %16 : f32[4] whole
%18 = convert %17 : bf16[4] whole
%19 = result<number=0> %18 : bf16[4] whole
)");
}

TEST_CASE("reduce_after_loops takes the largest of all devices after the loop") {
  CHECK(reduced_after_loops(R"(mesh x=2
%0 = argument<number=0> : f32[4] whole
%1 = argument<number=1> : f32[3, 8@x, 4] local [3, 4, 4]
%2 = region_begin<iterations=3> : i32[] whole {
  %3 = region_parameter %0 : f32[4] whole
  %4 = loop_slice %1 : f32[8@x, 4] local [4, 4]
  %5 = reduce<dims={0}, kind=max> %4 : f32[4] sum@x
  %6 = all_reduce<axes=x, combine=max> %5 : f32[4] whole
  %7 = maximum %3, %6 : f32[4] whole
  %8 = region_yield %3, %7 : f32[4] whole
} %9 = region_end %2 : i32[] whole
%10 = region_result %8 : f32[4] whole
%11 = result<number=0> %10 : f32[4] whole
)") == R"(mesh x=2
%0 = argument<number=0> : f32[4] whole
%1 = argument<number=1> : f32[3, 8@x, 4] local [3, 4, 4]
%2 = region_begin<iterations=3> : i32[] whole {
  %3 = region_parameter %0 : f32[4] sum@x
  %4 = loop_slice %1 : f32[8@x, 4] local [4, 4]
  %5 = reduce<dims={0}, kind=max> %4 : f32[4] sum@x
  %6 = maximum %3, %5 : f32[4] sum@x
  %7 = region_yield %3, %6 : f32[4] sum@x
} %8 = region_end %2 : i32[] whole
%9 = region_result %7 : f32[4] sum@x
%10 = all_reduce<axes=x, combine=max> %9 : f32[4] whole
%11 = result<number=0> %10 : f32[4] whole
)");
}

TEST_CASE("reduce_after_loops leaves a carry that the loop reads, and what the user laid out in it") {
  const auto unchanged = [](const std::string& reads, const std::string& fixed) {
    const std::string before = R"(mesh x=2
%0 = argument<number=0> : f32[4] whole
%1 = argument<number=1> : f32[3, 8@x, 4] local [3, 4, 4]
%2 = region_begin<iterations=3> : i32[] whole {
  %3 = region_parameter %0 : f32[4] whole
  %4 = loop_slice %1 : f32[8@x, 4] local [4, 4]
  %5 = reduce_sum<dims={0}, kind=sum> %4 : f32[4] sum@x
  %6 = all_reduce<axes=x, combine=sum> %5 : f32[4] whole
  %7 = )" + reads + R"( : f32[4] whole
  %8 = add %7, %6 : f32[4] whole)" +
                               fixed + R"(
  %9 = region_yield %3, %8 : f32[4] whole
} %10 = region_end %2 : i32[] whole
%11 = region_result %9 : f32[4] whole
%12 = result<number=0> %11 : f32[4] whole
)";
    return reduced_after_loops(before) == before;
  };
  CHECK(unchanged("multiply %3, %3", ""));
  CHECK(unchanged("exp %3", ""));
  CHECK(unchanged("divide %6, %3", ""));
  CHECK(unchanged("negate %3", " fixed"));
  CHECK(!unchanged("negate %3", ""));
}

TEST_CASE("devices agree on a float condition of a loop that communicates, and on no other") {
  // Of %7 devices may differ in the last bit.
  const auto loop = [](const std::string& condition, const std::string& sum) {
    return R"(mesh x=4
%0 = argument<number=0> : f32[8@x] local [2]
%1 = argument<number=1> : f32[] whole
%2 = argument<number=2> : bool[] whole
%3 = region_begin<iterations=1, kind=until> %2 : i32[] whole {
  %4 = region_parameter %1 : f32[] whole
  %5 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
  %6 = all_reduce<axes=x, combine=sum> %5 : f32[] whole
  %7 = )" + sum +
           R"( : f32[] whole
  %8 = )" + condition +
           R"( : bool[] whole
  %9 = region_yield %4, %7 : f32[] whole
} %10 = region_end %3, %8 : i32[] whole
%11 = region_result %9 : f32[] whole
%12 = result<number=0> %11 : f32[] whole
)";
  };
  const auto agreed = [](const std::string& before) {
    const parsed_graph g = parsed(before);
    check(g.mesh, g.code, graph_stage::buffers, "the text");
    graph made = g.code;
    agree_on_regions(g.mesh, made);
    check(g.mesh, made, graph_stage::buffers, "agree_on_regions");
    return to_text(g.mesh, g.parts, made);
  };
  CHECK(agreed(loop("less %7, %1", "add %4, %6")) == R"(mesh x=4
%0 = argument<number=0> : f32[8@x] local [2]
%1 = argument<number=1> : f32[] whole
%2 = argument<number=2> : bool[] whole
%3 = region_begin<iterations=1, kind=until> %2 : i32[] whole {
  %4 = region_parameter %1 : f32[] whole
  %5 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
  %6 = all_reduce<axes=x, combine=sum> %5 : f32[] whole
  %7 = add %4, %6 : f32[] whole
  %8 = less %7, %1 : bool[] whole
  %9 = copy %8 : bool[] sum@x
  %10 = all_reduce<axes=x, combine=max> %9 : bool[] whole
  %11 = region_yield %4, %7 : f32[] whole
} %12 = region_end %3, %10 : i32[] whole
%13 = region_result %11 : f32[] whole
%14 = result<number=0> %13 : f32[] whole
)");
  const std::string of_truths = loop("logical_not %2", "add %4, %6");
  CHECK(agreed(of_truths) == of_truths);
  std::string alone = loop("less %7, %1", "exp %4");
  alone.erase(alone.find("  %6 ="), alone.find("  %7 =") - alone.find("  %6 ="));
  alone.replace(alone.find("  %5 ="), alone.find("  %7 =") - alone.find("  %5 ="), "");
  const parsed_graph numbered = parsed(alone);
  const std::string local = to_text(numbered.mesh, numbered.parts, numbered.code);
  CHECK(agreed(local) == local);
}

TEST_CASE("send_from_owners has the owner of a row send it") {
  const auto sent = [](const std::string& before) {
    const parsed_graph g = parsed(before);
    check(g.mesh, g.code, graph_stage::buffers, "the text");
    const graph made = send_from_owners(g.mesh, g.code);
    check(g.mesh, made, graph_stage::buffers, "send_from_owners");
    return to_text(g.mesh, g.parts, made);
  };
  // Where it was added up; 10 rows on four devices are 3, 3, 3, 1.
  CHECK(sent(R"(mesh x=4
%0 = argument<number=0> : f32[10@x, 6] local [3, 6]
%1 = argument<number=1> : i32[] whole
%2 = dynamic_slice<dim=0, extent=10, size=1> %0, %1 : f32[1, 6] sum@x
%3 = reshape %2 : f32[6] sum@x
%4 = all_reduce<axes=x, combine=sum> %3 : f32[6] whole
%5 = result<number=0> %4 : f32[6] whole
)") == R"(mesh x=4
%0 = argument<number=0> : f32[10@x, 6] local [3, 6]
%1 = argument<number=1> : i32[] whole
%2 = dynamic_slice<dim=0, extent=10, size=1> %0, %1 : f32[1, 6] sum@x
%3 = reshape %2 : f32[6] sum@x
%4 = exchange_from_owner<axes=x, combine=sum, rows=3, extent=10> %3, %1 : f32[6] whole
%5 = result<number=0> %4 : f32[6] whole
)");
  // Where it was gathered from the first device.
  CHECK(sent(R"(mesh x=4
%0 = argument<number=0> : f32[8, 10@x] local [8, 3]
%1 = slice<dim=1, start=0, step=1> %0 : f32[8, 1@x] local [8, 1]
%2 = all_gather<axes=x, combine=sum> %1 : f32[8, 1] whole
%3 = result<number=0> %2 : f32[8, 1] whole
)") == R"(mesh x=4
%0 = argument<number=0> : f32[8, 10@x] local [8, 3]
%1 = constant<value=0> : i32[] whole
%2 = dynamic_slice<dim=1, extent=10, size=1> %0, %1 : f32[8, 1] sum@x
%3 = exchange_from_owner<axes=x, combine=sum, rows=3, extent=10> %2, %1 : f32[8, 1] whole
%4 = result<number=0> %3 : f32[8, 1] whole
)");
  // A sum of another value travels in the same messages.
  const std::string among_others = R"(mesh x=2
%0 = argument<number=0> : f32[10@x] local [5]
%1 = argument<number=1> : i32[] whole
%2 = dynamic_slice<dim=0, extent=10, size=1> %0, %1 : f32[1] sum@x
%3 = all_reduce<axes=x, combine=sum> %2 : f32[1] whole
%4 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
%5 = all_reduce<axes=x, combine=sum> %4 : f32[] whole
%6 = result<number=0> %3 : f32[1] whole
%7 = result<number=1> %5 : f32[] whole
)";
  CHECK(sent(among_others) == among_others);
}

TEST_CASE("merge_collectives sends two sums in one message") {
  CHECK(collectives_merged(R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4]
%1 = argument<number=1> : f32[8@x] local [4]
%2 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
%3 = all_reduce<axes=x, combine=sum> %2 : f32[] whole
%4 = reduce_sum<dims={0}, kind=sum> %1 : f32[] sum@x
%5 = all_reduce<axes=x, combine=sum> %4 : f32[] whole
%6 = result<number=0> %3 : f32[] whole
%7 = result<number=1> %5 : f32[] whole
)") == R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4]
%1 = argument<number=1> : f32[8@x] local [4]
%2 = reduce_sum<dims={0}, kind=sum> %0 : f32[] sum@x
%3 = reduce_sum<dims={0}, kind=sum> %1 : f32[] sum@x
%4 = all_reduce<axes=x, combine=sum> %2 : f32[] whole
%5 = all_reduce<axes=x, combine=sum> %3 : f32[] whole travels_along
%6 = result<number=0> %4 : f32[] whole
%7 = result<number=1> %5 : f32[] whole
)");
}

TEST_CASE("merge_collectives sends gathers of different shapes in one message") {
  CHECK(collectives_merged(R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4]
%1 = all_gather<axes=x, combine=sum> %0 : f32[8] whole
%2 = argument<number=1> : f32[6@x] local [3]
%3 = all_gather<axes=x, combine=sum> %2 : f32[6] whole
%4 = result<number=0> %1 : f32[8] whole
%5 = result<number=1> %3 : f32[6] whole
)") == R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4]
%1 = argument<number=1> : f32[6@x] local [3]
%2 = all_gather<axes=x, combine=sum> %0 : f32[8] whole
%3 = all_gather<axes=x, combine=sum> %1 : f32[6] whole travels_along
%4 = result<number=0> %2 : f32[8] whole
%5 = result<number=1> %3 : f32[6] whole
)");
}

TEST_CASE("merge_collectives keeps those of other axes or kinds apart") {
  CHECK(collectives_merged(R"(mesh x=2, y=2
%0 = argument<number=0> : f32[8@x, 4@y] local [4, 2]
%1 = reduce_sum<dims={0, 1}, kind=sum> %0 : f32[] sum@x*y
%2 = all_reduce<axes=x*y, combine=sum> %1 : f32[] whole
%3 = reduce<dims={0, 1}, kind=max> %0 : f32[] sum@x*y
%4 = all_reduce<axes=x*y, combine=max> %3 : f32[] whole
%5 = reduce_sum<dims={0}, kind=sum> %0 : f32[4@y] sum@x local [2]
%6 = all_reduce<axes=x, combine=sum> %5 : f32[4@y] local [2]
%7 = exp %0 : f32[8@x, 4@y] local [4, 2]
%8 = reduce_sum<dims={0}, kind=sum> %7 : f32[4@y] sum@x local [2]
%9 = all_reduce<axes=x, combine=sum> %8 : f32[4@y] local [2]
%10 = result<number=0> %2 : f32[] whole
%11 = result<number=1> %4 : f32[] whole
%12 = result<number=2> %6 : f32[4@y] local [2]
%13 = result<number=3> %9 : f32[4@y] local [2]
)") == R"(mesh x=2, y=2
%0 = argument<number=0> : f32[8@x, 4@y] local [4, 2]
%1 = reduce_sum<dims={0, 1}, kind=sum> %0 : f32[] sum@x*y
%2 = reduce<dims={0, 1}, kind=max> %0 : f32[] sum@x*y
%3 = reduce_sum<dims={0}, kind=sum> %0 : f32[4@y] sum@x local [2]
%4 = exp %0 : f32[8@x, 4@y] local [4, 2]
%5 = reduce_sum<dims={0}, kind=sum> %4 : f32[4@y] sum@x local [2]
%6 = all_reduce<axes=x, combine=sum> %3 : f32[4@y] local [2]
%7 = all_reduce<axes=x, combine=sum> %5 : f32[4@y] local [2] travels_along
%8 = all_reduce<axes=x*y, combine=max> %2 : f32[] whole
%9 = all_reduce<axes=x*y, combine=sum> %1 : f32[] whole
%10 = result<number=0> %9 : f32[] whole
%11 = result<number=1> %8 : f32[] whole
%12 = result<number=2> %6 : f32[4@y] local [2]
%13 = result<number=3> %7 : f32[4@y] local [2]
)");
}

TEST_CASE("complete carries the layouts of operands to a product") {
  CHECK(completed(R"(mesh data=2, model=2
%0 = argument<number=0> : f32[64@data, 256]
%1 = argument<number=1> : f32[256, 128@model]
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64, 128]
%3 = result<number=0> %2 : f32[64, 128]
)") == R"(mesh data=2, model=2
%0 = argument<number=0> : f32[64@data, 256]
%1 = argument<number=1> : f32[256, 128@model]
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64@data?, 128@model?]
%3 = result<number=0> %2 : f32[64@data?, 128@model?]
)");
}

TEST_CASE("partition computes a product of split operands without moving anything") {
  CHECK(in_buffers(R"(mesh data=2, model=2
%0 = argument<number=0> : f32[64@data, 256]
%1 = argument<number=1> : f32[256, 128@model]
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64, 128]
%3 = result<number=0> %2 : f32[64, 128]
)") == R"(mesh data=2, model=2
%0 = argument<number=0> : f32[64@data, 256] local [32, 256] origin 0
%1 = argument<number=1> : f32[256, 128@model] local [256, 64] origin 1
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64@data, 128@model] local [32, 64] origin 2
%3 = result<number=0> %2 : f32[64@data?, 128@model?] local [32, 64] origin 3
)");
}

TEST_CASE("complete does not split the result of a sum over a split dimension") {
  CHECK(completed(R"(mesh model=2
%0 = argument<number=0> : f32[64, 256@model]
%1 = argument<number=1> : f32[256@model, 128]
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64, 128]
%3 = exp %2 : f32[64, 128]
%4 = result<number=0> %3 : f32[64, 128]
)") == R"(mesh model=2
%0 = argument<number=0> : f32[64, 256@model]
%1 = argument<number=1> : f32[256@model, 128]
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64@?, 128@?]
%3 = exp %2 : f32[64@?, 128@?]
%4 = result<number=0> %3 : f32[64@?, 128@?]
)");
}

TEST_CASE("partition sums terms before a function that is not linear") {
  CHECK(in_buffers(R"(mesh model=2
%0 = argument<number=0> : f32[64, 256@model]
%1 = argument<number=1> : f32[256@model, 128]
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64, 128]
%3 = exp %2 : f32[64, 128]
%4 = result<number=0> %3 : f32[64, 128]
)") == R"(mesh model=2
%0 = argument<number=0> : f32[64, 256@model] local [64, 128] origin 0
%1 = argument<number=1> : f32[256@model, 128] local [128, 128] origin 1
%2 = einsum<"bm,mh->bh"> %0, %1 : f32[64, 128] sum@model origin 2
%3 = all_reduce<axes=model, combine=sum> %2 : f32[64, 128] whole origin 3
%4 = exp %3 : f32[64, 128] whole origin 3
%5 = result<number=0> %4 : f32[64@?, 128@?] origin 4
)");
}

TEST_CASE("complete stops at a reshard") {
  CHECK(completed(R"(mesh x=2
%0 = argument<number=0> : f32[8@x]
%1 = negate %0 : f32[8]
%2 = reshard %1 : f32[8] whole
%3 = result<number=0> %2 : f32[8]
)") == R"(mesh x=2
%0 = argument<number=0> : f32[8@x]
%1 = negate %0 : f32[8@x?]
%2 = reshard %1 : f32[8] whole
%3 = result<number=0> %2 : f32[8@?]
)");
}

TEST_CASE("complete infers nothing from one side of a reshard's gradient to the other") {
  CHECK(completed(R"(mesh x=2
%0 = argument<number=0> : f32[8@x]
%1 = argument<number=1> : f32[8]
%2 = exp %1 : f32[8]
%3 = match<of_gradient> %2, %0 : f32[8]
%4 = argument<number=2> : f32[8]
%5 = exp %4 : f32[8]
%6 = match %5, %0 : f32[8]
%7 = result<number=0> %3 : f32[8]
%8 = result<number=1> %6 : f32[8]
)") == R"(mesh x=2
%0 = argument<number=0> : f32[8@x]
%1 = argument<number=1> : f32[8@?]
%2 = exp %1 : f32[8@?]
%3 = match<of_gradient> %2, %0 : f32[8@x]
%4 = argument<number=2> : f32[8@x?]
%5 = exp %4 : f32[8@x?]
%6 = match %5, %0 : f32[8@x]
%7 = result<number=0> %3 : f32[8@x?]
%8 = result<number=1> %6 : f32[8@x?]
)");
}

TEST_CASE("partition gathers for a reshard") {
  CHECK(in_buffers(R"(mesh x=2
%0 = argument<number=0> : f32[8@x]
%1 = negate %0 : f32[8]
%2 = reshard %1 : f32[8] whole
%3 = result<number=0> %2 : f32[8]
)") == R"(mesh x=2
%0 = argument<number=0> : f32[8@x] local [4] origin 0
%1 = negate %0 : f32[8@x] local [4] origin 1
%2 = all_gather<axes=x, combine=sum> %1 : f32[8] whole origin 2
%3 = result<number=0> %2 : f32[8@?] origin 3
)");
}

TEST_CASE("partition pads what it has sent, and sends no zeros") {
  CHECK(in_buffers(R"(mesh x=4
%0 = argument<number=0> : f32[4@x, 1]
%1 = pad<dim=1, start=3, step=1> %0 : f32[4, 4]
%2 = shard %1 : f32[4, 4@x]
%3 = result<number=0> %2 : f32[4, 4]
)") == R"(mesh x=4
window #0 : dim=1 size=1 low=3 extent=4@x
%0 = argument<number=0> : f32[4@x, 1] local [1, 1] origin 0
%1 = exchange<axes=x, combine=sum, windows=#0, window_count=1> %0 : f32[4, 1@x] origin 1
%2 = pad<dim=1, start=3, step=1> %1 : f32[4, 4@x] local [4, 1] origin 1
%3 = result<number=0> %2 : f32[4@?, 4@x?] local [4, 1] origin 3
)");
  // The same where another op reads it through windows. (What was padded before is left out by the next pass.)
  CHECK(in_buffers(R"(mesh x=4
%0 = argument<number=0> : f32[4@x, 1]
%1 = pad<dim=1, start=3, step=1> %0 : f32[4, 4]
%2 = pad<dim=0, start=2, step=1> %1 : f32[6, 4]
%3 = shard %2 : f32[6, 4@x]
%4 = result<number=0> %3 : f32[6, 4]
)") == R"(mesh x=4
window #0 : dim=1 size=1 low=3 extent=4@x
%0 = argument<number=0> : f32[4@x, 1] local [1, 1] origin 0
%1 = pad<dim=1, start=3, step=1> %0 : f32[4@x, 4] local [1, 4] origin 1
%2 = exchange<axes=x, combine=sum, windows=#0, window_count=1> %0 : f32[4, 1@x] origin 2
%3 = pad<dim=1, start=3, step=1> %2 : f32[4, 4@x] local [4, 1] origin 2
%4 = pad<dim=0, start=2, step=1> %3 : f32[6, 4@x] local [6, 1] origin 2
%5 = result<number=0> %4 : f32[6@?, 4@x?] local [6, 1] origin 4
)");
}

TEST_CASE("a check of a graph names pass and instruction") {
  const auto fault = [](const std::string& text, graph_stage stage) -> std::string {
    const parsed_graph g = parsed(text);
    try {
      check(g.mesh, g.code, stage, "normalise");
    } catch (const graph_error& error) { return error.what(); }
    return "";
  };
  CHECK(fault("%0 = argument<number=0> : f32[4]\n%1 = argument<number=1> : f32[5]\n%2 = add %0, %1 : f32[4]",
              graph_stage::tensors) ==
        "after normalise, %2 = add %0, %1 : f32[4]: its operands' shapes do not fit together");
  CHECK(fault("mesh x=2\n%0 = argument<number=0> : f32[4@x]", graph_stage::buffers) ==
        "after normalise, %0 = argument<number=0> : f32[4@x]: its buffer does not fit its layout");
}
