// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/core.hpp>

#include <string_view>

/// Several meshes over the same devices: the axes that all of them are made of.
namespace ep = espalier;

namespace {

struct data : ep::axis<"data", 2> {};
struct model : ep::axis<"model", 4> {};
struct rows : ep::axis<"rows", 4> {};
struct columns : ep::axis<"columns", 2> {};
struct all : ep::axis<"all", 8> {};
struct other : ep::axis<"other", 2> {};

using grid = ep::joint_mesh<ep::mesh<data, model>, ep::mesh<rows, columns>, ep::mesh<all>>;
constexpr ep::axis_list list(int a, int b) { return ep::axis_list(a).with(b); }

static_assert(grid::devices == 8 && grid::rank == 3);
static_assert(grid::value.size[0] == 2 && grid::value.size[1] == 2 && grid::value.size[2] == 2);
static_assert(std::string_view(grid::value.name[0]) == "data");
static_assert(std::string_view(grid::value.name[1]) == "model:(1)2");
static_assert(std::string_view(grid::value.name[2]) == "columns");
static_assert(grid::axes_of<data> == ep::axis_list(0) && grid::axes_of<model> == list(1, 2));
static_assert(grid::axes_of<rows> == list(0, 1) && grid::axes_of<columns> == ep::axis_list(2));
static_assert(grid::axes_of<all> == list(0, 1).with(2));
static_assert(grid::has<rows> && !grid::has<other> && grid::axes_of<other>.empty());

// An order in which columns run first: the devices of a row are four apart.
using turned = ep::joint_mesh<ep::mesh<data, model>, ep::device_ids<ep::mesh<rows, columns>, 0, 4, 1, 5, 2, 6, 3, 7>>;
static_assert(turned::rank == 2 && turned::axes_of<rows> == ep::axis_list(1));
static_assert(turned::axes_of<columns> == ep::axis_list(0));
// An axis whose own parts are exchanged: positions 0 ... 3 of `rows` are devices 0, 2, 1 and 3 of four.
using exchanged = ep::joint_mesh<ep::mesh<rows>, ep::device_ids<ep::mesh<other, columns>, 0, 2, 1, 3>>;
static_assert(exchanged::axes_of<rows> == list(0, 1) && exchanged::axes_of<other> == ep::axis_list(1));
static_assert(exchanged::axes_of<columns> == ep::axis_list(0));

// An axis that is counted backwards is the common axis in its other order, with the name of the axis that counts so.
struct x : ep::axis<"x", 2> {};
struct y : ep::axis<"y", 2> {};
struct back_x : ep::axis<"back_x", 2> {};
struct back_y : ep::axis<"back_y", 2> {};
constexpr int in_other_order = ep::max_axes;
using reversed = ep::joint_mesh<ep::mesh<x, y>, ep::device_ids<ep::mesh<back_x, back_y>, 3, 2, 1, 0>>;
static_assert(reversed::rank == 2 && reversed::value.ordered == 3);
static_assert(reversed::axes_of<x> == ep::axis_list(0) && reversed::axes_of<back_x> == ep::axis_list(in_other_order));
static_assert(reversed::axes_of<back_y> == ep::axis_list(1 + in_other_order));
static_assert(std::string_view(reversed::value.name[in_other_order]) == "back_x");
static_assert(reversed::value.position(1, reversed::axes_of<back_x>.followed_by(reversed::axes_of<back_y>)) == 2);
static_assert(reversed::value.member(1, reversed::axes_of<back_y>, 1) == 0);
// One of the axes only; and an axis counted backwards across the axes of the other mesh.
using half = ep::joint_mesh<ep::mesh<x, y>, ep::device_ids<ep::mesh<back_x, back_y>, 2, 3, 0, 1>>;
static_assert(half::value.ordered == 1 && half::axes_of<back_y> == ep::axis_list(1));
using across = ep::joint_mesh<ep::mesh<x, y>, ep::device_ids<ep::mesh<rows>, 3, 2, 1, 0>>;
static_assert(across::rank == 2 && across::axes_of<rows> == list(in_other_order, 1 + in_other_order));
static_assert(std::string_view(across::value.name[in_other_order]) == "~x");
static_assert(across::value.position(1, across::axes_of<rows>) == 2 &&
              across::value.member(1, across::axes_of<rows>, 0) == 3);
// Any order of one axis, here that of a ring on four devices.
struct ring : ep::axis<"ring", 4> {};
using ringed = ep::joint_mesh<ep::mesh<x, rows>, ep::device_ids<ep::mesh<back_x, ring>, 4, 5, 7, 6, 0, 1, 3, 2>>;
static_assert(ringed::value.ordered == 3 && ringed::axes_of<ring> == ep::axis_list(1 + in_other_order));
static_assert(ringed::value.order[0] == nullptr && ringed::value.order[1][3] == 2);
static_assert(ringed::value.coordinate(2, 1 + in_other_order) == 3 &&
              ringed::value.coordinate(3, 1 + in_other_order) == 2);
static_assert(ringed::value.member(0, ringed::axes_of<ring>, 2) == 3);
// Digits of one axis, the minor one counted backwards: positions 0 ... 7 are devices 1, 0, 3, 2, 5, 4, 7, 6.
using pairs_turned = ep::joint_mesh<ep::mesh<all>, ep::device_ids<ep::mesh<rows, columns>, 1, 0, 3, 2, 5, 4, 7, 6>>;
static_assert(pairs_turned::rank == 2 && pairs_turned::axes_of<all> == list(0, 1));
static_assert(pairs_turned::axes_of<columns> == ep::axis_list(1 + in_other_order));
// An axis and its other order overlap.
static_assert(ep::detail::annotation_of<reversed, x, back_x>(2).fault == ep::detail::annotation_fault::axis_used_twice);
static_assert(ep::detail::annotation_of<reversed, back_x, y>(2).fault == ep::detail::annotation_fault::nothing);

// Of 7 rows counted backwards the last device has the first four, and sends most.
struct together {
  constexpr auto operator()(auto v) const { return ep::reshard<ep::none>(v); }
};
using from_back = ep::program<reversed, together, ep::sharded<ep::f32<7>, back_x>>;
static_assert(from_back::bytes<ep::all_gather>() == 16 && from_back::collectives() == 1);
constexpr ep::sharding split_back = [] {
  ep::sharding split = ep::sharding::whole(1);
  split.dim[0] = reversed::axes_of<back_x>;
  return split;
}();
static_assert(ep::most_sent_bytes(reversed::value, ep::extents{1, {7}}, ep::dtype::f32,
                                  {ep::collective::all_gather, 1, ep::sharding::whole(1)}, split_back) == 16);

// One mesh of three axes of other sizes, and a single device along an axis.
struct a : ep::axis<"a", 3> {};
struct b : ep::axis<"b", 4> {};
struct c : ep::axis<"c", 6> {};
struct d : ep::axis<"d", 2> {};
struct one : ep::axis<"one", 1> {};
using mixed = ep::joint_mesh<ep::mesh<a, b>, ep::mesh<c, one, d>>;
static_assert(mixed::rank == 3 && mixed::axes_of<c> == list(0, 1) && mixed::axes_of<b> == list(1, 2));
static_assert(mixed::axes_of<one>.empty() && mixed::has<one>);

// Of two overlapping axes a tensor uses one.
using fault = ep::detail::annotation_fault;
template <class... Entries> constexpr fault fault_of() { return ep::detail::annotation_of<grid, Entries...>(2).fault; }
static_assert(fault_of<rows, columns>() == fault::nothing);
static_assert(fault_of<rows, data>() == fault::axis_used_twice);
static_assert(fault_of<data, columns>() == fault::nothing);  // axes of two meshes that have no device in common
static_assert(fault_of<other, ep::none>() == fault::unknown_axis);

// From one mesh's layout to the other's: blocks of 4 x 2 and of 2 x 4 devices of a matrix of 8 x 8.
struct to_rows {
  constexpr auto operator()(auto x) const { return ep::shard<rows, columns>(ep::shard<data, model>(x) * 2.0F); }
};
using change = ep::program<grid, to_rows, ep::sharded<ep::f32<8, 8>, data, model>>;
static_assert(change::is_sound);

struct add_up {
  constexpr auto operator()(auto x) const { return ep::sum<0>(ep::shard<rows, ep::none>(x)); }
};
using sums = ep::program<grid, add_up, ep::f32<8, 6>>;
static_assert(sums::collectives<ep::all_reduce>() == 1 && sums::collectives<ep::all_reduce, rows>() == 1);
static_assert(sums::collectives<ep::all_reduce, columns>() == 0 && sums::collectives<ep::all_reduce, data>() == 1);

}  // namespace
