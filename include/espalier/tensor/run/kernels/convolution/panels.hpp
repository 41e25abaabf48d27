// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/convolution/task.hpp>
#include <espalier/tensor/run/kernels/gemm.hpp>

#include <cstdint>

namespace espalier::detail {

/// Columns [first, first + depth) of a phase, which are neighbours in the filter from `row` on.
struct column_panel {
  std::int64_t first = 0;
  std::int64_t depth = 0;
  std::int64_t row = 0;
};

/// The next panel: the columns that a product sums over at once. Panels are of about equal depth.
[[nodiscard]] inline column_panel panel_from(const convolution_task& t, const filter_rows& rows, std::int64_t first,
                                             std::int64_t most) {
  constexpr std::int64_t grain = 16;
  const std::int64_t left = rows.is_one_run(t) ? t.columns() - first : t.c - first % t.c;
  const std::int64_t pieces = (left + most - 1) / most;
  const std::int64_t depth = ((left + pieces - 1) / pieces + grain - 1) / grain * grain;
  return {first, smaller_of(depth, left, most), rows.row(t, first)};
}

/// Columns [0, features) in pieces of whole tiles that are about equal, at least so many that `items` of them below
/// each other are enough for the threads.
template <class Acc>
[[nodiscard]] std::int64_t piece_width(std::int64_t features, std::int64_t items, std::int64_t threads) {
  using sizes = tile_sizes<Acc>;
  const std::int64_t tiles = (features + sizes::columns - 1) / sizes::columns;
  const std::int64_t needed = (features + sizes::width - 1) / sizes::width;
  const std::int64_t pieces = larger_of(needed, smaller_of(tiles, (threads + items - 1) / items));
  return (tiles + pieces - 1) / pieces * sizes::columns;
}

/// Multiply-adds, in elements of simple work (`parallel_ranges`).
[[nodiscard]] inline std::int64_t convolution_work(const convolution_task& t) {
  return t.positions() * t.groups * t.f * t.columns() / 8;
}

}  // namespace espalier::detail
