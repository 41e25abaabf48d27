// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/convolution/task.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>
#include <espalier/tensor/run/kernels/transpose.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace espalier::detail {

[[nodiscard]] constexpr extents turned_shape(extents filter, std::int64_t groups) {
  std::swap(filter[filter.rank - 2], filter[filter.rank - 1]);
  filter[filter.rank - 2] /= groups;
  filter[filter.rank - 1] *= groups;
  return filter;
}

/// The filter with which an input's gradient is convolved, [taps, features of a group, groups * channels of a group]:
/// features and channels of a group exchanged, taps in reverse order and then in that of the phases of `t`.
template <class T, class Acc>
void turn_filter(const convolution_task& t, const extents& shape, std::int64_t groups, const T* from, Acc* to) {
  constexpr std::int64_t block = 64;
  const std::int64_t c = shape[shape.rank - 2];
  const std::int64_t all = shape[shape.rank - 1];
  const std::int64_t f = all / groups;
  const std::int64_t blocks = (f + block - 1) / block;
  for (std::int64_t p = 0; p < t.phases(); ++p) {
    const convolution_task one = t.phase(p);
    parallel_ranges(one.taps() * groups * blocks, one.taps() * c * all, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t q = item % blocks * block;
        const std::int64_t g = item / blocks % groups;
        const std::int64_t tap = item / blocks / groups;
        const T* const source = from + (t.taps() - 1 - one.filter_tap(tap)) * c * all + g * f + q;
        Acc* const turned = to + (tap * f + q) * groups * c + g * c;
        if constexpr (std::is_same_v<T, Acc>) {
          for (std::int64_t i = 0; i < c; i += block) {
            const transposed_plane<T> plane{source + i * all, all, turned + i, groups * c};
            transpose_block(plane, smaller_of(block, f - q), smaller_of(block, c - i), 0);
          }
        } else {
          for (std::int64_t x = 0; x < smaller_of(block, f - q); ++x) {
            for (std::int64_t i = 0; i < c; ++i) turned[x * groups * c + i] = element_cast<Acc>(source[i * all + x]);
          }
        }
      }
    });
    to += one.taps() * c * all;
  }
}

}  // namespace espalier::detail
