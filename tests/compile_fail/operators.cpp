// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/program/program.hpp>

/// A mistake of an operator stands on the operator's line, also where its operands come from functions elsewhere.
namespace ep = espalier;

struct data : ep::axis<"data", 2> {};
using mesh = ep::mesh<data>;

constexpr auto activated(auto x) { return ep::tanh(x); }
constexpr auto scaled(auto x) { return 0.5F * activated(x); }

struct model {
  constexpr auto operator()(auto x, auto y) const {
    const auto one = activated(x) + scaled(x);
#if defined(CASE_sum)
    const auto two = activated(x) + scaled(y);  // the mistake: sum
#elif defined(CASE_negated)
    const auto two = !one;  // the mistake: negated
#elif defined(CASE_travels)
    const auto wrong = activated(x) * activated(y);  // the mistake: travels
    const auto two = -(2.0F - wrong) + activated(wrong) / 3.0F;
#elif defined(CASE_compared)
    const auto two = ep::select(one == y, one, 2 * one);  // the mistake: compared
#elif defined(CASE_joined)
    const auto two = ep::concat<0>(activated(x), scaled(y));  // the mistake: joined
#else
    const auto two = ep::select(one != x, -(2.0F - one), activated(one) / 3.0F);
#endif
    return ep::results(one, two, y);
  }
};
using step = ep::program<mesh, model, ep::f32<4, 8>, ep::f32<4, 6>>;
static_assert(step::flops() > 0);

// clang-format off
// first(CASE_sum): elementwise: these shapes do not broadcast against each other
// expect(CASE_sum): shape_mismatch<espalier::f32<4, 8>, espalier::f32<4, 6> ?>::raise<espalier::why::in<espalier::why::op<'a', 'd', 'd' ?>, espalier::why::at<espalier::why::line<18>
// first(CASE_negated): a condition must be a boolean tensor
// expect(CASE_negated): condition_is_not_boolean<espalier::f32<4, 8> ?>::raise<espalier::why::in<espalier::why::op<'l', 'o', 'g', 'i', 'c', 'a', 'l', '_', 'n', 'o', 't' ?>, espalier::why::at<espalier::why::line<20>
// first(CASE_travels): elementwise: these shapes do not broadcast against each other
// expect(CASE_travels): shape_mismatch<espalier::f32<4, 8>, espalier::f32<4, 6> ?>::raise<espalier::why::in<espalier::why::op<'m', 'u', 'l', 't', 'i', 'p', 'l', 'y' ?>, espalier::why::at<espalier::why::line<22>
// first(CASE_compared): elementwise: these shapes do not broadcast against each other
// expect(CASE_compared): shape_mismatch<espalier::f32<4, 8>, espalier::f32<4, 6> ?>::raise<espalier::why::in<espalier::why::op<'e', 'q', 'u', 'a', 'l' ?>, espalier::why::at<espalier::why::line<25>
// first(CASE_joined): concat: the shapes differ in another dimension
// expect(CASE_joined): concat_shape_mismatch<.*line<27>
// clang-format on
