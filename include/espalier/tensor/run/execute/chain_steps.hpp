// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/execute/causal.hpp>
#include <espalier/tensor/run/execute/tables.hpp>

#include <cstdint>

namespace espalier::detail {

/// The rows of a step's operand or result in memory. The plan's tables are too large to be read for every block.
struct row_cursor {
  char* base = nullptr;
  std::int64_t size = 0;                // of an element
  std::int64_t bytes = 0;               // from row to row, if they are equally far apart
  const row_map* map = nullptr;         // if they are not
  std::int64_t step = 0;                // from row to row of a block, in elements
  std::int64_t along = 0;               // from block to block of a row that is cut
  bool is_temporary = false;            // then `bytes` is its place in the thread's scratch
  bool is_of_row = false;               // a temporary that all blocks of a row that is cut have in common
  bool is_stream = false;               // blocks pass over memory without a gap
  const placed_shift* shift = nullptr;  // if it is read further, and copied, where it ends, to `bytes` in the scratch

  [[nodiscard]] char* at(std::int64_t row) const {
    return base + (map == nullptr ? row * bytes : map->offset(row) * size);
  }
  [[nodiscard]] kernels::stream block(std::int64_t row, char* scratch) const {
    return {is_temporary ? scratch + bytes : at(row), step};
  }
  /// Block b of a row that is cut. `own`: the scratch of the thread, `common`: that of the row.
  [[nodiscard]] kernels::stream block(std::int64_t row, std::int64_t b, char* own, char* common) const {
    return {(is_temporary ? (is_of_row ? common : own) + bytes : at(row)) + b * along, step};
  }
};

/// A step of a fused chain with the addresses of a run. `Function` computes a block of rows.
template <class Function> struct placed_step {
  Function function{};
  row_cursor operand[3];
  row_cursor result;
  int operand_count = 0;
  std::uint64_t passes = 1;
  bool is_wide = false;
  bool combines = false;   // the partial results of the blocks of a row that is cut
  bool is_stored = false;  // a row in memory for each row of the chain
  bool is_looked_at = false;
  bool is_streamed = false;  // what it stores goes past the caches
  mask_part mask = mask_part::none;
  dtype type = dtype::f32;
  const instruction_boxes* boxes = nullptr;
};

/// The scratch of one thread: temporaries of a block, sums over rows, partial results of a row that is cut.
struct scratch_layout {
  static constexpr std::int64_t element_bytes = 8;

  [[nodiscard]] static std::int64_t wide_bytes(const fused_chain& c) {
    return aligned(c.block_columns * c.block_rows * element_bytes);
  }
  [[nodiscard]] static std::int64_t narrow_bytes(const fused_chain& c) { return aligned(c.block_rows * element_bytes); }
  // Offsets.
  [[nodiscard]] static std::int64_t accumulator(const fused_chain& c, int slot) {
    return c.wide_slots * wide_bytes(c) + c.narrow_slots * narrow_bytes(c) + slot * aligned(c.columns * element_bytes);
  }
  [[nodiscard]] static std::int64_t temporary(const fused_chain& c, int slot, bool wide) {
    return wide ? slot * wide_bytes(c) : c.wide_slots * wide_bytes(c) + slot * narrow_bytes(c);
  }

  [[nodiscard]] static std::int64_t partials(const fused_chain& c, int slot) {
    return accumulator(c, c.accumulators) + slot * aligned(c.blocks_of_row() * element_bytes);
  }

  /// A block of a result that is streamed, before it is.
  [[nodiscard]] static std::int64_t streamed(const fused_chain& c) { return accumulator(c, c.accumulators); }

  [[nodiscard]] static std::int64_t bytes_per_thread(const fused_chain& c) {
    return c.is_cut() ? partials(c, c.partials) : streamed(c) + wide_bytes(c);
  }
};

/// With fewer steps a block is done before what was fetched for the next one arrives: the hardware, which finds out by
/// itself where one step passes over memory, fetches better.
inline constexpr int least_fetched_steps = 4;

/// A chain that passes over at least as many bytes streams results: little of them would still be in a cache when they
/// are read, and a line that is not written past the caches is read first. Where the hardware fetches, it fetches that
/// line too, and what streaming saves is lost in moving each block a second time, but for results that no cache holds.
[[nodiscard]] constexpr std::int64_t least_passed_to_stream(const fused_chain& c) {
  return std::int64_t{c.step_count < least_fetched_steps ? 128 : 32} << 20;
}

/// Decides which steps stream what they store: results that no step of the chain reads, in memory of which none reads,
/// if the chain passes over at least `least` bytes. `steps` are placed.
template <class Step> void choose_streamed(const fused_chain& c, Step* steps, std::int64_t least) {
  if (!has_streaming_stores || c.is_cut()) return;
  const auto passes = [](const row_cursor& rows) { return rows.is_stream ? rows.size : 0; };
  std::int64_t bytes = 0;  // of an element of the chain
  for (int n = 0; n < c.step_count; ++n) {
    for (int k = 0; k < steps[n].operand_count; ++k) bytes += passes(steps[n].operand[k]);
    bytes += passes(steps[n].result);
  }
  if (c.rows * c.columns * bytes < least) return;
  for (int n = 0; n < c.step_count; ++n) {
    const row_cursor& result = steps[n].result;
    bool is_alone = steps[n].is_stored && result.is_stream;
    for (int m = 0; m < c.step_count && is_alone; ++m) {
      for (int k = 0; k < steps[m].operand_count; ++k) is_alone = is_alone && steps[m].operand[k].base != result.base;
    }
    steps[n].is_streamed = is_alone;
  }
}

/// Columns that count in the block of rows from `row` on. `side`: see `causal_finder`.
[[nodiscard]] inline std::int64_t seen_columns(const fused_chain& c, std::int64_t side, std::int64_t row) {
  if (side == 0) return c.columns;
  constexpr std::int64_t grain = kernels::triangle_grain;
  return smaller_of(side, (row % side + c.block_rows + grain - 1) / grain * grain);
}

/// The rows of an operand or a result. `number`: the value of a constant.
template <class Address>
[[nodiscard]] row_cursor cursor_of(const fused_chain& c, const fused_source& source, bool wide, dtype type,
                                   const double* number, const Address& address) {
  row_cursor cursor;
  cursor.size = size_of(type);
  switch (source.kind) {
    case source_kind::constant: cursor.base = reinterpret_cast<char*>(const_cast<double*>(number)); break;
    case source_kind::temporary:
      cursor.bytes = scratch_layout::temporary(c, source.slot, wide);
      cursor.step = wide ? c.columns : 1;
      cursor.is_temporary = true;
      cursor.is_of_row = !wide;
      break;
    case source_kind::partials:
      cursor.bytes = scratch_layout::partials(c, source.slot);
      cursor.along = cursor.size;
      cursor.is_temporary = cursor.is_of_row = true;
      break;
    case source_kind::shifted: cursor.bytes = scratch_layout::temporary(c, source.slot, true); break;
    case source_kind::memory: {
      const row_map& map = source.rows;
      const bool moves = map.terms > 0 && map.divide[0] == 1;
      cursor.base = static_cast<char*>(address(source.value));
      // Within a block at most the first term moves (see `fuser::map_rows`).
      if (moves) cursor.step = map.stride[0];
      // Most tensors are dense, and need no division.
      if (moves && map.terms == 1 && c.rows <= map.modulo[0]) {
        cursor.bytes = map.stride[0] * cursor.size;
      } else if (map.terms > 0) {
        cursor.map = &map;
      }
      // Rows that are read again are in the cache already.
      cursor.is_stream = wide && moves && map.stride[0] == c.columns;
      if (wide && c.is_cut()) cursor.along = c.block_columns * cursor.size;
      break;
    }
  }
  return cursor;
}

}  // namespace espalier::detail
