// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/ops/ops.hpp>
#include <espalier/tensor/core/partition/boxes.hpp>
#include <espalier/tensor/core/partition/shared_buffers.hpp>

#include <cstdint>

namespace espalier::detail {

/// Room for halos: an exchange of windows brings rows that are kept directly before and after those that a device has,
/// so that these are not copied. Only programs with such exchanges have any.
/// @post results are those of a program without room around its values
class halo_room {
 public:
  constexpr halo_room(const mesh_shape& mesh, graph_view g, shared_buffers& buffers)
      : mesh_(mesh), g_(g), buffers_(buffers) {}

  /// Finds the exchanges whose results may be seen around their operands.
  constexpr void find() {
    for (int id = 0; id < g_.size && around_.empty(); ++id) {
      if (g_[id].op->facts.moves >= 0 && reads_windows(g_[id])) around_.resize(g_.size);
    }
    if (around_.empty()) return;
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      if (i.op->facts.moves >= 0 && reads_windows(i)) {
        const std::int64_t bytes = size_of(i.type);
        const room_around room = room_around_operand(mesh_, g_, id);
        if (room.before >= 0) around_[id].room = {aligned(room.before * bytes), room.after * bytes};
      }
      // Another reader expects a buffer that starts where the value does.
      for (int k = 0; k < i.operand_count; ++k) {
        if (i.op->windows == nullptr) around_[g_.operand_at(i, k)].room.before = -1;
      }
    }
    for (int id = 0; id < g_.size; ++id) {
      if (around_[id].room.before >= 0) around_[g_[id].operand[0]].is_wanted = true;
    }
  }
  [[nodiscard]] constexpr bool wants_room(int id) const { return !around_.empty() && around_[id].is_wanted; }
  [[nodiscard]] constexpr bool is_enlarged(int root) const { return !around_.empty() && around_[root].is_enlarged; }
  /// The bytes of the buffer of `root`.
  [[nodiscard]] constexpr std::int64_t room_of(int root) const {
    const std::int64_t own = bytes_of(g_[root]);
    if (!is_enlarged(root)) return aligned(own);
    const std::int64_t one = around_[root].before + aligned(own + around_[root].after);
    return around_[root].alternates_in >= 0 ? 2 * one : one;
  }

  /// Whether exchange `id` can leave its operand where it is. Not if something relies on the bytes after the real rows.
  [[nodiscard]] constexpr bool may_lie_around(int id) const {
    if (around_.empty() || around_[id].room.before < 0) return false;
    const int operand = g_[id].operand[0];
    const int root = buffers_.root[operand];
    if (root < 0 || bytes_of(g_[root]) != bytes_of(g_[operand]) || g_[operand].op == &ops::mask) return false;
    const location& where = buffers_.within[operand];
    const bool is_plain = where.space == memory_space::arena && where.region < 0 && !where.is_displaced;
    const structure role = structure_of(g_[root]);
    if (!is_plain || (role != structure::none && role != structure::region_parameter)) return false;
    return !is_enlarged(root) || brings_the_same(id, around_[root].exchange);
  }
  /// Leaves the operand of exchange `id` where it is.
  constexpr void lie_around(int id) {
    buffers_.share(id, g_[id].operand[0]);
    buffers_.within[id].is_displaced = true;
    surroundings& kept = around_[buffers_.root[id]];
    if (!kept.is_enlarged) kept.exchange = id;
    kept.is_enlarged = true;
    kept.before = larger_of(kept.before, around_[id].room.before);
    kept.after = larger_of(kept.after, around_[id].room.after);
  }

  /// Whether a carry that keeps its neighbours' rows around it and the value that takes its place can have a buffer of
  /// two halves, and change halves in every iteration: then nothing is copied.
  [[nodiscard]] constexpr bool may_alternate(int next) const {
    const int carry = parameter_of(g_[next]);
    const int value = yielded_by(g_[next]);
    if (!is_enlarged(carry) || around_[carry].alternates_in >= 0) return false;
    const int region = g_[carry].region;
    const bool is_own = buffers_.root[carry] == carry && buffers_.root[value] == value && carry != value;
    if (!is_own || g_[value].region != region || !alternates(region)) return false;
    if (structure_of(g_[value]) != structure::none || bytes_of(g_[value]) != bytes_of(g_[carry])) return false;
    if (buffers_.within[carry].space != memory_space::arena || buffers_.within[value].space != memory_space::arena) {
      return false;
    }
    for (const int root : {carry, value}) {
      if (buffers_.within[root].region >= 0) return false;
      for (int other = buffers_.sharer[root]; other >= 0; other = buffers_.next_sharer[other]) {
        if (buffers_.within[other].region >= 0) return false;
      }
    }
    return true;
  }
  /// Gives a carry and the value that takes its place one buffer of two halves.
  constexpr void alternate(int next) {
    const int carry = parameter_of(g_[next]);
    const int value = yielded_by(g_[next]);
    around_[carry].alternates_in = g_[carry].region;
    around_[carry].before = larger_of(around_[carry].before, around_[value].before);
    around_[carry].after = larger_of(around_[carry].after, around_[value].after);
    int other = buffers_.sharer[value];
    buffers_.sharer[value] = -1;
    buffers_.within[value].phase = 1;
    buffers_.follow(value, carry);
    while (other >= 0) {
      const int following = buffers_.next_sharer[other];
      buffers_.within[other].phase = 1;
      buffers_.follow(other, carry);
      other = following;
    }
  }
  /// Places all values that share an enlarged buffer in it, once they are known.
  constexpr void place() {
    if (around_.empty()) return;
    for (int id = 0; id < g_.size; ++id) {
      const int root = buffers_.root[id];
      if (root < 0 || !around_[root].is_enlarged || structure_of(g_[id]) == structure::result) continue;
      location& where = buffers_.within[id];
      where.offset += around_[root].before;
      const int region = around_[root].alternates_in;
      if (region < 0) continue;
      const std::int64_t half = room_of(root) / 2;
      int inside = g_[id].region;
      while (inside >= 0 && inside != region) inside = g_[inside].region;
      if (inside == region) {
        where.region = region;
        where.stride = half;
        where.alternates = true;
      } else {
        // A reader after the loop finds the value where the last iteration has put it.
        where.phase = 0;
        const auto begin = attributes_of<region_attributes>(g_[region]);
        const std::int64_t last = begin.reverse ? 0 : begin.iterations - 1;
        where.offset += (last + 1) % 2 * half;
      }
    }
  }

 private:
  /// Where the last value of a carry is after the loop depends on the number of iterations: it has to be known.
  [[nodiscard]] constexpr bool alternates(int region) const {
    const auto begin = attributes_of<region_attributes>(g_[region]);
    return is_counted(begin) && begin.iterations > 1;
  }

  /// A value as exchanges of windows see it.
  struct surroundings {
    /// The room in bytes of an exchange whose result may be seen around its operand; before < 0 for all other values.
    room_around room{};
    /// Such an exchange reads the value.
    bool is_wanted = false;
    /// The room that the buffer of a root keeps, and the first exchange that uses it.
    std::int64_t before = 0;
    std::int64_t after = 0;
    bool is_enlarged = false;
    int exchange = -1;
    /// The loop of a carry that changes places with the next value, if the value is the root of one.
    int alternates_in = -1;
  };

  /// Whether what two exchanges bring next to a value is the same wherever they both bring something: rows of one
  /// dimension of one tensor. A shard of a single row has as many neighbours as it has dimensions.
  [[nodiscard]] constexpr bool brings_the_same(int a, int b) const {
    const int from_a = g_[a].operand[0];
    const int from_b = g_[b].operand[0];
    return rows_around(mesh_, g_, a) == rows_around(mesh_, g_, b) && g_[from_a].shape == g_[from_b].shape &&
           g_.annotations[g_[from_a].annotation].shape == g_.annotations[g_[from_b].annotation].shape;
  }

  const mesh_shape& mesh_;
  graph_view g_;
  shared_buffers& buffers_;
  list<surroundings> around_;
};

}  // namespace espalier::detail
