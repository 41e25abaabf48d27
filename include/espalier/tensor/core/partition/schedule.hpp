// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/graph/graph.hpp>

namespace espalier {

/// The limits for a fused chain that passes over its rows.
struct row_limits {
  /// Rows of so many columns at most are worked on whole; longer ones are cut.
  std::int64_t whole = 65536;
  /// Columns of the blocks that a longer row is cut into, at most as many: they stay in the first-level cache. A
  /// multiple of 16 (`is_long_row`).
  std::int64_t block = 1024;
};

/// A step of execution: one instruction with a kernel of its own, a chain of fused ones that passes together over
/// blocks of rows, or all results of the program. The end of a loop passes its carries on, too.
struct launch {
  /// Its instructions are order[first] ... order[first + count - 1].
  int first = 0;
  int count = 0;
  bool fused = false;
  /// True if its rows are cut into blocks of columns (`row_limits`): the chain passes over a row as often as what it
  /// reduces of the row is needed for the next pass.
  bool is_cut = false;
  /// True if it passes over a row more than once, so it may read an operand again after it has written a result.
  bool reads_again = false;
  /// The index space of a fused chain: rows (all dimensions but the last) by columns (the last).
  extents space;
  /// The last launch of the row region that it is part of (partition/row_regions.hpp), or -1; and for a product in one,
  /// which of its tensors has the scores: 0 and 1 are operands, 2 is the result.
  int region_end = -1;
  int scores = -1;
  /// What such a product reads instead of an operand that it scales where it reads it (partition/scaled_operands.hpp),
  /// or -1.
  int unscaled[2]{-1, -1};
};

/// The role of a value in a fused chain over `space`.
enum class fused_role : std::uint8_t {
  not_fusable,
  /// One element per row and column.
  wide,
  /// One element per row.
  narrow,
  /// One element per column, accumulated over rows: complete only when the chain is.
  accumulator,
};

struct schedule {
  detail::list<launch> launches;
  detail::list<int> order;
  /// The launch that computes an instruction, or -1 for constants, broadcasts and indices that their readers make for
  /// themselves.
  detail::list<int> launch_of;
  /// The role of each instruction in its fused chain.
  detail::list<fused_role> role;
  /// Whether the instruction's value has to be in memory: some reader is outside its chain.
  detail::list<bool> stored;
  /// Whether only a few rows of it exist at a time, for each thread: a value that a row region makes and reads.
  detail::list<bool> in_rows;
};

/// A schedule in arrays that outlive a constant evaluation: there is room for a launch and a place in the order for
/// every instruction.
template <int Instructions> struct fixed_schedule {
  static constexpr int room = Instructions > 0 ? Instructions : 1;
  launch launches[room]{};
  int launch_count = 0;
  int order[room]{};
  int ordered_count = 0;
  int launch_of[room]{};
  fused_role role[room]{};
  bool stored[room]{};
  bool in_rows[room]{};
};

/// A view of either kind of schedule, for later passes.
struct schedule_view {
  const launch* launches = nullptr;
  int launch_count = 0;
  const int* order = nullptr;
  const int* launch_of = nullptr;
  const fused_role* role = nullptr;
  const bool* stored = nullptr;
  /// Null if there are no row regions.
  const bool* in_rows = nullptr;

  /// Whether the value has a buffer.
  [[nodiscard]] constexpr bool has_buffer(int id) const { return stored[id] && (in_rows == nullptr || !in_rows[id]); }

  constexpr schedule_view(const schedule& source)  // NOLINT(google-explicit-constructor): a view
      : launches(source.launches.data()),
        launch_count(source.launches.size()),
        order(source.order.data()),
        launch_of(source.launch_of.data()),
        role(source.role.data()),
        stored(source.stored.data()),
        in_rows(source.in_rows.empty() ? nullptr : source.in_rows.data()) {}
  template <int Instructions>
  constexpr schedule_view(const fixed_schedule<Instructions>& source)  // NOLINT(google-explicit-constructor): a view
      : launches(&source.launches[0]),
        launch_count(source.launch_count),
        order(&source.order[0]),
        launch_of(&source.launch_of[0]),
        role(&source.role[0]),
        stored(&source.stored[0]),
        in_rows(&source.in_rows[0]) {}
};

}  // namespace espalier
