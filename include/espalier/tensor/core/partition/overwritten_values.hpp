// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/region.hpp>
#include <espalier/tensor/core/partition/scheduled_program.hpp>
#include <espalier/tensor/core/partition/shared_buffers.hpp>

namespace espalier::detail {

/// Values that are overwritten because nothing reads them again. Only programs with operators that overwrite an
/// operand, or with branches, have any; in those with loops, a carry may be (partition/carried_in_place.hpp).
class overwritten_values {
 public:
  constexpr overwritten_values(const scheduled_program& program, const shared_buffers& buffers)
      : g_(program.g), s_(program.s), buffers_(buffers) {
    for (const region& one : program.regions) {
      overwrites_ = overwrites_ || one.kind == region_kind::branch;
      has_carries_ = has_carries_ || !one.parameters.empty();
    }
    for (int id = 0; id < g_.size; ++id) overwrites_ = overwrites_ || g_[id].op->facts.overwrites >= 0;
    if (overwrites_ || has_carries_) find(program);
  }

  /// The last launch that reads a value itself, or repeated or moved; -1 if none does.
  [[nodiscard]] constexpr int last_read(int value) const { return last_read_[value]; }

  /// Whether a carry is kept where its initial value is. One carry of a loop at most takes the memory of what it starts
  /// from.
  [[nodiscard]] constexpr bool starts_in_place(int carry) const {
    const instruction& i = g_[carry];
    return takes_over(i.operand[0], g_[i.region].region, s_.launch_of[i.region]) &&
           home_[buffers_.root[i.operand[0]]] != i.region;
  }
  /// Whether instruction `id` may be computed in the operand that its operator overwrites.
  [[nodiscard]] constexpr bool is_last_reader(int id) const {
    const instruction& i = g_[id];
    const int overwritten = g_.operand_at(i, i.op->facts.overwrites);
    if (!takes_over(overwritten, i.region, s_.launch_of[id])) return false;
    for (int k = 0; k < i.operand_count; ++k) {
      if (k != i.op->facts.overwrites && buffers_.root[g_.operand_at(i, k)] == buffers_.root[overwritten]) return false;
    }
    return true;
  }
  /// The buffer of the root may change in the iterations of this loop.
  constexpr void changes_in(int root, int region) { home_[root] = region; }

 private:
  constexpr void find(const scheduled_program& program) {
    last_read_.resize(g_.size, -1);
    home_.resize(g_.size, -1);
    donated_.resize(g_.size, false);
    for (int id = 0; id < g_.size; ++id) {
      const instruction& i = g_[id];
      program.for_each_read(id, [&](int value, int /*reader*/, int at) {
        // A carry that is passed on is named, not read.
        if (structure_of(i) == structure::region_yield && value == parameter_of(i) && value != yielded_by(i)) return;
        for (;; value = g_[value].operand[0]) {
          if (last_read_[value] < at) last_read_[value] = at;
          const bool is_shifted = g_[value].op->shifts != nullptr && s_.launch_of[value] < 0;
          if (g_[value].op->fuse != fusion::broadcast && !is_shifted) return;
        }
      });
      home_[id] = i.region;
      if (structure_of(i) == structure::result && i.operand_count == 2) donated_[i.operand[1]] = true;
    }
  }

  /// Whether the buffer of `value` may hold something else from launch `at` on, in the loop `loop`: nothing in it is
  /// read later, neither in this iteration nor in the next one, and it is none that the caller keeps.
  constexpr bool takes_over(int value, int region, int at) const {
    if (!overwrites_) return false;
    const int root = buffers_.root[value];
    if (root < 0 || bytes_of(g_[root]) != bytes_of(g_[value])) return false;
    if (structure_of(g_[root]) == structure::argument && !donated_[root]) return false;
    int home = home_[root];
    while (home >= 0 && home != region) home = g_[home].region;
    if (home != region || last_read_[root] > at) return false;
    for (int other = buffers_.sharer[root]; other >= 0; other = buffers_.next_sharer[other]) {
      if (last_read_[other] > at) return false;
    }
    return true;
  }

  graph_view g_;
  schedule_view s_;
  const shared_buffers& buffers_;
  bool overwrites_ = false;
  bool has_carries_ = false;
  /// The last launch that reads a value; the loop whose iterations may change the contents of its buffer; whether it is
  /// an argument whose place a result takes.
  list<int> last_read_;
  list<int> home_;
  list<bool> donated_;
};

}  // namespace espalier::detail
