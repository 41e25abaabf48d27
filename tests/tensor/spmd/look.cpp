// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// optimised: never

#include <espalier/tensor/core/nn/attention.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/program/program.hpp>
#include <espalier/tensor/run/execute/gather.hpp>
#include <espalier/tensor/run/execute/runner.hpp>

#include <catch2/catch.hpp>
#include <support/written.hpp>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

/// Looks inside a program: `print`, `check_finite` and ESPALIER_CHECK=nan. Outside of them nothing changes.
namespace ep = espalier;

namespace {

using Catch::Contains;
using Catch::Matches;
using testing::count_of;
using testing::written_by;

template <int Size> struct data : ep::axis<"data", Size> {};
template <int Size> struct model : ep::axis<"model", Size> {};
template <int Data, int Model> using on = ep::mesh<data<Data>, model<Model>>;

/// The text of what a run throws, on one device or nested in the error of one of several.
template <class Run> std::string text_of_error(const Run& run) {
  try {
    run();
  } catch (const std::exception& error) { return error.what(); }
  return "nothing was thrown";
}

struct environment {
  explicit environment(const char* value) { setenv("ESPALIER_CHECK", value, 1); }
  ~environment() { unsetenv("ESPALIER_CHECK"); }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
};

// --- outside of it nothing changes -----------------------------------------------------------------------------------

template <bool Looks, class Data, class Model> struct training {
  template <class T> static constexpr auto look(const T& value, const char* name) {
    if constexpr (Looks) ep::print(value, name);
    if constexpr (Looks) ep::check_finite(value, name);
    return value;
  }
  constexpr auto operator()(auto x, auto w, auto layers) const {
    const auto loss = [](const auto& p, auto rows) {
      const auto first = p.template get<0>();
      const auto others = p.template get<1>();
      const auto products = ep::matmul(ep::shard<Data, Model>(rows), first);
      look(products, "products");
      look(ep::transpose<1, 0>(products), "turned");
      const auto h = look(ep::tanh(products), "h");
      const auto body = [](auto c, auto layer) {
        const auto y = look(ep::tanh(ep::matmul(c, ep::shard<ep::none, Model>(layer))), "next");
        look(c, "carry");
        return y;
      };
      const auto out = ep::scan(body, h, others, ep::recompute);
      look(ep::exp(out), "nobody else reads this");
      // A sum that travels as one number.
      const auto squares = look(ep::matmul(ep::shard<Data, Model>(rows * rows), first), "squares");
      return look(ep::mean(out * out) + ep::sum(squares), "loss");
    };
    const auto [value, gradient] = ep::value_and_grad(loss)(ep::results(w, layers), x);
    look(gradient.template get<0>(), "gradient");
    return ep::results(value, gradient.template get<0>(), gradient.template get<1>());
  }
};
template <bool Looks, int Data, int Model>
using training_program = ep::program<on<Data, Model>, training<Looks, data<Data>, model<Model>>, ep::f32<7, 6>,
                                     ep::f32<6, 6>, ep::f32<3, 6, 6>>;

float number(std::int64_t n) { return static_cast<float>((n * n + 3 * n) % 11 - 5) / 8; }

template <bool Looks, int Data, int Model> std::vector<float> trained() {
  using program = training_program<Looks, Data, Model>;
  ep::world world(on<Data, Model>::value);
  ep::runner<program> run(world);
  const auto x = run.template argument<0>();
  const auto w = run.template argument<1>();
  const auto layers = run.template argument<2>();
  const auto fill = [](float& e, std::int64_t n) { e = number(n); };
  x.for_each(fill);
  w.for_each(fill);
  layers.for_each(fill);
  const auto& results = run(x, w, layers);
  std::vector<float> all = ep::gather(world, results.template get<0>());
  for (const float e : ep::gather(world, results.template get<1>())) all.push_back(e);
  for (const float e : ep::gather(world, results.template get<2>())) all.push_back(e);
  return all;
}

template <int Data, int Model> void require_no_change() {
  using plain = training_program<false, Data, Model>;
  using looking = training_program<true, Data, Model>;
  using ep::all_gather, ep::all_reduce, ep::reduce_scatter, ep::exchange;
  static_assert(looking::collectives() == plain::collectives());
  static_assert(looking::template bytes<all_reduce>() == plain::template bytes<all_reduce>());
  static_assert(looking::template bytes<all_gather>() == plain::template bytes<all_gather>());
  static_assert(looking::template bytes<reduce_scatter>() == plain::template bytes<reduce_scatter>());
  static_assert(looking::template bytes<exchange>() == plain::template bytes<exchange>());
  const std::vector<float> expected = trained<false, Data, Model>();
  std::vector<float> got;
  const std::string text = written_by([&] { got = trained<true, Data, Model>(); });
  CHECK(got == expected);
  // Each part of a value once, and in each iteration.
  const auto parts_of = [&](const char* name) { return count_of(text, std::string(name) + ": f32["); };
  CHECK(parts_of("h") == Data * Model);
  CHECK(parts_of("loss") == 1);
  CHECK(parts_of("nobody else reads this") == Data * Model);
  CHECK(parts_of("next") == 3 * Data * Model);
  CHECK(parts_of("carry") == 3 * Data * Model);
  CHECK(parts_of("gradient") >= 1);
  CHECK(count_of(text, ", iteration 2, device 0") == 2);
}

}  // namespace

TEST_CASE("a program that looks at its values is the program without", "[look]") {
  require_no_change<1, 1>();
  require_no_change<2, 1>();
  require_no_change<2, 2>();
}

// --- print -----------------------------------------------------------------------------------------------------------

namespace {

constexpr int shown_line = __LINE__ + 4;
template <class Data> struct shown {
  constexpr auto operator()(auto x, auto n) const {
    x = ep::shard<Data, ep::none>(x);
    const auto y = ep::print(2 * x, "y");
    ep::print(n);
    ep::print(ep::convert<ep::dtype::bf16>(ep::sum(x)), "sum");
    return ep::sum<1>(y);
  }
};
/// The sum over devices is carried out after the product with 2.
template <class Data> struct term {
  constexpr auto operator()(auto x) const { return 2 * ep::print(ep::sum<0>(ep::shard<Data, ep::none>(x)), "term"); }
};

}  // namespace

TEST_CASE("print shows type, layout, line, elements and statistics in one piece", "[look]") {
  ep::world world(on<2, 1>::value);
  ep::runner<ep::program<on<2, 1>, shown<data<2>>, ep::f32<3, 2>, ep::i32<70>>> run(world);
  const auto x = run.argument<0>();
  const auto n = run.argument<1>();
  x.for_each([](float& e, std::int64_t i) {
    e = i == 5 ? std::numeric_limits<float>::infinity() : 1.5F * static_cast<float>(i);
  });
  n.for_each([](std::int32_t& e, std::int64_t i) { e = static_cast<std::int32_t>(i) - 7; });
  const std::string text = written_by([&] { run(x, n); });
  const std::string at = std::string(" at ") + __FILE__ + ":";
  CHECK_THAT(text, Contains("y: f32[3@data, 2]" + at + std::to_string(shown_line) +
                            ", device 0: [0..1, 0..1]\n  [[0 3]\n   [6 9]]\n  min 0, max 9, mean 4.5\n"));
  CHECK_THAT(
      text, Contains("y: f32[3@data, 2]" + at + std::to_string(shown_line) +
                     ", device 1: [2..2, 0..1]\n  [[12 inf]]\n  min 12, max 12, mean 12, 0 nan and 1 infinite of 2\n"));
  // Copies once, and of many elements the first and last.
  CHECK_THAT(text, Contains("value: i32[70]" + at + std::to_string(shown_line + 1) +
                            ", device 0\n  [-7 -6 -5 ... 60 61 62]\n  min -7, max 62, mean 27.5\n"));
  CHECK(count_of(text, "value: ") == 1);
  CHECK_THAT(text, Contains("sum: bf16[]" + at + std::to_string(shown_line + 2) +
                            ", device 0\n  inf\n  0 nan and 1 infinite of 1\n"));
}

TEST_CASE("print of a sum that is never carried out shows each device's term", "[look]") {
  using program = ep::program<on<2, 1>, term<data<2>>, ep::f32<4, 2>>;
  static_assert(program::collectives() == 1);
  ep::world world(on<2, 1>::value);
  ep::runner<program> run(world);
  const auto x = run.argument<0>();
  x.for_each([](float& e, std::int64_t i) { e = static_cast<float>(i); });
  std::vector<float> got;
  const std::string text = written_by([&] { got = ep::gather(world, run(x)); });
  CHECK(got == std::vector<float>{24, 32});
  CHECK_THAT(text, Contains("device 0, its term of the sum\n  [2 4]\n") &&
                       Contains("device 1, its term of the sum\n  [10 12]\n"));
}

namespace {

/// (y + sum) + another sum: both are reduced at once.
template <class Data> struct open_sum {
  constexpr auto operator()(auto x, auto y) const {
    const auto rows = ep::shard<Data, ep::none>(x);
    const auto first = ep::print(y + ep::sum<0>(rows), "first");
    return first + ep::sum<0>(rows * rows);
  }
};

}  // namespace

TEST_CASE("print of a sum that waits for more terms shows each device's share of the whole ones with its term",
          "[look]") {
  using program = ep::program<on<2, 1>, open_sum<data<2>>, ep::f32<4, 2>, ep::f32<2>>;
  static_assert(program::collectives() == 1);
  ep::world world(on<2, 1>::value);
  ep::runner<program> run(world);
  const auto x = run.argument<0>();
  const auto y = run.argument<1>();
  x.for_each([](float& e, std::int64_t i) { e = static_cast<float>(i); });
  y.for_each([](float& e, std::int64_t i) { e = static_cast<float>(8 - 2 * i); });
  std::vector<float> got;
  const std::string text = written_by([&] { got = ep::gather(world, run(x, y)); });
  CHECK(got == std::vector<float>{8 + 12 + 56, 6 + 16 + 84});
  CHECK_THAT(text, Contains("device 0, its term of the sum\n  [6 7]\n") &&
                       Contains("device 1, its term of the sum\n  [14 15]\n"));
}

// --- check_finite, and all values -----------------------------------------------------------------------------------

namespace {

constexpr int checked_line = __LINE__ + 5;
template <class Data> struct checked {
  constexpr auto operator()(auto x, auto factors) const {
    const auto body = [](auto c, auto one) {
      const auto y = c * one;
      return ep::check_finite(y, "y");
    };
    return ep::scan(body, ep::shard<Data, ep::none>(x), factors);
  }
};

/// One fused chain whose second step, 1 / (x - 3), is infinite where x is 3.
constexpr int divided_line = __LINE__ + 4;
template <class Data> struct divided {
  constexpr auto operator()(auto x) const {
    const auto shifted = ep::shard<Data, ep::none>(x) - 3.0;
    const auto inverse = 1.0 / shifted;
    return ep::tanh(inverse) * 0.0 + inverse * 0.0;
  }
};
/// A product in a loop overflows in its last iteration.
constexpr int product_line = __LINE__ + 3;
template <class Data> struct overflowing {
  constexpr auto operator()(auto x, auto w) const {
    const auto body = [](auto c, auto factor) { return ep::matmul(c, factor); };
    return ep::sum<0>(ep::scan(body, ep::shard<Data, ep::none>(x), w));
  }
};
/// Rows of a mean over devices that have none of it; a mask of infinities; scores that a mask hides.
template <class Data> struct harmless {
  constexpr auto operator()(auto x, auto q) const {
    const auto split = ep::shard<Data, ep::none>(x);
    const auto normal = split / ep::sum<0>(split * split);
    const auto masked =
        ep::select(normal < 0.01F, ep::constant<typename decltype(split)::tensor>(x, -INFINITY), normal);
    return ep::results(ep::softmax<1>(masked), ep::max<0>(masked), ep::nn::causal_attention(q, q, q));
  }
};

}  // namespace

TEMPLATE_TEST_CASE_SIG("check_finite ends the program at the first value that is not", "[look]",
                       ((int Devices), Devices), 1, 2) {
  ep::world world(on<Devices, 1>::value);
  ep::runner<ep::program<on<Devices, 1>, checked<data<Devices>>, ep::f16<3, 2>, ep::f16<3>>> run(world);
  const auto x = run.template argument<0>();
  const auto factors = run.template argument<1>();
  factors.for_each(
      [](auto& e, std::int64_t i) { e = static_cast<std::remove_reference_t<decltype(e)>>(i == 0 ? 1.0F : 512.0F); });
  x.for_each(
      [](auto& e, std::int64_t i) { e = static_cast<std::remove_reference_t<decltype(e)>>(i == 4 ? -1.0F : 0.125F); });
  CHECK_THAT(text_of_error([&] { run(x, factors); }),
             Contains("check_finite at " __FILE__ ":" + std::to_string(checked_line) +
                      ", iteration 2: y is -inf at [2, 0] of f16[3" + (Devices > 1 ? "@data" : "") +
                      ", 2], on device " + std::to_string(Devices - 1)));
}

TEMPLATE_TEST_CASE_SIG("ESPALIER_CHECK=nan names the first operator, line, device and element", "[look]",
                       ((int Devices), Devices), 1, 2) {
  const environment asked("replicas,nan");
  ep::world world(on<Devices, 1>::value);
  const std::string last = std::to_string(Devices - 1);
  const std::string split = Devices > 1 ? "@data" : "";

  SECTION("inside a fused chain") {
    ep::runner<ep::program<on<Devices, 1>, divided<data<Devices>>, ep::f64<5, 3>>> run(world);
    const auto x = run.template argument<0>();
    x.for_each([](double& e, std::int64_t i) { e = i == 13 ? 3 : static_cast<double>(i) / 2 + 0.25; });
    CHECK_THAT(text_of_error([&] { run(x); }),
               Contains("ESPALIER_CHECK=nan: divide at " __FILE__ ":" + std::to_string(divided_line) +
                        ", gives inf at [4, 1] of f64[5" + split + ", 3], on device " + last));
  }
  SECTION("in a loop") {
    ep::runner<ep::program<on<Devices, 1>, overflowing<data<Devices>>, ep::f16<4, 2>, ep::f16<3, 2, 2>>> run(world);
    const auto x = run.template argument<0>();
    const auto w = run.template argument<1>();
    x.for_each(
        [](auto& e, std::int64_t i) { e = static_cast<std::remove_reference_t<decltype(e)>>(i == 7 ? 64.0F : 0.0F); });
    w.for_each([](auto& e, std::int64_t i) {
      e = static_cast<std::remove_reference_t<decltype(e)>>(i % 4 == 3 ? 16.0F : 0.0F);
    });
    CHECK_THAT(text_of_error([&] { run(x, w); }),
               Contains("einsum at " __FILE__ ":" + std::to_string(product_line) +
                        ", iteration 2, gives inf at [3, 1] of f16[4" + split + ", 2], on device " + last));
  }
  SECTION("or the argument") {
    ep::runner<ep::program<on<Devices, 1>, divided<data<Devices>>, ep::f64<5, 3>>> run(world);
    const auto x = run.template argument<0>();
    x.for_each([](double& e, std::int64_t i) { e = i == 14 ? std::nan("") : 0; });
    CHECK_THAT(text_of_error([&] { run(x); }),
               Contains("argument 0 of the program") && Contains("is nan at [4, 2]") && Contains("on device " + last));
  }
  SECTION("and not what a program's own infinities, masks and padding are made of") {
    ep::runner<ep::program<on<Devices, 1>, harmless<data<Devices>>, ep::f32<5, 3>, ep::f32<2, 4, 64, 8>>> run(world);
    const auto x = run.template argument<0>();
    const auto q = run.template argument<1>();
    x.for_each([](float& e, std::int64_t i) { e = static_cast<float>(i % 4) + 0.5F; });
    q.for_each([](float& e, std::int64_t i) { e = number(i); });
    CHECK(text_of_error([&] { run(x, q); }) == "nothing was thrown");
  }
}
