// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/kernels/blas.hpp>
#include <espalier/kernels/elementwise.hpp>
#include <espalier/kernels/parallel.hpp>
#include <espalier/ops/convolution.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

// A convolution is a product of matrices: rows are output positions, and a row has what the taps see of the input,
// zeros where that lies outside. The rows of a block of positions, and of a part of the taps, are gathered into the
// second-level cache ("columns") and multiplied from there; nothing larger is ever made.

namespace espalier::detail {

/// One spatial dimension as this device's buffers see it.
struct convolution_axis {
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t base_dilation = 1;
  std::int64_t taps = 1;
  /// Tap 0 of the first output of the buffer sees base-dilated input element `offset`, counted from the buffer's first.
  std::int64_t offset = 0;
  std::int64_t input = 0;        // elements there are
  std::int64_t output = 0;       // positions there are
  std::int64_t output_room = 0;  // in the buffer
  std::int64_t input_step = 0;   // elements from one to the next
};

/// What is read through windows (the input of a convolution; the cotangent, in its input's gradient), and where.
struct convolution_task {
  int spatial = 0;
  convolution_axis axis[3];
  std::int64_t images = 0;
  std::int64_t input_image = 0;     // elements from one image to the next
  std::int64_t output_image = 0;    // positions from one image to the next
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
  /// Positions that are neighbours in the output's buffer, and how many such runs an image has.
  [[nodiscard]] std::int64_t run() const {
    std::int64_t length = 1;
    for (int d = spatial - 1; d >= 0; --d) {
      length *= axis[d].output;
      if (axis[d].output != axis[d].output_room) break;
    }
    return length;
  }
  [[nodiscard]] std::int64_t positions() const {
    std::int64_t count = 1;
    for (int d = 0; d < spatial; ++d) count *= axis[d].output;
    return count;
  }
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
    a.taps = filter[d];
    a.dilation = w.dilation;
    a.base_dilation = w.base_dilation;
    a.offset = w.stride * output_box.dim[d + 1].start - w.low - w.base_dilation * input_box.dim[d + 1].start;
    a.input = input_box.dim[d + 1].size;
    a.output = output_box.dim[d + 1].size;
    a.output_room = output[d + 1];
    a.input_step = input_step;
    input_step *= input[d + 1];
    output_positions *= output[d + 1];
  }
  t.images = std::min(input_box.dim[0].size, output_box.dim[0].size);
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

/// The columns of some positions, in parts.
template <class T, class Acc> class column_gatherer {
 public:
  column_gatherer(const convolution_task& t, const T* input) : t_(t), input_(input) {}

  /// Row r of `to`, `last - first` elements, gets columns [first, last) of position `position + r` of an image: column
  /// k * c + i is channel i of what tap k sees.
  void gather(std::int64_t image, std::int64_t group, std::int64_t position, std::int64_t rows, std::int64_t first,
              std::int64_t last, Acc* to) const {
    const T* const from = input_ + image * t_.input_image + group * t_.c;
    std::int64_t o[3]{};
    for (std::int64_t rest = position, d = t_.spatial - 1; d >= 0; --d) {
      o[d] = rest % t_.axis[d].output;
      rest /= t_.axis[d].output;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      gather_row(from, o, first, last, to + r * (last - first));
      for (int d = t_.spatial - 1; d >= 0; --d) {
        if (++o[d] < t_.axis[d].output) break;
        o[d] = 0;
      }
    }
  }

 private:
  void gather_row(const T* from, const std::int64_t* o, std::int64_t first, std::int64_t last, Acc* to) const {
    const convolution_axis& inner = t_.axis[t_.spatial - 1];
    // Taps of the innermost dimension that see neighbours are neighbours in memory too.
    const bool joined = inner.dilation == 1 && inner.base_dilation == 1 && t_.c == t_.input_channels;
    for (std::int64_t at = first; at < last;) {
      const std::int64_t tap = at / t_.c;
      const std::int64_t within = at % t_.c;
      const std::int64_t tap_inner = tap % inner.taps;
      std::int64_t offset = 0;
      bool real = true;
      for (std::int64_t rest = tap / inner.taps, d = t_.spatial - 2; d >= 0; --d) {
        const convolution_axis& a = t_.axis[d];
        const std::int64_t p = element(a, o[d], rest % a.taps);
        rest /= a.taps;
        real = real && p >= 0;
        offset += p * a.input_step;
      }
      if (real && joined) {
        const std::int64_t line = std::min((inner.taps - tap_inner) * t_.c - within, last - at);
        copy_line(from + offset, inner.stride * o[t_.spatial - 1] + inner.offset + tap_inner, within, line, to);
        at += line;
        to += line;
        continue;
      }
      const std::int64_t count = std::min(t_.c - within, last - at);
      const std::int64_t p = real ? element(inner, o[t_.spatial - 1], tap_inner) : -1;
      if (p >= 0) {
        put(from + offset + p * inner.input_step + within, count, to);
      } else {
        std::fill(to, to + count, Acc(0));
      }
      at += count;
      to += count;
    }
  }

  /// The element of the buffer that a tap sees from a position, or -1.
  [[nodiscard]] static std::int64_t element(const convolution_axis& a, std::int64_t o, std::int64_t tap) {
    const std::int64_t scaled = a.stride * o + a.offset + a.dilation * tap;
    if (scaled < 0) return -1;
    if (a.base_dilation == 1) return scaled < a.input ? scaled : -1;
    const std::int64_t p = scaled / a.base_dilation;
    return p * a.base_dilation == scaled && p < a.input ? p : -1;
  }

  /// `count` elements of a line whose element 0 is channel 0 of p = 0, from channel `within` of element `p` on.
  void copy_line(const T* line, std::int64_t p, std::int64_t within, std::int64_t count, Acc* to) const {
    const std::int64_t begin = p * t_.c + within;
    const std::int64_t end = t_.axis[t_.spatial - 1].input * t_.c;
    const std::int64_t before = std::clamp<std::int64_t>(-begin, 0, count);
    const std::int64_t real = std::clamp<std::int64_t>(end - begin, before, count) - before;
    std::fill(to, to + before, Acc(0));
    put(line + begin + before, real, to + before);
    std::fill(to + before + real, to + count, Acc(0));
  }

  static void put(const T* from, std::int64_t count, Acc* to) {
    if constexpr (std::is_same_v<T, Acc>) {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
    } else {
      vector_loop(count, [=](std::int64_t i) { to[i] = element_cast<Acc>(from[i]); });
    }
  }

  const convolution_task& t_;
  const T* input_;
};

/// Columns in the second-level cache: on the stack of the thread that works.
inline constexpr std::int64_t column_elements = 49152;
/// What a product sums over at once.
inline constexpr std::int64_t column_depth = 256;

/// Rows of columns that a block has, and of them columns at a time.
struct column_blocks {
  std::int64_t depth = 1;
  std::int64_t rows = 1;

  column_blocks(std::int64_t columns, std::int64_t run)
      : depth(std::min(columns, column_depth)), rows(std::min(run, column_elements / depth)) {
    // Blocks of about equal size.
    const std::int64_t blocks = (run + rows - 1) / rows;
    rows = (run + blocks - 1) / blocks;
  }
};

/// Columns [k, k + count) by runs that are neighbours in the filter, whose buffer may have room for more `channels`
/// than there are: `f(first, rows, row)`.
template <class F>
void for_each_filter_run(const convolution_task& t, std::int64_t k, std::int64_t count, std::int64_t channels,
                         const F& f) {
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t tap = (k + i) / t.c;
    const std::int64_t within = (k + i) % t.c;
    const std::int64_t rows = channels == t.c ? count - i : std::min(t.c - within, count - i);
    f(i, rows, tap * channels + within);
    i += rows;
  }
}

/// A run of positions that are neighbours in the output's buffer: where it starts there.
[[nodiscard]] inline std::int64_t start_of_run(const convolution_task& t, std::int64_t position) {
  std::int64_t at = 0;
  std::int64_t step = 1;
  for (std::int64_t d = t.spatial - 1; d >= 0; --d) {
    at += position % t.axis[d].output * step;
    position /= t.axis[d].output;
    step *= t.axis[d].output_room;
  }
  return at;
}

/// output = columns * filter. `filter` is [taps, channels, features], the features of a group neighbours.
template <class T, class Acc>
void convolve(const convolution_task& t, const T* input, const Acc* filter, std::int64_t channels,
              std::int64_t features, Acc* output) {
  const std::int64_t columns = t.taps() * t.c;
  const std::int64_t positions = t.positions();
  if (positions == 0 || t.f == 0 || t.images == 0) return;
  if (columns == 0) {
    // No channel of what is summed over is this device's: its term of the sum is zero.
    std::fill(output, output + t.images * t.output_image * t.output_channels, Acc(0));
    return;
  }
  const column_gatherer<T, Acc> gatherer(t, input);
  const std::int64_t run = t.run();
  const column_blocks block(columns, run);
  const std::int64_t blocks = (run + block.rows - 1) / block.rows;
  const std::int64_t runs = positions / run;
  const std::int64_t items = t.images * runs * blocks * t.groups;
  const std::int64_t work = t.images * positions * t.groups * t.f * columns / 8;
  parallel_ranges(items, work, [&](std::int64_t from, std::int64_t to) {
    alignas(64) Acc part[column_elements];
    for (std::int64_t item = from; item < to; ++item) {
      const std::int64_t group = item % t.groups;
      const std::int64_t first = item / t.groups % blocks * block.rows;
      const std::int64_t r = item / t.groups / blocks % runs;
      const std::int64_t image = item / t.groups / blocks / runs;
      const std::int64_t rows = std::min(block.rows, run - first);
      const std::int64_t at = image * t.output_image + start_of_run(t, r * run) + first;
      Acc* const out = output + at * t.output_channels + group * t.f;
      for (std::int64_t k = 0; k < columns; k += block.depth) {
        const std::int64_t depth = std::min(block.depth, columns - k);
        gatherer.gather(image, group, r * run + first, rows, k, k + depth, &part[0]);
        for_each_filter_run(t, k, depth, channels, [&](std::int64_t i, std::int64_t count, std::int64_t row) {
          const matrix_view<const Acc> a{&part[i], depth, 1};
          const matrix_view<const Acc> b{filter + row * features + group * t.f, features, 1};
          default_backend::gemm(rows, t.f, count, Acc(1), a, b, k + i == 0 ? Acc(0) : Acc(1), out, t.output_channels);
        });
      }
    }
  });
}

/// filter = columns^T * output: [taps, channels, features], summed over images and positions, always in the same order.
template <class T, class Acc>
void convolve_for_filter(const convolution_task& t, const T* input, const Acc* output, std::int64_t channels,
                         std::int64_t features, Acc* filter) {
  const std::int64_t columns = t.taps() * t.c;
  if (columns == 0 || t.f == 0) return;
  const column_gatherer<T, Acc> gatherer(t, input);
  const std::int64_t run = t.run();
  const std::int64_t runs = t.positions() == 0 ? 0 : t.positions() / run;
  // Few columns at a time, so that there is work for several threads.
  const std::int64_t depth = std::clamp<std::int64_t>((columns + 7) / 8, std::min<std::int64_t>(columns, 16), 256);
  const std::int64_t parts = (columns + depth - 1) / depth;
  const std::int64_t most_rows = column_elements / depth;
  const std::int64_t work = t.images * t.positions() * t.groups * t.f * columns / 8;
  parallel_ranges(parts * t.groups, work, [&](std::int64_t from, std::int64_t to) {
    alignas(64) Acc part[column_elements];
    for (std::int64_t item = from; item < to; ++item) {
      const std::int64_t group = item % t.groups;
      const std::int64_t k = item / t.groups * depth;
      const std::int64_t count = std::min(depth, columns - k);
      bool first_block = true;
      for (std::int64_t n = 0; n < t.images * runs; ++n) {
        const std::int64_t r = n % runs;
        const std::int64_t at = n / runs * t.output_image + start_of_run(t, r * run);
        for (std::int64_t first = 0; first < run; first += most_rows) {
          const std::int64_t rows = std::min(most_rows, run - first);
          gatherer.gather(n / runs, group, r * run + first, rows, k, k + count, &part[0]);
          const matrix_view<const Acc> b{output + (at + first) * t.output_channels + group * t.f, t.output_channels, 1};
          for_each_filter_run(t, k, count, channels, [&](std::int64_t i, std::int64_t filter_rows, std::int64_t row) {
            const matrix_view<const Acc> a{&part[i], 1, count};
            default_backend::gemm(filter_rows, t.f, rows, Acc(1), a, b, first_block ? Acc(0) : Acc(1),
                                  filter + row * features + group * t.f, features);
          });
          first_block = false;
        }
      }
      if (!first_block) continue;
      for_each_filter_run(t, k, count, channels, [&](std::int64_t, std::int64_t filter_rows, std::int64_t row) {
        for (std::int64_t i = 0; i < filter_rows; ++i) {
          Acc* const sums = filter + (row + i) * features + group * t.f;
          std::fill(sums, sums + t.f, Acc(0));
        }
      });
    }
  });
}

/// The filter with taps in reverse order, and features and channels of a group exchanged: [taps, features of a group,
/// groups * channels of a group], what an input's gradient is convolved with.
template <class T, class Acc> void turn_filter(const extents& shape, std::int64_t groups, const T* from, Acc* to) {
  const std::int64_t taps = shape.product(0, shape.rank - 2);
  const std::int64_t c = shape[shape.rank - 2];
  const std::int64_t all = shape[shape.rank - 1];
  const std::int64_t f = all / groups;
  parallel_ranges(taps * f, shape.elements(), [=](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const T* const tap = from + (taps - 1 - row / f) * c * all + row % f;
      for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int64_t i = 0; i < c; ++i) to[(row * groups + g) * c + i] = element_cast<Acc>(tap[i * all + g * f]);
      }
    }
  });
}

template <class To, class From> void convert_all(std::int64_t count, const From* from, To* to) {
  parallel_ranges(count, count, [=](std::int64_t first, std::int64_t last) {
    vector_loop(last - first, [=](std::int64_t i) { to[first + i] = element_cast<To>(from[first + i]); });
  });
}

/// Integers, for which there is no fast library: term by term, modulo 2^32 or 2^64, as `evaluate` orders them.
template <class T, class F>
void convolve_exactly(const kernels::kernel_call& call, std::int64_t first_window, const extents& input,
                      const extents& filter, const extents& output, const tensor_box& input_box,
                      const tensor_box& output_box, std::int64_t count, const F& f) {
  instruction self;
  self.attribute[2] = first_window;
  evaluation e;
  e.self = &self;
  e.windows = call.windows;
  auto* const result = static_cast<T*>(call.result);
  std::fill(result, result + count, T{});
  for_each_term_of_convolution(e, input, filter, output, input_box, output_box, f);
}
template <class T> void add_product(T& sum, T a, T b) {
  using word = std::make_unsigned_t<T>;
  sum = static_cast<T>(static_cast<word>(sum) + static_cast<word>(static_cast<word>(a) * static_cast<word>(b)));
}

/// What products are computed in, and whether operands have to be converted first.
template <dtype Type> struct convolution_types {
  using element = storage_t<Type>;
  using product = accumulate_t<element>;
};

/// Scratch for so many elements of products.
[[nodiscard]] constexpr std::int64_t product_bytes(dtype type, std::int64_t elements) {
  return is_floating(type) ? elements * size_of(facts_of(type).accumulate) : 0;
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::convolution> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    if (!is_for_storage(key.type)) return 0;
    return detail::product_bytes(key.type, key.operand_shape[1].elements() + key.shape.elements());
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using types = detail::convolution_types<Key.type>;
    using element = typename types::element;
    constexpr extents filter = Key.operand_shape[1];
    const auto* const x = static_cast<const element*>(call.operand[0]);
    const auto* const w = static_cast<const element*>(call.operand[1]);
    auto* const y = static_cast<element*>(call.result);
    if constexpr (!is_floating(Key.type)) {
      detail::convolve_exactly<element>(
          call, Key.attribute[2], Key.operand_shape[0], filter, Key.shape, call.boxes->operand[0], call.boxes->result,
          Key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(y[t.output], x[t.input], w[t.filter]); });
    } else {
      using product = typename types::product;
      const detail::convolution_task task =
          detail::convolution_task_for(call.windows + Key.attribute[2], filter, Key.operand_shape[0],
                                       call.boxes->operand[0], Key.shape, call.boxes->result);
      constexpr std::int64_t channels = filter[filter.rank - 2];
      constexpr std::int64_t features = filter[filter.rank - 1];
      if constexpr (is_for_storage(Key.type)) {
        auto* const weights = static_cast<product*>(call.scratch);
        auto* const sums = weights + filter.elements();
        detail::convert_all(filter.elements(), w, weights);
        detail::convolve(task, x, weights, channels, features, sums);
        detail::convert_all(Key.shape.elements(), sums, y);
      } else {
        detail::convolve(task, x, w, channels, features, y);
      }
    }
  }
};

template <> struct kernel<&ops::convolution_input_gradient> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    const std::int64_t sums = is_for_storage(key.type) ? key.shape.elements() : 0;
    return detail::product_bytes(key.type, key.operand_shape[1].elements() + sums);
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using types = detail::convolution_types<Key.type>;
    using element = typename types::element;
    constexpr extents filter = Key.operand_shape[1];
    constexpr int last = filter.rank - 1;
    const auto* const y = static_cast<const element*>(call.operand[0]);
    const auto* const w = static_cast<const element*>(call.operand[1]);
    auto* const x = static_cast<element*>(call.result);
    if constexpr (!is_floating(Key.type)) {
      detail::convolve_exactly<element>(
          call, Key.attribute[2], Key.shape, filter, Key.operand_shape[0], call.boxes->result, call.boxes->operand[0],
          Key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(x[t.input], y[t.output], w[t.filter]); });
    } else {
      using product = typename types::product;
      placed_window windows[3];
      for (int d = 0; d < filter.rank - 2; ++d) { windows[d] = call.windows[Key.attribute[2] + d].reversed(); }
      constexpr std::int64_t groups = detail::groups_of(Key.shape, filter);
      constexpr std::int64_t features = filter[last] / groups;
      constexpr std::int64_t channels = filter[last - 1] * groups;
      extents turned = filter;
      turned[last - 1] = features;
      turned[last] = channels;
      const detail::convolution_task task = detail::convolution_task_for(
          &windows[0], turned, Key.operand_shape[0], call.boxes->operand[0], Key.shape, call.boxes->result);
      auto* const weights = static_cast<product*>(call.scratch);
      detail::turn_filter(filter, groups, w, weights);
      if constexpr (is_for_storage(Key.type)) {
        auto* const sums = weights + filter.elements();
        detail::convolve(task, y, weights, features, channels, sums);
        detail::convert_all(Key.shape.elements(), sums, x);
      } else {
        detail::convolve(task, y, weights, features, channels, x);
      }
    }
  }
};

template <> struct kernel<&ops::convolution_filter_gradient> {
  static constexpr std::int64_t scratch_bytes(const kernel_key& key) {
    if (!is_for_storage(key.type)) return 0;
    return detail::product_bytes(key.type, key.operand_shape[1].elements() + key.shape.elements());
  }
  template <kernel_key Key> static void run(const kernel_call& call) {
    using types = detail::convolution_types<Key.type>;
    using element = typename types::element;
    constexpr extents filter = Key.shape;
    constexpr std::int64_t channels = filter[filter.rank - 2];
    constexpr std::int64_t features = filter[filter.rank - 1];
    const auto* const x = static_cast<const element*>(call.operand[0]);
    const auto* const y = static_cast<const element*>(call.operand[1]);
    auto* const w = static_cast<element*>(call.result);
    if constexpr (!is_floating(Key.type)) {
      detail::convolve_exactly<element>(
          call, Key.attribute[2], Key.operand_shape[0], filter, Key.operand_shape[1], call.boxes->operand[0],
          call.boxes->operand[1], Key.shape.elements(),
          [=](const detail::convolution_term& t) { detail::add_product(w[t.filter], x[t.input], y[t.output]); });
    } else {
      using product = typename types::product;
      const detail::convolution_task task =
          detail::convolution_task_for(call.windows + Key.attribute[2], filter, Key.operand_shape[0],
                                       call.boxes->operand[0], Key.operand_shape[1], call.boxes->operand[1]);
      if constexpr (is_for_storage(Key.type)) {
        auto* const cotangent = static_cast<product*>(call.scratch);
        auto* const sums = cotangent + Key.operand_shape[1].elements();
        detail::convert_all(Key.operand_shape[1].elements(), y, cotangent);
        detail::convolve_for_filter(task, x, cotangent, channels, features, sums);
        detail::convert_all(Key.shape.elements(), sums, w);
      } else {
        detail::convolve_for_filter(task, x, y, channels, features, w);
      }
    }
  }
};

}  // namespace espalier::kernels
