// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: yes
// timeout: 300

#include <espalier/comm/in_process.hpp>
#include <espalier/tensor/core/partition/local_program.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <catch2/catch.hpp>
#include <tensor/unit/reshard_layouts.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

// The moves of a change of layout, counted box by box on the real boxes, for pairs of layouts without partial sums:
// every device receives exactly what it lacks, holds nothing larger on the way, and copies share the work of sending.
// Usually a sample of the pairs; ESPALIER_RESHARD_ALL=1 takes all of them (tests/run --long does).

namespace {

using namespace reshard_checks;

/// The place of a device's part in the whole tensor, from the definition of nested splits: each axis cuts the chunk of
/// the axis before it into equal parts, rounded up.
struct region {
  std::int64_t first[max_rank]{};
  std::int64_t last[max_rank]{};  // not included

  region(const mesh_shape& mesh, const extents& shape, const sharding& s, int device) {
    for (int d = 0; d < shape.rank; ++d) {
      std::int64_t chunk = shape[d];
      last[d] = shape[d];
      for (int n = 0; n < s.dim[d].size(); ++n) {
        const int axis = s.dim[d][n];
        chunk = (chunk + mesh.size[axis] - 1) / mesh.size[axis];
        first[d] = std::min(first[d] + mesh.coordinate(device, axis) * chunk, last[d]);
        last[d] = std::min(first[d] + chunk, last[d]);
      }
    }
  }
  [[nodiscard]] std::int64_t elements(int rank) const {
    std::int64_t count = 1;
    for (int d = 0; d < rank; ++d) count *= last[d] - first[d];
    return count;
  }
  [[nodiscard]] std::int64_t common(const region& other, int rank) const {
    std::int64_t count = 1;
    for (int d = 0; d < rank; ++d) {
      count *= std::max<std::int64_t>(std::min(last[d], other.last[d]) - std::max(first[d], other.first[d]), 0);
    }
    return count;
  }
};

/// Row-major over the buffer, the indices of the tensor's elements in it; -1 where a buffer is larger than its part.
std::vector<std::int64_t> numbered(const extents& shape, const extents& buffer, const region& part) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(buffer.elements()), -1);
  for (std::size_t i = 0; i < result.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t index = 0;
    std::int64_t scale = 1;
    bool real = true;
    for (int d = shape.rank - 1; d >= 0; --d) {
      const std::int64_t at = rest % buffer[d];
      rest /= buffer[d];
      real = real && at < part.last[d] - part.first[d];
      index += (part.first[d] + at) * scale;
      scale *= shape[d];
    }
    if (real) result[i] = index;
  }
  return result;
}

void copy_box(const piece& p, const extents& from, const std::vector<std::int64_t>& source, const extents& to,
              std::vector<std::int64_t>& target) {
  std::int64_t at[max_rank]{};
  const std::int64_t count = detail::elements_of(p, from.rank);
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t read = 0;
    std::int64_t write = 0;
    for (int d = 0; d < from.rank; ++d) {
      read = read * from[d] + p.source_start[d] + at[d];
      write = write * to[d] + p.target_start[d] + at[d];
    }
    if (target.at(static_cast<std::size_t>(write)) != -1) FAIL("an element arrives twice");
    target[static_cast<std::size_t>(write)] = source.at(static_cast<std::size_t>(read));
    for (int d = from.rank - 1; d >= 0 && ++at[d] == p.extent[d]; --d) at[d] = 0;
  }
}

struct findings {
  std::int64_t pairs = 0;
  std::map<std::string, std::int64_t> kinds;
  /// The most that any device sent, as a multiple of what the neediest lacked.
  double most_sent = 0;
  /// The cases where it is more than 1.5 times that.
  std::vector<std::string> where;
  /// How many of these although every device holds something.
  std::int64_t unavoidable = 0;
};

/// Carries out the plan for one pair of layouts on all devices, counting.
void move_all(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to,
              std::int64_t latency, bool even, findings& found) {
  const reshard_plan plan = plan_reshard(mesh, shape, dtype::f32, from, to, latency);
  INFO(text_of(mesh, shape, from, to) << ", latency " << latency);
  INFO(text_of(mesh, plan));
  const int devices = mesh.devices();
  const auto index = [](int device) { return static_cast<std::size_t>(device); };
  std::vector<std::int64_t> lacking(index(devices)), received(index(devices)), sent(index(devices));
  std::vector<std::vector<std::int64_t>> held;
  for (int device = 0; device < devices; ++device) {
    const region before(mesh, shape, from, device);
    const region after(mesh, shape, to, device);
    lacking[index(device)] = after.elements(shape.rank) - after.common(before, shape.rank);
    held.push_back(numbered(shape, local_shape(mesh, shape, from), before));
  }
  const std::int64_t most_lacking = *std::max_element(lacking.begin(), lacking.end());
  const std::int64_t larger_end =
      std::max(local_shape(mesh, shape, from).elements(), local_shape(mesh, shape, to).elements());
  sharding now = from;
  std::string kinds;
  for (int n = 0; n < plan.count; ++n) {
    const reshard_step& step = plan.step[n];
    kinds += std::string(n > 0 ? ", " : "") + name_of(step.kind);
    const extents source = local_shape(mesh, shape, now);
    const extents target = local_shape(mesh, shape, step.after);
    REQUIRE(target.elements() <= larger_end);
    std::vector<std::vector<std::int64_t>> arrived;
    for (int device = 0; device < devices; ++device) {
      auto& mine = arrived.emplace_back(static_cast<std::size_t>(target.elements()), -1);
      std::vector<bool> heard(index(devices));
      const auto receive = [&](const piece& p) {
        if (heard[index(p.source)]) FAIL("two boxes from one device");
        heard[index(p.source)] = true;
        copy_box(p, source, held[index(p.source)], target, mine);
        if (p.source == device) return;
        const std::int64_t count = detail::elements_of(p, shape.rank);
        received[index(device)] += count;
        sent[index(p.source)] += count;
      };
      if (step.kind == collective::exchange) {
        for_each_exchanged_piece(mesh, shape, now, step.after, step.axes, device, receive);
      } else {
        for_each_piece(mesh, shape, now, step.after, step.axes, device, receive);
      }
    }
    held = std::move(arrived);
    now = step.after;
  }
  REQUIRE(now.same_layout(to));
  for (int device = 0; device < devices; ++device) {
    REQUIRE(held[index(device)] == numbered(shape, local_shape(mesh, shape, to), region(mesh, shape, to, device)));
  }
  REQUIRE(received == lacking);
  // The planner's number is what the neediest device receives, where splits are even.
  if (even) REQUIRE(plan.bytes == 4 * most_lacking);
  ++found.pairs;
  ++found.kinds[kinds];
  const std::int64_t most_sent = *std::max_element(sent.begin(), sent.end());
  if (most_lacking > 0) {
    found.most_sent = std::max(found.most_sent, static_cast<double>(most_sent) / static_cast<double>(most_lacking));
  }
  // Boxes are cut between layers, so shares differ a little.
  if (even) REQUIRE(2 * most_sent <= 3 * most_lacking);
  if (2 * most_sent <= 3 * most_lacking) return;
  // Uneven splits only: few devices hold anything at all, or much more than others. The holders of the part that is
  // wanted most then share the work as well as they can.
  double least = 0;
  bool all_hold = true;
  for (int holder = 0; holder < devices; ++holder) {
    const region theirs(mesh, shape, from, holder);
    std::int64_t wanted = 0;
    std::int64_t copies = 0;
    for (int other = 0; other < devices; ++other) {
      const region same(mesh, shape, from, other);
      const bool copy = std::equal(same.first, same.first + shape.rank, theirs.first) &&
                        std::equal(same.last, same.last + shape.rank, theirs.last);
      copies += copy ? 1 : 0;
      if (!copy) wanted += region(mesh, shape, to, other).common(theirs, shape.rank);
    }
    all_hold = all_hold && theirs.elements(shape.rank) > 0;
    least = std::max(least, static_cast<double>(wanted) / static_cast<double>(copies));
  }
  // Some device has nothing to send, or one has so much that no other has that no plan could do with less.
  REQUIRE((!all_hold || 2 * least > 3 * static_cast<double>(most_lacking)));
  found.unavoidable += all_hold ? 1 : 0;
  found.where.push_back(text_of(mesh, shape, from, to) + ", latency " + std::to_string(latency) + ": " +
                        text_of(mesh, plan) + ", sends " + std::to_string(most_sent) + " for " +
                        std::to_string(most_lacking));
  INFO("most sent " << most_sent << ", lacking " << most_lacking << ", unavoidable " << least);
  REQUIRE(static_cast<double>(most_sent) <= 1.5 * std::max(least, static_cast<double>(most_lacking)));
}

bool takes_all() {
  const char* const text = std::getenv("ESPALIER_RESHARD_ALL");
  return text != nullptr && text[0] != '0';
}

bool is_even(const mesh_shape& mesh, const extents& shape, const sharding& s) {
  for (int d = 0; d < shape.rank; ++d) {
    if (!divides_evenly(mesh, shape[d], s.dim[d])) return false;
  }
  return true;
}

/// All layouts without partial sums.
std::vector<sharding> layouts_without_sums(const mesh_shape& mesh, int rank) {
  std::vector<sharding> all = all_layouts(mesh, rank);
  all.erase(std::remove_if(all.begin(), all.end(), [](const sharding& s) { return s.unreduced != 0; }), all.end());
  return all;
}

/// Whether the start of a collective makes no difference to the plan.
bool plan_is_the_same(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to) {
  const reshard_plan a = plan_reshard(mesh, shape, dtype::f32, from, to, 0);
  const reshard_plan b = plan_reshard(mesh, shape, dtype::f32, from, to, collective_latency);
  bool same = a.count == b.count;
  for (int n = 0; same && n < a.count; ++n) {
    same = a.step[n].kind == b.step[n].kind && a.step[n].axes == b.step[n].axes &&
           a.step[n].after.same_layout(b.step[n].after);
  }
  return same;
}

void sweep(const std::vector<mesh_shape>& meshes, const std::vector<extents>& shapes, std::size_t most,
           findings& found) {
  for (const mesh_shape& mesh : meshes) {
    for (const extents& shape : shapes) {
      const std::vector<sharding> layouts = layouts_without_sums(mesh, shape.rank);
      const std::size_t all = layouts.size() * layouts.size();
      // A stride that shares no factor with the number of layouts meets every source and every target.
      std::size_t stride = takes_all() ? 1 : std::max<std::size_t>(all / most, 1);
      while (stride > 1 && std::gcd(stride, layouts.size()) != 1) ++stride;
      for (std::size_t n = 0; n < all; n += stride) {
        const sharding& from = layouts[n / layouts.size()];
        const sharding& to = layouts[n % layouts.size()];
        const bool even = is_even(mesh, shape, from) && is_even(mesh, shape, to);
        // Where both plans are wanted, each that differs is carried out.
        const bool both = takes_all() && !plan_is_the_same(mesh, shape, from, to);
        if (both || n % 2 == 0) move_all(mesh, shape, from, to, 0, even, found);
        if (both || n % 2 == 1) move_all(mesh, shape, from, to, collective_latency, even, found);
      }
    }
  }
}

void report(const char* what, const findings& found) {
  std::cout << what << ": " << found.pairs
            << " pairs of layouts; received is what was lacking, nothing larger on the way; "
            << "sent is at most " << found.most_sent << " times what the neediest lacks, more than 1.5 times for "
            << found.where.size() << " pairs, of which "
            << found.where.size() - static_cast<std::size_t>(found.unavoidable)
            << " leave devices without anything to send; in the other " << found.unavoidable
            << " the holders of one part alone have that much to send\n";
  for (std::size_t n = 0; n < found.where.size() && (takes_all() || n < 5); ++n)
    std::cout << "  " << found.where[n] << '\n';
  for (const auto& [kinds, count] : found.kinds) {
    std::cout << "  " << count << " x " << (kinds.empty() ? "nothing" : kinds) << '\n';
  }
}

/// Adds every mesh that begins with `first`, has up to 16 devices and up to four axes, each of at least two devices.
void add_meshes(const std::vector<int>& first, int devices, std::vector<mesh_shape>& meshes) {
  for (int size = 2; first.size() < 4 && devices * size <= 16; ++size) {
    std::vector<int> longer = first;
    longer.push_back(size);
    meshes.push_back(mesh_of(longer));
    add_meshes(longer, devices * size, meshes);
  }
}

/// All meshes of up to 16 devices and four axes, or twelve of them for a sample of the pairs.
std::vector<mesh_shape> swept_meshes() {
  if (!takes_all()) {
    return {mesh_of({2}),       mesh_of({4}),       mesh_of({16}),      mesh_of({2, 2}),
            mesh_of({2, 4}),    mesh_of({4, 4}),    mesh_of({2, 8}),    mesh_of({2, 3}),
            mesh_of({2, 2, 2}), mesh_of({2, 2, 4}), mesh_of({3, 2, 2}), mesh_of({2, 2, 2, 2})};
  }
  std::vector<mesh_shape> all;
  add_meshes({}, 1, all);
  return all;
}

TEST_CASE("every device receives what it lacks, and copies share the sending", "[reshard][exchange]") {
  findings even;
  const std::vector<extents> divisible{shape_of({48}), shape_of({48, 16}), shape_of({16, 8, 4})};
  sweep(swept_meshes(), divisible, 1200, even);
  report("split evenly on most meshes", even);
  CHECK(even.kinds["exchange"] > 0);
  CHECK(even.kinds["local_slice, all_gather"] > 0);
  CHECK(even.kinds["all_to_all"] > 0);
  CHECK(even.kinds["collective_permute"] > 0);
}

TEST_CASE("uneven parts: every device receives what it lacks, and copies share the sending", "[reshard][exchange]") {
  findings uneven;
  const std::vector<extents> odd{shape_of({1}),     shape_of({7}),       shape_of({17}),      shape_of({7, 5}),
                                 shape_of({33, 2}), shape_of({3, 5, 2}), shape_of({7, 9, 1}), shape_of({0, 3})};
  sweep(swept_meshes(), odd, 500, uneven);
  report("split unevenly", uneven);
  CHECK(uneven.kinds["exchange"] > 0);
}

sharding split(std::initializer_list<axis_list> dims) {
  sharding result = sharding::whole(static_cast<int>(dims.size()));
  int d = 0;
  for (const axis_list axes : dims) result.dim[d++] = axes;
  return result;
}
axis_list by(std::initializer_list<int> axes) {
  axis_list result;
  for (const int axis : axes) result = result.with(axis);
  return result;
}

TEST_CASE("the holders of copies send one share each", "[reshard][exchange]") {
  // Eight copies of two halves. Every device wants a sixteenth: were one of them to serve all, it would send four.
  const mesh_shape mesh = mesh_of({2, 8});
  const extents shape = shape_of({32, 4});
  const sharding from = split({by({0}), by({})});
  const sharding to = split({by({1, 0}), by({})});
  const reshard_plan plan = plan_reshard(mesh, shape, dtype::f32, from, to);
  REQUIRE(plan.count == 1);
  REQUIRE(plan.step[0].kind == collective::exchange);
  for (int device = 0; device < 16; ++device) {
    CHECK(sent_bytes(mesh, shape, dtype::f32, plan.step[0], from, device) <= 4 * 2 * 4);
  }
  // Two copies, of which seven others want all: each sends three and a half boxes.
  const mesh_shape wide = mesh_of({8, 2});
  const sharding eighths = split({by({0}), by({})});
  const sharding halves = split({by({}), by({1})});
  const sharding rows = split({by({1}), by({})});
  const reshard_plan grown = plan_reshard(wide, shape, dtype::f32, eighths, rows);
  REQUIRE(grown.count == 1);
  std::int64_t most = 0;
  for (int device = 0; device < 16; ++device) {
    most = std::max(most, sent_bytes(wide, shape, dtype::f32, grown.step[0], eighths, device));
  }
  CHECK(most == 4 * 16 * 7 / 2);
  CHECK(plan_reshard(wide, shape, dtype::f32, eighths, halves).step[1].kind == collective::all_gather);
}

/// An exchange in the communicator of this process, every device with buffers of its own.
void exchange_in_process(const mesh_shape& mesh, const extents& shape, const sharding& from, const sharding& to) {
  const axis_mask axes =
      detail::exchanged_axes(std::bit_cast<detail::placement_codes>(from), std::bit_cast<detail::placement_codes>(to));
  const reshard_step step{collective::exchange, axes, to};
  std::vector<std::string> mistakes(static_cast<std::size_t>(mesh.devices()));
  comm::run_devices(mesh.devices(), [&](auto& communicator) {
    const int device = communicator.rank();
    const comm::transfer moves =
        detail::make_transfer(mesh, shape, dtype::i32, from, to, axes, collective::exchange, device, 0);
    const auto as_stored = [](const std::vector<std::int64_t>& numbers) {
      return std::vector<std::int32_t>(numbers.begin(), numbers.end());
    };
    const auto source = as_stored(numbered(shape, local_shape(mesh, shape, from), region(mesh, shape, from, device)));
    const auto right = as_stored(numbered(shape, local_shape(mesh, shape, to), region(mesh, shape, to, device)));
    std::vector<std::int32_t> target(right.size(), -1);
    const auto self = static_cast<std::size_t>(moves.self);
    std::string& mistake = mistakes[static_cast<std::size_t>(device)];
    // Engines that take an exchange as one all-to-all read what stays, too.
    if (!(moves.outgoing[self] == moves.incoming[self])) mistake = "another box of its own";
    communicator.prepare(moves);
    communicator.exchange(moves, source.data(), target.data());
    if (target != right) mistake += " other data";
    if (communicator.counters()[0] != sent_bytes(mesh, shape, dtype::i32, step, from, device))
      mistake += " other bytes";
  });
  INFO(text_of(mesh, shape, from, to));
  for (const std::string& mistake : mistakes) REQUIRE(mistake == "");
}

TEST_CASE("exchanges carry their boxes, of up to eight strided dimensions", "[reshard][exchange]") {
  const mesh_shape cube = mesh_of({2, 2, 2});
  exchange_in_process(cube, shape_of({5, 8}), split({by({0}), by({1, 2})}), split({by({2}), by({0})}));
  exchange_in_process(cube, shape_of({16}), split({by({0, 1})}), split({by({2, 0, 1})}));
  exchange_in_process(cube, shape_of({1, 3}), split({by({0}), by({1})}), split({by({1}), by({0, 2})}));
  // No dimension continues its neighbour in both buffers: a box of six strided dimensions, and one of eight.
  exchange_in_process(cube, shape_of({4, 3, 4, 3, 4, 3}), split({by({0}), by({}), by({1}), by({}), by({2}), by({})}),
                      split({by({}), by({0}), by({}), by({1}), by({}), by({2})}));
  const mesh_shape four = mesh_of({2, 2, 2, 2});
  exchange_in_process(four, shape_of({2, 3, 2, 3, 2, 3, 2, 3}),
                      split({by({0}), by({}), by({1}), by({}), by({2}), by({}), by({3}), by({})}),
                      split({by({}), by({0}), by({}), by({1}), by({}), by({2}), by({}), by({3})}));
}

}  // namespace
