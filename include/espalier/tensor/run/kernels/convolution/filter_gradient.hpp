// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/fill.hpp>
#include <espalier/tensor/run/kernels/convolution/depthwise.hpp>
#include <espalier/tensor/run/kernels/convolution/panels.hpp>
#include <espalier/tensor/run/kernels/convolution/task.hpp>
#include <espalier/tensor/run/kernels/gemm.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>

#include <cstdint>
#include <type_traits>

namespace espalier::detail {

/// Some columns of a phase, in strips, times some features of a group.
struct filter_piece {
  std::int64_t group = 0;
  std::int64_t first = 0;  // strips
  std::int64_t last = 0;
  std::int64_t feature = 0;
  std::int64_t width = 0;
  interval positions{};  // that are summed over
};

/// Strips of the rows of a filter: they do not go beyond what is one run in its buffer.
struct filter_strips {
  std::int64_t run = 0;
  std::int64_t in_run = 0;
  std::int64_t runs = 0;

  filter_strips(const convolution_task& t, const filter_rows& rows, std::int64_t most)
      : run(rows.is_one_run(t) ? t.columns() : t.c), in_run((run + most - 1) / most), runs(t.columns() / run) {}

  [[nodiscard]] std::int64_t count() const { return runs * in_run; }
  /// The columns of a strip.
  [[nodiscard]] interval operator()(std::int64_t strip, std::int64_t most) const {
    const std::int64_t within = strip % in_run * most;
    return {strip / in_run * run + within, smaller_of(most, run - within)};
  }
};

template <class T, class Acc>
void filter_gradient_piece(const convolution_task& t, const T* input, const Acc* output, const filter_rows& rows,
                           std::int64_t features, const filter_piece& piece, bool adds, Acc* filter) {
  using sizes = tile_sizes<Acc>;
  alignas(64) Acc panel[sizes::depth * sizes::width];
  alignas(64) Acc strip[sizes::rows * sizes::depth];
  static_assert(sizes::depth <= window_reader<T>::most);
  const std::int64_t line = t.line();
  const std::int64_t run = t.run();
  const std::int64_t stop = piece.positions.start + piece.positions.size;
  const std::int64_t feature = piece.group * t.f + piece.feature;
  const filter_strips strips(t, rows, sizes::rows);
  const std::int64_t count = piece.last - piece.first;
  // Equal parts of the run that a position is in.
  const auto depth_from = [=](std::int64_t first) {
    const std::int64_t left = smaller_of(run - first % run, stop - first);
    const std::int64_t pieces = (left + sizes::depth - 1) / sizes::depth;
    return pieces == 0 ? 0 : (left + pieces - 1) / pieces;
  };
  // The panel that is multiplied, and the next, which is fetched meanwhile.
  window_reader<T> readers[2]{{t, input, piece.group, t.joined()}, {t, input, piece.group, t.joined()}};
  const auto rows_of = [=](const window_reader<T>& reader, std::int64_t panel_depth) {
    const std::int64_t step = panel_depth > 1 ? reader.output(1) - reader.output(0) : 1;
    return matrix_view<const Acc>{output + reader.output(0) * t.output_channels + feature, step * t.output_channels, 1};
  };
  std::int64_t depth = depth_from(piece.positions.start);
  readers[0].place(piece.positions.start, depth);
  int which = 0;
  for (std::int64_t first = piece.positions.start; first < stop;) {
    window_reader<T>& reader = readers[which];
    window_reader<T>& following = readers[1 - which];
    const std::int64_t next_depth = depth_from(first + depth);
    following.place(first + depth, next_depth);
    panel_product<Acc> product(depth, piece.width, rows_of(reader, depth), &panel[0], &strip[0]);
    std::int64_t turned_to = -1;
    for (std::int64_t s = piece.first; s < piece.last; ++s) {
      const interval columns = strips(s, sizes::rows);
      for (std::int64_t at = columns.start / line * line; at < columns.start + columns.size; at += line) {
        if (at != turned_to) reader.look(at / line, 0, depth);
        turned_to = at;
        const std::int64_t begin = larger_of(columns.start, at);
        const std::int64_t end = smaller_of(columns.start + columns.size, at + line);
        Acc* const to = &strip[begin - columns.start];
        for (std::int64_t i = 0; i < depth; ++i) reader.read(i, begin - at, end - at, to + i * sizes::rows);
      }
      const std::int64_t from = next_depth * (s - piece.first) / count;
      const std::int64_t share = next_depth * (s - piece.first + 1) / count - from;
      if (share > 0) {
        product.announce_rows(rows_of(following, next_depth).at(from, 0), share, piece.width);
        if constexpr (std::is_same_v<T, Acc>) {
          const std::int64_t step = share > 1 ? following.last_seen(from + 1) - following.last_seen(from) : 0;
          product.announce_more({following.last_seen(from), step, 1}, share, t.c);
        }
      }
      product.template multiply_written<strip_layout::columns>(columns.size, Acc(1), adds ? Acc(1) : Acc(0),
                                                               filter + rows.row(t, columns.start) * features + feature,
                                                               features);
    }
    adds = true;
    first += depth;
    depth = next_depth;
    which = 1 - which;
  }
}

/// The number of chunks of positions in which a filter's gradient is summed, so that threads do not all read all of
/// them: more than one for small filters and many positions. It does not depend on the number of threads, or sums would
/// differ.
[[nodiscard]] constexpr std::int64_t parts_of_filter_gradient(const extents& filter, const extents& output) {
  constexpr std::int64_t most_elements = 1 << 17;
  constexpr std::int64_t least_positions = 8192;
  const std::int64_t positions = output.product(0, output.rank - 1);
  return filter.elements() <= most_elements && positions >= least_positions ? 8 : 1;
}

/// One phase. Every element's sum has the same order however the work is cut: in that of images and positions, in so
/// many `parts`, of which all but the first are in `others` until the end.
template <class T, class Acc>
void filter_gradient_phase(const convolution_task& t, const T* input, const Acc* output, const filter_rows& rows,
                           std::int64_t features, bool adds, Acc* filter, std::int64_t parts, Acc* others) {
  const std::int64_t strips = filter_strips(t, rows, tile_sizes<Acc>::rows).count();
  const std::int64_t positions = t.positions();
  const std::int64_t elements = t.all_filter_taps() * rows.channels * features;
  const std::int64_t work = convolution_work(t);
  const std::int64_t threads = threads_for(parts * strips * t.groups * t.f, work);
  const std::int64_t width = piece_width<Acc>(t.f, parts * strips * t.groups, threads);
  const std::int64_t widths = (t.f + width - 1) / width;
  parallel_ranges(parts * strips * widths * t.groups, work, [&](std::int64_t from, std::int64_t to) {
    while (from < to) {
      const std::int64_t beside = from / strips;
      const std::int64_t first = from % strips;
      const std::int64_t last = smaller_of(strips, first + to - from);
      const std::int64_t feature = beside % widths * width;
      const std::int64_t part = beside / widths / t.groups;
      const std::int64_t start = positions * part / parts;
      const filter_piece piece{beside / widths % t.groups,
                               first,
                               last,
                               feature,
                               smaller_of(width, t.f - feature),
                               {start, positions * (part + 1) / parts - start}};
      filter_gradient_piece(t, input, output, rows, features, piece, part == 0 && adds,
                            part == 0 ? filter : others + (part - 1) * elements);
      from += last - first;
    }
  });
  if (parts == 1) return;
  parallel_ranges(elements, elements * parts, [=](std::int64_t from, std::int64_t to) {
    for (std::int64_t part = 1; part < parts; ++part) {
      const Acc* const more = others + (part - 1) * elements;
      vector_loop(to - from, [=](std::int64_t i) { filter[from + i] += more[from + i]; });
    }
  });
}

/// filter = columns^T * output: [taps, channels, features], summed over images and positions, always in the same order.
/// @param others room for the sums of all but one of so many `parts`
template <class T, class Acc>
void convolve_for_filter(const convolution_task& t, const T* input, const Acc* output, std::int64_t channels,
                         std::int64_t features, Acc* filter, std::int64_t parts, Acc* others) {
  // A tap belongs to one phase at most: what no position sees, and what several phases add to, begins with zeros.
  const bool adds = t.phases() > 1 || t.phase(0).taps() != t.taps() || t.positions() == 0;
  if (adds) fill_elements(filter, filter + t.taps() * channels * features, Acc(0));
  const filter_rows rows{channels};
  for (std::int64_t p = 0; p < t.phases(); ++p) {
    const convolution_task one = t.phase(p);
    if (one.positions() == 0 || one.columns() == 0 || one.f == 0) continue;
    if (is_depthwise(one)) {
      filter_gradient_of_channels(one, input, output, rows, adds, filter);
    } else {
      // A part without a position would leave its sums unwritten.
      const std::int64_t some = adds || one.positions() < parts ? 1 : parts;
      filter_gradient_phase(one, input, output, rows, features, adds, filter, some, others);
    }
  }
}

}  // namespace espalier::detail
