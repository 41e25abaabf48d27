// SPDX-FileCopyrightText: 2026 The Espalier authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <espalier/tensor/core/ops/arithmetic.hpp>
#include <espalier/tensor/core/ops/further_result.hpp>

#include <cstdint>
#include <type_traits>

namespace mine {

constexpr void ensemble_gradient(espalier::gradient_context& c);

/// Of `count` numbers, the mean, and the mean of the squares of what they differ from it.
template <class T, class Member>
constexpr void mean_and_variance(int count, const Member& member, T& mean, T& variance) {
  mean = variance = 0;
  for (int k = 0; k < count; ++k) mean += member(k) / static_cast<T>(count);
  for (int k = 0; k < count; ++k) variance += (member(k) - mean) * (member(k) - mean) / static_cast<T>(count);
}

constexpr void evaluate_ensemble(const espalier::evaluation& e) {
  for (std::int64_t i = 0; i < e.self->shape.elements(); ++i) {
    mean_and_variance(
        e.self->operand_count, [&](int k) { return e.operand[k][i]; }, e.result[i], e.further_result[0][i]);
  }
}
constexpr std::int64_t ensemble_flops(espalier::op_view v) {
  return 5 * v.self().operand_count * v.self().shape.elements();
}

/// Any number of operands; result 0 is their mean, result 1 their variance, both element by element.
inline constexpr espalier::op_info ensemble_op{.name = "ensemble",
                                               .spread = espalier::propagation::elementwise,
                                               .factors = espalier::detail::same_dimensions,
                                               .gradient = ensemble_gradient,
                                               .evaluate = evaluate_ensemble,
                                               .flops = ensemble_flops};

/// With g and h flowing back to mean and variance, (g + 2 h (x - mean)) / count flows back to each operand x.
constexpr void ensemble_gradient(espalier::gradient_context& c) {
  namespace emit = espalier::emit;
  const int to_variance = c.further_result_cotangent[0];
  const int count = c.self().operand_count;
  for (int k = 0; k < count; ++k) {
    int sum = c.cotangent;
    if (to_variance >= 0) {
      const int difference = emit::subtract(c.emit, c.operand(k), c.id);
      sum = emit::add(c.emit, sum, emit::scale(c.emit, emit::multiply(c.emit, to_variance, difference), 2));
    }
    c.give(k, emit::scale(c.emit, sum, 1.0 / count));
  }
}

template <class Symbol> struct ensemble_results {
  Symbol mean;
  Symbol variance;
};

/// Mean and variance of tensors of one type. Errors: those of the arguments.
template <espalier::Traced First, espalier::Traced... Rest> constexpr auto ensemble(First first, const Rest&... rest) {
  if constexpr (espalier::Failed<First> || (espalier::Failed<Rest> || ...)) {
    const auto failure = espalier::detail::first_failure(first, rest...);
    return ensemble_results<std::remove_const_t<decltype(failure)>>{failure, failure};
  } else {
    static_assert((std::is_same_v<typename First::tensor, typename Rest::tensor> && ...), "tensors of one type");
    espalier::builder& b = *first.owner;
    b.at(first.seen);
    const int members[]{first.id, rest.id...};
    constexpr int count = 1 + static_cast<int>(sizeof...(Rest));
    const int mean = b.append(espalier::builder::make(ensemble_op, First::type, First::shape), &members[0], count);
    const int variance = espalier::emit::further_result(b, mean, 1, First::type, First::shape);
    return ensemble_results<First>{First(b, mean), First(b, variance)};
  }
}

}  // namespace mine
