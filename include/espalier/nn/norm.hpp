// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/ops/ops.hpp>

namespace espalier {

namespace emit {

/// The mean over the last dimension, which disappears.
constexpr int mean_of_last(builder& b, int x) {
  const int last = b[x].shape.rank - 1;
  return scale(b, reduce_sum(b, x, std::int64_t{1} << last), 1 / static_cast<double>(b[x].shape[last]));
}

/// x divided by the root of the mean of its squares, over the last dimension.
constexpr int divide_by_root_mean_square(builder& b, int x, double epsilon) {
  const int variance = mean_of_last(b, multiply(b, x, x));
  const int shifted = add(b, variance, constant_like(b, variance, epsilon));
  const int inverse = b.append(ops::rsqrt, b[shifted].type, b[shifted].shape, shifted);
  return multiply(b, x, broadcast_along(b, inverse, b[x].shape, std::int64_t{1} << (b[x].shape.rank - 1)));
}

constexpr int minus_mean(builder& b, int x) {
  const int mean = mean_of_last(b, x);
  return subtract(b, x, broadcast_along(b, mean, b[x].shape, std::int64_t{1} << (b[x].shape.rank - 1)));
}

}  // namespace emit

namespace nn {

/// What is added to a variance before it divides.
inline constexpr double norm_epsilon = 1e-5;

/// Normalises the last dimension to mean 0 and variance 1, then scales and shifts it (Ba et al., arXiv 1607.06450).
/// x [..., width], gain [width], bias [width] -> [..., width].
/// Errors: `wrong_rank`, `operand_is_not_floating`, `shape_mismatch`, `dtype_mismatch`.
template <Traced X, Traced Gain, Traced Bias>
constexpr auto layer_norm(const X& x, const Gain& gain, const Bias& bias, double epsilon = norm_epsilon,
                          source_line where = source_line::current()) {
  if constexpr (Failed<X> || Failed<Gain> || Failed<Bias>) {
    return detail::first_failure(x, gain, bias);
  } else if constexpr (X::rank < 1 || Gain::rank != 1 || Bias::rank != 1) {
    return failed<why::wrong_rank<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where);
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where);
  } else if constexpr (X::extent(-1) != Gain::extent(0) || X::extent(-1) != Bias::extent(0)) {
    return failed<why::shape_mismatch<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where);
  } else if constexpr (X::type != Gain::type || X::type != Bias::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where);
  } else {
    builder& b = *x.owner;
    const pinned_line line(b, where);
    const int normal = emit::divide_by_root_mean_square(b, emit::minus_mean(b, x.id), epsilon);
    const int scaled = emit::multiply(b, normal, emit::broadcast_to(b, gain.id, X::shape));
    const int shifted = emit::add(b, scaled, emit::broadcast_to(b, bias.id, X::shape));
    return detail::symbol_like<X, typename X::tensor>(x, shifted);
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
    return failed<why::wrong_rank<typename X::tensor, typename Gain::tensor>>(where);
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where);
  } else if constexpr (X::extent(-1) != Gain::extent(0)) {
    return failed<why::shape_mismatch<typename X::tensor, typename Gain::tensor>>(where);
  } else if constexpr (X::type != Gain::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename Gain::tensor>>(where);
  } else {
    builder& b = *x.owner;
    const pinned_line line(b, where);
    const int normal = emit::divide_by_root_mean_square(b, x.id, epsilon);
    return detail::symbol_like<X, typename X::tensor>(
        x, emit::multiply(b, normal, emit::broadcast_to(b, gain.id, X::shape)));
  }
}

}  // namespace nn

}  // namespace espalier
