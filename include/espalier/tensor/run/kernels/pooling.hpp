// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/base/light_std/fill.hpp>
#include <espalier/tensor/core/ops/pooling.hpp>
#include <espalier/tensor/run/kernels/elementwise.hpp>
#include <espalier/tensor/run/kernels/parallel.hpp>
#include <espalier/tensor/run/kernels/reduce.hpp>
#include <espalier/tensor/run/kernels/typed_kernel.hpp>

#include <cstdint>

namespace espalier::detail {

/// Positions of a pooling's result and what their windows see, as this device's buffers have them.
class pooling_walk {
 public:
  pooling_walk(const extents& result, const tensor_box& result_box, const extents& operand,
               const tensor_box& operand_box, const placed_window* windows)
      : spatial_(result.rank - 2), images_(result_box.dim[0].size), channels_(result_box.dim[spatial_ + 1].size) {
    std::int64_t to = result[spatial_ + 1];
    std::int64_t from = operand[spatial_ + 1];
    for (int d = spatial_; d > 0; --d) {
      const placed_window& w = windows[d - 1];
      axis& a = axis_[d - 1];
      a.count = result_box.dim[d].size;
      a.size = w.size;
      a.stride = w.stride;
      a.dilation = w.dilation;
      a.base = w.base_dilation;
      a.offset = w.stride * result_box.dim[d].start - w.low - w.base_dilation * operand_box.dim[d].start;
      a.held = operand_box.dim[d].size;
      a.to = to;
      a.from = from;
      to *= result[d];
      from *= operand[d];
      rows_ *= a.count;
      taps_ *= a.size;
    }
    to_image_ = to;
    from_image_ = from;
  }

  [[nodiscard]] std::int64_t rows() const { return images_ * rows_; }
  [[nodiscard]] std::int64_t channels() const { return channels_; }
  [[nodiscard]] std::int64_t work() const { return rows() * channels_ * taps_; }

  /// Calls `start(to)` for position `row`, then `f(to, from)` for every element that its window sees: where their
  /// channels begin in the buffers.
  template <class Start, class F> void visit(std::int64_t row, const Start& start, const F& f) const {
    std::int64_t o[3]{};
    std::int64_t rest = row % rows_;
    std::int64_t to = row / rows_ * to_image_;
    const std::int64_t from_image = row / rows_ * from_image_;
    for (int d = spatial_ - 1; d >= 0; --d) {
      o[d] = rest % axis_[d].count;
      rest /= axis_[d].count;
      to += o[d] * axis_[d].to;
    }
    start(to);
    for (std::int64_t k = 0; k < taps_; ++k) {
      std::int64_t from = from_image;
      bool real = true;
      std::int64_t tap = k;
      for (int d = spatial_ - 1; d >= 0; --d) {
        const axis& a = axis_[d];
        const std::int64_t scaled = a.stride * o[d] + a.offset + a.dilation * (tap % a.size);
        tap /= a.size;
        const std::int64_t p = a.base == 1 ? scaled : scaled / a.base;
        real = real && scaled >= 0 && p * a.base == scaled && p < a.held;
        from += p * a.from;
      }
      if (real) f(to, from);
    }
  }

 private:
  struct axis {
    std::int64_t count = 0;
    std::int64_t size = 1;
    std::int64_t stride = 1;
    std::int64_t dilation = 1;
    std::int64_t base = 1;
    std::int64_t offset = 0;
    std::int64_t held = 0;
    std::int64_t to = 0;
    std::int64_t from = 0;
  };

  int spatial_;
  axis axis_[3];
  std::int64_t images_;
  std::int64_t channels_;
  std::int64_t rows_ = 1;
  std::int64_t taps_ = 1;
  std::int64_t to_image_ = 0;
  std::int64_t from_image_ = 0;
};

/// Channels of a position that are summed at a time, on the stack: sums of short formats are kept in long ones.
inline constexpr std::int64_t pooled_channels = 512;

/// Computes, for each position, sums[c] = start, then step(sums[c], to + c, from + c) for all that its window sees, and
/// stores it.
template <class T, class Acc, class Step>
void pool_by(const pooling_walk& walk, Acc start, T* result, const Step& step) {
  parallel_ranges(walk.rows(), walk.work(), [&](std::int64_t first, std::int64_t last) {
    alignas(64) Acc sums[pooled_channels];
    for (std::int64_t row = first; row < last; ++row) {
      for (std::int64_t c = 0; c < walk.channels(); c += pooled_channels) {
        const std::int64_t count = smaller_of(pooled_channels, walk.channels() - c);
        std::int64_t target = 0;
        walk.visit(
            row,
            [&](std::int64_t to) {
              target = to + c;
              fill_elements(&sums[0], &sums[0] + count, start);
            },
            [&](std::int64_t to, std::int64_t from) {
              Acc* const s = &sums[0];
              vector_loop(count,
                          [s, step, to, from, c](std::int64_t i) { s[i] = step(s[i], to + c + i, from + c + i); });
            });
        const Acc* const s = &sums[0];
        T* const out = result + target;
        vector_loop(count, [s, out](std::int64_t i) { out[i] = element_cast<T>(s[i]); });
      }
    }
  });
}

[[nodiscard]] inline pooling_walk walk_for(const kernels::kernel_key& key, const kernels::kernel_call& call,
                                           int windowed) {
  return {key.shape, call.boxes->result, key.operand_shape[windowed], call.boxes->operand[windowed],
          call.windows + attributes_of<windowed_attributes>(key).first_window};
}

/// What kernel sets pool: of operands of one type.
inline constexpr kernels::kernel_types shared_pools[]{
    kernels::of_types(dtype::f32, dtype::f32),   kernels::of_types(dtype::f64, dtype::f64),
    kernels::of_types(dtype::bf16, dtype::bf16), kernels::of_types(dtype::f16, dtype::f16),
    kernels::of_types(dtype::i32, dtype::i32),   kernels::of_types(dtype::i64, dtype::i64),
    kernels::of_types(dtype::u32, dtype::u32),   kernels::of_types(dtype::i8, dtype::i8),
    kernels::of_types(dtype::u8, dtype::u8)};
inline constexpr kernels::kernel_types shared_pool_gradients[]{
    kernels::of_types(dtype::f32, dtype::f32, dtype::f32, dtype::f32),
    kernels::of_types(dtype::f64, dtype::f64, dtype::f64, dtype::f64),
    kernels::of_types(dtype::bf16, dtype::bf16, dtype::bf16, dtype::bf16),
    kernels::of_types(dtype::f16, dtype::f16, dtype::f16, dtype::f16)};

/// Elements of operand 2, each added where operand `Windowed` (0 or 1), seen through a window as operand 2 is, equals
/// the other one at the place of the result.
template <dtype Type, int Windowed>
void add_where_equal(const kernels::kernel_key& key, const kernels::kernel_call& call) {
  using element = storage_t<Type>;
  using acc = accumulator_t<element, reduction::sum>;
  const auto* const seen = static_cast<const element*>(call.operand[Windowed]);
  const auto* const here = static_cast<const element*>(call.operand[1 - Windowed]);
  const auto* const added = static_cast<const element*>(call.operand[2]);
  pool_by(walk_for(key, call, Windowed), acc{}, static_cast<element*>(call.result),
          [=](acc sum, std::int64_t to, std::int64_t from) {
            const bool same = element_cast<acc>(seen[from]) == element_cast<acc>(here[to]);
            return static_cast<acc>(sum + (same ? element_cast<acc>(added[from]) : acc{}));
          });
}

}  // namespace espalier::detail

namespace espalier::kernels {

template <> struct kernel<&ops::sum_pool> : typed_kernel<&ops::sum_pool>, no_scratch {
  static constexpr auto& shared = detail::shared_pools;
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using element = storage_t<Types.type>;
    using acc = detail::accumulator_t<element, reduction::sum>;
    const auto* const x = static_cast<const element*>(call.operand[0]);
    detail::pool_by(detail::walk_for(key, call, 0), acc{}, static_cast<element*>(call.result),
                    [x](acc sum, std::int64_t, std::int64_t from) {
                      return static_cast<acc>(sum + detail::element_cast<acc>(x[from]));
                    });
  }
};

template <> struct kernel<&ops::max_pool> : typed_kernel<&ops::max_pool>, no_scratch {
  static constexpr auto& shared = detail::shared_pools;
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    using element = storage_t<Types.type>;
    using acc = detail::accumulator_t<element, reduction::max>;
    const auto* const x = static_cast<const element*>(call.operand[0]);
    const acc lowest = detail::neutral<acc, element, reduction::max>();
    detail::pool_by(detail::walk_for(key, call, 0), lowest, static_cast<element*>(call.result),
                    [x](acc most, std::int64_t, std::int64_t from) {
                      return detail::combined<reduction::max>(most, detail::element_cast<acc>(x[from]));
                    });
  }
};

template <> struct kernel<&ops::pool_equal> : typed_kernel<&ops::pool_equal>, no_scratch {
  static constexpr auto& shared = detail::shared_pool_gradients;
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    detail::add_where_equal<Types.type, 0>(key, call);
  }
};

template <> struct kernel<&ops::spread_equal> : typed_kernel<&ops::spread_equal>, no_scratch {
  static constexpr auto& shared = detail::shared_pool_gradients;
  template <kernel_types Types> static void run_typed(const kernel_key& key, const kernel_call& call) {
    detail::add_where_equal<Types.type, 1>(key, call);
  }
};

}  // namespace espalier::kernels
