// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// together: passes

#include <espalier/tensor/core/program/cut_axes.hpp>
#include <espalier/tensor/core/sharding/box.hpp>
#include <espalier/tensor/core/sharding/print.hpp>

#include <support/spmd_check.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

/// Axes cut into parts: the devices stay where they are, and where an axis is cut.

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr mesh_shape grid{3, {2, 12, 4}, {"a", "b", "c"}};
/// a, b as 2 x 2 x 3, c.
constexpr axis_parts b_in_three = axis_parts::whole(grid).with_cut(1, 2).with_cut(2, 2);
static_assert(b_in_three.count == 5);
static_assert(b_in_three.majors[1] == 1 && b_in_three.majors[2] == 2 && b_in_three.majors[3] == 4);
static_assert(b_in_three.size[1] == 2 && b_in_three.size[2] == 2 && b_in_three.size[3] == 3);
static_assert(b_in_three.parts_of(axis_list(2).with(1)) == axis_list(4).with(1).with(2).with(3));
static_assert(b_in_three.parts_of(axis_mask{0b110}) == 0b11110 && b_in_three.axes_of(axis_mask{0b01100}) == 0b010);
static_assert(b_in_three.whole_axis_at(axis_list(4).with(1).with(2).with(3), 1) == 3);
static_assert(b_in_three.whole_axis_at(axis_list(1).with(2), 0) == 0);
static_assert(b_in_three.whole_axis_at(axis_list(1).with(3).with(2), 0) == 0);
static_assert(b_in_three.whole_axis_at(axis_list(2).with(3), 0) == 0);
static_assert(cut_mesh(grid, b_in_three).devices() == grid.devices());

/// Every way to cut one or two axes in two.
std::vector<axis_parts> cuts_of(const mesh_shape& mesh) {
  std::vector<axis_parts> all{axis_parts::whole(mesh)};
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (all[n].count >= mesh.rank + 2) continue;
    for (int p = 0; p < all[n].count; ++p) {
      for (int major = 2; major < all[n].size[p]; ++major) {
        if (all[n].size[p] % major == 0) all.push_back(axis_parts(all[n]).with_cut(p, major));
      }
    }
  }
  return all;
}

/// The parts that a program of one reshape wants: of `from`, split by the axes of a mesh of `sizes`, to `to`.
axis_parts wanted(const std::vector<int>& sizes, const extents& from, const std::vector<axis_list>& axes,
                  const extents& to) {
  builder b;
  const int x = emit::argument(b, dtype::f32, from, 0);
  sharding placement = sharding::whole(from.rank);
  for (int d = 0; d < from.rank; ++d) placement.dim[d] = axes[static_cast<std::size_t>(d)];
  b[x].annotation = b.annotate(from, placement);
  emit::result(b, emit::reshape(b, x, to), 0);
  return completed_program(mesh_of(sizes), b.result()).axes;
}
std::vector<int> sizes_of(const axis_parts& parts) { return {parts.size, parts.size + parts.count}; }

const axis_list x(0);
const axis_list y(1);
const axis_list no;
using sizes = std::vector<int>;

}  // namespace

TEST_CASE("devices of a mesh and of its parts are the same") {
  for (const std::vector<int>& mesh_sizes : {sizes{8}, sizes{2, 6}, sizes{4, 3, 2}, sizes{12}}) {
    const mesh_shape mesh = mesh_of(mesh_sizes);
    for (const axis_parts& parts : cuts_of(mesh)) {
      const mesh_shape cut = cut_mesh(mesh, parts);
      REQUIRE(cut.devices() == mesh.devices());
      for (axis_mask axes = 1; axes < bit_of(mesh.rank); ++axes) {
        const axis_list whole = list_of(axes);
        const axis_list in_parts = parts.parts_of(whole);
        CHECK(in_parts.mask() == parts.parts_of(axes));
        CHECK(parts.axes_of(in_parts.mask()) == axes);
        for (int device = 0; device < mesh.devices(); ++device) {
          REQUIRE(cut.position(device, in_parts) == mesh.position(device, whole));
          for (int k = 0; k < mesh.parts(whole); ++k)
            REQUIRE(cut.member(device, in_parts, k) == mesh.member(device, whole, k));
          const std::int64_t extent = 5 * mesh.devices();
          const interval mine = local_interval(mesh, extent, whole, device);
          const interval same = local_interval(cut, extent, in_parts, device);
          REQUIRE((mine.start == same.start && mine.size == same.size));
        }
      }
    }
  }
}

TEST_CASE("axes are cut where a part of one ends a factor of a reshape") {
  CHECK(sizes_of(wanted({4}, {1, {8}}, {x}, {2, {2, 4}})) == sizes{2, 2});
  CHECK(sizes_of(wanted({4}, {1, {8}}, {x}, {2, {4, 2}})) == sizes{4});
  CHECK(sizes_of(wanted({2}, {1, {8}}, {x}, {2, {2, 4}})) == sizes{2});
  CHECK(sizes_of(wanted({8}, {1, {16}}, {x}, {4, {2, 2, 2, 2}})) == sizes{2, 2, 2});
  CHECK(sizes_of(wanted({8}, {1, {16}}, {x}, {2, {2, 8}})) == sizes{2, 4});
  CHECK(sizes_of(wanted({6}, {1, {24}}, {x}, {2, {3, 8}})) == sizes{3, 2});
  CHECK(sizes_of(wanted({2, 8}, {2, {2, 16}}, {x, y}, {3, {2, 4, 4}})) == sizes{2, 4, 2});
  CHECK(sizes_of(wanted({4, 2}, {1, {16}}, {y.with(0)}, {3, {4, 2, 2}})) == sizes{2, 2, 2});
  // The major part of eight parts of (3, 4) passes alone: the factor of 3 has no four parts.
  CHECK(sizes_of(wanted({8}, {1, {24}}, {x}, {3, {2, 3, 4}})) == sizes{2, 4});
}

TEST_CASE("axes stay whole where a cut helps nobody") {
  // Parts of 6 are no parts of (2, 3); rows of 4 are no parts of (3, 8).
  CHECK(sizes_of(wanted({4}, {1, {6}}, {x}, {2, {2, 3}})) == sizes{4});
  CHECK(sizes_of(wanted({4}, {1, {24}}, {x}, {2, {3, 8}})) == sizes{4});
  // The factor before the one that the axis splits is whole.
  CHECK(sizes_of(wanted({4}, {2, {4, 4}}, {no, x}, {3, {2, 4, 2}})) == sizes{4});
  // Neither dimension divides the other.
  CHECK(sizes_of(wanted({4}, {2, {4, 6}}, {x, no}, {2, {8, 3}})) == sizes{4});
  // Eight axes are as many as there may be.
  CHECK(sizes_of(wanted({1, 1, 1, 1, 1, 1, 1, 4}, {1, {8}}, {axis_list(7)}, {2, {2, 4}})).size() == 8);
}

TEST_CASE("parts of an axis are printed as parts, and all of them as the axis") {
  const mesh_shape mesh = grid;
  sharding placement = sharding::whole(3);
  placement.dim[0] = axis_list(4).with(1).with(2).with(3);
  CHECK(to_string(mesh, b_in_three, dtype::f32, {3, {96, 5, 6}}, placement) == "f32[96@c*b, 5, 6]");
  placement.dim[0] = axis_list(1);
  placement.dim[1] = axis_list(3).with(0);
  placement.unreduced = bit_of(2) | bit_of(4);
  CHECK(to_string(mesh, b_in_three, dtype::f32, {3, {96, 5, 6}}, placement) ==
        "f32[96@b:(1)2, 5@b:(4)3*a, 6] sum@b:(2)2*c");
}
