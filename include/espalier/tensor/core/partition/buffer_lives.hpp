// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/halo_room.hpp>
#include <espalier/tensor/core/partition/scheduled_program.hpp>
#include <espalier/tensor/core/partition/shared_buffers.hpp>

namespace espalier::detail {

/// Finds the launches during which each buffer is needed, and the results that are computed in the caller's memory.
class buffer_lives {
 public:
  constexpr buffer_lives(const scheduled_program& program, shared_buffers& buffers, const halo_room& halos)
      : program_(program),
        g_(program.g),
        s_(program.s),
        buffers_(buffers),
        halos_(halos),
        first_(program.g.size, -1),
        last_(program.g.size, -1) {}

  [[nodiscard]] constexpr int first(int root) const { return first_[root]; }
  [[nodiscard]] constexpr int last(int root) const { return last_[root]; }

  constexpr void find_lives() {
    for (const region& one : program_.regions) {
      for (const int id : one.collected) {
        live(buffers_.root[id], program_.begins_at(one.first));
        live(buffers_.root[id], program_.ends_at(one.first));
      }
      // A parameter's buffer lives until the region ends: there the value that is passed on is copied into it.
      for (const int id : one.parameters) live(buffers_.root[id], program_.begins_at(one.first));
    }
    for (int id = 0; id < g_.size; ++id) {
      const int at = s_.launch_of[id];
      if (at >= 0 && buffers_.root[id] >= 0) use(id, id, at);
      program_.for_each_read(id, [this](int value, int reader, int launch) { read(value, reader, launch); });
    }
  }

  /// A result is computed where the caller wants it, when its value has a buffer of its own that nothing else needs
  /// to be elsewhere; a donated argument's memory may be taken once the argument has been read for the last time.
  constexpr void place_results() {
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      if (structure_of(i) != structure::result) continue;
      location target;
      target.space = memory_space::result;
      target.index = attributes_of<border_attributes>(i).number;
      if (i.operand_count == 2) {
        target.space = memory_space::argument;
        target.index = attributes_of<border_attributes>(g_[i.operand[1]]).number;
      }
      buffers_.root[id] = id;
      buffers_.within[id] = target;
      const int root = buffers_.root[i.operand[0]];
      if (i.operand_count == 2 && root == i.operand[1]) continue;  // the argument as it is, or reshaped
      const bool plain = root >= 0 && buffers_.is_plain(root) && !halos_.is_enlarged(root) && g_[root].region < 0 &&
                         bytes_of(g_[root]) == bytes_of(i);
      if (!plain || (i.operand_count == 2 && !may_overwrite(root, i.operand[1]))) {
        buffers_.copied[id] = true;
        continue;
      }
      for (int other = buffers_.sharer[root]; other >= 0; other = buffers_.next_sharer[other]) {
        buffers_.within[other].space = target.space;
        buffers_.within[other].index = target.index;
      }
      buffers_.within[root].space = target.space;
      buffers_.within[root].index = target.index;
    }
  }

 private:
  constexpr void live(int root, int at) {
    if (first_[root] < 0 || at < first_[root]) first_[root] = at;
    if (at > last_[root]) last_[root] = at;
  }

  /// A use inside a loop that the buffer's value comes from outside of keeps it until the loop ends.
  constexpr void use(int value, int reader, int at) {
    const int root = buffers_.root[value];
    if (root < 0) return;
    live(root, at);
    // The launches of a row region take turns.
    if (s_.launches[at].region_end >= 0) {
      live(root, s_.launches[at].region_end);
      live(root, first_of_region(at));
    }
    for (int region = g_[reader].region; region >= 0 && region != g_[root].region; region = g_[region].region) {
      live(root, program_.ends_at(region));
    }
  }

  /// Reads of virtual values count for the readers of these, wherever these are.
  constexpr void read(int value, int reader, int at) {
    if (buffers_.root[value] >= 0) {
      use(value, reader, at);
      return;
    }
    const instruction& i = g_[value];
    if (is_read_through(i)) read(i.operand[0], reader, at);
  }

  [[nodiscard]] constexpr int first_of_region(int at) const {
    while (at > 0 && s_.launches[at - 1].region_end == s_.launches[at].region_end) --at;
    return at;
  }

  /// Whether a reader of `value` reads the argument, though elsewhere than at the same place.
  [[nodiscard]] constexpr bool reads_through(int value, int argument) const {
    if (buffers_.root[value] >= 0 || !is_read_through(g_[value])) return false;
    while (buffers_.root[value] < 0 && is_read_through(g_[value])) value = g_[value].operand[0];
    return buffers_.root[value] == argument;
  }

  /// Whether the buffer of `root` may be the argument's: all reads of the argument happen before it is first written,
  /// or element by element in the same fused chain, before the write.
  [[nodiscard]] constexpr bool may_overwrite(int root, int argument) const {
    const int written = first_[root];
    if (last_[argument] < written) return true;
    if (last_[argument] > written || !s_.launches[written].fused) return false;
    const launch& u = s_.launches[written];
    if (u.reads_again) return false;
    bool overwritten = false;
    for (int n = u.first; n < u.first + u.count; ++n) {
      const int id = s_.order[n];
      for (int k = 0; k < g_[id].operand_count; ++k) {
        const int o = g_.operand_at(g_[id], k);
        if (reads_through(o, argument)) return false;
        if (o == argument && overwritten) return false;
        if (o != argument && buffers_.root[o] == argument) return false;
      }
      if (buffers_.root[id] == root) overwritten = true;
    }
    return g_[root].shape == g_[argument].shape;
  }

  const scheduled_program& program_;
  graph_view g_;
  schedule_view s_;
  shared_buffers& buffers_;
  const halo_room& halos_;
  /// The first and the last launch that needs the buffer of a root.
  list<int> first_;
  list<int> last_;
};

}  // namespace espalier::detail
