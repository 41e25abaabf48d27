// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/ops.hpp>

/// The reasons why these operators refuse a call; see diagnostics/reasons.hpp.
namespace espalier::why {

template <class... Details> struct norm_groups_do_not_divide {
  template <class Where> struct raise {
    static_assert(Where::ok,
                  "group_norm: the number of groups must divide the channels, the last dimension. As many groups as "
                  "channels give an instance norm.");
  };
};

}  // namespace espalier::why

namespace espalier {

namespace emit {

/// x, or with `centred` x minus its mean, divided by the root of the mean of its squares, over the dimensions in the
/// bit set `dims`; in the type that x is computed in.
constexpr int standardise(builder& b, int given, std::int64_t dims, bool centred, double epsilon) {
  const int x = widen(b, given);
  const extents shape = b[x].shape;
  int from = x;
  if (centred) from = subtract(b, x, broadcast_along(b, mean_over(b, x, dims), shape, dims));
  const int variance = mean_over(b, multiply(b, from, from), dims);
  const int shifted = add(b, variance, constant_like(b, variance, epsilon));
  const int inverse = b.append(ops::rsqrt, b[shifted].type, b[shifted].shape, shifted);
  return normalised(b, ops::standardise, x, from, broadcast_along(b, inverse, shape, dims), dims, centred);
}

/// `normal` times gain, plus bias unless that is -1, rounded to `type`. Gain and bias lie along its last dimensions.
constexpr int scaled_and_shifted(builder& b, int normal, int gain, int bias, dtype type) {
  const extents shape = b[normal].shape;
  int made = multiply(b, normal, broadcast_to(b, widen(b, gain), shape));
  if (bias >= 0) made = add(b, made, broadcast_to(b, widen(b, bias), shape));
  return convert(b, made, type);
}

}  // namespace emit

namespace detail {

/// All dimensions but the last, as a bit set.
template <class X> inline constexpr std::int64_t all_but_last = (std::int64_t{1} << (X::rank - 1)) - 1;

/// Calls make(builder, gain, bias), which returns a value like x, unless the shapes or types of x [..., width],
/// gain [width] and bias [width] do not fit. `least` is the least rank of x.
template <int Least, Traced X, Traced Gain, Traced Bias, class Make>
constexpr auto with_gain_and_bias(const X& x, const Gain& gain, const Bias& bias, source_line where, const char* op,
                                  const Make& make) {
  if constexpr (Failed<X> || Failed<Gain> || Failed<Bias>) {
    return first_failure(x, gain, bias);
  } else if constexpr (X::rank < Least || Gain::rank != 1 || Bias::rank != 1) {
    return failed<why::wrong_rank<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where, op);
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where, op);
  } else if constexpr (X::extent(-1) != Gain::extent(0) || X::extent(-1) != Bias::extent(0)) {
    return failed<why::shape_mismatch<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where, op);
  } else if constexpr (X::type != Gain::type || X::type != Bias::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where, op);
  } else {
    builder& b = *x.owner;
    const pinned_line line(b, where);
    using on = operands_mesh<X, Gain, Bias>;
    return symbol_like<X, typename X::tensor>(x, make(b, operand_on<on>(b, gain), operand_on<on>(b, bias)), gain, bias);
  }
}

}  // namespace detail

namespace nn {

/// The number that is added to a variance before it divides.
inline constexpr double norm_epsilon = 1e-5;

/// Normalises the last dimension to mean 0 and variance 1, then scales and shifts it (Ba et al., arXiv 1607.06450).
/// x [..., width], gain [width], bias [width] -> [..., width]. bf16 and f16 are computed in f32 and rounded once:
/// within a unit in the last place, and so is the gradient. f32 and f64: within 16 roundings of the largest element,
/// times the mean over the deviation where that is larger than 1. All norms are so. Errors: `wrong_rank`,
/// `operand_is_not_floating`, `shape_mismatch`, `dtype_mismatch`.
template <Traced X, Traced Gain, Traced Bias>
constexpr auto layer_norm(const X& x, const Gain& gain, const Bias& bias, double epsilon = norm_epsilon,
                          source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else {
    return detail::with_gain_and_bias<1>(x, gain, bias, where, "layer_norm", [&](builder& b, int scale, int shift) {
      const int normal = emit::standardise(b, x.id, std::int64_t{1} << (X::rank - 1), true, epsilon);
      return emit::scaled_and_shifted(b, normal, scale, shift, X::type);
    });
  }
}

/// Normalises each channel, the last dimension, to mean 0 and variance 1 over all others (Ioffe and Szegedy, arXiv
/// 1502.03167), as in training; then scales and shifts it. x [batch, ..., channels], gain [channels], bias [channels]
/// -> [batch, ..., channels]: of x {{1, 5}, {3, 5}}, gain 1 and bias 0, {{-1, 0}, {1, 0}}. Where the batch is split,
/// the statistics are of all of it: two sums of a number per channel are exchanged. `batch_statistics` are what is
/// averaged over batches for `batch_norm_with`. Errors as for `layer_norm`.
template <Traced X, Traced Gain, Traced Bias>
constexpr auto batch_norm(const X& x, const Gain& gain, const Bias& bias, double epsilon = norm_epsilon,
                          source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return x;
  } else {
    return detail::with_gain_and_bias<2>(x, gain, bias, where, "batch_norm", [&](builder& b, int scale, int shift) {
      const int normal = emit::standardise(b, x.id, detail::all_but_last<X>, true, epsilon);
      return emit::scaled_and_shifted(b, normal, scale, shift, X::type);
    });
  }
}

/// Mean and variance of each channel, the last dimension, over all others: x [batch, ..., channels] -> results of two
/// [channels], in f32 for bf16 and f16. (The variance is the mean of squares, of {1, 3} it is 1.) No gradient is needed
/// of them: `stop_gradient`. Errors: `wrong_rank`, `operand_is_not_floating`.
template <Traced X> constexpr auto batch_statistics(const X& x, source_line where = source_line::current()) {
  if constexpr (Failed<X>) {
    return results(x, x);
  } else if constexpr (X::rank < 2) {
    const failed<why::wrong_rank<typename X::tensor>> made(where, "batch_statistics");
    return results(made, made);
  } else if constexpr (!is_floating(X::type)) {
    const failed<why::operand_is_not_floating<typename X::tensor>> made(where, "batch_statistics");
    return results(made, made);
  } else {
    builder& b = *x.owner;
    const pinned_line line(b, where);
    constexpr std::int64_t dims = detail::all_but_last<X>;
    const int wide = emit::widen(b, x.id);
    const int mean = emit::mean_over(b, wide, dims);
    const int centred = emit::subtract(b, wide, emit::broadcast_along(b, mean, X::shape, dims));
    const int variance = emit::mean_over(b, emit::multiply(b, centred, centred), dims);
    using tensor = tensor_for<facts_of(X::type).accumulate, extents{1, {X::extent(-1)}}>;
    return results(detail::symbol_like<X, tensor>(x, mean), detail::symbol_like<X, tensor>(x, variance));
  }
}

/// Normalises each channel with a mean and a variance that are given, as after training, then scales and shifts it:
/// x [batch, ..., channels], mean, variance, gain and bias [channels] -> [batch, ..., channels]. Mean and variance are
/// of the type that x is computed in: f32 for bf16 and f16. Errors as for `layer_norm`.
template <Traced X, Traced Mean, Traced Variance, Traced Gain, Traced Bias>
constexpr auto batch_norm_with(const X& x, const Mean& mean, const Variance& variance, const Gain& gain,
                               const Bias& bias, double epsilon = norm_epsilon,
                               source_line where = source_line::current()) {
  if constexpr (Failed<X> || Failed<Mean> || Failed<Variance>) {
    return detail::first_failure(x, mean, variance);
  } else if constexpr (X::rank < 2 || Mean::rank != 1 || Variance::rank != 1) {
    return failed<why::wrong_rank<typename X::tensor, typename Mean::tensor, typename Variance::tensor>>(
        where, "batch_norm_with");
  } else if constexpr (X::extent(-1) != Mean::extent(0) || X::extent(-1) != Variance::extent(0)) {
    return failed<why::shape_mismatch<typename X::tensor, typename Mean::tensor, typename Variance::tensor>>(
        where, "batch_norm_with");
  } else if constexpr (Mean::type != facts_of(X::type).accumulate || Variance::type != Mean::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename Mean::tensor, typename Variance::tensor>>(
        where, "batch_norm_with");
  } else {
    return detail::with_gain_and_bias<2>(
        x, gain, bias, where, "batch_norm_with", [&](builder& b, int scale, int shift) {
          const auto each = [&](int one) { return emit::broadcast_to(b, one, X::shape); };
          const int given = detail::operand_of(b, variance);
          const int shifted = emit::add(b, given, emit::constant_like(b, given, epsilon));
          const int inverse = b.append(ops::rsqrt, b[shifted].type, b[shifted].shape, shifted);
          const int centred = emit::subtract(b, emit::widen(b, x.id), each(detail::operand_of(b, mean)));
          return emit::scaled_and_shifted(b, emit::multiply(b, centred, each(inverse)), scale, shift, X::type);
        });
  }
}

/// Normalises `Groups` groups of neighbouring channels of each sample to mean 0 and variance 1, over all dimensions but
/// the first (Wu and He, arXiv 1803.08494), then scales and shifts each channel. x [batch, ..., channels],
/// gain [channels], bias [channels] -> [batch, ..., channels]. With one group it is layer norm over all of a sample,
/// with as many as there are channels instance norm. Errors as for `layer_norm`, and `norm_groups_do_not_divide`.
template <int Groups, Traced X, Traced Gain, Traced Bias>
constexpr auto group_norm(const X& x, const Gain& gain, const Bias& bias, double epsilon = norm_epsilon,
                          source_line where = source_line::current()) {
  constexpr bool divide = [] {
    if constexpr (Failed<X> || Failed<Gain>) {
      return true;
    } else {
      return X::rank < 1 || (Groups > 0 && X::extent(-1) % Groups == 0);
    }
  }();
  if constexpr (Failed<X>) {
    return x;
  } else if constexpr (!divide) {
    return failed<why::norm_groups_do_not_divide<why::count<Groups>, typename X::tensor>>(where);
  } else {
    return detail::with_gain_and_bias<2>(x, gain, bias, where, "group_norm", [&](builder& b, int scale, int shift) {
      extents grouped = X::shape;
      grouped[X::rank - 1] = Groups;
      grouped.append(X::extent(-1) / Groups);
      extents channels;
      channels.append(Groups);
      channels.append(X::extent(-1) / Groups);
      // The statistics are over all dimensions but the first and that of the groups.
      constexpr std::int64_t dims =
          ((std::int64_t{1} << (X::rank + 1)) - 1) & ~std::int64_t{1} & ~(std::int64_t{1} << (X::rank - 1));
      const int normal = emit::standardise(b, emit::reshape(b, x.id, grouped), dims, true, epsilon);
      const int made = emit::scaled_and_shifted(b, normal, emit::reshape(b, scale, channels),
                                                emit::reshape(b, shift, channels), X::type);
      return emit::reshape(b, made, X::shape);
    });
  }
}

/// Divides the last dimension by the root of its mean square, then scales it (Zhang and Sennrich, arXiv 1910.07467).
/// x [..., width], gain [width] -> [..., width]. Errors as for `layer_norm`.
template <Traced X, Traced Gain>
constexpr auto rms_norm(const X& x, const Gain& gain, double epsilon = norm_epsilon,
                        source_line where = source_line::current()) {
  if constexpr (Failed<X> || Failed<Gain>) {
    return detail::first_failure(x, gain);
  } else if constexpr (X::rank < 1 || Gain::rank != 1) {
    return failed<why::wrong_rank<typename X::tensor, typename Gain::tensor>>(where, "rms_norm");
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where, "rms_norm");
  } else if constexpr (X::extent(-1) != Gain::extent(0)) {
    return failed<why::shape_mismatch<typename X::tensor, typename Gain::tensor>>(where, "rms_norm");
  } else if constexpr (X::type != Gain::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename Gain::tensor>>(where, "rms_norm");
  } else {
    builder& b = *x.owner;
    const pinned_line line(b, where);
    const int normal = emit::standardise(b, x.id, std::int64_t{1} << (X::rank - 1), false, epsilon);
    return detail::symbol_like<X, typename X::tensor>(
        x,
        emit::scaled_and_shifted(b, normal, detail::operand_on<detail::operands_mesh<X, Gain>>(b, gain), -1, X::type),
        gain);
  }
}

}  // namespace nn

}  // namespace espalier
