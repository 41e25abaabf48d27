// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/half_runs.hpp>
#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/contraction/plan.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

[[nodiscard]] inline loop_axis locate(const loop_axis* loops, int count, std::int64_t index) {
  loop_axis at;
  for (int i = count - 1; i >= 0; --i) {
    const std::int64_t step = i == 0 ? index : index % loops[i].extent;
    index /= loops[i].extent;
    at.a += step * loops[i].a;
    at.b += step * loops[i].b;
    at.c += step * loops[i].c;
  }
  return at;
}

/// One slice of a rearrangement, `to = from + beta * to`: the destination's last axis and, where another axis is the
/// unit one in the source, that axis too, in tiles that keep both within L1.
template <class T, class From, class To>
inline void copy_slice(const copy_axis& row, const copy_axis& column, const From* ESPALIER_RESTRICT from,
                       To* ESPALIER_RESTRICT to, T beta) {
  constexpr std::int64_t tile = 32;
  const std::int64_t row_tile = row.from == 1 ? tile : 1;
  const std::int64_t column_tile = row.from == 1 ? tile : column.extent;
  for (std::int64_t r0 = 0; r0 < row.extent; r0 += row_tile) {
    const std::int64_t r1 = smaller_of(row.extent, r0 + row_tile);
    for (std::int64_t c0 = 0; c0 < column.extent; c0 += column_tile) {
      const std::int64_t count = smaller_of(column.extent - c0, column_tile);
      for (std::int64_t r = r0; r < r1; ++r) {
        const From* ESPALIER_RESTRICT in = from + r * row.from + c0 * column.from;
        To* ESPALIER_RESTRICT out = to + r * row.to + c0;
        if (beta != T(0)) {
          ESPALIER_OMP(simd)
          for (std::int64_t x = 0; x < count; ++x)
            out[x] = static_cast<To>(static_cast<T>(in[x * column.from]) + beta * static_cast<T>(out[x]));
        } else if (column.from == 1) {
          if constexpr (is_half_run<From, To>) {
            convert_run(in, out, count);
          } else {
            ESPALIER_OMP(simd)
            for (std::int64_t x = 0; x < count; ++x) out[x] = static_cast<To>(static_cast<T>(in[x]));
          }
        } else {
          ESPALIER_OMP(simd)
          for (std::int64_t x = 0; x < count; ++x) out[x] = static_cast<To>(static_cast<T>(in[x * column.from]));
        }
      }
    }
  }
}

template <class T, class From, class To> void run_copy(const copy_plan& plan, const From* from, To* to, T beta) {
  const copy_axis column = plan.rank == 0 ? copy_axis{1, 1, 1} : plan.axis[plan.rank - 1];
  copy_axis row;
  loop_axis loops[kernels::contraction::max_rank];
  int count = 0;
  int row_axis = -1;
  for (int i = 0; i + 1 < plan.rank; ++i)
    if (plan.axis[i].from == 1 || row_axis < 0) row_axis = i;
  if (plan.rank > 1 && plan.axis[row_axis].from != 1) row_axis = plan.rank - 2;
  std::int64_t iterations = 1;
  for (int i = 0; i + 1 < plan.rank; ++i) {
    if (i == row_axis) {
      row = plan.axis[i];
      continue;
    }
    loops[count++] = {plan.axis[i].extent, plan.axis[i].from, 0, plan.axis[i].to};
    iterations *= plan.axis[i].extent;
  }
  const int threads = static_cast<double>(plan.count) < parallel_threshold ? 1 : available_threads();
  // Few slices are cut along their rows, or there would be nothing to share.
  const std::int64_t cuts =
      threads == 1 || iterations >= 4 * threads ? 1 : smaller_of<std::int64_t>(threads, row.extent);
  const std::int64_t total = iterations * cuts;
  const auto slice = [&](std::int64_t index) {
    const loop_axis at = locate(loops, count, index / cuts);
    const std::int64_t first = row.extent * (index % cuts) / cuts;
    const std::int64_t last = row.extent * (index % cuts + 1) / cuts;
    copy_slice<T>({last - first, row.from, row.to}, column, from + at.a + first * row.from, to + at.c + first * row.to,
                  beta);
  };
  if (threads == 1 || total == 1) {
    for (std::int64_t i = 0; i < total; ++i) slice(i);
    return;
  }
  ESPALIER_OMP(parallel for num_threads(threads) schedule(static))
  for (std::int64_t i = 0; i < total; ++i) slice(i);
}

}  // namespace espalier::detail
