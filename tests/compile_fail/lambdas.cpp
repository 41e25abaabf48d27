// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Programs of functions without names.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

#if defined(CASE_mistake)
constexpr auto step = ep::compile<mesh, ep::f32<8>>([](auto x) {
  return ep::squeeze<0>(x);  // mistake
});
#elif defined(CASE_captures)
constexpr float factor = 2;
constexpr auto step = ep::compile<mesh, ep::f32<8>>([scale = factor](auto x) { return scale * x; });
#elif defined(CASE_arguments)
constexpr auto step = ep::compile<mesh, ep::f32<8>>([](auto x, auto y) { return x + y; });
#elif defined(CASE_loss)
constexpr auto step = ep::compile<mesh, ep::f32<8>>([](auto x) {
  const auto [value, by] = ep::value_and_grad([](auto y) { return y * y; })(x);  // loss
  return ep::results(value, by);
});
#else
constexpr auto step = ep::compile<mesh, ep::f32<8>>([](auto x) {
  const auto [value, by] = ep::value_and_grad([](auto y) { return ep::sum(y * y); })(x);
  return ep::results(value, by);
});
constexpr auto f = [](auto x, auto w) { return ep::tanh(ep::matmul(ep::shard<data, ep::none>(x), w)); };
static_assert(ep::program_of<mesh, f, ep::f32<8, 4>, ep::f32<4, 4>>::collectives() == 0);
static_assert(ep::program_of<mesh, [](auto x) { return x + 1; }, ep::f32<8>>::flops() == 8);
static_assert(ep::program<mesh, decltype([](auto x) { return x + 1; }), ep::f32<8>>::flops() == 8);
#endif

// clang-format off
// first(CASE_mistake): squeeze: this dimension has more than one element
// expect(CASE_mistake): dimension_has_more_elements<espalier::f32<8>, espalier::why::dim<0> ?>::raise<espalier::why::at<espalier::why::line<13>
// user_line(CASE_mistake): constexpr auto step
// kind(CASE_mistake): a mistake in a lambda
// first(CASE_captures): program: the function has no default constructor
// expect(CASE_captures): function_without_default<
// user_line(CASE_captures): constexpr auto step
// kind(CASE_captures): a lambda that captures
// first(CASE_arguments): program: the function takes another number of arguments|program: the function cannot be called
// expect(CASE_arguments): wrong_argument_count<|function_not_callable<
// user_line(CASE_arguments): constexpr auto step
// kind(CASE_arguments): a lambda of another number of arguments
// first(CASE_loss): value_and_grad: the function must return one floating-point scalar
// expect(CASE_loss): loss_is_not_scalar<espalier::f32<8> ?>::raise<espalier::why::at<espalier::why::line<22>
// user_line(CASE_loss): constexpr auto step
// kind(CASE_loss): a lambda's loss is no scalar
// clang-format on
constexpr auto work = step.flops();
