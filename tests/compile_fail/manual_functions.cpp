// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/manual.hpp>
#include <espalier/tensor/core/program/program.hpp>

/// Mistakes in calls of the functions of one shard.
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
#if defined(CASE_axis_automatic)
  return spmd::psum<data>(s);  // axis_automatic
#elif defined(CASE_axis_unknown)
  return spmd::psum<stage>(s);  // axis_unknown
#elif defined(CASE_no_axis)
  return spmd::psum(s);  // no_axis
#elif defined(CASE_twice)
  return spmd::psum<model, model>(s);  // twice
#elif defined(CASE_sum_invariant)
  return spmd::psum<model>(w);  // sum_invariant
#elif defined(CASE_sum_of_sum)
  return spmd::psum<model>(spmd::psum<model>(s));  // sum_of_sum
#elif defined(CASE_mean_invariant)
  return spmd::pmean<model>(w);  // mean_invariant
#elif defined(CASE_max_invariant)
  return spmd::pmax<model>(w);  // max_invariant
#elif defined(CASE_max_partial)
  return spmd::pmax<model>(p);  // max_partial
#elif defined(CASE_min_partial)
  return spmd::pmin<model>(p);  // min_partial
#elif defined(CASE_gather_invariant)
  return spmd::all_gather<model>(w);  // gather_invariant
#elif defined(CASE_gather_twice)
  return spmd::all_gather<model>(spmd::all_gather<model>(s));  // gather_twice
#elif defined(CASE_gather_partial)
  return spmd::all_gather<model>(p);  // gather_partial
#elif defined(CASE_gather_dim)
  return spmd::all_gather<model, 2>(s);  // gather_dim
#elif defined(CASE_scatter_invariant)
  return spmd::psum_scatter<model>(w);  // scatter_invariant
#elif defined(CASE_scatter_size)
  return spmd::psum_scatter<model, 1>(s);  // scatter_size
#elif defined(CASE_scatter_dim)
  return spmd::psum_scatter<model, 3>(s);  // scatter_dim
#elif defined(CASE_exchange_invariant)
  return spmd::all_to_all<model, 0, 0>(w);  // exchange_invariant
#elif defined(CASE_exchange_partial)
  return spmd::all_to_all<model, 0, 1>(p);  // exchange_partial
#elif defined(CASE_exchange_size)
  return spmd::all_to_all<model, 1, 0>(s);  // exchange_size
#elif defined(CASE_permute_invariant)
  return spmd::permute<model, 1>(w);  // permute_invariant
#elif defined(CASE_permute_partial)
  return spmd::permute<model, 1>(p);  // permute_partial
#elif defined(CASE_two_sources)
  return spmd::permute<model, spmd::from<0, 1>, spmd::from<2, 1>>(s);  // two_sources
#elif defined(CASE_sends_twice)
  return spmd::permute<model, spmd::from<0, 1>, spmd::from<0, 2>>(s);  // sends_twice
#elif defined(CASE_no_device)
  return spmd::permute<model, spmd::from<0, 4>>(s);  // no_device
#elif defined(CASE_root)
  return spmd::broadcast<model, 4>(s);  // root
#elif defined(CASE_broadcast_partial)
  return spmd::broadcast<model>(p);  // broadcast_partial
#elif defined(CASE_vary_varying)
  return spmd::pvary<model>(s);  // vary_varying
#elif defined(CASE_vary_partial)
  return spmd::pvary<model>(p);  // vary_partial
#elif defined(CASE_partial_invariant)
  return spmd::as_partial<model>(w);  // partial_invariant
#elif defined(CASE_partial_twice)
  return spmd::as_partial<model>(p);  // partial_twice
#elif defined(CASE_index)
  return spmd::axis_index<data>(s);  // index
#else
  return spmd::psum_scatter<model>(p) * spmd::axis_size<model> + w;
#endif
};

struct region {
  constexpr auto operator()(auto x, [[maybe_unused]] auto w) const {
#if defined(CASE_outside)
    return spmd::psum<model>(x);  // outside
#else
    return ep::manual<model>(by_hand, in_specs<dims<model>, dims<>>(), out_specs<dims<model>>())(x, w);
#endif
  }
};

using step = ep::program<mesh, region, ep::f32<16, 6>, ep::f32<6>>;
static_assert(step::flops() >= 0);

// first(CASE_axis_automatic): spmd: along this axis the region is automatic
// expect(CASE_axis_automatic): axis_is_not_manual<.*::raise<.*espalier::why::at<espalier::why::line<23>
// user_line(CASE_axis_automatic): step::flops
// first(CASE_axis_unknown): spmd: along this axis the region is automatic
// expect(CASE_axis_unknown): axis_is_not_manual<.*::raise<.*espalier::why::at<espalier::why::line<25>
// user_line(CASE_axis_unknown): step::flops
// first(CASE_no_axis): manual, spmd: name the axes
// expect(CASE_no_axis): no_axis_named<.*::raise<.*espalier::why::at<espalier::why::line<27>
// user_line(CASE_no_axis): step::flops
// first(CASE_twice): manual: an axis is named twice
// expect(CASE_twice): manual_axis_named_twice<.*::raise<.*espalier::why::at<espalier::why::line<29>
// user_line(CASE_twice): step::flops
// first(CASE_sum_invariant): spmd: the operand is invariant along this axis
// expect(CASE_sum_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<31>
// user_line(CASE_sum_invariant): step::flops
// first(CASE_sum_of_sum): spmd: the operand is invariant along this axis
// expect(CASE_sum_of_sum): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<33>
// user_line(CASE_sum_of_sum): step::flops
// first(CASE_mean_invariant): spmd: the operand is invariant along this axis
// expect(CASE_mean_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<35>
// user_line(CASE_mean_invariant): step::flops
// first(CASE_max_invariant): spmd: the operand is invariant along this axis
// expect(CASE_max_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<37>
// user_line(CASE_max_invariant): step::flops
// first(CASE_max_partial): spmd: the operand is a partial along this axis
// expect(CASE_max_partial): partial_is_not_added_up<.*::raise<.*espalier::why::at<espalier::why::line<39>
// user_line(CASE_max_partial): step::flops
// first(CASE_min_partial): spmd: the operand is a partial along this axis
// expect(CASE_min_partial): partial_is_not_added_up<.*::raise<.*espalier::why::at<espalier::why::line<41>
// user_line(CASE_min_partial): step::flops
// first(CASE_gather_invariant): spmd: the operand is invariant along this axis
// expect(CASE_gather_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<43>
// user_line(CASE_gather_invariant): step::flops
// first(CASE_gather_twice): spmd: the operand is invariant along this axis
// expect(CASE_gather_twice): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<45>
// user_line(CASE_gather_twice): step::flops
// first(CASE_gather_partial): spmd: the operand is a partial along this axis
// expect(CASE_gather_partial): partial_is_not_added_up<.*::raise<.*espalier::why::at<espalier::why::line<47>
// user_line(CASE_gather_partial): step::flops
// expect(CASE_gather_dim): no_such_dimension<.*::raise<.*espalier::why::at<espalier::why::line<49>
// user_line(CASE_gather_dim): step::flops
// first(CASE_scatter_invariant): spmd: the operand is invariant along this axis
// expect(CASE_scatter_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<51>
// user_line(CASE_scatter_invariant): step::flops
// first(CASE_scatter_size): spmd: this dimension of the shard is not a multiple
// expect(CASE_scatter_size): shards_do_not_divide<.*::raise<.*espalier::why::at<espalier::why::line<53>
// user_line(CASE_scatter_size): step::flops
// expect(CASE_scatter_dim): no_such_dimension<.*::raise<.*espalier::why::at<espalier::why::line<55>
// user_line(CASE_scatter_dim): step::flops
// first(CASE_exchange_invariant): spmd: the operand is invariant along this axis
// expect(CASE_exchange_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<57>
// user_line(CASE_exchange_invariant): step::flops
// first(CASE_exchange_partial): spmd: the operand is a partial along this axis
// expect(CASE_exchange_partial): partial_is_not_added_up<.*::raise<.*espalier::why::at<espalier::why::line<59>
// user_line(CASE_exchange_partial): step::flops
// first(CASE_exchange_size): spmd: this dimension of the shard is not a multiple
// expect(CASE_exchange_size): shards_do_not_divide<.*::raise<.*espalier::why::at<espalier::why::line<61>
// user_line(CASE_exchange_size): step::flops
// first(CASE_permute_invariant): spmd: the operand is invariant along this axis
// expect(CASE_permute_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<63>
// user_line(CASE_permute_invariant): step::flops
// first(CASE_permute_partial): spmd: the operand is a partial along this axis
// expect(CASE_permute_partial): partial_is_not_added_up<.*::raise<.*espalier::why::at<espalier::why::line<65>
// user_line(CASE_permute_partial): step::flops
// first(CASE_two_sources): spmd: permute takes pairs
// expect(CASE_two_sources): devices_are_no_permutation<.*::raise<.*espalier::why::at<espalier::why::line<67>
// user_line(CASE_two_sources): step::flops
// first(CASE_sends_twice): spmd: permute takes pairs
// expect(CASE_sends_twice): devices_are_no_permutation<.*::raise<.*espalier::why::at<espalier::why::line<69>
// user_line(CASE_sends_twice): step::flops
// first(CASE_no_device): spmd: permute takes pairs
// expect(CASE_no_device): devices_are_no_permutation<.*::raise<.*espalier::why::at<espalier::why::line<71>
// user_line(CASE_no_device): step::flops
// first(CASE_root): spmd: there is no device of this number
// expect(CASE_root): no_such_device<.*::raise<.*espalier::why::at<espalier::why::line<73>
// user_line(CASE_root): step::flops
// first(CASE_broadcast_partial): spmd: the operand is a partial along this axis
// expect(CASE_broadcast_partial): partial_is_not_added_up<.*::raise<.*espalier::why::at<espalier::why::line<75>
// user_line(CASE_broadcast_partial): step::flops
// first(CASE_vary_varying): spmd: the operand varies along this axis already
// expect(CASE_vary_varying): already_varying<.*::raise<.*espalier::why::at<espalier::why::line<77>
// user_line(CASE_vary_varying): step::flops
// first(CASE_vary_partial): spmd: the operand varies along this axis already
// expect(CASE_vary_partial): already_varying<.*::raise<.*espalier::why::at<espalier::why::line<79>
// user_line(CASE_vary_partial): step::flops
// first(CASE_partial_invariant): spmd: the operand is invariant along this axis
// expect(CASE_partial_invariant): same_on_all_devices<.*::raise<.*espalier::why::at<espalier::why::line<81>
// user_line(CASE_partial_invariant): step::flops
// first(CASE_partial_twice): spmd: the operand is a partial along this axis already
// expect(CASE_partial_twice): already_partial<.*::raise<.*espalier::why::at<espalier::why::line<83>
// user_line(CASE_partial_twice): step::flops
// first(CASE_index): spmd: along this axis the region is automatic
// expect(CASE_index): axis_is_not_manual<.*::raise<.*espalier::why::at<espalier::why::line<85>
// user_line(CASE_index): step::flops
// first(CASE_outside): spmd: functions of one shard are for tensors inside
// expect(CASE_outside): outside_of_manual_code<.*::raise<.*espalier::why::at<espalier::why::line<94>
// user_line(CASE_outside): step::flops
