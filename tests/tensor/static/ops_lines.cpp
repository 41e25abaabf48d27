// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/program/program.hpp>

/// Every op belongs to the line on which it is written: operators too, whose operands may be what functions elsewhere
/// return.
namespace {

namespace ep = espalier;

constexpr auto in_helper(auto x) { return ep::exp(x); }

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

constexpr int begin = __LINE__ + 4;
struct every_operator {
  constexpr auto operator()(auto x, auto y) const {
    // clang-format off
    const auto sum = in_helper(x) + in_helper(y);
    const auto difference = in_helper(x) - 2.0F;
    const auto scaled = 3 * in_helper(y);
    const auto ratio = x / in_helper(y);
    const auto negative = -in_helper(ratio);
    const auto truth = (in_helper(x) < in_helper(y)) |
                       (in_helper(sum) >= y);
    const auto lie = !(1.0 > in_helper(difference));
    const auto both = ep::concat<0>(in_helper(scaled), in_helper(negative));
    x -= in_helper(y);
    x *= 7;
    const auto t = truth;
    const auto untrue = !t;
    // clang-format on
    return ep::results(ep::select(truth & lie & untrue, sum, y), both, x);
  }
};
using step = ep::program<mesh, every_operator, ep::f32<4>, ep::f32<4>>;

/// Assignments change the variable: x is (x - exp(y)) * 7.
constexpr bool assigns() {
  const auto& code = step::traced.code;
  for (const ep::instruction& i : code) {
    if (i.op != &ep::ops::multiply || i.where.line != begin + 10) continue;
    return code[i.operand[0]].op == &ep::ops::subtract && code[i.operand[0]].where.line == begin + 9;
  }
  return false;
}

constexpr bool stands_on(const ep::op_info& op, int line) {
  for (const ep::instruction& i : step::traced.code) {
    if (i.op == &op && i.where.line == begin + line) return true;
  }
  return false;
}
static_assert(stands_on(ep::ops::add, 0));
static_assert(stands_on(ep::ops::subtract, 1));
static_assert(stands_on(ep::ops::multiply, 2));
static_assert(stands_on(ep::ops::divide, 3));
static_assert(stands_on(ep::ops::negate, 4));
static_assert(stands_on(ep::ops::less, 5));
static_assert(stands_on(ep::ops::less_equal, 6));
static_assert(stands_on(ep::ops::logical_or, 5) || stands_on(ep::ops::logical_or, 6));
static_assert(stands_on(ep::ops::less, 7));
static_assert(stands_on(ep::ops::logical_not, 7));
static_assert(stands_on(ep::ops::concat, 8));
static_assert(stands_on(ep::ops::logical_not, 12));
static_assert(stands_on(ep::ops::logical_and, 14));
static_assert(assigns());

}  // namespace
