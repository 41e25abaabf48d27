// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0

#include <espalier/tensor/core/partition/reshard.hpp>

#include <initializer_list>

namespace {

using namespace espalier;

constexpr int x = 0, y = 1, z = 2;
constexpr mesh_shape mesh{3, {2, 4, 2}, {"x", "y", "z"}};
constexpr mesh_shape line{1, {8}, {"x"}};

constexpr axis_list by(std::initializer_list<int> axes) {
  axis_list result;
  for (const int axis : axes) result = result.with(axis);
  return result;
}
constexpr sharding placed(axis_list a, axis_list b, axis_list c = {}, axis_mask unreduced = 0) {
  sharding result;
  result.rank = 3;
  result.dim[0] = a;
  result.dim[1] = b;
  result.dim[2] = c;
  result.unreduced = unreduced;
  return result;
}
constexpr extents shape{3, {32, 64, 16}};
constexpr std::int64_t all_bytes = 32 * 64 * 16 * 4;

constexpr reshard_plan plan(const sharding& from, const sharding& to, std::int64_t latency = 0) {
  return plan_reshard(mesh, shape, dtype::f32, from, to, latency);
}
constexpr bool takes(const reshard_plan& made, std::initializer_list<collective> kinds) {
  int i = 0;
  for (const collective kind : kinds) {
    if (i == made.count || made.step[i++].kind != kind) return false;
  }
  return i == made.count;
}
using enum collective;

// One collective for each change that has one, and its bytes.
static_assert(plan(placed(by({x}), {}), placed(by({x}), {})).count == 0);
static_assert(takes(plan(placed({}, {}), placed(by({x}), by({y}))), {local_slice}));
static_assert(plan(placed({}, {}), placed(by({x}), by({y}))).step[0].axes == (bit_of(x) | bit_of(y)));
static_assert(takes(plan(placed(by({x, y}), {}), placed(by({x}), {})), {all_gather}));
static_assert(plan(placed(by({x, y}), {}), placed(by({x}), {})).bytes == all_bytes / 8 * 3);
static_assert(takes(plan(placed(by({x, y}), {}), placed(by({x}), by({y}))), {all_to_all}));
static_assert(plan(placed(by({x, y}), {}), placed(by({x}), by({y}))).bytes == all_bytes / 8 * 3 / 4);
static_assert(takes(plan(placed(by({x}), {}), placed(by({z}), {})), {collective_permute}));
static_assert(plan(placed(by({x, y}), {}), placed(by({y, x}), {})).bytes == all_bytes / 8);
static_assert(takes(plan(placed(by({z}), by({x}), {}, bit_of(y)), placed(by({z, y}), by({x}))), {reduce_scatter}));
static_assert(plan(placed(by({z}), by({x}), {}, bit_of(y)), placed(by({z, y}), by({x}))).bytes ==
              all_bytes / 4 * 3 / 4);
static_assert(takes(plan(placed(by({x}), by({z}), {}, bit_of(y)), placed(by({x}), by({z}))), {all_reduce}));
static_assert(plan(placed(by({x}), by({z}), {}, bit_of(y)), placed(by({x}), by({z}))).bytes == all_bytes / 4 * 6 / 4);

// A joint group instead of one collective per axis; a sum that is wanted partial stays so.
static_assert(takes(plan(placed({}, by({y}), {}, bit_of(x) | bit_of(z)), placed({}, by({y}))), {all_reduce}));
static_assert(takes(plan(placed(by({z}), {}, {}, bit_of(x) | bit_of(y)), placed(by({z}), {})), {all_reduce}));
static_assert(takes(plan(placed(by({z}), by({x, y})), placed(by({z}), {})), {all_gather}));
static_assert(takes(plan(placed(by({z}), {}, {}, bit_of(x) | bit_of(y)), placed(by({z, y}), {}, {}, bit_of(x))),
                    {reduce_scatter}));

// Slice first, gather last.
static_assert(takes(plan(placed(by({x}), {}), placed({}, by({y}))), {local_slice, all_gather}));
static_assert(takes(plan(placed(by({y}), {}, {}, bit_of(x)), placed(by({y, z, x}), {})),
                    {local_slice, reduce_scatter}));

// Copies along z share the work of the sum over y: 5/4 of a buffer instead of 6/4 - unless a collective is dear.
static_assert(takes(plan(placed(by({x}), {}, {}, bit_of(y)), placed(by({x}), {})),
                    {local_slice, all_reduce, all_gather}));
static_assert(plan(placed(by({x}), {}, {}, bit_of(y)), placed(by({x}), {})).bytes == all_bytes / 2 * 5 / 4);
static_assert(takes(plan(placed(by({x}), {}, {}, bit_of(y)), placed(by({x}), {}), 1 << 20), {all_reduce}));

// Several dimensions are gathered at once.
static_assert(takes(plan(placed(by({x}), by({y})), placed({}, {})), {all_gather}));
static_assert(plan(placed(by({x}), by({y})), placed({}, {})).bytes == all_bytes / 8 * 7);

// Whatever a named collective does not do alone is one exchange of what each device lacks.
static_assert(takes(plan(placed(by({x, y}), {}), placed(by({y}), {})), {exchange}));
static_assert(plan(placed(by({x, y}), {}), placed(by({y}), {})).bytes == all_bytes / 4);
static_assert(takes(plan(placed(by({x}), by({z})), placed({}, {}, by({x, z})), 1 << 20), {exchange}));
static_assert(plan(placed(by({x}), by({z})), placed({}, {}, by({x, z}))).bytes == all_bytes / 4 - all_bytes / 16);
// Its groups extend along what differs.
static_assert(plan(placed(by({x, y}), by({z})), placed(by({x, z}), by({y}))).step[0].axes == (bit_of(y) | bit_of(z)));

// The flags of the target arrive with the last step.
constexpr sharding guided = [] {
  sharding result = placed({}, by({y}));
  result.open = 5;
  result.replicated = bit_of(z);
  return result;
}();
static_assert(takes(plan(placed(by({x}), {}), guided), {local_slice, all_gather}));
static_assert(plan(placed(by({x}), {}), guided).step[1].after.open == 5);
static_assert(plan(placed(by({x}), {}), guided).step[1].after.replicated == bit_of(z));
static_assert(plan(placed(by({x}), {}), guided).step[0].after.open == 0);

// openxla/xla#15207, [2,1,4] -> [1,8,1] on eight devices: there "involuntary full rematerialization"; here a device
// receives what it lacks of its eighth.
constexpr mesh_shape eight{2, {2, 4}, {"x", "y"}};
constexpr reshard_plan xla_15207 =
    plan_reshard(eight, shape, dtype::f32, placed(by({x}), {}, by({y})), placed({}, by({x, y}), {}));
static_assert(takes(xla_15207, {exchange}));
static_assert(xla_15207.bytes == all_bytes / 8 - all_bytes / 64);

// Two dimensions that change axes. Two all-to-alls and a permutation would send 20,480 bytes.
constexpr extents turned{3, {64, 256, 1}};
constexpr reshard_plan swapped =
    plan_reshard(eight, turned, dtype::f32, placed(by({x}), by({y})), placed(by({y}), by({x})));
static_assert(takes(swapped, {exchange}));
static_assert(swapped.bytes == 8192);
static_assert(sent_bytes(eight, turned, dtype::f32, swapped.step[0], placed(by({x}), by({y})), 4) == 8192);
static_assert(sent_bytes(eight, turned, dtype::f32, swapped.step[0], placed(by({x}), by({y})), 0) == 4096);

constexpr sharding part_of_line(int dim) {
  sharding result = sharding::whole(2);
  result.dim[dim] = by({x});
  return result;
}
// Uneven: only real elements move. 10 rows over 8 devices are five shards of two.
constexpr extents rows{2, {10, 3}};
constexpr reshard_plan gathered = plan_reshard(line, rows, dtype::f32, part_of_line(0), sharding::whole(2), 1 << 20);
static_assert(takes(gathered, {all_gather}));
static_assert(sent_bytes(line, rows, dtype::f32, gathered.step[0], part_of_line(0), 4) == 2 * 3 * 4 * 7);
static_assert(sent_bytes(line, rows, dtype::f32, gathered.step[0], part_of_line(0), 5) == 0);

constexpr std::int64_t elements_received(const reshard_step& step, const sharding& before, int device) {
  std::int64_t count = 0;
  for_each_piece(line, rows, before, step.after, step.axes, device,
                 [&](const piece& p) { count += p.extent[0] * p.extent[1]; });
  return count;
}
static_assert(elements_received(gathered.step[0], part_of_line(0), 7) == 30);

// The same number, without the plan.
static_assert(reshard_bytes(eight, shape, dtype::f32, placed(by({x}), {}, by({y})), placed({}, by({x, y}), {})) ==
              xla_15207.bytes);

}  // namespace
