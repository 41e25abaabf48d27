// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/convolution/plane.hpp>
#include <espalier/kernels/gemm.hpp>
#include <espalier/kernels/parallel.hpp>
#include <espalier/kernels/transpose.hpp>
#include <espalier/ops/convolution.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// A convolution is a product of matrices: rows are output positions, and a row has what the taps see of the input,
// zeros where that lies outside. That matrix is never made: strips of it are read straight from the input into the form
// in which the micro-kernel of the matrix product (kernels/gemm.hpp) wants them.

namespace espalier::detail {

/// Columns [first, first + depth) of a phase, which are neighbours in the filter from `row` on.
struct column_panel {
  std::int64_t first = 0;
  std::int64_t depth = 0;
  std::int64_t row = 0;
};

/// The next panel: what a product sums over at once. Panels are of about equal depth.
[[nodiscard]] inline column_panel panel_from(const convolution_task& t, const filter_rows& rows, std::int64_t first,
                                             std::int64_t most) {
  constexpr std::int64_t grain = 16;
  const std::int64_t left = rows.is_one_run(t) ? t.columns() - first : t.c - first % t.c;
  const std::int64_t pieces = (left + most - 1) / most;
  const std::int64_t depth = ((left + pieces - 1) / pieces + grain - 1) / grain * grain;
  return {first, std::min({depth, left, most}), rows.row(t, first)};
}

/// Columns [0, features) in pieces of whole tiles that are about equal, at least so many that `items` of them below
/// each other are enough for the threads.
template <class Acc>
[[nodiscard]] std::int64_t piece_width(std::int64_t features, std::int64_t items, std::int64_t threads) {
  using sizes = tile_sizes<Acc>;
  const std::int64_t tiles = (features + sizes::columns - 1) / sizes::columns;
  const std::int64_t needed = (features + sizes::width - 1) / sizes::width;
  const std::int64_t wanted = std::max(needed, std::min(tiles, (threads + items - 1) / items));
  return (tiles + wanted - 1) / wanted * sizes::columns;
}

/// Multiply-adds, in elements of simple work (`parallel_ranges`).
[[nodiscard]] inline std::int64_t convolution_work(const convolution_task& t) {
  return t.positions() * t.groups * t.f * t.columns() / 8;
}

/// Few features: each is a sum of products along the strip's rows, several at a time.
template <class Acc> class few_features {
 public:
  static constexpr std::int64_t most = 4;
  using sizes = tile_sizes<Acc>;

  /// Rows of `features` elements, `step` apart.
  void load(const Acc* filter, std::int64_t depth, std::int64_t step, std::int64_t features) {
    depth_ = depth;
    features_ = features;
    for (std::int64_t q = 0; q < features; ++q) {
      for (std::int64_t p = 0; p < depth; ++p) weight_[q][p] = filter[p * step + q];
      for (std::int64_t p = depth; p < (depth + lane_count - 1) / lane_count * lane_count; ++p) weight_[q][p] = Acc(0);
    }
  }
  /// to[q] (+)= the sum over a row, @pre zeros behind it up to a whole vector.
  void multiply(const Acc* row, bool adds, Acc* to) const {
    switch (features_) {
      case 1: return sums<1>(row, adds, to);
      case 2: return sums<2>(row, adds, to);
      case 3: return sums<3>(row, adds, to);
      default: return sums<4>(row, adds, to);
    }
  }
  /// Zeros behind a row of a strip.
  void end(Acc* row) const {
    for (std::int64_t p = depth_; p % lane_count != 0; ++p) row[p] = Acc(0);
  }

 private:
  static constexpr int lane_count = full_lanes<Acc>;
  static_assert(sizes::depth % lane_count == 0);

  template <int Features> void sums(const Acc* row, bool adds, Acc* to) const {
    using vector = lanes<Acc, lane_count>;
    vector sum[Features][2] = {};
    std::int64_t p = 0;
    for (; p + 2 * lane_count <= depth_; p += 2 * lane_count) {
      const vector left = load_lanes<Acc, lane_count>(row + p);
      const vector right = load_lanes<Acc, lane_count>(row + p + lane_count);
      ESPALIER_UNROLL
      for (int q = 0; q < Features; ++q) {
        sum[q][0] += left * load_lanes<Acc, lane_count>(&weight_[q][p]);
        sum[q][1] += right * load_lanes<Acc, lane_count>(&weight_[q][p + lane_count]);
      }
    }
    for (; p < depth_; p += lane_count) {
      const vector left = load_lanes<Acc, lane_count>(row + p);
      for (int q = 0; q < Features; ++q) sum[q][0] += left * load_lanes<Acc, lane_count>(&weight_[q][p]);
    }
    for (int q = 0; q < Features; ++q) {
      const Acc all = sum_of_lanes<lane_count>(sum[q][0] + sum[q][1]);
      to[q] = adds ? to[q] + all : all;
    }
  }
  template <int Count> [[nodiscard]] static Acc sum_of_lanes(const lanes<Acc, Count>& v) {
    if constexpr (Count == 2) {
      return v[0] + v[1];
    } else {
      constexpr auto all = std::make_index_sequence<static_cast<std::size_t>(Count / 2)>{};
      return sum_of_lanes<Count / 2>(lower_half<Acc, Count>(v, all) + upper_half<Acc, Count>(v, all));
    }
  }

  alignas(64) Acc weight_[most][sizes::depth];
  std::int64_t depth_ = 0;
  std::int64_t features_ = 0;
};

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
      const std::int64_t count = std::min<std::int64_t>(sizes::rows, piece.last - first);
      if constexpr (std::is_same_v<T, Acc>) {
        if (plain) {
          const std::int64_t step = t.plain_step();
          const matrix_view<const T> rest{input + piece.group * t.c + t.plain_start() + first * step + k, step, 1};
          const std::int64_t next = std::min<std::int64_t>(sizes::rows, piece.last - first - count);
          if (next > 0) product.announce(rest.at(count, 0), next);
          const std::int64_t out_step = t.axis[t.spatial - 1].output_step * t.output_channels;
          product.multiply(rest, count, Acc(1), keep, out + t.first_output * t.output_channels + first * out_step,
                           out_step);
          continue;
        }
      }
      const std::int64_t start = (first - piece.first) % placed;
      if (start == 0) reader.place(first, std::min(placed, piece.last - first));
      for (std::int64_t at = k / line * line; at < k + columns.depth; at += line) {
        reader.look(at / line, start, count);
        const std::int64_t begin = std::max(k, at);
        const std::int64_t end = std::min(k + columns.depth, at + line);
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
        // What the next strip is the first to see.
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
  // What is written stays in the second-level cache from one panel to the next; there are as many pieces for each
  // thread.
  constexpr std::int64_t most_written = 384 * 1024 / static_cast<std::int64_t>(sizeof(Acc));
  const std::int64_t most_strips = std::max<std::int64_t>(most_written / (width * sizes::rows), 16);
  const std::int64_t pieces =
      ((strips + most_strips - 1) / most_strips + share.threads - 1) / share.threads * share.threads;
  const std::int64_t blocks = std::min(pieces, strips);
  const interval mine = share.of(blocks * widths * t.groups);
  for (std::int64_t item = mine.start; item < mine.start + mine.size; ++item) {
    const std::int64_t beside = item / blocks;
    const std::int64_t first = strips * (item % blocks) / blocks * sizes::rows;
    const std::int64_t last = std::min(strips * (item % blocks + 1) / blocks * sizes::rows, positions);
    const std::int64_t feature = beside % widths * width;
    convolve_piece(t, input, filter, rows, features,
                   {beside / widths, first, last, feature, std::min(width, t.f - feature)}, output);
  }
}

/// Zeros to the positions of a phase that sees nothing.
template <class Acc> void clear_phase(const convolution_task& t, Acc* output, const thread_share& share) {
  constexpr std::int64_t some = window_reader<Acc>::most;
  const interval mine = share.of(t.positions());
  window_reader<Acc> reader(t, nullptr, 0, false);
  for (std::int64_t done = 0; done < mine.size; done += some) {
    const std::int64_t count = std::min(some, mine.size - done);
    reader.place(mine.start + done, count);
    for (std::int64_t i = 0; i < count; ++i) {
      Acc* const out = output + reader.output(i) * t.output_channels;
      std::fill(out, out + t.groups * t.f, Acc(0));
    }
  }
}

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
    const std::int64_t count = std::min(strip, mine.size - done);
    reader.place(mine.start + done, count);
    for (std::int64_t tap = 0; tap < taps; tap += most_taps) {
      const std::int64_t some = std::min(most_taps, taps - tap);
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

/// output = columns * filter. `filter` is [taps, channels, features], the features of a group neighbours.
/// @param in_order whether its taps are in the order in which phases have them
template <class T, class Acc>
void convolve(const convolution_task& t, const T* input, const Acc* filter, std::int64_t channels,
              std::int64_t features, bool in_order, Acc* output) {
  const std::int64_t elements = t.positions() * t.groups * t.f;
  const std::int64_t work = std::max(elements, convolution_work(t) / t.phases());
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
    return {strip / in_run * run + within, std::min(most, run - within)};
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
  const std::int64_t behind = piece.positions.start + piece.positions.size;
  const std::int64_t feature = piece.group * t.f + piece.feature;
  const filter_strips strips(t, rows, sizes::rows);
  const std::int64_t count = piece.last - piece.first;
  // Equal parts of the run that a position is in.
  const auto depth_from = [=](std::int64_t first) {
    const std::int64_t left = std::min(run - first % run, behind - first);
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
  for (std::int64_t first = piece.positions.start; first < behind;) {
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
        const std::int64_t begin = std::max(columns.start, at);
        const std::int64_t end = std::min(columns.start + columns.size, at + line);
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

/// In how many parts a filter's gradient is summed over positions, so that threads do not all read all of them: of
/// small filters and many positions. The number of threads has no say in it, or sums would differ.
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
      const std::int64_t last = std::min(strips, first + to - from);
      const std::int64_t feature = beside % widths * width;
      const std::int64_t part = beside / widths / t.groups;
      const std::int64_t start = positions * part / parts;
      const filter_piece piece{beside / widths % t.groups,
                               first,
                               last,
                               feature,
                               std::min(width, t.f - feature),
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
      const std::int64_t count = std::min(some, positions - first);
      const bool keeps = adds || first > 0;
      reader.place(first, count);
      for (std::int64_t item = from; item < to; ++item) {
        const std::int64_t tap = item / blocks;
        if (item == from || item % blocks == 0) reader.look(tap, 0, count);
        const std::int64_t start = item % blocks * block;
        Acc* const sums = filter + rows.row(grouped, tap) * t.c + start;
        const Acc* const y = output + start;
        for_each_run_of_lanes<Acc>(std::min(block, t.c - start), [&](std::int64_t c, auto registers) {
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

/// filter = columns^T * output: [taps, channels, features], summed over images and positions, always in the same order.
/// @param others room for the sums of all but one of so many `parts`
template <class T, class Acc>
void convolve_for_filter(const convolution_task& t, const T* input, const Acc* output, std::int64_t channels,
                         std::int64_t features, Acc* filter, std::int64_t parts, Acc* others) {
  // A tap belongs to one phase at most: what no position sees, and what several phases add to, begins with zeros.
  const bool adds = t.phases() > 1 || t.phase(0).taps() != t.taps() || t.positions() == 0;
  if (adds) std::fill(filter, filter + t.taps() * channels * features, Acc(0));
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

[[nodiscard]] constexpr extents turned_shape(extents filter, std::int64_t groups) {
  std::swap(filter[filter.rank - 2], filter[filter.rank - 1]);
  filter[filter.rank - 2] /= groups;
  filter[filter.rank - 1] *= groups;
  return filter;
}

/// What an input's gradient is convolved with, [taps, features of a group, groups * channels of a group]: features and
/// channels of a group exchanged, taps in reverse order and then in that of the phases of `t`.
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
            transpose_block(plane, std::min(block, f - q), std::min(block, c - i), 0);
          }
        } else {
          for (std::int64_t x = 0; x < std::min(block, f - q); ++x) {
            for (std::int64_t i = 0; i < c; ++i) turned[x * groups * c + i] = element_cast<Acc>(source[i * all + x]);
          }
        }
      }
    });
    to += one.taps() * c * all;
  }
}

template <class To, class From> void convert_all(std::int64_t count, const From* from, To* to) {
  parallel_ranges(count, count, [=](std::int64_t first, std::int64_t last) {
    vector_loop(last - first, [=](std::int64_t i) { to[first + i] = element_cast<To>(from[first + i]); });
  });
}

/// Integers, for which there is no fast library: term by term, modulo 2^32 or 2^64, as `evaluate` orders them.
template <class T, class F>
void convolve_exactly(const kernels::kernel_call& call, const windowed_attributes& attributes, const extents& input,
                      const extents& filter, const extents& output, const tensor_box& input_box,
                      const tensor_box& output_box, std::int64_t count, const F& f) {
  instruction self;
  set_attributes(self, attributes);
  evaluation e;
  e.self = &self;
  e.windows = call.windows;
  auto* const result = static_cast<T*>(call.result);
  std::fill(result, result + count, T{});
  for_each_term_of_convolution(e, input, filter, output, input_box, output_box, f);
}
template <class T, class A, class B> void add_product(T& sum, A a, B b) {
  using word = std::make_unsigned_t<T>;
  sum = static_cast<T>(static_cast<word>(sum) + static_cast<word>(static_cast<word>(a) * static_cast<word>(b)));
}

/// What a kernel's operands and result are, and what products are computed in: of another type, they are converted in
/// scratch.
[[nodiscard]] constexpr dtype product_of(const kernels::kernel_key& key) {
  return product_type(key.operand_type[0], key.operand_type[1], key.type);
}
template <kernels::kernel_key Key> struct convolution_types {
  using first = storage_t<Key.operand_type[0]>;
  using second = storage_t<Key.operand_type[1]>;
  using result = storage_t<Key.type>;
  using product = storage_t<product_of(Key)>;
};

/// Scratch for so many elements of products, and for those of the second operand and of the result that are converted.
[[nodiscard]] constexpr std::int64_t product_bytes(const kernels::kernel_key& key, std::int64_t others, bool second) {
  if (!is_floating(key.type)) return 0;
  const dtype product = product_of(key);
  if (second && key.operand_type[1] != product) others += key.operand_shape[1].elements();
  if (key.type != product) others += key.shape.elements();
  return others * size_of(product);
}

/// Elements of an operand as products have them: where they are, or converted in scratch, whose rest `scratch` is then.
template <class Product, class T>
[[nodiscard]] const Product* as_products(std::int64_t count, const T* from, Product*& scratch) {
  if constexpr (std::is_same_v<T, Product>) {
    return from;
  } else {
    Product* const made = std::exchange(scratch, scratch + count);
    convert_all(count, from, made);
    return made;
  }
}
/// Calls `f(sums)`, which writes a result as products have it.
template <class Product, class T, class F> void with_sums(std::int64_t count, T* result, Product* scratch, const F& f) {
  if constexpr (std::is_same_v<T, Product>) {
    f(result);
  } else {
    f(scratch);
    convert_all(count, scratch, result);
  }
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::convolution> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) { return detail::product_bytes(key, 0, true); }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using types = detail::convolution_types<Key>;
    constexpr extents filter = Key.operand_shape[1];
    constexpr auto attributes = attributes_of<windowed_attributes>(Key);
    const auto* const x = static_cast<const typename types::first*>(call.operand[0]);
    const auto* const w = static_cast<const typename types::second*>(call.operand[1]);
    auto* const y = static_cast<typename types::result*>(call.result);
    if constexpr (!is_floating(Key.type)) {
      detail::convolve_exactly<typename types::result>(
          call, attributes, Key.operand_shape[0], filter, Key.shape, call.boxes->operand[0], call.boxes->result,
          Key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(y[t.output], x[t.input], w[t.filter]); });
    } else {
      const detail::convolution_task task =
          detail::convolution_task_for(call.windows + attributes.first_window, filter, Key.operand_shape[0],
                                       call.boxes->operand[0], Key.shape, call.boxes->result);
      auto* scratch = static_cast<typename types::product*>(call.scratch);
      const auto* const weights = detail::as_products(filter.elements(), w, scratch);
      detail::with_sums(Key.shape.elements(), y, scratch, [&](auto* sums) {
        detail::convolve(task, x, weights, filter[filter.rank - 2], filter[filter.rank - 1], false, sums);
      });
    }
  }
};

template <> struct kernel<&ops::convolution_input_gradient> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    return detail::product_bytes(key, key.operand_shape[1].elements(), false);
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using types = detail::convolution_types<Key>;
    constexpr extents filter = Key.operand_shape[1];
    constexpr auto attributes = attributes_of<windowed_attributes>(Key);
    const auto* const y = static_cast<const typename types::first*>(call.operand[0]);
    const auto* const w = static_cast<const typename types::second*>(call.operand[1]);
    auto* const x = static_cast<typename types::result*>(call.result);
    if constexpr (!is_floating(Key.type)) {
      detail::convolve_exactly<typename types::result>(
          call, attributes, Key.shape, filter, Key.operand_shape[0], call.boxes->result, call.boxes->operand[0],
          Key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(x[t.input], y[t.output], w[t.filter]); });
    } else {
      constexpr int last = filter.rank - 1;
      constexpr std::int64_t groups = detail::groups_of(Key.shape, filter);
      constexpr extents turned = detail::turned_shape(filter, groups);
      placed_window windows[3];
      for (int d = 0; d < filter.rank - 2; ++d) windows[d] = call.windows[attributes.first_window + d].reversed();
      const detail::convolution_task task = detail::convolution_task_for(
          &windows[0], turned, Key.operand_shape[0], call.boxes->operand[0], Key.shape, call.boxes->result);
      auto* const weights = static_cast<typename types::product*>(call.scratch);
      detail::turn_filter(task, filter, groups, w, weights);
      detail::with_sums(Key.shape.elements(), x, weights + filter.elements(), [&](auto* sums) {
        detail::convolve(task, y, weights, turned[last - 1], turned[last], true, sums);
      });
    }
  }
};

template <> struct kernel<&ops::convolution_filter_gradient> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    const std::int64_t others = detail::parts_of_filter_gradient(key.shape, key.operand_shape[1]) - 1;
    return detail::product_bytes(key, others * key.shape.elements(), true);
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using types = detail::convolution_types<Key>;
    constexpr extents filter = Key.shape;
    constexpr auto attributes = attributes_of<windowed_attributes>(Key);
    const auto* const x = static_cast<const typename types::first*>(call.operand[0]);
    const auto* const y = static_cast<const typename types::second*>(call.operand[1]);
    auto* const w = static_cast<typename types::result*>(call.result);
    if constexpr (!is_floating(Key.type)) {
      detail::convolve_exactly<typename types::result>(
          call, attributes, Key.operand_shape[0], filter, Key.operand_shape[1], call.boxes->operand[0],
          call.boxes->operand[1], Key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(w[t.filter], x[t.input], y[t.output]); });
    } else {
      const detail::convolution_task task =
          detail::convolution_task_for(call.windows + attributes.first_window, filter, Key.operand_shape[0],
                                       call.boxes->operand[0], Key.operand_shape[1], call.boxes->operand[1]);
      auto* scratch = static_cast<typename types::product*>(call.scratch);
      constexpr std::int64_t parts = detail::parts_of_filter_gradient(filter, Key.operand_shape[1]);
      const auto* const cotangent = detail::as_products(Key.operand_shape[1].elements(), y, scratch);
      auto* const others = std::exchange(scratch, scratch + (parts - 1) * filter.elements());
      detail::with_sums(Key.shape.elements(), w, scratch, [&](auto* sums) {
        detail::convolve_for_filter(task, x, cotangent, filter[filter.rank - 2], filter[filter.rank - 1], sums, parts,
                                    others);
      });
    }
  }
};

}  // namespace espalier::kernels
