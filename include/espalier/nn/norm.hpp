// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/ops/ops.hpp>

namespace espalier {

namespace emit {

/// x, or with `centred` x minus its mean, divided by the root of the mean of its squares, over the last dimension; in
/// the type that x is computed in.
constexpr int standardise(builder& b, int given, bool centred, double epsilon) {
  const int x = widen(b, given);
  const extents shape = b[x].shape;
  const std::int64_t last = std::int64_t{1} << (shape.rank - 1);
  int from = x;
  if (centred) from = subtract(b, x, broadcast_along(b, mean_over(b, x, last), shape, last));
  const int variance = mean_over(b, multiply(b, from, from), last);
  const int shifted = add(b, variance, constant_like(b, variance, epsilon));
  const int inverse = b.append(ops::rsqrt, b[shifted].type, b[shifted].shape, shifted);
  return normalised(b, ops::standardise, x, from, broadcast_along(b, inverse, shape, last), last, centred);
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
    return failed<why::wrong_rank<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where,
                                                                                                     "layer_norm");
  } else if constexpr (!is_floating(X::type)) {
    return failed<why::operand_is_not_floating<typename X::tensor>>(where, "layer_norm");
  } else if constexpr (X::extent(-1) != Gain::extent(0) || X::extent(-1) != Bias::extent(0)) {
    return failed<why::shape_mismatch<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where,
                                                                                                         "layer_norm");
  } else if constexpr (X::type != Gain::type || X::type != Bias::type) {
    return failed<why::dtype_mismatch<typename X::tensor, typename Gain::tensor, typename Bias::tensor>>(where,
                                                                                                         "layer_norm");
  } else {
    builder& b = *x.owner;
    const pinned_line line(b, where);
    const int normal = emit::standardise(b, x.id, true, epsilon);
    const auto each = [&](const auto& one) {
      return emit::broadcast_to(b, emit::widen(b, detail::operand_of(b, one)), X::shape);
    };
    const int scaled = emit::multiply(b, normal, each(gain));
    const int shifted = emit::add(b, scaled, each(bias));
    return detail::symbol_like<X, typename X::tensor>(x, emit::convert(b, shifted, X::type));
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
    const int normal = emit::standardise(b, x.id, false, epsilon);
    const int each = emit::broadcast_to(b, emit::widen(b, detail::operand_of(b, gain)), X::shape);
    return detail::symbol_like<X, typename X::tensor>(x, emit::convert(b, emit::multiply(b, normal, each), X::type));
  }
}

}  // namespace nn

}  // namespace espalier
