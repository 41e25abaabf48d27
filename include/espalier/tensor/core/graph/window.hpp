// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/sharding/sharding.hpp>

#include <cstdint>

namespace espalier {

/// A window says how a dimension of an operand is read: element p contributes to element o of a factor, through tap k
/// of `size`, if
///
///     base_dilation * p = stride * o + dilation * k - low
///
/// With one tap this is a slice (stride; low = -start), a pad (base_dilation; low), a reversal (stride -1; low =
/// -(extent - 1)); with more a pooling or a convolution, whose gradients are the same relation solved for another of p,
/// o, k. The elements of a tensor that a shard of the factor needs follow from it (GSPMD section 4.4, halo exchange):
/// an interval that overlaps those of its neighbours, or lies beyond them.
struct window {
  std::int64_t size = 1;
  std::int64_t stride = 1;
  std::int64_t low = 0;
  std::int64_t dilation = 1;
  std::int64_t base_dilation = 1;
  /// The dimension is a circle: p is meant modulo its extent.
  bool wraps = false;
};

/// A window of a graph: with the factor over whose shards it moves.
/// (Without initialisers, since arrays of these are made in constant evaluations, and most stay empty.)
struct placed_window {
  std::int64_t size;
  std::int64_t stride;
  std::int64_t low;
  std::int64_t dilation;
  std::int64_t base_dilation;
  /// Extent of the factor, and the axes that split it (`axis_list::code`).
  std::int64_t extent;
  std::uint32_t axes;
  /// The dimension of the operand that is read through it.
  int dim;
  bool wraps;

  /// Returns the distance from the first tap to the last.
  [[nodiscard]] constexpr std::int64_t reach() const { return dilation * (size - 1); }
  [[nodiscard]] constexpr window relation() const { return {size, stride, low, dilation, base_dilation, wraps}; }
  /// The same relation with operand and factor exchanged, and its taps in reverse order: what the gradient reads.
  /// @post reversed().reversed() is the window
  [[nodiscard]] constexpr placed_window reversed() const {
    return {size, base_dilation, reach() - low, dilation, stride, extent, axes, dim, wraps};
  }
  [[nodiscard]] friend constexpr bool operator==(const placed_window&, const placed_window&) = default;
};

/// Attributes of ops that keep their windows in the graph's table (`builder::add_windows`): the first of as many as the
/// op has spatial dimensions.
struct windowed_attributes {
  int first_window = 0;
};

[[nodiscard]] constexpr placed_window place_window(const window& w, int dim, std::int64_t extent, axis_list axes) {
  return {w.size, w.stride, w.low, w.dilation, w.base_dilation, extent, axes.code(), dim, w.wraps};
}

/// The windows through which one operand is read, with the factors of their op.
struct placed_windows {
  int count = 0;
  placed_window window[max_rank]{};
  /// The dimensions that are read through one: bit per dimension.
  std::uint32_t dims = 0;

  constexpr void add(const placed_window& w) {
    window[count++] = w;
    dims |= 1U << static_cast<unsigned>(w.dim);
  }
  [[nodiscard]] friend constexpr bool operator==(const placed_windows& a, const placed_windows& b) {
    bool same = a.count == b.count && a.dims == b.dims;
    for (int n = 0; n < a.count && same; ++n) same = a.window[n] == b.window[n];
    return same;
  }
};

namespace detail {

[[nodiscard]] constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

/// Whether an element of a tensor is seen by one of the elements `part` of the factor.
[[nodiscard]] constexpr bool is_seen(const placed_window& w, interval part, std::int64_t p) {
  for (std::int64_t k = 0; k < w.size; ++k) {
    const std::int64_t scaled = w.base_dilation * p + w.low - w.dilation * k;  // stride * o
    if (scaled % w.stride != 0) continue;
    const std::int64_t o = scaled / w.stride;
    if (o >= part.start && o < part.start + part.size) return true;
  }
  return false;
}
/// Whether any element at all is seen by some element of a factor without ends: with base dilation 2, stride 2, one tap
/// and low 1 none is, since every tap falls between two elements.
[[nodiscard]] constexpr bool meets_elements(const placed_window& w) {
  const std::int64_t step = greatest_common_divisor(w.base_dilation, w.stride);
  for (std::int64_t k = 0; k < w.size; ++k) {
    if ((w.dilation * k - w.low) % step == 0) return true;
  }
  return false;
}

/// The elements of a dimension of `extent` elements that elements `part` of the factor need: one interval, clipped to
/// the tensor, whose first and last element are seen. With stride 1, low 1, three taps, part [4, 8) of 16 needs [3, 9),
/// part [0, 4) needs [0, 5). On a circle nothing is clipped: with low 1 and one tap, part [0, 4) of 16 needs [15, 19),
/// of which all but the first are those from 0 on.
[[nodiscard]] constexpr interval needed(const placed_window& w, interval part, std::int64_t extent) {
  if (part.size <= 0) return {0, 0};
  const std::int64_t one = w.stride * part.start;
  const std::int64_t other = w.stride * (part.start + part.size - 1);
  const std::int64_t first = floor_div(smaller_of(one, other) - w.low + w.base_dilation - 1, w.base_dilation);
  const std::int64_t last = floor_div(larger_of(one, other) + w.reach() - w.low, w.base_dilation);
  if (w.wraps) {
    const std::int64_t size = last - first + 1;
    return size >= extent ? interval{0, extent} : interval{first - floor_div(first, extent) * extent, size};
  }
  std::int64_t start = smaller_of(larger_of<std::int64_t>(first, 0), extent);
  std::int64_t end = smaller_of(last + 1, extent);
  if (start >= end) return {start, 0};
  // Taps without gaps, and steps no longer than they reach, meet every element in between.
  const bool has_gaps = (w.dilation != 1 && w.size > 1) || w.stride > w.size || -w.stride > w.size;
  if (!has_gaps) return {start, end - start};
  if (!meets_elements(w)) return {start, 0};
  while (start < end && !is_seen(w, part, start)) ++start;
  while (start < end && !is_seen(w, part, end - 1)) --end;
  return {start, end - start};
}

/// The most elements that any part of `size` elements needs: the room for them in every device's buffer.
/// @post needed(w, part, extent).size <= most_needed(w, part.size, extent)
[[nodiscard]] constexpr std::int64_t most_needed(const placed_window& w, std::int64_t size, std::int64_t extent) {
  if (size <= 0) return 0;
  const std::int64_t span = (w.stride < 0 ? -w.stride : w.stride) * (size - 1) + w.reach();
  return smaller_of(span / w.base_dilation + 1, extent);
}

}  // namespace detail

}  // namespace espalier
