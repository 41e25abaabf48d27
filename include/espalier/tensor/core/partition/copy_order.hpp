// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/partition/scheduled_program.hpp>
#include <espalier/tensor/core/partition/shared_buffers.hpp>

namespace espalier::detail {

/// Orders the copies that happen at once.
///
/// The carries of a loop change hands at once, and so do the results of a program that take arguments' places: what
/// one overwrites may be what another one reads. Readers come first; where they form a cycle, one value is saved.
class copy_order {
 public:
  constexpr copy_order(const scheduled_program& program, const shared_buffers& buffers)
      : saved(program.g.size, false), g_(program.g), s_(program.s), buffers_(buffers) {}

  constexpr void run() {
    unread_.resize(g_.size, 0);
    writer_.resize(g_.size, -1);
    // Copies of one launch form a group; loops nest, so a group is found by its launch.
    list<int> head(s_.launch_count, -1);
    list<int> next(g_.size, -1);
    for (int id = g_.size - 1; id >= 0; --id) {
      if (!buffers_.copied[id] || structure_of(g_[id]) == structure::loop_stack) continue;
      int& first = head[s_.launch_of[id]];
      next[id] = first;
      first = id;
    }
    for (int u = 0; u < s_.launch_count; ++u) {
      if (head[u] >= 0) order_group(head[u], next);
    }
  }

  /// See `memory_outline`.
  list<int> copies;
  list<bool> saved;

 private:
  [[nodiscard]] constexpr int copied_from(int id) const {
    return g_[id].operand[structure_of(g_[id]) == structure::result ? 0 : 1];
  }
  /// The buffer that a copy overwrites, by its root; -1 for a result that takes no argument's place.
  [[nodiscard]] constexpr int overwritten(int id) const {
    if (structure_of(g_[id]) != structure::result) return buffers_.root[id];
    return g_[id].operand_count == 2 ? g_[id].operand[1] : -1;
  }

  constexpr void order_group(int head, const list<int>& next) {
    for (int id = head; id >= 0; id = next[id]) {
      unread_[buffers_.root[copied_from(id)]] = 0;
      if (overwritten(id) >= 0) unread_[overwritten(id)] = 0;
    }
    for (int id = head; id >= 0; id = next[id]) {
      ++unread_[buffers_.root[copied_from(id)]];
      if (overwritten(id) >= 0) writer_[overwritten(id)] = id;
    }
    for (int id = head; id >= 0; id = next[id]) try_copy(id);
    // Whatever is left waits for a cycle, or is part of one.
    for (int id = head; id >= 0; id = next[id]) {
      if (overwritten(id) < 0 || writer_[overwritten(id)] != id) continue;
      saved[id] = true;
      was_read(buffers_.root[copied_from(id)]);
    }
  }
  /// Copies if nothing reads any more what is overwritten, and then those that waited for this one to read.
  constexpr void try_copy(int id) {
    while (id >= 0) {
      const int target = overwritten(id);
      if (target >= 0) {
        if (writer_[target] != id || unread_[target] > 0) return;
        writer_[target] = -1;
      }
      copies.push_back(id);
      if (saved[id]) return;
      const int source = buffers_.root[copied_from(id)];
      id = --unread_[source] == 0 ? writer_[source] : -1;
    }
  }
  constexpr void was_read(int root) {
    if (--unread_[root] == 0 && writer_[root] >= 0) try_copy(writer_[root]);
  }

  graph_view g_;
  schedule_view s_;
  const shared_buffers& buffers_;
  /// The number of copies of a group that still have to read the buffer of a root, and the one that overwrites it.
  list<int> unread_;
  list<int> writer_;
};

}  // namespace espalier::detail
