// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/fill.hpp>
#include <espalier/tensor/run/kernels/convolution/depthwise.hpp>
#include <espalier/tensor/run/kernels/convolution/few_features.hpp>
#include <espalier/tensor/run/kernels/convolution/panels.hpp>
#include <espalier/tensor/run/kernels/convolution/plane.hpp>
#include <espalier/tensor/run/kernels/convolution/task.hpp>
#include <espalier/tensor/run/kernels/gemm.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// Some positions of a phase times some features of a group.
struct convolution_piece {
  std::int64_t group = 0;
  std::int64_t first = 0;  // positions
  std::int64_t last = 0;
  std::int64_t feature = 0;
  std::int64_t width = 0;
};

template <class T, class Acc>
void convolve_piece(const convolution_task& t, const T* input, const Acc* filter, const filter_rows& rows,
                    std::int64_t features, const convolution_piece& piece, Acc* output) {
  using sizes = tile_sizes<Acc>;
  alignas(64) Acc panel[sizes::depth * sizes::width];
  alignas(64) Acc strip[sizes::rows * sizes::depth];
  alignas(64) Acc apart[sizes::rows * sizes::width];
  const std::int64_t line = t.line();
  const std::int64_t feature = piece.group * t.f + piece.feature;
  const bool dots = t.f <= few_features<Acc>::most;  // whatever part of the features this piece has
  const bool plain = std::is_same_v<T, Acc> && t.is_plain() && !dots;
  window_reader<T> reader(t, input, piece.group, t.joined());
  constexpr std::int64_t placed = window_reader<T>::most / sizes::rows * sizes::rows;
  few_features<Acc> few;
  column_panel columns;
  for (std::int64_t k = 0; k < t.columns(); k += columns.depth) {
    columns = panel_from(t, rows, k, sizes::depth);
    const Acc* const b = filter + columns.row * features + feature;
    panel_product<Acc> product(columns.depth, dots ? 0 : piece.width, {b, features, 1}, &panel[0], &strip[0]);
    if (dots) few.load(b, columns.depth, features, piece.width);
    Acc* const out = output + feature;
    const Acc keep = k > 0 ? Acc(1) : Acc(0);
    for (std::int64_t first = piece.first; first < piece.last; first += sizes::rows) {
      const std::int64_t count = smaller_of<std::int64_t>(sizes::rows, piece.last - first);
      if constexpr (std::is_same_v<T, Acc>) {
        if (plain) {
          const std::int64_t step = t.plain_step();
          const matrix_view<const T> rest{input + piece.group * t.c + t.plain_start() + first * step + k, step, 1};
          const std::int64_t next = smaller_of<std::int64_t>(sizes::rows, piece.last - first - count);
          if (next > 0) product.announce(rest.at(count, 0), next);
          const std::int64_t out_step = t.axis[t.spatial - 1].output_step * t.output_channels;
          product.multiply(rest, count, Acc(1), keep, out + t.first_output * t.output_channels + first * out_step,
                           out_step);
          continue;
        }
      }
      const std::int64_t start = (first - piece.first) % placed;
      if (start == 0) reader.place(first, smaller_of(placed, piece.last - first));
      for (std::int64_t at = k / line * line; at < k + columns.depth; at += line) {
        reader.look(at / line, start, count);
        const std::int64_t begin = larger_of(k, at);
        const std::int64_t end = smaller_of(k + columns.depth, at + line);
        for (std::int64_t i = 0; i < count; ++i) {
          reader.read(start + i, begin - at, end - at, &strip[i * sizes::depth + begin - k]);
        }
      }
      if (dots) {
        for (std::int64_t i = 0; i < count; ++i) {
          few.end(&strip[i * sizes::depth]);
          few.multiply(&strip[i * sizes::depth], k > 0, out + reader.output(start + i) * t.output_channels);
        }
        continue;
      }
      if constexpr (std::is_same_v<T, Acc>) {
        // Prefetches the elements that the next strip is the first to read.
        const std::int64_t next = start + sizes::rows;
        if (k == 0 && next + sizes::rows <= placed && first + 2 * sizes::rows <= piece.last) {
          const std::int64_t step = reader.last_seen(next + 1) - reader.last_seen(next);
          product.announce_rows({reader.last_seen(next), step, 1}, sizes::rows, t.c);
        }
      }
      if (reader.is_even(start, count)) {
        const std::int64_t step = count > 1 ? reader.output(start + 1) - reader.output(start) : 0;
        product.template multiply_written<strip_layout::kept_rows>(
            count, Acc(1), keep, out + reader.output(start) * t.output_channels, step * t.output_channels);
        continue;
      }
      product.template multiply_written<strip_layout::kept_rows>(count, Acc(1), Acc(0), &apart[0], piece.width);
      for (std::int64_t i = 0; i < count; ++i) {
        const Acc* const from = &apart[i * piece.width];
        Acc* const to = out + reader.output(start + i) * t.output_channels;
        if (k > 0) {
          vector_loop(piece.width, [=](std::int64_t x) { to[x] += from[x]; });
        } else {
          vector_loop(piece.width, [=](std::int64_t x) { to[x] = from[x]; });
        }
      }
    }
  }
}

/// A thread's share of a phase. Every element's sum has the same order however the work is cut.
template <class T, class Acc>
void convolve_phase(const convolution_task& t, const T* input, const Acc* filter, const filter_rows& rows,
                    std::int64_t features, Acc* output, const thread_share& share) {
  using sizes = tile_sizes<Acc>;
  const std::int64_t positions = t.positions();
  const std::int64_t strips = (positions + sizes::rows - 1) / sizes::rows;
  const std::int64_t width = piece_width<Acc>(t.f, strips * t.groups, share.threads);
  const std::int64_t widths = (t.f + width - 1) / width;
  // The written elements stay in the second-level cache from one panel to the next; each thread has equally many
  // pieces.
  constexpr std::int64_t most_written = 384 * 1024 / static_cast<std::int64_t>(sizeof(Acc));
  const std::int64_t most_strips = larger_of<std::int64_t>(most_written / (width * sizes::rows), 16);
  const std::int64_t pieces =
      ((strips + most_strips - 1) / most_strips + share.threads - 1) / share.threads * share.threads;
  const std::int64_t blocks = smaller_of(pieces, strips);
  const interval mine = share.of(blocks * widths * t.groups);
  for (std::int64_t item = mine.start; item < mine.start + mine.size; ++item) {
    const std::int64_t beside = item / blocks;
    const std::int64_t first = strips * (item % blocks) / blocks * sizes::rows;
    const std::int64_t last = smaller_of(strips * (item % blocks + 1) / blocks * sizes::rows, positions);
    const std::int64_t feature = beside % widths * width;
    convolve_piece(t, input, filter, rows, features,
                   {beside / widths, first, last, feature, smaller_of(width, t.f - feature)}, output);
  }
}

/// Zeros to the positions of a phase that sees nothing.
template <class Acc> void clear_phase(const convolution_task& t, Acc* output, const thread_share& share) {
  constexpr std::int64_t some = window_reader<Acc>::most;
  const interval mine = share.of(t.positions());
  window_reader<Acc> reader(t, nullptr, 0, false);
  for (std::int64_t done = 0; done < mine.size; done += some) {
    const std::int64_t count = smaller_of(some, mine.size - done);
    reader.place(mine.start + done, count);
    for (std::int64_t i = 0; i < count; ++i) {
      Acc* const out = output + reader.output(i) * t.output_channels;
      fill_elements(out, out + t.groups * t.f, Acc(0));
    }
  }
}

/// output = columns * filter. `filter` is [taps, channels, features], the features of a group neighbours.
/// @param in_order whether its taps are in the order in which phases have them
template <class T, class Acc>
void convolve(const convolution_task& t, const T* input, const Acc* filter, std::int64_t channels,
              std::int64_t features, bool in_order, Acc* output) {
  const std::int64_t elements = t.positions() * t.groups * t.f;
  const std::int64_t work = larger_of(elements, convolution_work(t) / t.phases());
  const std::int64_t threads = threads_for(elements, work);
  parallel_ranges(threads, work, [&](std::int64_t from, std::int64_t to) {
    for (thread_share share{from, threads}; share.index < to; ++share.index) {
      filter_rows rows{channels, in_order};
      for (std::int64_t p = 0; p < t.phases(); ++p) {
        const convolution_task one = t.phase(p);
        if (one.positions() == 0 || one.f == 0) {
          // Nothing is this device's.
        } else if (one.columns() == 0) {
          clear_phase(one, output, share);
        } else if (is_plane(one)) {
          convolve_plane(one, input, filter, rows, output, share);
        } else if (is_depthwise(one)) {
          convolve_channels(one, input, filter, rows, output, share);
        } else {
          convolve_phase(one, input, filter, rows, features, output, share);
        }
        if (in_order) rows.first += one.taps() * channels;
      }
    }
  });
}

}  // namespace espalier::detail
