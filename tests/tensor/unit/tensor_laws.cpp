// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#include <espalier/tensor/core/graph/window.hpp>
#include <espalier/tensor/core/mesh/axis_parts.hpp>
#include <espalier/tensor/core/partition/arena.hpp>
#include <espalier/tensor/core/partition/reshard.hpp>
#include <espalier/tensor/core/partition/transfer.hpp>
#include <espalier/tensor/core/sharding/box.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

// The laws that comments state as @post: each test has the name of the function and the law, as they stand there.

namespace {

using namespace espalier;

class drawer {
 public:
  explicit drawer(std::uint32_t seed) : random_(seed) {}
  int from(int low, int high) { return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1)); }

  /// At most 36 devices in one to three axes, some of a single device.
  mesh_shape mesh() {
    static constexpr const char* names[]{"x", "y", "z"};
    mesh_shape m;
    m.rank = from(1, 3);
    for (int axis = 0; axis < m.rank; ++axis) {
      m.size[axis] = from(1, m.rank == 3 ? 3 : 6);
      m.name[axis] = names[axis];
    }
    return m;
  }
  /// Different axes of the mesh in any order.
  axis_list axes(int rank, axis_mask without = 0) {
    axis_list list;
    for (int tries = from(0, rank); tries > 0; --tries) {
      const int axis = from(0, rank - 1);
      if (!list.contains(axis) && !has_axis(without, axis)) list = list.with(axis);
    }
    return list;
  }
  extents shape() {
    extents s;
    for (int rank = from(1, 3); rank > 0; --rank) s.append(from(1, 13));
    return s;
  }
  sharding placement(const mesh_shape& m, int rank, axis_mask unreduced) {
    sharding s = sharding::whole(rank);
    s.unreduced = unreduced;
    for (int d = 0; d < rank; ++d) s.dim[d] = axes(m.rank, s.tiled() | unreduced);
    return s;
  }
  axis_mask mask(int rank) { return static_cast<axis_mask>(from(0, (1 << rank) - 1)); }
  tensor_box box(int rank) {
    tensor_box b;
    for (int d = 0; d < rank; ++d) b.dim[d] = {from(0, 6), from(0, 5)};
    return b;
  }

 private:
  std::mt19937 random_;
};

/// Calls `f(index)` for every element of a shape.
template <class F> void for_each_index(const std::vector<std::int64_t>& sizes, const F& f) {
  std::vector<std::int64_t> index(sizes.size(), 0);
  for (const std::int64_t size : sizes) {
    if (size <= 0) return;
  }
  while (true) {
    f(index);
    std::size_t d = sizes.size();
    while (d > 0 && ++index[d - 1] == sizes[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}
std::vector<std::int64_t> sizes_of(const std::int64_t* sizes, int rank) { return {sizes, sizes + rank}; }

bool contains(interval all, std::int64_t n) { return n >= all.start && n < all.start + all.size; }

}  // namespace

TEST_CASE("axis_list::without: the axes of the list that are not removed, in their order", "[law]") {
  drawer draw(1);
  for (int trial = 0; trial < 5000; ++trial) {
    const axis_list list = draw.axes(8);
    const axis_mask removed = draw.mask(8);
    std::vector<int> expected;
    for (int n = 0; n < list.size(); ++n) {
      if (!has_axis(removed, list[n])) expected.push_back(list[n]);
    }
    const axis_list left = list.without(removed);
    std::vector<int> axes;
    for (int n = 0; n < left.size(); ++n) axes.push_back(left[n]);
    REQUIRE(axes == expected);
  }
}

TEST_CASE("axis_list::without_first: first(n).followed_by(without_first(n)) is the list", "[law]") {
  drawer draw(2);
  for (int trial = 0; trial < 5000; ++trial) {
    const axis_list list = draw.axes(8);
    for (int n = 0; n <= 8; ++n) {
      REQUIRE(list.first(n).followed_by(list.without_first(n)) == list);
      REQUIRE(list.first(n).size() == std::min(n, list.size()));
    }
  }
}

TEST_CASE("list_of: the axes ascend, and list_of(mask).mask() == mask", "[law]") {
  for (axis_mask mask = 0; mask < 256; ++mask) {
    const axis_list list = list_of(mask);
    REQUIRE(list.mask() == mask);
    for (int n = 1; n < list.size(); ++n) REQUIRE(list[n - 1] < list[n]);
  }
}

TEST_CASE("mesh_shape::member: position(member(device, axes, p), axes) == p, and no other axis changes", "[law]") {
  drawer draw(3);
  for (int trial = 0; trial < 500; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const axis_list axes = draw.axes(mesh.rank);
    for (int device = 0; device < mesh.devices(); ++device) {
      REQUIRE(mesh.member(device, axes, mesh.position(device, axes)) == device);
      for (int p = 0; p < mesh.parts(axes); ++p) {
        const int member = mesh.member(device, axes, p);
        REQUIRE(mesh.position(member, axes) == p);
        for (int axis = 0; axis < mesh.rank; ++axis) {
          if (!axes.contains(axis)) REQUIRE(mesh.coordinate(member, axis) == mesh.coordinate(device, axis));
        }
      }
    }
  }
}

TEST_CASE("axis_parts::with_cut: an axis's position is that among all of its sub-axes, on every device", "[law]") {
  drawer draw(4);
  int cuts = 0;
  for (int trial = 0; trial < 500; ++trial) {
    mesh_shape mesh = draw.mesh();
    for (int axis = 0; axis < mesh.rank; ++axis) mesh.size[axis] *= draw.from(1, 2);
    axis_parts parts = axis_parts::whole(mesh);
    for (int n = draw.from(0, 3); n > 0; --n) {
      const int part = draw.from(0, parts.count - 1);
      const int major = draw.from(2, 4);
      if (parts.size[part] % major != 0) continue;
      parts = parts.with_cut(part, major);
      ++cuts;
    }
    const mesh_shape cut = cut_mesh(mesh, parts);
    REQUIRE(cut.devices() == mesh.devices());
    for (int device = 0; device < mesh.devices(); ++device) {
      for (int axis = 0; axis < mesh.rank; ++axis)
        REQUIRE(cut.position(device, parts.parts_of(axis_list(axis))) == mesh.coordinate(device, axis));
    }
  }
  CHECK(cuts > 100);
}

TEST_CASE("axis_parts::axes_of: axes_of(parts_of(axes)) == axes", "[law]") {
  drawer draw(5);
  for (int trial = 0; trial < 500; ++trial) {
    const mesh_shape mesh = draw.mesh();
    axis_parts parts = axis_parts::whole(mesh);
    const int part = draw.from(0, parts.count - 1);
    if (parts.size[part] % 2 == 0) parts = parts.with_cut(part, 2);
    for (axis_mask axes = 0; axes < bit_of(mesh.rank); ++axes) {
      REQUIRE(parts.axes_of(parts.parts_of(axes)) == axes);
      REQUIRE(parts.parts_of(list_of(axes)).mask() == parts.parts_of(axes));
    }
  }
}

TEST_CASE("ceil_div: the least number whose product with b is not less than a", "[law]") {
  for (std::int64_t a = 0; a < 200; ++a) {
    for (std::int64_t b = 1; b < 40; ++b) {
      const std::int64_t n = ceil_div(a, b);
      REQUIRE(n * b >= a);
      REQUIRE((n - 1) * b < a);
    }
  }
}

TEST_CASE("greatest_common_divisor: it divides both, and every number that divides both divides it", "[law]") {
  for (std::int64_t a = -60; a <= 60; ++a) {
    for (std::int64_t b = -60; b <= 60; ++b) {
      const std::int64_t divisor = greatest_common_divisor(a, b);
      if (a == 0 && b == 0) {
        REQUIRE(divisor == 0);
        continue;
      }
      REQUIRE(divisor > 0);
      REQUIRE((a % divisor == 0 && b % divisor == 0));
      for (std::int64_t n = 1; n <= 60; ++n) {
        if (a % n == 0 && b % n == 0) REQUIRE(divisor % n == 0);
      }
    }
  }
}

TEST_CASE("local_interval: the intervals by position follow one another from 0 to extent", "[law]") {
  drawer draw(6);
  for (int trial = 0; trial < 2000; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const axis_list axes = draw.axes(mesh.rank);
    const std::int64_t extent = draw.from(0, 40);
    std::int64_t end = 0;
    for (int p = 0; p < mesh.parts(axes); ++p) {
      const interval part = local_interval(mesh, extent, axes, mesh.member(0, axes, p));
      REQUIRE(part.start == end);
      REQUIRE(part.size >= 0);
      end = part.start + part.size;
    }
    REQUIRE(end == extent);
  }
}

TEST_CASE("local_extent: no device's interval is longer, and that of the first device is as long", "[law]") {
  drawer draw(7);
  for (int trial = 0; trial < 2000; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const axis_list axes = draw.axes(mesh.rank);
    const std::int64_t extent = draw.from(0, 40);
    const std::int64_t most = local_extent(mesh, extent, axes);
    for (int device = 0; device < mesh.devices(); ++device)
      REQUIRE(local_interval(mesh, extent, axes, device).size <= most);
    REQUIRE(local_interval(mesh, extent, axes, 0).size == most);
  }
}

TEST_CASE("common_elements: the number of elements that are in both boxes", "[law]") {
  drawer draw(8);
  for (int trial = 0; trial < 3000; ++trial) {
    const int rank = draw.from(0, 3);
    const tensor_box a = draw.box(rank);
    const tensor_box b = draw.box(rank);
    std::int64_t both = 0;
    for_each_index(std::vector<std::int64_t>(static_cast<std::size_t>(rank), 12), [&](const auto& index) {
      bool in_both = true;
      for (int d = 0; d < rank; ++d) {
        const std::int64_t n = index[static_cast<std::size_t>(d)];
        in_both = in_both && contains(a.dim[d], n) && contains(b.dim[d], n);
      }
      both += in_both ? 1 : 0;
    });
    REQUIRE(detail::common_elements(a, b, rank) == both);
  }
}

TEST_CASE("common_piece: it is contained in both boxes, and has all their common elements", "[law]") {
  drawer draw(9);
  for (int trial = 0; trial < 5000; ++trial) {
    const int rank = draw.from(1, 3);
    const tensor_box theirs = draw.box(rank);
    const tensor_box mine = draw.box(rank);
    const piece p = detail::common_piece(theirs, mine, rank, 5);
    REQUIRE(p.source == 5);
    REQUIRE(detail::elements_of(p, rank) == detail::common_elements(theirs, mine, rank));
    REQUIRE(detail::is_empty(p, rank) == (detail::elements_of(p, rank) == 0));
    if (detail::is_empty(p, rank)) continue;
    for (int d = 0; d < rank; ++d) {
      REQUIRE((p.source_start[d] >= 0 && p.source_start[d] + p.extent[d] <= theirs.dim[d].size));
      REQUIRE((p.target_start[d] >= 0 && p.target_start[d] + p.extent[d] <= mine.dim[d].size));
      REQUIRE(theirs.dim[d].start + p.source_start[d] == mine.dim[d].start + p.target_start[d]);
    }
  }
}

TEST_CASE("placed_window::reversed: reversed().reversed() is the window", "[law]") {
  drawer draw(10);
  for (int trial = 0; trial < 3000; ++trial) {
    const placed_window w{
        draw.from(1, 4), draw.from(1, 3), draw.from(-3, 3), draw.from(1, 3), draw.from(1, 3), 9, 0, 0, false};
    const placed_window back = w.reversed();
    REQUIRE(back.reversed() == w);
    // Tap k of the one is tap size - 1 - k of the other.
    for (std::int64_t o = 0; o < 9; ++o) {
      for (std::int64_t p = 0; p < 9; ++p) {
        for (std::int64_t k = 0; k < w.size; ++k) {
          const bool forth = w.base_dilation * p == w.stride * o + w.dilation * k - w.low;
          const std::int64_t other = w.size - 1 - k;
          REQUIRE(forth == (back.base_dilation * o == back.stride * p + back.dilation * other - back.low));
        }
      }
    }
  }
}

TEST_CASE("most_needed: needed(w, part, extent).size <= most_needed(w, part.size, extent)", "[law]") {
  drawer draw(11);
  bool is_met = false;
  for (int trial = 0; trial < 5000; ++trial) {
    const placed_window w{
        draw.from(1, 4),     draw.from(1, 3), draw.from(-3, 3), draw.from(1, 3), draw.from(1, 3), 12, 0, 0,
        draw.from(0, 3) == 0};
    const interval part{draw.from(0, 8), draw.from(0, 4)};
    const std::int64_t extent = draw.from(1, 30);
    const std::int64_t size = detail::needed(w, part, extent).size;
    const std::int64_t most = detail::most_needed(w, part.size, extent);
    REQUIRE(size <= most);
    is_met = is_met || (size == most && size > 3);
  }
  CHECK(is_met);
}

TEST_CASE("plan_reshard: the last step leaves `to`; no steps if the placements agree", "[law]") {
  drawer draw(12);
  for (int trial = 0; trial < 2000; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const extents shape = draw.shape();
    const axis_mask unreduced = draw.mask(mesh.rank) & draw.mask(mesh.rank);
    const sharding from = draw.placement(mesh, shape.rank, unreduced);
    const sharding to = draw.placement(mesh, shape.rank, unreduced & draw.mask(mesh.rank));
    const reshard_plan plan = plan_reshard(mesh, shape, dtype::f32, from, to);
    REQUIRE((plan.count == 0) == from.same_layout(to));
    if (plan.count > 0) REQUIRE(plan.step[plan.count - 1].after.same_layout(to));
    REQUIRE(plan_reshard(mesh, shape, dtype::f32, to, to).count == 0);
  }
}

TEST_CASE("reshard_bytes: as many as plan_reshard's plan has", "[law]") {
  drawer draw(13);
  int several_steps = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const extents shape = draw.shape();
    const axis_mask unreduced = draw.mask(mesh.rank);
    const sharding from = draw.placement(mesh, shape.rank, unreduced);
    const sharding to = draw.placement(mesh, shape.rank, unreduced & draw.mask(mesh.rank));
    const std::int64_t latency = draw.from(0, 1) * 64;
    const reshard_plan plan = plan_reshard(mesh, shape, dtype::f32, from, to, latency);
    REQUIRE(reshard_bytes(mesh, shape, dtype::f32, from, to, latency) == plan.bytes);
    several_steps += plan.count > 1 ? 1 : 0;
  }
  CHECK(several_steps > 100);
}

namespace {

/// How often each element of a device's new shard is received, where `pieces(f)` calls f for each piece.
template <class Pieces>
std::vector<int> times_received(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to,
                                int device, const Pieces& pieces) {
  const tensor_box mine = detail::box_of(mesh, shape, to, device);
  std::vector<int> times(static_cast<std::size_t>(detail::elements_of(mine, shape.rank)), 0);
  pieces([&](const piece& p) {
    const tensor_box theirs = detail::box_of(mesh, shape, from, p.source);
    for_each_index(sizes_of(&p.extent[0], shape.rank), [&](const auto& index) {
      std::int64_t at = 0;
      for (int d = 0; d < shape.rank; ++d) {
        const std::int64_t n = index[static_cast<std::size_t>(d)];
        const std::int64_t here = p.target_start[d] + n;
        const std::int64_t there = p.source_start[d] + n;
        REQUIRE((here < mine.dim[d].size && there < theirs.dim[d].size));
        REQUIRE(mine.dim[d].start + here == theirs.dim[d].start + there);
        at = at * mine.dim[d].size + here;
      }
      ++times[static_cast<std::size_t>(at)];
    });
  });
  return times;
}

}  // namespace

TEST_CASE("for_each_piece: the boxes cover the real elements of the device's new shard, each exactly once", "[law]") {
  drawer draw(14);
  for (int trial = 0; trial < 400; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const extents shape = draw.shape();
    const sharding from = draw.placement(mesh, shape.rank, 0);
    const sharding to = draw.placement(mesh, shape.rank, 0);
    const axis_mask all = bit_of(mesh.rank) - 1;
    for (int device = 0; device < mesh.devices(); ++device) {
      for (const int times : times_received(mesh, shape, from, to, device, [&](const auto& f) {
             for_each_piece(mesh, shape, from, to, all, device, f);
           }))
        REQUIRE(times == 1);
    }
  }
}

TEST_CASE("for_each_exchanged_piece: the boxes cover the new shard, each element exactly once", "[law]") {
  drawer draw(15);
  for (int trial = 0; trial < 150; ++trial) {
    const mesh_shape mesh = draw.mesh();
    const extents shape = draw.shape();
    const sharding from = draw.placement(mesh, shape.rank, 0);
    const sharding to = draw.placement(mesh, shape.rank, 0);
    const axis_mask all = bit_of(mesh.rank) - 1;
    for (int device = 0; device < mesh.devices(); ++device) {
      std::vector<int> sources;
      for (const int times : times_received(mesh, shape, from, to, device, [&](const auto& f) {
             for_each_exchanged_piece(mesh, shape, from, to, all, device, [&](const piece& p) {
               sources.push_back(p.source);
               f(p);
             });
           }))
        REQUIRE(times == 1);
      std::sort(sources.begin(), sources.end());
      REQUIRE(std::adjacent_find(sources.begin(), sources.end()) == sources.end());  // one box from each device
    }
  }
}

namespace {

std::vector<buffer> some_buffers(drawer& draw, int count, int launches) {
  std::vector<buffer> all;
  for (int n = 0; n < count; ++n) {
    const int first = draw.from(0, launches - 1);
    const int last = draw.from(first, std::min(launches - 1, first + (draw.from(0, 3) == 0 ? launches : 4)));
    all.push_back({n, 64 * std::int64_t{draw.from(1, 40)}, first, last});
  }
  return all;
}

}  // namespace

TEST_CASE("sort_buffers: every buffer once, none larger than the one before it", "[law]") {
  drawer draw(16);
  for (int trial = 0; trial < 500; ++trial) {
    const std::vector<buffer> buffers = some_buffers(draw, draw.from(1, 70), 20);
    const int count = static_cast<int>(buffers.size());
    std::vector<int> order(buffers.size(), -1);
    sort_buffers(buffers.data(), count, order.data());
    for (std::size_t n = 1; n < order.size(); ++n)
      REQUIRE(buffers.at(static_cast<std::size_t>(order[n])).bytes <=
              buffers.at(static_cast<std::size_t>(order[n - 1])).bytes);
    std::sort(order.begin(), order.end());
    for (int n = 0; n < count; ++n) REQUIRE(order[static_cast<std::size_t>(n)] == n);
  }
}

TEST_CASE("place_buffers: buffers that live at the same time do not overlap, and end within the returned bytes",
          "[law]") {
  drawer draw(17);
  for (int trial = 0; trial < 300; ++trial) {
    const int launches = draw.from(1, 50);
    const std::vector<buffer> buffers = some_buffers(draw, draw.from(1, 60), launches);
    const int count = static_cast<int>(buffers.size());
    std::vector<int> order(buffers.size());
    sort_buffers(buffers.data(), count, order.data());
    std::vector<std::int64_t> offset(buffers.size(), -1);
    const std::int64_t size = place_buffers(buffers.data(), order.data(), 0, count, launches, offset.data());
    for (std::size_t a = 0; a < buffers.size(); ++a) {
      const buffer& one = buffers[a];
      REQUIRE((offset[a] >= 0 && offset[a] + one.bytes <= size));
      for (std::size_t b = 0; b < a; ++b) {
        const buffer& other = buffers[b];
        if (one.last < other.first || other.last < one.first) continue;
        REQUIRE((offset[a] + one.bytes <= offset[b] || offset[b] + other.bytes <= offset[a]));
      }
    }
  }
}

TEST_CASE("live_bytes: the largest sum over launches of the buffers that live then", "[law]") {
  drawer draw(18);
  for (int trial = 0; trial < 500; ++trial) {
    const int launches = draw.from(1, 30);
    const std::vector<buffer> buffers = some_buffers(draw, draw.from(0, 40), launches);
    std::int64_t most = 0;
    for (int launch = 0; launch < launches; ++launch) {
      std::int64_t sum = 0;
      for (const buffer& b : buffers) sum += b.first <= launch && launch <= b.last ? b.bytes : 0;
      most = std::max(most, sum);
    }
    REQUIRE(live_bytes(buffers.data(), static_cast<int>(buffers.size()), launches) == most);
  }
}
