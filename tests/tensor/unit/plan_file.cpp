// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// built: once
#include <espalier/core.hpp>
#include <espalier/tensor/core/program/differentiate.hpp>
#include <espalier/tensor/run/report/alternatives.hpp>
#include <espalier/tensor/run/report/check_plan.hpp>

#include <catch2/catch.hpp>

#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

// Plans that are read again, what is said of two of them, and what other layouts would cost.

namespace ep = espalier;

namespace {

struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 2> {};
using mesh = ep::mesh<x, y>;

const std::string head =
    "espalier plan 1\n"
    "program train\n"
    "mesh x=2, y=2\n"
    "annotated 1 of 40 values\n"
    "memory 3,000 B: 1,000 arguments, 500 results, 1,500 between\n"
    "sends 1,536 B in 3 collectives\n"
    "time 5.000 us sending, 7.000 us computing, at 10,000,000,000 B/s, 1.638 us a start, 400,000,000,000 "
    "operations/s\n";
const std::string gather =
    "all_gather over x | 1 x 512 B | 1.690 us | f32[8, 32] | main.cpp:41 | main.cpp:12 f32[8@x, 32]\n";
const std::string sum =
    "all_reduce over x*y | 2 x 512 B | 3.380 us | f32[16] | block.hpp:7, called from main.cpp:44 | argument 0 "
    "f32[16@x]\n";
const std::string along = "with the all_reduce above | 2 x - | - | f32[3] | - | -\n";
const std::string plan = head + gather + sum + along;

/// `text` with the first occurrence of each word replaced.
std::string with(std::string text, std::initializer_list<std::pair<std::string, std::string>> words) {
  for (const auto& [from, to] : words) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
  }
  return text;
}

ep::plan_differences differences(const std::string& before, const std::string& after) {
  return ep::compare_plans(ep::parse_plan(before, "a.plan"), ep::parse_plan(after, "b.plan"));
}
using sentences = std::vector<std::string>;

template <class F> std::string message_of(const F& f) {
  try {
    f();
  } catch (const ep::plan_error& error) { return error.what(); }
  return "nothing was thrown";
}
std::string refusal_of(const std::string& text) {
  return message_of([&] { static_cast<void>(ep::parse_plan(text, "a.plan")); });
}

struct shift {
  constexpr auto operator()(auto a) const { return ep::reshard<ep::none, ep::none>(ep::shard<x, y>(a) + 1); }
};
template <int Rows> using step = ep::program<mesh, shift, ep::f32<Rows, 32>>;

}  // namespace

TEST_CASE("a plan is read as it was written", "[plan]") {
  const ep::plan_document read = ep::parse_plan(plan, "a.plan");
  CHECK(read.program == "train");
  CHECK(read.mesh == "x=2, y=2");
  CHECK(read.annotated == 1);
  CHECK(read.values == 40);
  CHECK(read.peak == 3000);
  CHECK(read.arguments == 1000);
  CHECK(read.results == 500);
  CHECK(read.between == 1500);
  CHECK(read.sent == 1536);
  CHECK(read.collectives == 3);
  CHECK(read.sending == "5.000 us");
  CHECK(read.computing == "7.000 us");
  CHECK(read.machine == "10,000,000,000 B/s, 1.638 us a start, 400,000,000,000 operations/s");
  REQUIRE(read.entries.size() == 3);
  CHECK(read.entries[1].kind == "all_reduce");
  CHECK(read.entries[1].axes == "x*y");
  CHECK(read.entries[1].times == 2);
  CHECK(read.entries[1].bytes == 512);
  CHECK(read.entries[1].layout == "f32[16]");
  CHECK(read.entries[1].line == "block.hpp:7, called from main.cpp:44");
  CHECK(read.entries[1].cause == "argument 0 f32[16@x]");
  CHECK(read.entries[2].travels);
  CHECK(read.entries[2].axes == "x*y");
  CHECK(read.entries[2].line.empty());
  // As a raw string that is included, and with the line ends of other systems.
  CHECK(differences("R\"(" + plan + ")\"\n", plan).changes.empty());
  CHECK(differences(with(plan, {{"1\nprogram", "1\r\nprogram"}}), plan).changes.empty());
}

TEST_CASE("two plans differ in words", "[plan]") {
  CHECK(differences(plan, plan).changes.empty());
  CHECK(differences(plan, plan).moved == 0);

  CHECK(differences(plan, with(plan, {{"1 x 512", "1 x 2,048"}})).changes ==
        sentences{"the all-gather over x at main.cpp:41 grew from 512 to 2,048 B"});
  CHECK(differences(plan, with(plan, {{"2 x 512", "2 x 8"}})).changes ==
        sentences{"the all-reduce over x*y at block.hpp:7, called from main.cpp:44 shrank from 512 to 8 B"});
  CHECK(differences(plan, with(plan, {{"1 x 512", "1 x 2,048"}, {"f32[8, 32]", "f32[8, 128]"}})).changes ==
        sentences{"the all-gather over x at main.cpp:41 grew from 512 to 2,048 B; its result is f32[8, 128] instead of "
                  "f32[8, 32]"});
  CHECK(differences(plan, with(plan, {{"2 x 512", "12 x 512"}})).changes ==
        sentences{"the all-reduce over x*y at block.hpp:7, called from main.cpp:44 runs 12 times instead of 2 times"});
  CHECK(differences(plan, with(plan, {{"f32[8, 32] ", "f32[8, 32@y] "}})).changes ==
        sentences{"the result of the all-gather over x at main.cpp:41 is f32[8, 32@y] instead of f32[8, 32]"});
  CHECK(
      differences(plan, with(plan, {{"main.cpp:12 f32[8@x, 32]", "main.cpp:12 f32[8@x, 32@y]"}})).changes ==
      sentences{"the all-gather over x at main.cpp:41 is because of main.cpp:12 f32[8@x, 32@y] instead of main.cpp:12 "
                "f32[8@x, 32]"});
  CHECK(
      differences(plan, with(plan, {{"argument 0 f32[16@x]", "-"}})).changes ==
      sentences{"the all-reduce over x*y at block.hpp:7, called from main.cpp:44 follows from no annotation instead of "
                "argument 0 f32[16@x]"});

  const std::string more =
      plan + "all_reduce over y | 1 x 4,096 B | 2.048 us | f32[8] | main.cpp:52 | main.cpp:12 f32[8@x, 32]\n";
  CHECK(differences(plan, more).changes == sentences{"a new all-reduce over y at main.cpp:52, 4,096 B"});
  CHECK(differences(more, plan).changes == sentences{"the all-reduce over y at main.cpp:52, 4,096 B, is gone"});
  CHECK(differences(plan, head + gather + sum).changes == sentences{"the f32[3] in the all-reduce over x*y is gone"});
  CHECK(differences(plan, with(plan, {{"all_gather over x |", "all_to_all over x*y |"}})).changes ==
        sentences{"the all-gather over x at main.cpp:41, 512 B, became an all-to-all over x*y, 512 B"});
  CHECK(differences(
            plan, with(plan, {{"with the all_reduce above | 2 x - | - |", "all_reduce over x*y | 2 x 12 B | 1 us |"}}))
            .changes == sentences{"the all-reduce over x*y of f32[3], 2 times 12 B, has messages of its own"});

  CHECK(differences(plan, with(plan, {{"memory 3,000 B: 1,000 arguments, 500 results, 1,500",
                                       "memory 4,500 B: 1,500 arguments, 500 results, 2,500"}}))
            .changes == sentences{"peak memory grew from 3,000 to 4,500 B: arguments from 1,000 to 1,500, values "
                                  "between from 1,500 to 2,500"});
  CHECK(
      differences(plan, with(plan, {{"sends 1,536 B in 3", "sends 1,024 B in 2"}})).changes ==
      sentences{"a device sends 1,024 B in all instead of 1,536", "a device takes part in 2 collectives instead of 3"});
  CHECK(differences(plan, with(plan, {{"mesh x=2", "mesh x=4"}})).changes ==
        sentences{"the mesh is x=4, y=2 instead of x=2, y=2"});
  CHECK(differences(plan, with(plan, {{"annotated 1 of 40", "annotated 2 of 41"}})).changes ==
        sentences{"2 of 41 values are annotated instead of 1 of 40"});
  CHECK(differences(plan, with(plan, {{"7.000 us computing", "9.000 us computing"}})).changes ==
        sentences{"computing is predicted to take 9.000 us instead of 7.000 us"});
  CHECK(differences(plan, with(plan, {{"at 10,000", "at 1,000"}, {"7.000 us computing", "9.000 us computing"}}))
            .changes ==
        sentences{"times are predicted for another machine: 1,000,000,000 B/s, 1.638 us a start, 400,000,000,000 "
                  "operations/s instead of 10,000,000,000 B/s, 1.638 us a start, 400,000,000,000 operations/s"});
}

TEST_CASE("collectives are found again on other lines", "[plan]") {
  const ep::plan_differences moved =
      differences(plan, with(plan, {{"main.cpp:41", "main.cpp:43"}, {"block.hpp:7", "block.hpp:9"}}));
  CHECK(moved.changes.empty());
  CHECK(moved.moved == 2);

  // A collective that comes before another one on its line is the new one.
  const std::string first =
      "all_gather over x | 1 x 64 B | 1.644 us | f32[2, 8] | main.cpp:20 | main.cpp:12 f32[8@x, 32]\n";
  CHECK(differences(plan, head + first + gather + sum + along).changes ==
        sentences{"a new all-gather over x at main.cpp:20, 64 B"});
  // All lines moved, and the bytes of one grew with its layout.
  CHECK(differences(head + first + gather, with(head + first + gather, {{"main.cpp:20", "main.cpp:22"},
                                                                        {"1 x 64", "1 x 128"},
                                                                        {"f32[2, 8]", "f32[4, 8]"},
                                                                        {"main.cpp:41", "main.cpp:43"}}))
            .changes == sentences{"the all-gather over x at main.cpp:22 grew from 64 to 128 B; its result is f32[4, 8] "
                                  "instead of f32[2, 8]"});
  // Two on one line are told apart by their layouts.
  const std::string second = "all_gather over x | 1 x 64 B | 1.644 us | f32[2, 8] | main.cpp:41 | -\n";
  CHECK(differences(head + gather + second, head + gather).changes ==
        sentences{"the all-gather over x of f32[2, 8] at main.cpp:41, 64 B, is gone"});
}

TEST_CASE("what is no plan of this program is refused in a sentence", "[plan]") {
  CHECK(refusal_of("") == "a.plan is no plan: it is empty");
  CHECK(refusal_of("int main() {}\n") ==
        "a.plan is no plan: its first line is \"int main() {}\", and that of a plan is \"espalier plan 1\"");
  CHECK(refusal_of("\x7f"
                   "ELF\x02\n") ==
        "a.plan is no plan: its first line is \"?ELF?\", and that of a plan is \"espalier plan 1\"");
  CHECK(refusal_of("espalier plan 2\n") ==
        "a.plan is a plan of version 2, and this program reads version 1: write it again with this release, or compare "
        "it with the espalier-plan of the release that wrote it");
  CHECK(refusal_of("espalier plan 1\nprogram train\n") ==
        "a.plan is a part of a plan: it ends after line 2, before \"mesh ...\"");
  CHECK(refusal_of(with(plan, {{"mesh", "mash"}})) ==
        "a.plan, line 3: \"mash x=2, y=2\" stands where a plan has \"mesh ...\"");
  CHECK(refusal_of(with(plan, {{"3,000 B", "many B"}})) ==
        "a.plan, line 5: \"memory many B: 1,000 arguments, 500 results, 1,500 between\" stands where a plan has "
        "\"memory N "
        "B: N arguments, N results, N between\"");
  CHECK(refusal_of(with(plan, {{"3,000 B", "99,999,999,999,999,999,999 B"}})).find("a.plan, line 5: ") == 0);
  const std::string entry =
      "stands where a plan has \"kind over axes | times x bytes | time | layout | line | annotation\"";
  CHECK(refusal_of(head + "all_gather over x | 1 x 512 B\n") ==
        "a.plan, line 8: \"all_gather over x | 1 x 512 B\" " + entry);
  CHECK(refusal_of(with(plan, {{"1 x 512 B", "512"}})).find(entry) != std::string::npos);
  CHECK(refusal_of(with(plan, {{"all_gather over x", "all_gather"}})).find(entry) != std::string::npos);
  CHECK(refusal_of(plan + "one | more | 1 | 2 | 3 | 4 | 5\n").find("a.plan, line 11: ") == 0);
  CHECK(refusal_of(head + along).find("a collective before one that travels with it") != std::string::npos);
  CHECK(message_of([] {
          static_cast<void>(differences(plan, with(plan, {{"train", "decode"}})));
        }) == "b.plan is the plan of \"decode\", and a.plan that of \"train\": plans of one program are compared");
  CHECK(message_of([] { static_cast<void>(ep::read_plan("/no/such.plan")); }) ==
        "/no/such.plan cannot be read: No such file or directory");
  CHECK(message_of([] { ep::write_plan<step<8>>("/no/such.plan"); }) ==
        "/no/such.plan cannot be written: No such file or directory");
}

TEST_CASE("a program is held to the plan in a file", "[plan]") {
  const std::string file = "check_plan_test.plan";
  ep::write_plan<step<8>>(file);
  ep::check_plan<step<8>>(file);
  {
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    CHECK(text == "R\"(" + std::string(ep::plan_text<step<8>>()) + ")\"\n");
  }
  // Of 16 x 32 floats a device has a quarter, and sends it to 3 others; of 8 x 32 half of that.
  const std::string words = message_of([&] { ep::check_plan<step<16>>(file); });
  INFO(words);
  CHECK(words.find("the plan of \"shift\" is not the one in " + file + ":\n") == 0);
  CHECK(words.find("  the all-gather over x*y at plan_file.cpp:") != std::string::npos);
  CHECK(words.find(" grew from 768 to 1,536 B; its result is f32[16, 32] instead of f32[8, 32]\n") !=
        std::string::npos);
  CHECK(words.find("  peak memory grew from ") != std::string::npos);
  CHECK(words.find("\nIf that is meant, write the file again: ep::write_plan<...>(\"" + file + "\").") !=
        std::string::npos);
  CHECK_THROWS_AS((ep::check_plan<step<16>>(file)), ep::plan_changed);
  CHECK(message_of([&] { ep::check_plan<step<8>, "other">(file); }) ==
        file + " is the plan of \"shift\", not of \"other\": give the file that write_plan wrote for this program");
  // A program as a value, with a name.
  constexpr auto nameless = ep::compile<mesh, ep::f32<8, 8>>([](auto a) { return ep::shard<x, y>(a) * 2; });
  ep::write_plan<"double">(file, nameless);
  ep::check_plan<"double">(file, nameless);
  CHECK(message_of([&] { ep::check_plan(file, nameless); }).find("not of \"(lambda)\"") != std::string::npos);
  CHECK(std::remove(file.c_str()) == 0);
}

namespace {

struct mlp {
  constexpr auto operator()(auto a, auto w_in, auto w_out) const {
    const auto h = ep::shard<x, y>(ep::relu(ep::matmul(a, w_in)));
    return ep::matmul(h, w_out);
  }
};
using product = ep::program<mesh, mlp, ep::f32<64, 256>, ep::f32<256, 1024>, ep::f32<1024, 256>>;

constexpr int wasteful_line = __LINE__ + 2;
struct wasteful {
  constexpr auto operator()(auto a) const { return ep::sum<1>(ep::tanh(ep::shard<ep::none, x>(ep::exp(a)))); }
};
using waste = ep::program<mesh, wasteful, ep::sharded<ep::f32<256, 256>, x, ep::none>>;

struct trained_loop {
  constexpr auto operator()(auto a, auto layers) const {
    const auto loss = [](auto w, auto in) {
      const auto body = [](auto h, auto v) { return ep::tanh(ep::matmul(ep::shard<x, y>(h), v)); };
      const auto out = ep::scan(body, in, w);
      return ep::mean(out * out);
    };
    return ep::grad(loss)(layers, a);
  }
};
using loop = ep::program<mesh, trained_loop, ep::f32<8, 16>, ep::f32<7, 16, 16>>;

template <class Program> std::string alternatives_of(long most_instructions = ep::detail::most_instructions_tried) {
  std::ostringstream out;
  const ep::detail::program_facts facts = ep::detail::facts_of_program<Program>();
  ep::detail::write_alternatives(out, facts, Program::traced, most_instructions);
  return out.str();
}
bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("explain says of a collective what the next best layout costs", "[explain]") {
  // An all-reduce of 32 x 256 floats between two devices sends 32,768 B. If the result may be split further, each
  // device sends the half of its terms. Without the annotation all devices compute everything: that is no better
  // layout.
  const std::string text = alternatives_of<product>();
  INFO(text);
  CHECK(has(text, "all_reduce over y  f32[64@x, 256]  f32[64@x*y, 256]      16.0 KiB\n"));
  CHECK(has(text, "\nthe program as it is: 32.0 KiB\n"));
  CHECK_FALSE(has(text, "without"));

  std::ostringstream all;
  ep::explain<product>(all, ep::with_alternatives);
  CHECK(has(all.str(), "because of"));
  CHECK(has(all.str(), text));
}

TEST_CASE("explain names an annotation that costs more than twice the best", "[explain]") {
  // The annotation exchanges rows for columns, 128 x 128 floats, and the sums of rows are 256 partials between two.
  const std::string text = alternatives_of<waste>();
  INFO(text);
  CHECK(has(text, "the program as it is: 65.0 KiB\n"));
  CHECK(has(text, "\nwithout plan_file.cpp:" + std::to_string(wasteful_line) + ": 0 B sent instead of 65.0 KiB\n"));
}

TEST_CASE("layouts of values in loops and of gradients are tried", "[explain]") {
  const std::string text = alternatives_of<loop>();
  INFO(text);
  CHECK_FALSE(has(text, "not looked at"));
  // 7 times 4 x 16 sums are scattered between two, and gathered in the gradient: 128 B each. The gradient of the
  // layers, 7 x 8 x 16 floats, is summed between two: 3,584 B, or the half of it if its columns may be split.
  CHECK(has(text, "the program as it is: 5.25 KiB\n"));
  CHECK(has(text, "all_reduce over x      f32[7, 16@y, 16]  f32[7, 16@y, 16@x]      3.50 KiB\n"));
}

TEST_CASE("the work for a report on other layouts is bounded", "[explain]") {
  const std::string text = alternatives_of<waste>(0);
  INFO(text);
  CHECK(has(text, "f32[256, 256@x]  not looked at             -\n"));
  CHECK(has(text, "\n1 line with annotations not looked at\n"));
}
