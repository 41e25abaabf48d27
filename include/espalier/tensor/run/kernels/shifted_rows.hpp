// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/partition/shifted_rows.hpp>
#include <espalier/tensor/run/kernels/kernel.hpp>

#include <cstdint>
#include <cstring>

namespace espalier::detail {

/// A dimension of an operand that is read further (`shifted_rows`), on one device: indices [first, last) of a piece are
/// those `by` further in the source. Pieces do not overlap, and follow each other; elsewhere there are zeros.
struct shifted_dimension {
  struct piece {
    std::int64_t first = 0;
    std::int64_t last = 0;
    std::int64_t by = 0;
  };
  std::int64_t extent = 1;
  /// Of the source, in elements.
  std::int64_t stride = 1;
  int pieces = 1;
  piece of[2];

  /// The piece in which indices [first, last) are, or null.
  [[nodiscard]] const piece* around(std::int64_t from, std::int64_t to) const {
    for (int n = 0; n < pieces; ++n) {
      if (from >= of[n].first && to <= of[n].last) return &of[n];
    }
    return nullptr;
  }
};

/// Such an operand with its address.
struct placed_shift {
  const char* base = nullptr;
  std::int64_t size = 1;  // of an element
  int rank = 1;
  shifted_dimension dim[max_rank];
};

/// What the executor calls if a program has such operands.
struct shift_functions {
  /// Finds the pieces of `to.dim`. `boxes[n]` are those of `rows.op[n]`.
  void (*place)(placed_shift& to, const shifted_rows& rows, graph_view code, const instruction_boxes* const* boxes);
  /// The block of a call: where it is, or, where it ends, a copy in `scratch`.
  kernels::stream (*block)(const placed_shift& from, const kernels::block_call& call, char* scratch);
};

// An op makes of index i of its result the index i + by of its operand, if both are real. Result rows [4, 8) of 16 that
// are one further than operand rows [3, 9): i + 2.

/// One more op, which makes what the pieces have found so far.
inline void add_shift(shifted_dimension& d, const element_shift& shift, const instruction_boxes& boxes) {
  const interval mine = boxes.result.dim[shift.dim];
  const interval held = boxes.operand[0].dim[shift.dim];
  std::int64_t by = mine.start + shift.by - held.start;
  if (shift.wraps) {
    // It is the only one along this dimension.
    const std::int64_t extent = boxes.whole[shift.dim];
    by = (by % extent + extent) % extent;
    const std::int64_t turn = smaller_of(mine.size, extent - by);
    d.pieces = 2;
    d.of[0] = {0, turn, by};
    d.of[1] = {turn, mine.size, by - extent};
    return;
  }
  shifted_dimension::piece& p = d.of[0];
  p.first = larger_of(p.first, larger_of<std::int64_t>(0, -by) - p.by);
  p.last = smaller_of(p.last, smaller_of(mine.size, held.size - by) - p.by);
  p.by += by;
}

inline void place_shift(placed_shift& to, const shifted_rows& rows, graph_view code,
                        const instruction_boxes* const* boxes) {
  const extents& shape = code[rows.op[0]].shape;
  to.rank = shape.rank;
  for (int d = 0; d < shape.rank; ++d) {
    to.dim[d] = {shape[d], stride_of(code[rows.source].shape, d), 1, {{0, shape[d], 0}, {}}};
  }
  for (int n = 0; n < rows.count; ++n) add_shift(to.dim[rows.shift[n].dim], rows.shift[n], *boxes[n]);
}

/// The index of a row along each dimension but the last, from one row to the next.
class row_index {
 public:
  row_index(const placed_shift& from, std::int64_t row) : from_(from) {
    for (int d = from.rank - 2; d >= 0; --d) {
      at_[d] = row % from.dim[d].extent;
      row /= from.dim[d].extent;
    }
  }
  /// Along the dimension before the last.
  [[nodiscard]] std::int64_t innermost() const { return at_[from_.rank - 2]; }
  void next() {
    for (int d = from_.rank - 2; d >= 0 && ++at_[d] == from_.dim[d].extent; --d) at_[d] = 0;
  }
  /// Elements from the source's first to the row's column 0; false if there are zeros.
  [[nodiscard]] bool find(std::int64_t& elements) const {
    elements = 0;
    for (int d = 0; d + 1 < from_.rank; ++d) {
      const shifted_dimension::piece* const piece = from_.dim[d].around(at_[d], at_[d] + 1);
      if (piece == nullptr) return false;
      elements += (at_[d] + piece->by) * from_.dim[d].stride;
    }
    return true;
  }

 private:
  const placed_shift& from_;
  std::int64_t at_[max_rank]{};
};

/// Copies columns [first, last) of one row, or zeros.
inline void copy_shifted_row(const shifted_dimension& columns, std::int64_t first, std::int64_t last, std::int64_t size,
                             const char* row, char* to) {
  const auto clear = [&](std::int64_t from, std::int64_t end) {
    if (end > from) std::memset(to + (from - first) * size, 0, static_cast<std::size_t>((end - from) * size));
  };
  std::int64_t done = first;
  for (int n = 0; n < columns.pieces && row != nullptr; ++n) {
    const shifted_dimension::piece& p = columns.of[n];
    const std::int64_t from = larger_of(p.first, done);
    const std::int64_t end = smaller_of(p.last, last);
    if (from >= end) continue;
    clear(done, from);
    std::memcpy(to + (from - first) * size, row + (from + p.by) * size, static_cast<std::size_t>((end - from) * size));
    done = end;
  }
  clear(done, last);
}

inline kernels::stream shifted_block(const placed_shift& from, const kernels::block_call& call, char* scratch) {
  const shifted_dimension& columns = from.dim[from.rank - 1];
  const std::int64_t first = call.first_column;
  const std::int64_t last = first + call.columns;
  row_index at(from, call.first_row);
  if (const shifted_dimension::piece* const all = columns.around(first, last); all != nullptr) {
    std::int64_t elements = 0;
    const bool neighbours =
        call.rows == 1 || (from.rank > 1 && from.dim[from.rank - 2].around(at.innermost(), at.innermost() + call.rows));
    if (neighbours && at.find(elements)) {
      const std::int64_t row = from.rank > 1 ? from.dim[from.rank - 2].stride : 0;
      return {const_cast<char*>(from.base + (elements + first + all->by) * from.size), row};
    }
  }
  char* to = scratch;
  for (std::int64_t r = 0; r < call.rows; ++r, to += columns.extent * from.size, at.next()) {
    std::int64_t elements = 0;
    const char* const row = at.find(elements) ? from.base + elements * from.size : nullptr;
    copy_shifted_row(columns, first, last, from.size, row, to);
  }
  return {scratch, columns.extent};
}

inline constexpr shift_functions all_shift_functions{&place_shift, &shifted_block};

}  // namespace espalier::detail
