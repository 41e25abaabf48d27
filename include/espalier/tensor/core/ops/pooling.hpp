// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/compare.hpp>
#include <espalier/tensor/core/ops/convolution.hpp>

namespace espalier {

/// The windows of a pooling. Entries beyond the spatial dimensions are ignored.
struct pooling_settings {
  int size[3]{1, 1, 1};
  int stride[3]{1, 1, 1};
  /// Elements before and after the input that do not count.
  int low[3]{};
  int high[3]{};
  int dilation[3]{1, 1, 1};
};

namespace detail {

// Tensors are [n, spatial ..., channels], with a window for each spatial dimension (`windowed_attributes`). The
// gradient of a sum of windows is a sum of windows: the relation of `window` read the other way.

/// Every dimension of every operand passes, through windows or not.
[[nodiscard]] constexpr std::uint32_t spatial_dimensions(const extents& shape) {
  return ((1U << static_cast<unsigned>(shape.rank - 2)) - 1U) << 1U;
}
[[nodiscard]] constexpr std::uint32_t pooling_windows(op_view v, window* of_dimension) {
  const extents& shape = v.self().shape;
  const placed_window* const windows = v.windows + attributes_of<windowed_attributes>(v).first_window;
  for (int d = 1; d < shape.rank - 1; ++d) of_dimension[d] = windows[d - 1].relation();
  return spatial_dimensions(shape);
}
[[nodiscard]] constexpr std::uint32_t all_pooled(op_view v, int /*operand*/, window* of_dimension) {
  return pooling_windows(v, of_dimension);
}
/// Lists the windows of `pool_equal`: x and v are read through them, y is not.
[[nodiscard]] constexpr std::uint32_t equal_windows(op_view v, int k, window* of_dimension) {
  return k == 1 ? 0 : pooling_windows(v, of_dimension);
}
/// Lists the windows of `spread_equal`: y and g are read through them, x is not.
[[nodiscard]] constexpr std::uint32_t spread_windows(op_view v, int k, window* of_dimension) {
  return k == 0 ? 0 : pooling_windows(v, of_dimension);
}

/// Calls `f(to, from)` for every element of the result that this device has and every element of `operand` that its
/// window sees, as positions in the buffers. The result's padding is not visited.
template <class F>
constexpr void for_each_pooled(const extents& result, const tensor_box& result_box, const extents& operand,
                               const tensor_box& operand_box, const placed_window* windows, const F& f) {
  const int last = result.rank - 1;
  std::int64_t taps = 1;
  for (int d = 1; d < last; ++d) taps *= windows[d - 1].size;
  const std::int64_t rows = result.product(0, last);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < taps; ++k) {
      std::int64_t rest = row;
      std::int64_t tap_rest = k;
      std::int64_t from = 0;
      std::int64_t stride = 1;
      bool real = true;
      for (int d = last - 1; d >= 0; --d) {
        const std::int64_t here = rest % result[d];
        rest /= result[d];
        real = real && here < result_box.dim[d].size;
        std::int64_t p = here;
        if (d > 0) {
          const placed_window& w = windows[d - 1];
          const std::int64_t scaled =
              w.stride * (result_box.dim[d].start + here) + w.dilation * (tap_rest % w.size) - w.low;
          tap_rest /= w.size;
          p = scaled / w.base_dilation - operand_box.dim[d].start;
          real = real && scaled >= 0 && scaled % w.base_dilation == 0;
        }
        real = real && p >= 0 && p < operand_box.dim[d].size;
        from += p * stride;
        stride *= operand[d];
      }
      if (!real) continue;
      for (std::int64_t c = 0; c < result_box.dim[last].size; ++c) {
        f(row * result[last] + c, from * operand[last] + c);
      }
    }
  }
}

[[nodiscard]] constexpr const placed_window* windows_of(const evaluation& e) {
  return e.windows + attributes_of<windowed_attributes>(*e.self).first_window;
}

constexpr void evaluate_sum_pool(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_pooled(e.self->shape, e.boxes->result, *e.operand_shape[0], e.boxes->operand[0], windows_of(e),
                  [&](std::int64_t to, std::int64_t from) { e.result[to] += e.operand[0][from]; });
}
constexpr void evaluate_max_pool(const evaluation& e) {
  const double lowest = identity_of(reduction::max);
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = lowest;
  for_each_pooled(e.self->shape, e.boxes->result, *e.operand_shape[0], e.boxes->operand[0], windows_of(e),
                  [&](std::int64_t to, std::int64_t from) {
                    e.result[to] = combine(reduction::max, e.result[to], e.operand[0][from]);
                  });
}
constexpr void evaluate_pool_equal(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_pooled(e.self->shape, e.boxes->result, *e.operand_shape[0], e.boxes->operand[0], windows_of(e),
                  [&](std::int64_t to, std::int64_t from) {
                    if (e.operand[0][from] == e.operand[1][to]) e.result[to] += e.operand[2][from];
                  });
}
constexpr void evaluate_spread_equal(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_pooled(e.self->shape, e.boxes->result, *e.operand_shape[1], e.boxes->operand[1], windows_of(e),
                  [&](std::int64_t to, std::int64_t from) {
                    if (e.operand[0][to] == e.operand[1][from]) e.result[to] += e.operand[2][from];
                  });
}

/// Lanes are more images.
constexpr mapped_value map_images(map_context& c) { return c.merged_into(0); }

constexpr void sum_pool_gradient(gradient_context& c);
constexpr void max_pool_gradient(gradient_context& c);
constexpr void pool_equal_gradient(gradient_context& c);
constexpr void spread_equal_gradient(gradient_context& c);

[[nodiscard]] constexpr std::int64_t pooling_flops(op_view v) {
  const placed_window* const windows = v.windows + attributes_of<windowed_attributes>(v).first_window;
  std::int64_t taps = 1;
  for (int d = 1; d < v.self().shape.rank - 1; ++d) taps *= windows[d - 1].size;
  return v.self().shape.elements() * taps;
}

/// The table entry of a pooling.
[[nodiscard]] constexpr op_info pooling_op(const char* name, void (*evaluate)(const evaluation&),
                                           void (*gradient)(gradient_context&),
                                           std::uint32_t (*windows)(op_view, int, window*)) {
  return {.name = name,
          .spread = propagation::dimensional,
          .facts = {.attributes = "windows:windows"},
          .factors = same_dimensions,
          .gradient = gradient,
          .evaluate = evaluate,
          .flops = pooling_flops,
          .windows = windows,
          .positional = true,
          .map = map_images};
}

}  // namespace detail

namespace ops {
/// The sum of what each window sees.
inline constexpr op_info sum_pool =
    detail::pooling_op("sum_pool", detail::evaluate_sum_pool, detail::sum_pool_gradient, detail::all_pooled);
/// The largest element of each window; a NaN among them wins.
inline constexpr op_info max_pool =
    detail::pooling_op("max_pool", detail::evaluate_max_pool, detail::max_pool_gradient, detail::all_pooled);
/// Operands x, y, v: for each element of y the sum of v where x equals it, in its window.
inline constexpr op_info pool_equal =
    detail::pooling_op("pool_equal", detail::evaluate_pool_equal, detail::pool_equal_gradient, detail::equal_windows);
/// Operands x, y, g: for each element of x the sum of g of the windows whose y it equals. Its windows are reversed.
inline constexpr op_info spread_equal = detail::pooling_op("spread_equal", detail::evaluate_spread_equal,
                                                           detail::spread_equal_gradient, detail::spread_windows);
}  // namespace ops

namespace emit {
/// @param windows as many as there are spatial dimensions
constexpr int pool(builder& b, const op_info& op, const extents& shape, const placed_window* windows, int a, int y = -1,
                   int v = -1) {
  return b.append(with_attributes(builder::make(op, b[a].type, shape, a, y, v),
                                  windowed_attributes{b.add_windows(windows, shape.rank - 2)}));
}
}  // namespace emit

namespace detail {

/// The windows of a pooling read the other way.
struct reversed_windows {
  placed_window of[3]{};
  constexpr reversed_windows(const builder& b, int id) {
    const int first = attributes_of<windowed_attributes>(b[id]).first_window;
    for (int d = 0; d < b[id].shape.rank - 2; ++d) of[d] = b.result().windows[first + d].reversed();
  }
};

constexpr void sum_pool_gradient(gradient_context& c) {
  const reversed_windows back(c.emit, c.id);
  c.give(0, emit::pool(c.emit, ops::sum_pool, c.emit[c.operand(0)].shape, &back.of[0], c.cotangent));
}
/// Equal elements share the cotangent, as those of a maximum do.
constexpr void max_pool_gradient(gradient_context& c) {
  const int x = c.operand(0);
  const reversed_windows back(c.emit, c.id);
  const reversed_windows forth = [&] {
    reversed_windows w = back;
    for (placed_window& one : w.of) one = one.reversed();
    return w;
  }();
  const int one = emit::constant_like(c.emit, x, 1);
  const int ties = emit::pool(c.emit, ops::pool_equal, c.self().shape, &forth.of[0], x, c.id, one);
  const int share = emit::divide(c.emit, c.cotangent, ties);
  c.give(0, emit::pool(c.emit, ops::spread_equal, c.emit[x].shape, &back.of[0], x, c.id, share));
}
/// Gives only operand 2 a cotangent: small changes of the others do not change which elements are equal.
constexpr void pool_equal_gradient(gradient_context& c) {
  const reversed_windows back(c.emit, c.id);
  const int x = c.operand(0);
  c.give(2, emit::pool(c.emit, ops::spread_equal, c.emit[x].shape, &back.of[0], x, c.operand(1), c.cotangent));
}
constexpr void spread_equal_gradient(gradient_context& c) {
  const reversed_windows back(c.emit, c.id);
  const int y = c.operand(1);
  c.give(2, emit::pool(c.emit, ops::pool_equal, c.emit[y].shape, &back.of[0], c.operand(0), y, c.cotangent));
}

[[nodiscard]] constexpr convolution_settings as_convolution(const pooling_settings& s) {
  convolution_settings made;
  for (int d = 0; d < 3; ++d) {
    made.stride[d] = s.stride[d];
    made.low[d] = s.low[d];
    made.high[d] = s.high[d];
    made.dilation[d] = s.dilation[d];
  }
  return made;
}
[[nodiscard]] constexpr extents pooled_shape(const extents& input, const pooling_settings& s) {
  extents result = input;
  for (int d = 0; d < input.rank - 2; ++d) {
    result[d + 1] = windowed_extent(input[d + 1], s.size[d], as_convolution(s), d);
  }
  return result;
}
/// The first spatial dimension whose windows have no element, or overlap their own elements; or -1.
[[nodiscard]] constexpr int without_window(const pooling_settings& s, int spatial) {
  for (int d = 0; d < spatial; ++d) {
    if (s.size[d] < 1) return d;
  }
  return without_step(as_convolution(s), spatial);
}

template <const op_info* Op, pooling_settings Settings, Traced X> constexpr auto pooled(const X& x, source_line where) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (X::rank < 3 || X::rank > 5) {
    return failed<why::wrong_rank<typename X::tensor>>(where, Op->name);
  } else if constexpr (!Numbers<X>) {
    return operand_is_boolean<X>(where, Op->name);
  } else if constexpr (constexpr int d = without_window(Settings, X::rank - 2); d >= 0) {
    return failed<why::step_is_not_positive<typename X::tensor, why::dim<d + 1>>>(where, Op->name);
  } else {
    constexpr extents shape = pooled_shape(X::shape, Settings);
    if constexpr (constexpr int small = too_small_for_windows(shape); small >= 0) {
      return failed<why::window_is_larger_than_input<why::dim<small>, typename X::tensor>>(where, Op->name);
    } else {
      placed_window windows[3]{};
      for (int k = 0; k < X::rank - 2; ++k) {
        windows[k] = place_window({Settings.size[k], Settings.stride[k], Settings.low[k], Settings.dilation[k], 1}, k,
                                  0, axis_list{});
      }
      x.owner->at(where);
      return symbol_like<X, tensor_for<X::type, shape>>(x, emit::pool(*x.owner, *Op, shape, &windows[0], x.id));
    }
  }
}

}  // namespace detail

/// Sums, means and maxima of windows that move over the spatial dimensions of [n, spatial ..., channels], one to three
/// of them. Elements outside of the input count as 0 in a sum, not at all in a maximum; a mean divides by the size of
/// the window wherever it is.
/// Errors: `wrong_rank`, `operand_is_boolean`, `step_is_not_positive`, `window_is_larger_than_input`; of the mean
/// `operand_is_not_floating`.
template <pooling_settings Settings, Traced X>
constexpr auto sum_pool(const X& x, source_line where = source_line::current()) {
  return detail::pooled<&ops::sum_pool, Settings>(x, where);
}
template <pooling_settings Settings, Traced X>
constexpr auto max_pool(const X& x, source_line where = source_line::current()) {
  return detail::pooled<&ops::max_pool, Settings>(x, where);
}
template <pooling_settings Settings, Traced X>
constexpr auto mean_pool(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where, "mean_pool");
  } else {
    double elements = 1;
    for (int d = 0; d < X::rank - 2; ++d) elements *= Settings.size[d];
    return detail::binary_of<&ops::multiply>(sum_pool<Settings>(x, where), 1 / elements, where);
  }
}

}  // namespace espalier
