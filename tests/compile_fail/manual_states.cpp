// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/manual.hpp>
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in what ordinary operators, loops and branches do with shards.
namespace ep = espalier;
namespace spmd = espalier::spmd;
using ep::dims;
using ep::in_specs;
using ep::none;
using ep::out_specs;

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
struct stage : ep::axis<"stage", 2> {};
using mesh = ep::mesh<data, model>;

// clang-format off
constexpr auto by_hand = [](auto s, [[maybe_unused]] auto w) {  // s varies along model, w does not
  [[maybe_unused]] const auto p = spmd::as_partial<model>(s);
#if defined(CASE_relu)
  return ep::relu(p);  // relu
#elif defined(CASE_maximum)
  return ep::max<0>(p);  // maximum
#elif defined(CASE_softmax)
  return ep::softmax<1>(p);  // softmax
#elif defined(CASE_comparison)
  return ep::select(p > 0.0, s, 2.0 * s);  // comparison
#elif defined(CASE_denominator)
  return s / p;  // denominator
#elif defined(CASE_square)
  return p * p;  // square
#elif defined(CASE_matrix_square)
  return ep::einsum<"ab,cb->ac">(p, p);  // matrix_square
#elif defined(CASE_plus_varying)
  return p + s;  // plus_varying
#elif defined(CASE_plus_invariant)
  return p - w;  // plus_invariant
#elif defined(CASE_plus_number)
  return p + 1.0;  // plus_number
#elif defined(CASE_joined)
  return ep::concat<0>(p, s);  // joined
#elif defined(CASE_layout)
  return ep::shard<model, none>(s);  // layout
#elif defined(CASE_branch)
  return ep::cond(ep::sum(s) > 0.0, [&] { return s; }, [&] { return 2.0 * s; });  // branch
#elif defined(CASE_loop)
  return ep::while_loop([](auto t) { return ep::sum(t) > 0.0; }, [](auto t) { return t - 1.0; }, s);  // loop
#elif defined(CASE_carry)
  return ep::repeat<2>([&](auto t) { return t + s; }, ep::constant<ep::f32<4, 6>>(w, 0.0));  // carry
#elif defined(CASE_branches)
  return ep::cond(ep::sum(w) > 0.0, [&] { return s; }, [&] { return spmd::psum<model>(s); });  // branches
#elif defined(CASE_repeated)
  return ep::checkpoint([](auto t) { return 2.0 * t; })(p);  // repeated
#elif defined(CASE_dimensions)
  return ep::reshape<4, 6>(2.0 * ep::reshape<1, 1, 1, 2, 1, 2, 6, 1>(s));  // dimensions
#elif defined(CASE_around)
  return ep::manual<data>([&](auto t) { return t + s; }, in_specs<dims<>>(), out_specs<dims<>>())(s);  // around
#else
  return spmd::psum<model>(p * w - 2.0 * p) + ep::relu(s) * w;
#endif
};

struct region {
  constexpr auto operator()(auto x, [[maybe_unused]] auto w) const {
    return ep::manual<model>(by_hand, in_specs<dims<model>, dims<>>(), out_specs<dims<model>>())(x, w);
  }
};

using step = ep::program<mesh, region, ep::f32<16, 6>, ep::f32<6>>;
static_assert(step::flops() >= 0);

// first(CASE_relu): manual: this operator reads a partial
// expect(CASE_relu): partial_in_nonlinear_op<.*::raise<.*espalier::why::at<espalier::why::line<23>
// user_line(CASE_relu): step::flops
// first(CASE_maximum): manual: this operator reads a partial
// expect(CASE_maximum): partial_in_nonlinear_op<.*::raise<.*espalier::why::at<espalier::why::line<25>
// user_line(CASE_maximum): step::flops
// first(CASE_softmax): manual: this operator reads a partial
// expect(CASE_softmax): partial_in_nonlinear_op<.*::raise<.*espalier::why::at<espalier::why::line<27>
// user_line(CASE_softmax): step::flops
// first(CASE_comparison): manual: this operator reads a partial
// expect(CASE_comparison): partial_in_nonlinear_op<.*::raise<.*espalier::why::at<espalier::why::line<29>
// user_line(CASE_comparison): step::flops
// first(CASE_denominator): manual: this operator reads a partial
// expect(CASE_denominator): partial_in_nonlinear_op<.*::raise<.*espalier::why::at<espalier::why::line<31>
// user_line(CASE_denominator): step::flops
// first(CASE_square): manual: this operator multiplies two partials
// expect(CASE_square): product_of_partials<.*::raise<.*espalier::why::at<espalier::why::line<33>
// user_line(CASE_square): step::flops
// first(CASE_matrix_square): manual: this operator multiplies two partials
// expect(CASE_matrix_square): product_of_partials<.*::raise<.*espalier::why::at<espalier::why::line<35>
// user_line(CASE_matrix_square): step::flops
// first(CASE_plus_varying): manual: this operator adds a partial to what is not one
// expect(CASE_plus_varying): partial_meets_whole<.*::raise<.*espalier::why::at<espalier::why::line<37>
// user_line(CASE_plus_varying): step::flops
// first(CASE_plus_invariant): manual: this operator adds a partial to what is not one
// expect(CASE_plus_invariant): partial_meets_whole<.*::raise<.*espalier::why::at<espalier::why::line<39>
// user_line(CASE_plus_invariant): step::flops
// first(CASE_plus_number): manual: this operator adds a partial to what is not one
// expect(CASE_plus_number): partial_meets_whole<.*::raise<.*espalier::why::at<espalier::why::line<41>
// user_line(CASE_plus_number): step::flops
// first(CASE_joined): manual: this operator adds a partial to what is not one
// expect(CASE_joined): partial_meets_whole<.*::raise<.*espalier::why::at<espalier::why::line<43>
// user_line(CASE_joined): step::flops
// first(CASE_layout): shard, reshard: inside of this region the axis is manual
// expect(CASE_layout): laid_out_along_manual_axis<.*::raise<.*espalier::why::at<espalier::why::line<45>
// user_line(CASE_layout): step::flops
// first(CASE_branch): manual: what decides about a branch
// expect(CASE_branch): decision_varies<.*::raise<.*espalier::why::at<espalier::why::line<47>
// user_line(CASE_branch): step::flops
// first(CASE_loop): manual: what decides about a branch
// expect(CASE_loop): decision_varies<.*::raise<.*espalier::why::at<espalier::why::line<49>
// user_line(CASE_loop): step::flops
// first(CASE_carry): scan, repeat: the body must return a carry
// expect(CASE_carry): carry_changes_type<.*::raise<.*espalier::why::at<espalier::why::line<51>
// user_line(CASE_carry): step::flops
// first(CASE_branches): cond, switch_case: all branches must return the same type
// expect(CASE_branches): branches_differ<.*::raise<.*espalier::why::at<espalier::why::line<53>
// user_line(CASE_branches): step::flops
// first(CASE_repeated): manual: this operator reads a partial
// expect(CASE_repeated): partial_in_nonlinear_op<.*::raise<.*espalier::why::at<espalier::why::line<55>
// user_line(CASE_repeated): step::flops
// first(CASE_dimensions): manual: a tensor may have at most eight dimensions
// expect(CASE_dimensions): too_many_dimensions_by_hand<.*::raise<.*espalier::why::at<espalier::why::line<57>
// user_line(CASE_dimensions): step::flops
// first(CASE_around): manual: a tensor of the code around a region
// expect(CASE_around): tensor_of_code_around<.*::raise<.*espalier::why::at<espalier::why::line<59>
// user_line(CASE_around): step::flops
