// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/run/kernels/convolution/task.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>
#include <cstring>

// A depthwise convolution has groups of one channel and one feature. No product of matrices serves it: channels are
// lanes of a vector, and each is a sum over the taps.

namespace espalier::detail {

/// to[c] (+)= the sum over taps of what each sees of channel c, times its weight.
template <class T, class Acc>
void add_taps(std::int64_t channels, std::int64_t taps, const T* const* seen, const Acc* const* weight, bool adds,
              Acc* to) {
  constexpr int width = full_lanes<Acc>;
  for_each_run_of_lanes<Acc>(channels, [=](std::int64_t c, auto registers) ESPALIER_ALWAYS_INLINE_BODY {
    constexpr int count = decltype(registers)::value;
    if constexpr (count == 0) {
      Acc sum = adds ? to[c] : Acc(0);
      for (std::int64_t k = 0; k < taps; ++k) {
        if (seen[k] != nullptr) sum += element_cast<Acc>(seen[k][c]) * weight[k][c];
      }
      to[c] = sum;
    } else {
      lanes<Acc, width> sum[count] = {};
      for (std::int64_t k = 0; k < taps; ++k) {
        if (seen[k] == nullptr) continue;
        ESPALIER_UNROLL
        for (int i = 0; i < count; ++i) {
          sum[i] += load_lanes<Acc, width>(seen[k] + c + i * width) * load_lanes<Acc, width>(weight[k] + c + i * width);
        }
      }
      for (int i = 0; i < count; ++i) {
        if (adds) sum[i] += load_lanes<Acc, width>(to + c + i * width);
        std::memcpy(to + c + i * width, &sum[i], sizeof(sum[i]));
      }
    }
  });
}

/// The task of groups of one channel and one feature, for which all of them are channels of one position.
[[nodiscard]] inline convolution_task channels_as_one(const convolution_task& t) {
  convolution_task one = t;
  one.c = one.f = t.groups;
  one.groups = 1;
  return one;
}
[[nodiscard]] inline bool is_depthwise(const convolution_task& t) { return t.groups > 1 && t.c == 1 && t.f == 1; }

/// A thread's share of a phase of a depthwise convolution.
template <class T, class Acc>
void convolve_channels(const convolution_task& grouped, const T* input, const Acc* filter, const filter_rows& rows,
                       Acc* output, const thread_share& share) {
  constexpr std::int64_t strip = 16;
  constexpr std::int64_t most_taps = 32;
  const convolution_task t = channels_as_one(grouped);
  const std::int64_t taps = t.taps();
  const interval mine = share.of(t.positions());
  window_reader<T> reader(t, input, 0, false);
  const T* seen[strip][most_taps];
  const Acc* weight[most_taps];
  for (std::int64_t done = 0; done < mine.size; done += strip) {
    const std::int64_t count = smaller_of(strip, mine.size - done);
    reader.place(mine.start + done, count);
    for (std::int64_t tap = 0; tap < taps; tap += most_taps) {
      const std::int64_t some = smaller_of(most_taps, taps - tap);
      for (std::int64_t k = 0; k < some; ++k) {
        reader.look(tap + k, 0, count);
        for (std::int64_t i = 0; i < count; ++i) seen[i][k] = reader.tap(i);
        weight[k] = filter + rows.row(grouped, tap + k) * t.c;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        add_taps(t.c, some, &seen[i][0], &weight[0], tap > 0, output + reader.output(i) * t.output_channels);
      }
    }
  }
}

/// One phase of a depthwise convolution.
template <class T, class Acc>
void filter_gradient_of_channels(const convolution_task& grouped, const T* input, const Acc* output,
                                 const filter_rows& rows, bool adds, Acc* filter) {
  constexpr int width = full_lanes<Acc>;
  constexpr std::int64_t block = 4 * width;
  constexpr std::int64_t some = window_reader<T>::most;
  const convolution_task t = channels_as_one(grouped);
  const std::int64_t positions = t.positions();
  const std::int64_t blocks = (t.c + block - 1) / block;
  parallel_ranges(t.taps() * blocks, positions * t.c * t.taps(), [&](std::int64_t from, std::int64_t to) {
    window_reader<T> reader(t, input, 0, false);
    for (std::int64_t first = 0; first < positions; first += some) {
      const std::int64_t count = smaller_of(some, positions - first);
      const bool keeps = adds || first > 0;
      reader.place(first, count);
      for (std::int64_t item = from; item < to; ++item) {
        const std::int64_t tap = item / blocks;
        if (item == from || item % blocks == 0) reader.look(tap, 0, count);
        const std::int64_t start = item % blocks * block;
        Acc* const sums = filter + rows.row(grouped, tap) * t.c + start;
        const Acc* const y = output + start;
        for_each_run_of_lanes<Acc>(smaller_of(block, t.c - start), [&](std::int64_t c, auto registers) {
          constexpr int together = decltype(registers)::value;
          if constexpr (together == 0) {
            Acc sum = keeps ? sums[c] : Acc(0);
            for (std::int64_t i = 0; i < count; ++i) {
              const T* const x = reader.tap(i);
              if (x != nullptr) sum += element_cast<Acc>(x[start + c]) * y[reader.output(i) * t.output_channels + c];
            }
            sums[c] = sum;
          } else {
            lanes<Acc, width> sum[together] = {};
            for (std::int64_t i = 0; i < count; ++i) {
              const T* const x = reader.tap(i);
              if (x == nullptr) continue;
              const Acc* const of = y + reader.output(i) * t.output_channels + c;
              ESPALIER_UNROLL
              for (int r = 0; r < together; ++r) {
                sum[r] += load_lanes<Acc, width>(x + start + c + r * width) * load_lanes<Acc, width>(of + r * width);
              }
            }
            for (int r = 0; r < together; ++r) {
              if (keeps) sum[r] += load_lanes<Acc, width>(sums + c + r * width);
              std::memcpy(sums + c + r * width, &sum[r], sizeof(sum[r]));
            }
          }
        });
      }
    }
  });
}

}  // namespace espalier::detail
