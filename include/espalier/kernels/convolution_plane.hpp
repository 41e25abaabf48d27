// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/convolution_task.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

// One channel and one feature, as stencils have them: neighbours along the last dimension are computed side by side,
// each a sum over the taps, and nothing is rearranged. What memory takes is all it takes.

namespace espalier::detail {

inline constexpr std::int64_t most_plane_taps = 125;

[[nodiscard]] inline bool is_plane(const convolution_task& t) {
  const convolution_axis& line = t.axis[t.spatial - 1];
  return t.groups == 1 && t.c == 1 && t.f == 1 && t.input_channels == 1 && t.output_channels == 1 && line.stride == 1 &&
         line.output_step == 1 && t.taps() <= most_plane_taps;
}

/// What one line of outputs reads: for each tap that is not outside, an element of the input (before the first
/// output's, possibly outside of the buffer: only where the tap is inside it is read) and the weight.
template <class Acc> struct plane_taps {
  std::int64_t count = 0;
  std::int64_t from[most_plane_taps];
  std::int64_t in_line[most_plane_taps];
  Acc weight[most_plane_taps];
};

template <class T, class Acc>
void convolve_line(const convolution_axis& line, const plane_taps<Acc>& taps, const T* input, Acc* to) {
  constexpr int width = full_lanes<Acc>;
  // Between these every tap sees an element.
  const std::int64_t first = std::clamp<std::int64_t>(-line.offset, 0, line.output);
  const std::int64_t reach = line.offset + line.dilation * (line.taps - 1);
  const std::int64_t last = std::clamp<std::int64_t>(line.input - reach, first, line.output);
  const auto at_border = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t o = begin; o < end; ++o) {
      Acc sum(0);
      for (std::int64_t k = 0; k < taps.count; ++k) {
        const std::int64_t place = taps.in_line[k] + o;
        if (place >= 0 && place < line.input) sum += element_cast<Acc>(input[taps.from[k] + o]) * taps.weight[k];
      }
      to[o] = sum;
    }
  };
  at_border(0, first);
  for_each_run_of_lanes<Acc>(last - first, [&](std::int64_t i, auto registers) {
    constexpr int together = decltype(registers)::value;
    const std::int64_t o = first + i;
    if constexpr (together == 0) {
      at_border(o, o + 1);
    } else {
      lanes<Acc, width> sum[together] = {};
      for (std::int64_t k = 0; k < taps.count; ++k) {
        const T* const from = input + taps.from[k] + o;
        ESPALIER_UNROLL
        for (int r = 0; r < together; ++r) sum[r] += load_lanes<Acc, width>(from + r * width) * taps.weight[k];
      }
      std::memcpy(to + o, &sum[0], sizeof(sum));
    }
  });
  at_border(last, line.output);
}

/// A thread's share of a phase.
/// @pre is_plane(t)
template <class T, class Acc>
void convolve_plane(const convolution_task& t, const T* input, const Acc* filter, const filter_rows& rows, Acc* output,
                    const thread_share& share) {
  const int outer = t.spatial - 1;
  const convolution_axis& line = t.axis[outer];
  const interval mine = share.of(t.positions() / line.output);
  const std::int64_t outer_taps = t.taps() / line.taps;
  plane_taps<Acc> taps;
  for (std::int64_t n = mine.start; n < mine.start + mine.size; ++n) {
    std::int64_t seen[3]{};
    std::int64_t rest = n;
    std::int64_t to = t.first_output;
    for (int d = outer - 1; d >= 0; --d) {
      const std::int64_t position = rest % t.axis[d].output;
      rest /= t.axis[d].output;
      seen[d] = position * t.axis[d].stride + t.axis[d].offset;
      to += position * t.axis[d].output_step;
    }
    to += rest * t.output_image;
    taps.count = 0;
    for (std::int64_t tap = 0; tap < outer_taps; ++tap) {
      std::int64_t from = rest * t.input_image;
      std::int64_t of = tap;
      bool is_inside = true;
      for (int d = outer - 1; d >= 0; --d) {
        const std::int64_t place = seen[d] + t.axis[d].dilation * (of % t.axis[d].taps);
        of /= t.axis[d].taps;
        is_inside = is_inside && place >= 0 && place < t.axis[d].input;
        from += place * t.axis[d].input_step;
      }
      if (!is_inside) continue;
      for (std::int64_t k = 0; k < line.taps; ++k) {
        const std::int64_t place = line.offset + line.dilation * k;
        taps.in_line[taps.count] = place;
        taps.from[taps.count] = from + place;
        taps.weight[taps.count++] = filter[rows.row(t, tap * line.taps + k)];
      }
    }
    convolve_line(line, taps, input, output + to);
  }
}

}  // namespace espalier::detail
