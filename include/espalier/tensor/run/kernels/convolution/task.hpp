// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/ops/convolution.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/lanes.hpp>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>

// The elements that a device's part of a convolution reads and writes. Positions whose taps meet the same elements
// between the input's (base dilation, which an input's gradient has where the convolution has a stride) are a phase:
// one of them is an ordinary convolution with some of the taps, so no zero between two elements is ever multiplied.

namespace espalier::detail {

/// One spatial dimension as this device's buffers see it.
struct convolution_axis {
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t base_dilation = 1;
  std::int64_t taps = 1;
  /// Tap 0 of the first output sees base-dilated input element `offset`, counted from the buffer's first.
  std::int64_t offset = 0;
  std::int64_t input = 0;        // elements there are
  std::int64_t output = 0;       // positions there are
  std::int64_t input_step = 0;   // elements from one to the next
  std::int64_t output_step = 0;  // positions of the buffer from one to the next
  std::int64_t first_tap = 0;    // of the filter, and from one to the next
  std::int64_t tap_step = 1;

  [[nodiscard]] std::int64_t phases() const { return base_dilation / std::gcd(stride, base_dilation); }

  /// The positions r, r + phases(), ... alone: they see the taps whose place is a multiple of the base dilation.
  [[nodiscard]] convolution_axis phase(std::int64_t r) const {
    const std::int64_t of_taps = std::gcd(dilation, base_dilation);
    const std::int64_t of_steps = std::gcd(stride, base_dilation);
    const std::int64_t period = base_dilation / of_taps;
    const std::int64_t place = stride * r + offset;
    convolution_axis one = *this;
    one.first_tap = 0;
    while (one.first_tap < period && (place + dilation * one.first_tap) % base_dilation != 0) ++one.first_tap;
    one.tap_step = period;
    const bool none = one.first_tap == period || one.first_tap >= taps;
    one.taps = none ? 0 : (taps - 1 - one.first_tap) / period + 1;
    one.offset = none ? 0 : (place + dilation * one.first_tap) / base_dilation;
    one.dilation = dilation / of_taps;
    one.stride = stride / of_steps;
    one.base_dilation = 1;
    one.output = output > r ? (output - 1 - r) / phases() + 1 : 0;
    one.output_step = output_step * phases();
    return one;
  }
};

/// The tensor that is read through windows (the input of a convolution; the cotangent, in its input's gradient), and
/// its place.
struct convolution_task {
  int spatial = 0;
  convolution_axis axis[3];
  std::int64_t all_taps[3]{};  // of the filter, also in a phase
  std::int64_t images = 0;
  std::int64_t input_image = 0;     // elements from one image to the next
  std::int64_t output_image = 0;    // positions from one image to the next
  std::int64_t first_output = 0;    // the position of the buffer where a phase begins
  std::int64_t input_channels = 0;  // room in the buffer
  std::int64_t output_channels = 0;
  std::int64_t groups = 1;
  std::int64_t c = 0;  // channels of a group that are read
  std::int64_t f = 0;  // features of a group that are written

  [[nodiscard]] std::int64_t taps() const {
    std::int64_t count = 1;
    for (int d = 0; d < spatial; ++d) count *= axis[d].taps;
    return count;
  }
  [[nodiscard]] std::int64_t all_filter_taps() const {
    std::int64_t count = 1;
    for (int d = 0; d < spatial; ++d) count *= all_taps[d];
    return count;
  }
  /// The positions of all images.
  [[nodiscard]] std::int64_t positions() const {
    std::int64_t count = images;
    for (int d = 0; d < spatial; ++d) count *= axis[d].output;
    return count;
  }
  /// Whether a phase has all of the filter's taps.
  [[nodiscard]] bool has_all_taps() const {
    bool all = true;
    for (int d = 0; d < spatial; ++d) all = all && axis[d].taps == all_taps[d];
    return all;
  }
  /// The elements that every position is multiplied with.
  [[nodiscard]] std::int64_t columns() const { return taps() * c; }

  /// Positions that are equally far apart in the output's buffer.
  [[nodiscard]] std::int64_t run() const {
    std::int64_t length = axis[spatial - 1].output;
    std::int64_t end = length * axis[spatial - 1].output_step;
    for (int d = spatial - 2; d >= 0; --d) {
      if (axis[d].output_step != end) return length;
      length *= axis[d].output;
      end *= axis[d].output;
    }
    return output_image == end ? length * images : length;
  }

  [[nodiscard]] std::int64_t phases() const {
    std::int64_t count = 1;
    for (int d = 0; d < spatial; ++d) count *= axis[d].phases();
    return count;
  }
  [[nodiscard]] convolution_task phase(std::int64_t index) const {
    convolution_task one = *this;
    for (int d = spatial - 1; d >= 0; --d) {
      const std::int64_t r = index % axis[d].phases();
      index /= axis[d].phases();
      one.axis[d] = axis[d].phase(r);
      one.first_output += r * axis[d].output_step;
    }
    return one;
  }

  /// The filter's tap that is number `tap` of this phase.
  [[nodiscard]] std::int64_t filter_tap(std::int64_t tap) const {
    std::int64_t at = 0;
    std::int64_t step = 1;
    for (int d = spatial - 1; d >= 0; --d) {
      at += (axis[d].first_tap + tap % axis[d].taps * axis[d].tap_step) * step;
      tap /= axis[d].taps;
      step *= all_taps[d];
    }
    return at;
  }

  /// Whether every position sees one element, and elements are as equally far apart as positions: then the input is the
  /// matrix of columns, with `plain_step` elements from one row to the next, from `plain_start` on.
  [[nodiscard]] bool is_plain() const {
    const std::int64_t count = positions() / images;
    bool plain = taps() == 1 && run() == positions() && (images == 1 || input_image == count * plain_step());
    std::int64_t step = plain_step();
    for (int d = spatial - 1; d >= 0; --d) {
      const convolution_axis& a = axis[d];
      plain = plain && a.offset >= 0 && a.offset + a.stride * (a.output - 1) < a.input;
      plain = plain && (a.output == 1 || a.stride * a.input_step == step);
      step *= a.output;
    }
    return plain;
  }
  [[nodiscard]] std::int64_t plain_step() const { return axis[spatial - 1].stride * axis[spatial - 1].input_step; }
  [[nodiscard]] std::int64_t plain_start() const {
    std::int64_t at = 0;
    for (int d = 0; d < spatial; ++d) at += axis[d].offset * axis[d].input_step;
    return at;
  }

  /// Taps of the innermost dimension that see neighbours are neighbours in memory too: they are read as one line.
  [[nodiscard]] bool joined() const { return axis[spatial - 1].dilation == 1 && c == input_channels; }
  [[nodiscard]] std::int64_t line() const { return joined() ? axis[spatial - 1].taps * c : c; }
};

/// @param windows of each spatial dimension, from the elements of `output` to those of `input`
[[nodiscard]] inline convolution_task convolution_task_for(const placed_window* windows, const extents& filter,
                                                           const extents& input, const tensor_box& input_box,
                                                           const extents& output, const tensor_box& output_box) {
  convolution_task t;
  t.spatial = filter.rank - 2;
  const int last = t.spatial + 1;
  std::int64_t input_step = input[last];
  std::int64_t output_positions = 1;
  for (int d = t.spatial - 1; d >= 0; --d) {
    const placed_window& w = windows[d];
    convolution_axis& a = t.axis[d];
    a.stride = w.stride;
    a.taps = t.all_taps[d] = filter[d];
    a.dilation = w.dilation;
    a.base_dilation = w.base_dilation;
    a.offset = w.stride * output_box.dim[d + 1].start - w.low - w.base_dilation * input_box.dim[d + 1].start;
    a.input = input_box.dim[d + 1].size;
    a.output = output_box.dim[d + 1].size;
    a.input_step = input_step;
    a.output_step = output_positions;
    input_step *= input[d + 1];
    output_positions *= output[d + 1];
  }
  t.images = smaller_of(input_box.dim[0].size, output_box.dim[0].size);
  t.input_image = input_step;
  t.output_image = output_positions;
  t.input_channels = input[last];
  t.output_channels = output[last];
  // Groups are split evenly or not at all; channels of a single group may be uneven.
  t.groups = groups_of(input, filter);
  t.c = t.groups == 1 ? input_box.dim[last].size : input[last] / t.groups;
  t.f = t.groups == 1 ? output_box.dim[last].size : output[last] / t.groups;
  return t;
}

template <int Count, class T, class Acc> ESPALIER_ALWAYS_INLINE void copy_converted(const T* from, Acc* to) {
  const auto values = load_lanes<Acc, Count>(from);
  std::memcpy(to, &values, sizeof(values));
}
/// A few elements, which a call of the library would take longer for.
template <class T, class Acc> ESPALIER_ALWAYS_INLINE void copy_few(const T* from, std::int64_t count, Acc* to) {
  constexpr int most = full_lanes<Acc>;
  std::int64_t i = 0;
  for (; i + most <= count; i += most) copy_converted<most>(from + i, to + i);
  if constexpr (most > 8) {
    if (i + 8 <= count) {
      copy_converted<8>(from + i, to + i);
      i += 8;
    }
  }
  if constexpr (most > 4) {
    if (i + 4 <= count) {
      copy_converted<4>(from + i, to + i);
      i += 4;
    }
  }
  for (; i < count; ++i) to[i] = element_cast<Acc>(from[i]);
}
template <class Acc> ESPALIER_ALWAYS_INLINE void clear_few(std::int64_t count, Acc* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Acc(0);
}

/// The places of some positions of a phase (@pre no base dilation), and the elements of a line that they see: of one
/// tap, or of the taps of the innermost dimension together.
template <class T> class window_reader {
 public:
  /// Positions at a time.
  static constexpr std::int64_t most = 256;

  window_reader(const convolution_task& t, const T* input, std::int64_t group, bool joined)
      : t_(t), input_(input + group * t.c), joined_(joined) {
    for (int d = 0; d < t.spatial; ++d)
      to_last_tap_ += (t.axis[d].taps - 1) * t.axis[d].dilation * t.axis[d].input_step;
  }

  /// Positions [first, first + count).
  void place(std::int64_t first, std::int64_t count) {
    const int inner = t_.spatial - 1;
    // Mostly the ones after the last ones: divisions take long.
    if (first != next_) {
      image_ = first;
      for (int d = inner; d >= 0; --d) {
        o_[d] = image_ % t_.axis[d].output;
        image_ /= t_.axis[d].output;
      }
    }
    next_ = first + count;
    for (std::int64_t i = 0; i < count;) {
      // As far as the innermost dimension goes.
      position p;
      p.input = image_ * t_.input_image;
      p.output = t_.first_output + image_ * t_.output_image;
      for (int d = 0; d <= inner; ++d) {
        const convolution_axis& a = t_.axis[d];
        p.at[d] = a.stride * o_[d] + a.offset;
        p.input += p.at[d] * a.input_step;
        p.output += o_[d] * a.output_step;
      }
      const convolution_axis& a = t_.axis[inner];
      const std::int64_t some = smaller_of(count - i, a.output - o_[inner]);
      for (const std::int64_t end = i + some; i < end; ++i) {
        at_[i] = p;
        p.at[inner] += a.stride;
        p.input += a.stride * a.input_step;
        p.output += a.output_step;
      }
      o_[inner] += some;
      for (int d = inner; d >= 0 && o_[d] == t_.axis[d].output; --d) {
        o_[d] = 0;
        ++(d == 0 ? image_ : o_[d - 1]);
      }
    }
  }

  /// Turns to a line of positions [start, start + count) of these.
  void look(std::int64_t line, std::int64_t start, std::int64_t count) {
    const int inner = t_.spatial - 1;
    const convolution_axis& a = t_.axis[inner];
    const std::int64_t tap = joined_ ? 0 : line % a.taps;
    std::int64_t shift[3]{};
    std::int64_t step = 0;
    for (std::int64_t rest = joined_ ? line : line / a.taps, d = inner - 1; d >= 0; --d) {
      const convolution_axis& outer = t_.axis[d];
      shift[d] = outer.dilation * (rest % outer.taps);
      rest /= outer.taps;
      step += shift[d] * outer.input_step;
    }
    const std::int64_t along = a.dilation * tap;
    step += along * a.input_step;
    for (std::int64_t i = start; i < start + count; ++i) {
      const position& p = at_[i];
      bool real = true;
      for (int d = 0; d < inner; ++d) real = real & is_within(p.at[d] + shift[d], t_.axis[d].input);
      seen& s = seen_[i];
      s.at = p.input + step;
      if (joined_) {
        s.first = -p.at[inner] * t_.c;
        s.last = real ? s.first + a.input * t_.c : s.first;
      } else {
        s.first = 0;
        s.last = (real & is_within(p.at[inner] + along, a.input)) ? t_.c : 0;
      }
    }
  }

  /// Elements [first, last) of the line that position `i` of them sees; zeros where it sees none.
  template <class Acc>
  ESPALIER_ALWAYS_INLINE void read(std::int64_t i, std::int64_t first, std::int64_t last, Acc* to) const {
    const seen& s = seen_[i];
    const T* const from = input_ + s.at;
    if (s.first <= first && last <= s.last) {
      copy_few(from + first, last - first, to);
      return;
    }
    const std::int64_t begin = clamped(s.first, first, last);
    const std::int64_t end = clamped(s.last, begin, last);
    clear_few(begin - first, to);
    if (begin < end) copy_few(from + begin, end - begin, to + (begin - first));
    clear_few(last - end, to + (end - first));
  }
  /// Channel 0 of what position `i` sees of a line that is one tap, or null.
  [[nodiscard]] const T* tap(std::int64_t i) const {
    const seen& s = seen_[i];
    return s.first < s.last ? input_ + s.at : nullptr;
  }
  /// The place of position `i` in the output's buffer.
  [[nodiscard]] std::int64_t output(std::int64_t i) const { return at_[i].output; }
  /// The place that the last tap of position `i` sees, in the input or beyond: to be prefetched, not read.
  [[nodiscard]] const T* last_seen(std::int64_t i) const { return input_ + at_[i].input + to_last_tap_; }
  /// Whether positions [start, start + count) are equally far apart there.
  [[nodiscard]] bool is_even(std::int64_t start, std::int64_t count) const {
    bool even = true;
    for (std::int64_t i = start + 2; i < start + count; ++i) {
      even = even & (at_[i].output - at_[i - 1].output == at_[start + 1].output - at_[start].output);
    }
    return even;
  }

 private:
  struct position {
    std::int64_t input;  // what tap 0 sees, which need not be there
    std::int64_t at[3];
    std::int64_t output;
  };
  struct seen {
    std::int64_t at;
    std::int64_t first;  // elements [first, last) are in the input
    std::int64_t last;
  };

  [[nodiscard]] ESPALIER_ALWAYS_INLINE static bool is_within(std::int64_t p, std::int64_t extent) {
    return static_cast<std::uint64_t>(p) < static_cast<std::uint64_t>(extent);
  }

  const convolution_task& t_;
  const T* input_;
  bool joined_;
  std::int64_t to_last_tap_ = 0;
  std::int64_t next_ = 0;  // the position after the last, and its place
  std::int64_t image_ = 0;
  std::int64_t o_[3]{};
  position at_[most];
  seen seen_[most];
};

/// The rows of a filter's buffer with which the columns of a phase are multiplied.
struct filter_rows {
  std::int64_t channels = 0;  // room in the buffer
  bool in_order = false;      // whether a phase's taps are neighbours there, `first` being the first of its rows
  std::int64_t first = 0;

  [[nodiscard]] std::int64_t row(const convolution_task& t, std::int64_t column) const {
    const std::int64_t tap = column / t.c;
    return first + (in_order ? tap : t.filter_tap(tap)) * channels + column % t.c;
  }
  [[nodiscard]] bool is_one_run(const convolution_task& t) const {
    return channels == t.c && (in_order || t.has_all_taps());
  }
};

/// One thread of several. Phases write different positions, so threads need not wait for each other between them.
struct thread_share {
  std::int64_t index = 0;
  std::int64_t threads = 1;

  [[nodiscard]] interval of(std::int64_t count) const {
    const std::int64_t first = count * index / threads;
    return {first, count * (index + 1) / threads - first};
  }
};

/// Calls `f(first, width)` for neighbours of which `width` fill several registers, one, or none: sums that do not wait
/// for each other.
template <class Acc, class F> ESPALIER_ALWAYS_INLINE void for_each_run_of_lanes(std::int64_t count, const F& f) {
  constexpr int width = full_lanes<Acc>;
  constexpr int together = 4;
  std::int64_t i = 0;
  for (; i + together * width <= count; i += together * width) f(i, std::integral_constant<int, together>{});
  for (; i + width <= count; i += width) f(i, std::integral_constant<int, 1>{});
  for (; i < count; ++i) f(i, std::integral_constant<int, 0>{});
}

}  // namespace espalier::detail
