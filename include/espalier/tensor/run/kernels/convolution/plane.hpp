// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/fill.hpp>
#include <espalier/tensor/run/kernels/convolution/task.hpp>

#include <cstdint>
#include <cstring>

// One channel and one feature, as stencils have them: neighbours along the last dimension are computed side by side,
// each a sum over the taps, and nothing is rearranged. Such a sum waits for memory, not for the processor. So several
// neighbouring lines are computed together: what they all see is loaded once, and more is on its way at a time.

namespace espalier::detail {

inline constexpr std::int64_t most_plane_taps = 125;

[[nodiscard]] inline bool is_plane(const convolution_task& t) {
  const convolution_axis& line = t.axis[t.spatial - 1];
  return t.groups == 1 && t.c == 1 && t.f == 1 && t.input_channels == 1 && t.output_channels == 1 && line.stride == 1 &&
         line.output_step == 1 && t.taps() <= most_plane_taps;
}

/// The taps of one dimension, from one that sees `place` on, that are not outside.
[[nodiscard]] inline interval taps_inside(const convolution_axis& a, std::int64_t place, std::int64_t taps) {
  const auto until = [&](std::int64_t end) { return end <= place ? 0 : (end - place + a.dilation - 1) / a.dilation; };
  const std::int64_t first = smaller_of(until(0), taps);
  return {first, larger_of(first, smaller_of(until(a.input), taps)) - first};
}

/// The taps that neighbouring lines of outputs read, so many that they share much of it and their sums fit in
/// registers.
template <class Acc> class plane_taps {
 public:
  static constexpr int most_lines = 3;

  struct tap {
    std::int64_t from;       // elements from what the first tap of the first line sees
    std::int64_t in_line;    // the place along the line, for its first output
    Acc weight[most_lines];  // for each of the lines that see it
  };

  plane_taps(const convolution_task& t, const Acc* filter, const filter_rows& rows)
      : line(t.axis[t.spatial - 1]),
        row(t.spatial > 1 ? t.axis[t.spatial - 2] : single()),
        deep(t.spatial > 2 ? t.axis[0] : single()) {
    for (std::int64_t k = 0; k < t.taps(); ++k) weight_[k] = filter[rows.row(t, k)];
  }
  plane_taps(const plane_taps&) = delete;
  plane_taps& operator=(const plane_taps&) = delete;

  /// Whether several lines see the same lines of the input.
  [[nodiscard]] bool may_be_together() const { return row.stride == row.dilation; }

  /// Turns to so many lines, and to what is inside: planes of those their taps look at, and lines.
  /// @pre lines == 1 or may_be_together()
  void turn_to(int lines, interval planes_inside, interval lines_inside) {
    if (lines == lines_ && are_equal(planes_inside, planes_inside_) && are_equal(lines_inside, lines_inside_)) return;
    lines_ = lines;
    planes_inside_ = planes_inside;
    lines_inside_ = lines_inside;
    for (auto& of_first : part_) fill_elements(&of_first[0], &of_first[0] + most_lines + 1, part{});
    int count = 0;
    for (std::int64_t y = lines_inside.start; y < lines_inside.start + lines_inside.size; ++y) {
      // Line n sees it with tap y - n.
      const std::int64_t first = larger_of<std::int64_t>(0, y - row.taps + 1);
      const std::int64_t last = smaller_of<std::int64_t>(lines, y + 1);
      part& seen = part_[first][last];
      if (seen.begin == seen.end) seen.begin = count;
      for (std::int64_t z = planes_inside.start; z < planes_inside.start + planes_inside.size; ++z) {
        const std::int64_t from = z * deep.dilation * deep.input_step + y * row.dilation * row.input_step;
        for (std::int64_t k = 0; k < line.taps; ++k) {
          const std::int64_t along = k * line.dilation;
          tap& one = taps_[count++];
          one.from = from + along;
          one.in_line = line.offset + along;
          for (std::int64_t n = first; n < last; ++n) {
            one.weight[n - first] = weight_[(z * row.taps + y - n) * line.taps + k];
          }
        }
      }
      seen.end = count;
    }
  }

  /// Calls `f(tap)` for each that lines [first, last), and no others, see.
  template <class F> ESPALIER_ALWAYS_INLINE void for_each(int first, int last, const F& f) const {
    const part seen = part_[first][last];
    for (int n = seen.begin; n < seen.end; ++n) f(taps_[n]);
  }

  // A dimension that there is not has one element and one tap.
  const convolution_axis line;
  const convolution_axis row;
  const convolution_axis deep;

 private:
  struct part {
    int begin = 0;
    int end = 0;
  };

  [[nodiscard]] static bool are_equal(interval a, interval b) { return a.start == b.start && a.size == b.size; }
  [[nodiscard]] static convolution_axis single() {
    convolution_axis one;
    one.input = one.output = 1;
    return one;
  }

  int lines_ = 0;
  interval planes_inside_{};
  interval lines_inside_{};
  part part_[most_lines][most_lines + 1];
  Acc weight_[most_plane_taps];
  tap taps_[most_lines * most_plane_taps];
};

/// The places of lines of outputs, and of the elements that they see.
template <class T, class Acc> struct plane_lines {
  const T* input;
  std::int64_t seen;  // by the first tap of the first line's first output, which need not be there
  Acc* to;
  std::int64_t step;  // from one line to the next
};

/// Outputs of which some tap sees nothing.
template <class T, class Acc>
void convolve_at_border(const plane_taps<Acc>& taps, int lines, const plane_lines<T, Acc>& at, std::int64_t begin,
                        std::int64_t end) {
  for (int n = 0; n < lines; ++n) {
    for (std::int64_t o = begin; o < end; ++o) {
      Acc sum(0);
      for (int first = 0; first <= n; ++first) {
        for (int last = n + 1; last <= lines; ++last) {
          taps.for_each(first, last, [&](const auto& t) {
            const std::int64_t place = t.in_line + o;
            if (place < 0 || place >= taps.line.input) return;
            sum += element_cast<Acc>(at.input[at.seen + t.from + o]) * t.weight[n - first];
          });
        }
      }
      at.to[n * at.step + o] = sum;
    }
  }
}

/// Adds what lines [First, Last), and no others, see.
template <int First, int Last, int Width, int Lines, int Together, class T, class Acc, class Vector>
ESPALIER_ALWAYS_INLINE void add_seen(const plane_taps<Acc>& taps, const plane_lines<T, Acc>& at, std::int64_t o,
                                     Vector (&sum)[Lines][Together]) {
  taps.for_each(First, Last, [&](const auto& t) ESPALIER_ALWAYS_INLINE_BODY {
    const T* const from = at.input + (at.seen + t.from + o);
    ESPALIER_UNROLL
    for (int r = 0; r < Together; ++r) {
      const Vector x = load_lanes<Acc, Width>(from + r * Width);
      ESPALIER_UNROLL
      for (int n = First; n < Last; ++n) sum[n][r] += x * t.weight[n - First];
    }
  });
}
/// So many vectors of each line, from output `o` on, of which every tap sees an element.
template <int Lines, int Together, int Width, class T, class Acc>
ESPALIER_ALWAYS_INLINE void convolve_vectors(const plane_taps<Acc>& taps, const plane_lines<T, Acc>& at,
                                             std::int64_t o) {
  lanes<Acc, Width> sum[Lines][Together] = {};
  add_seen<0, 1, Width>(taps, at, o, sum);
  if constexpr (Lines == 3) {
    add_seen<0, 2, Width>(taps, at, o, sum);
    add_seen<0, 3, Width>(taps, at, o, sum);
    add_seen<1, 2, Width>(taps, at, o, sum);
    add_seen<1, 3, Width>(taps, at, o, sum);
    add_seen<2, 3, Width>(taps, at, o, sum);
  }
  ESPALIER_UNROLL
  for (int n = 0; n < Lines; ++n) {
    Acc* const to = at.to + n * at.step + o;
    ESPALIER_UNROLL
    for (int r = 0; r < Together; ++r) std::memcpy(to + r * Width, &sum[n][r], sizeof(sum[n][r]));
  }
}

template <int Lines, class T, class Acc>
void convolve_lines(const plane_taps<Acc>& taps, const plane_lines<T, Acc>& at) {
  static_assert(Lines == 1 || Lines == 3);
  constexpr int width = full_lanes<Acc>;
  constexpr int few = smaller_of(4, width);
  constexpr int together = 4;
  const convolution_axis& line = taps.line;
  // Between these every tap sees an element.
  const std::int64_t first = clamped<std::int64_t>(-line.offset, 0, line.output);
  const std::int64_t reach = line.offset + line.dilation * (line.taps - 1);
  const std::int64_t last = clamped<std::int64_t>(line.input - reach, first, line.output);
  convolve_at_border(taps, Lines, at, 0, first);
  if (last - first < few) {
    convolve_at_border(taps, Lines, at, first, last);
  } else if (last - first < width) {
    for (std::int64_t o = first; o < last; o += few) {
      convolve_vectors<Lines, 1, few>(taps, at, smaller_of(o, last - few));
    }
  } else {
    std::int64_t o = first;
    // Whole cache lines are written, as far as it goes; before the first and after the last some outputs are computed
    // twice.
    const auto beyond =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at.to + first) / sizeof(Acc) % width);
    if (beyond != 0 && last - first >= 2 * together * width) {
      convolve_vectors<Lines, 1, width>(taps, at, first);
      o += width - beyond;
    }
    for (; o + together * width <= last; o += together * width) convolve_vectors<Lines, together, width>(taps, at, o);
    for (; o < last; o += width) convolve_vectors<Lines, 1, width>(taps, at, smaller_of(o, last - width));
  }
  convolve_at_border(taps, Lines, at, last, line.output);
}

/// A thread's share of a phase.
/// @pre is_plane(t)
template <class T, class Acc>
void convolve_plane(const convolution_task& t, const T* input, const Acc* filter, const filter_rows& rows, Acc* output,
                    const thread_share& share) {
  constexpr int together = plane_taps<Acc>::most_lines;
  plane_taps<Acc> taps(t, filter, rows);
  const convolution_axis& row = taps.row;
  const convolution_axis& deep = taps.deep;
  const interval mine = share.of(t.images * deep.output * row.output);
  const std::int64_t end = mine.start + mine.size;
  for (std::int64_t n = mine.start; n < end;) {
    // The lines of one plane.
    const std::int64_t first = n % row.output;
    const std::int64_t last = smaller_of(row.output, first + end - n);
    const std::int64_t plane = n / row.output % deep.output;
    const std::int64_t image = n / row.output / deep.output;
    const std::int64_t depth = plane * deep.stride + deep.offset;
    const interval planes_inside = taps_inside(deep, depth, deep.taps);
    const std::int64_t seen = image * t.input_image + depth * deep.input_step + taps.line.offset;
    Acc* const to = output + t.first_output + image * t.output_image + plane * deep.output_step;
    for (std::int64_t r = first; r < last;) {
      // Two that are left are computed with the line before, once more.
      if (last - r == together - 1 && r > first && taps.may_be_together()) --r;
      const int lines = last - r >= together && taps.may_be_together() ? together : 1;
      const std::int64_t place = r * row.stride + row.offset;
      taps.turn_to(lines, planes_inside, taps_inside(row, place, row.taps + lines - 1));
      const plane_lines<T, Acc> at{input, seen + place * row.input_step, to + r * row.output_step, row.output_step};
      if (lines == together) {
        convolve_lines<together>(taps, at);
      } else {
        convolve_lines<1>(taps, at);
      }
      r += lines;
    }
    n += last - first;
  }
}

}  // namespace espalier::detail
