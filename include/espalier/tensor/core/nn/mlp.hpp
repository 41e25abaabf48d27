// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/config.hpp>

#include <espalier/tensor/core/ops/ops.hpp>

namespace espalier::nn {

/// Leaves a tensor as completion lays it out: the placement for models that have none to give.
struct anywhere {
  template <Traced X> constexpr auto operator()(const X& x, source_line = {}) const { return x; }
};

/// x times a matrix, plus a bias: x [..., in] of rank 2 to 4, weight [in, out], bias [out] -> [..., out].
/// Of bf16 and f16, the product is rounded, and so is the sum: within a unit in the last place and a rounding of the
/// largest element.
/// Errors: those of `matmul` and of adding.
template <Traced X, Traced Weight, Traced Bias>
constexpr auto dense(const X& x, const Weight& weight, const Bias& bias, source_line where = source_line::current()) {
  if constexpr (Failed<X> || Failed<Weight> || Failed<Bias>) {
    return detail::first_failure(x, weight, bias);
  } else {
    const pinned_line line(*x.owner, where);
    return detail::binary<&ops::add, detail::binary_result::same>(matmul(x, weight, where), bias, where);
  }
}

/// Two dense layers with GELU between them (the feed-forward part of GPT-2).
/// x [..., width], weight_in [width, hidden], bias_in [hidden], weight_out [hidden, width], bias_out [width] ->
/// [..., width]. `place(hidden, where)` may annotate what lies between, [..., hidden].
/// Errors: those of `dense` and `gelu`.
template <Traced X, Traced WeightIn, Traced BiasIn, Traced WeightOut, Traced BiasOut, class Place = anywhere>
constexpr auto mlp(const X& x, const WeightIn& weight_in, const BiasIn& bias_in, const WeightOut& weight_out,
                   const BiasOut& bias_out, const Place& place = {}, source_line where = source_line::current()) {
  if constexpr (Failed<X> || Failed<WeightIn> || Failed<BiasIn> || Failed<WeightOut> || Failed<BiasOut>) {
    return detail::first_failure(x, weight_in, bias_in, weight_out, bias_out);
  } else {
    const pinned_line line(*x.owner, where);
    const auto hidden = place(dense(x, weight_in, bias_in, where), where);
    return dense(gelu(hidden, where), weight_out, bias_out, where);
  }
}

}  // namespace espalier::nn
