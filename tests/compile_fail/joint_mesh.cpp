// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/core.hpp>
#include <espalier/manual.hpp>
#include <espalier/tensor/core/program/budget.hpp>

/// Several meshes over the same devices that do not fit together.
namespace ep = espalier;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
struct rows : ep::axis<"rows", 4> {};
struct columns : ep::axis<"columns", 2> {};
struct thirds : ep::axis<"thirds", 3> {};
struct pairs : ep::axis<"pairs", 2> {};
struct other : ep::axis<"other", 4> {};

using grid = ep::mesh<data, model>;

#if defined(CASE_number)
using both = ep::joint_mesh<grid, ep::mesh<rows, thirds>>;
#elif defined(CASE_ids)
using both = ep::joint_mesh<grid, ep::device_ids<ep::mesh<rows, columns>, 0, 1, 2, 3, 4, 5, 6, 6>>;
#elif defined(CASE_order)
using both = ep::joint_mesh<ep::mesh<rows>, ep::device_ids<ep::mesh<pairs, columns>, 0, 1, 3, 2>>;
#elif defined(CASE_cut_order)
using both = ep::joint_mesh<ep::mesh<pairs, columns>, ep::device_ids<ep::mesh<model>, 0, 1, 3, 2>>;
#elif defined(CASE_two_orders)
using both = ep::joint_mesh<ep::mesh<rows>, ep::device_ids<ep::mesh<model>, 0, 1, 3, 2>,
                            ep::device_ids<ep::mesh<other>, 3, 2, 1, 0>>;
#elif defined(CASE_common)
using both = ep::joint_mesh<ep::mesh<pairs, thirds>, ep::mesh<thirds, columns>>;
#else
using both = ep::joint_mesh<grid, ep::mesh<rows, columns>>;
#endif

struct function {
#if defined(CASE_overlap)
  constexpr auto operator()(auto x) const { return ep::shard<rows, model>(x); }  // overlap
#elif defined(CASE_by_hand)
  constexpr auto operator()(auto x) const {
    return ep::manual<model>([](auto shard) { return shard; }, ep::in_specs<ep::dims<model>>(),
                             ep::out_specs<ep::dims<model>>())(x);
  }
#elif defined(CASE_budget)
  constexpr auto operator()(auto x) const { return ep::reshard<ep::none, columns>(ep::shard<rows, columns>(x)) * 2.0; }
#else
  constexpr auto operator()(auto x) const { return ep::shard<data, columns>(x); }
#endif
};

#if defined(CASE_number) || defined(CASE_ids) || defined(CASE_order) || defined(CASE_cut_order) || \
    defined(CASE_two_orders) || defined(CASE_common)
constexpr int devices = both::devices;  // meshes
#else
using step = ep::program<both, function, ep::f32<8, 8>>;
#if !defined(CASE_budget)
static_assert(step::flops() == 0);  // program
#endif
static_assert(ep::budget<step, ep::at_most<ep::all_gather, 0, columns>, ep::at_most<ep::all_gather, 0>>::holds);
#endif

}  // namespace

// clang-format off
// kind(CASE_number): joined meshes of different numbers of devices
// expect(CASE_number): joint_mesh: the meshes have different numbers of devices
// user_line(CASE_number): // meshes$
// kind(CASE_ids): a device's id twice
// expect(CASE_ids): device_ids: the ids are not each device of the mesh once
// user_line(CASE_ids): // meshes$
// kind(CASE_order): an order of devices that is none of axes
// expect(CASE_order): device_ids: in this order an axis is no product of parts of axes
// user_line(CASE_order): // meshes$
// kind(CASE_cut_order): an order of devices across the axes of another mesh
// expect(CASE_cut_order): device_ids: the order of an axis goes across the axes of another mesh
// user_line(CASE_cut_order): // meshes$
// kind(CASE_two_orders): three orders of one axis
// expect(CASE_two_orders): device_ids: devices along one axis are counted in three orders
// user_line(CASE_two_orders): // meshes$
// kind(CASE_common): joined meshes without common axes
// expect(CASE_common): joint_mesh: the axes are not made of common parts
// user_line(CASE_common): // meshes$
// kind(CASE_overlap): axes of two meshes that overlap
// expect(CASE_overlap): axis_used_twice
// user_line(CASE_overlap): // program$
// expect(CASE_by_hand): manual: the mesh of this program has no such axis, or only as several parts
// user_line(CASE_by_hand): // program$
// expect(CASE_budget): too_many_collectives<(espalier::)?all_gather, (espalier::why::)?along<.*rows>,
// expect(CASE_budget): budget: this line needs one more collective
// user_line(CASE_budget): ::holds\);$
// clang-format on
