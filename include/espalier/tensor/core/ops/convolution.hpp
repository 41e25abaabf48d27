// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/base/light_std/extremes.hpp>
#include <espalier/tensor/core/graph/mapping.hpp>
#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/reasons/convolution.hpp>
#include <espalier/tensor/core/ops/reshape.hpp>
#include <espalier/tensor/core/ops/slice.hpp>
#include <espalier/tensor/core/ops/transpose.hpp>

namespace espalier {

/// The movement of a filter over an input. Entries beyond the spatial dimensions are ignored.
struct convolution_settings {
  int stride[3]{1, 1, 1};
  /// Zeros before and after the input; negative: so many elements are left out.
  int low[3]{};
  int high[3]{};
  /// Distance of the filter's taps, and of the input's elements (zeros in between: a transposed convolution).
  int dilation[3]{1, 1, 1};
  int base_dilation[3]{1, 1, 1};
  /// The filter's taps in reverse order.
  bool reversed[3]{};
  /// Feature groups: the input's channels, and the filters, fall into so many groups that do not see each other. As
  /// many as there are channels: a depthwise convolution.
  int groups = 1;
  /// Batch groups: so many parts of the batch, one after the other, go to as many groups of filters: the result's batch
  /// is so many times smaller, and of its features group g is made of part g alone. (The filter's gradient of a
  /// convolution with feature groups is one with batch groups.)
  int batch_groups = 1;
};

namespace detail {

// One relation, `window`, between an element p of the input, an element o of the output and a tap k of the filter;
// three ops, each with another one of the three as its result and the others contracted:
//
//     convolution         y[n, o, f] = sum over k, c of x[n, p, c] w[k, c, f]
//     input gradient      x[n, p, c] = sum over k, f of y[n, o, f] w[k, c, f]
//     filter gradient     w[k, c, f] = sum over n, o of x[n, p, c] y[n, o, f]
//
// A device that has a shard of a spatial dimension of the result (or, of the filter's gradient, of what is summed over)
// needs of the windowed operand what `needed` says: its own shard, and some elements of its neighbours. Bringing them
// is GSPMD's halo exchange (section 4.4); the partitioner does that for every op with `windows`, and the kernel finds
// in the boxes where its buffers are. Elements outside of the tensor count as zero.
//
// All three ops have the windows of the convolution (`windowed_attributes`). The number of feature groups is that of
// the input's channels over the filter's.

[[nodiscard]] constexpr std::int64_t groups_of(const extents& input, const extents& filter) {
  const std::int64_t channels = filter[filter.rank - 2];
  return channels == 0 ? 1 : input[input.rank - 1] / channels;
}

/// Dimensions of channels: [groups, channels of a group], if there are several groups.
[[nodiscard]] constexpr factor_list channel_factors(factor_rule& rule, std::int64_t groups, int& group,
                                                    std::int64_t channels, factor_kind kind) {
  if (groups == 1) return factor_list(rule.add(channels, kind));
  if (group < 0) group = rule.add(groups);
  return factor_list(group).with(rule.add(channels, kind));
}

/// The three tensors of the relation: [n, spatial ..., c], [taps ..., c of a group, f] and [n, spatial ..., f].
enum class convolved : std::uint8_t { input, filter, output };

/// @param result which of the three the op computes; the other two are its operands, in the order above, but that of
/// the input's gradient has the output's first.
[[nodiscard]] constexpr factor_rule factors_of_convolution(op_view v, convolved result) {
  factor_rule rule;
  const bool to_input = result == convolved::input;
  const bool to_filter = result == convolved::filter;
  const bool to_output = result == convolved::output;
  const extents& of_result = v.self().shape;
  const extents& input = to_input ? of_result : v.operand(0).shape;
  const extents& filter = to_filter ? of_result : v.operand(1).shape;
  const extents& output = to_output ? of_result : v.operand(to_input ? 0 : 1).shape;
  factor_list* const at_input = to_input ? &rule.result[0] : &rule.operand[0][0];
  factor_list* const at_filter = to_filter ? &rule.result[0] : &rule.operand[1][0];
  factor_list* const at_output = to_output ? &rule.result[0] : &rule.operand[to_input ? 0 : 1][0];
  const auto summed_if = [](bool sums) { return sums ? factor_kind::reduce : factor_kind::pass; };
  // The operand that is not read through windows has the factors of positions.
  const extents& positions = to_input ? input : output;
  const std::int64_t groups = groups_of(input, filter);
  const int last = of_result.rank - 1;
  at_input[0] = at_output[0] = factor_list(rule.add(positions[0], summed_if(to_filter)));
  for (int d = 1; d < last; ++d) {
    at_input[d] = at_output[d] = factor_list(rule.add(positions[d], summed_if(to_filter)));
    at_filter[d - 1] = factor_list(rule.add(filter[d - 1], factor_kind::blocked));
  }
  int group = -1;
  const factor_list c = channel_factors(rule, groups, group, filter[last - 1], summed_if(to_output));
  at_input[last] = c;
  at_filter[last - 1] = factor_list(c[c.size() - 1]);
  at_filter[last] = at_output[last] = channel_factors(rule, groups, group, filter[last] / groups, summed_if(to_input));
  return rule;
}
template <convolved Result> [[nodiscard]] constexpr factor_rule convolution_factors(op_view v) {
  return factors_of_convolution(v, Result);
}

/// The first operand is the one that is read through windows: those of the convolution, or of its input's gradient.
template <bool Reversed>
[[nodiscard]] constexpr std::uint32_t convolution_windows(op_view v, int k, window* of_dimension) {
  const int spatial = v.self().shape.rank - 2;
  if (k != 0) return 0;
  const placed_window* const windows = v.windows + attributes_of<windowed_attributes>(v).first_window;
  for (int d = 0; d < spatial; ++d) {
    const placed_window& w = windows[d];
    of_dimension[d + 1] = Reversed ? w.reversed().relation() : w.relation();
  }
  return ((1U << static_cast<unsigned>(spatial)) - 1U) << 1U;
}

// (No templates: clang would instantiate those only at the end of the file, too late for programs, which are
// constants.)
constexpr mapped_value map_to_output(map_context& c);
constexpr mapped_value map_to_input(map_context& c);
constexpr mapped_value map_to_filter(map_context& c);
constexpr void convolution_gradient(gradient_context& c);
constexpr void input_gradient_gradient(gradient_context& c);
constexpr void filter_gradient_gradient(gradient_context& c);

/// One term: positions in the buffers of input, filter and output.
struct convolution_term {
  std::int64_t input = 0;
  std::int64_t filter = 0;
  std::int64_t output = 0;
};

/// Calls `f(term)` for every product that this device adds up: plainly, in the order of output, taps and channels.
template <class F>
constexpr void for_each_term_of_convolution(const evaluation& e, const extents& input, const extents& filter,
                                            const extents& output, const tensor_box& at_input,
                                            const tensor_box& at_output, const F& f) {
  const int spatial = filter.rank - 2;
  const placed_window* const windows = e.windows + attributes_of<windowed_attributes>(*e.self).first_window;
  std::int64_t position = 1;
  std::int64_t taps = 1;
  for (int d = 0; d < spatial; ++d) {
    position *= output[d + 1];
    taps *= filter[d];
  }
  // Groups are split evenly or not at all; the channels of a single one may be split unevenly.
  const std::int64_t groups = groups_of(input, filter);
  const std::int64_t c_count = groups == 1 ? at_input.dim[spatial + 1].size : filter[spatial];
  const std::int64_t f_count = groups == 1 ? at_output.dim[spatial + 1].size : output[spatial + 1] / groups;
  const std::int64_t n_count = smaller_of(at_input.dim[0].size, at_output.dim[0].size);
  for (std::int64_t n = 0; n < n_count; ++n) {
    for (std::int64_t o = 0; o < position; ++o) {
      for (std::int64_t k = 0; k < taps; ++k) {
        std::int64_t input_at = 0;
        std::int64_t output_at = 0;
        bool real = true;
        std::int64_t o_rest = o;
        std::int64_t k_rest = k;
        std::int64_t input_stride = 1;
        std::int64_t output_stride = 1;
        for (int d = spatial - 1; d >= 0; --d) {
          const placed_window& w = windows[d];
          const std::int64_t here = o_rest % output[d + 1];
          const std::int64_t tap = k_rest % filter[d];
          o_rest /= output[d + 1];
          k_rest /= filter[d];
          const std::int64_t scaled = w.stride * (at_output.dim[d + 1].start + here) + w.dilation * tap - w.low;
          const std::int64_t p = scaled / w.base_dilation - at_input.dim[d + 1].start;
          real = real && scaled >= 0 && scaled % w.base_dilation == 0 && p >= 0 && p < at_input.dim[d + 1].size &&
                 here < at_output.dim[d + 1].size;
          input_at += p * input_stride;
          output_at += here * output_stride;
          input_stride *= input[d + 1];
          output_stride *= output[d + 1];
        }
        if (!real) continue;
        for (std::int64_t g = 0; g < groups; ++g) {
          for (std::int64_t c = 0; c < c_count; ++c) {
            for (std::int64_t q = 0; q < f_count; ++q) {
              f(convolution_term{(n * input_stride + input_at) * input[spatial + 1] + g * c_count + c,
                                 (k * filter[spatial] + c) * filter[spatial + 1] + g * f_count + q,
                                 (n * output_stride + output_at) * output[spatial + 1] + g * f_count + q});
            }
          }
        }
      }
    }
  }
}

constexpr void evaluate_convolution(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_term_of_convolution(
      e, *e.operand_shape[0], *e.operand_shape[1], e.self->shape, e.boxes->operand[0], e.boxes->result,
      [&](const convolution_term& t) { e.result[t.output] += e.operand[0][t.input] * e.operand[1][t.filter]; });
}
constexpr void evaluate_input_gradient(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_term_of_convolution(
      e, e.self->shape, *e.operand_shape[1], *e.operand_shape[0], e.boxes->result, e.boxes->operand[0],
      [&](const convolution_term& t) { e.result[t.input] += e.operand[0][t.output] * e.operand[1][t.filter]; });
}
constexpr void evaluate_filter_gradient(const evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) e.result[i] = 0;
  for_each_term_of_convolution(
      e, *e.operand_shape[0], e.self->shape, *e.operand_shape[1], e.boxes->operand[0], e.boxes->operand[1],
      [&](const convolution_term& t) { e.result[t.filter] += e.operand[0][t.input] * e.operand[1][t.output]; });
}

/// Two for each output, tap and channel of a group.
[[nodiscard]] constexpr std::int64_t convolution_flops_of(const extents& filter, const extents& output) {
  return 2 * output.elements() * filter.product(0, filter.rank - 1);
}
[[nodiscard]] constexpr std::int64_t convolution_flops(op_view v) {
  return convolution_flops_of(v.operand(1).shape, v.self().shape);
}
[[nodiscard]] constexpr std::int64_t input_gradient_flops(op_view v) {
  return convolution_flops_of(v.operand(1).shape, v.operand(0).shape);
}
[[nodiscard]] constexpr std::int64_t filter_gradient_flops(op_view v) {
  return convolution_flops_of(v.self().shape, v.operand(1).shape);
}

}  // namespace detail

namespace ops {
/// Operands [n, spatial ..., channels] and [taps ..., channels of a group, features].
inline constexpr op_info convolution{.name = "convolution",
                                     .spread = propagation::dimensional,
                                     .facts = {.adds_up = true, .attributes = "windows:windows"},
                                     .factors = detail::convolution_factors<detail::convolved::output>,
                                     .gradient = detail::convolution_gradient,
                                     .evaluate = detail::evaluate_convolution,
                                     .flops = detail::convolution_flops,
                                     .windows = detail::convolution_windows<false>,
                                     .positional = true,
                                     .map = detail::map_to_output};
/// Operands: the cotangent of a convolution's result, and its filter.
inline constexpr op_info convolution_input_gradient{.name = "convolution_input_gradient",
                                                    .spread = propagation::dimensional,
                                                    .facts = {.adds_up = true, .attributes = "windows:windows"},
                                                    .factors = detail::convolution_factors<detail::convolved::input>,
                                                    .gradient = detail::input_gradient_gradient,
                                                    .evaluate = detail::evaluate_input_gradient,
                                                    .flops = detail::input_gradient_flops,
                                                    .windows = detail::convolution_windows<true>,
                                                    .positional = true,
                                                    .map = detail::map_to_input};
/// Operands: a convolution's input, and the cotangent of its result.
inline constexpr op_info convolution_filter_gradient{.name = "convolution_filter_gradient",
                                                     .spread = propagation::dimensional,
                                                     .facts = {.adds_up = true, .attributes = "windows:windows"},
                                                     .factors = detail::convolution_factors<detail::convolved::filter>,
                                                     .gradient = detail::filter_gradient_gradient,
                                                     .evaluate = detail::evaluate_filter_gradient,
                                                     .flops = detail::filter_gradient_flops,
                                                     .windows = detail::convolution_windows<false>,
                                                     .positional = true,
                                                     .map = detail::map_to_filter};
}  // namespace ops

namespace detail {

/// One of the three ops, with the windows and groups of another, and the type and shape of an operand of that one.
constexpr int convolution_like(builder& b, const op_info& op, int like, int result, int first, int second) {
  return b.append(with_attributes(builder::make(op, b[result].type, b[result].shape, first, second),
                                  attributes_of<windowed_attributes>(b[like])));
}

/// Lanes are more images; where their filters differ, they are groups, each with a filter of its own; where only the
/// filters do, more features.
template <convolved Result> constexpr mapped_value map_convolution(map_context& c) {
  constexpr bool has_filter = Result != convolved::filter;
  if (has_filter && !c.is_mapped(1)) return c.merged_into(0);
  builder& b = c.emit();
  instruction made = c.op().self();
  const int last = made.shape.rank - 1;
  // An operand with lanes before its last dimension, as one of these: channels of the group of each lane.
  const auto merged = [&](int k) {
    const int value = c.operand(k, last);
    extents shape = c.op().operand(k).shape;
    shape[last] *= c.lanes();
    return emit::reshape(b, value, shape);
  };
  const extents& input = Result == convolved::input ? made.shape : c.op().operand(0).shape;
  const extents& filter = has_filter ? c.op().operand(1).shape : made.shape;
  const bool shares_input = Result != convolved::input && !c.is_mapped(0) && groups_of(input, filter) == 1;
  made.operand[0] = shares_input ? c.operand(0) : merged(0);
  made.operand[1] = merged(1);
  const extents split = with_dimension(made.shape, last, c.lanes());
  made.shape[last] *= c.lanes();
  return {emit::reshape(b, b.append(made), split), last};
}
constexpr mapped_value map_to_output(map_context& c) { return map_convolution<convolved::output>(c); }
constexpr mapped_value map_to_input(map_context& c) { return map_convolution<convolved::input>(c); }
constexpr mapped_value map_to_filter(map_context& c) { return map_convolution<convolved::filter>(c); }

constexpr void convolution_gradient(gradient_context& c) {
  const int x = c.operand(0);
  const int w = c.operand(1);
  c.give(0, convolution_like(c.emit, ops::convolution_input_gradient, c.id, x, c.cotangent, w));
  c.give(1, convolution_like(c.emit, ops::convolution_filter_gradient, c.id, w, x, c.cotangent));
}
constexpr void input_gradient_gradient(gradient_context& c) {
  const int y = c.operand(0);
  const int w = c.operand(1);
  c.give(0, convolution_like(c.emit, ops::convolution, c.id, y, c.cotangent, w));
  c.give(1, convolution_like(c.emit, ops::convolution_filter_gradient, c.id, w, c.cotangent, y));
}
constexpr void filter_gradient_gradient(gradient_context& c) {
  const int x = c.operand(0);
  const int y = c.operand(1);
  c.give(0, convolution_like(c.emit, ops::convolution_input_gradient, c.id, x, y, c.cotangent));
  c.give(1, convolution_like(c.emit, ops::convolution, c.id, y, x, c.cotangent));
}

/// Elements of a dimension when its windows lie within the padded input; 0 if not even one does.
[[nodiscard]] constexpr std::int64_t windowed_extent(std::int64_t input, std::int64_t taps,
                                                     const convolution_settings& s, int d) {
  const std::int64_t padded = (input - 1) * s.base_dilation[d] + 1 + s.low[d] + s.high[d];
  const std::int64_t span = (taps - 1) * s.dilation[d] + 1;
  return padded < span ? 0 : (padded - span) / s.stride[d] + 1;
}

[[nodiscard]] constexpr extents convolution_shape(const extents& input, const extents& filter,
                                                  const convolution_settings& s) {
  extents result = input;
  result[0] /= s.batch_groups;
  for (int d = 0; d < filter.rank - 2; ++d) result[d + 1] = windowed_extent(input[d + 1], filter[d], s, d);
  result[result.rank - 1] = filter[filter.rank - 1];
  return result;
}

/// The first spatial dimension without a single window, or -1.
[[nodiscard]] constexpr int too_small_for_windows(const extents& result) {
  for (int d = 1; d < result.rank - 1; ++d) {
    if (result[d] <= 0) return d;
  }
  return -1;
}
/// The first spatial dimension that moves by less than one element, or -1.
[[nodiscard]] constexpr int without_step(const convolution_settings& s, int spatial) {
  for (int d = 0; d < spatial; ++d) {
    if (s.stride[d] < 1 || s.dilation[d] < 1 || s.base_dilation[d] < 1) return d;
  }
  return -1;
}

}  // namespace detail

namespace emit {
/// [groups of n, spatial ..., c] as [n, spatial ..., groups of c]: batch groups are feature groups.
constexpr int batch_groups_as_features(builder& b, int input, int groups) {
  const extents shape = b[input].shape;
  const int last = shape.rank - 1;
  extents split;
  extents merged = shape;
  merged[0] /= groups;
  merged[last] *= groups;
  split.append(groups);
  split.append(merged[0]);
  axis_list order(1);
  for (int d = 1; d < last; ++d) {
    split.append(shape[d]);
    order = order.with(d + 1);
  }
  split.append(shape[last]);
  return reshape(b, transpose(b, reshape(b, input, split), order.with(0).with(shape.rank)), merged);
}

constexpr int convolution(builder& b, int input, int filter, const convolution_settings& s, dtype type) {
  const extents taps = b[filter].shape;
  const int spatial = taps.rank - 2;
  const extents shape = detail::convolution_shape(b[input].shape, taps, s);
  placed_window windows[3]{};
  for (int d = 0; d < spatial; ++d) {
    windows[d] = place_window({taps[d], s.stride[d], s.low[d], s.dilation[d], s.base_dilation[d]}, d, 0, axis_list{});
    if (s.reversed[d]) filter = slice(b, filter, d, taps[d] - 1, taps[d], -1);
  }
  if (s.batch_groups > 1) input = batch_groups_as_features(b, input, s.batch_groups);
  return b.append(with_attributes(builder::make(ops::convolution, type, shape, input, filter),
                                  windowed_attributes{b.add_windows(&windows[0], spatial)}));
}
constexpr int convolution(builder& b, int input, int filter, const convolution_settings& s) {
  return convolution(b, input, filter, s, b[input].type);
}
}  // namespace emit

/// Convolves `input`, [n, spatial ..., channels], with `filter`, [taps ..., channels of a group, features]: result
/// [n, spatial ..., features]. One to three spatial dimensions. (As everywhere in the field, the filter is not reversed
/// unless `Settings.reversed` says so.) A type after the settings is the result's, as of `einsum`:
/// `convolution<convolution_settings{}, dtype::i32>(x, w)` of i8 tensors is i32.
/// Errors: `result_type_cannot_hold_sums`, `wrong_rank`, `dtype_mismatch`, `operand_is_boolean`,
/// `step_is_not_positive`, `groups_do_not_divide`, `batch_groups_do_not_divide`, `channels_differ`,
/// `window_is_larger_than_input`.
template <convolution_settings Settings = convolution_settings{}, dtype... Result, Traced X, Traced W>
constexpr auto convolution(const X& input, const W& filter, source_line where = source_line::current()) {
  if constexpr (Failed<X> || Failed<W>) {
    return detail::first_failure(input, filter);
  } else if constexpr (X::rank < 3 || X::rank > 5 || X::rank != W::rank) {
    return failed<why::wrong_rank<typename X::tensor, typename W::tensor>>(where, "convolution");
  } else if constexpr (sizeof...(Result) == 0 && X::type != W::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename W::tensor>>(where, "convolution");
  } else if constexpr (!detail::Numbers<X, W>) {
    return detail::operand_is_boolean<X, W>(where, "convolution");
  } else if constexpr (!detail::can_hold_products<Result...>(X::type, W::type)) {
    return failed<why::result_type_cannot_hold_sums<tensor_for<detail::asked_type<X::type, Result...>, extents{}>,
                                                    typename X::tensor, typename W::tensor>>(where, "convolution");
  } else if constexpr (constexpr int d = detail::without_step(Settings, X::rank - 2); d >= 0) {
    return failed<why::step_is_not_positive<typename X::tensor, why::dim<d + 1>>>(where, "convolution");
  } else if constexpr (Settings.groups < 1 || X::shape[X::rank - 1] % Settings.groups != 0 ||
                       W::shape[X::rank - 1] % Settings.groups != 0) {
    return failed<why::groups_do_not_divide<why::count<Settings.groups>, typename X::tensor, typename W::tensor>>(
        where);
  } else if constexpr (Settings.batch_groups < 1 || X::shape[0] % Settings.batch_groups != 0 ||
                       W::shape[X::rank - 1] % Settings.batch_groups != 0 ||
                       (Settings.groups > 1 && Settings.batch_groups > 1)) {
    return failed<
        why::batch_groups_do_not_divide<why::count<Settings.batch_groups>, typename X::tensor, typename W::tensor>>(
        where);
  } else if constexpr (X::shape[X::rank - 1] != W::shape[X::rank - 2] * Settings.groups) {
    return failed<why::channels_differ<why::count<Settings.groups>, typename X::tensor, typename W::tensor>>(where);
  } else {
    constexpr extents shape = detail::convolution_shape(X::shape, W::shape, Settings);
    if constexpr (constexpr int small = detail::too_small_for_windows(shape); small >= 0) {
      return failed<why::window_is_larger_than_input<why::dim<small>, typename X::tensor, typename W::tensor>>(
          where, "convolution");
    } else {
      builder& b = *input.owner;
      b.at(where);
      constexpr dtype type = detail::asked_type<X::type, Result...>;
      using on = detail::operands_mesh<X, W>;
      return detail::symbol_like<X, tensor_for<type, shape>>(
          input,
          emit::convolution(b, detail::operand_on<on>(b, input), detail::operand_on<on>(b, filter), Settings, type),
          filter);
    }
  }
}

}  // namespace espalier
