// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
// processors: 1
// optimised: yes
// together: speed

#include "reshard_layouts.hpp"

#include <espalier/tensor/core/partition/mesh_transfer.hpp>
#include <espalier/tensor/run/execute/transfer_tables.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace reshard_checks;

constexpr std::int64_t padding = -1;

/// Returns the buffer of a box that holds its part of the tensor whose element number k is k.
std::vector<std::int64_t> filled(const held_box& one, const extents& shape, bool with_elements) {
  std::vector<std::int64_t> buffer(static_cast<std::size_t>(one.buffer.elements()), padding);
  for (std::int64_t at = 0; with_elements && at < one.buffer.elements(); ++at) {
    std::int64_t element = 0;
    bool is_inside = true;
    for (int d = 0; d < shape.rank; ++d) {
      const std::int64_t index = at / stride_of(one.buffer, d) % one.buffer[d];
      is_inside = is_inside && index < one.box.dim[d].size;
      element += (one.box.dim[d].start + index) * stride_of(shape, d);
    }
    if (is_inside) buffer[static_cast<std::size_t>(at)] = element;
  }
  return buffer;
}

/// The elements that a box has.
std::set<std::int64_t> elements_in(const held_box& one, const extents& shape) {
  const std::vector<std::int64_t> all = filled(one, shape, true);
  std::set<std::int64_t> found(all.begin(), all.end());
  found.erase(padding);
  return found;
}

/// Moves a tensor, and checks that all is there afterwards, that each rank has received what it lacked and that only
/// once, and how much each has sent. An empty text: all is well.
std::string fault_in(const std::vector<held_box>& holders, const std::vector<held_box>& readers, const extents& shape) {
  std::vector<std::vector<std::int64_t>> source, target, wanted;
  for (const held_box& one : holders) source.push_back(filled(one, shape, true));
  for (const held_box& one : readers) target.push_back(filled(one, shape, false));
  for (const held_box& one : readers) wanted.push_back(filled(one, shape, true));
  std::map<std::size_t, std::int64_t> received;  // from other ranks, by reader
  std::map<std::size_t, std::int64_t> sent;      // by holder
  std::set<std::pair<std::size_t, std::size_t>> pairs;
  for (const moved_piece& move : moved_pieces(holders, readers, shape.rank)) {
    if (!pairs.insert({move.from, move.to}).second) return "two pieces between one holder and one reader";
    const comm::block box = espalier::detail::block_of(move.box, holders[move.from].buffer, readers[move.to].buffer);
    if (box.empty()) return "an empty piece";
    std::vector<std::int64_t>& to = target[move.to];
    comm::detail::for_each_run(box, 0, box.elements(), [&](std::int64_t s, std::int64_t t, std::int64_t length) {
      for (std::int64_t k = 0; k < length; ++k) {
        std::int64_t& element = to.at(static_cast<std::size_t>(t + k * box.target_stride[comm::block_rank - 1]));
        // An element that came twice is wrong afterwards.
        element = element != padding
                      ? -2
                      : source[move.from].at(static_cast<std::size_t>(s + k * box.source_stride[comm::block_rank - 1]));
      }
    });
    if (holders[move.from].rank == readers[move.to].rank) continue;
    received[move.to] += box.elements();
    sent[move.from] += box.elements();
  }
  if (target != wanted) return "a reader has not what it needs";
  for (std::size_t r = 0; r < readers.size(); ++r) {
    std::set<std::int64_t> lacking = elements_in(readers[r], shape);
    for (const held_box& one : holders)
      if (one.rank == readers[r].rank)
        for (const std::int64_t element : elements_in(one, shape)) lacking.erase(element);
    if (received[r] != static_cast<std::int64_t>(lacking.size()))
      return "reader " + std::to_string(r) + " received " + std::to_string(received[r]) + ", but lacked " +
             std::to_string(lacking.size());
  }
  // Copies share the work: by box, its holders.
  std::map<std::set<std::int64_t>, std::vector<std::size_t>> copies;
  for (std::size_t h = 0; h < holders.size(); ++h) copies[elements_in(holders[h], shape)].push_back(h);
  for (const auto& [elements, ranks] : copies) {
    std::int64_t total = 0;
    std::int64_t most = 0;
    for (const std::size_t h : ranks) {
      total += sent[h];
      most = std::max(most, sent[h]);
    }
    const std::int64_t share = ceil_div(total, static_cast<std::int64_t>(ranks.size()));
    // At either end half a layer of a piece, or what is not cut.
    std::int64_t layer = 2 * espalier::detail::copy_shares::least;
    for (int d = 0; d < shape.rank; ++d) layer = std::max(layer, shape.elements() / shape[d]);
    if (most > share + layer)
      return "a holder sends " + std::to_string(most) + " of a share of " + std::to_string(share);
  }
  return {};
}

std::vector<held_box> on_mesh(const mesh_shape& mesh, const extents& shape, const sharding& placement, int first_rank) {
  std::vector<held_box> all;
  for (int device = 0; device < mesh.devices(); ++device)
    all.push_back(held_shard(mesh, {shape, placement}, device, first_rank + device));
  return all;
}

std::vector<sharding> layouts_on(const mesh_shape& mesh, int rank) {
  std::vector<sharding> all = all_layouts(mesh, rank);
  std::erase_if(all, [](const sharding& one) { return one.unreduced != 0; });
  return all;
}

}  // namespace

TEST_CASE("A tensor goes from any layout on one mesh to any on another", "[mesh_transfer]") {
  const std::vector<std::vector<int>> meshes{{1}, {2}, {3}, {4}, {1, 2}, {2, 1}, {2, 2}, {2, 3}};
  const extents shapes[]{shape_of({5, 3}), shape_of({4, 6}), shape_of({1, 7}), shape_of({3, 2, 4}), shape_of({21, 30})};
  int checked = 0;
  for (const auto& first : meshes)
    for (const auto& second : meshes) {
      const mesh_shape one = mesh_of(first);
      const mesh_shape other = mesh_of(second);
      for (const extents& shape : shapes)
        for (const sharding& from : layouts_on(one, shape.rank))
          for (const sharding& to : layouts_on(other, shape.rank)) {
            // Ranks of their own, some in common, and the same ones.
            for (const int begin : {one.devices(), one.devices() / 2, 0}) {
              const std::string fault = fault_in(on_mesh(one, shape, from, 0), on_mesh(other, shape, to, begin), shape);
              if (fault.empty()) continue;
              CAPTURE(first, second, begin, shape.rank, shape[0], shape[1]);
              FAIL(fault);
            }
            ++checked;
          }
    }
  CHECK(checked > 10000);
}

TEST_CASE("Two replicas give their rows to three", "[mesh_transfer]") {
  const mesh_shape two = mesh_of({2});
  const mesh_shape four = mesh_of({2, 2});
  const extents whole = shape_of({11, 4, 6});
  const auto rows = [&](const mesh_shape& mesh, const std::vector<int>& counts, sharding placement, int first_rank) {
    std::vector<held_box> all;
    int row = 0;
    for (const int count : counts) {
      extents shape = whole;
      shape[0] = count;
      for (held_box one : on_mesh(mesh, shape, placement, first_rank)) {
        one.box.dim[0].start += row;
        all.push_back(one);
      }
      first_rank += mesh.devices();
      row += count;
    }
    return all;
  };
  sharding features = sharding::whole(3);
  features.dim[2] = axis_list(0);
  sharding both = sharding::whole(3);
  both.dim[0] = axis_list(0);
  both.dim[1] = axis_list(1);
  for (const sharding& from : {sharding::whole(3), features})
    for (const sharding& to : {sharding::whole(3), features, both}) {
      CHECK(fault_in(rows(two, {5, 6}, from, 0), rows(four, {2, 4, 5}, to, 4), whole).empty());
      CHECK(fault_in(rows(four, {2, 4, 5}, to, 4), rows(two, {5, 6}, from, 0), whole).empty());
    }
}

TEST_CASE("Copies share what they send", "[mesh_transfer]") {
  const extents shape = shape_of({64, 32});
  const auto sent = [&](int holders, int readers) {
    std::map<std::size_t, std::int64_t> by_holder;
    for (const moved_piece& move : moved_pieces(on_mesh(mesh_of({holders}), shape, sharding::whole(2), 0),
                                                on_mesh(mesh_of({readers}), shape, sharding::whole(2), 4), 2))
      by_holder[move.from] += espalier::detail::elements_of(move.box, 2);
    return by_holder;
  };
  using counts = std::map<std::size_t, std::int64_t>;
  CHECK(sent(4, 1) == counts{{0, 16 * 32}, {1, 16 * 32}, {2, 16 * 32}, {3, 16 * 32}});
  CHECK(sent(4, 2) == counts{{0, 32 * 32}, {1, 32 * 32}, {2, 32 * 32}, {3, 32 * 32}});
  CHECK(sent(2, 3) == counts{{0, 3 * 32 * 32}, {1, 3 * 32 * 32}});
  CHECK(sent(2, 2) == counts{{0, 64 * 32}, {1, 64 * 32}});
}

TEST_CASE("What nobody holds is named", "[mesh_transfer]") {
  const extents shape = shape_of({4, 6});
  sharding halves = sharding::whole(2);
  halves.dim[0] = axis_list(0);
  std::vector<held_box> holders = on_mesh(mesh_of({2}), shape, halves, 0);
  holders.pop_back();
  CHECK_THROWS_WITH(moved_pieces(holders, on_mesh(mesh_of({1}), shape, sharding::whole(2), 7), 2),
                    Catch::Contains("of what rank 7 needs, 12 elements are held by nobody"));
}
