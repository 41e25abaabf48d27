// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// Ops that lack what the program needs of them: a partition rule, a gradient.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

#if defined(CASE_without_rule)
inline constexpr ep::op_info cube_op{.name = "cube"};
#elif defined(CASE_without_gradient)
inline constexpr ep::op_info cube_op{.name = "cube", .factors = ep::detail::same_dimensions};
#else
inline constexpr ep::op_info cube_op{
    .name = "cube", .factors = ep::detail::same_dimensions, .gradient = ep::detail::no_gradient};
#endif
constexpr auto cube(const auto& a, ep::source_line where = ep::source_line::current()) {
  return ep::detail::unary<&cube_op>(a, where);
}

struct loss_of {
  constexpr auto operator()(auto x) const {
    const auto y = cube(x);  // the op without a rule, without a gradient
    return ep::mean(y);
  }
};
struct train {
  constexpr auto operator()(auto x) const {
    const auto [loss, gradient] = ep::value_and_grad(loss_of{})(x);
    return ep::results(loss, gradient);
  }
};

/// The gradient of a gradient: gelu's first derivative is one op, which has none of its own.
struct slope_of {
  constexpr auto operator()(auto x) const {
#if defined(CASE_second_derivative)
    const auto y = ep::gelu(x);  // second_derivative
#else
    const auto y = ep::tanh(x);
#endif
    return ep::mean(y);
  }
};
struct penalty_of {
  constexpr auto operator()(auto x) const {
    const auto [value, slope] = ep::value_and_grad(slope_of{})(x);
    return ep::mean(slope * slope);
  }
};
struct train_twice {
  constexpr auto operator()(auto x) const {
    const auto [penalty, gradient] = ep::value_and_grad(penalty_of{})(x);
    return ep::results(penalty, gradient);
  }
};

// clang-format off
// first(CASE_without_rule): this op has no partition rule, and nothing is replicated silently. Give its op_info the function `factors`
// expect(CASE_without_rule): op_without_rule<espalier::why::op<'c', 'u', 'b', 'e'> ?>::raise<espalier::why::at<espalier::why::line<25>, 'r', 'u', 'l', 'e', 's', '.', 'c', 'p', 'p'>
// user_line(CASE_without_rule): step::flops
// budget(CASE_without_rule): 5 16
// kind(CASE_without_rule): an op of one's own without a rule
// first(CASE_without_gradient): this op has no gradient. Give its op_info the function `gradient`, or put stop_gradient before it
// expect(CASE_without_gradient): op_without_gradient<espalier::why::op<'c', 'u', 'b', 'e'> ?>::raise<espalier::why::at<espalier::why::line<25>
// user_line(CASE_without_gradient): step::flops
// budget(CASE_without_gradient): 5 16
// kind(CASE_without_gradient): an op of one's own without a gradient
// first(CASE_second_derivative): this op has no gradient
// expect(CASE_second_derivative): op_without_gradient<espalier::why::op<'g', 'e', 'l', 'u', '_', 's', 'l', 'o', 'p', 'e'> ?>::raise<espalier::why::at<espalier::why::line<40>
// user_line(CASE_second_derivative): twice::flops
// kind(CASE_second_derivative): an op's gradient has none itself
// clang-format on
#if defined(CASE_without_rule)
struct forward {
  constexpr auto operator()(auto x) const { return loss_of{}(x); }
};
using step = ep::program<mesh, forward, ep::f32<64>>;
#else
using step = ep::program<mesh, train, ep::f32<64>>;
#endif
constexpr auto work = step::flops();

using twice = ep::program<mesh, train_twice, ep::f32<64>>;
constexpr auto more_work = twice::flops();
