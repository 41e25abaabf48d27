// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/window.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <cstdint>

// What devices lack of a tensor that they read through windows, by whole extents: so that what is decided by it is the
// same on every mesh.

namespace espalier::detail {

/// The rows that a window reads before those of its factor, or, if negative, by how much it begins after them: of the
/// two ways around a circle of `extent` elements the shorter one.
[[nodiscard]] constexpr std::int64_t shorter_way(const placed_window& w, std::int64_t extent) {
  return w.wraps && 2 * w.low > extent ? w.low - extent : w.low;
}

/// Rows that a device lacks of a dimension of `extent` rows that it reads through a window: of rows that are read where
/// they are, those before the first and after the last; otherwise also the distance by which shards move on.
[[nodiscard]] constexpr std::int64_t rows_lacking(const placed_window& w, std::int64_t extent) {
  const std::int64_t low = shorter_way(w, extent);
  if (w.stride == 1 && w.base_dilation == 1 && w.extent == extent) {
    const std::int64_t off = larger_of<std::int64_t>(low, 0) + larger_of<std::int64_t>(w.reach() - low, 0);
    return smaller_of(off, extent);
  }
  const auto size_of_number = [](std::int64_t x) { return x < 0 ? -x : x; };
  const std::int64_t off =
      size_of_number(low) + w.reach() + size_of_number(w.stride * w.extent - w.base_dilation * extent);
  return smaller_of(ceil_div(off, w.base_dilation), extent);
}

/// Bytes that devices lack of a tensor that is laid out as `held` and read through windows, with the other dimensions
/// as `wanted` says: of each dimension, the distance from the rows that are held to those that are needed. A window of
/// three taps and stride 1 over 20 rows of 400 B with one row of padding: two rows, 800 B. If shards move away, as half
/// of a tensor does that is cut, all of it.
[[nodiscard]] constexpr std::int64_t bytes_lacking(const layout& held, const sharding& wanted,
                                                   const placed_window* windows, int count, std::int64_t element) {
  const std::int64_t all = held.shape.elements();
  std::int64_t lacking = 0;
  std::uint32_t windowed = 0;
  for (int n = 0; n < count; ++n) {
    windowed |= 1U << static_cast<unsigned>(windows[n].dim);
    const std::int64_t extent = held.shape[windows[n].dim];
    lacking += extent == 0 ? 0 : rows_lacking(windows[n], extent) * (all / extent);
  }
  for (int d = 0; d < wanted.rank; ++d) {
    const bool is_windowed = (windowed >> static_cast<unsigned>(d) & 1U) != 0;
    if (!is_windowed && !(held.placement.dim[d] == wanted.dim[d])) lacking = all;
  }
  return smaller_of(lacking, all) * element;
}

}  // namespace espalier::detail
