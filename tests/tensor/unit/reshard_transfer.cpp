// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: yes
// timeout: 300

#include "reshard_layouts.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <random>

namespace {

using namespace reshard_checks;

// Every device's buffer, as large as its placement says; elements that stand for nothing hold `padding`.
using buffer = std::vector<std::int64_t>;
using buffers = std::vector<buffer>;
constexpr std::int64_t padding = -1000000007;

/// Calls `f(index)` for every index of a box of this rank.
template <class F> void for_each_index(int rank, const std::int64_t* extent, F f) {
  for (int d = 0; d < rank; ++d) {
    if (extent[d] == 0) return;
  }
  std::int64_t index[max_rank]{};
  for (int d = rank; d >= 0;) {
    f(index);
    for (d = rank - 1; d >= 0 && ++index[d] == extent[d]; --d) index[d] = 0;
  }
}

std::size_t offset_of(const extents& shape, const std::int64_t* index, const std::int64_t* start) {
  std::int64_t offset = 0;
  for (int d = 0; d < shape.rank; ++d) {
    if (start[d] + index[d] >= shape[d]) FAIL("outside the buffer");
    offset = offset * shape[d] + start[d] + index[d];
  }
  return static_cast<std::size_t>(offset);
}

constexpr std::int64_t at_zero[max_rank]{};

/// The place of a device's part in the whole tensor.
struct part {
  std::int64_t start[max_rank]{};
  std::int64_t extent[max_rank]{};

  part(const mesh_shape& mesh, const extents& shape, const sharding& placement, int device) {
    for (int d = 0; d < shape.rank; ++d) {
      const interval i = local_interval(mesh, shape[d], placement.dim[d], device);
      start[d] = i.start;
      extent[d] = i.size;
    }
  }
};

class simulation {
 public:
  simulation(const mesh_shape& mesh, const extents& shape) : mesh_(mesh), shape_(shape) {
    for (std::int64_t i = 0; i < shape.elements(); ++i) tensor_.push_back(i + 1);
  }

  /// Slices the tensor, or for partial sums random terms of it.
  buffers distribute(const sharding& placement) {
    const axis_list summed = list_of(placement.unreduced);
    const auto terms = static_cast<std::size_t>(mesh_.parts(summed));
    buffers term(terms, tensor_);
    for (std::size_t k = 1; k < terms; ++k) {
      for (std::size_t i = 0; i < tensor_.size(); ++i) {
        term[k][i] = static_cast<std::int64_t>(random_() % 1000);
        term[0][i] -= term[k][i];
      }
    }
    buffers result;
    for (int device = 0; device < mesh_.devices(); ++device) {
      const part mine(mesh_, shape_, placement, device);
      const extents local = local_shape(mesh_, shape_, placement);
      const buffer& source = term[static_cast<std::size_t>(mesh_.position(device, summed))];
      buffer& target = result.emplace_back(local.elements(), padding);
      for_each_index(shape_.rank, mine.extent, [&](const std::int64_t* index) {
        target[offset_of(local, index, at_zero)] = source[offset_of(shape_, index, mine.start)];
      });
    }
    return result;
  }

  /// Carries one step out on all devices, and compares what it sends with sent_bytes.
  buffers execute(const buffers& before, const sharding& from, const reshard_step& step) {
    sent_.assign(before.size(), 0);
    const buffers after =
        step.kind == collective::all_reduce ? all_reduce(before, from, step) : exchange(before, from, step);
    const std::int64_t buffer_bytes = 4 * local_shape(mesh_, shape_, from).elements();
    std::int64_t bytes = 0;
    std::int64_t expected_bytes = 0;
    for (int device = 0; device < mesh_.devices(); ++device) {
      const std::int64_t said = sent_bytes(mesh_, shape_, dtype::f32, step, from, device);
      const std::int64_t counted = 4 * sent_[static_cast<std::size_t>(device)];
      bytes += counted;
      expected_bytes += said;
      // An all_reduce is counted for the group as a whole.
      if (step.kind != collective::all_reduce) REQUIRE(counted == said);
      if (step.kind == collective::collective_permute) REQUIRE(counted <= buffer_bytes);
      const std::int64_t members = mesh_.parts(step.axes);
      const bool even = is_even(from) && is_even(step.after) && buffer_bytes / 4 % members == 0;
      if (even && step.kind != collective::collective_permute && step.kind != collective::exchange) {
        REQUIRE(said == detail::step_bytes(step.kind, buffer_bytes, members));
      }
    }
    REQUIRE(bytes == expected_bytes);
    return after;
  }

  /// Whether the devices hold the tensor in this placement: its parts, or terms that sum to them.
  void check(const buffers& held, const sharding& placement) {
    const axis_list summed = list_of(placement.unreduced);
    const extents local = local_shape(mesh_, shape_, placement);
    for (int device = 0; device < mesh_.devices(); ++device) {
      const part mine(mesh_, shape_, placement, device);
      buffer expected(static_cast<std::size_t>(local.elements()), 0);
      buffer actual = expected;
      for_each_index(shape_.rank, mine.extent, [&](const std::int64_t* index) {
        const std::size_t at = offset_of(local, index, at_zero);
        expected[at] = tensor_[offset_of(shape_, index, mine.start)];
        for (int k = 0; k < mesh_.parts(summed); ++k) {
          actual[at] += held[static_cast<std::size_t>(mesh_.member(device, summed, k))][at];
        }
      });
      REQUIRE(actual == expected);
    }
  }

  /// Plans and executes.
  void run(const sharding& from, const sharding& to) {
    const reshard_plan plan = plan_reshard(mesh_, shape_, dtype::f32, from, to);
    INFO(text_of(mesh_, shape_, from, to));
    INFO(text_of(mesh_, plan));
    buffers held = distribute(from);
    sharding now = from;
    for (int i = 0; i < plan.count; ++i) {
      held = execute(held, now, plan.step[i]);
      now = plan.step[i].after;
    }
    REQUIRE(now.same_layout(to));
    check(held, to);
  }

 private:
  bool is_even(const sharding& placement) const {
    for (int d = 0; d < shape_.rank; ++d) {
      if (!divides_evenly(mesh_, shape_[d], placement.dim[d])) return false;
    }
    return true;
  }

  buffers exchange(const buffers& before, const sharding& from, const reshard_step& step) {
    const extents old_local = local_shape(mesh_, shape_, from);
    const extents new_local = local_shape(mesh_, shape_, step.after);
    const axis_list group = list_of(step.axes);
    const bool reduces = step.kind == collective::reduce_scatter;
    buffers after;
    for (int device = 0; device < mesh_.devices(); ++device) {
      const part mine(mesh_, shape_, step.after, device);
      buffer& target = after.emplace_back(new_local.elements(), 0);
      buffer writes(target.size(), 0);
      int terms = 0;
      const auto receive = [&](const piece& p) {
        REQUIRE(mesh_.member(device, group, mesh_.position(p.source, group)) == p.source);
        if (step.kind == collective::local_slice) REQUIRE(p.source == device);
        if (reduces) REQUIRE(mesh_.position(p.source, group) == terms++);
        for_each_index(shape_.rank, p.extent, [&](const std::int64_t* index) {
          const std::size_t at = offset_of(new_local, index, p.target_start);
          target[at] += before[static_cast<std::size_t>(p.source)][offset_of(old_local, index, p.source_start)];
          ++writes[at];
          if (p.source != device) ++sent_[static_cast<std::size_t>(p.source)];
        });
      };
      if (reduces) {
        for_each_term(mesh_, shape_, from, step.after, step.axes, device, receive);
      } else if (step.kind == collective::exchange) {
        for_each_exchanged_piece(mesh_, shape_, from, step.after, step.axes, device, receive);
      } else {
        for_each_piece(mesh_, shape_, from, step.after, step.axes, device, receive);
      }
      // Exactly the real elements, each once (each term once).
      buffer once(target.size(), 0);
      for_each_index(shape_.rank, mine.extent, [&](const std::int64_t* index) {
        once[offset_of(new_local, index, at_zero)] = reduces ? mesh_.parts(group) : 1;
      });
      REQUIRE(writes == once);
    }
    return after;
  }

  buffers all_reduce(const buffers& before, const sharding& from, const reshard_step& step) {
    const axis_list group = list_of(step.axes);
    buffers after;
    for (int device = 0; device < mesh_.devices(); ++device) {
      buffer& target = after.emplace_back(before[static_cast<std::size_t>(device)].size(), 0);
      for (int k = 0; k < mesh_.parts(group); ++k) {
        const buffer& term = before[static_cast<std::size_t>(mesh_.member(device, group, k))];
        for (std::size_t i = 0; i < target.size(); ++i) target[i] += term[i];
      }
      std::int64_t real = 1;
      for (int d = 0; d < shape_.rank; ++d) real *= part(mesh_, shape_, from, device).extent[d];
      if (mesh_.position(device, group) == 0) {
        sent_[static_cast<std::size_t>(device)] = 2 * real * (mesh_.parts(group) - 1);
      }
    }
    return after;
  }

  mesh_shape mesh_;
  extents shape_;
  buffer tensor_;
  std::vector<std::int64_t> sent_;  // elements, by device
  std::mt19937 random_{20210504};
};

/// Executes the plans of all pairs of placements, or of each `every`th.
void simulate_all_pairs(const mesh_shape& mesh, const extents& shape, std::size_t every = 1) {
  const std::vector<sharding> layouts = all_layouts(mesh, shape.rank);
  simulation devices(mesh, shape);
  std::size_t count = 0;
  for (const sharding& from : layouts) {
    for (const sharding& to : layouts) {
      if (!reachable(from, to) || count++ % every != 0) continue;
      devices.run(from, to);
    }
  }
}

TEST_CASE("executed plans move exactly the real elements to where they belong", "[reshard][transfer]") {
  for (const auto& mesh : {mesh_of({2}), mesh_of({4}), mesh_of({2, 2}), mesh_of({2, 3})}) {
    for (const auto& shape : {shape_of({12}), shape_of({7}), shape_of({12, 12}), shape_of({7, 5}), shape_of({1, 12}),
                              shape_of({12, 12, 12}), shape_of({3, 5, 2})}) {
      simulate_all_pairs(mesh, shape);
    }
  }
}

TEST_CASE("executed plans are right on eight devices in three axes", "[reshard][transfer]") {
  simulate_all_pairs(mesh_of({2, 2, 2}), shape_of({8, 8}));
  simulate_all_pairs(mesh_of({2, 2, 2}), shape_of({7, 5}));
  simulate_all_pairs(mesh_of({2, 2, 2}), shape_of({8, 8, 8}), 7);
  simulate_all_pairs(mesh_of({2, 3, 2}), shape_of({13, 5, 7}), 23);
}

TEST_CASE("axes of one device are no obstacle", "[reshard][transfer]") {
  simulate_all_pairs(mesh_of({1, 2}), shape_of({4, 3}));
  simulate_all_pairs(mesh_of({2, 1, 2}), shape_of({4, 5}), 3);
}

TEST_CASE("plans on meshes of five and six axes arrive too", "[reshard][transfer]") {
  std::mt19937 random(15207);
  for (const auto& mesh : {mesh_of({2, 2, 2, 2, 2}), mesh_of({2, 2, 2, 2, 2, 2})}) {
    for (const auto& shape : {shape_of({8, 64, 4}), shape_of({9, 35, 5})}) {
      simulation devices(mesh, shape);
      for (int trial = 0; trial < 15; ++trial) {
        sharding from = sharding::whole(3);
        sharding to = from;
        for (int axis = 0; axis < mesh.rank; ++axis) {
          const int before = static_cast<int>(random() % 5);
          const int after = trial % 3 == 0 || before == 4 ? static_cast<int>(random() % 4) : before;
          if (before < 3) from.dim[before] = from.dim[before].with(axis);
          if (before == 4) from.unreduced |= bit_of(axis);
          if (after < 3) to.dim[after] = to.dim[after].with(axis);
        }
        devices.run(from, to);
      }
    }
  }
}

TEST_CASE("copies of the same data share the work of sending it", "[reshard][transfer]") {
  const auto mesh = mesh_of({4, 4});
  const auto shape = shape_of({16});
  sharding from = sharding::whole(1);
  sharding to = from;
  from.dim[0] = axis_list(0);
  to.dim[0] = axis_list(1);
  const reshard_plan plan = plan_reshard(mesh, shape, dtype::f32, from, to);
  REQUIRE(plan.count == 1);
  for (int device = 0; device < 16; ++device) {
    // Devices on the diagonal hold what they need already; the others send one buffer each.
    const bool diagonal = device % 5 == 0;
    CHECK(sent_bytes(mesh, shape, dtype::f32, plan.step[0], from, device) == (diagonal ? 0 : 16));
  }
}

}  // namespace
