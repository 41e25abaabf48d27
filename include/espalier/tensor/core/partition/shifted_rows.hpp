// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>
#include <espalier/tensor/core/ops/ops.hpp>

#include <cstdint>

namespace espalier {

/// An operand that a fused chain reads where it is in memory, some rows or columns further, with zeros where it has no
/// elements: what slices, pads and rolls of step 1 have made of it is never computed. How far these go on a device
/// follows from its boxes (kernels/shifted_rows.hpp).
struct shifted_rows {
  /// So many ops at most are read through; those before them are computed.
  static constexpr int most = 4;

  /// The value in memory.
  int source = -1;
  /// The ops, the last one first, and what each does.
  int count = 0;
  int op[most]{};
  element_shift shift[most]{};
};

namespace detail {

/// Which values fused chains see only through shifts of their elements.
class shift_finder {
 public:
  constexpr explicit shift_finder(graph_view g) : g_(g) {
    for (int id = 0; id < g.size; ++id) {
      const instruction& i = g[id];
      if (i.op->facts.overwrites >= 0) overwritten_.push_back(in_memory_of(g.operand_at(i, i.op->facts.overwrites)));
    }
  }

  /// Whether readers may read the operand of `id` instead. Not a small part of something large, which would live longer
  /// for it, nor what another op overwrites.
  [[nodiscard]] constexpr bool may_shift(int id) const {
    const instruction& i = g_[id];
    if (i.op->shifts == nullptr || shift_of(id).dim < 0) return false;
    const std::int64_t elements = i.shape.elements();
    if (elements == 0 || g_.operand(id, 0).shape.elements() > 2 * elements) return false;
    const int memory = in_memory_of(i.operand[0]);
    for (const int other : overwritten_) {
      if (other == memory) return false;
    }
    return true;
  }
  /// Whether chains that read through `id` may also read through its operand, a shift, too: not too many of them, and
  /// none around the same circle. Asked of readers before what they read.
  constexpr bool goes_on(int id) {
    const int operand = g_[id].operand[0];
    const element_shift mine = shift_of(id);
    for (int below = operand; g_[below].op->shifts != nullptr; below = g_[below].operand[0]) {
      const element_shift theirs = shift_of(below);
      if (theirs.dim < 0) break;
      if (theirs.dim == mine.dim && (theirs.wraps || mine.wraps)) return false;
    }
    above_.resize(g_.size, 0);
    if (above_[operand] < above_[id] + 1) above_[operand] = above_[id] + 1;
    return above_[operand] < shifted_rows::most;
  }

 private:
  [[nodiscard]] constexpr element_shift shift_of(int id) const { return g_[id].op->shifts(g_.view(id)); }
  [[nodiscard]] constexpr int in_memory_of(int id) const {
    while (g_[id].op->facts.shares_operand) id = g_[id].operand[0];
    return id;
  }

  graph_view g_;
  list<int> overwritten_;
  /// The shifts above an instruction that chains read through.
  list<int> above_;
};

}  // namespace detail

}  // namespace espalier
