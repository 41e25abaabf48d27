// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/manual.hpp>
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in how a region by hand is called, and in what leaves it.
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
struct region {
  constexpr auto operator()([[maybe_unused]] auto x, [[maybe_unused]] auto v) const {
    [[maybe_unused]] const auto same = [](auto s) { return s; };
#if defined(CASE_not_in_mesh)
    return ep::manual<stage>(same, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // not_in_mesh
#elif defined(CASE_twice)
    return ep::manual<data, data>(same, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // twice
#elif defined(CASE_no_axis)
    return ep::manual<>(same, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // no_axis
#elif defined(CASE_operands)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<data>>())(x, v);  // operands
#elif defined(CASE_results)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<data>, dims<>>())(x);  // results
#elif defined(CASE_number)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<data>>())(1.0);  // number
#elif defined(CASE_gives_number)
    return ep::manual<data>([](auto) { return 1.0; }, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // gives_number
#elif defined(CASE_gives_outer)
    return ep::manual<data>([&](auto) { return x; }, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // gives_outer
#elif defined(CASE_takes_two)
    return ep::manual<data>([](auto a, auto b) { return a + b; }, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // takes_two
#elif defined(CASE_nothing)
    return ep::manual<data>([](auto) {}, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // nothing
#elif defined(CASE_axis_as_spec)
    return ep::manual<data>(same, in_specs<data>(), out_specs<dims<data>>())(x);  // axis_as_spec
#elif defined(CASE_open_entry)
    return ep::manual<data>(same, in_specs<dims<ep::open>>(), out_specs<dims<data>>())(x);  // open_entry
#elif defined(CASE_rank)
    return ep::manual<data>(same, in_specs<dims<none, none, data>>(), out_specs<dims<data>>())(x);  // rank
#elif defined(CASE_automatic)
    return ep::manual<data>(same, in_specs<dims<model>>(), out_specs<dims<data>>())(x);  // automatic
#elif defined(CASE_unknown_entry)
    return ep::manual<data>(same, in_specs<dims<stage>>(), out_specs<dims<data>>())(x);  // unknown_entry
#elif defined(CASE_entry_twice)
    return ep::manual<data>(same, in_specs<dims<data, data>>(), out_specs<dims<data>>())(x);  // entry_twice
#elif defined(CASE_axes_twice)
    return ep::manual<data>(same, in_specs<dims<ep::axes<data, data>>>(), out_specs<dims<data>>())(x);  // axes_twice
#elif defined(CASE_unequal)
    return ep::manual<model>(same, in_specs<dims<none, model>>(), out_specs<dims<none, model>>())(x);  // unequal
#elif defined(CASE_out_rank)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<none, none, data>>())(x);  // out_rank
#elif defined(CASE_out_automatic)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<model>>())(x);  // out_automatic
#elif defined(CASE_out_no_dims)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<data>())(x);  // out_no_dims
#elif defined(CASE_differs)
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<>>())(x);  // differs
#elif defined(CASE_differs_along_other)
    return ep::manual<data, model>(same, in_specs<dims<ep::axes<data, model>>>(), out_specs<dims<data>>())(x);  // differs_along_other
#elif defined(CASE_forgotten)
    return ep::manual<data>([](auto s) { return spmd::as_partial<data>(s); }, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // forgotten
#elif defined(CASE_forgotten_sum)
    return ep::manual<data>([](auto s) { return ep::sum(2.0 * spmd::as_partial<data>(s)); }, in_specs<dims<data>>(), out_specs<dims<>>())(x);  // forgotten_sum
#elif defined(CASE_again)
    return ep::manual<data>([](auto s) { return ep::manual<data>([](auto t) { return t; }, in_specs<dims<>>(), out_specs<dims<>>())(s); }, in_specs<dims<data>>(), out_specs<dims<data>>())(x);  // again
#else
    return ep::manual<data>(same, in_specs<dims<data>>(), out_specs<dims<data>>())(x);
#endif
  }
};

using step = ep::program<mesh, region, ep::f32<8, 6>, ep::f32<6>>;
static_assert(step::flops() >= 0);

// first(CASE_not_in_mesh): manual: the mesh of this program has no such axis
// expect(CASE_not_in_mesh): manual_axis_not_in_mesh<.*::raise<.*espalier::why::at<espalier::why::line<24>
// user_line(CASE_not_in_mesh): step::flops
// first(CASE_twice): manual: an axis is named twice
// expect(CASE_twice): manual_axis_named_twice<.*::raise<.*espalier::why::at<espalier::why::line<26>
// user_line(CASE_twice): step::flops
// first(CASE_no_axis): manual, spmd: name the axes
// expect(CASE_no_axis): no_axis_named<.*::raise<.*espalier::why::at<espalier::why::line<28>
// user_line(CASE_no_axis): step::flops
// first(CASE_operands): manual: in_specs<...> needs one dims<...> for each operand
// expect(CASE_operands): manual_operands_do_not_fit<.*::raise<.*espalier::why::at<espalier::why::line<30>
// user_line(CASE_operands): step::flops
// first(CASE_results): manual: out_specs<...> needs one dims<...> for each tensor
// expect(CASE_results): manual_results_do_not_fit<.*::raise<.*espalier::why::at<espalier::why::line<32>
// user_line(CASE_results): step::flops
// first(CASE_number): manual: operands are tensors
// expect(CASE_number): manual_operand_is_no_tensor<.*::raise<.*espalier::why::at<espalier::why::line<34>
// user_line(CASE_number): step::flops
// first(CASE_gives_number): manual: the function must return tensors of the region
// expect(CASE_gives_number): manual_result_is_no_tensor<.*::raise<.*espalier::why::at<espalier::why::line<36>
// user_line(CASE_gives_number): step::flops
// first(CASE_gives_outer): manual: the function must return tensors of the region
// expect(CASE_gives_outer): manual_result_is_no_tensor<.*::raise<.*espalier::why::at<espalier::why::line<38>
// user_line(CASE_gives_outer): step::flops
// first(CASE_takes_two): manual: the function cannot be called with these shards
// expect(CASE_takes_two): manual_function_not_callable<.*::raise<.*espalier::why::at<espalier::why::line<40>
// user_line(CASE_takes_two): step::flops
// first(CASE_nothing): the function returns nothing
// expect(CASE_nothing): function_returns_nothing<.*::raise<.*espalier::why::at<espalier::why::line<42>
// user_line(CASE_nothing): step::flops
// first(CASE_axis_as_spec): manual: in_specs<...> and out_specs<...> hold dims
// expect(CASE_axis_as_spec): spec_is_no_dims<.*::raise<.*espalier::why::at<espalier::why::line<44>
// user_line(CASE_axis_as_spec): step::flops
// first(CASE_open_entry): manual: in_specs<...> and out_specs<...> hold dims
// expect(CASE_open_entry): spec_is_no_dims<.*::raise<.*espalier::why::at<espalier::why::line<46>
// user_line(CASE_open_entry): step::flops
// first(CASE_rank): manual: dims<...> has more entries
// expect(CASE_rank): spec_of_wrong_rank<.*::raise<.*espalier::why::at<espalier::why::line<48>
// user_line(CASE_rank): step::flops
// first(CASE_automatic): manual: dims<...> names an axis that is not by hand
// expect(CASE_automatic): spec_names_automatic_axis<.*::raise<.*espalier::why::at<espalier::why::line<50>
// user_line(CASE_automatic): step::flops
// first(CASE_unknown_entry): manual: the mesh of this program has no such axis
// expect(CASE_unknown_entry): manual_axis_not_in_mesh<.*::raise<.*espalier::why::at<espalier::why::line<52>
// user_line(CASE_unknown_entry): step::flops
// first(CASE_entry_twice): manual: an axis is named twice
// expect(CASE_entry_twice): manual_axis_named_twice<.*::raise<.*espalier::why::at<espalier::why::line<54>
// user_line(CASE_entry_twice): step::flops
// first(CASE_axes_twice): manual: an axis is named twice
// expect(CASE_axes_twice): manual_axis_named_twice<.*::raise<.*espalier::why::at<espalier::why::line<56>
// user_line(CASE_axes_twice): step::flops
// first(CASE_unequal): manual: this dimension is not a multiple
// expect(CASE_unequal): shards_are_not_equal<.*::raise<.*espalier::why::at<espalier::why::line<58>
// user_line(CASE_unequal): step::flops
// first(CASE_out_rank): manual: dims<...> has more entries
// expect(CASE_out_rank): spec_of_wrong_rank<.*::raise<.*espalier::why::at<espalier::why::line<60>
// user_line(CASE_out_rank): step::flops
// first(CASE_out_automatic): manual: dims<...> names an axis that is not by hand
// expect(CASE_out_automatic): spec_names_automatic_axis<.*::raise<.*espalier::why::at<espalier::why::line<62>
// user_line(CASE_out_automatic): step::flops
// first(CASE_out_no_dims): manual: in_specs<...> and out_specs<...> hold dims
// expect(CASE_out_no_dims): spec_is_no_dims<.*::raise<.*espalier::why::at<espalier::why::line<64>
// user_line(CASE_out_no_dims): step::flops
// first(CASE_differs): manual: out_specs promises a result that is the same
// expect(CASE_differs): result_is_not_invariant<.*::raise<.*espalier::why::at<espalier::why::line<66>
// user_line(CASE_differs): step::flops
// first(CASE_differs_along_other): manual: out_specs promises a result that is the same
// expect(CASE_differs_along_other): result_is_not_invariant<.*::raise<.*espalier::why::at<espalier::why::line<68>
// user_line(CASE_differs_along_other): step::flops
// first(CASE_forgotten): manual: this result is a partial
// expect(CASE_forgotten): partial_leaves_region<.*::raise<.*espalier::why::at<espalier::why::line<70>
// user_line(CASE_forgotten): step::flops
// first(CASE_forgotten_sum): manual: this result is a partial
// expect(CASE_forgotten_sum): partial_leaves_region<.*::raise<.*espalier::why::at<espalier::why::line<72>
// user_line(CASE_forgotten_sum): step::flops
// first(CASE_again): manual: the code around this region is by hand along this axis
// expect(CASE_again): axis_is_manual_already<.*::raise<.*espalier::why::at<espalier::why::line<74>
// user_line(CASE_again): step::flops
